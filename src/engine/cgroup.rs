//! cgroup v2: how much one run may use as a whole.
//!
//! Plain files, as `Documentation/admin-guide/cgroup-v2.rst` describes them. Each run has two
//! levels, so that no limit file lies within the payload's reach even where its cgroup is writable
//! to it (a host without `nsdelegate`):
//!
//! ```text
//! BASE/                     ours: its controllers are enabled for what lies below
//! ├── sandbox-PID-START-1/  this process, if it was in BASE itself: processes live in leaves only
//! └── sandbox-PID-START-2/  one run: the limits
//!     └── in/               pid 1 is born here (CLONE_INTO_CGROUP), the payload with it
//! ```
//!
//! [`Cgroups::find`] looks for a base once, [`Cgroups::leaf`] makes one run's cgroup, dropping it
//! removes it. Nothing here sleeps: cgroup.events tells when a cgroup is empty.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Pid, Uid, chown};

use super::mountinfo::{Mount, mounts};
use super::privilege;
use super::removal::{self, Part};
use super::report::StepError;
use crate::kernel::{self, Cloned, Namespaces};
use crate::outcome::{Strength, WallReport};
use crate::plan::{Ids, Limits, Wall};

/// The controllers that a run wants.
const WANTED: [&str; 3] = ["memory", "pids", "cpu"];
/// How every directory of ours begins.
const PREFIX: &str = "sandbox";
/// `cpu.max` counts in periods of this length, microseconds: the kernel's own default.
const PERIOD_US: u64 = 100_000;
/// How long the processes of a killed cgroup may take to be gone.
const GRACE: Duration = Duration::from_secs(2);
/// How long systemd may take to answer.
const SYSTEMD: Duration = Duration::from_secs(5);
/// Says that this program was started in a scope by itself: it is not tried twice.
const IN_SCOPE: &str = "NIX_SANDBOX_IN_SCOPE";

/// Why there is no cgroup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCgroup {
    /// A kernel or a container without it.
    #[error("no cgroup v2 hierarchy is mounted")]
    NotMounted,
    /// The usual state of a container.
    #[error("the cgroup v2 hierarchy is mounted read-only")]
    ReadOnly,
    /// v1, or a mixture of both.
    #[error(
        "this machine keeps memory, pids and cpu in cgroup v1 hierarchies, which cannot be delegated (boot it with systemd.unified_cgroup_hierarchy=1)"
    )]
    OldHierarchies,
    /// There is a hierarchy, and nowhere in it is room for us.
    #[error(
        "none is delegated to this program: {0} (start it by `systemd-run --user --scope -p Delegate=yes`, or as a unit with Delegate=yes)"
    )]
    NotDelegated(String),
}

/// Whether [`Cgroups::find`] may replace this process by itself in a scope of the user's systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// It may: a program whose work has not begun, which can be started once more with the same
    /// arguments.
    Enter,
    /// It may not: a library, a test.
    Never,
}

/// Where the cgroups of runs are made.
#[derive(Debug)]
pub struct Cgroups {
    base: PathBuf,
    offered: Vec<&'static str>,
    owner: Option<Ids>,
    /// Where this process was, if it had to move, and the directory that was made for it.
    moved: Option<(PathBuf, PathBuf)>,
    /// Whether the base itself is ours to remove.
    fresh: bool,
}

/// What one run used, as its cgroup counted it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    /// Whether the kernel killed something for lack of memory below the limit.
    pub out_of_memory: bool,
    /// Most memory at once, bytes (Linux 5.19).
    pub peak_memory: Option<u64>,
    /// Most processes and threads at once, pid 1 among them (Linux 6.11).
    pub peak_pids: Option<u64>,
    /// Processor time, microseconds.
    pub cpu_us: Option<u64>,
}

/// One run's cgroup. Dropping it kills what is still in it and removes it.
#[derive(Debug)]
pub struct Leaf {
    path: PathBuf,
    report: WallReport,
    holds_memory: bool,
}

