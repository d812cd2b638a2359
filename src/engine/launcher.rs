//! The launcher: whoever clones pid 1.
//!
//! [`Launcher::direct`] clones from the calling process, which must have one thread: the one-shot
//! command line. [`Launcher::spawn`] starts this program once more as a small process that does
//! nothing else, and speaks with it over a socket: the server.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, open};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{Shutdown, shutdown};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::child::{self, Parent};
use super::report::StepError;
use super::sources::Sources;
use super::start::{Begin, Start};
use super::steps::Ahead;
use super::template::{self, Workshop};
use super::wire::{Answer, Asked, Task, answer, forget, receive, reply, send};
use super::{outputs, privilege, process, removal};
use crate::kernel::{self, Arguments, Cloned};
use crate::plan::{Ids, Kind, Plan};

/// Everything that one launch needs, in one place.
#[derive(Debug)]
pub struct Launch {
    /// What shall hold.
    pub plan: Plan,
    /// What the payload gets, now or later.
    pub begin: Begin,
    /// Detached mounts for all of the plan's binds, by their order, or none; see [`super::sources`].
    pub sources: Vec<OwnedFd>,
    /// The cgroup that pid 1 is born in; see [`super::cgroup`].
    pub cgroup: Option<OwnedFd>,
    /// Whether pid 1 watches over the memory limit, because no cgroup does.
    pub watch_memory: bool,
    /// Whether pid 1 tells how long each step took.
    pub timed: bool,
}

/// A running sandbox.
#[derive(Debug)]
pub struct Sandbox {
    /// Pid 1. Readable once it has ended, and then nothing of the sandbox is left.
    pub pidfd: OwnedFd,
}

/// Why no sandbox was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LauncherError {
    /// The kernel refused a step.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The launcher process is gone or speaks nonsense.
    #[error("the launcher process {0}")]
    Gone(String),
}

/// Whoever clones pid 1.
#[derive(Debug)]
pub enum Launcher {
    /// This process.
    Direct {
        /// This process, for pid 1 to see whether it still lives.
        own: OwnedFd,
        /// The host's `/proc`.
        proc: OwnedFd,
    },
    /// A process of its own.
    Process {
        /// Whom it becomes if it is root.
        outside: Ids,
        /// What else it was told to do.
        option: Option<&'static str>,
        /// The way to it; one request at a time.
        line: Mutex<Line>,
    },
}

/// A launcher process and the socket to it. The process ends when the socket closes.
#[derive(Debug)]
pub struct Line {
    socket: OwnedFd,
    process: Child,
    /// The kinds of sandboxes that it was asked a template for, the oldest first; `None` where it
    /// makes no templates.
    templates: Option<VecDeque<Template>>,
}

/// The template of one kind.
#[derive(Debug)]
struct Template {
    kind: Kind,
    /// Its number, or when none could be had.
    made: Result<u64, Instant>,
    used: Instant,
}

/// After how long a template that could not be had is asked for again.
const AGAIN: Duration = Duration::from_secs(60);

/// After how long a template that nobody uses is let go of: what it shows stays mounted so long, also if
/// the host has unmounted it.
const IDLE: Duration = Duration::from_secs(300);

/// Kinds of sandboxes that are remembered.
const KINDS: usize = 32;

/// How this program is started to be a launcher: the first argument. The ids of its sandboxes
/// follow, and `OUTPUTS` where they shall have `/outputs`; its 0 is the socket, its 1 the server's pidfd.
pub const ARGUMENT: &str = "--launcher";

/// How a launcher is told to make `/outputs`.
const OUTPUTS: &str = "outputs";

