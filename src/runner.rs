//! The door: every front end runs code through [`Runner::run`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::audit::{self, Audit};
use crate::backend::{
    Backend, BackendError, Begun, Ends, Handover, Started, StepError, file_in_memory, pipe_of,
};
use crate::doctor::{self, Host};
use crate::environment::catalog::{Catalog, CatalogError};
use crate::environment::{Origin, Receipt, source};
use crate::gallery::Gallery;
use crate::outcome::Outcome;
use crate::outputs::Outputs;
use crate::plan::{Ids, Plan};
use crate::planner::{self, Ground};
use crate::request::{Draft, Request, Work};
use crate::session::{self, SessionError, Sessions};
use crate::supervisor::{Channels, SupervisorError, Watch, of_our_own};

pub use crate::supervisor::{Filter, Newest, Signals};

/// Where a payload's three streams lead.
#[derive(Debug)]
pub enum Streams {
    /// stdin is `/dev/null`; stdout and stderr are kept, capped, in the outcome.
    Capture,
    /// As [`Streams::Capture`], and what the payload wrote last can be looked at meanwhile.
    Watched(Newest),
    /// As [`Streams::Capture`], but the payload reads from `stdin`.
    Feed {
        /// Read from and handed to the payload.
        stdin: OwnedFd,
    },
    /// As [`Streams::Capture`], and what the payload writes is passed on as it comes, byte for byte;
    /// control characters are shown instead of sent where that leads to a terminal.
    PassedOn {
        /// Gets what the payload writes to its standard output.
        stdout: OwnedFd,
        /// Gets what the payload writes to its standard error.
        stderr: OwnedFd,
    },
    /// Everything passes through, uncapped and byte-exact, between the payload's pipes and these
    /// three. Nothing is kept.
    Through {
        /// Read from and handed to the payload.
        stdin: OwnedFd,
        /// Gets what the payload writes to its standard output.
        stdout: OwnedFd,
        /// Gets what the payload writes to its standard error.
        stderr: OwnedFd,
        /// Whether control characters are shown instead of sent where one of them is a terminal.
        filtered: bool,
    },
    /// The payload gets a terminal of its own, which the caller's mirrors; the caller's is in raw
    /// mode meanwhile and as it was afterwards, whatever happens short of SIGKILL. Nothing is kept.
    Terminal {
        /// The caller's terminal, to be read.
        input: OwnedFd,
        /// The same, to be written.
        output: OwnedFd,
        /// Whether orders to the terminal emulator (clipboard, links, reports) are taken out.
        filtered: bool,
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
    sessions: Sessions,
    images: bool,
    outputs: Option<Outputs>,
    audit: Option<Audit>,
}

impl Runner {
    /// A runner. `outside` are the host ids of its sandboxes.
    #[must_use]
    pub fn new(catalog: Catalog, ground: Ground, outside: Ids, backend: Box<dyn Backend>) -> Self {
        let sessions = Sessions::default();
        Self {
            catalog,
            ground,
            outside,
            backend,
            sessions,
            images: false,
            outputs: None,
            audit: None,
        }
    }

    /// The same with other rules for sessions.
    #[must_use]
    pub fn with_sessions(self, rules: session::Rules) -> Self {
        Self { sessions: Sessions::new(rules), ..self }
    }

    /// The same for a server: pictures that runs make come with their outcomes, and long output is
    /// kept in `outputs`, if this host can have them, for later runs.
    #[must_use]
    pub fn with_results(self, outputs: Option<Outputs>) -> Self {
        let ground = Ground { outputs: outputs.is_some(), ..self.ground };
        Self { ground, outputs, images: true, ..self }
    }

    /// The same with an audit log.
    #[must_use]
    pub fn with_audit(self, audit: Option<Audit>) -> Self {
        Self { audit, ..self }
    }

    /// Ends sessions whose time is over, and mends what has broken down. Cheap; to be called every
    /// few seconds by a server, on its main thread.
    pub fn tidy(&self) {
        self.sessions.expire();
        match self.backend.mend() {
            Ok(None) => {}
            Ok(Some(directory)) => {
                if let Some(outputs) = &self.outputs {
                    outputs.begin_anew(directory);
                }
            }
            Err(error) => tracing::error!(%error, "no sandbox can be started"),
        }
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
        self.enter(request, streams, cancel, None)
    }

    /// As [`Runner::run`]; besides, the payload gets the signals that this process gets, and this
    /// process stops when somebody at its terminal stops the payload.
    ///
    /// # Errors
    /// As for [`Runner::run`].
    pub fn run_attached(
        &self,
        request: &Request,
        streams: Streams,
        cancel: &Cancel,
        signals: &Signals,
    ) -> Result<Outcome, RunError> {
        self.enter(request, streams, cancel, Some(signals))
    }

