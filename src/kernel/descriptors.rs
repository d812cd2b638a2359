//! Which descriptors a process has: those that it is to have, at the numbers that are wanted, and no others.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

use super::check;

/// Closes every descriptor from `first` up (close_range(2), Linux 5.9).
fn close_from(first: RawFd) -> nix::Result<()> {
    // SAFETY: integers only. The callers below answer for the owners.
    check(unsafe {
        libc::syscall(libc::SYS_close_range, first.cast_unsigned(), libc::c_uint::MAX, 0)
    })
    .map(drop)
}

/// Closes everything that this process inherited besides 0, 1 and 2. To be called first of all,
/// when no Rust value owns a descriptor yet.
///
/// # Errors
/// `ENOSYS` before Linux 5.9.
pub fn close_inherited() -> nix::Result<()> {
    close_from(3)
}

/// Where [`keep_only`] lifts descriptors first, clear of every target.
const LIFTED: RawFd = 32;

/// Whether the limit of open files surely lets [`keep_only`] place that many descriptors:
/// each stands at its old place and at a lifted one meanwhile.
#[must_use]
pub fn can_keep(count: usize) -> bool {
    let needed = LIFTED.cast_unsigned() as usize + 2 * count;
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    limit.is_ok_and(|(soft, _)| needed as u64 <= soft)
}

/// Gives `payload` the numbers 0, 1, 2, … in this order, `own` the next ones (close-on-exec), and
/// closes everything else. Returns the owners of the new numbers of `own`.
///
/// To be called by a process that ends with exec or `_exit`: whatever other value owned a
/// descriptor must not be used again, and is never dropped.
///
/// # Errors
/// `EMFILE`, `ENOSYS` before Linux 5.9.
pub fn keep_only(payload: &[BorrowedFd<'_>], own: &[BorrowedFd<'_>]) -> nix::Result<Vec<OwnedFd>> {
    let all: Vec<BorrowedFd<'_>> = payload.iter().chain(own).copied().collect();
    place(&all, payload.len())?;
    let number = |count: usize| RawFd::try_from(count).map_err(|_| Errno::EMFILE);
    let (first, end) = (number(payload.len())?, number(all.len())?);
    // SAFETY: these numbers were just placed, and every other open descriptor is one of the
    // payload's, which no value owns: nobody else owns these.
    Ok((first..end).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect())
}

/// Gives `fds` the numbers from 0 up and closes all others; the first `inherited` pass an exec.
fn place(fds: &[BorrowedFd<'_>], inherited: usize) -> nix::Result<()> {
    let mut lifted = Vec::with_capacity(fds.len());
    for fd in fds {
        let copy = nix::fcntl::fcntl(*fd, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(LIFTED));
        // EINVAL: the limit on open files is below that number (F_DUPFD(2const)).
        lifted.push(
            copy.map_err(|errno| if errno == Errno::EINVAL { Errno::EMFILE } else { errno })?,
        );
    }
    let mut target: RawFd = 0;
    for (at, from) in lifted.into_iter().enumerate() {
        let flags = if at < inherited { 0 } else { libc::O_CLOEXEC };
        // SAFETY: integers only; `from` is at least LIFTED, so it differs from `target`, as dup3
        // demands. Values that owned the targets are not used again: see the callers' contract.
        check(libc::c_long::from(unsafe { libc::dup3(from, target, flags) }))?;
        target += 1;
    }
    close_from(target)
}
