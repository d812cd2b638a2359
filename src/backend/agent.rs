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
use super::{BackendError, Ends, Handover, Started, StepError};
use crate::engine::start::give_order;
use crate::plan::{Command, Ids, Plan};

/// Our ends of what an agent is given.
#[derive(Debug)]
pub struct AgentEnds {
    /// Those of any payload.
    pub ends: Ends,
    /// Where requests are written.
    pub requests: OwnedFd,
    /// Where answers are read.
    pub replies: OwnedFd,
}

impl AgentEnds {
    /// Ours, and those of an agent that is `owner` for this host.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub fn new(owner: Ids) -> nix::Result<(Self, Handover)> {
        let (ends, handover) = Ends::new(owner)?;
        let (requests_end, requests) = pipe2(OFlag::O_CLOEXEC)?;
        let (replies, replies_end) = pipe2(OFlag::O_CLOEXEC)?;
        let handover = Handover { control: Some([requests_end, replies_end]), ..handover };
        Ok((Self { ends, requests, replies }, handover))
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
        let (ends, handover) = AgentEnds::new(plan.identity().outside).map_err(failed)?;
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
