//! What pid 1 makes of itself: ids, limits, capabilities, known values for what is inherited.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Uid};

use super::report::{At, Done, StepError};
use crate::kernel::{self, Arguments};
use crate::plan::{Identity, Limits};

/// Writes the maps through `proc`, in which this process has a number.
pub(super) fn map_ids(identity: &Identity, proc: BorrowedFd<'_>) -> Done {
    let Identity { inside, outside, hostname: _ } = identity;
    // A process that is not dumpable does not own its files in /proc (EACCES).
    nix::sys::prctl::set_dumpable(true).at("become dumpable", "")?;
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{} {} 1", inside.uid, outside.uid)),
        ("gid_map", format!("{} {} 1", inside.gid, outside.gid)),
    ];
    maps.iter().try_for_each(|(name, content)| write_own(proc, name, content))
}

/// Writes to a file of this process in `proc`.
pub(super) fn write_own(proc: BorrowedFd<'_>, name: &str, content: &str) -> Done {
    let shown = format!("/proc/self/{name}");
    let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let file = openat(proc, &shown["/proc/".len()..], flags, Mode::empty()).at("write", &shown)?;
    File::from(file).write_all(content.as_bytes()).at("write", &shown)
}

/// Where this process's arguments lie. Others are told only while it is dumpable; itself always.
pub(super) fn own_arguments(proc: BorrowedFd<'_>) -> Result<Arguments, StepError> {
    let step = "look where the arguments are";
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let stat = openat(proc, "self/stat", flags, Mode::empty()).at(step, "")?;
    let mut text = Vec::with_capacity(1024);
    File::from(stat).read_to_end(&mut text).at(step, "")?;
    Arguments::read(&text).at(step, "")
}

pub(super) fn take_ids(identity: &Identity) -> Done {
    let (uid, gid) = (Uid::from_raw(identity.inside.uid), Gid::from_raw(identity.inside.gid));
    nix::unistd::setresgid(gid, gid, gid).at("become gid", gid)?;
    nix::unistd::setresuid(uid, uid, uid).at("become uid", uid)
}

pub(crate) fn fixed_values() -> Done {
    umask(Mode::from_bits_truncate(0o022));
    kernel::reset_personality().at("reset the personality", "")?;
    nix::sys::prctl::set_timerslack(0).at("reset the timer slack", "")?;
    kernel::reset_priority().at("give up priority", "")?;
    kernel::set_affinity_all().at("reset the processor affinity", "")?;
    // EINVAL: built without huge pages.
    match kernel::set_thp_default() {
        Ok(()) | Err(Errno::EINVAL) => Ok(()),
        Err(errno) => Err(StepError::new("reset huge pages", "", errno)),
    }
}

/// Open files of one process.
const OPEN_FILES: u64 = 4096;
/// Memory that one process may lock, bytes: what gpg and the like need, no more.
const LOCKED_MEMORY: u64 = 1 << 20;
/// POSIX message queues of this user, bytes.
const MESSAGE_QUEUES: u64 = 1 << 20;
/// Signals that wait and timers (timer_create(2)). They count for the user on the host too, whose quota one
/// sandbox must not use up.
const PENDING_SIGNALS: u64 = 1024;
/// The stack that programs expect, bytes.
const STACK: u64 = 8 << 20;

pub(super) fn rlimits(limits: &Limits) -> Done {
    rlimit_values(limits)
        .into_iter()
        .try_for_each(|(resource, soft, hard)| limit(resource, soft, hard))
}

/// Each limit: soft and hard.
pub(crate) fn rlimit_values(limits: &Limits) -> [(Resource, u64, u64); 10] {
    let Limits {
        memory: _,
        swap: _,
        pids,
        cpu_milli: _,
        workspace,
        files: _,
        output: _,
        time_ms: _,
    } = *limits;
    let same = |resource, value| (resource, value, value);
    [
        // 1, not 0: with 0 the kernel still starts a core_pattern program (core(5)).
        same(Resource::RLIMIT_CORE, 1),
        // One more for pid 1.
        same(Resource::RLIMIT_NPROC, u64::from(pids) + 1),
        same(Resource::RLIMIT_NOFILE, OPEN_FILES),
        // One page more than the file systems hold, so that a full one says ENOSPC and only a file
        // outside of them (a memfd) meets EFBIG.
        same(Resource::RLIMIT_FSIZE, workspace.saturating_add(4096)),
        same(Resource::RLIMIT_MEMLOCK, LOCKED_MEMORY),
        same(Resource::RLIMIT_MSGQUEUE, MESSAGE_QUEUES),
        same(Resource::RLIMIT_SIGPENDING, PENDING_SIGNALS),
        same(Resource::RLIMIT_NICE, 0),
        same(Resource::RLIMIT_RTPRIO, 0),
        (Resource::RLIMIT_STACK, STACK, nix::sys::resource::RLIM_INFINITY),
    ]
}

/// Sets a limit, never above what this process was given; of open files half of that at most, see
/// [`super::launcher::allow_open_files`].
fn limit(resource: Resource, soft: u64, hard: u64) -> Done {
    let step = "set limit";
    let (_, given) = getrlimit(resource).at(step, format_args!("{resource:?}"))?;
    let most = if resource == Resource::RLIMIT_NOFILE { given / 2 } else { given };
    setrlimit(resource, soft.min(most), hard.min(most)).at(step, format_args!("{resource:?}"))
}

pub(super) fn drop_capabilities() -> Done {
    kernel::drop_bounding_set().at("empty the capability set", "Bounding")?;
    use caps::CapSet;
    let step = "empty the capability set";
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        // The crate tells the kernel's answer in words only; it is still the last one.
        caps::clear(None, set).map_err(|_| Errno::last()).at(step, format_args!("{set:?}"))?;
    }
    Ok(())
}
