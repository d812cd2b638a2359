//! Starts bubblewrap and waits until everything stands but the payload.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Seek;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::stat::{Mode, lstat, mkdirat};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pipe2};

use super::arguments::{Data, Mask, Numbers, arguments};
use super::is_there;
use super::jailer::{HELD_BACK, Task};
use crate::engine::StepError;
use crate::engine::masks;
use crate::engine::sources::Sources;
use crate::engine::steps::bind_sources;
use crate::kernel::{self, Attributes, Cloned, Namespaces};
use crate::plan::{HostFile, Jail, ProcMode};

/// One memory page: what a pipe of the smallest size holds.
pub(super) const PAGE: usize = 4096;

/// How long bubblewrap may take to make a sandbox.
const START: Duration = Duration::from_secs(20);

/// Bytes of what bubblewrap complains that are told.
const COMPLAINT: usize = 1024;

/// A place that no plan may show and that bubblewrap does not use.
const EXPOSED: &str = "/sys";

/// As root: shows what only root can reach to the sandbox's user, in a mount namespace of the
/// jailer's own.
pub(super) fn expose(task: &mut Task) -> Result<(), StepError> {
    let failed = |errno| StepError::new("show to bubblewrap", EXPOSED, errno);
    nix::sched::unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
    kernel::set_private().map_err(failed)?;
    let trees = Sources::default().open(&task.plan)?;
    let attributes = Attributes::NOSUID.and(Attributes::NODEV);
    let options = [("mode", "0755".to_owned())];
    let room = kernel::new_filesystem("tmpfs", &options, attributes).map_err(failed)?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let place = open(EXPOSED, flags, Mode::empty()).map_err(failed)?;
    kernel::move_onto(room.as_fd(), place.as_fd(), Path::new("")).map_err(failed)?;
    let directories: Vec<bool> = bind_sources(&task.plan).map(|(_, it)| it.directory).collect();
    for (at, (tree, directory)) in trees.iter().zip(directories).enumerate() {
        let name = PathBuf::from(at.to_string());
        if directory {
            mkdirat(&room, &name, Mode::from_bits_truncate(0o755)).map_err(failed)?;
        } else {
            let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
            openat(&room, &name, flags, Mode::from_bits_truncate(0o444)).map_err(failed)?;
        }
        kernel::move_onto(tree.as_fd(), room.as_fd(), &name).map_err(failed)?;
        task.sources[at] = Path::new(EXPOSED).join(name);
    }
    Ok(())
}

/// A sandbox that stands and waits for the last bytes of its filter.
pub(super) struct Sandbox {
    pub(super) bwrap: Pid,
    pub(super) bwrap_fd: OwnedFd,
    /// Its number on the host.
    pub(super) pid: Pid,
    pub(super) pid1: OwnedFd,
    pub(super) status: Status,
    pub(super) filter: OwnedFd,
    pub(super) keyring: Result<(), Errno>,
}

/// Starts bubblewrap and waits until everything stands but the payload.
pub(super) fn launch(task: &Task, stderr: BorrowedFd<'_>) -> Result<Sandbox, String> {
    let mut sources = bind_sources(&task.plan).zip(&task.sources);
    sources.try_for_each(|((_, source), path)| check_source(source, path))?;
    if let Some(Jail { program, .. }) = task.jail() {
        check_source(program, &program.path)?;
    }
    match start(task, stderr) {
        Ok(sandbox) => Ok(sandbox),
        Err(failure) => Err(complaint(task).unwrap_or(failure)),
    }
}

/// What bubblewrap says when it cannot make the sandbox. Its standard error is the payload's, so it
/// is asked once more.
fn complaint(task: &Task) -> Option<String> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC).ok()?;
    if let Ok(sandbox) = start(task, write.as_fd()) {
        sandbox.kill();
        return None;
    }
    drop(write);
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).ok()?;
    let mut said = vec![0; COMPLAINT];
    let length = nix::unistd::read(&read, &mut said).ok().filter(|length| *length > 0)?;
    Some(String::from_utf8_lossy(&said[..length]).trim().to_owned())
}