/// Why one way to come by a base leads nowhere.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{0}")]
    Because(&'static str),
    #[error(transparent)]
    Step(#[from] StepError),
}

/// A way to come by a base.
type Source = fn(&Tree, Ids) -> Result<Cgroups, Refused>;

impl Cgroups {
    /// Looks for a place for cgroups of sandboxes whose host ids are `outside`. To be called before
    /// this process starts a thread or a launcher: it may move, and what it starts moves with it.
    ///
    /// In this order, each tried with a real clone by those ids: beside us, where our parent is
    /// ours; below us, in a subtree that was delegated to us; in a scope of the user's systemd;
    /// as root, in a subtree of its own.
    ///
    /// # Errors
    /// Why none of them will do.
    pub fn find(outside: Ids, scope: Scope) -> Result<Self, NoCgroup> {
        let tree = Tree::of_this_process()?;
        if !removal::stands(Part::Cgroup) {
            return Err(NoCgroup::NotDelegated("it is left out".to_owned()));
        }
        let mut refused = Vec::new();
        let mut sources: Vec<Source> = vec![Self::beside, Self::below];
        if scope == Scope::Enter {
            sources.push(|_, _| match enter_scope()? {});
        }
        sources.push(Self::as_root);
        for source in sources {
            match source(&tree, outside).and_then(|found| Ok(found.tried(outside)?)) {
                Ok(found) => return Ok(found),
                Err(error) => refused.push(error.to_string()),
            }
        }
        Err(NoCgroup::NotDelegated(refused.join("; ")))
    }

    /// The parent of our cgroup is ours and holds no process: nobody has to move.
    fn beside(tree: &Tree, _outside: Ids) -> Result<Self, Refused> {
        let parent = tree.own.parent().filter(|parent| parent.starts_with(&tree.root));
        let parent = parent.ok_or(Refused::Because("our cgroup has no parent"))?;
        // Writable to its user's programs and yet systemd's own: only services and scopes are
        // delegated (systemd.resource-control(5), `Delegate=`).
        if parent.extension().is_some_and(|extension| extension == "slice") {
            return Err(Refused::Because("the parent of our cgroup is a slice of systemd's"));
        }
        if is_machine_root(parent) {
            return Err(Refused::Because("the parent of our cgroup is the machine's root"));
        }
        Ok(Self::at(parent.to_owned(), None).enable()?)
    }

    /// Our cgroup is ours, and we are alone in it: we move one level down.
    fn below(tree: &Tree, _outside: Ids) -> Result<Self, Refused> {
        if is_machine_root(&tree.own) {
            return Err(Refused::Because("our cgroup is the machine's root"));
        }
        let us = std::process::id().to_string();
        if read(&tree.own, "cgroup.procs")?.lines().any(|pid| pid != us) {
            return Err(Refused::Because("other processes are in our cgroup"));
        }
        Ok(Self::enclose(tree.own.clone(), tree.own.clone(), false, None)?)
    }

    /// A subtree of its own below the root of the hierarchy, given to the sandboxes' ids. Who gives
    /// up root for them cannot remove it: the next start does.
    fn as_root(tree: &Tree, outside: Ids) -> Result<Self, Refused> {
        if !Uid::effective().is_root() {
            return Err(Refused::Because("we are not root"));
        }
        remove_stale(&tree.root);
        let base = tree.root.join(name());
        make(&base)?;
        Ok(Self::enclose(base, tree.own.clone(), true, Some(outside))?)
    }

    /// Moves this process from `origin` into a cgroup of its own below `base`, then opens `base`.
    fn enclose(
        base: PathBuf,
        origin: PathBuf,
        fresh: bool,
        owner: Option<Ids>,
    ) -> Result<Self, StepError> {
        let home = base.join(name());
        let mut found = Self::at(base, owner);
        found.fresh = fresh;
        make(&home)?;
        found.moved = Some((origin, home.clone()));
        write(&home, "cgroup.procs", "0")?;
        found.enable()
    }

    fn at(base: PathBuf, owner: Option<Ids>) -> Self {
        Self { base, offered: Vec::new(), owner, moved: None, fresh: false }
    }

    /// Hands down what there is of the controllers that a run wants, in one write: it counts whole
    /// or not at all.
    fn enable(mut self) -> Result<Self, StepError> {
        let there = read(&self.base, "cgroup.controllers")?;
        self.offered = offered(&there);
        if self.offered.is_empty() {
            let lacks = format!("memory, pids or cpu to {}", self.base.display());
            return Err(StepError::new("hand down", lacks, Errno::ENODEV));
        }
        let all: Vec<String> = self.offered.iter().map(|name| format!("+{name}")).collect();
        write(&self.base, "cgroup.subtree_control", &all.join(" "))?;
        self.give(&self.base)?;
        self.give(&self.base.join("cgroup.procs"))?;
        remove_stale(&self.base);
        Ok(self)
    }

    /// Makes `path` belong to the sandboxes' host ids, where this is done by root.
    fn give(&self, path: &Path) -> Result<(), StepError> {
        let Some(Ids { uid, gid }) = self.owner else { return Ok(()) };
        chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
            .map_err(|errno| StepError::new("give away", path.display(), errno))
    }

    /// That a directory could be made proves nothing: whether a process of those ids may be born
    /// there is up to the common ancestor, and to what else the kernel holds against it.
    fn tried(self, outside: Ids) -> Result<Self, StepError> {
        let failed = |errno| StepError::new("try a process in", self.base.display(), errno);
        let leaf = self.leaf(&Limits::default())?;
        let child = match kernel::fork().map_err(failed)? {
            ForkResult::Child => {
                let born = privilege::become_outside(outside)
                    .map_err(|error| error.errno())
                    .and_then(|()| born_in(&leaf));
                kernel::exit_now(born.map_or_else(|errno| errno as i32, |()| 0))
            }
            ForkResult::Parent { child } => child,
        };
        match waitpid(child, None).map_err(failed)? {
            WaitStatus::Exited(_, 0) => {}
            WaitStatus::Exited(_, errno) => return Err(failed(Errno::from_raw(errno))),
            _ => return Err(failed(Errno::ECHILD)),
        }
        drop(leaf);
        Ok(self)
    }

    /// Makes the cgroup of one run. If a limit is refused nothing is left.
    ///
    /// # Errors
    /// The file, the value and the kernel's answer.
    pub fn leaf(&self, limits: &Limits) -> Result<Leaf, StepError> {
        let path = self.base.join(name());
        make(&path)?;
        let holds_memory = self.offered.contains(&"memory");
        let mut leaf = Leaf { path, report: self.report(limits, true), holds_memory };
        for (controller, file, value) in limit_files(limits) {
            if !self.offered.contains(&controller) {
                continue;
            }
            match write(&leaf.path, file, &value) {
                // The kernel does not account swap (built without it, or `swapaccount=0`).
                Err(error) if file == "memory.swap.max" && error.errno() == Errno::ENOENT => {
                    leaf.report = self.report(limits, false);
                }
                other => other?,
            }
        }
        let inner = leaf.path.join("in");
        make(&inner)?;
        let mine =
            [&leaf.path, &leaf.path.join("cgroup.kill"), &inner, &inner.join("cgroup.procs")];
        mine.into_iter().try_for_each(|path| self.give(path))?;
        Ok(leaf)
    }

    /// The controllers that are not ours to use.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        WANTED.into_iter().filter(|controller| !self.offered.contains(controller)).collect()
    }

    /// Which limits hold.
    fn report(&self, limits: &Limits, swap: bool) -> WallReport {
        let Limits { memory, swap: swapped, pids, cpu_milli, .. } = *limits;
        let mut open = self.missing();
        let words = self.offered.iter().map(|controller| match *controller {
            "memory" if swap => format!("memory {} MiB, swap {} MiB", memory >> 20, swapped >> 20),
            "memory" => format!("memory {} MiB", memory >> 20),
            "pids" => format!("{pids} processes"),
            _ => format!("{} processors", f64::from(cpu_milli) / 1000.0),
        });
        let mut detail = format!("v2: {}", words.collect::<Vec<_>>().join(", "));
        if !swap {
            open.push("swap (this kernel does not account it)");
        }
        if !open.is_empty() {
            detail.push_str("; not delegated or missing, so not limited: ");
            detail.push_str(&open.join(", "));
        }
        let strength = if open.is_empty() { Strength::Active } else { Strength::Weaker };
        WallReport { wall: Wall::Cgroup, strength, detail }
    }
}

