//! What is done while everything stands but the payload: limits and checks.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::mount::{MsFlags, mount};
use nix::sched::CloneFlags;
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

use super::Order;
use super::inspect::inspect;
use super::jailer::Task;
use super::start::Sandbox;
use crate::engine::StepError;
use crate::engine::child::wearer_name;
use crate::engine::payload::candidates;
use crate::engine::privilege::{has_root_group, identity_wall};
use crate::engine::process::rlimit_values;
use crate::engine::report::Report;
use crate::engine::steps::bind_sources;
use crate::kernel;
use crate::outcome::{Strength, WallReport};
use crate::plan::{HostFile, MountKind, Plan, Wall};

impl Sandbox {
    /// Limits, checks, and what others asked to be handed: while the payload does not run.
    pub(super) fn finish(&self, task: &Task) -> Result<Vec<WallReport>, Report> {
        let plan = &task.plan;
        let failed = |step: &str, subject: &Path, errno| {
            let subject = subject.display();
            Report::Failed(StepError::new(step, subject, errno))
        };
        let root = PathBuf::from(format!("/proc/{}/root", self.pid));
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(&root, flags, Mode::empty())
            .map_err(|errno| failed("look into the sandbox at", &root, errno))?;
        for (at, source) in bind_sources(plan) {
            check_mounted(&root, at, source)
                .map_err(|errno| failed("check what is mounted at", at, errno))?;
        }
        for (resource, soft, hard) in rlimit_values(plan.limits()) {
            kernel::limit_process(self.pid, resource, soft, hard)
                .map_err(|errno| failed("set limit", Path::new(&format!("{resource:?}")), errno))?;
        }
        tighten(self.pid, plan).map_err(|errno| failed("limit", Path::new("the tmpfs"), errno))?;
        if let Some(jail) = task.jail() {
            inspect(self.pid, plan, jail).map_err(Report::Failed)?;
        }
        if let Some(socket) = &task.start.workspace {
            let place = Path::new("/workspace");
            let directory = open_inside(&root, place, OFlag::O_DIRECTORY)
                .map_err(|errno| failed("hand out", place, errno))?;
            // Nobody may want it any more.
            let _ = kernel::send_message(socket.as_fd(), b"workspace", &[directory.as_fd()]);
        }
        find_program(&root, plan).map_err(|(program, errno)| Report::NotExecuted {
            program: program.to_string_lossy().into_owned(),
            errno: errno as i32,
        })?;
        Ok(walls(task, self.keyring))
    }
}

/// What is mounted must be what was checked (CVE-2018-15664).
fn check_mounted(root: &OwnedFd, at: &Path, source: &HostFile) -> nix::Result<()> {
    let stat = fstat(open_inside(root, at, OFlag::O_NOFOLLOW)?)?;
    if (stat.st_dev, stat.st_ino) == (source.identity.device, source.identity.inode) {
        return Ok(());
    }
    Err(Errno::ESTALE)
}

/// Opens what the sandbox calls `path`.
fn open_inside(root: &OwnedFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root, path, how)
}

/// Whether there is a program to execute: bubblewrap would tell it on the payload's standard error.
fn find_program(root: &OwnedFd, plan: &Plan) -> Result<(), (PathBuf, Errno)> {
    let command = plan.command();
    let name = command.arguments.first().map_or(OsStr::new(""), |name| name.as_os_str());
    let mut failed = (PathBuf::from(name), Errno::ENOENT);
    for candidate in candidates(name, command.variables.get(OsStr::new("PATH"))) {
        let path = command.directory.join(&candidate);
        let found = open_inside(root, &path, OFlag::empty()).and_then(fstat);
        match found {
            Ok(stat) if is_program(&stat) => return Ok(()),
            Ok(_) | Err(Errno::EACCES) => failed = (candidate, Errno::EACCES),
            Err(_) => {}
        }
    }
    Err(failed)
}

fn is_program(stat: &nix::sys::stat::FileStat) -> bool {
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    kind == SFlag::S_IFREG && stat.st_mode & 0o111 != 0
}

