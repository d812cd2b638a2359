//! Runs one payload in one sandbox and holds what it observed against what is right.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::support::slower::seconds;
use super::support::{self, Capability, Ran};

/// Seconds that a payload may take where its entry says nothing else. What ends by the clock says
/// nothing of walls, and a virtual machine is slow.
const SECONDS: f64 = if cfg!(feature = "wall-removal") { 120.0 } else { 20.0 };

/// One entry of the list. Made by [`entries!`].
#[derive(Debug)]
#[allow(dead_code, reason = "some fields are for the evidence only")]
pub(crate) struct Entry {
    /// The test's name.
    pub(crate) name: &'static str,
    /// The id in `list.txt`. Several entries may share one.
    pub(crate) id: &'static str,
    /// The payload's file below `tests/escapes/`; its ending says how it is run.
    pub(crate) file: &'static str,
    /// Its text.
    pub(crate) payload: &'static str,
    /// What it must observe. Within a line, `{A|B}` stands for one of several and `{*}` for anything.
    pub(crate) expected: &'static str,
    /// Why lines with `{…}` are not the same everywhere.
    pub(crate) varies: &'static str,
    /// How long it may run.
    pub(crate) seconds: f64,
    /// Another environment than that of the payload's kind.
    pub(crate) environment: &'static str,
    /// The text of a settings file.
    pub(crate) settings: &'static str,
    /// Python code that the program is started by; it has `call`, and must print nothing.
    pub(crate) starter: &'static str,
    /// Walls whose report is appended to what was observed: `wall NAME: STRENGTH: DETAIL`.
    pub(crate) reported: &'static [&'static str],
    /// Environment variables of the program: its settings, or what it must not hand on.
    pub(crate) variables: &'static [(&'static str, &'static str)],
    /// Fills the project before the run.
    pub(crate) before: Option<fn(&Path)>,
    /// Looks at the host after the run; what it says is appended to what was observed.
    pub(crate) after: Option<fn(&Path) -> String>,
    /// Why this payload meets a missing wall in a virtual machine only, if it must.
    pub(crate) only_in_a_vm: &'static str,
    /// In `docs/evidence/walls.md`: why fewer than two walls stop it.
    pub(crate) note: &'static str,
}

impl Entry {
    /// What most entries leave as it is.
    pub(crate) const USUAL: Self = Self {
        name: "",
        id: "",
        file: "",
        payload: "",
        expected: "",
        varies: "",
        seconds: SECONDS,
        environment: "",
        settings: "",
        starter: "",
        reported: &[],
        variables: &[],
        before: None,
        after: None,
        only_in_a_vm: "",
        note: "",
    };

    fn needs(&self) -> &'static [Capability] {
        match self.file.rsplit_once('.') {
            Some((_, "py")) => &[Capability::Userns, Capability::Python],
            Some((_, "js")) => &[Capability::Userns, Capability::Node],
            Some((_, "c")) => &[Capability::Userns, Capability::Compiler],
            _ => &[Capability::Userns],
        }
    }

    /// Whether this host has what the payload needs; if not, that is said and counted.
    pub(crate) fn can_run(&self) -> bool {
        support::have(self.name, self.needs())
    }

    /// Runs the payload, with more variables, and says what it observed: its output, how it ended if
    /// not with exit code 0, and what the host looks like afterwards.
    pub(crate) fn observe(&self, more: &[(&str, &str)]) -> Observed {
        let project = support::directory();
        let project = project.path();
        // Anybody's to write: only a wall stops a payload, not the owner's mode bits.
        fs::set_permissions(project, fs::Permissions::from_mode(0o777)).expect("mode");
        if let Some(before) = self.before {
            before(project);
        }
        let (usual, words) = self.place(project);
        let environment = if self.environment.is_empty() { usual } else { self.environment };
        let outside = support::directory();
        let mut command = self.started(outside.path());
        command.args(["exec", "--json", "--env", environment]);
        command.args(["--timeout", &seconds(self.seconds)]);
        command.arg("--");
        command.args(words).env("PROJECT_DIR", project).stdin(Stdio::null());
        command.envs(self.variables.iter().chain(more).copied());
        let settings = outside.path().join("settings.toml");
        fs::write(&settings, self.settings).expect("settings");
        command.env("NIX_SANDBOX_CONFIG", settings);
        let ran = Ran::of(&command.output().expect("start the program"));
        let mut text = ran.stdout.clone();
        match (ran.ending(), ran.code) {
            ("exited", 0) => {}
            ("exited", code) => text.push_str(&format!("[exit {code}]\n")),
            ("signaled", code) => text.push_str(&format!("[signal {}]\n", code - 128)),
            (ending, _) => text.push_str(&format!("[{ending}]\n")),
        }
        for wall in self.reported {
            text.push_str(&ran.report(wall));
        }
        if let Some(after) = self.after {
            text.push_str(&after(project));
        }
        Observed { text, stderr: ran.stderr }
    }

    /// The program, or its starter, which lies in `outside`.
    fn started(&self, outside: &Path) -> Command {
        let program = support::command();
        if self.starter.is_empty() {
            return program;
        }
        let become_it = "import os, sys\nos.execv(sys.argv[1], sys.argv[1:])\n";
        let text = format!("from call import *\n{}\n{become_it}", self.starter);
        fs::write(outside.join("starter.py"), text).expect("starter");
        fs::write(outside.join("call.py"), include_str!("call.py")).expect("call.py");
        let mut starter = Command::new("python3");
        starter.arg(outside.join("starter.py")).arg(program.get_program());
        for (name, _) in program.get_envs() {
            starter.env_remove(name);
        }
        starter
    }

    /// Puts the payload into the project; the environment and the words that run it.
    fn place(&self, project: &Path) -> (&'static str, [String; 2]) {
        let (_, file) = self.file.rsplit_once('/').expect("GROUP/FILE");
        fs::write(project.join(file), self.payload).expect("payload");
        let inside = format!("/project/{file}");
        match file.rsplit_once('.') {
            Some((_, "py")) => {
                fs::write(project.join("call.py"), include_str!("call.py")).expect("call.py");
                ("python", ["python3".to_owned(), inside])
            }
            Some((_, "js")) => ("node", ["node".to_owned(), inside]),
            Some((_, "sh")) => ("shell", ["sh".to_owned(), inside]),
            Some((stem, "c")) => {
                compile(project, file);
                ("shell", ["env".to_owned(), format!("/project/{stem}")])
            }
            _ => panic!("{file}: a payload is .py, .sh, .js or .c"),
        }
    }
}