impl Drop for Cgroups {
    /// Leaves things as they were found, unless a run or another of this kind still uses them.
    fn drop(&mut self) {
        if let Some((origin, home)) = &self.moved {
            if of_ours(&self.base).any(|path| path != *home) {
                return;
            }
            let none: Vec<String> = self.offered.iter().map(|name| format!("-{name}")).collect();
            let _ = write(&self.base, "cgroup.subtree_control", &none.join(" "));
            let _ = write(origin, "cgroup.procs", "0");
            let _ = fs::remove_dir(home);
        }
        if self.fresh {
            let _ = fs::remove_dir(&self.base);
        }
    }
}

impl Leaf {
    /// Where pid 1 is to be born.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub fn fd(&self) -> Result<OwnedFd, StepError> {
        let inner = self.path.join("in");
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        open(&inner, flags, Mode::empty())
            .map_err(|errno| StepError::new("open", inner.display(), errno))
    }

    /// Which limits hold.
    #[must_use]
    pub const fn report(&self) -> &WallReport {
        &self.report
    }

    /// Whether memory is limited; if not, pid 1 has to watch it.
    #[must_use]
    pub const fn holds_memory(&self) -> bool {
        self.holds_memory
    }

    /// What has been used until now.
    #[must_use]
    pub fn usage(&self) -> CgroupUsage {
        let text = |file| read(&self.path, file).unwrap_or_default();
        let events = text("memory.events");
        let killed = |key| value(&events, key).unwrap_or(0) > 0;
        CgroupUsage {
            out_of_memory: killed("oom_kill") || killed("oom_group_kill"),
            peak_memory: text("memory.peak").trim().parse().ok(),
            peak_pids: text("pids.peak").trim().parse().ok(),
            cpu_us: value(&text("cpu.stat"), "usage_usec"),
        }
    }

    /// Kills everything in it, at once and also what is just being forked (Linux 5.14).
    ///
    /// # Errors
    /// `ENOENT` on an older kernel.
    pub fn kill(&self) -> Result<(), StepError> {
        write(&self.path, "cgroup.kill", "1")
    }

    fn remove(&self) -> Result<(), StepError> {
        let failed = |errno| StepError::new("remove", self.path.display(), errno);
        // Usually pid 1 has ended, and then nothing is in here any more.
        if remove_both(&self.path).is_ok() {
            return Ok(());
        }
        self.kill()?;
        wait_empty(&self.path, GRACE).map_err(failed)?;
        remove_both(&self.path).map_err(failed)
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // Refused only while a killed process hangs in the kernel; the next start removes it then.
        let _ = self.remove();
    }
}