fn no_input() -> nix::Result<OwnedFd> {
    open("/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

fn start(task: &Task, stderr: BorrowedFd<'_>) -> Result<Sandbox, String> {
    let told = |what: &'static str| move |errno: Errno| format!("{what}: {}", errno.desc());
    let (status, status_end) = pipe2(OFlag::O_CLOEXEC).map_err(told("make a pipe"))?;
    let (filter_end, filter) = pipe2(OFlag::O_CLOEXEC).map_err(told("make a pipe"))?;
    let one_page = i32::try_from(PAGE).unwrap_or(i32::MAX);
    fcntl(&filter, FcntlArg::F_SETPIPE_SZ(one_page)).map_err(told("size a pipe"))?;
    let first = &task.filter[..task.filter.len() - HELD_BACK];
    nix::unistd::write(&filter, first).map_err(told("fill a pipe"))?;
    let payload = 3 + i32::try_from(task.start.control.iter().flatten().count()).unwrap_or(0);
    let masks = masks(task.plan.access().proc);
    let numbers = Numbers::after(payload);
    let told_bwrap = arguments(&task.plan, &task.sources, &masks, numbers, task.jail());
    let words = kernel::file_in_memory(c"arguments", &told_bwrap.bytes())
        .map_err(told("keep the arguments"))?;
    let data = told_bwrap.data.iter().map(|data| open_data(task, *data));
    let data = data.collect::<nix::Result<Vec<_>>>().map_err(told("keep a file in memory"))?;
    let nothing = no_input().map_err(told("open /dev/null"))?;
    let stdin = task.start.stdin.as_ref().unwrap_or(&nothing);
    let mut fds: Vec<BorrowedFd<'_>> = vec![stdin.as_fd(), task.start.outputs[0].as_fd(), stderr];
    fds.extend(task.start.control.iter().flatten().map(AsFd::as_fd));
    fds.extend([words.as_fd(), status_end.as_fd(), filter_end.as_fd()]);
    fds.extend(data.iter().map(AsFd::as_fd));
    if !kernel::can_keep(fds.len()) {
        let count = fds.len();
        return Err(format!("it takes {count} descriptors; allow more open files (`ulimit -n`)"));
    }
    let keyring = kernel::join_new_session_keyring();
    let cgroup = task.cgroup.as_ref().map(AsFd::as_fd);
    let cloned = kernel::clone(Namespaces::NONE, cgroup);
    let (bwrap, bwrap_fd) = match cloned.map_err(told("start bubblewrap"))? {
        Cloned::Child => become_bwrap(task, &fds, payload),
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
    };
    drop((status_end, filter_end, words, data));
    let mut status = Status::new(status).map_err(told("read bubblewrap's status"))?;
    let stands = wait_until_it_stands(&mut status, &filter, &bwrap_fd);
    let pid = match stands {
        Ok(pid) => pid,
        Err(problem) => {
            let _ = kernel::pidfd_signal(bwrap_fd.as_fd(), libc::SIGKILL);
            let _ = waitpid(bwrap, None);
            return Err(problem);
        }
    };
    let pid1 = kernel::pidfd_open(pid).map_err(told("open a pidfd of pid 1"))?;
    Ok(Sandbox { bwrap, bwrap_fd, pid, pid1, status, filter, keyring })
}

fn open_data(task: &Task, data: Data<'_>) -> nix::Result<OwnedFd> {
    match (data, &task.start.code) {
        (Data::Text(text), _) => kernel::file_in_memory(c"file", text.as_bytes()),
        (Data::Code, Some(code)) => {
            let io = |error: std::io::Error| kernel::errno(&error);
            let mut code = File::from(code.try_clone().map_err(io)?);
            code.rewind().map_err(io)?;
            Ok(code.into())
        }
        (Data::Code, None) => Err(Errno::ENODATA),
        (Data::Nothing, _) => no_input(),
    }
}

/// What this host's `/proc` has of that which speaks of the whole host. A fresh one has the same.
fn masks(proc: ProcMode) -> Vec<Mask> {
    if proc == ProcMode::None {
        return Vec::new();
    }
    let files = masks::FILES.iter().map(|name| Mask { name, directory: false });
    let directories = masks::DIRECTORIES.iter().map(|name| Mask { name, directory: true });
    files.chain(directories).filter(|mask| is_there(&Path::new("/proc").join(mask.name))).collect()
}

/// What is executed: bubblewrap itself, or the program that calls it; its arguments and variables.
fn program(task: &Task, arguments: RawFd) -> (CString, Vec<CString>, Vec<CString>) {
    let c_string = |text: &OsStr| CString::new(text.as_bytes()).unwrap_or_default();
    let command = &task.plan.command().arguments;
    let words = |own: &[&str], command: &[OsString]| {
        let own = own.iter().map(|word| c_string(word.as_ref()));
        own.chain(command.iter().map(|word| c_string(word))).collect()
    };
    let number = arguments.to_string();
    if let Some(Jail { program, .. }) = task.jail() {
        // The jail already contains the interpreter's path.
        let variables = vec![c_string(format!("NIX_SANDBOX_ARGS_FD={number}").as_ref())];
        return (c_string(program.path.as_os_str()), words(&["jail"], &command[1..]), variables);
    }
    let own = ["bwrap", "--args", &number, "--"];
    (c_string(task.order.program.as_os_str()), words(&own, command), Vec::new())
}

/// In the child: everything up to exec.
fn become_bwrap(task: &Task, fds: &[BorrowedFd<'_>], payload: i32) -> ! {
    let (program, words, variables) = program(task, payload);
    // When the host runs out of memory the sandbox goes first.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let ready = kernel::keep_only(fds, &[])
        .and_then(|_| kernel::reset_dispositions())
        // A shell would complain about a directory that it cannot enter.
        .and_then(|()| nix::unistd::chdir("/"))
        .and_then(|()| sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None));
    if ready.is_ok() {
        let _ = nix::unistd::execve(&program, &words, &variables);
    }
    kernel::exit_now(1)
}

/// bubblewrap's own words: JSON, a line each.
pub(super) struct Status {
    pipe: OwnedFd,
    pending: Vec<u8>,
    /// Pid 1, as the host numbers it.
    child: Option<Pid>,
    /// What a shell would say of the payload's end.
    pub(super) exit_code: Option<i32>,
}

impl Status {
    fn new(pipe: OwnedFd) -> nix::Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { pipe, pending: Vec::new(), child: None, exit_code: None })
    }

    /// Takes what has been said since.
    pub(super) fn read(&mut self) {
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = nix::unistd::read(&self.pipe, &mut buffer) {
            self.pending.extend_from_slice(&buffer[..length]);
        }
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            let Ok(said) = serde_json::from_slice::<serde_json::Value>(&line) else { continue };
            let number = |key: &str| said[key].as_i64().and_then(|it| i32::try_from(it).ok());
            self.child = self.child.or(number("child-pid").map(Pid::from_raw));
            self.exit_code = self.exit_code.or(number("exit-code"));
        }
    }
}

