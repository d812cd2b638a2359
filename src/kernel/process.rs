//! Calls about other processes, and a process's end.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::unistd::Pid;

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

/// Sets a limit of another process, soft and hard, never above what it was given (prlimit(2)).
///
/// # Errors
/// `EPERM` for a process that is not ours, `ESRCH`.
pub fn limit_process(
    pid: Pid,
    resource: nix::sys::resource::Resource,
    soft: u64,
    hard: u64,
) -> nix::Result<()> {
    let call = |new: *const libc::rlimit, old: *mut libc::rlimit| {
        // SAFETY: `new` and `old` are null or point to a struct rlimit of a caller below that
        // outlives the call; the kernel reads the first and writes the second.
        check(libc::c_long::from(unsafe { libc::prlimit(pid.as_raw(), resource as _, new, old) }))
    };
    let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    call(std::ptr::null(), &raw mut most)?;
    let own = libc::rlimit { rlim_cur: soft.min(most.rlim_max), rlim_max: hard.min(most.rlim_max) };
    call(&raw const own, std::ptr::null_mut()).map(drop)
}

/// The user namespace that `namespace` belongs to (`NS_GET_USERNS`, ioctl_ns(2), Linux 4.9).
///
/// # Errors
/// `EPERM` for one outside of the caller's own user namespace and its descendants.
pub fn owner_of_namespace(namespace: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    // SAFETY: NS_GET_USERNS takes no argument and returns a descriptor.
    let fd =
        check(libc::c_long::from(unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) }))?;
    let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just opened this descriptor, close-on-exec; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Has the kernel reap this process's children by itself (sigaction(2), `SIG_IGN` for `SIGCHLD`).
///
/// # Errors
/// Never in practice.
pub fn ignore_children() -> nix::Result<()> {
    // SAFETY: SIG_IGN installs no handler, so no code of ours can run in a signal context.
    match unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(Errno::last()),
        _ => Ok(()),
    }
}

/// Ends this process at once: no destructors, no exit handlers of the program it was forked from.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) takes an integer and does not return.
    unsafe { libc::_exit(code) }
}
