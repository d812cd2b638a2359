//! The audit log: who ran what, how it ended and which walls stood, one line of JSON for each run.
//!
//! Code is there as its SHA-256; the code itself, and what was kept of the outputs, only if the
//! operator asked for them. A request that was refused has a line too, however early it was, with
//! what is known of it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::log::one_line;
use crate::outcome::{Ending, Outcome, Strength, Usage};
use crate::plan::Wall;
use crate::request::{Draft, Request, Work, beginning};

/// What is kept, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The file that lines are appended to.
    pub file: PathBuf,
    /// Whether the code, or the command, is kept itself.
    pub code: bool,
    /// Whether what is kept of both outputs is kept here too.
    pub output: bool,
}

/// An audit log that stands open.
#[derive(Debug)]
pub struct Audit {
    file: File,
    code: bool,
    output: bool,
}

/// One run, as it is told.
#[derive(Debug)]
pub struct Run<'r> {
    /// When it was asked for.
    pub asked: SystemTime,
    /// What was asked for.
    pub request: &'r Request,
    /// What Nix built, if that is where it ran.
    pub artifact: Option<PathBuf>,
    /// How it ended, or in one sentence why nothing ran.
    pub result: Result<&'r Outcome, String>,
}

/// `environment`, `work` and `sha256` are there but where a [`Draft`] had none.
#[derive(Serialize)]
struct Line<'r> {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'r str>,
    #[serde(flatten)]
    task: Option<Task>,
    #[serde(flatten)]
    end: End<'r>,
}

#[derive(Serialize)]
struct Task {
    /// `code` or `command`.
    work: &'static str,
    /// Of the code; of a command, each of its words ended by a NUL byte.
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum End<'r> {
    Ran {
        ending: &'r Ending,
        usage: Usage,
        walls: BTreeMap<Wall, Strength>,
        #[serde(flatten)]
        outputs: Option<Outputs>,
    },
    Refused {
        refused: &'r str,
    },
}

#[derive(Serialize)]
struct Outputs {
    stdout: String,
    stderr: String,
}