    /// Through here goes every run; and each leaves its line.
    fn enter(
        &self,
        request: &Request,
        streams: Streams,
        cancel: &Cancel,
        signals: Option<&Signals>,
    ) -> Result<Outcome, RunError> {
        let asked = SystemTime::now();
        let mut result = self.enact(request, streams, cancel, signals);
        if let (Some(outputs), Ok(outcome)) = (&self.outputs, &mut result) {
            outputs.keep(outcome);
        }
        if let Some(audit) = &self.audit {
            let artifact = self.artifact(&request.environment);
            let result = result.as_ref().map_err(ToString::to_string);
            audit.note(&audit::Run { asked, request, artifact, result });
        }
        result
    }

    /// Leaves the line of a request that a front end refused before it could be run.
    pub fn refuse(&self, draft: &Draft<'_>, why: &str) {
        if let Some(audit) = &self.audit {
            audit.refuse(draft, why);
        }
    }

    /// What Nix built, if that is what the environment is.
    fn artifact(&self, environment: &str) -> Option<PathBuf> {
        match &self.catalog.look(environment)?.origin {
            Origin::Artifact { path } => Some(path.clone()),
            Origin::Host => None,
        }
    }

    fn enact(
        &self,
        request: &Request,
        streams: Streams,
        cancel: &Cancel,
        signals: Option<&Signals>,
    ) -> Result<Outcome, RunError> {
        let tell = |line: &str| {
            if let Some(newest) = streams.newest() {
                newest.show(&format!("building {}: {line}", request.environment));
            }
        };
        if self.catalog.wait(&request.environment, Some(cancel.as_fd()), &tell).is_err() {
            return Err(RunError::caller("cancelled before its environment was built".to_owned()));
        }
        let plan = self.plan(request)?;
        self.backend.judge(&plan)?;
        if let (Some(name), Work::Code(code)) = (&request.session, &request.work) {
            let (cancel, images, newest) = (cancel.as_fd(), self.images, streams.newest());
            let call = session::Call { name, plan, code, cancel, images, newest };
            return Ok(self.sessions.call(self.backend.as_ref(), call)?);
        }
        let limits = *plan.limits();
        let Running { started, report, channels, mut gallery } =
            self.start(request, plan, streams)?;
        let watch = Watch {
            pidfd: &started.pidfd,
            relay: started.relay.as_ref(),
            leaf: started.leaf.as_ref(),
            report,
            channels,
            limits: &limits,
            cancel: cancel.as_fd(),
            signals,
        };
        let mut outcome = watch.to_end()?;
        outcome.enforced.0.extend(started.walls);
        if let Some(gallery) = &mut gallery {
            gallery.look(&mut outcome.files);
        }
        Ok(outcome)
    }

    /// Starts the payload, or gives its code to an interpreter that has started.
    fn start(&self, request: &Request, plan: Plan, streams: Streams) -> Result<Running, RunError> {
        if let Work::Code(code) = &request.work
            && streams.can_be_made_ahead()
            && self.catalog.get(&request.environment)?.interpreter.can_wait_for(code)
            && let Some(begun) = self.backend.begin_warm(&plan, code)
        {
            let Begun { started, ends: Ends { report, outputs, workspace } } = begun;
            let channels = streams.kept(outputs);
            let gallery = self.images.then(|| Gallery::of(workspace));
            return Ok(Running { started, report, channels, gallery });
        }
        let code = match &request.work {
            Work::Code(code) => Some(code_file(code)?),
            Work::Command(_) => None,
        };
        let (ends, handover) =
            Ends::new(self.outside).map_err(|errno| RunError::host("make a pipe", errno))?;
        let Ends { report, outputs, workspace } = ends;
        let gallery = self.images.then(|| Gallery::of(workspace));
        let Connected { stdin, terminal, channels } = streams.connect(outputs, self.outside)?;
        // Where nobody looks, nothing is handed out.
        let workspace = handover.workspace.filter(|_| self.images);
        let handover = Handover { stdin, code, terminal, workspace, ..handover };
        let started = self.backend.start(plan, handover)?;
        Ok(Running { started, report, channels, gallery })
    }

    /// Where long output is kept, if this is a server's runner and its host can have it.
    #[must_use]
    pub const fn outputs(&self) -> Option<&Outputs> {
        self.outputs.as_ref()
    }

    /// Every environment that there is.
    #[must_use]
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// What an environment was made of, where Nix made it.
    #[must_use]
    pub fn receipt(&self, environment: &str) -> Option<Receipt> {
        self.catalog.look(environment)?.receipt.clone()
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
        if request.session.is_some() && matches!(request.work, Work::Command(_)) {
            return Err(RunError::caller("a session runs code, not commands".to_owned()));
        }
        if let Work::Code(code) = &request.work
            && code.len() > Request::MAX_CODE
        {
            let most = Request::MAX_CODE;
            return Err(RunError::caller(format!("the code is longer than {most} bytes")));
        }
        let environment = self.catalog.get(&request.environment)?;
        let ground = self.ground_now();
        planner::plan(request, &environment, &ground, self.outside)
            .map_err(|error| RunError::caller(error.to_string()))
    }

