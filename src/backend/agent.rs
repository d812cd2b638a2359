//! Agents: what a session's sandbox runs, and the pipes to it.
//!
//! One may be started before there is a session. It waits for its first request then as it waits for any
//! other, and serves one session.

use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{pipe2, write};

use super::pool::Standing;
use super::warm::wait_readable;
use super::{BackendError, Handover, Started, StepError, no_input};
use crate::engine::start::give_order;
use crate::kernel;
use crate::plan::{Command, Plan};

/// The server's ends of what an agent gets.
#[derive(Debug)]
pub struct AgentEnds {
    /// The read end of its report pipe.
    pub report: OwnedFd,
    /// The read ends of its standard output and its standard error. Its standard input is at its end.
    pub outputs: [OwnedFd; 2],
    /// Where requests are written.
    pub requests: OwnedFd,
    /// Where answers are read.
    pub replies: OwnedFd,
    /// Over this socket pid 1 sends a descriptor of its `/workspace`.
    pub workspace: OwnedFd,
}

impl AgentEnds {
    /// Ours, and the agent's.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`; `ENOENT` on a host without `/dev/null`.
    pub fn new() -> nix::Result<(Self, Handover)> {
        let pipe = || pipe2(OFlag::O_CLOEXEC);
        let (report, report_end) = pipe()?;
        let ((stdout, stdout_end), (stderr, stderr_end)) = (pipe()?, pipe()?);
        let ((requests_end, requests), (replies, replies_end)) = (pipe()?, pipe()?);
        let (workspace, workspace_end) = kernel::message_pair()?;
        let handover = Handover {
            stdio: [no_input()?, stdout_end, stderr_end],
            report: report_end,
            code: None,
            go: None,
            terminal: None,
            control: Some([requests_end, replies_end]),
            workspace: Some(workspace_end),
        };
        let outputs = [stdout, stderr];
        Ok((Self { report, outputs, requests, replies, workspace }, handover))
    }
}

/// An agent without a session. Whatever becomes of it, it does not outlive this value.
#[derive(Debug)]
pub(super) struct WaitingAgent {
    pub(super) command: Command,
    started: Started,
    ends: AgentEnds,
    /// Tells pid 1 that the session begins. Until then it need not look at the agent's memory.
    go: OwnedFd,
}

impl WaitingAgent {
    /// Starts the agent of `plan` in a sandbox that stands for it, and waits until it says something:
    /// that it is ready. What it says is its session's to read.
    pub(super) fn start(standing: Standing, plan: &Plan) -> Result<Self, BackendError> {
        let Standing { order, started, .. } = standing;
        let failed = |errno| StepError::new("start an agent ahead", "", errno);
        let (ends, handover) = AgentEnds::new().map_err(failed)?;
        let (go_end, go) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
        let handover = Handover { go: Some(go_end), ..handover };
        give_order(order.as_fd(), &handover, plan.command()).map_err(failed)?;
        drop(handover);
        wait_readable(ends.replies.as_fd(), started.pidfd.as_fd()).map_err(failed)?;
        Ok(Self { command: plan.command().clone(), started, ends, go })
    }

    /// For its session; `None` if it has ended meanwhile.
    pub(super) fn if_alive(self) -> Option<(Started, AgentEnds)> {
        let Self { started, ends, go, .. } = self;
        let mut polled = [PollFd::new(ends.replies.as_fd(), PollFlags::POLLIN)];
        let asked = poll(&mut polled, PollTimeout::ZERO);
        // Sooner than its sandbox: nobody else writes there.
        let hung_up = polled[0].revents().is_none_or(|events| events.contains(PollFlags::POLLHUP));
        let alive = asked.is_ok() && !hung_up && write(&go, &[1]).is_ok();
        alive.then_some((started, ends))
    }
}
