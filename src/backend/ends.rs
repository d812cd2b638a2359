//! The pipes between a payload and whoever started it.

use std::os::fd::OwnedFd;

use nix::fcntl::OFlag;
use nix::unistd::{Gid, Uid, fchown, geteuid, pipe2};

use super::Handover;
use crate::kernel;
use crate::plan::Ids;

/// Our ends of what a payload is given.
#[derive(Debug)]
pub struct Ends {
    /// The read end of its report pipe.
    pub report: OwnedFd,
    /// The read ends of its standard output and its standard error.
    pub outputs: [OwnedFd; 2],
    /// Over this socket pid 1 sends a descriptor of its `/workspace`.
    pub workspace: OwnedFd,
}

impl Ends {
    /// Ours, and those of a payload that is `owner` for this host. Its standard input is at its end.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub fn new(owner: Ids) -> nix::Result<(Self, Handover)> {
        let (report, report_end) = pipe2(OFlag::O_CLOEXEC)?;
        let ((stdout, stdout_end), (stderr, stderr_end)) = (pipe_of(owner)?, pipe_of(owner)?);
        let (workspace, workspace_end) = kernel::message_pair()?;
        let handover = Handover {
            stdin: None,
            outputs: [stdout_end, stderr_end],
            report: report_end,
            code: None,
            go: None,
            terminal: None,
            control: None,
            workspace: Some(workspace_end),
        };
        Ok((Self { report, outputs: [stdout, stderr], workspace }, handover))
    }
}

/// A pipe that a payload may open once more, as `/dev/stdin` or `/dev/stderr`: the kernel lets its owner,
/// and that is whoever made it.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn pipe_of(owner: Ids) -> nix::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    if geteuid().is_root() {
        let Ids { uid, gid } = owner;
        // Who is root in a container only may not; then all but opening it once more works.
        let _ = fchown(&read, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    }
    Ok((read, write))
}
