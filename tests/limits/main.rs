//! Limits on this host: by a cgroup where there is one, else by what holds in its place.
//!
//! A program of its own and no test harness, for three reasons: a launcher is started while there is
//! one thread; what runs in the sandbox is this program too (`probe`), so that a machine without
//! interpreters will do; and `tests/vm` takes it into machines that have nothing else.
#![expect(clippy::print_stdout, reason = "a program that reports on its standard output")]

mod cases;
mod probe;

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::unistd::{getgid, getuid};
use nix_sandbox::backend::native::Native;
use nix_sandbox::engine::cgroup::{Cgroups, NoCgroup, Scope};
use nix_sandbox::engine::sources::Sources;
use nix_sandbox::engine::{Launcher, launcher};
use nix_sandbox::environment::catalog::Catalog;
use nix_sandbox::outcome::{Ending, Outcome};
use nix_sandbox::plan::{FileIdentity, HostFile, Identity, Ids, LimitOverrides, Wall};
use nix_sandbox::planner::Ground;
use nix_sandbox::request::{Request, Work};
use nix_sandbox::runner::{Cancel, Fault, RunError, Runner, Streams};
use nix_sandbox::settings::Settings;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(launcher::ARGUMENT) => {
            ExitCode::from(u8::try_from(launcher::main(&arguments[1..])).unwrap_or(1))
        }
        Some("probe") => probe::main(&arguments[1..]),
        Some("hold") => cases::hold(),
        Some("scoped") => cases::scoped(),
        Some("refusal") => refusal(),
        Some("once") => once(&arguments[1..]),
        _ => suite(arguments.iter().find(|word| !word.starts_with("--"))),
    }
}

/// Prints why nothing runs on this host: `tests/vm` knows what the sentence must be.
fn refusal() -> ExitCode {
    match runner(Wants::default()).and_then(|runner| run(&runner, &["sh", "-c", "true"])) {
        Ok(outcome) => println!("REFUSAL none: {}", outcome.ending),
        Err(error) => println!("REFUSAL {:?}: {error}", error.fault()),
    }
    ExitCode::SUCCESS
}

/// One probe as the command line would run it: by this very process.
fn once(words: &[String]) -> ExitCode {
    let cgroups = Cgroups::find(outside(), Scope::Never);
    let launcher = Launcher::direct().expect("a launcher");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = run_probe(&runner_with(Wants::default(), launcher, cgroups), &words);
    println!(
        "ONCE {}, {}",
        outcome.ending,
        outcome.enforced.get(Wall::Cgroup).expect("a report").detail
    );
    ExitCode::SUCCESS
}

