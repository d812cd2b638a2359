//! What this kernel lets us do, found out by doing it in a throw-away child.
//!
//! A [`Trial`] is one thing that a sandbox needs. It goes the engine's way: root is given up first,
//! the namespaces are made by one clone, and a refusal is a [`StepError`] with the engine's name for
//! the step, so that whoever explains a failed launch can explain a failed trial.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, Uid};
use serde::{Serialize, de::DeserializeOwned};

use super::filters::filter;
use super::report::{At, Done, StepError};
use super::{landlock, privilege, process};
use crate::kernel::{self, Attributes, Cloned, Namespaces};
use crate::outcome::WallReport;
use crate::plan::{Access, Identity, Ids, ProcMode};
use crate::policy::{Profile, Wearer};

/// How long a child may take before it is killed.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// One thing that a sandbox needs of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// Started as root: become an ordinary user for good.
    GiveUpRoot,
    /// A user namespace with one user and one group mapped, setgroups(2) denied.
    UserNamespace,
    /// The security label that a process has once it is in a user namespace (AppArmor moves it).
    LabelInside,
    /// All seven namespaces by one clone; where that fails, which one cannot be had.
    Namespaces,
    /// `lo` up in a network namespace.
    Loopback,
    /// A sized tmpfs.
    Tmpfs,
    /// A mount and one below it made read-only at once, and that they are.
    ReadOnlyBind,
    /// A fresh procfs.
    Proc,
    /// A devpts instance.
    Devpts,
    /// Another root, the old one let go of.
    PivotRoot,
    /// `max_user_namespaces` 0 inside, and that it holds.
    NestedNamespaces,
    /// The system-call filter.
    Seccomp,
    /// `RLIMIT_NPROC`, and that it binds.
    ProcessLimit,
    /// A new session keyring.
    Keyring,
}

impl Trial {
    /// Performs the trial; what was found, in words. Takes at most [`PATIENCE`] and leaves nothing.
    ///
    /// The caller must have one thread: it forks.
    ///
    /// # Errors
    /// The step that the kernel refused.
    pub fn perform(self, outside: Ids) -> Result<String, StepError> {
        let work: fn(Ids) -> Found = match self {
            Self::GiveUpRoot => give_up_root,
            Self::UserNamespace => user_namespace,
            Self::LabelInside => label_inside,
            Self::Namespaces => return namespaces(outside),
            Self::Loopback => |outside| isolated(outside, loopback),
            Self::Tmpfs => |outside| isolated(outside, tmpfs),
            Self::ReadOnlyBind => |outside| isolated(outside, read_only_bind),
            Self::Proc => |outside| isolated(outside, proc),
            Self::Devpts => |outside| isolated(outside, devpts),
            Self::PivotRoot => |outside| isolated(outside, pivot_root),
            Self::NestedNamespaces => |outside| isolated(outside, nested_namespaces),
            Self::Seccomp => seccomp,
            Self::ProcessLimit => process_limit,
            Self::Keyring => keyring,
        };
        throw_away(|| work(outside))
    }
}

/// Enters a Landlock domain in a throw-away child: how that wall would stand, which says what an
/// old kernel leaves open.
///
/// # Errors
/// A step that the kernel refused; a kernel without Landlock is no error.
pub fn landlock_domain(outside: Ids) -> Result<WallReport, StepError> {
    throw_away(|| {
        no_new_privileges(outside)?;
        let access = Access {
            profile: Profile::Default,
            wearer: Wearer::Base,
            proc: ProcMode::Fresh,
            require: std::collections::BTreeSet::new(),
        };
        landlock::enter(&access)
    })
}

type Found = Result<String, StepError>;

/// Runs `work` in a child that is killed when it has answered, or after [`PATIENCE`].
///
/// The caller must have one thread.
///
/// # Errors
/// What `work` gave; `ETIMEDOUT` when it took too long, `ECHILD` when it ended without an answer.
pub fn throw_away<T>(work: impl FnOnce() -> Result<T, StepError>) -> Result<T, StepError>
where
    T: Serialize + DeserializeOwned,
{
    born_by(plain_child, work)
}

/// In the child nothing; in the parent its pid.
type Birth = fn() -> nix::Result<Option<Pid>>;

/// By fork(2) and not by clone3(2), which container runtimes answer with `ENOSYS`.
fn plain_child() -> nix::Result<Option<Pid>> {
    match kernel::fork()? {
        ForkResult::Child => Ok(None),
        ForkResult::Parent { child } => Ok(Some(child)),
    }
}

