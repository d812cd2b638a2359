//! `clone3(2)` as the engine uses it: a fork straight into new namespaces.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::unistd::Pid;

use super::check;

/// Which namespaces the child is born into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces(libc::c_int);

impl Namespaces {
    /// A file tree and a process tree of its own, in the caller's user namespace.
    pub const TREE: Self = Self(libc::CLONE_NEWNS | libc::CLONE_NEWPID);
    /// All but the network namespace: the caller has joined one that was made ahead.
    pub const BUT_NETWORK: Self = Self(
        Self::TREE.0
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP,
    );
    /// All seven, fresh.
    pub const ALL: Self = Self(Self::BUT_NETWORK.0 | libc::CLONE_NEWNET);
    /// None: a plain child.
    pub const NONE: Self = Self(0);
}

/// The two returns of a fork.
#[derive(Debug)]
pub enum Cloned {
    /// In the child.
    Child,
    /// In the parent.
    Parent {
        /// The child, as the caller's PID namespace numbers it.
        pid: Pid,
        /// A descriptor that names exactly this child, also after it was reaped.
        pidfd: OwnedFd,
    },
}

/// `CLONE_INTO_CGROUP` (Linux 5.7): the child is born in the cgroup of `clone_args.cgroup`.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Forks into new namespaces and, where given, into a cgroup, in one call.
///
/// Source: clone(2), Linux 5.7 for `CLONE_INTO_CGROUP`.
///
/// # Errors
/// `EPERM` and `ENOSPC` where user namespaces are off, `EAGAIN` at a process limit, `EBUSY` and
/// `EOPNOTSUPP` for a cgroup that cannot take processes.
///
/// # Panics
/// Never; but the caller must be single-threaded, as after any fork only the calling thread
/// exists in the child and a lock that another thread held stays locked.
pub fn clone(namespaces: Namespaces, cgroup: Option<BorrowedFd<'_>>) -> nix::Result<Cloned> {
    let mut pidfd: libc::c_int = -1;
    // SAFETY: `clone_args` is a plain C struct of integers; all-zero is its documented default.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = u64::from((namespaces.0 | libc::CLONE_PIDFD).cast_unsigned());
    args.pidfd = std::ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    }
    // SAFETY: `args` is a valid clone_args of the size passed, `args.pidfd` points to an int that
    // outlives the call. No stack is given and neither CLONE_VM nor CLONE_VFORK is set, so the
    // child runs on a copy of this stack and address space, as after fork(2); the caller has one
    // thread (see the function's contract), so no lock can be held by a thread that is lost.
    let pid = check(unsafe {
        libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>())
    })?;
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    let pid = i32::try_from(pid).unwrap_or(i32::MAX);
    // SAFETY: the kernel stored a fresh descriptor in `pidfd` that nobody else owns (clone(2)).
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Cloned::Parent { pid: Pid::from_raw(pid), pidfd })
}
