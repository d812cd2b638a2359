//! Real programs, one to a test, each with what exactly it must say: what the walls leave alone.
//!
//! The same compiled tests run as root and as an ordinary user. `SANDBOX_TEST_VENV` names a virtual
//! environment with numpy, pandas and matplotlib; without it their tests are reported as lacking.

#[path = "../support/mod.rs"]
mod support;

mod compilers;
mod container;
mod git;
mod node;
mod packages;
mod profiles;
mod python;
mod science;
mod tools;

use std::fs;
use std::io::Write;
use std::path::Path;

use support::{Ran, exec, exec_with};

/// Whether every one of `programs` can be found in the sandbox of `environment`. Each that cannot is
/// reported as the suites report what a host lacks: by name, counted, and as a failure where
/// `SANDBOX_MUST_WORK` lists it.
fn found(environment: &str, programs: &[&str]) -> bool {
    let lacking = programs.iter().filter(|program| {
        exec(environment, &["sh", "-c", &format!("command -v {program}")]).code != 0
    });
    lacking.map(|program| lacks(program)).count() == 0
}

/// Says that this host lacks `what`, which the current test needs.
fn lacks(what: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    let must = std::env::var("SANDBOX_MUST_WORK").unwrap_or_default();
    assert!(!must.split(',').any(|listed| listed == what), "{test}: {what} must work here");
    eprintln!("LACKS {what}: {test}");
    if let Some(path) = std::env::var_os("SANDBOX_LACKS") {
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        // At once: others write beside it.
        file.expect("lacks").write_all(format!("{what} {test}\n").as_bytes()).expect("lacks");
    }
}

/// Runs a command that sees `project`, with time for a slow machine.
fn in_project(environment: &str, project: &Path, words: &[&str]) -> Ran {
    exec_with(environment, &[("PROJECT_DIR", project)], &["--timeout", "120"], words)
}

/// Asserts all of what a run said: nothing on stderr, and success.
#[track_caller]
fn says(ran: &Ran, expected: &str) {
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.code), (expected, "", 0));
}
