//! Pid 1 while the payload runs: reaps, forwards signals, reports the ending, ends.
//!
//! When pid 1 ends the kernel kills everything in its PID namespace (pid_namespaces(7)): double
//! forks, other sessions and stopped processes alike. So the run has ended when its main process
//! has, and a grandchild that holds stdout open delays nothing.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, killpg, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::memory_watch::{self, MemoryWatch};
use super::report::{Ended, Report};
use crate::kernel;

/// Signals that are passed on to the payload's process group when they come from outside: the
/// supervisor sends them here, pid 1 hands them over.
pub const FORWARDED: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
    Signal::SIGTSTP,
];

/// Blocks every signal. Before the payload's process is made, so that none is missed: what comes is kept.
///
/// # Errors
/// Never in practice.
pub fn block_signals() -> nix::Result<()> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)
}

/// A descriptor to read signals from that are blocked.
///
/// # Errors
/// `EMFILE`.
pub fn signals() -> nix::Result<SignalFd> {
    let mut watched = SigSet::empty();
    watched.add(Signal::SIGCHLD);
    FORWARDED.iter().for_each(|signal| watched.add(*signal));
    SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC)
}

/// Unblocks every signal: the payload starts with an empty mask.
///
/// # Errors
/// Never in practice.
pub fn unblock_signals() -> nix::Result<()> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// What pid 1 has while the payload runs.
pub(super) struct Reaper<'r> {
    pub(super) payload: Pid,
    /// Whether the payload has a terminal. Then the supervisor ends pid 1: what is still on its way
    /// through a terminal is lost when the leader of its session ends.
    pub(super) terminal: bool,
    /// Since when the payload's time runs.
    pub(super) started: Instant,
    pub(super) report: &'r File,
    pub(super) signals: &'r SignalFd,
    /// What says that the payload's code has come, if that is still to come. Its time does not run
    /// until then, and its interpreter's memory is nobody's concern.
    pub(super) go: Option<OwnedFd>,
    pub(super) watch: Option<MemoryWatch>,
}

/// What pid 1 wakes up for.
enum Event {
    /// A signal is there.
    Signal,
    /// It is time to look at the memory.
    Look,
    /// The payload's code has come.
    Code,
    /// It never will.
    Nobody,
}

impl Reaper<'_> {
    /// Watches the payload to its end and ends with it.
    pub(super) fn run(mut self) -> ! {
        if !self.terminal {
            // The payload's streams are the payload's: EOF must not wait for pid 1. A terminal's
            // other side hangs up when nobody holds it for a moment; it stays open.
            for descriptor in 0..self.report.as_raw_fd() {
                let _ = nix::unistd::close(descriptor);
            }
        }
        kernel::give_back_memory();
        loop {
            // Also after each signal, of which a payload can make any number.
            self.look();
            match self.wait() {
                Event::Signal => self.hear(),
                Event::Look => {}
                Event::Code => {
                    self.go = None;
                    self.started = Instant::now();
                }
                Event::Nobody => kernel::exit_now(0),
            }
        }
    }

    /// Waits for whatever comes first.
    fn wait(&self) -> Event {
        let watch = self.watch.as_ref().filter(|_| self.go.is_none());
        let time = watch.map_or(PollTimeout::NONE, |watch| {
            // Rounded up: rounded down, it would spin through the last millisecond.
            let millis = watch.pause().as_micros().div_ceil(1000);
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
        });
        let waits = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut polled = vec![waits(self.signals.as_fd())];
        polled.extend(self.go.iter().map(|go| waits(go.as_fd())));
        let ready = poll(&mut polled, time);
        let is_ready = |at: usize| polled.get(at).and_then(PollFd::any).unwrap_or(false);
        match (&self.go, ready) {
            (_, Ok(0)) => Event::Look,
            (Some(go), Ok(_)) if is_ready(1) => match nix::unistd::read(go, &mut [0]) {
                Ok(1) => Event::Code,
                Ok(_) | Err(_) => Event::Nobody,
            },
            (_, Ok(_)) => Event::Signal,
            (_, Err(_)) => Event::Look,
        }
    }

    /// How much memory is used, if it is time to look.
    fn look(&mut self) {
        if self.go.is_some() {
            return;
        }
        if let Some(over) = self.watch.as_mut().and_then(MemoryWatch::above_limit) {
            self.watch = None;
            memory_watch::end_all();
            self.finish(Ended::OverMemory, over, true);
            if !self.terminal {
                kernel::exit_now(0);
            }
        }
    }

    fn hear(&mut self) {
        match self.signals.read_signal() {
            Ok(Some(info)) if info.ssi_signo == Signal::SIGCHLD as u32 => {
                let (news, alone) = reap(self.payload);
                match news {
                    Some(News::Ended(ending)) if self.terminal => {
                        // Nobody else shall write to it while it is emptied.
                        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
                        self.watch = None;
                        self.finish(ending, 0, false);
                    }
                    Some(News::Ended(ending)) => {
                        self.finish(ending, 0, alone);
                        kernel::exit_now(0);
                    }
                    Some(News::Stopped) if self.terminal => {
                        drop(Report::Stopped.send(self.report));
                    }
                    Some(News::Stopped) | None => {}
                }
            }
            // From outside only: inside, whoever wants to signal the payload can do so itself.
            Ok(Some(info)) if info.ssi_pid == 0 => forward(self.payload, info.ssi_signo),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => kernel::exit_now(1),
        }
    }

    /// `used` is what the sandbox was seen to use, where that ended it.
    fn finish(&self, ending: Ended, used: u64, alone: bool) {
        let wall_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (cpu_us, peak_memory) = match getrusage(UsageWho::RUSAGE_CHILDREN) {
            Ok(usage) => {
                let cpu =
                    usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
                (cpu.cast_unsigned(), usage.max_rss().cast_unsigned() * 1024)
            }
            Err(_) => (0, 0),
        };
        let peak_memory = peak_memory.max(used);
        // EPIPE: nobody wants to know.
        let _ = Report::Ended { ending, wall_us, cpu_us, peak_memory, alone }.send(self.report);
    }
}

/// What became of the payload.
enum News {
    Ended(Ended),
    Stopped,
}

/// Reaps whoever has ended. What became of the payload, if it is among them, and whether pid 1 is
/// alone now.
fn reap(payload: Pid) -> (Option<News>, bool) {
    let mut news = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == payload => {
                news = Some(News::Ended(Ended::Code(code)));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == payload => {
                news = Some(News::Ended(Ended::Signal(signal as i32)));
            }
            Ok(WaitStatus::Stopped(pid, _)) if pid == payload => news = Some(News::Stopped),
            Ok(WaitStatus::StillAlive) => return (news, false),
            Err(Errno::ECHILD) => return (news, true),
            Ok(_) | Err(_) => {}
        }
    }
}

fn forward(payload: Pid, signal: u32) {
    let signal = i32::try_from(signal).ok().and_then(|signal| Signal::try_from(signal).ok());
    let signal = match signal {
        // Its group may be an orphaned one, and those ignore SIGTSTP.
        Some(Signal::SIGTSTP) => Some(Signal::SIGSTOP),
        other => other,
    };
    // ESRCH: it leads no group yet, or it has just ended, which SIGCHLD tells.
    let _ = killpg(payload, signal).or_else(|_| kill(payload, signal));
}
