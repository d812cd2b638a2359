//! How the payload's process becomes its program.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::plan::Command;

/// A process group of its own, in the foreground of the terminal: Ctrl-C and Ctrl-Z reach it and
/// not pid 1.
pub(super) fn take_foreground() -> nix::Result<()> {
    let own = nix::unistd::getpid();
    nix::unistd::setpgid(own, own)?;
    nix::unistd::tcsetpgrp(std::io::stdin(), own)
}

/// Replaces this process by the program; returns what was tried and why it failed.
pub(super) fn execute(command: &Command) -> (PathBuf, Errno) {
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
