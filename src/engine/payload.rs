//! The payload's own steps, in pid 1's memory until it executes its program.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::removal::{self, Part};
use super::report::{At, Done, Report, StepError};
use super::{init, landlock};
use crate::kernel;
use crate::plan::{Access, Command};

/// The payload's own steps, up to exec. Returns only when one fails.
pub(super) fn payload(
    command: &Command,
    access: &Access,
    terminal: bool,
    report: &File,
) -> StepError {
    match enter_payload(&command.directory, access, terminal) {
        Err(error) => error,
        Ok(()) => {
            let (program, errno) = execute(command);
            let program = program.to_string_lossy().into_owned();
            let sent = Report::NotExecuted { program, errno: errno as i32 }.send(report);
            kernel::exit_now(if sent.is_err() { 1 } else { 127 })
        }
    }
}

fn enter_payload(directory: &Path, access: &Access, terminal: bool) -> Done {
    if terminal {
        // While signals are blocked: whoever takes the foreground from behind gets SIGTTOU.
        take_foreground().at("take the foreground of the terminal", "")?;
    } else {
        nix::unistd::setsid().map(drop).at("start a session", "")?;
    }
    init::unblock_signals().at("unblock signals", "")?;
    nix::unistd::chdir(directory).at("enter", directory.display())?;
    // Nested: pid 1 lies outside of it, so no signal, no ptrace, no /proc/1.
    if removal::stands(Part::Landlock) {
        landlock::enter(access)?;
    }
    Ok(())
}

/// A process group of its own, in the foreground of the terminal: Ctrl-C and Ctrl-Z reach it and
/// not pid 1.
fn take_foreground() -> nix::Result<()> {
    let own = nix::unistd::getpid();
    nix::unistd::setpgid(own, own)?;
    nix::unistd::tcsetpgrp(std::io::stdin(), own)
}

/// Replaces this process by the program; returns what was tried and why it failed.
fn execute(command: &Command) -> (PathBuf, Errno) {
    let c_string = |text: &OsStr| CString::new(text.as_bytes()).unwrap_or_default();
    let arguments: Vec<CString> = command.arguments.iter().map(|text| c_string(text)).collect();
    let variables: Vec<CString> = command
        .variables
        .iter()
        .map(|(name, value)| c_string(&[name.as_os_str(), value].join(OsStr::new("="))))
        .collect();
    let name = command.arguments.first().map_or(OsStr::new(""), |name| name.as_os_str());
    let mut failed = (PathBuf::from(name), Errno::ENOENT);
    for candidate in candidates(name, command.variables.get(OsStr::new("PATH"))) {
        let path = c_string(candidate.as_os_str());
        let errno = match nix::unistd::execve(&path, &arguments, &variables) {
            Ok(never) => match never {},
            Err(errno) => errno,
        };
        // As execvp(3): go on looking, but remember that one was there.
        if errno != Errno::ENOENT && errno != Errno::ENOTDIR {
            failed = (candidate, errno);
            if errno != Errno::EACCES {
                break;
            }
        }
    }
    failed
}

/// Where a program of this name is looked for, as execvp(3) does.
pub(crate) fn candidates(name: &OsStr, path: Option<&std::ffi::OsString>) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![PathBuf::from(name)];
    }
    let path = path.map_or(OsStr::new("/usr/bin:/bin"), |path| path.as_os_str());
    std::env::split_paths(path).map(|directory| directory.join(name)).collect()
}