/// Where the hierarchy is mounted and where in it this process is.
#[derive(Debug, PartialEq, Eq)]
struct Tree {
    root: PathBuf,
    own: PathBuf,
}

impl Tree {
    fn of_this_process() -> Result<Self, NoCgroup> {
        let text = |path| fs::read_to_string(path).map_err(|_| NoCgroup::NotMounted);
        let tree = Self::parse(&text("/proc/self/mountinfo")?, &text("/proc/self/cgroup")?)?;
        let controllers = read(&tree.root, "cgroup.controllers").unwrap_or_default();
        if offered(&controllers).is_empty() {
            return Err(NoCgroup::OldHierarchies);
        }
        Ok(tree)
    }

    /// Sources: proc_pid_mountinfo(5), cgroups(7).
    fn parse(mountinfo: &str, cgroup: &str) -> Result<Self, NoCgroup> {
        let mount = mounts(mountinfo.as_bytes()).find(|mount| mount.kind == "cgroup2");
        let mount = mount.ok_or(NoCgroup::NotMounted)?;
        if mount.has("ro") {
            return Err(NoCgroup::ReadOnly);
        }
        let Mount { root: top, at, .. } = mount;
        let own = cgroup.lines().find_map(|line| line.strip_prefix("0::"));
        let own = own.and_then(|own| Path::new(own).strip_prefix(&top).ok());
        // Outside of what is mounted: a container that shows a part in which it is not.
        let own = own.filter(|own| !own.starts_with("..")).ok_or(NoCgroup::NotMounted)?;
        // Without a trailing slash, which join() would leave for an empty path.
        let own = if own.as_os_str().is_empty() { at.clone() } else { at.join(own) };
        Ok(Self { root: at, own })
    }
}

