//! What the suites share: running the real program, and saying openly what this host lacks.

#![allow(dead_code, reason = "each suite uses its part")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

pub(crate) mod slower;
use slower::patience;

/// The program under test. `NIX_SANDBOX_BIN` names another copy: the ordinary user's run of the
/// same compiled tests needs one that it may execute.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("NIX_SANDBOX_BIN")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_nix-sandbox-mcp")), PathBuf::from)
}

/// A command that starts the program with nothing of ours in its settings.
pub(crate) fn command() -> Command {
    plain(Command::new(program()))
}

/// `command`, which starts the program in the end, with nothing of ours in its settings.
pub(crate) fn plain(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let ours = ["NIX_SANDBOX_", "PROJECT_", "SESSION_"];
        if ours.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    if let Some(backend) = backend() {
        command.env("NIX_SANDBOX_BACKEND", backend);
    }
    command
}

fn backend() -> Option<std::ffi::OsString> {
    std::env::var_os("SANDBOX_TEST_BACKEND")
}

/// Whether scripts are run as code and not as commands: a jail that Nix built runs nothing else.
fn as_code() -> bool {
    std::env::var_os("SANDBOX_TEST_AS_CODE").is_some()
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// What one run said: the JSON of `exec --json` and `run --json`.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) json: Value,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: i64,
}

impl Ran {
    /// # Panics
    /// If the program itself failed.
    pub(crate) fn of(output: &Output) -> Self {
        let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            let said = String::from_utf8_lossy(&output.stderr);
            panic!("no JSON ({error}): {:?} {said}", output.status)
        });
        let text = |stream: &str| json[stream]["text"].as_str().unwrap_or_default().to_owned();
        let (stdout, stderr) = (text("stdout"), text("stderr"));
        let code = json["exit_code"].as_i64().expect("exit_code");
        Self { stdout, stderr, code, json }
    }

    pub(crate) fn ending(&self) -> &str {
        self.json["ending"]["kind"].as_str().unwrap_or_default()
    }

    /// What the result says of one wall: `wall NAME: STRENGTH: DETAIL`.
    pub(crate) fn report(&self, wall: &str) -> String {
        let walls = self.json["enforced"].as_array().expect("enforced");
        let Some(found) = walls.iter().find(|report| report["wall"] == wall) else {
            return format!("wall {wall}: not told\n");
        };
        let text = |key: &str| found[key].as_str().expect("text");
        format!("wall {wall}: {}: {}\n", text("strength"), text("detail"))
    }
}

/// Runs a command in an environment.
pub(crate) fn exec(environment: &str, words: &[&str]) -> Ran {
    exec_with(environment, &[], &[], words)
}

/// Runs a shell script with the `shell` environment.
pub(crate) fn sh(script: &str) -> Ran {
    exec("shell", &["sh", "-c", script])
}

/// Runs a command with more options and environment variables.
pub(crate) fn exec_with(
    environment: &str,
    variables: &[(&str, &Path)],
    options: &[&str],
    words: &[&str],
) -> Ran {
    if let (Some(script), true) = (script(environment, words), as_code()) {
        return code_with(environment, variables, options, script.as_bytes());
    }
    let mut command = command();
    command.args(["exec", "--json", "--env", environment]).args(patience(options)).args(options);
    command.arg("--").args(words);
    command.envs(variables.iter().copied()).stdin(Stdio::null());
    Ran::of(&command.output().expect("start the program"))
}

/// The words that have the program run a shell script, at the end of a shell's line.
pub(crate) fn in_shell(script: &str) -> String {
    if as_code() {
        note("SANDBOX_TEST_TALLY", &test());
        return format!("run --env shell - <<'END'\n{script}\nEND\n");
    }
    format!("exec -- sh -c '{script}'")
}

/// What a command of the environment's own interpreter would run as code.
fn script<'w>(environment: &str, words: &[&'w str]) -> Option<&'w str> {
    match (environment, words) {
        ("shell", ["sh", "-c", script])
        | ("python", ["python3", "-c", script])
        | ("node", ["node", "-e", script]) => Some(script),
        _ => None,
    }
}

/// Runs code as the MCP tool would.
pub(crate) fn code(environment: &str, options: &[&str], code: &[u8]) -> Ran {
    code_with(environment, &[], options, code)
}

