//! Watches one running sandbox to its end: pipes, clock, cancel, limits → [`Outcome`].
//!
//! One thread, one poll(2) loop, no runtime: the command line and a server's worker threads run
//! the same code. Both streams are drained while the payload runs, into a bounded buffer, so that
//! neither side waits for the other and memory stays flat whatever the payload writes.

mod capture;
mod flow;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::flow::Flow;
use crate::engine::report::Ended;
use crate::engine::{Report, StepError};
use crate::kernel;
use crate::outcome::{Ending, Enforced, Outcome, Usage, WallReport};
use crate::plan::Limits;

/// Bytes of one stream that are kept.
pub const KEPT: usize = 1 << 20;
/// How long a killed sandbox may take to be gone before that is an error. The kernel frees all its
/// memory first; a process in an uninterruptible sleep delays it.
const GRACE: Duration = Duration::from_secs(10);
/// Longest unfinished report line.
const REPORT_MAX: usize = 64 << 10;

/// Where the payload's output goes and its input comes from.
#[derive(Debug)]
pub enum Channels {
    /// stdout and stderr are kept.
    Kept {
        /// Read ends.
        outputs: [OwnedFd; 2],
    },
    /// All three pass through.
    Through {
        /// What is read, and the pipe it is handed on to.
        input: (OwnedFd, OwnedFd),
        /// The read ends, and where what comes out of them goes.
        outputs: [(OwnedFd, OwnedFd); 2],
    },
}

/// Why there is no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SupervisorError {
    /// A step of the launch was refused.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The sandbox ended before it stood, and said nothing.
    #[error(
        "the sandbox was killed while it was set up (by the kernel for lack of memory, or by a signal from outside)"
    )]
    Vanished,
    /// It speaks another language.
    #[error("the sandbox reported nonsense: {0}")]
    Nonsense(String),
    /// It cannot be killed.
    #[error("the sandbox was killed but is not gone after {} s: a process in it sleeps uninterruptibly", GRACE.as_secs())]
    Unkillable,
    /// A call of our own failed.
    #[error("{0}: {1}")]
    Call(&'static str, Errno),
}

/// A sandbox under watch.
pub struct Watch<'a> {
    /// Pid 1.
    pub pidfd: &'a OwnedFd,
    /// The read end of its report pipe.
    pub report: OwnedFd,
    /// Its streams.
    pub channels: Channels,
    /// Its limits; here those of time and output are held.
    pub limits: &'a Limits,
    /// Readable when the caller has cancelled.
    pub cancel: BorrowedFd<'a>,
}

/// What is known so far.
#[derive(Default)]
struct State {
    line: Vec<u8>,
    walls: Vec<WallReport>,
    ready: bool,
    failed: Option<StepError>,
    not_executed: Option<(String, i32)>,
    ended: Option<(Ended, Usage)>,
    killed: Option<Ending>,
    closed: bool,
}

impl Watch<'_> {
    /// Watches to the end. Whatever happens, nothing of the sandbox is left when this returns.
    ///
    /// # Errors
    /// No payload ran, or a call of our own failed; never for what the payload does.
    pub fn to_end(self) -> Result<Outcome, SupervisorError> {
        let Self { pidfd, report, channels, limits, cancel } = self;
        let mut flows = flows(channels)?;
        set_nonblocking(&report)?;
        let mut state = State::default();
        let started = Instant::now();
        let watched =
            Loop { pidfd, report: &report, limits, cancel }.run(started, &mut state, &mut flows);
        let killed = state.killed.is_some() || watched.is_err();
        let gone = kill(pidfd).and_then(|()| if killed { wait_gone(pidfd) } else { Ok(()) });
        watched.and(gone)?;
        flows.iter_mut().try_for_each(|flow| flow.drain(killed))?;
        let ending = state.ending()?;
        let usage = match state.ended {
            Some((_, usage)) => usage,
            None => Usage { wall_us: micros(started.elapsed()), ..Usage::default() },
        };
        let mut kept = flows.into_iter().filter_map(Flow::into_kept);
        let (stdout, stderr) = (kept.next().unwrap_or_default(), kept.next().unwrap_or_default());
        Ok(Outcome { ending, stdout, stderr, usage, enforced: Enforced(state.walls) })
    }
}

fn flows(channels: Channels) -> Result<Vec<Flow>, SupervisorError> {
    match channels {
        Channels::Kept { outputs } => {
            outputs.iter().try_for_each(set_nonblocking)?;
            Ok(outputs.into_iter().map(|pipe| Flow::kept(pipe, KEPT)).collect())
        }
        Channels::Through { input: (stdin, pipe), outputs } => {
            outputs.iter().map(|(from, _)| from).chain([&pipe]).try_for_each(set_nonblocking)?;
            let outputs = outputs.into_iter().map(|(from, to)| Flow::outward(from, to));
            Ok(outputs.chain([Flow::inward(stdin, pipe)]).collect())
        }
    }
}

/// What the watching loop looks at.
struct Loop<'a> {
    pidfd: &'a OwnedFd,
    report: &'a OwnedFd,
    limits: &'a Limits,
    cancel: BorrowedFd<'a>,
}