impl Audit {
    /// Opens the file, made if need be for its owner alone.
    ///
    /// # Errors
    /// It cannot be written to, or is no regular file.
    pub fn open(rules: &Rules) -> io::Result<Self> {
        let Rules { file, code, output } = rules;
        let mut options = OpenOptions::new();
        // Not to wait for whoever may read a FIFO.
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NONBLOCK);
        let file = options.open(file)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(Self { file, code: *code, output: *output })
    }

    /// Appends the line of one run. A line that cannot be written is logged: nobody's result is
    /// lost for it.
    pub fn note(&self, run: &Run<'_>) {
        self.write(&self.line(run));
    }

    /// Appends the line of a request that was refused before it could be run, with the reason: one
    /// sentence.
    pub fn refuse(&self, draft: &Draft<'_>, refused: &str) {
        let Draft { environment, session, code } = draft;
        self.write(&Line {
            time: rfc3339(SystemTime::now()),
            environment: environment.map(beginning),
            store_path: None,
            session: session.map(beginning),
            task: code.map(|code| self.task("code", code)),
            end: End::Refused { refused },
        });
    }

    fn write(&self, line: &Line<'_>) {
        if let Err(error) = self.append(line) {
            tracing::error!(%error, "the audit log misses a run");
        }
    }

    fn append(&self, line: &Line<'_>) -> io::Result<()> {
        // JSON escapes what JSON must; `one_line` what terminals take for orders.
        let mut line = one_line(&serde_json::to_string(line)?);
        line.push('\n');
        // In one piece: what others append at the same time comes before or after.
        match (&self.file).write(line.as_bytes())? {
            length if length == line.len() => Ok(()),
            length => Err(io::Error::other(format!("{length} of {} bytes written", line.len()))),
        }
    }

    fn line<'r>(&self, run: &'r Run<'_>) -> Line<'r> {
        let task = match &run.request.work {
            Work::Code(code) => self.task("code", code),
            Work::Command(words) => {
                let words = words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat());
                self.task("command", &words.collect::<Vec<u8>>())
            }
        };
        // What passes through, to a terminal or a pipe, is not kept.
        let written = run.result.as_ref().map_or(0, |it| it.stdout.bytes + it.stderr.bytes);
        Line {
            time: rfc3339(run.asked),
            environment: Some(&run.request.environment),
            store_path: run.artifact.as_ref().map(|path| path.display().to_string()),
            session: run.request.session.as_ref().map(|name| name.as_str()),
            task: Some(task),
            end: match &run.result {
                Err(refused) => End::Refused { refused },
                Ok(outcome) => End::Ran {
                    ending: &outcome.ending,
                    usage: outcome.usage,
                    walls: outcome.enforced.0.iter().map(|it| (it.wall, it.strength)).collect(),
                    outputs: (self.output && written > 0).then(|| Outputs {
                        stdout: text(&outcome.stdout.to_bytes()),
                        stderr: text(&outcome.stderr.to_bytes()),
                    }),
                },
            },
        }
    }

    fn task(&self, work: &'static str, bytes: &[u8]) -> Task {
        let sha256 = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Task { work, sha256, code: self.code.then(|| text(bytes)) }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `2026-11-29T20:31:05.042Z`.
fn rfc3339(time: SystemTime) -> String {
    let since: Duration = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let milli = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Days since 1970 → year, month, day. Counted from the first of March of year 0, so that a leap day
/// is the last of its year, in eras of 400 years, which are all alike.
const fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::{Value, json};

    use super::*;
    use crate::outcome::{Enforced, Stream, WallReport};

    fn outcome() -> Outcome {
        let stdout = Stream { head: b"\x1b[2J\xff\n".to_vec(), tail: Vec::new(), bytes: 6 };
        let wall = WallReport {
            wall: Wall::Cgroup,
            strength: Strength::Off,
            detail: "no subtree".to_owned(),
        };
        Outcome {
            ending: Ending::Exited { code: 3 },
            stdout,
            stderr: Stream::default(),
            order: crate::outcome::Order::default(),
            usage: Usage { wall_us: 5, cpu_us: 4, peak_memory: 3, peak_pids: None },
            enforced: Enforced(vec![wall]),
            session: None,
            files: crate::outcome::Files::default(),
        }
    }

    fn lines(rules: &Rules, results: &[Result<&Outcome, String>]) -> Vec<Value> {
        let audit = Audit::open(rules).unwrap();
        let mut request = Request::new("python", Work::Code(b"print(\"\xc2\x9b\")".to_vec()));
        request.session = Some("s".parse().unwrap());
        for result in results {
            let asked = UNIX_EPOCH + Duration::from_millis(1_795_984_265_042);
            let artifact = Some("/nix/store/abc-python".into());
            audit.note(&Run { asked, request: &request, artifact, result: result.clone() });
        }
        let text = std::fs::read_to_string(&rules.file).unwrap();
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_run_is_a_line_without_code_and_output() {
        let dir = tempfile::tempdir().unwrap();
        let rules = Rules { file: dir.path().join("audit"), code: false, output: false };
        let lines = lines(&rules, &[Ok(&outcome()), Err("no\nsuch".to_owned())]);
        assert_eq!(
            lines[0],
            json!({
                "time": "2026-11-29T20:31:05.042Z",
                "environment": "python",
                "store_path": "/nix/store/abc-python",
                "session": "s",
                "work": "code",
                "sha256": lines[1]["sha256"],
                "ending": {"kind": "exited", "code": 3},
                "usage": {"wall_us": 5, "cpu_us": 4, "peak_memory": 3},
                "walls": {"cgroup": "off"},
            })
        );
        assert_eq!(lines[1]["refused"], "no\nsuch");
        assert!(lines[1].get("ending").is_none());
        let mode = std::fs::metadata(&rules.file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn code_and_output_are_kept_for_those_who_ask() {
        let dir = tempfile::tempdir().unwrap();
        let rules = Rules { file: dir.path().join("audit"), code: true, output: true };
        let first = lines(&rules, &[Ok(&outcome())]).remove(0);
        assert_eq!(first["code"], "print(\"\u{9b}\")");
        assert_eq!((&first["stdout"], &first["stderr"]), (&json!("\x1b[2J\u{fffd}\n"), &json!("")));
        assert_eq!(lines(&rules, &[Ok(&outcome())]).len(), 2, "appended");
    }

    #[test]
    fn what_was_refused_early_is_a_line_of_what_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let line = |draft: &Draft<'_>, code| {
            let file = dir.path().join(format!("audit-{code}"));
            let audit = Audit::open(&Rules { file: file.clone(), code, output: true }).unwrap();
            audit.refuse(draft, "no\nsuch");
            let text = std::fs::read_to_string(&file).unwrap();
            let mut line: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            assert!(line["time"].take().is_string(), "{line}");
            line
        };
        let nothing = json!({"time": null, "refused": "no\nsuch"});
        assert_eq!(line(&Draft::default(), true), nothing);
        let long = "e\u{9b}".repeat(100);
        let draft = Draft { environment: Some(&long), session: Some(&long), code: Some(b"1") };
        let mut known = json!({
            "time": null,
            "environment": "e\u{9b}".repeat(40),
            "session": "e\u{9b}".repeat(40),
            "work": "code",
            "sha256": "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
            "refused": "no\nsuch",
        });
        assert_eq!(line(&draft, false), known);
        known["code"] = json!("1");
        assert_eq!(line(&draft, true), known);
    }

    #[test]
    fn a_command_is_hashed_with_its_words_apart() {
        let dir = tempfile::tempdir().unwrap();
        let audit =
            Audit::open(&Rules { file: dir.path().join("a"), code: true, output: false }).unwrap();
        let request = Request::new("shell", Work::Command(vec!["ls".into(), "a b".into()]));
        let refused = Err(String::new());
        let run = Run { asked: UNIX_EPOCH, request: &request, artifact: None, result: refused };
        let line = serde_json::to_value(audit.line(&run)).unwrap();
        assert_eq!((&line["work"], &line["code"]), (&json!("command"), &json!("ls\0a b\0")));
        // printf 'ls\0a b\0' | sha256sum
        assert_eq!(
            line["sha256"],
            "644670eed4c907c73e7e186d256ba8e884648c37c84950ea3e87beed261a2cc0"
        );
    }

    #[test]
    fn what_cannot_be_appended_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for file in [fifo, "/dev/null".into(), dir.path().into(), "/no/such/file".into()] {
            let rules = Rules { file, code: false, output: false };
            assert!(Audit::open(&rules).is_err(), "{rules:?}");
        }
    }

    #[test]
    fn a_date_is_the_calendars() {
        for (days, date_of) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (20_787, (2026, 11, 30)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), date_of, "{days}");
        }
    }
}