/// By the engine's own clone.
fn child_in_namespaces() -> nix::Result<Option<Pid>> {
    match kernel::clone(Namespaces::ALL, None)? {
        Cloned::Child => Ok(None),
        Cloned::Parent { pid, .. } => Ok(Some(pid)),
    }
}

fn born_by<T>(birth: Birth, work: impl FnOnce() -> Result<T, StepError>) -> Result<T, StepError>
where
    T: Serialize + DeserializeOwned,
{
    let deadline = Instant::now() + PATIENCE;
    let (read, write) = super::report::pipe().at("make a pipe", "")?;
    match birth().at("create the namespaces", "")? {
        None => {
            drop(read);
            answer(work, write)
        }
        Some(child) => {
            drop(write);
            let line = line(read, deadline);
            end(child);
            let line = line.at("probe", "(the child gave no answer)")?;
            serde_json::from_slice(&line)
                .map_err(|_| StepError::new("probe", "(the child ended early)", Errno::ECHILD))?
        }
    }
}

/// The child's whole life.
fn answer<T: Serialize>(work: impl FnOnce() -> Result<T, StepError>, write: OwnedFd) -> ! {
    // A panic must not unwind into what was copied from the parent.
    let answer = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(StepError::new("probe", "(it panicked)", Errno::ENOTRECOVERABLE)));
    let mut line = serde_json::to_vec(&answer).unwrap_or_default();
    line.push(b'\n');
    let sent = File::from(write).write_all(&line);
    kernel::exit_now(i32::from(sent.is_err()))
}

/// One line, or what came before the end of the pipe.
fn line(from: OwnedFd, deadline: Instant) -> nix::Result<Vec<u8>> {
    let mut file = File::from(from);
    let (mut line, mut buffer) = (Vec::new(), [0; 4096]);
    while !line.ends_with(b"\n") {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], left) {
            Ok(0) => return Err(Errno::ETIMEDOUT),
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => line.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Errno::EIO),
        }
    }
    Ok(line)
}

/// Kills and reaps. Does not wait for ever: a child in an uninterruptible sleep is left behind.
fn end(child: Pid) {
    // Our own child that nobody has reaped: by pidfd where there are pidfds, by number elsewhere.
    let killed = kernel::pidfd_open(child)
        .and_then(|pidfd| kernel::pidfd_signal(pidfd.as_fd(), libc::SIGKILL));
    if killed.is_err() {
        let _ = kill(child, Signal::SIGKILL);
    }
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_micros(200)),
            Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// After every change of credentials, which clears it. Before that the parent waits for us anyway.
fn die_with_parent() -> Done {
    prctl::set_pdeathsig(Signal::SIGKILL).at("die with the launcher", "")
}

fn give_up_root(outside: Ids) -> Found {
    let root = Uid::effective().is_root();
    become_outside(outside)?;
    Ok(if root {
        format!("root is given up; sandboxes run as uid {} of this host", outside.uid)
    } else {
        format!("an ordinary user; sandboxes run as uid {} of this host", outside.uid)
    })
}

fn become_outside(outside: Ids) -> Done {
    privilege::become_outside(outside)?;
    die_with_parent()
}

/// Maps the ids as pid 1 does, and takes them.
fn take_mapped_ids(outside: Ids) -> Done {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let proc = open("/proc", flags, Mode::empty()).at("open", "/proc")?;
    let identity = Identity::of(outside);
    process::map_ids(&identity, proc.as_fd())?;
    process::take_ids(&identity)?;
    die_with_parent()
}

fn user_namespace(outside: Ids) -> Found {
    become_outside(outside)?;
    unshare(CloneFlags::CLONE_NEWUSER).at("create a user namespace", "")?;
    take_mapped_ids(outside)?;
    Ok("made, ids mapped, setgroups denied".to_owned())
}

fn label_inside(outside: Ids) -> Found {
    become_outside(outside)?;
    unshare(CloneFlags::CLONE_NEWUSER).at("create a user namespace", "")?;
    let label = std::fs::read_to_string("/proc/self/attr/current").at("read the label", "")?;
    Ok(label.trim_end_matches(['\n', '\0']).to_owned())
}