/// Pid 1, once it has begun to read the filter.
fn wait_until_it_stands(
    status: &mut Status,
    filter: &OwnedFd,
    bwrap: &OwnedFd,
) -> Result<Pid, String> {
    let deadline = Instant::now() + START;
    loop {
        let mut fds = [
            PollFd::new(filter.as_fd(), PollFlags::POLLOUT),
            PollFd::new(bwrap.as_fd(), PollFlags::POLLIN),
        ];
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let time = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, time) {
            Ok(0) => return Err(format!("nothing stood after {} s", START.as_secs())),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(format!("poll: {}", errno.desc())),
        }
        let fired = |at: usize, flag| fds[at].revents().is_some_and(|it| it.contains(flag));
        if fired(1, PollFlags::POLLIN) || fired(0, PollFlags::POLLERR) {
            return Err("it ended before the sandbox stood".to_owned());
        }
        if fired(0, PollFlags::POLLOUT) {
            status.read();
            return status.child.ok_or_else(|| "it did not say who pid 1 is".to_owned());
        }
    }
}

fn check_source(source: &HostFile, path: &Path) -> Result<(), String> {
    let shown = source.path.display();
    let stat =
        lstat(path).map_err(|errno| format!("{shown} cannot be reached: {}", errno.desc()))?;
    if (stat.st_dev, stat.st_ino) == (source.identity.device, source.identity.inode) {
        return Ok(());
    }
    Err(format!("{shown} was replaced after it was checked"))
}

impl Sandbox {
    /// Ends it and waits for its end.
    pub(super) fn kill(&self) {
        let _ = kernel::pidfd_signal(self.pid1.as_fd(), libc::SIGKILL);
        let _ = waitpid(self.bwrap, None);
        let _ = waitpid(self.pid, None);
    }
}
