//! The door: every front end runs code through [`Runner::run`].

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::backend::{Backend, BackendError, Handover};
use crate::environment::catalog::{Catalog, CatalogError};
use crate::outcome::Outcome;
use crate::plan::{Ids, Plan};
use crate::planner::{self, Ground};
use crate::request::{Request, Work};
use crate::supervisor::{Channels, SupervisorError, Watch};

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
    /// No such environment, or it cannot be used here.
    #[error(transparent)]
    Environment(#[from] CatalogError),
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
pub struct Runner {
    catalog: Catalog,
    ground: Ground,
    outside: Ids,
    backend: Box<dyn Backend>,
}

impl Runner {
    /// A runner. `outside` are the host ids of its sandboxes.
    #[must_use]
    pub fn new(catalog: Catalog, ground: Ground, outside: Ids, backend: Box<dyn Backend>) -> Self {
        Self { catalog, ground, outside, backend }
    }

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
        let plan = self.plan(request)?;
        self.backend.judge(&plan)?;
        let limits = *plan.limits();
        let code = match &request.work {
            Work::Code(code) => Some(code_file(code)?),
            Work::Command(_) => None,
        };
        let (report, write_end) = pipe()?;
        let (stdio, channels) = streams.connect()?;
        let started = self.backend.start(plan, Handover { stdio, report: write_end, code })?;
        let watch = Watch {
            pidfd: &started.pidfd,
            report,
            channels,
            limits: &limits,
            cancel: cancel.as_fd(),
        };
        let mut outcome = watch.to_end()?;
        outcome.enforced.0.extend(started.walls);
        Ok(outcome)
    }

    /// Every environment that there is.
    #[must_use]
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// What the operator decided.
    #[must_use]
    pub const fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The plan that [`Runner::run`] would enact.
    ///
    /// # Errors
    /// As for [`Runner::run`].
    pub fn plan(&self, request: &Request) -> Result<Plan, RunError> {
        if let Work::Code(code) = &request.work
            && code.len() > Request::MAX_CODE
        {
            return Err(RunError::caller(format!(
                "the code is {} bytes long; at most {} are taken",
                code.len(),
                Request::MAX_CODE
            )));
        }
        let environment = self.catalog.get(&request.environment)?;
        planner::plan(request, &environment, &self.ground, self.outside)
            .map_err(|error| RunError::caller(error.to_string()))
    }
}

impl Streams {
    /// The sandbox's ends and ours.
    fn connect(self) -> Result<([OwnedFd; 3], Channels), RunError> {
        let (out_read, out_write) = pipe()?;
        let (err_read, err_write) = pipe()?;
        match self {
            Self::Capture => {
                let null = nix::fcntl::open(
                    "/dev/null",
                    OFlag::O_RDONLY | OFlag::O_CLOEXEC,
                    nix::sys::stat::Mode::empty(),
                )
                .map_err(|errno| RunError::host("open /dev/null", errno))?;
                let channels = Channels::Kept { outputs: [out_read, err_read] };
                Ok(([null, out_write, err_write], channels))
            }
            Self::Through { stdin, stdout, stderr } => {
                let (in_read, in_write) = pipe()?;
                let outputs = [(out_read, stdout), (err_read, stderr)];
                let channels = Channels::Through { input: (stdin, in_write), outputs };
                Ok(([in_read, out_write, err_write], channels))
            }
        }
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), RunError> {
    nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| RunError::host("make a pipe", errno))
}

/// The code as a file without a name: byte-exact, of any length, and in nobody's process list.
fn code_file(code: &[u8]) -> Result<OwnedFd, RunError> {
    let failed = |errno| RunError::host("keep the code in memory", errno);
    let file = memfd_create(c"code", MFdFlags::MFD_CLOEXEC).map_err(failed)?;
    let mut file = File::from(file);
    file.write_all(code)
        .map_err(|error| failed(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)))?;
    Ok(file.into())
}

impl RunError {
    pub(crate) fn caller(message: String) -> Self {
        Self::Other { fault: Fault::Caller, message }
    }

    fn host(what: &str, errno: Errno) -> Self {
        let message = format!("cannot {what}: {errno:?} ({})", errno.desc());
        Self::Other { fault: Fault::Host, message }
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Environment(CatalogError::Unknown { .. }) => Fault::Caller,
            Self::Environment(CatalogError::Unavailable { .. }) => Fault::Host,
            Self::Other { fault, .. } => *fault,
        }
    }
}

impl From<BackendError> for RunError {
    fn from(error: BackendError) -> Self {
        Self::Other { fault: Fault::Host, message: error.to_string() }
    }
}

impl From<SupervisorError> for RunError {
    fn from(error: SupervisorError) -> Self {
        let fault = match error {
            SupervisorError::Step(_) | SupervisorError::Vanished | SupervisorError::Unkillable => {
                Fault::Host
            }
            SupervisorError::Nonsense(_) | SupervisorError::Call(..) => Fault::Ours,
        };
        Self::Other { fault, message: error.to_string() }
    }
}
