//! What a virtual machine showed of the entries that meet a missing wall nowhere else.
//!
//! There the program prints a line for each; `tests/walls` gathers them in a file, of which the table
//! is made.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Line, Row, WALLS};

/// How a line of ours begins among what a machine prints.
const MARK: &str = "ROW ";

/// What a machine was and what it showed.
#[derive(Debug, Default)]
pub(super) struct Machine {
    /// Its kernel, with the version of its Landlock. Empty if there was none.
    pub(super) kernel: String,
    pub(super) rows: BTreeMap<String, Row>,
}

impl Machine {
    /// Reads what one printed.
    ///
    /// # Panics
    /// If a line is none of ours.
    pub(super) fn read(text: &str) -> Self {
        let mut machine = Self::default();
        for line in text.lines().filter_map(|line| line.split_once(MARK)) {
            let told: Value = serde_json::from_str(line.1).expect("a line of ours");
            if let Some(kernel) = told["kernel"].as_str() {
                kernel.clone_into(&mut machine.kernel);
                continue;
            }
            let name = told["name"].as_str().expect("name").to_owned();
            let lines = told["lines"].as_object().expect("lines");
            let lines = lines.iter().map(|(text, line)| (text.clone(), read_line(line)));
            machine.rows.insert(name, Row::Lines(lines.collect()));
        }
        machine
    }
}

fn read_line(line: &Value) -> Line {
    let walls = |key: &str| {
        let named = line[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        let known = |name| WALLS.iter().find(|(wall, _)| *wall == name).expect("a wall").0;
        named.map(known).collect()
    };
    Line { stopped_by: walls("stopped_by"), needs: walls("needs") }
}

/// The line that says which machine this is.
pub(super) fn tell_kernel(kernel: &str) -> String {
    format!("{MARK}{}", json!({ "kernel": kernel }))
}

/// The line that says what an entry showed.
pub(super) fn tell(name: &str, row: &Row) -> String {
    let line = |line: &Line| json!({ "stopped_by": line.stopped_by, "needs": line.needs });
    let lines: serde_json::Map<_, _> =
        row.lines().map(|(text, of)| (text.clone(), line(of))).collect();
    format!("{MARK}{}", json!({ "name": name, "lines": lines }))
}
