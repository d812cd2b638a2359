//! What a server and its launcher say to each other: messages with descriptors.

use std::fs::File;
use std::io::BufReader;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::launcher::{Launch, LauncherError, gone};
use super::report::StepError;
use super::start::{self, Begin, Start};
use crate::kernel;
use crate::plan::Plan;

/// What the launcher is asked for.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Task {
    /// A sandbox, from a template if one is named.
    Launch {
        /// The template's number.
        template: Option<u64>,
    },
    /// A template of the plan's kind.
    Template,
}

/// What the launcher hears.
pub(super) enum Asked {
    /// To do this.
    Perform(Task, Box<Launch>),
    /// To let go of a template, by its number.
    Forget(u64),
    /// Something that cannot be done: it was heard to its end, but is not whole.
    InVain(StepError),
}

/// The bytes of a message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    Perform(Head),
    Forget(u64),
}

/// The head of a launch on the wire. The descriptors follow in this order: the plan's text, the
/// cgroup, the start's or the order's socket; then, in further messages, the sources.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    task: Task,
    cgroup: bool,
    start: Option<start::Head>,
    warm: bool,
    watch_memory: bool,
    timed: bool,
    /// How many detached mounts are passed.
    passed: usize,
}

/// What the launcher answers: the number of a template, or nothing, or what was refused.
pub(super) type Answer = Result<Option<u64>, StepError>;

/// The server asks.
pub(super) fn send(socket: &OwnedFd, launch: &Launch, task: Task) -> Result<(), LauncherError> {
    let Launch { plan, begin, sources, cgroup, watch_memory, timed } = launch;
    let plan = plan_text(plan).map_err(|errno| StepError::new("write down the plan", "", errno))?;
    let (start, warm, begin) = match begin {
        Begin::Now(start) => (Some(start.head()), false, start.descriptors()),
        Begin::Ordered { order, warm } => (None, *warm, vec![order.as_fd()]),
    };
    let (watch_memory, timed, passed) = (*watch_memory, *timed, sources.len());
    let head = Head { task, cgroup: cgroup.is_some(), start, warm, watch_memory, timed, passed };
    let head =
        serde_json::to_vec(&Message::Perform(head)).map_err(|error| gone(&error.to_string()))?;
    let fds: Vec<BorrowedFd<'_>> =
        [plan.as_fd()].into_iter().chain(cgroup.iter().map(AsFd::as_fd)).chain(begin).collect();
    kernel::send_message(socket.as_fd(), &head, &fds).map_err(unreached)?;
    let sources: Vec<BorrowedFd<'_>> = sources.iter().map(AsFd::as_fd).collect();
    for batch in sources.chunks(kernel::MESSAGE_DESCRIPTORS) {
        if let Err(errno) = kernel::send_message(socket.as_fd(), b"sources", batch) {
            // The launcher waits for them: a batch without any says that there are no more.
            kernel::send_message(socket.as_fd(), b"sources", &[]).map_err(unreached)?;
            return Err(match answer(socket) {
                Err(gone @ LauncherError::Gone(_)) => gone,
                Ok(_) | Err(LauncherError::Step(_)) => unreached(errno),
            });
        }
    }
    Ok(())
}

/// The server has no more use for a template. Nothing is answered, so nobody waits.
pub(super) fn forget(socket: &OwnedFd, template: u64) -> Result<(), LauncherError> {
    let bytes = serde_json::to_vec(&Message::Forget(template));
    let bytes = bytes.map_err(|error| gone(&error.to_string()))?;
    kernel::send_message(socket.as_fd(), &bytes, &[]).map_err(unreached)
}

fn unreached(errno: Errno) -> LauncherError {
    match errno {
        Errno::EPIPE | Errno::ECONNRESET => gone(&format!("cannot be reached: {}", errno.desc())),
        errno => StepError::new("ask the launcher", "", errno).into(),
    }
}

fn plan_text(plan: &Plan) -> nix::Result<OwnedFd> {
    let text = serde_json::to_vec(plan).map_err(|_| Errno::EINVAL)?;
    kernel::file_in_memory(c"plan", &text)
}

/// The server hears what came of it: a template's number, a descriptor.
pub(super) fn answer(socket: &OwnedFd) -> Result<(Option<u64>, Option<OwnedFd>), LauncherError> {
    match kernel::receive_message(socket.as_fd()) {
        Ok(Some((bytes, fds))) => {
            let answer: Answer = serde_json::from_slice(&bytes)
                .map_err(|error| gone(&format!("answered nonsense: {error}")))?;
            Ok((answer?, fds.into_iter().next()))
        }
        Ok(None) => Err(gone("has ended")),
        Err(errno) => Err(gone(&format!("cannot be heard: {}", errno.desc()))),
    }
}

/// The launcher answers.
pub(super) fn reply(socket: &OwnedFd, answer: &Answer, pidfd: Option<&OwnedFd>) -> nix::Result<()> {
    let bytes = serde_json::to_vec(answer).map_err(|_| Errno::EINVAL)?;
    let fds: Vec<BorrowedFd<'_>> = pidfd.into_iter().map(AsFd::as_fd).collect();
    kernel::send_message(socket.as_fd(), &bytes, &fds)
}

/// The launcher hears what it is asked for; `None` when the server has closed the socket.
///
/// # Errors
/// It was not heard to its end.
pub(super) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Asked>, StepError> {
    let step = |errno| StepError::new("receive a launch", "", errno);
    let Some((bytes, fds)) = kernel::receive_message(socket).map_err(step)? else {
        return Ok(None);
    };
    let head = match serde_json::from_slice(&bytes).map_err(|_| step(Errno::EPROTO))? {
        Message::Perform(head) => head,
        Message::Forget(template) => return Ok(Some(Asked::Forget(template))),
    };
    let mut sources = Vec::with_capacity(head.passed.min(4096));
    while sources.len() < head.passed {
        let (_, batch) =
            kernel::receive_message(socket).map_err(step)?.ok_or(step(Errno::EPIPE))?;
        if batch.is_empty() {
            return Ok(Some(Asked::InVain(step(Errno::EMFILE))));
        }
        sources.extend(batch);
    }
    let task = head.task;
    Ok(Some(match launch(&head, fds, sources) {
        Ok(launch) => Asked::Perform(task, Box::new(launch)),
        Err(error) => Asked::InVain(error),
    }))
}

fn launch(head: &Head, fds: Vec<OwnedFd>, sources: Vec<OwnedFd>) -> Result<Launch, StepError> {
    let step = |errno| StepError::new("receive a launch", "", errno);
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or(step(Errno::EMFILE));
    let plan = File::from(next()?);
    let cgroup = if head.cgroup { Some(next()?) } else { None };
    let begin = match head.start {
        Some(head) => Begin::Now(Start::read(head, fds).ok_or(step(Errno::EMFILE))?),
        None => Begin::Ordered { order: next()?, warm: head.warm },
    };
    let plan = serde_json::from_reader(BufReader::new(plan))
        .map_err(|error| StepError::new("read the plan", error, Errno::EINVAL))?;
    let Head { watch_memory, timed, .. } = *head;
    Ok(Launch { plan, begin, sources, cgroup, watch_memory, timed })
}
