//! The doctor on real hosts, good and bad, made in throw-away namespaces of this one.
//!
//! A scenario is this program started once more: it makes a bad host around itself and then becomes
//! `report`, which is the doctor alone. The machine's own switches and mounts are never touched.

#![allow(clippy::print_stdout, reason = "a program of its own, and a test runner")]

mod scenario;
mod tests;

use std::collections::BTreeSet;
use std::process::ExitCode;

use nix_sandbox::doctor::{Wanted, examine};
use nix_sandbox::plan::{Identity, Ids, ProcMode, Wall};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["report", form] => report(form),
        ["scenario", name] => scenario::enter(name),
        _ => tests::run(words.iter().find(|word| !word.starts_with('-')).copied()),
    }
}

/// What `nix-sandbox-mcp doctor` does.
fn report(form: &str) -> ExitCode {
    let uid = nix::unistd::getuid().as_raw();
    let outside = match uid {
        0 => Identity::FALLBACK_OUTSIDE,
        _ => Ids { uid, gid: nix::unistd::getgid().as_raw() },
    };
    let proc = if form == "no-proc" { ProcMode::None } else { ProcMode::Fresh };
    let require =
        if form == "require-cgroup" { BTreeSet::from([Wall::Cgroup]) } else { BTreeSet::new() };
    let report = examine(&Wanted { proc, require, ..Wanted::of(outside) });
    let text = match form {
        "text" => report.to_text(),
        _ => serde_json::to_string_pretty(&report).expect("JSON"),
    };
    println!("{text}");
    ExitCode::from(report.exit_code())
}