fn code_with(environment: &str, variables: &[(&str, &Path)], options: &[&str], code: &[u8]) -> Ran {
    let mut command = command();
    command
        .args(["run", "--json", "--env", environment])
        .args(patience(options))
        .args(options)
        .arg("-");
    command.envs(variables.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("start the program");
    let mut stdin = child.stdin.take().expect("stdin");
    stdin.write_all(code).expect("hand over the code");
    drop(stdin);
    let ran = Ran::of(&child.wait_with_output().expect("wait for the program"));
    if as_code() {
        let by = ran.report("namespaces");
        assert!(backend().is_none() || by.contains("by the environment's own jail, "), "{by}");
        note("SANDBOX_TEST_TALLY", &test());
    }
    ran
}

/// The test that this thread runs.
fn test() -> String {
    std::thread::current().name().unwrap_or("test").to_owned()
}

/// Adds a line to the file that the environment variable `file` names, if there is one.
fn note(file: &str, line: &str) {
    if let Some(path) = std::env::var_os(file) {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).expect("open");
        // At once: others write beside it.
        file.write_all(format!("{line}\n").as_bytes()).expect("write");
    }
}

/// Something that a host may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    Userns,
    Landlock,
    Python,
    Node,
    Compiler,
    Root,
    Bubblewrap,
    /// Another owner for the files of where tests have theirs: a tmpfs has it since Linux 6.3.
    Idmap,
}

impl Capability {
    fn name(self) -> &'static str {
        match self {
            Self::Userns => "userns",
            Self::Landlock => "landlock",
            Self::Python => "python",
            Self::Node => "node",
            Self::Compiler => "compiler",
            Self::Root => "root",
            Self::Bubblewrap => "bubblewrap",
            Self::Idmap => "idmap",
        }
    }

    fn is_here(self) -> bool {
        static CELLS: [OnceLock<bool>; 8] = [const { OnceLock::new() }; 8];
        *CELLS[self as usize].get_or_init(|| match self {
            Self::Userns => succeeds("shell", &["true"]),
            Self::Landlock => Path::new("/proc/self").exists() && landlock(),
            Self::Python => succeeds("python", &["python3", "-c", "pass"]),
            Self::Node => succeeds("node", &["node", "-e", "0"]),
            Self::Compiler => {
                Command::new("cc").arg("--version").output().is_ok_and(|cc| cc.status.success())
            }
            Self::Root => is_root(),
            Self::Bubblewrap => {
                Command::new("bwrap").arg("--version").output().is_ok_and(|it| it.status.success())
            }
            Self::Idmap => idmap(),
        })
    }
}

fn succeeds(environment: &str, words: &[&str]) -> bool {
    let mut command = command();
    command.args(["exec", "--env", environment, "--"]).args(words).stdin(Stdio::null());
    command.output().is_ok_and(|output| output.status.success())
}

fn idmap() -> bool {
    let release =
        nix::sys::utsname::uname().expect("uname").release().to_string_lossy().into_owned();
    let mut numbers =
        release.split(|at: char| !at.is_ascii_digit()).filter_map(|text| text.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let place = nix::sys::statfs::statfs(&std::env::temp_dir()).expect("statfs");
    version >= (6, 3) || place.filesystem_type() != nix::sys::statfs::TMPFS_MAGIC
}

fn landlock() -> bool {
    nix_sandbox::kernel::landlock_abi().is_some()
}

/// Whether `wanted` is here. If not, that is said by name and counted; where
/// `SANDBOX_MUST_WORK` lists it, it is a failure.
///
/// # Panics
/// If a listed capability is missing.
pub(crate) fn have(test: &str, wanted: &[Capability]) -> bool {
    let must = std::env::var("SANDBOX_MUST_WORK").unwrap_or_default();
    let lacking: Vec<_> = wanted.iter().filter(|capability| !capability.is_here()).collect();
    for capability in &lacking {
        let name = capability.name();
        assert!(!must.split(',').any(|listed| listed == name), "{test}: {name} must work here");
        eprintln!("LACKS {name}: {test}");
        note("SANDBOX_LACKS", &format!("{name} {test}"));
    }
    lacking.is_empty()
}

/// Leaves the test where the host lacks something that it needs.
#[macro_export]
macro_rules! needs {
    ($($capability:ident),+) => {
        if !$crate::support::have(
            std::thread::current().name().unwrap_or("test"),
            &[$($crate::support::Capability::$capability),+],
        ) {
            return;
        }
    };
}

/// A directory of our own that every user may enter, removed when dropped. Not below `/tmp`'s
/// usual private name with mode 0700, so that a sandbox that root starts may look in.
pub(crate) fn directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new()
        .prefix("sandbox-test-")
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir()
        .expect("temporary directory")
}

/// The processes whose command line holds `marker`, ourselves left out.
pub(crate) fn processes_with(marker: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == own || !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(marker) {
            found.push(format!("{name}: {}", String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}
