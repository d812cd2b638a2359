//! `envs`, `plan` and `doctor`: for people or as JSON.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::json;

use super::paint::{Size, columns};
use super::{House, Listed, Plan as Arguments, print, print_json};
use crate::environment::Origin;
use crate::environment::catalog::Absent;
use crate::plan::{Access, Command, Identity, Limits, Mount, MountKind, Plan, ProcMode, Wall};
use crate::request::Work;
use crate::runner::Filter;

pub(super) fn environments(house: &dyn House, json: bool) -> Result<ExitCode, String> {
    let all = house.environments()?;
    if json {
        print_json(&all.iter().map(environment_json).collect::<Vec<_>>())?;
    } else {
        let rows: Vec<[String; 4]> = all.iter().map(environment_row).collect();
        print_harmless(&columns(&rows, ""))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn environment_json(listed: &Listed) -> serde_json::Value {
    match &listed.environment {
        Ok(environment) => json!({
            "name": listed.name,
            "available": true,
            "state": "ready",
            "receipt": environment.receipt,
            "interpreter": environment.interpreter,
            "origin": environment.origin,
            "program": environment.program.to_string_lossy(),
            "description": environment.description,
            "passed_over": environment.passed_over,
        }),
        Err(absent) => json!({
            "name": listed.name,
            "available": false,
            "state": match absent {
                Absent::NotBuilt => "not built",
                Absent::Building => "building",
                Absent::Failed(_) => "failed",
            },
            "reason": absent.to_string(),
        }),
    }
}

fn environment_row(listed: &Listed) -> [String; 4] {
    let name = listed.name.clone();
    match &listed.environment {
        Ok(environment) => {
            let from = match &environment.origin {
                Origin::Host => "this host".to_owned(),
                Origin::Artifact { path } => path.display().to_string(),
            };
            let program = environment.program.display().to_string();
            let words = std::iter::once(environment.description.clone());
            let passed_over = environment.passed_over.iter().map(|why| format!("not used: {why}"));
            let words = words.chain(passed_over).collect::<Vec<_>>().join("; ");
            [name, program, from, words.replace('\n', " | ")]
        }
        // One row is one line.
        Err(absent) => [
            name,
            "-".to_owned(),
            match absent {
                Absent::NotBuilt | Absent::Building => "built by Nix".to_owned(),
                Absent::Failed(_) => "cannot be used".to_owned(),
            },
            absent.to_string().replace('\n', " | "),
        ],
    }
}

pub(super) fn doctor(house: &dyn House, json: bool) -> Result<ExitCode, String> {
    let found = house.doctor()?;
    if json {
        print_json(&found.json)?;
    } else {
        print_harmless(&found.text)?;
    }
    Ok(ExitCode::from(found.exit_code))
}

pub(super) fn apparmor_profile(house: &dyn House) -> Result<ExitCode, String> {
    print_harmless(&house.apparmor_profile())?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn plan(house: &dyn House, arguments: Arguments) -> Result<ExitCode, String> {
    let Arguments { env, sandbox, json, command } = arguments;
    let work = if command.is_empty() { Work::Code(Vec::new()) } else { Work::Command(command) };
    let runner = sandbox.runner(house)?;
    let plan = runner.plan(&sandbox.request(&env, work)).map_err(|error| error.to_string())?;
    if json {
        print_json(&plan)?;
    } else {
        print_harmless(&page(&plan))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The plan as a page, in the order of its fields.
fn page(plan: &Plan) -> String {
    let mut page = String::new();
    let sections = [
        ("environment", vec![[plan.environment().to_owned(), String::new()]]),
        ("identity", identity(plan.identity())),
        ("limits", limits(*plan.limits())),
        ("access", access(plan.access())),
        ("command", command(plan.command())),
        ("mounts", plan.mounts().iter().map(mount).collect()),
    ];
    for (title, rows) in sections {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "{title}\n{}", columns(&rows, "  "));
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn row(name: impl Into<String>, value: impl std::fmt::Display) -> [String; 2] {
    [name.into(), value.to_string()]
}

fn identity(identity: &Identity) -> Vec<[String; 2]> {
    let Identity { inside, outside, hostname } = identity;
    vec![
        row("inside", format_args!("uid {}, gid {}", inside.uid, inside.gid)),
        row("outside", format_args!("uid {}, gid {} of this host", outside.uid, outside.gid)),
        row("hostname", hostname),
    ]
}

fn limits(limits: Limits) -> Vec<[String; 2]> {
    let time = limits.time().as_secs_f64();
    let Limits { memory, swap, pids, cpu_milli, workspace, files, output, time_ms: _ } = limits;
    vec![
        row("memory", Size(memory)),
        row("swap", Size(swap)),
        row("pids", pids),
        row("cpu", f64::from(cpu_milli) / 1000.0),
        row("workspace", Size(workspace)),
        row("files", files),
        row("output", Size(output)),
        row("time", format_args!("{time} s")),
    ]
}

fn access(access: &Access) -> Vec<[String; 2]> {
    let Access { profile, wearer, proc, require: _ } = access;
    let proc = match proc {
        ProcMode::Fresh => "fresh, what speaks of the host masked",
        ProcMode::None => "empty",
    };
    let walls = |required| {
        let names = Wall::ALL.iter().filter(|wall| access.requires(**wall) == required);
        names.map(|wall| wall.name()).collect::<Vec<_>>().join(", ")
    };
    vec![
        row("system calls", format_args!("profile {}, for {}", word(profile), word(wearer))),
        row("/proc", proc),
        row("walls", walls(true)),
        row("if possible", walls(false)),
    ]
}

/// A value without fields by the name that it has in JSON.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "?".to_owned(),
    }
}

fn command(command: &Command) -> Vec<[String; 2]> {
    // What may run it is a matter of the backend.
    let Command { arguments, variables, directory, jail: _ } = command;
    let quoted: Vec<String> = arguments.iter().map(|argument| quote(argument)).collect();
    let mut rows = vec![row("run", quoted.join(" ")), row("in", directory.display())];
    for (at, (name, value)) in variables.iter().enumerate() {
        let title = if at == 0 { "with" } else { "" };
        rows.push(row(title, format_args!("{}={}", name.display(), quote(value))));
    }
    rows
}

/// As a shell would have to read it.
fn quote(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn mount(mount: &Mount) -> [String; 2] {
    let Mount { at, kind } = mount;
    let what = match kind {
        MountKind::Bind { source } => format!("{} of this host, read-only", source.path.display()),
        MountKind::Symlink { target } => format!("-> {}", target.display()),
        MountKind::File { content } => format!("file of {} bytes, read-only", content.len()),
        MountKind::Code => "the code, read-only".to_owned(),
        MountKind::Directory => "empty directory".to_owned(),
        MountKind::Tmpfs { size, inodes, mode } => {
            format!("memory, writable: {}, {inodes} files, mode {mode:04o}", Size(*size))
        }
        MountKind::Outputs => "long output of earlier runs, read-only".to_owned(),
        MountKind::Proc => "procfs".to_owned(),
        MountKind::Devices { shm } => {
            format!("null zero full random urandom tty pts; shm: {}", Size(*shm))
        }
    };
    row(at.display().to_string(), what)
}

/// Paths and arguments are anybody's.
fn print_harmless(text: &str) -> Result<(), String> {
    // Newlines in a path or an argument are rare and only untidy.
    let mut filter = Filter::text();
    print(&[filter.pass(text.as_bytes()), filter.finish()].concat())
}