    /// With the project that stands there now.
    fn ground_now(&self) -> Ground {
        let mut ground = self.ground.clone();
        if let Some((project, _)) = &mut ground.project {
            *project = source::made_anew(project);
        }
        ground
    }
}

/// A payload that was started, and our ends.
struct Running {
    started: Started,
    report: OwnedFd,
    channels: Channels,
    gallery: Option<Gallery>,
}

/// Streams with the payload at their other side.
struct Connected {
    stdin: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
    channels: Channels,
}

impl Streams {
    fn newest(&self) -> Option<&Newest> {
        match self {
            Self::Watched(newest) => Some(newest),
            Self::Capture
            | Self::Feed { .. }
            | Self::PassedOn { .. }
            | Self::Through { .. }
            | Self::Terminal { .. } => None,
        }
    }

    /// Whether a payload's ends can be there before its caller is.
    const fn can_be_made_ahead(&self) -> bool {
        matches!(self, Self::Capture | Self::Watched(_))
    }

    /// What is done with the payload's output where nothing of it passes through.
    fn kept(self, outputs: [OwnedFd; 2]) -> Channels {
        match self {
            Self::Watched(newest) => Channels::Watched { outputs, newest },
            _ => Channels::Kept { input: None, outputs },
        }
    }

    /// `outputs` are what the payload writes; it is `owner` for this host.
    fn connect(self, outputs: [OwnedFd; 2], owner: Ids) -> Result<Connected, RunError> {
        let input = |stdin| {
            let (read, write) =
                pipe_of(owner).map_err(|errno| RunError::host("make a pipe", errno))?;
            Ok::<_, RunError>((read, (of_our_own(stdin, OFlag::O_RDONLY), write)))
        };
        let (stdin, terminal, channels) = match self {
            Self::Capture | Self::Watched(_) => (None, None, self.kept(outputs)),
            Self::Feed { stdin } => {
                let (read, input) = input(stdin)?;
                (Some(read), None, Channels::Kept { input: Some(input), outputs })
            }
            Self::PassedOn { stdout, stderr } => {
                let outputs = outward(outputs, [stdout, stderr]);
                (None, None, Channels::PassedOn { outputs })
            }
            Self::Through { stdin, stdout, stderr, filtered } => {
                let (read, input) = input(stdin)?;
                let outputs = outward(outputs, [stdout, stderr]);
                (Some(read), None, Channels::Through { input, outputs, filtered })
            }
            Self::Terminal { input, output, filtered } => {
                let (socket, theirs) = crate::supervisor::terminal_pair()?;
                let input = of_our_own(input, OFlag::O_RDONLY);
                let output = of_our_own(output, OFlag::O_WRONLY);
                (None, Some(theirs), Channels::Terminal { input, output, socket, filtered })
            }
        };
        Ok(Connected { stdin, terminal, channels })
    }
}

/// What comes from the payload, with where it goes.
fn outward(from: [OwnedFd; 2], to: [OwnedFd; 2]) -> [(OwnedFd, OwnedFd); 2] {
    let [stdout, stderr] = to.map(|end| of_our_own(end, OFlag::O_WRONLY));
    let [from_stdout, from_stderr] = from;
    [(from_stdout, stdout), (from_stderr, stderr)]
}

/// The code as a file without a name: byte-exact, of any length, and in nobody's process list.
fn code_file(code: &[u8]) -> Result<OwnedFd, RunError> {
    file_in_memory(c"code", code).map_err(|errno| RunError::host("keep the code in memory", errno))
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
        let message = match &error {
            BackendError::Step(step) => refusal(step),
            other => other.to_string(),
        };
        Self::Other { fault: Fault::Host, message }
    }
}

impl From<SupervisorError> for RunError {
    fn from(error: SupervisorError) -> Self {
        let (fault, message) = match &error {
            SupervisorError::Step(step) => (Fault::Host, refusal(step)),
            SupervisorError::Vanished | SupervisorError::Unkillable => {
                (Fault::Host, error.to_string())
            }
            SupervisorError::TooLittleMemory(_) => (Fault::Caller, error.to_string()),
            SupervisorError::Report(_) | SupervisorError::Call(..) => {
                (Fault::Ours, error.to_string())
            }
        };
        Self::Other { fault, message }
    }
}

impl From<SessionError> for RunError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Backend(error) => error.into(),
            SessionError::Supervisor(error) => error.into(),
            SessionError::Step(step) => Self::Other { fault: Fault::Host, message: refusal(&step) },
            SessionError::Elsewhere { .. }
            | SessionError::TooMany { .. }
            | SessionError::Cancelled => Self::caller(error.to_string()),
            SessionError::NotReady { .. } | SessionError::NotExecuted { .. } => {
                Self::Other { fault: Fault::Host, message: error.to_string() }
            }
            SessionError::Report(_) | SessionError::Call(..) => {
                Self::Other { fault: Fault::Ours, message: error.to_string() }
            }
        }
    }
}

/// A refused step with what the doctor knows of it.
fn refusal(step: &StepError) -> String {
    match doctor::explain(step, &Host::read()) {
        Some(diagnosis) => format!("{step}: {diagnosis}\nRun: nix-sandbox-mcp doctor"),
        None => step.to_string(),
    }
}
