//! The order of things. [`steps`] turns a plan into the list that pid 1 enacts from top to bottom.
//!
//! Where a server has made something [`Ahead`], pid 1 enacts what is left; what a template holds
//! is enacted once, by whoever makes it ([`template`]).
//!
//! Pure: the list is a value, so its order can be tested without a kernel. Each position has its
//! reason beside it; most are traps that were met.

use std::path::{Path, PathBuf};

use crate::plan::{HostFile, Limits, Mount, MountKind, Plan, ProcMode};

/// One thing that pid 1 tells the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'p> {
    /// Give up the launcher's socket: nobody is to be reached over it from here. What else the launcher has
    /// open goes with [`Step::PlaceDescriptors`].
    LeaveLauncher,
    /// Map the one user and the one group, setgroups(2) denied.
    MapIds,
    /// Be the first that ends when the host runs out of memory.
    FirstToGo,
    /// Wipe the launcher's arguments and environment out of pid 1's memory.
    ForgetArguments,
    /// Become the mapped ids.
    TakeIds,
    /// Die when the launcher dies, and see whether it already has.
    DieWithLauncher,
    /// A session and process group of its own.
    NewSession,
    /// A process group of its own, in a session without a terminal.
    NewGroup,
    /// A session keyring of its own.
    NewKeyring,
    /// A network namespace of its own.
    NewNetwork,
    /// `lo` up.
    LoopbackUp,
    /// The fixed hostname.
    Hostname(&'p str),
    /// Cut mount propagation in both directions.
    PrivateMounts,
    /// A tmpfs that becomes the root, attached where the host's `/proc` was.
    NewRoot {
        /// Files and directories.
        inodes: u64,
    },
    /// An empty directory and its parents.
    Directory(&'p Path),
    /// A symbolic link.
    Symlink(&'p Path, &'p Path),
    /// A small read-only file.
    File(&'p Path, &'p str),
    /// A file for the code, which travels beside the plan, on a small file system of its own.
    Code(&'p Path),
    /// A part of the host, recursively read-only. The number counts the binds of the plan.
    Bind(&'p Path, &'p HostFile, usize),
    /// Writable memory.
    Tmpfs {
        /// Where.
        at: &'p Path,
        /// Bytes.
        size: u64,
        /// Files and directories.
        inodes: u64,
        /// Permission bits.
        mode: u32,
    },
    /// Long output of earlier runs, read-only.
    Outputs(&'p Path),
    /// An empty file and an empty directory to mask with, where `/dev/pts` will cover them.
    Covers,
    /// A descriptor for each of them, while they are not covered.
    OpenCovers,
    /// A fresh procfs.
    Proc,
    /// One device of the host, checked to be the one it claims to be.
    Device(&'static Device),
    /// `/dev`'s symbolic links.
    DeviceLinks,
    /// A devpts instance of its own.
    Pts,
    /// A terminal of the payload's own, where the launch asks for one.
    Terminal,
    /// Writable shared memory.
    SharedMemory {
        /// Bytes.
        size: u64,
    },
    /// Hand out a descriptor of `/workspace`, where the launch asks for one.
    HandOutWorkspace,
    /// Make the new root the root and let go of the host's file tree.
    EnterRoot,
    /// The root is a copy of a template's, already entered and sealed.
    InTemplate,
    /// Open the namespace limits, while they can be written.
    OpenNamespaceLimits,
    /// Mask what of `/proc` speaks of the whole host.
    MaskProc,
    /// Write the limits into the open descriptors.
    WriteNamespaceLimits,
    /// Make the root itself read-only.
    SealRoot,
    /// Known values for what else is inherited: umask, personality, timer slack,
    /// affinity, priority.
    FixedValues,
    /// Only the payload's three descriptors and pid 1's own remain.
    PlaceDescriptors,
    /// Default dispositions.
    ResetSignals,
    /// Limits per process and per user.
    Rlimits(&'p Limits),
    /// All five capability sets empty.
    DropCapabilities,
    /// No process of this user may look into pid 1.
    Undumpable,
    /// No program gains rights by being executed.
    NoNewPrivileges,
    /// Pid 1's Landlock domain.
    Landlock,
    /// A process group of the payload's own, in the foreground of its terminal.
    TakeForeground,
    /// The payload's Landlock domain.
    NestedLandlock,
    /// Stand ready until told what to run, where the launch was ahead of that.
    AwaitOrder,
    /// Tell whoever waits that every wall stands.
    TellReady,
    /// The signals, which pid 1 has blocked.
    UnblockSignals,
    /// The working directory.
    EnterDirectory,
}

/// A device node of the host that every sandbox has.
#[derive(Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name in `/dev`.
    pub name: &'static str,
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
}

/// All of them. No disk, no terminal but one's own, nothing that speaks to a driver.
pub const DEVICES: [Device; 6] = [
    Device { name: "null", major: 1, minor: 3 },
    Device { name: "zero", major: 1, minor: 5 },
    Device { name: "full", major: 1, minor: 7 },
    Device { name: "random", major: 1, minor: 8 },
    Device { name: "urandom", major: 1, minor: 9 },
    Device { name: "tty", major: 5, minor: 0 },
];

/// Where the sandbox's own devpts stands.
pub(super) const PTS: &str = "/dev/pts";
/// Where its shared memory stands.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

/// Inodes of the root besides one for each component of each place.
const ROOT_INODES: u64 = 64;

/// What was made before the launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ahead {
    /// The file tree, but for what each sandbox has of its own.
    pub tree: bool,
    /// What there is of the network namespace.
    pub network: Network,
    /// The launcher's session, which has no terminal: a sandbox that never has one need not have a session
    /// of its own (whose scheduling group costs 0.04 ms).
    pub session: bool,
}

/// Where a sandbox's network namespace comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// Pid 1 was born in it.
    #[default]
    Born,
    /// It was made before, `lo` is up, and pid 1 was born in it.
    Joined,
    /// Pid 1 makes it: then whoever cloned it need not wait for that (0.6 ms).
    Own,
}

/// The steps of one launch, in order.
#[must_use]
pub fn steps(plan: &Plan, ahead: Ahead) -> Vec<Step<'_>> {
    let mut steps = vec![
        Step::LeaveLauncher,
        // Before TakeIds: until then every id is 65534 and nothing can be made on a tmpfs
        // (EOVERFLOW).
        Step::MapIds,
        // While this process is dumpable: else its files in /proc are root's.
        Step::FirstToGo,
        // Before there is anybody here who could read them.
        Step::ForgetArguments,
        Step::TakeIds,
        // After TakeIds: a change of credentials clears the death signal (prctl(2)).
        Step::DieWithLauncher,
        // Neither keys of a terminal nor signals to a whole group reach it.
        if ahead.session { Step::NewGroup } else { Step::NewSession },
        Step::NewKeyring,
    ];
    match ahead.network {
        Network::Born => steps.push(Step::LoopbackUp),
        Network::Own => steps.extend([Step::NewNetwork, Step::LoopbackUp]),
        Network::Joined => {}
    }
    steps.push(Step::Hostname(&plan.identity().hostname));
    if ahead.tree {
        steps.push(Step::InTemplate);
    } else {
        shared(plan, &mut steps);
    }
    own(plan, &mut steps);
    // While the root is at hand, and nothing of the payload's runs.
    steps.push(Step::HandOutWorkspace);
    if !ahead.tree {
        steps.extend([Step::EnterRoot, Step::SealRoot]);
    }
    if plan.access().proc == ProcMode::Fresh {
        // Open, mask, write: earlier, the masks fail (a detached mount counts as a mount
        // namespace); later, the files are read-only (EROFS).
        steps.extend([Step::OpenNamespaceLimits, Step::MaskProc, Step::WriteNamespaceLimits]);
    }
    steps.extend([
        Step::FixedValues,
        Step::PlaceDescriptors,
        Step::ResetSignals,
        Step::DropCapabilities,
        Step::Undumpable,
        Step::NoNewPrivileges,
        // After all mounts: none succeeds under a Landlock domain.
        Step::Landlock,
    ]);
    steps
}

/// The steps of the payload's own process, from its birth to its program. Pid 1 has loaded the filter
/// that it wears; whether it has a terminal says how it begins.
#[must_use]
pub fn payload(plan: &Plan, terminal: bool) -> [Step<'_>; 7] {
    [
        // While signals are blocked: whoever takes the foreground from behind gets SIGTTOU.
        if terminal { Step::TakeForeground } else { Step::NewSession },
        // Nested: pid 1 lies outside of it, so no signal, no ptrace, no /proc/1.
        Step::NestedLandlock,
        // As late as can be: what comes before costs no run its time.
        Step::AwaitOrder,
        // After the order: the limits are the program's, and code that comes now may be longer than a
        // file of its own. Inside the user namespace: RLIMIT_NPROC counts anew there; outside, it
        // would count everything that this user runs.
        Step::Rlimits(plan.limits()),
        Step::TellReady,
        Step::UnblockSignals,
        Step::EnterDirectory,
    ]
}

/// The steps of whoever makes a template: what all sandboxes of a plan's kind have in common.
#[must_use]
pub fn template(plan: &Plan) -> Vec<Step<'_>> {
    let mut steps = vec![Step::LeaveLauncher, Step::DieWithLauncher];
    shared(plan, &mut steps);
    let places = plan.mounts().iter().filter(|mount| mount.kind.is_own());
    steps.extend(places.filter_map(|mount| match mount.kind {
        // The kernel allows a fresh procfs only beside one over which nothing is mounted
        // (mount_namespaces(7)). This one lists no process: its PID namespace ends with the template's maker.
        MountKind::Proc if plan.access().proc == ProcMode::Fresh => Some(Step::Proc),
        MountKind::Code => mount.at.parent().map(Step::Directory),
        _ => Some(Step::Directory(&mount.at)),
    }));
    steps.extend([Step::EnterRoot, Step::SealRoot]);
    steps
}