pub(super) fn walls(task: &Task, keyring: Result<(), Errno>) -> Vec<WallReport> {
    let Order { version, fallback, .. } = &task.order;
    let access = task.plan.access();
    let report = |wall, strength, detail: String| WallReport { wall, strength, detail };
    let by = match task.jail() {
        Some(jail) => format!("the environment's own jail, {}", jail.program.path.display()),
        None => version.clone(),
    };
    let made = format!(
        "user, pid, mount, network, ipc, uts, cgroup, by {by}; nested ones refused by a limit and by seccomp"
    );
    let namespaces = match fallback {
        None => report(Wall::Namespaces, Strength::Active, made),
        Some(why) => report(
            Wall::Namespaces,
            Strength::Weaker,
            format!("{made}; in place of the engine, which cannot run here: {why}"),
        ),
    };
    let active = |wall, detail: String| report(wall, Strength::Active, detail);
    vec![
        namespaces,
        identity_wall(task.plan.identity(), has_root_group()),
        active(Wall::Capabilities, "all five sets empty, no_new_privs set".to_owned()),
        active(
            Wall::Seccomp,
            format!("allow-list {}, profile {}", wearer_name(access.wearer), access.profile),
        ),
        report(
            Wall::Mounts,
            Strength::Weaker,
            "private, read-only but for sized tmpfs, nosuid, nodev; pid 1 can be looked into"
                .to_owned(),
        ),
        active(
            Wall::Rlimits,
            "processes, file size, open files, locked memory, no core dumps".to_owned(),
        ),
        match keyring {
            Ok(()) => active(Wall::Keyring, "a session keyring of its own".to_owned()),
            Err(Errno::ENOSYS) => active(Wall::Keyring, "the kernel has no keyrings".to_owned()),
            Err(errno) => {
                let detail = format!(
                    "that of the caller is shared ({}); seccomp denies keyctl",
                    errno.desc()
                );
                report(Wall::Keyring, Strength::Weaker, detail)
            }
        },
        report(Wall::Landlock, Strength::Off, "bubblewrap has none".to_owned()),
    ]
}

/// Files in `/dev/shm`.
const SHM_FILES: &str = "4096";

/// What bubblewrap has no word for, done from outside in its mount namespace: no mount of the host
/// appears there later, and the number of files is limited too.
fn tighten(pid: Pid, plan: &Plan) -> nix::Result<()> {
    match kernel::fork()? {
        ForkResult::Child => {
            let done = join_mounts(pid).and_then(|()| tighten_here(plan));
            kernel::exit_now(done.map_or_else(|errno| errno as i32, |()| 0))
        }
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, 0) => Ok(()),
            WaitStatus::Exited(_, errno) => Err(Errno::from_raw(errno)),
            _ => Err(Errno::ECHILD),
        },
    }
}

/// Enters the sandbox's mount namespace, with every capability in it and none on the host.
pub(super) fn join_mounts(pid: Pid) -> nix::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mounts = open(format!("/proc/{pid}/ns/mnt").as_str(), flags, Mode::empty())?;
    // bubblewrap is in a second user namespace by now; the mounts belong to the first.
    let users = kernel::owner_of_namespace(mounts.as_fd())?;
    nix::sched::setns(users, CloneFlags::CLONE_NEWUSER)?;
    nix::sched::setns(mounts, CloneFlags::CLONE_NEWNS)
}

fn tighten_here(plan: &Plan) -> nix::Result<()> {
    // By mount(2): where the engine cannot run the newer calls may be missing.
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
    let again = MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let remount = |at: &Path, flags, options: &str| {
        mount(None::<&str>, at, None::<&str>, again | flags, Some(options))
    };
    // The file system itself is never read-only, or its size could not be set: the mount is.
    remount(Path::new("/"), MsFlags::empty(), "size=64m")?;
    remount(Path::new("/"), MsFlags::MS_BIND | MsFlags::MS_RDONLY, "")?;
    for it in plan.mounts() {
        match &it.kind {
            MountKind::Tmpfs { inodes, .. } => {
                remount(&it.at, MsFlags::empty(), &format!("nr_inodes={inodes}"))?;
            }
            MountKind::Devices { .. } => {
                let options = format!("nr_inodes={SHM_FILES}");
                remount(&it.at.join("shm"), MsFlags::MS_NOEXEC, &options)?;
            }
            _ => {}
        }
    }
    Ok(())
}
