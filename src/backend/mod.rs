//! Backends: who makes a sandbox out of a plan.

mod agent;
mod ends;
pub mod jail;
mod limits;
pub mod native;
mod pool;
mod warm;

use std::os::fd::OwnedFd;

pub use self::agent::AgentEnds;
pub use self::ends::{Ends, pipe_of};
pub use self::warm::Begun;
use crate::engine::LauncherError;
pub use crate::engine::cgroup::{CgroupUsage, Leaf};
pub use crate::engine::report::{Ended, ReadError, Reader};
pub use crate::engine::start::Start as Handover;
pub use crate::engine::{Report, StepError};
pub(crate) use crate::kernel::file_in_memory;
use crate::outcome::WallReport;
use crate::plan::Plan;

/// A sandbox that was started.
#[derive(Debug)]
pub struct Started {
    /// Readable once nothing of the sandbox is left; signals go here.
    pub pidfd: OwnedFd,
    /// The process that passes the payload its signals, where pid 1 does not.
    pub relay: Option<OwnedFd>,
    /// Walls that the sandbox itself does not report.
    pub walls: Vec<WallReport>,
    /// Its cgroup, where it has one: counts, kills, and is removed when it is dropped.
    pub leaf: Option<Leaf>,
}

/// Why a backend started nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The plan requires a wall that this backend cannot raise here.
    #[error("{wall} is required and cannot be had here: {reason}")]
    Refused {
        /// Which.
        wall: crate::plan::Wall,
        /// Why not, and what helps.
        reason: String,
    },
    /// The launcher process is gone or speaks nonsense.
    #[error("the launcher process {0}")]
    Launcher(String),
    /// bubblewrap made no sandbox.
    #[error("bubblewrap made no sandbox: {0}")]
    Jail(String),
    /// The kernel refused a step of the launch.
    #[error(transparent)]
    Step(#[from] StepError),
}

impl From<LauncherError> for BackendError {
    fn from(error: LauncherError) -> Self {
        match error {
            LauncherError::Step(step) => Self::Step(step),
            LauncherError::Gone(how) => Self::Launcher(how),
        }
    }
}

/// Who makes a sandbox out of a plan.
pub trait Backend: Send + Sync + std::fmt::Debug {
    /// Its name in settings and reports.
    fn name(&self) -> &'static str;

    /// Whether every required wall can be had.
    ///
    /// # Errors
    /// The first that cannot, with what helps.
    fn judge(&self, plan: &Plan) -> Result<(), BackendError>;

    /// Starts a sandbox.
    ///
    /// # Errors
    /// The launch failed; nothing runs.
    fn start(&self, plan: Plan, handover: Handover) -> Result<Started, BackendError>;

    /// Gives `code` to an interpreter that was started ahead for such a plan, if there is one: a
    /// run whose output is kept and whose input is at its end. Otherwise one will be, perhaps, for
    /// the next; this run is to be started.
    fn begin_warm(&self, _plan: &Plan, _code: &[u8]) -> Option<Begun> {
        None
    }

    /// An agent that was started ahead for such a plan, if there is one: it has said, or will, that it is
    /// ready. Otherwise one will be, perhaps, for the next session; this one's is to be started.
    fn take_agent(&self, _plan: &Plan) -> Option<(Started, AgentEnds)> {
        None
    }

    /// Mends what has broken down since the start. The new directory behind `/outputs`, if that was
    /// lost. To be called now and then on the program's main thread.
    ///
    /// # Errors
    /// It cannot be mended.
    fn mend(&self) -> Result<Option<OwnedFd>, BackendError> {
        Ok(None)
    }
}