/// The root and what can be shown to all sandboxes alike.
fn shared<'p>(plan: &'p Plan, steps: &mut Vec<Step<'p>>) {
    steps.extend([Step::PrivateMounts, Step::NewRoot { inodes: root_inodes(plan) }]);
    let mut binds = 0;
    for Mount { at, kind } in plan.mounts() {
        match kind {
            MountKind::Bind { source } => {
                steps.push(Step::Bind(at, source, binds));
                binds += 1;
            }
            MountKind::Symlink { target } => steps.push(Step::Symlink(at, target)),
            MountKind::File { content } => steps.push(Step::File(at, content)),
            MountKind::Directory => steps.push(Step::Directory(at)),
            MountKind::Outputs => steps.push(Step::Outputs(at)),
            MountKind::Devices { .. } => {
                steps.extend(DEVICES.iter().map(Step::Device));
                steps.push(Step::DeviceLinks);
                steps.extend([PTS, SHARED_MEMORY].map(|at| Step::Directory(Path::new(at))));
            }
            MountKind::Tmpfs { .. } | MountKind::Proc | MountKind::Code => {}
        }
    }
    if plan.access().proc == ProcMode::Fresh {
        steps.push(Step::Covers);
    }
}

/// What each sandbox has of its own.
fn own<'p>(plan: &'p Plan, steps: &mut Vec<Step<'p>>) {
    if plan.access().proc == ProcMode::Fresh {
        steps.push(Step::OpenCovers);
    }
    for Mount { at, kind } in plan.mounts() {
        match kind {
            MountKind::Code => steps.push(Step::Code(at)),
            MountKind::Tmpfs { size, inodes, mode } => {
                steps.push(Step::Tmpfs { at, size: *size, inodes: *inodes, mode: *mode });
            }
            MountKind::Proc => match plan.access().proc {
                ProcMode::Fresh => steps.push(Step::Proc),
                ProcMode::None => steps.push(Step::Directory(at)),
            },
            MountKind::Devices { shm } => {
                // A terminal while this process may still make descriptors that its Landlock
                // domain knows not.
                steps.extend([Step::Pts, Step::Terminal, Step::SharedMemory { size: *shm }]);
            }
            MountKind::Bind { .. }
            | MountKind::Symlink { .. }
            | MountKind::File { .. }
            | MountKind::Directory
            | MountKind::Outputs => {}
        }
    }
}

fn root_inodes(plan: &Plan) -> u64 {
    let components =
        plan.mounts().iter().map(|mount| mount.at.components().count() as u64).sum::<u64>();
    ROOT_INODES + components
}

/// The sources of a plan's binds, in the order in which [`Step::Bind`] counts them.
pub fn bind_sources(plan: &Plan) -> impl Iterator<Item = (&PathBuf, &HostFile)> {
    plan.mounts().iter().filter_map(|mount| match &mount.kind {
        MountKind::Bind { source } => Some((&mount.at, source)),
        _ => None,
    })
}
