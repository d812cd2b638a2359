//! The launcher: whoever clones pid 1.
//!
//! [`Launcher::direct`] clones from the calling process, which must have one thread: the one-shot
//! command line. [`Launcher::spawn`] starts this program once more as a small process that does
//! nothing else, and speaks with it over a socket: the server.

use std::io::{Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::child::{self, Parent};
use super::report::StepError;
use super::{outputs, privilege, removal};
use crate::kernel::{self, Cloned};
use crate::plan::{Ids, Plan};

/// Everything that one launch needs, in one place. The descriptors are the child's copies.
#[derive(Debug)]
pub struct Launch {
    /// What shall hold.
    pub plan: Plan,
    /// The payload's three streams.
    pub stdio: [OwnedFd; 3],
    /// Where pid 1 reports: the write end of a pipe.
    pub report: OwnedFd,
    /// The code, if the plan has a place for it.
    pub code: Option<OwnedFd>,
    /// Detached mounts for the plan's binds, by their order; see [`super::sources`].
    pub sources: Vec<Option<OwnedFd>>,
    /// Where to send the master of the payload's own terminal, if it shall have one: one end of a
    /// [`kernel::message_pair`]. Pid 1 waits there until it is answered. `stdio` is not used then.
    pub terminal: Option<OwnedFd>,
    /// A session's control pipes, the agent's ends: where requests come from (its 3) and where
    /// answers go (its 4).
    pub control: Option<[OwnedFd; 2]>,
    /// The cgroup that pid 1 is born in; see [`super::cgroup`].
    pub cgroup: Option<OwnedFd>,
    /// Whether pid 1 watches over the memory limit, because no cgroup does.
    pub watch_memory: bool,
    /// Where to send a descriptor of `/workspace`, if somebody outside shall look into it: one end
    /// of a [`kernel::message_pair`].
    pub workspace: Option<OwnedFd>,
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
}

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
        Ok(Self::Direct { own })
    }

    /// Starts a launcher process that becomes `outside` if it is root. Must be called on the
    /// program's main thread, before any other is started: the launcher dies with the thread that
    /// made it.
    ///
    /// # Errors
    /// This program cannot be executed again, or the launcher could not give up root.
    pub fn spawn(outside: Ids) -> Result<Self, LauncherError> {
        Self::start(outside, None).map(|(launcher, _)| launcher)
    }

    /// As [`Launcher::spawn`]; its sandboxes can have [`crate::plan::MountKind::Outputs`]. What
    /// stands there is written through the directory that is returned, by `outside`.
    ///
    /// # Errors
    /// As for [`Launcher::spawn`], or the launcher cannot have a mount namespace of its own.
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
    /// killed it). Its sandboxes are gone with it. Whether it was, and the new directory behind
    /// `/outputs` if there is one. To be called on the program's main thread, like
    /// [`Launcher::spawn`].
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
            Ok(None) | Err(_) => Ok(None),
        }
    }

    /// Starts one sandbox. Returns as soon as pid 1 exists; what becomes of it is reported through
    /// `launch.report`.
    ///
    /// # Errors
    /// The clone was refused, or the launcher process is gone.
    pub fn launch(&self, launch: Launch) -> Result<Sandbox, LauncherError> {
        match self {
            Self::Direct { own } => {
                privilege::become_outside(launch.plan.identity().outside)?;
                let parent = Parent { process: own.as_fd(), control: None, outputs: None };
                clone_pid1(&launch, parent)
            }
            Self::Process { line, .. } => {
                let line = line.lock().map_err(|_| gone("is in an unknown state"))?;
                send(&line.socket, &launch)?;
                // The child has its own copies now; ours would keep pipes open.
                drop(launch);
                match answer(&line.socket)? {
                    Some(pidfd) => Ok(Sandbox { pidfd }),
                    None => Err(gone("sent no descriptor")),
                }
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
            .map_err(|error| failed(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)))?;
        let line = Self { socket, process };
        let outputs = answer(&line.socket)?;
        Ok((line, outputs))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Its sandboxes die with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn gone(how: &str) -> LauncherError {
    LauncherError::Gone(how.to_owned())
}

fn clone_pid1(launch: &Launch, parent: Parent<'_>) -> Result<Sandbox, LauncherError> {
    match kernel::clone(removal::namespaces(), launch.cgroup.as_ref().map(AsFd::as_fd)) {
        Ok(Cloned::Child) => child::pid1(launch, parent),
        Ok(Cloned::Parent { pidfd, .. }) => Ok(Sandbox { pidfd }),
        Err(errno) => Err(StepError::new("create the namespaces", "", errno).into()),
    }
}

/// The head of a launch on the wire. The descriptors follow in this order: the plan's text, the
/// report pipe, the three streams, the code, the terminal's socket, the cgroup, the control pipes,
/// the socket for `/workspace`; then, in further messages, the sources.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    code: bool,
    terminal: bool,
    control: bool,
    cgroup: bool,
    watch_memory: bool,
    workspace: bool,
    /// For each bind, whether a detached mount is passed.
    passed: Vec<bool>,
}

type Answer = Result<(), StepError>;

fn send(socket: &OwnedFd, launch: &Launch) -> Result<(), LauncherError> {
    let plan = plan_text(&launch.plan)
        .map_err(|errno| StepError::new("write down the plan", "", errno))?;
    let head = Head {
        code: launch.code.is_some(),
        terminal: launch.terminal.is_some(),
        control: launch.control.is_some(),
        cgroup: launch.cgroup.is_some(),
        watch_memory: launch.watch_memory,
        workspace: launch.workspace.is_some(),
        passed: launch.sources.iter().map(Option::is_some).collect(),
    };
    let head = serde_json::to_vec(&head).map_err(|error| LauncherError::Gone(error.to_string()))?;
    let mut fds = vec![plan.as_fd(), launch.report.as_fd()];
    fds.extend(launch.stdio.iter().map(AsFd::as_fd));
    let single = [&launch.code, &launch.terminal, &launch.cgroup];
    fds.extend(single.into_iter().flatten().map(AsFd::as_fd));
    fds.extend(launch.control.iter().flatten().chain(&launch.workspace).map(AsFd::as_fd));
    let unreached = |errno: Errno| gone(&format!("cannot be reached: {}", errno.desc()));
    kernel::send_message(socket.as_fd(), &head, &fds).map_err(unreached)?;
    let sources: Vec<BorrowedFd<'_>> = launch.sources.iter().flatten().map(AsFd::as_fd).collect();
    for batch in sources.chunks(kernel::MESSAGE_DESCRIPTORS) {
        kernel::send_message(socket.as_fd(), b"sources", batch).map_err(unreached)?;
    }
    Ok(())
}

fn plan_text(plan: &Plan) -> nix::Result<OwnedFd> {
    let file = memfd_create(c"plan", MFdFlags::MFD_CLOEXEC)?;
    let mut file = std::fs::File::from(file);
    let text = serde_json::to_vec(plan).map_err(|_| Errno::EINVAL)?;
    file.write_all(&text)
        .and_then(|()| file.rewind())
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    Ok(file.into())
}

fn answer(socket: &OwnedFd) -> Result<Option<OwnedFd>, LauncherError> {
    match kernel::receive_message(socket.as_fd()) {
        Ok(Some((bytes, fds))) => {
            let answer: Answer = serde_json::from_slice(&bytes)
                .map_err(|error| gone(&format!("answered nonsense: {error}")))?;
            answer?;
            Ok(fds.into_iter().next())
        }
        Ok(None) => Err(gone("has ended")),
        Err(errno) => Err(gone(&format!("cannot be heard: {}", errno.desc()))),
    }
}

/// What the launcher process does, to its end. `arguments` are those after [`ARGUMENT`].
///
/// Its end is the closing of the socket, or the death of the server.
#[must_use]
pub fn main(arguments: &[String]) -> i32 {
    let Ok(socket) = std::io::stdin().as_fd().try_clone_to_owned() else { return 1 };
    let prepared = prepare(arguments);
    let result = prepared.as_ref().map(drop).map_err(Clone::clone);
    let outputs = prepared.as_ref().ok().and_then(|(_, outputs)| outputs.as_ref());
    if reply(&socket, &result, outputs).is_err() {
        return 1;
    }
    prepared.map_or(1, |(own, outputs)| {
        let outputs = outputs.as_ref().map(AsFd::as_fd);
        let parent = Parent { process: own.as_fd(), control: Some(socket.as_fd()), outputs };
        serve(&socket, parent)
    })
}

/// The launcher's own pidfd, and the directory behind `/outputs` if it is told to make one.
fn prepare(arguments: &[String]) -> Result<(OwnedFd, Option<OwnedFd>), StepError> {
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse().ok());
    let (Some(uid), Some(gid)) = (number(0), number(1)) else {
        return Err(StepError::new("start the launcher", "without ids", Errno::EINVAL));
    };
    let step = |name: &'static str| move |errno| StepError::new(name, "", errno);
    privilege::become_outside(Ids { uid, gid })?;
    let wanted = arguments.get(2).is_some_and(|option| option == OUTPUTS);
    let outputs = wanted.then(|| outputs::make(Ids { uid, gid })).transpose()?;
    die_with_server()?;
    nix::sys::prctl::set_dumpable(false).map_err(step("hide the launcher"))?;
    // For sandboxes that cannot have one of their own: then at least not the server's.
    let _ = kernel::join_new_session_keyring();
    // Ended sandboxes leave no zombie: their pidfds tell all that is asked.
    kernel::ignore_children().map_err(step("ignore ended children"))?;
    let own = kernel::pidfd_open(Pid::this()).map_err(step("open a pidfd of the launcher"))?;
    Ok((own, outputs))
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

fn serve(socket: &OwnedFd, parent: Parent<'_>) -> i32 {
    loop {
        match receive(socket.as_fd()) {
            Ok(None) => return 0,
            Ok(Some(launch)) => {
                let sandbox = clone_pid1(&launch, parent);
                let (result, pidfd) = match &sandbox {
                    Ok(sandbox) => (Ok(()), Some(&sandbox.pidfd)),
                    Err(LauncherError::Step(error)) => (Err(error.clone()), None),
                    Err(error) => (Err(StepError::new(error.to_string(), "", Errno::EIO)), None),
                };
                if reply(socket, &result, pidfd).is_err() {
                    return 1;
                }
            }
            Err(error) => {
                if reply(socket, &Err(error), None).is_err() {
                    return 1;
                }
            }
        }
    }
}

fn reply(socket: &OwnedFd, answer: &Answer, pidfd: Option<&OwnedFd>) -> nix::Result<()> {
    let bytes = serde_json::to_vec(answer).map_err(|_| Errno::EINVAL)?;
    let fds: Vec<BorrowedFd<'_>> = pidfd.into_iter().map(AsFd::as_fd).collect();
    kernel::send_message(socket.as_fd(), &bytes, &fds)
}

/// One launch; `None` when the server has closed the socket.
fn receive(socket: BorrowedFd<'_>) -> Result<Option<Launch>, StepError> {
    let step = |errno| StepError::new("receive a launch", "", errno);
    let Some((bytes, fds)) = kernel::receive_message(socket).map_err(step)? else {
        return Ok(None);
    };
    let head: Head = serde_json::from_slice(&bytes).map_err(|_| step(Errno::EPROTO))?;
    let mut passed = Vec::new();
    while passed.len() < head.passed.iter().filter(|passed| **passed).count() {
        let (_, batch) =
            kernel::receive_message(socket).map_err(step)?.ok_or(step(Errno::EPIPE))?;
        if batch.is_empty() {
            return Err(step(Errno::EMFILE));
        }
        passed.extend(batch);
    }
    let mut passed = passed.into_iter();
    let sources = head.passed.iter().map(|is| if *is { passed.next() } else { None }).collect();
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or(step(Errno::EMFILE));
    let plan = std::fs::File::from(next()?);
    let report = next()?;
    let stdio = [next()?, next()?, next()?];
    let code = if head.code { Some(next()?) } else { None };
    let terminal = if head.terminal { Some(next()?) } else { None };
    let cgroup = if head.cgroup { Some(next()?) } else { None };
    let control = if head.control { Some([next()?, next()?]) } else { None };
    let workspace = if head.workspace { Some(next()?) } else { None };
    let plan = serde_json::from_reader(std::io::BufReader::new(plan))
        .map_err(|error| StepError::new("read the plan", error, Errno::EINVAL))?;
    Ok(Some(Launch {
        plan,
        stdio,
        report,
        code,
        sources,
        terminal,
        control,
        workspace,
        cgroup,
        watch_memory: head.watch_memory,
    }))
}
