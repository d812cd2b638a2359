//! The caller's ends of streams, which others hold too.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat, major};
use nix::sys::termios::tcgetsid;
use nix::unistd::{getsid, isatty};

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
