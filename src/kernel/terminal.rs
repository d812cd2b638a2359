//! Calls about terminals (pty(7), tty_ioctl(4)).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::pty::Winsize;

use super::check;

/// Lets the other side of the pty `master` be opened (`TIOCSPTLCK`).
///
/// # Errors
/// `ENOTTY` for what is no master.
pub fn unlock_terminal(master: BorrowedFd<'_>) -> nix::Result<()> {
    let locked: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int; `locked` is one and outlives the call.
    check(libc::c_long::from(unsafe {
        libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const locked)
    }))
    .map(drop)
}

/// Opens the other side of the pty `master` (`TIOCGPTPEER`, Linux 4.13): no path is walked, so it
/// cannot be another's. Close-on-exec; does not become the controlling terminal.
///
/// # Errors
/// `EIO` while it is locked, `EMFILE`.
pub fn terminal_peer(master: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes an integer argument.
    let fd = check(libc::c_long::from(unsafe {
        libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags)
    }))?;
    let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How many rows and columns the terminal `tty` has (`TIOCGWINSZ`).
///
/// # Errors
/// `ENOTTY`.
pub fn window_size(tty: BorrowedFd<'_>) -> nix::Result<Winsize> {
    let mut size = Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize; `size` is one and outlives the call.
    check(libc::c_long::from(unsafe {
        libc::ioctl(tty.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size)
    }))?;
    Ok(size)
}

/// Gives a terminal, through either side of its pty, rows and columns (`TIOCSWINSZ`). The kernel
/// sends `SIGWINCH` to its foreground group if they differ.
///
/// # Errors
/// `ENOTTY`.
pub fn set_window_size(tty: BorrowedFd<'_>, size: Winsize) -> nix::Result<()> {
    // SAFETY: TIOCSWINSZ reads one winsize; `size` is one and outlives the call.
    check(libc::c_long::from(unsafe {
        libc::ioctl(tty.as_raw_fd(), libc::TIOCSWINSZ, &raw const size)
    }))
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