/// The six besides the user namespace.
const OTHERS: [(&str, CloneFlags); 6] = [
    ("pid", CloneFlags::CLONE_NEWPID),
    ("mount", CloneFlags::CLONE_NEWNS),
    ("network", CloneFlags::CLONE_NEWNET),
    ("ipc", CloneFlags::CLONE_NEWIPC),
    ("uts", CloneFlags::CLONE_NEWUTS),
    ("cgroup", CloneFlags::CLONE_NEWCGROUP),
];

fn namespaces(outside: Ids) -> Found {
    let whole = throw_away(|| isolated(outside, || Ok(String::new())));
    let Err(error) = whole else {
        return Ok("user, pid, mount, network, ipc, uts, cgroup by one clone".to_owned());
    };
    let refused = OTHERS.iter().filter(|(_, flag)| one_namespace(outside, *flag).is_err());
    let names: Vec<&str> = refused.map(|(name, _)| *name).collect();
    let subject = match names.len() {
        0 => "(one by one they can be had)".to_owned(),
        6 => String::new(),
        _ => format!("({})", names.join(", ")),
    };
    Err(StepError { subject, ..error })
}

fn one_namespace(outside: Ids, flag: CloneFlags) -> Done {
    throw_away(|| {
        become_outside(outside)?;
        unshare(CloneFlags::CLONE_NEWUSER | flag).at("create the namespaces", "")
    })
}

/// Runs `work` as pid 1 of all seven namespaces, with its ids mapped and its mounts private.
fn isolated(outside: Ids, work: fn() -> Found) -> Found {
    become_outside(outside)?;
    born_by(child_in_namespaces, || {
        take_mapped_ids(outside)?;
        kernel::set_private().at("make all mounts private", "")?;
        work()
    })
}

fn loopback() -> Found {
    kernel::loopback_up().at("bring lo up", "")?;
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).at("listen on lo", "")?;
    drop(listener);
    Ok("lo is up and has 127.0.0.1".to_owned())
}

/// A tmpfs attached over `/proc`, as the engine's root is.
fn new_root() -> Result<OwnedFd, StepError> {
    let step = "make the root file system";
    let root = small_tmpfs(step)?;
    let place = open("/proc", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
        .at(step, "")?;
    kernel::move_onto(root.as_fd(), place.as_fd(), Path::new("")).at(step, "")?;
    Ok(root)
}

fn small_tmpfs(step: &str) -> Result<OwnedFd, StepError> {
    let options = [("size", "64k".to_owned()), ("nr_inodes", "32".to_owned())];
    let attributes = Attributes::NOSUID.and(Attributes::NODEV);
    kernel::new_filesystem("tmpfs", &options, attributes).at(step, "")
}

fn directory(root: &OwnedFd, name: &str) -> Done {
    mkdirat(root, name, Mode::from_bits_truncate(0o755)).at("make directory", name)
}

fn create(root: &OwnedFd, name: &str) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(root, name, flags, Mode::from_bits_truncate(0o644))
}

fn tmpfs() -> Found {
    let root = new_root()?;
    let step = "mount a tmpfs at";
    let mut file = File::from(create(&root, "full").at(step, "")?);
    match file.write_all(&[0; 128 << 10]) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
            Ok("mounted; its size is held (ENOSPC)".to_owned())
        }
        Err(error) => Err(error).at(step, ""),
        Ok(()) => Err(StepError::new(step, "(its size is not held)", Errno::EOVERFLOW)),
    }
}

fn read_only_bind() -> Found {
    let step = "mount read-only";
    let root = new_root()?;
    directory(&root, "a")?;
    directory(&root, "a/below")?;
    directory(&root, "shown")?;
    let below = small_tmpfs(step)?;
    kernel::move_onto(below.as_fd(), root.as_fd(), Path::new("a/below")).at(step, "")?;
    let tree = kernel::clone_tree(root.as_fd(), Path::new("a"), true).at(step, "")?;
    kernel::set_attributes(tree.as_fd(), Attributes::RDONLY, true).at(step, "")?;
    kernel::move_onto(tree.as_fd(), root.as_fd(), Path::new("shown")).at(step, "")?;
    for place in ["shown/file", "shown/below/file"] {
        match create(&root, place) {
            Err(Errno::EROFS) => {}
            Err(errno) => return Err(StepError::new(step, place, errno)),
            Ok(_) => return Err(StepError::new(step, "(it can be written)", Errno::EACCES)),
        }
    }
    Ok("read-only with all below it (EROFS)".to_owned())
}