impl Loop<'_> {
    fn run(
        &self,
        started: Instant,
        state: &mut State,
        flows: &mut [Flow],
    ) -> Result<(), SupervisorError> {
        let mut deadline = started.checked_add(self.limits.time());
        while !state.closed && state.ended.is_none() {
            let cancelled = self.turn(deadline, state, flows)?;
            if state.ended.is_some() {
                break;
            }
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if state.killed.is_some() {
                if late {
                    return Err(SupervisorError::Unkillable);
                }
                continue;
            }
            state.killed = self.reason_to_kill(cancelled, late, flows);
            if state.killed.is_some() {
                kill(self.pidfd)?;
                deadline = Instant::now().checked_add(GRACE);
            }
        }
        Ok(())
    }

    fn reason_to_kill(&self, cancelled: bool, late: bool, flows: &[Flow]) -> Option<Ending> {
        let written: u64 = flows.iter().map(Flow::kept_bytes).sum();
        if cancelled {
            Some(Ending::Cancelled)
        } else if written > self.limits.output {
            Some(Ending::OutputLimit { bytes: self.limits.output })
        } else {
            late.then_some(Ending::TimedOut { after_ms: self.limits.time_ms })
        }
    }

    /// Waits for something to happen and deals with it. Whether the caller has cancelled.
    fn turn(
        &self,
        deadline: Option<Instant>,
        state: &mut State,
        flows: &mut [Flow],
    ) -> Result<bool, SupervisorError> {
        let mut fds = vec![PollFd::new(self.report.as_fd(), PollFlags::POLLIN)];
        let mut waiting = Vec::with_capacity(flows.len());
        for (at, flow) in flows.iter().enumerate() {
            if let Some((fd, flags)) = flow.waits_for() {
                fds.push(PollFd::new(fd, flags));
                waiting.push(at);
            }
        }
        // Once it is on it stays on; looked at again it would keep the loop from waiting.
        if state.killed.is_none() {
            fds.push(PollFd::new(self.cancel, PollFlags::POLLIN));
        }
        match poll(&mut fds, until(deadline)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(SupervisorError::Call("poll", errno)),
        }
        let fired: Vec<bool> =
            fds.iter().map(|fd| fd.revents().is_some_and(|flags| !flags.is_empty())).collect();
        drop(fds);
        for (at, _) in waiting.iter().zip(&fired[1..]).filter(|(_, fired)| **fired) {
            flows[*at].pump()?;
        }
        if fired[0] {
            self.read_report(state)?;
        }
        Ok(fired.get(1 + waiting.len()).copied().unwrap_or(false))
    }

    fn read_report(&self, state: &mut State) -> Result<(), SupervisorError> {
        let mut buffer = [0; 4096];
        loop {
            match nix::unistd::read(self.report, &mut buffer) {
                Ok(0) => {
                    state.closed = true;
                    return Ok(());
                }
                Ok(length) => state.take(&buffer[..length])?,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(SupervisorError::Call("read the report", errno)),
            }
        }
    }
}

/// Waits until pid 1 is gone, and with it everything in its namespace.
fn wait_gone(pidfd: &OwnedFd) -> Result<(), SupervisorError> {
    let deadline = Instant::now().checked_add(GRACE);
    loop {
        let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, until(deadline)) {
            Ok(0) => return Err(SupervisorError::Unkillable),
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(SupervisorError::Call("poll", errno)),
        }
    }
}

fn kill(pidfd: &OwnedFd) -> Result<(), SupervisorError> {
    match kernel::pidfd_signal(pidfd.as_fd(), libc::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(SupervisorError::Call("kill the sandbox", errno)),
    }
}

/// What is left until `deadline`, rounded up: rounded down, poll would spin through the last
/// millisecond.
fn until(deadline: Option<Instant>) -> PollTimeout {
    let Some(deadline) = deadline else { return PollTimeout::NONE };
    let left = deadline.saturating_duration_since(Instant::now());
    let millis = left.as_micros().div_ceil(1000).min(1 << 30);
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn set_nonblocking(fd: &OwnedFd) -> Result<(), SupervisorError> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
        .map(drop)
        .map_err(|errno| SupervisorError::Call("set O_NONBLOCK", errno))
}

impl State {
    fn take(&mut self, bytes: &[u8]) -> Result<(), SupervisorError> {
        self.line.extend_from_slice(bytes);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            let report = Report::parse(&line)
                .map_err(|error| SupervisorError::Nonsense(error.to_string()))?;
            self.note(report);
        }
        if self.line.len() > REPORT_MAX {
            return Err(SupervisorError::Nonsense("a line without end".to_owned()));
        }
        Ok(())
    }

    fn note(&mut self, report: Report) {
        match report {
            Report::Failed(error) => self.failed = Some(error),
            Report::Ready { walls } => {
                self.ready = true;
                self.walls = walls;
            }
            Report::NotExecuted { program, errno } => self.not_executed = Some((program, errno)),
            Report::Ended { ending, wall_us, cpu_us, peak_memory } => {
                self.ended = Some((ending, Usage { wall_us, cpu_us, peak_memory }));
            }
        }
    }

    fn ending(&mut self) -> Result<Ending, SupervisorError> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        if let Some((program, errno)) = self.not_executed.take() {
            return Ok(Ending::CouldNotStart { program, errno });
        }
        match (self.ended, self.killed.take()) {
            // It had ended before the kill reached it: then that is how it ended.
            (Some((Ended::Code(code), _)), _) => Ok(Ending::Exited { code }),
            (Some((Ended::Signal(signal), _)), _) => Ok(Ending::Signaled { signal }),
            (None, Some(killed)) => Ok(killed),
            // Pid 1 itself was killed from outside, and the payload with it.
            (None, None) if self.ready => Ok(Ending::Signaled { signal: libc::SIGKILL }),
            (None, None) => Err(SupervisorError::Vanished),
        }
    }
}