/// Runs every case whose name contains `part`.
fn suite(part: Option<&String>) -> ExitCode {
    let cgroup = Cgroups::find(outside(), Scope::Never).map(drop);
    let host = Host { cgroup, lacking: Cell::new(None) };
    match &host.cgroup {
        Ok(()) => println!("a cgroup limits what runs here"),
        Err(reason) => println!("no cgroup: {reason}"),
    }
    let (mut passed, mut failed) = (0, 0);
    for (name, case) in cases::ALL {
        if part.is_some_and(|part| !name.contains(part.as_str())) {
            continue;
        }
        let begun = std::time::Instant::now();
        host.lacking.set(None);
        let ok = catch_unwind(AssertUnwindSafe(|| case(&host))).is_ok();
        let seconds = begun.elapsed().as_secs_f64();
        match (ok, host.lacking.get()) {
            (false, _) => failed += 1,
            (true, None) => passed += 1,
            (true, Some(what)) => {
                lacks(what, name);
                continue;
            }
        }
        println!("test {name} ... {} ({seconds:.2} s)", if ok { "ok" } else { "FAILED" });
    }
    let all = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {all}. {passed} passed; {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// Says by name what this host lacks, and counts it.
fn lacks(what: &str, case: &str) {
    println!("LACKS {what}: {case}");
    if let Some(path) = std::env::var_os("SANDBOX_LACKS") {
        let mut file = fs::OpenOptions::new().append(true).open(path).expect("lacks");
        // At once: others write beside it.
        file.write_all(format!("{what} limits::{case}\n").as_bytes()).expect("lacks");
    }
}

/// What this host can do.
pub(crate) struct Host {
    cgroup: Result<(), NoCgroup>,
    lacking: Cell<Option<&'static str>>,
}

impl Host {
    pub(crate) fn has_cgroup(&self) -> bool {
        self.cgroup.is_ok()
    }

    /// Whether there is a cgroup. If not, the case is told to be lacking it; where
    /// `SANDBOX_MUST_WORK` lists it, that is a failure.
    pub(crate) fn needs_cgroup(&self) -> bool {
        let Err(reason) = &self.cgroup else { return true };
        let must = std::env::var("SANDBOX_MUST_WORK").unwrap_or_default();
        assert!(!must.split(',').any(|listed| listed == "cgroup"), "{reason}");
        self.lacking.set(Some("cgroup"));
        false
    }

    /// Whether this host has cgroups and gives none.
    pub(crate) fn needs_undelegated(&self) -> bool {
        let is = matches!(self.cgroup, Err(NoCgroup::NotDelegated(_)));
        self.lacking.set((!is).then_some("undelegated"));
        is
    }
}

/// What a case wants of its sandboxes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Wants {
    pub(crate) limits: LimitOverrides,
    pub(crate) require: Option<Wall>,
}

pub(crate) fn limits(limits: LimitOverrides) -> Wants {
    Wants { limits, ..Wants::default() }
}

pub(crate) fn outside() -> Ids {
    match getuid().as_raw() {
        0 => Identity::FALLBACK_OUTSIDE,
        uid => Ids { uid, gid: getgid().as_raw() },
    }
}

/// A runner with a launcher of its own, as a server has.
pub(crate) fn runner(wants: Wants) -> Result<Runner, RunError> {
    // Before the launcher, which is to live where this process does.
    let cgroups = Cgroups::find(outside(), Scope::Never);
    let launcher = Launcher::spawn(outside())
        .map_err(|error| RunError::Other { fault: Fault::Host, message: error.to_string() })?;
    Ok(runner_with(wants, launcher, cgroups))
}

/// With the directory of this program as the project.
fn runner_with(wants: Wants, launcher: Launcher, cgroups: Result<Cgroups, NoCgroup>) -> Runner {
    let native = Native::new(launcher, Sources::default(), cgroups);
    let ground = Ground {
        project: Some((directory(&own_directory()), PathBuf::from("/project"))),
        limits: wants.limits,
        require: wants.require.into_iter().collect(),
        ..Ground::default()
    };
    let settings = Settings::load(&|name| std::env::var_os(name), getuid().as_raw());
    let catalog = Catalog::load(settings.expect("settings").sources);
    Runner::new(catalog, ground, outside(), Box::new(native))
}

fn own_directory() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    program.parent().expect("its directory").to_owned()
}

fn directory(path: &Path) -> HostFile {
    let found = fs::metadata(path).expect("directory");
    let identity = FileIdentity { device: found.dev(), inode: found.ino() };
    HostFile { path: path.to_owned(), directory: true, identity }
}

pub(crate) fn run(runner: &Runner, words: &[&str]) -> Result<Outcome, RunError> {
    let work = Work::Command(words.iter().map(Into::into).collect());
    let cancel = Cancel::new().expect("cancel");
    runner.run(&Request::new("shell", work), Streams::Capture, &cancel)
}

/// Runs one probe in a sandbox of its own.
pub(crate) fn probe(wants: Wants, words: &[&str]) -> Outcome {
    run_probe(&runner(wants).expect("a runner"), words)
}

fn run_probe(runner: &Runner, words: &[&str]) -> Outcome {
    let program = std::env::current_exe().expect("this program");
    let name = program.file_name().expect("its name").to_str().expect("text");
    let program = format!("/project/{name}");
    run(runner, &[&[program.as_str(), "probe"], words].concat()).expect("an outcome")
}

/// What it wrote, both streams.
pub(crate) fn said(outcome: &Outcome) -> String {
    let text = |stream: &nix_sandbox::outcome::Stream| {
        String::from_utf8_lossy(&stream.to_bytes()).into_owned()
    };
    text(&outcome.stdout) + &text(&outcome.stderr)
}

/// # Panics
/// If it did not end so.
pub(crate) fn assert_ending(outcome: &Outcome, ending: &Ending) {
    assert_eq!(&outcome.ending, ending, "{} {:?}", said(outcome), outcome.usage);
}