/// The machine's own root is for whoever runs the machine. The root of a cgroup namespace, unlike
/// it, has a type.
fn is_machine_root(path: &Path) -> bool {
    !path.join("cgroup.type").exists()
}

/// Those of the controllers named in `there` that a run wants.
fn offered(there: &str) -> Vec<&'static str> {
    WANTED.into_iter().filter(|name| there.split_whitespace().any(|one| one == *name)).collect()
}

/// Each limit's controller, file and value.
fn limit_files(limits: &Limits) -> [(&'static str, &'static str, String); 5] {
    let Limits { memory, swap, pids, cpu_milli, workspace: _, files: _, output: _, time_ms: _ } =
        *limits;
    let quota = u64::from(cpu_milli) * PERIOD_US / 1000;
    [
        ("memory", "memory.max", memory.to_string()),
        ("memory", "memory.swap.max", swap.to_string()),
        // Out of memory ends the run as a whole, not one process of it at random.
        ("memory", "memory.oom.group", "1".to_owned()),
        // One more for pid 1.
        ("pids", "pids.max", (pids + 1).to_string()),
        ("cpu", "cpu.max", format!("{quota} {PERIOD_US}")),
    ]
}

/// The value of `key` in a file of lines `key value`.
fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
}

/// A name that no other directory has: the pid of a process that has ended can be used again, with
/// its start time it cannot.
fn name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("{PREFIX}-{pid}-{}-{number}", started(pid).unwrap_or(0))
}

/// When a process was started, in clock ticks since boot; `None` if there is none of this number.
fn started(pid: u32) -> Option<u64> {
    start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Field 22 of proc_pid_stat(5); the second, the name, may hold blanks and parentheses.
fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// The process that made a directory of this name.
fn maker(path: &Path) -> Option<(u32, u64)> {
    let mut parts = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The directories in `base` that a program of this kind made.
fn of_ours(base: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| maker(path).is_some())
}

/// Removes what processes left that were killed. Whatever still holds a process stays: the kernel
/// refuses.
fn remove_stale(base: &Path) {
    for path in of_ours(base) {
        if maker(&path).is_some_and(|(pid, start)| started(pid) != Some(start)) {
            // It can be a base of its own: first its runs.
            remove_stale(&path);
            let _ = remove_both(&path);
        }
    }
}

fn remove_both(leaf: &Path) -> nix::Result<()> {
    let remove = |path: &Path| match fs::remove_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(kernel::errno(&error)),
        _ => Ok(()),
    };
    remove(&leaf.join("in")).and_then(|()| remove(leaf))
}

/// Waits until no process is left. The kernel wakes whoever polls cgroup.events for POLLPRI
/// after it has read it.
fn wait_empty(path: &Path, at_most: Duration) -> nix::Result<()> {
    let io = |error: std::io::Error| kernel::errno(&error);
    let mut events = File::open(path.join("cgroup.events")).map_err(io)?;
    let deadline = Instant::now() + at_most;
    loop {
        let mut text = String::new();
        events.rewind().and_then(|()| events.read_to_string(&mut text)).map_err(io)?;
        if value(&text, "populated") == Some(0) {
            return Ok(());
        }
        wait(events.as_fd(), PollFlags::POLLPRI, deadline)?;
    }
}

