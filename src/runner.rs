//! The door: every front end runs code through [`Runner::run`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::request::Request;

/// Where a payload's three streams lead.
#[derive(Debug)]
pub enum Streams {
    /// stdin is `/dev/null`; stdout and stderr are kept, capped, in the outcome.
    Capture,
    /// Everything passes through, uncapped and byte-exact, between the payload's pipes and these
    /// three. Nothing is kept.
    Through {
        /// Read from and handed to the payload.
        stdin: OwnedFd,
        /// Gets what the payload writes to its standard output.
        stdout: OwnedFd,
        /// Gets what the payload writes to its standard error.
        stderr: OwnedFd,
    },
}

/// Tells a run to end. Clones share one switch; it stays on.
#[derive(Debug, Clone)]
pub struct Cancel(Arc<EventFd>);

impl Cancel {
    /// A switch that is off.
    ///
    /// # Errors
    /// `EMFILE` and `ENFILE`: no descriptor is left.
    pub fn new() -> nix::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_value_and_flags(0, flags)?)))
    }

    /// Ends every run that was given this switch, with [`crate::outcome::Ending::Cancelled`].
    pub fn cancel(&self) {
        // A counter that is full is on already.
        let _ = self.0.write(1);
    }

    /// Readable once the switch is on.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The caller asked for something that is not there or must not be.
    Caller,
    /// This host lacks something; the sentence says what helps.
    Host,
    /// A defect of this program.
    Ours,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No such environment.
    #[error("there is no environment {name:?}; the environments are {}", known.join(", "))]
    UnknownEnvironment {
        /// What was asked for.
        name: String,
        /// What there is, in a stable order.
        known: Vec<String>,
    },
    /// Anything else, in one sentence.
    #[error("{message}")]
    Other {
        /// Whose fault.
        fault: Fault,
        /// One sentence: what is wrong, where, what would be right.
        message: String,
    },
}

/// Runs requests in sandboxes.
#[derive(Debug)]
pub struct Runner {}

impl Runner {
    /// Runs one request to its end. Blocks the calling thread; many threads may call at once.
    ///
    /// # Errors
    /// Never for what the payload does; see [`RunError`].
    pub fn run(
        &self,
        request: &Request,
        streams: Streams,
        cancel: &Cancel,
    ) -> Result<Outcome, RunError> {
        let _ = (request, streams, cancel);
        Err(RunError::Other { fault: Fault::Ours, message: "not yet".to_owned() })
    }

    /// The plan that [`Runner::run`] would enact.
    ///
    /// # Errors
    /// As for [`Runner::run`].
    pub fn plan(&self, request: &Request) -> Result<Plan, RunError> {
        let _ = request;
        Err(RunError::Other { fault: Fault::Ours, message: "not yet".to_owned() })
    }
}
