//! What a payload gets of its own: its streams, its code, its control pipes.
//!
//! A sandbox is told at its launch, or later: then it stands ready until a message comes over its
//! *order* socket, and until then nobody's code has run in it.
//!
//! The interpreter may even be started before its code is there: it opens a FIFO then that has the
//! name of the code's file, and waits in read(2). Whoever has the code writes it into the file, gives
//! that the FIFO's name, and writes the same into the FIFO.

use std::fs::File;
use std::io::BufReader;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use super::report::StepError;
use crate::kernel;
use crate::plan::Command;

/// How long something may take that is made ahead: a file system that hangs must not make everybody
/// wait who comes after.
const PATIENCE: Duration = Duration::from_secs(10);

/// When a sandbox is told what its payload gets.
#[derive(Debug)]
pub enum Begin {
    /// At its launch.
    Now(Start),
    /// Over this socket, one end of a [`kernel::message_pair`].
    Ordered {
        /// The socket.
        order: OwnedFd,
        /// Whether the payload shall be able to start before its code is there.
        warm: bool,
    },
}

/// Where the code comes later: the name of its file as long as a FIFO has the right one.
pub const LATER: &str = ".later";

/// What one payload gets. The descriptors are the sandbox's own copies.
#[derive(Debug)]
pub struct Start {
    /// The payload's standard input; without one it reads from the sandbox's own `/dev/null`.
    pub stdin: Option<OwnedFd>,
    /// Its standard output and its standard error.
    pub outputs: [OwnedFd; 2],
    /// Where pid 1 reports: the write end of a pipe.
    pub report: OwnedFd,
    /// The code, if the plan has a place for it and it is there.
    pub code: Option<OwnedFd>,
    /// What says that the code or the session has come, if the payload starts before: the read end of a
    /// pipe. The payload's time runs from then on; if nothing ever says so, the sandbox ends.
    pub go: Option<OwnedFd>,
    /// Where to send the master of the payload's own terminal, if it shall have one: one end of a
    /// [`kernel::message_pair`]. Pid 1 waits there until it is answered. The streams above are not used then.
    pub terminal: Option<OwnedFd>,
    /// A session's control pipes, the agent's ends: where requests come from (its 3) and where
    /// answers go (its 4).
    pub control: Option<[OwnedFd; 2]>,
    /// Where to send a descriptor of `/workspace`, if somebody outside shall look into it: one end
    /// of a [`kernel::message_pair`].
    pub workspace: Option<OwnedFd>,
}

/// An order: what to run, and what goes with it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    command: Command,
    head: Head,
}

/// Which descriptors travel, in the order of [`Start::descriptors`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    stdin: bool,
    code: bool,
    go: bool,
    terminal: bool,
    control: bool,
    workspace: bool,
}

impl Start {
    pub(crate) const fn head(&self) -> Head {
        Head {
            stdin: self.stdin.is_some(),
            code: self.code.is_some(),
            go: self.go.is_some(),
            terminal: self.terminal.is_some(),
            control: self.control.is_some(),
            workspace: self.workspace.is_some(),
        }
    }

    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let Self { stdin, outputs, report, code, go, terminal, control, workspace } = self;
        let single = code.iter().chain(go).chain(terminal);
        let all = stdin
            .iter()
            .chain(outputs)
            .chain([report])
            .chain(single)
            .chain(control.iter().flatten());
        all.chain(workspace).map(AsFd::as_fd).collect()
    }

    /// `None` if there are fewer than the head says.
    pub(crate) fn read(head: Head, mut fds: impl Iterator<Item = OwnedFd>) -> Option<Self> {
        let mut when = |wanted: bool| match wanted {
            true => fds.next().map(Some),
            false => Some(None),
        };
        Some(Self {
            stdin: when(head.stdin)?,
            outputs: [when(true)??, when(true)??],
            report: when(true)??,
            code: when(head.code)?,
            go: when(head.go)?,
            terminal: when(head.terminal)?,
            control: match head.control {
                true => Some([when(true)??, when(true)??]),
                false => None,
            },
            workspace: when(head.workspace)?,
        })
    }
}

/// What a sandbox that was launched with [`Begin::Ordered`] says once.
type Standing = Result<(), StepError>;