impl Launcher {
    /// Clones from this process. It must have one thread, now and at every launch. If it is root,
    /// it gives that up for good at the first launch.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn direct() -> Result<Self, LauncherError> {
        let own = kernel::pidfd_open(Pid::this())
            .map_err(|errno| StepError::new("open a pidfd of", "this process", errno))?;
        Ok(Self::Direct { own, proc: host_proc()? })
    }

    /// Starts a launcher process that becomes `outside` if it is root. Must be called on the
    /// program's main thread, before any other is started: the launcher dies with the thread that
    /// made it.
    ///
    /// Whoever calls this should allow himself all open files that he may ([`allow_open_files`]).
    ///
    /// # Errors
    /// This program cannot be executed again, or the launcher could not give up root.
    pub fn spawn(outside: Ids) -> Result<Self, LauncherError> {
        Self::start(outside, None).map(|(launcher, _)| launcher)
    }

    /// As [`Launcher::spawn`], in namespaces of its own: there it makes ahead what sandboxes have in
    /// common, and they can have [`crate::plan::MountKind::Outputs`]. What stands there is written
    /// through the directory that is returned, by `outside`.
    ///
    /// # Errors
    /// As for [`Launcher::spawn`], or the launcher cannot have namespaces of its own.
    pub fn spawn_with_outputs(outside: Ids) -> Result<(Self, OwnedFd), LauncherError> {
        let (launcher, outputs) = Self::start(outside, Some(OUTPUTS))?;
        Ok((launcher, outputs.ok_or_else(|| gone("sent no directory"))?))
    }

    fn start(
        outside: Ids,
        option: Option<&'static str>,
    ) -> Result<(Self, Option<OwnedFd>), LauncherError> {
        let (line, outputs) = Line::open(outside, option)?;
        Ok((Self::Process { outside, option, line: Mutex::new(line) }, outputs))
    }

    /// Starts the launcher process anew if it has ended (the kernel was short of memory, somebody
    /// killed it); its sandboxes are gone with it. Else lets go of templates that nobody uses. Whether it
    /// was started, and the new directory behind `/outputs` if there is one. To be called on the program's
    /// main thread, like [`Launcher::spawn`].
    ///
    /// # Errors
    /// As for [`Launcher::spawn`].
    pub fn mend(&self) -> Result<Option<OwnedFd>, LauncherError> {
        let Self::Process { outside, option, line } = self else { return Ok(None) };
        // Under way: then it lives.
        let Ok(mut line) = line.try_lock() else { return Ok(None) };
        match line.process.try_wait() {
            Ok(Some(_)) => {
                let (anew, outputs) = Line::open(*outside, *option)?;
                *line = anew;
                Ok(outputs)
            }
            Ok(None) | Err(_) => line.tidy().map(|()| None),
        }
    }

    /// Starts one sandbox. Returns as soon as pid 1 exists; what becomes of it is reported through
    /// the launch's report pipe or order socket. `sources` opens what only root can reach.
    ///
    /// # Errors
    /// The clone was refused, or the launcher process is gone.
    pub fn launch(&self, mut launch: Launch, sources: &Sources) -> Result<Sandbox, LauncherError> {
        match self {
            Self::Direct { own, proc } => {
                launch.sources = sources.open(&launch.plan)?;
                privilege::become_outside(launch.plan.identity().outside)?;
                let (process, proc) = (own.as_fd(), proc.as_fd());
                let arguments = process::own_arguments(proc)?;
                let (control, outputs) = (None, None);
                let root_group = privilege::has_root_group();
                let parent = Parent { process, control, outputs, proc, arguments, root_group };
                let cloned = kernel::clone(removal::namespaces(), cgroup(&launch));
                sandbox(cloned.map_err(refused)?, &launch, parent, Ahead::default())
            }
            Self::Process { line, .. } => {
                let mut line = line.lock().map_err(|_| gone("is in an unknown state"))?;
                if let Some(template) = line.template(&mut launch, sources)? {
                    let own = launch.plan.own_part();
                    let whole = std::mem::replace(&mut launch.plan, own);
                    match line.ask(&launch, Some(template)) {
                        Err(LauncherError::Step(error)) if error.step == template::ENTER => {
                            line.do_without_template(&whole, &error);
                            launch.plan = whole;
                        }
                        asked => return asked,
                    }
                }
                launch.sources = sources.open(&launch.plan)?;
                line.ask(&launch, None)
            }
        }
    }
}

