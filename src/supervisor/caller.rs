//! The caller's ends of streams, which others hold too.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::stat::{Mode, SFlag, fstat, major};
use nix::sys::termios::{LocalFlags, tcgetattr, tcgetsid};
use nix::unistd::{getpgrp, getsid, isatty, tcgetpgrp};

/// The same end of a stream, opened once more and non-blocking, which the caller's own description
/// must not become: whoever else holds it shares that. And what is ready may still let a call sleep,
/// and with it the one thread that watches: a terminal has some room, and what there was of a pipe
/// another process, or our other stream, may have taken.
///
/// Where it cannot be opened again it stays as it is, and a call may sleep there as it may in any
/// other program: a socket; what belongs to another user (before it was handed on); a file, which
/// has a position, and never lets anybody wait. To be called before the rights to open it are given
/// up, as a launch by root does.
pub(crate) fn of_our_own(end: OwnedFd, access: OFlag) -> OwnedFd {
    let flags = access | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let again = way_to(&end).and_then(|path| open(path.as_str(), flags, Mode::empty()).ok());
    again.unwrap_or(end)
}

/// Whether somebody else has our terminal at the moment: what is typed there is not for us then, and
/// its modes are not ours.
pub(super) fn is_anothers(tty: impl AsFd) -> bool {
    tcgetpgrp(tty).is_ok_and(|group| group != getpgrp())
}

/// Whether what is written to this terminal would disturb who has it, and shall not (`stty tostop`).
pub(super) fn is_not_to_be_disturbed(tty: impl AsFd) -> bool {
    is_anothers(&tty)
        && tcgetattr(&tty).is_ok_and(|modes| modes.local_flags.contains(LocalFlags::TOSTOP))
}

/// Tells of each arrival at a terminal once. What is typed while another has the terminal stays
/// there for the other: a descriptor that says so all the time would keep the loop from waiting. And
/// nothing tells that we have the terminal again, until somebody types.
#[derive(Debug)]
pub(super) struct Arrivals(Epoll);

impl Arrivals {
    pub(super) fn at(tty: &OwnedFd) -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(tty, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))?;
        Ok(Self(epoll))
    }

    /// Readable when there was one.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }

    /// Forgets it.
    pub(super) fn forget(&self) {
        // Also what failed is over.
        let _ = self.0.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO);
    }
}

/// A path that leads to the same terminal or pipe.
fn way_to(end: &OwnedFd) -> Option<String> {
    /// Of `/dev/ptmx` and `/dev/tty`, which lead elsewhere for each who opens them.
    const ALTERNATE: u64 = 5;
    let stat = fstat(end).ok()?;
    let is_pipe = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFIFO;
    let is_terminal = isatty(end) == Ok(true);
    // Anybody may open that, also who has come to this terminal by su(1).
    if is_terminal && tcgetsid(end).is_ok_and(|session| getsid(None) == Ok(session)) {
        return Some("/dev/tty".to_owned());
    }
    let is_the_same = is_pipe || is_terminal && major(stat.st_rdev) != ALTERNATE;
    is_the_same.then(|| format!("/proc/self/fd/{}", end.as_raw_fd()))
}
