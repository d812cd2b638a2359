//! What of `/proc` speaks of the whole host and not of the sandbox, and how it is covered.
//!
//! By an empty read-only file or directory, and not by `/dev/null`: a device can be written to also
//! through a read-only mount, and a write to `/proc/sysrq-trigger` that seems to succeed is a lie.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::report::{At, Done, StepError};
use crate::kernel::{self, Attributes};

/// Directories.
pub(crate) const DIRECTORIES: [&str; 10] =
    ["acpi", "asound", "bus", "driver", "dynamic_debug", "fs", "irq", "pressure", "scsi", "tty"];
/// Files. Kernel addresses and symbols, boot parameters (they can hold secrets), the keys of every
/// user, memory, interrupts (a side channel), disks.
pub(crate) const FILES: [&str; 34] = [
    "buddyinfo",
    "cmdline",
    "config.gz",
    "consoles",
    "crypto",
    "devices",
    "diskstats",
    "dma",
    "execdomains",
    "interrupts",
    "iomem",
    "ioports",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "modules",
    "pagetypeinfo",
    "partitions",
    "sched_debug",
    "schedstat",
    "slabinfo",
    "softirqs",
    "swaps",
    "sysrq-trigger",
    "timer_list",
    "vmallocinfo",
    "vmstat",
    "zoneinfo",
];

/// The covers' names, below the place where devpts will hide them.
pub(super) const FILE: &str = "file";
pub(super) const DIRECTORY: &str = "directory";

/// An empty file and an empty directory in the sealed root.
#[derive(Debug)]
pub(super) struct Covers {
    file: OwnedFd,
    directory: OwnedFd,
}

impl Covers {
    /// Opens both below `place`, before anything is mounted there.
    pub(super) fn open(root: BorrowedFd<'_>, place: &Path) -> Result<Self, StepError> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let open = |name| {
            openat(root, &place.join(name), flags, Mode::empty()).at("open the masks' source", name)
        };
        Ok(Self { file: open(FILE)?, directory: open(DIRECTORY)? })
    }

    /// Covers all that is there, and makes `/proc/sys` read-only.
    pub(super) fn mask(&self, root: BorrowedFd<'_>) -> Done {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = openat(root, "proc", flags, Mode::empty()).at("mask", "proc")?;
        let proc = proc.as_fd();
        cover(proc, self.file.as_fd(), &FILES)?;
        cover(proc, self.directory.as_fd(), &DIRECTORIES)?;
        let step = "make read-only";
        let sys = kernel::clone_tree(proc, Path::new("sys"), true).at(step, "/proc/sys")?;
        kernel::set_attributes(sys.as_fd(), Attributes::RDONLY, true).at(step, "/proc/sys")?;
        kernel::move_onto(sys.as_fd(), proc, Path::new("sys")).at(step, "/proc/sys")
    }
}

/// Covers each `/proc/NAME` that there is by a copy of `source`, which takes its attributes from the
/// sealed root.
fn cover(proc: BorrowedFd<'_>, source: BorrowedFd<'_>, names: &[&str]) -> Done {
    let step = "mask";
    let mut spare = None;
    for name in names {
        let tree = match spare.take() {
            Some(tree) => tree,
            None => kernel::clone_tree(source, Path::new(""), false).at(step, name)?,
        };
        match kernel::move_onto(tree.as_fd(), proc, Path::new(name)) {
            // This kernel has none.
            Err(Errno::ENOENT) => spare = Some(tree),
            covered => covered.at(step, name)?,
        }
    }
    Ok(())
}

/// Namespaced limits (`/proc/sys/user`), each with its value inside: no namespace can be made,
/// and inotify instances stay few: they count for the user on the host too, who has 128.
const NAMESPACE_LIMITS: [(&str, &str); 3] =
    [("max_user_namespaces", "0"), ("max_inotify_instances", "8"), ("max_inotify_watches", "8192")];

/// Open descriptors of namespaced limits and what is to be written there.
#[derive(Debug, Default)]
pub(super) struct NamespaceLimits(Vec<(File, &'static str)>);

impl NamespaceLimits {
    pub(super) fn open() -> Result<Self, StepError> {
        let mut opened = Vec::new();
        for (name, value) in NAMESPACE_LIMITS {
            let path = format!("/proc/sys/user/{name}");
            match File::options().write(true).open(&path) {
                Ok(file) => opened.push((file, value)),
                // A kernel built without inotify. User namespaces it has, or we were not here.
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOENT)
                        && name != "max_user_namespaces" => {}
                Err(error) => return Err(error).at("open", path),
            }
        }
        Ok(Self(opened))
    }

    pub(super) fn write(self) -> Done {
        let Self(opened) = self;
        opened.into_iter().try_for_each(|(mut file, value)| {
            file.write_all(value.as_bytes()).at("limit namespaces", value)
        })
    }
}