impl Line {
    /// Starts the process and waits until it is ready.
    fn open(outside: Ids, option: Option<&str>) -> Result<(Self, Option<OwnedFd>), LauncherError> {
        let failed = |errno| StepError::new("start the launcher", "", errno);
        let (socket, theirs) = kernel::message_pair().map_err(failed)?;
        let own = kernel::pidfd_open(Pid::this()).map_err(failed)?;
        let process = Command::new("/proc/self/exe")
            .arg0("nix-sandbox-mcp")
            .args([ARGUMENT, &outside.uid.to_string(), &outside.gid.to_string()])
            .args(option)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(own))
            .spawn()
            .map_err(|error| failed(kernel::errno(&error)))?;
        let mut line = Self { socket, process, templates: None };
        let (_, outputs) = answer(&line.socket)?;
        line.templates = outputs.as_ref().map(|_| VecDeque::new());
        Ok((line, outputs))
    }

    /// Asks for a sandbox. The child has its own copies of the launch's descriptors then.
    fn ask(&self, launch: &Launch, template: Option<u64>) -> Result<Sandbox, LauncherError> {
        send(&self.socket, launch, Task::Launch { template })?;
        match answer(&self.socket)? {
            (_, Some(pidfd)) => Ok(Sandbox { pidfd }),
            (_, None) => Err(gone("sent no descriptor")),
        }
    }

    /// For a while sandboxes like this one are made cold.
    fn do_without_template(&mut self, plan: &Plan, error: &StepError) {
        tell_without_template(plan, error);
        let known = self.templates.iter_mut().flatten().find(|it| it.kind.is_of(plan));
        if let Some(template) = known {
            template.made = Err(Instant::now());
        }
    }

    /// The template of the launch's kind, made if there is none. Without one the launch is cold.
    fn template(
        &mut self,
        launch: &mut Launch,
        sources: &Sources,
    ) -> Result<Option<u64>, LauncherError> {
        let Some(templates) = &mut self.templates else { return Ok(None) };
        if let Some(at) = templates.iter().position(|it| it.kind.is_of(&launch.plan)) {
            templates[at].used = Instant::now();
            match templates[at].made {
                Ok(number) if !sources.have_changed(&launch.plan) => return Ok(Some(number)),
                Err(failed) if failed.elapsed() < AGAIN => return Ok(None),
                Ok(_) | Err(_) => let_go(&self.socket, templates.remove(at))?,
            }
        }
        launch.sources = sources.open(&launch.plan)?;
        send(&self.socket, launch, Task::Template)?;
        launch.sources.clear();
        let made = match answer(&self.socket) {
            Ok((number, _)) => number.ok_or_else(Instant::now),
            Err(LauncherError::Step(error)) => {
                tell_without_template(&launch.plan, &error);
                Err(Instant::now())
            }
            Err(gone) => return Err(gone),
        };
        if templates.len() == KINDS {
            let_go(&self.socket, templates.pop_front())?;
        }
        templates.push_back(Template { kind: launch.plan.kind(), made, used: Instant::now() });
        Ok(made.ok())
    }

    fn tidy(&mut self) -> Result<(), LauncherError> {
        let Some(templates) = &mut self.templates else { return Ok(()) };
        let idle = |template: &Template| template.used.elapsed() > IDLE;
        while let Some(at) = templates.iter().position(idle) {
            let_go(&self.socket, templates.remove(at))?;
        }
        Ok(())
    }
}

fn let_go(socket: &OwnedFd, template: Option<Template>) -> Result<(), LauncherError> {
    template.and_then(|template| template.made.ok()).map_or(Ok(()), |number| forget(socket, number))
}

fn tell_without_template(plan: &Plan, error: &StepError) {
    let environment = plan.environment();
    tracing::warn!(environment, %error, "sandboxes are made without a template");
}

fn refused(errno: Errno) -> StepError {
    StepError::new("create the namespaces", "", errno)
}

fn cgroup(launch: &Launch) -> Option<BorrowedFd<'_>> {
    launch.cgroup.as_ref().map(AsFd::as_fd)
}

/// The host's `/proc`, as a place to start from.
fn host_proc() -> Result<OwnedFd, StepError> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open("/proc", flags, Mode::empty()).map_err(|errno| StepError::new("open", "/proc", errno))
}