/// Waits for `fd`; `ETIMEDOUT` after `deadline`.
fn wait(fd: std::os::fd::BorrowedFd<'_>, what: PollFlags, deadline: Instant) -> nix::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
    let time = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(fd, what)], time) {
        Ok(0) => Err(Errno::ETIMEDOUT),
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// A child that does nothing, born in the leaf.
fn born_in(leaf: &Leaf) -> nix::Result<()> {
    let fd = leaf.fd().map_err(|error| error.errno())?;
    match kernel::clone(Namespaces::NONE, Some(fd.as_fd()))? {
        Cloned::Child => kernel::exit_now(0),
        Cloned::Parent { pid, .. } => waitpid(pid, None).map(drop),
    }
}

/// Starts this program once more, in a scope that the user's systemd delegates to it. Returns only
/// when that cannot be.
fn enter_scope() -> Result<std::convert::Infallible, Refused> {
    let os = |error: std::io::Error| kernel::errno(&error);
    let failed = |errno| StepError::new("start", "systemd-run", errno);
    if std::env::var_os(IN_SCOPE).is_some() {
        return Err(Refused::Because("a scope of the user's systemd was entered already"));
    }
    let directory = std::env::var_os("XDG_RUNTIME_DIR").unwrap_or_default();
    if UnixStream::connect(Path::new(&directory).join("bus")).is_err() {
        return Err(Refused::Because("the user's systemd has no bus here"));
    }
    // First with a program that does nothing: a systemd that hangs must not hang this one.
    match ends_well(systemd_run(Path::new("true")), SYSTEMD) {
        Ok(true) => {}
        Ok(false) => return Err(Refused::Because("the user's systemd refuses a scope")),
        Err(errno) => return Err(failed(errno).into()),
    }
    let program = std::env::current_exe().map_err(|error| failed(os(error)))?;
    let mut again = systemd_run(&program);
    let error = again.args(std::env::args_os().skip(1)).env(IN_SCOPE, "1").exec();
    Err(failed(os(error)).into())
}

/// Runs `program` in a new scope: it keeps its process, streams and environment.
fn systemd_run(program: &Path) -> Command {
    let mut command = Command::new("systemd-run");
    command.args(["--user", "--scope", "--quiet", "--collect", "-p", "Delegate=yes", "--"]);
    command.arg(program);
    command
}

/// Whether a command ends with 0, in that time.
fn ends_well(mut command: Command, at_most: Duration) -> nix::Result<bool> {
    let os = |error: std::io::Error| kernel::errno(&error);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(os)?;
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    let ended = kernel::pidfd_open(pid)
        .and_then(|pidfd| wait(pidfd.as_fd(), PollFlags::POLLIN, Instant::now() + at_most));
    // One that has ended is not there to be killed.
    let _ = child.kill();
    let status = child.wait().map_err(os)?;
    ended.map(|()| status.success())
}

fn make(path: &Path) -> Result<(), StepError> {
    fs::create_dir(path).map_err(|error| at("make", path, &error))
}

fn read(directory: &Path, file: &str) -> Result<String, StepError> {
    let path = directory.join(file);
    fs::read_to_string(&path).map_err(|error| at("read", &path, &error))
}

/// One write to a file that is there: the kernel takes each as one command.
fn write(directory: &Path, file: &str, value: &str) -> Result<(), StepError> {
    let path = directory.join(file);
    OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(|error| at(&format!("write {value:?} to"), &path, &error))
}

fn at(step: &str, path: &Path, error: &std::io::Error) -> StepError {
    let errno = kernel::errno(error);
    StepError::new(step, path.display(), errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_hierarchy_and_our_place_in_it_are_found() {
        let place = |mounts: &str, own| Tree::parse(mounts, own).map(|tree| (tree.root, tree.own));
        let root = PathBuf::from("/sys/fs/cgroup/unified");
        let own = root.join("user.slice/a.scope");
        let text = "4:memory:/x\n0::/user.slice/a.scope\n";
        assert_eq!(place(MOUNTS, text), Ok((root.clone(), own)));
        assert_eq!(place(MOUNTS, "0::/\n"), Ok((root.clone(), root)));
        assert_eq!(place(MOUNTS, "4:memory:/x\n"), Err(NoCgroup::NotMounted));
        assert_eq!(place(MOUNTS, "0::/../b\n"), Err(NoCgroup::NotMounted));
        assert_eq!(place("", "0::/\n"), Err(NoCgroup::NotMounted));
        let read_only = "9 8 0:1 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup2 rw\n";
        assert_eq!(place(read_only, "0::/\n"), Err(NoCgroup::ReadOnly));
    }

    #[test]
    fn a_part_that_is_mounted_alone_is_where_it_is_mounted() {
        let mounts = "9 8 0:1 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let tree = Tree::parse(mounts, "0::/box/inner\n").unwrap();
        assert_eq!(tree.own, Path::new("/sys/fs/cgroup/inner"));
        assert_eq!(Tree::parse(mounts, "0::/other\n"), Err(NoCgroup::NotMounted));
    }

    #[test]
    fn the_kernels_files_are_read_as_documented() {
        let events = "low 0\nhigh 0\nmax 17\noom 1\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(value(events, "oom"), Some(1));
        assert_eq!(value(events, "oom_kill"), Some(2));
        assert_eq!(value(events, "oom_group"), None);
        assert_eq!(offered("cpuset cpu io memory pids\n"), ["memory", "pids", "cpu"]);
        assert_eq!(offered("hugetlb memory.x\n"), [""; 0]);
    }

    #[test]
    fn names_tell_who_made_them_and_whether_it_still_lives() {
        let (first, second) = (name(), name());
        assert_ne!(first, second);
        let (pid, start) = maker(Path::new(&first)).unwrap();
        assert_eq!((pid, Some(start)), (std::process::id(), started(pid)));
        assert_eq!(maker(Path::new(&first)), maker(&Path::new("/x").join(second)));
        for other in ["", "sandbox", "sandbox-", "sandbox-x-y", "sandboxed-1-2", "user.slice"] {
            assert_eq!(maker(Path::new(other)), None, "{other}");
        }
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2 3\n";
        assert_eq!(start_time(stat), Some(4711));
    }

    #[test]
    fn only_what_the_dead_left_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str| fs::create_dir_all(base.path().join(name)).unwrap();
        let ours = name();
        // No process but the machine's first was ever started at tick 0.
        let dead = format!("{PREFIX}-{}-0", std::process::id());
        make(&format!("{ours}/in"));
        make(&format!("{dead}-7/in"));
        make(&format!("{dead}-8/{dead}-9"));
        make(&format!("{dead}-8/{dead}-10/in"));
        make("user.slice");
        remove_stale(base.path());
        let mut left: Vec<_> = fs::read_dir(base.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [ours, "user.slice".to_owned()]);
    }

    #[test]
    fn limits_are_written_as_the_kernel_reads_them() {
        let limits = Limits { memory: 1 << 25, pids: 9, cpu_milli: 250, ..Limits::default() };
        let text = limit_files(&limits).map(|(_, file, value)| format!("{file}={value}"));
        let want = [
            "memory.max=33554432",
            "memory.swap.max=0",
            "memory.oom.group=1",
            "pids.max=10",
            "cpu.max=25000 100000",
        ];
        assert_eq!(text, want);
    }

    #[test]
    fn what_is_not_limited_is_said() {
        let mut cgroups = Cgroups::at(PathBuf::from("/nowhere"), None);
        cgroups.offered = offered("memory pids");
        let report = cgroups.report(&Limits::default(), false);
        assert_eq!(report.strength, Strength::Weaker);
        assert_eq!(
            report.detail,
            "v2: memory 512 MiB, 512 processes; not delegated or missing, so not limited: cpu, swap (this kernel does not account it)"
        );
        cgroups.offered = WANTED.to_vec();
        let report = cgroups.report(&Limits::default(), true);
        assert_eq!(report.strength, Strength::Active);
        assert_eq!(report.detail, "v2: memory 512 MiB, swap 0 MiB, 512 processes, 2 processors");
    }

    /// A machine with the old hierarchies, or a container, says so; nothing is made.
    #[test]
    fn the_reason_is_told_in_words() {
        if let Err(reason) = Tree::of_this_process() {
            assert!(reason.to_string().split(' ').count() > 4, "{reason}");
        }
        let error = StepError::new("make", "/x", Errno::EACCES).to_string();
        let text = NoCgroup::NotDelegated(error).to_string();
        assert!(text.contains("EACCES") && text.contains("Delegate=yes"), "{text}");
    }
}