/// Compiles `file` in `place`, beside the helper; the program.
///
/// # Panics
/// If it is no C.
pub(crate) fn compile(place: &Path, file: &str) -> PathBuf {
    fs::write(place.join("call.h"), include_str!("call.h")).expect("call.h");
    let source = place.join(file);
    let program = source.with_extension("");
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "-O1", "-pthread", "-o"]).arg(&program).arg(&source);
    let output = compiler.output().expect("cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// What one run observed.
#[derive(Debug)]
pub(crate) struct Observed {
    /// What is compared.
    pub(crate) text: String,
    /// Shown when a test fails.
    pub(crate) stderr: String,
}

/// Runs an entry as a test.
///
/// # Panics
/// If it observed anything but what is right.
pub(crate) fn check(entries: &[Entry], name: &str) {
    let entry = entries.iter().find(|entry| entry.name == name).expect("entry");
    if !entry.can_run() {
        return;
    }
    let observed = entry.observe(&[]);
    let wrong = differences(entry.expected, &observed.text);
    assert!(
        wrong.is_empty(),
        "{} ({}):\n{}\nobserved in all:\n{}\nstderr:\n{}",
        entry.id,
        entry.file,
        wrong.join("\n"),
        observed.text,
        observed.stderr
    );
}

/// The lines in which `observed` is not as `expected`.
pub(crate) fn differences(expected: &str, observed: &str) -> Vec<String> {
    let (mut expected, mut observed) = (expected.lines(), observed.lines());
    let mut wrong = Vec::new();
    loop {
        match (expected.next(), observed.next()) {
            (None, None) => return wrong,
            (Some(want), Some(have)) if matches(want, have) => {}
            (want, have) => wrong.push(format!(
                "  right: {}\n  is:    {}",
                want.unwrap_or("(no line)"),
                have.unwrap_or("(no line)")
            )),
        }
    }
}

/// Whether a line is as its pattern says: `{A|B}` is one of several, `{*}` anything.
fn matches(pattern: &str, line: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('{') else { return pattern == line };
    let Some((choices, after)) = rest.split_once('}') else { return pattern == line };
    let Some(line) = line.strip_prefix(before) else { return false };
    choices.split('|').any(|choice| match choice {
        "*" => (0..=line.len())
            .filter(|at| line.is_char_boundary(*at))
            .any(|at| matches(after, &line[at..])),
        choice => line.strip_prefix(choice).is_some_and(|rest| matches(after, rest)),
    })
}

#[test]
fn a_pattern_matches_what_it_says() {
    assert!(matches("a: EPERM", "a: EPERM"));
    assert!(!matches("a: EPERM", "a: EPERM "));
    assert!(matches("a: {EPERM|ENOSYS}", "a: ENOSYS"));
    assert!(!matches("a: {EPERM|ENOSYS}", "a: ok"));
    assert!(matches("pid {*} is {zombie|dead}.", "pid 17 is dead."));
    assert!(!matches("pid {*} is dead", "pid 17 is alive"));
}

/// States the entries of a group: a constant `ENTRIES`, and one test for each.
///
/// `name: "ID" "group/FILE" => "what is right", field: value, …;`
macro_rules! entries {
    ($($name:ident: $id:literal $file:literal => $expected:expr $(, $field:ident: $value:expr)*;)+) => {
        /// The entries of this group.
        pub(crate) const ENTRIES: &[$crate::harness::Entry] = &[$($crate::harness::Entry {
            name: stringify!($name),
            id: $id,
            file: $file,
            payload: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/escapes/", $file)),
            expected: $expected,
            $($field: $value,)*
            ..$crate::harness::Entry::USUAL
        }),+];
        $(#[test]
        fn $name() {
            $crate::harness::check(ENTRIES, stringify!($name));
        })+
    };
}