impl Drop for Line {
    fn drop(&mut self) {
        // Its sandboxes die with it. Who may not kill it (root without CAP_KILL) can hang up.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Raises this process's limit of open files to what it may have. While it is lower than a payload's
/// (4,096), payloads of the same host user can make every message with a descriptor fail: those on their
/// way count per user, against the limit of the sender (`ETOOMANYREFS`, unix(7)).
///
/// # Errors
/// `EPERM` where even the limit that this process has is above what the kernel allows (`fs.nr_open`).
pub fn allow_open_files() -> Result<(), StepError> {
    let failed = |errno| StepError::new("raise the limit of open files", "", errno);
    let (now, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    if now == most {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(failed)
}

pub(super) fn gone(how: &str) -> LauncherError {
    LauncherError::Gone(how.to_owned())
}

/// In the child pid 1, which never returns.
fn sandbox(
    cloned: Cloned,
    launch: &Launch,
    parent: Parent<'_>,
    ahead: Ahead,
) -> Result<Sandbox, LauncherError> {
    match cloned {
        Cloned::Child => child::pid1(launch, parent, ahead),
        Cloned::Parent { pidfd, .. } => Ok(Sandbox { pidfd }),
    }
}

/// What the launcher process does, to its end. `arguments` are those after [`ARGUMENT`].
///
/// Its end is the closing of the socket, or the death of the server.
#[must_use]
pub fn main(arguments: &[String]) -> i32 {
    let Ok(socket) = take_socket() else { return 1 };
    let mut prepared = match prepare(arguments) {
        Ok(prepared) => prepared,
        Err(error) => {
            let _ = reply(&socket, &Err(error), None);
            return 1;
        }
    };
    if reply(&socket, &Ok(None), prepared.outputs.as_ref()).is_err() {
        return 1;
    }
    serve(&socket, &mut prepared)
}

/// The socket to the server, which comes as 0. It shall have one descriptor only: pid 1 closes it.
fn take_socket() -> nix::Result<OwnedFd> {
    let socket = nix::unistd::dup(std::io::stdin())?;
    nix::fcntl::fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let nothing = open("/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    nix::unistd::dup2_stdin(nothing)?;
    Ok(socket)
}

/// What a launcher process has.
struct Prepared {
    own: OwnedFd,
    proc: OwnedFd,
    arguments: Arguments,
    root_group: bool,
    /// The directory behind `/outputs` and the place where things are made ahead, if it was told so.
    outputs: Option<OwnedFd>,
    workshop: Option<Workshop>,
}

fn prepare(arguments: &[String]) -> Result<Prepared, StepError> {
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse().ok());
    let (Some(uid), Some(gid)) = (number(0), number(1)) else {
        return Err(StepError::new("start the launcher", "without ids", Errno::EINVAL));
    };
    let step = |name: &'static str| move |errno| StepError::new(name, "", errno);
    let ids = Ids { uid, gid };
    // Whoever started this has tried it too, and has told where it is refused.
    let _ = allow_open_files();
    privilege::become_outside(ids)?;
    let root_group = privilege::has_root_group();
    let proc = host_proc()?;
    let wanted = arguments.get(2).is_some_and(|option| option == OUTPUTS);
    let workshop = wanted.then(|| Workshop::enter(ids, proc.as_fd())).transpose()?;
    let outputs = wanted.then(outputs::make).transpose()?;
    die_with_server()?;
    nix::unistd::setsid().map_err(step("give the launcher a session"))?;
    let arguments = process::own_arguments(proc.as_fd())?;
    nix::sys::prctl::set_dumpable(false).map_err(step("hide the launcher"))?;
    // For sandboxes that cannot have one of their own: then at least not the server's.
    let _ = kernel::join_new_session_keyring();
    // Ended sandboxes leave no zombie: their pidfds tell all that is asked.
    kernel::ignore_children().map_err(step("ignore ended children"))?;
    let own = kernel::pidfd_open(Pid::this()).map_err(step("open a pidfd of the launcher"))?;
    Ok(Prepared { own, proc, arguments, root_group, outputs, workshop })
}

/// After [`privilege::become_outside`]: a change of credentials clears the death signal.
fn die_with_server() -> Result<(), StepError> {
    let failed = |errno| StepError::new("die with the server", "", errno);
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).map_err(failed)?;
    let stdout = std::io::stdout();
    let mut poll = [nix::poll::PollFd::new(stdout.as_fd(), nix::poll::PollFlags::POLLIN)];
    match nix::poll::poll(&mut poll, nix::poll::PollTimeout::ZERO).map_err(failed)? {
        0 => Ok(()),
        _ => Err(failed(Errno::ESRCH)),
    }
}

fn serve(socket: &OwnedFd, prepared: &mut Prepared) -> i32 {
    loop {
        prepare_ahead(socket, prepared);
        let (answer, pidfd) = match receive(socket.as_fd()) {
            Ok(None) => return 0,
            Ok(Some(Asked::Perform(task, launch))) => perform(socket, prepared, task, &launch),
            Ok(Some(Asked::Forget(template))) => {
                prepared.workshop.iter_mut().for_each(|workshop| workshop.forget(template));
                continue;
            }
            Ok(Some(Asked::InVain(error))) => (Err(error), None),
            // What is still on its way belongs to this request, and would be taken for others.
            Err(error) => {
                let _ = reply(socket, &Err(error), None);
                return 1;
            }
        };
        match reply(socket, &answer, pidfd.as_ref()) {
            Ok(()) => {}
            Err(Errno::EPIPE | Errno::ECONNRESET) => return 1,
            Err(errno) => {
                // A sandbox that nobody can be given.
                if let Some(pidfd) = pidfd {
                    let _ = kernel::pidfd_signal(pidfd.as_fd(), libc::SIGKILL);
                }
                let refused = StepError::new("hand out the sandbox", "", errno);
                if reply(socket, &Err(refused), None).is_err() {
                    return 1;
                }
            }
        }
    }
}

/// While nobody waits.
fn prepare_ahead(socket: &OwnedFd, prepared: &mut Prepared) {
    let Prepared { workshop: Some(workshop), proc, .. } = prepared else { return };
    let nobody_waits = || {
        let mut poll = [nix::poll::PollFd::new(socket.as_fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut poll, nix::poll::PollTimeout::ZERO) == Ok(0)
    };
    while nobody_waits() && workshop.make_network(proc.as_fd()) {}
}

fn perform(
    socket: &OwnedFd,
    prepared: &mut Prepared,
    task: Task,
    launch: &Launch,
) -> (Answer, Option<OwnedFd>) {
    let Prepared { own, proc, arguments, root_group, outputs, workshop } = prepared;
    let parent = Parent {
        process: own.as_fd(),
        control: Some(socket.as_fd()),
        outputs: outputs.as_ref().map(AsFd::as_fd),
        proc: proc.as_fd(),
        arguments: *arguments,
        root_group: *root_group,
    };
    // A terminal is given to the leader of a session only.
    let session = !matches!(&launch.begin, Begin::Now(Start { terminal: Some(_), .. }));
    let started = match (task, workshop) {
        (Task::Template, Some(workshop)) => {
            return (workshop.make_template(launch, parent).map(Some), None);
        }
        (Task::Template | Task::Launch { template: Some(_) }, None) => {
            Err(StepError::new("make a template", "", Errno::EOPNOTSUPP).into())
        }
        (Task::Launch { template }, Some(workshop)) => {
            let tree = template.is_some();
            workshop.clone(template, cgroup(launch)).map_err(LauncherError::from).and_then(
                |(cloned, network)| {
                    sandbox(cloned, launch, parent, Ahead { tree, network, session })
                },
            )
        }
        (Task::Launch { template: None }, None) => {
            kernel::clone(removal::namespaces(), cgroup(launch))
                .map_err(|errno| refused(errno).into())
                .and_then(|cloned| {
                    sandbox(cloned, launch, parent, Ahead { session, ..Ahead::default() })
                })
        }
    };
    match started {
        Ok(sandbox) => (Ok(None), Some(sandbox.pidfd)),
        Err(LauncherError::Step(error)) => (Err(error), None),
        Err(error) => (Err(StepError::new(error.to_string(), "", Errno::EIO)), None),
    }
}
