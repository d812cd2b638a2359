//! Calls about processes: pidfds, descriptors, keyrings.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::unistd::{ForkResult, Pid};

use super::check;

/// A descriptor that names the process `pid` (pidfd_open(2), Linux 5.3). Close-on-exec.
///
/// # Errors
/// `ESRCH` where there is no such process.
pub fn pidfd_open(pid: Pid) -> nix::Result<OwnedFd> {
    // SAFETY: integers only.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
    let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to the process that `pidfd` names (pidfd_send_signal(2), Linux 5.1).
///
/// # Errors
/// `ESRCH` once it has been reaped, `EPERM`.
pub fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> nix::Result<()> {
    // SAFETY: a null siginfo is documented as "as kill(2) would fill it"; the rest are integers.
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    })
    .map(drop)
}

/// Closes every descriptor from `first` up (close_range(2), Linux 5.9).
///
/// # Errors
/// `ENOSYS` before Linux 5.9.
///
/// # Safety
/// Descriptors that Rust values still own are closed under them. The caller must neither use nor
/// drop such a value afterwards; the engine calls this where only numbered descriptors remain.
pub unsafe fn close_from(first: RawFd) -> nix::Result<()> {
    // SAFETY: integers only; the caller answers for the owners (see above).
    check(unsafe {
        libc::syscall(libc::SYS_close_range, first.cast_unsigned(), libc::c_uint::MAX, 0)
    })
    .map(drop)
}

/// Plain fork(2) for a process with one thread.
///
/// # Errors
/// `EAGAIN` at a process limit, `ENOMEM`.
pub fn fork() -> nix::Result<ForkResult> {
    // SAFETY: the engine's launcher and pid 1 have one thread (they are cloned from a process that
    // never started a second one), so the child may run any code.
    unsafe { nix::unistd::fork() }
}

const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;

/// Leaves the inherited session keyring for a new, empty, anonymous one (keyctl(2)). Without this
/// a sandbox reads keys of whoever started the program: key rings are no namespace.
///
/// # Errors
/// `EDQUOT` when the user owns its 200 keys already, `ENOSYS` in a kernel without key rings.
pub fn join_new_session_keyring() -> nix::Result<()> {
    // SAFETY: a null name is documented as "make an anonymous keyring"; the rest are integers.
    check(unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_JOIN_SESSION_KEYRING,
            std::ptr::null::<libc::c_char>(),
        )
    })
    .map(drop)
}

/// Makes the terminal `tty` the controlling terminal of this session (`TIOCSCTTY`, tty_ioctl(4)).
///
/// # Errors
/// `EPERM` if the caller leads no session, has a terminal already, or another session owns it.
pub fn claim_terminal(tty: BorrowedFd<'_>) -> nix::Result<()> {
    // SAFETY: TIOCSCTTY takes an integer argument (0: do not steal).
    check(libc::c_long::from(unsafe { libc::ioctl(tty.as_raw_fd(), libc::TIOCSCTTY, 0) })).map(drop)
}

/// Undoes an inherited `PR_SET_THP_DISABLE` (prctl(2)).
///
/// # Errors
/// `EINVAL` before Linux 3.15.
pub fn set_thp_default() -> nix::Result<()> {
    // SAFETY: integers only; the unused arguments are 0 as prctl(2) demands.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0) }))
        .map(drop)
}

/// Lets this process run on every processor that it may.
///
/// # Errors
/// `EINVAL` if a cpuset leaves none.
pub fn set_affinity_all() -> nix::Result<()> {
    // SAFETY: `cpu_set_t` is a bit array; filled with ones it names every processor, and the
    // kernel intersects it with those that exist. The pointer and size describe that array.
    check(libc::c_long::from(unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        std::ptr::write_bytes(&raw mut set, 0xff, 1);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    }))
    .map(drop)
}
