//! Signals of this process, on their way to the payload.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::engine::init::FORWARDED;
use crate::kernel;

/// Signals of this process, on their way to the payload: from [`Signals::take`] until this is
/// dropped. A sandbox that is started in between misses none: its pid 1 is born with them blocked.
#[derive(Debug)]
pub struct Signals {
    arrivals: SignalFd,
    taken: SigSet,
}

impl Signals {
    /// Takes the signals that are passed on, but for those that this process was told to ignore
    /// (`nohup`). For a program with one thread: the others would still be hit.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn take() -> nix::Result<Self> {
        // The last two because the kernel would stop us by them before we have seen what else came.
        Self::of(FORWARDED.into_iter().chain([Signal::SIGTTIN, Signal::SIGTTOU]))
    }

    fn of(signals: impl Iterator<Item = Signal>) -> nix::Result<Self> {
        let mut taken = SigSet::empty();
        for signal in signals {
            if !kernel::is_ignored(signal as i32)? {
                taken.add(signal);
            }
        }
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let arrivals = SignalFd::with_flags(&taken, flags)?;
        taken.thread_block()?;
        Ok(Self { arrivals, taken })
    }

    /// Takes those that ask for an end, while something is done that they shall interrupt. Dropped, this
    /// lets the one that has arrived do what it does.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn of_ending() -> nix::Result<Self> {
        Self::of(FORWARDED.into_iter().filter(|signal| ends(*signal)))
    }

    /// Readable when one has arrived.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }

    /// The next one that has arrived.
    pub(super) fn next(&self) -> nix::Result<Option<Signal>> {
        loop {
            match self.arrivals.read_signal() {
                Ok(Some(info)) => {
                    let number = i32::try_from(info.ssi_signo).map_err(|_| Errno::EINVAL)?;
                    return Signal::try_from(number).map(Some);
                }
                Ok(None) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Whether one has arrived that would end this process.
    pub(super) fn told_to_end(&self) -> nix::Result<bool> {
        while let Some(signal) = self.next()? {
            if ends(signal) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Stops this process until somebody continues it, and with `job` all of its group, as Ctrl-Z
    /// does. By SIGTSTP: in an orphaned group, which nobody could continue, the kernel ignores it.
    pub(super) fn stop(&self, job: bool) -> nix::Result<()> {
        let mut stop = SigSet::empty();
        if !self.taken.contains(Signal::SIGTSTP) {
            return Ok(());
        }
        stop.add(Signal::SIGTSTP);
        if job {
            kill(Pid::from_raw(0), Signal::SIGTSTP)?;
        } else {
            raise(Signal::SIGTSTP)?;
        }
        // Here this process stops.
        stop.thread_unblock()?;
        stop.thread_block()
    }
}

/// Whether whoever sends it wants an end.
pub(super) const fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM)
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.taken.thread_unblock();
    }
}
