//! What entries showed, as lines that are printed where they run and read where the table is made.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Entry, Line, Row, WALLS};

/// How a line of ours begins among whatever else is printed.
const MARK: &str = "ROW ";

/// All that was shown.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The kernel of the machine that writes the table.
    pub(super) here: String,
    /// That of the virtual one.
    pub(super) machine: String,
    rows: BTreeMap<String, Row>,
}

impl Rows {
    /// What an entry showed; `None` if it belongs into a virtual machine and was not run in one.
    ///
    /// # Panics
    /// If it belongs here and was not run.
    pub(super) fn of(&self, entry: &Entry) -> Option<&Row> {
        let row = self.rows.get(entry.name);
        assert!(row.is_some() || !entry.only_in_a_vm.is_empty(), "{} was not run", entry.name);
        row
    }
}

/// Reads what was printed into a file.
///
/// # Panics
/// If a line is none of ours.
pub(super) fn read(path: &str) -> Rows {
    let text = std::fs::read_to_string(path).expect("a file of rows");
    let mut rows = Rows::default();
    for (_, line) in text.lines().filter_map(|line| line.split_once(MARK)) {
        let told: Value = serde_json::from_str(line).expect("a line of ours");
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        match told["place"].as_str() {
            Some("here") => rows.here = text("kernel"),
            Some(_) => rows.machine = text("kernel"),
            None => drop(rows.rows.insert(text("name"), read_row(&told["lines"]))),
        }
    }
    rows
}

fn read_row(lines: &Value) -> Row {
    let lines = lines.as_object().expect("lines").iter();
    Row(lines.map(|(text, line)| (text.clone(), read_line(line))).collect())
}

fn read_line(line: &Value) -> Line {
    let walls = |key: &str| {
        let named = line[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        let known = |name| WALLS.iter().find(|(wall, _)| *wall == name).expect("a wall").0;
        named.map(known).collect()
    };
    Line { stopped_by: walls("stopped_by"), needs: walls("needs") }
}

/// The line that says where the following ones come from.
pub(super) fn place(place: &str, kernel: &str) -> String {
    format!("{MARK}{}", json!({ "place": place, "kernel": kernel }))
}

/// The line that says what an entry showed.
pub(super) fn row(name: &str, row: &Row) -> String {
    let line = |line: &Line| json!({ "stopped_by": line.stopped_by, "needs": line.needs });
    let lines: Map<_, _> = row.0.iter().map(|(text, of)| (text.clone(), line(of))).collect();
    format!("{MARK}{}", json!({ "name": name, "lines": lines }))
}