/// Where code is put that comes later.
#[derive(Debug)]
pub struct CodePlace {
    /// The file, to be written.
    pub file: File,
    /// Its directory, to be renamed in: of [`LATER`] to the file's name, which a FIFO has.
    pub directory: OwnedFd,
}

/// Pid 1: every wall stands, or one does not.
pub(super) fn tell_standing(
    order: BorrowedFd<'_>,
    standing: &Standing,
    place: Option<&CodePlace>,
) -> nix::Result<()> {
    let bytes = serde_json::to_vec(standing).map_err(|_| Errno::EINVAL)?;
    let fds = place.map(|place| [place.file.as_fd(), place.directory.as_fd()]);
    kernel::send_message(order, &bytes, fds.as_ref().map_or(&[], |fds| fds))
}

/// Whoever was asked for a template: its mount namespace, or the step that was refused.
pub(super) fn tell_made(to: BorrowedFd<'_>, made: &Result<OwnedFd, StepError>) -> nix::Result<()> {
    let answer: Standing = made.as_ref().map(drop).map_err(Clone::clone);
    let bytes = serde_json::to_vec(&answer).map_err(|_| Errno::EINVAL)?;
    let fds: Vec<BorrowedFd<'_>> = made.iter().map(AsFd::as_fd).collect();
    kernel::send_message(to, &bytes, &fds)
}

/// Pid 1: waits for its order; `None` when nobody will give one.
pub(super) fn wait_for_order(order: BorrowedFd<'_>) -> nix::Result<Option<(Command, Start)>> {
    let Some((_, fds)) = kernel::receive_message(order)? else { return Ok(None) };
    let mut fds = fds.into_iter();
    let text = File::from(fds.next().ok_or(Errno::EPROTO)?);
    let order = serde_json::from_reader(BufReader::new(text)).map_err(|_| Errno::EPROTO)?;
    let Order { command, head } = order;
    let start = Start::read(head, fds).ok_or(Errno::EPROTO)?;
    Ok(Some((command, start)))
}

/// Waits until the sandbox behind `order` stands. Where its code is put, if that comes later.
///
/// # Errors
/// The step that was refused; `ESRCH` where it was killed while it was set up, `ETIMEDOUT`.
pub fn wait_until_standing(order: BorrowedFd<'_>) -> Result<Option<CodePlace>, StepError> {
    let mut fds = hear(order, "make a sandbox ahead")?.into_iter();
    Ok(fds
        .next()
        .zip(fds.next())
        .map(|(file, directory)| CodePlace { file: file.into(), directory }))
}

/// What came with the answer; `step` is what was asked for.
fn hear(from: BorrowedFd<'_>, step: &str) -> Result<Vec<OwnedFd>, StepError> {
    let failed = |errno| StepError::new(step, "", errno);
    let end = Instant::now() + PATIENCE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(from, PollFlags::POLLIN)], left) {
            Ok(0) => return Err(failed(Errno::ETIMEDOUT)),
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    let answer = kernel::receive_message(from).map_err(failed)?;
    let (bytes, fds) = answer.ok_or(failed(Errno::ESRCH))?;
    serde_json::from_slice::<Standing>(&bytes).map_err(|_| failed(Errno::EPROTO))??;
    Ok(fds)
}

/// Waits for the mount namespace of a template.
pub(super) fn wait_until_made(from: BorrowedFd<'_>) -> Result<OwnedFd, StepError> {
    let step = "make a template";
    hear(from, step)?.into_iter().next().ok_or(StepError::new(step, "", Errno::EMFILE))
}

/// Tells the sandbox behind `order` to run `command`.
///
/// # Errors
/// `EPIPE`, `ECONNRESET`: it has ended.
pub fn give_order(order: BorrowedFd<'_>, start: &Start, command: &Command) -> nix::Result<()> {
    let written = Order { command: command.clone(), head: start.head() };
    let text = serde_json::to_vec(&written).map_err(|_| Errno::EINVAL)?;
    // A command may be longer than a message.
    let text = kernel::file_in_memory(c"order", &text)?;
    let fds: Vec<BorrowedFd<'_>> = [text.as_fd()].into_iter().chain(start.descriptors()).collect();
    kernel::send_message(order, b"order", &fds)
}