fn fresh_proc() -> Result<OwnedFd, StepError> {
    let attributes = Attributes::NOSUID.and(Attributes::NODEV).and(Attributes::NOEXEC);
    kernel::new_filesystem("proc", &[], attributes).at("mount a fresh procfs at", "/proc")
}

fn proc() -> Found {
    fresh_proc().map(|_| "a fresh procfs can be mounted".to_owned())
}

fn devpts() -> Found {
    let options = [("newinstance", String::new()), ("ptmxmode", "0666".to_owned())];
    let attributes = Attributes::NOSUID.and(Attributes::NOEXEC);
    kernel::new_filesystem("devpts", &options, attributes).at("mount a devpts at", "/dev/pts")?;
    Ok("a devpts instance of its own".to_owned())
}

fn pivot_root() -> Found {
    let step = "enter the new root";
    let root = new_root()?;
    kernel::pivot_into(root.as_fd()).at(step, "")?;
    match std::fs::read_dir("/").at(step, "")?.next() {
        None => Ok("the old root is gone".to_owned()),
        Some(_) => Err(StepError::new(step, "(it is not empty)", Errno::ENOTEMPTY)),
    }
}

fn nested_namespaces() -> Found {
    let root = new_root()?;
    directory(&root, "proc")?;
    let proc = fresh_proc()?;
    kernel::move_onto(proc.as_fd(), root.as_fd(), Path::new("proc"))
        .at("mount a fresh procfs at", "/proc")?;
    kernel::pivot_into(root.as_fd()).at("enter the new root", "")?;
    let path = "/proc/sys/user/max_user_namespaces";
    let mut limit = File::options().write(true).open(path).at("open", path)?;
    limit.write_all(b"0").at("limit namespaces", "0")?;
    match unshare(CloneFlags::CLONE_NEWUSER) {
        Err(errno @ (Errno::ENOSPC | Errno::EPERM)) => {
            Ok(format!("max_user_namespaces 0 inside holds ({errno:?})"))
        }
        Err(errno) => Err(StepError::new("limit namespaces", "", errno)),
        Ok(()) => Err(StepError::new("limit namespaces", "(one was made)", Errno::EACCES)),
    }
}

fn no_new_privileges(outside: Ids) -> Done {
    become_outside(outside)?;
    prctl::set_no_new_privs().at("set no_new_privs", "")
}

fn seccomp(outside: Ids) -> Found {
    let step = "load the system-call filter";
    no_new_privileges(outside)?;
    let program = filter(Wearer::Base, Profile::Default);
    // Before the filter, which need not allow what we do next.
    let status = File::open("/proc/self/status").at(step, "")?;
    kernel::load_filter(program).at(step, "")?;
    let mut text = String::new();
    (&status).read_to_string(&mut text).at(step, "")?;
    if !text.lines().any(|line| line.starts_with("Seccomp:") && line.ends_with('2')) {
        return Err(StepError::new(step, "(it is not in force)", Errno::EINVAL));
    }
    Ok(format!("a filter of {} instructions loads", program.len()))
}

fn process_limit(outside: Ids) -> Found {
    let step = "set limit";
    become_outside(outside)?;
    unshare(CloneFlags::CLONE_NEWUSER).at("create a user namespace", "")?;
    take_mapped_ids(outside)?;
    // This process alone counts in its namespace: not one more.
    setrlimit(Resource::RLIMIT_NPROC, 1, 1).at(step, "RLIMIT_NPROC")?;
    match kernel::fork() {
        Err(Errno::EAGAIN) => Ok("RLIMIT_NPROC binds (EAGAIN)".to_owned()),
        Err(errno) => Err(StepError::new(step, "RLIMIT_NPROC", errno)),
        Ok(ForkResult::Child) => kernel::exit_now(0),
        Ok(ForkResult::Parent { child }) => {
            let _ = waitpid(child, None);
            Err(StepError::new(step, "RLIMIT_NPROC (it does not bind)", Errno::EPERM))
        }
    }
}

fn keyring(outside: Ids) -> Found {
    become_outside(outside)?;
    match kernel::join_new_session_keyring() {
        Ok(()) => Ok("a session keyring of its own".to_owned()),
        Err(Errno::ENOSYS) => Ok("the kernel has no keyrings".to_owned()),
        Err(errno) => Err(StepError::new("join a new session keyring", "", errno)),
    }
}
