//! Watches one running sandbox to its end: pipes, clock, cancel, limits → [`Outcome`].
//!
//! One thread, one poll(2) loop, no runtime: the command line and a server's worker threads run
//! the same code. Both streams are drained while the payload runs, into a bounded buffer, so that
//! neither side waits for the other and memory stays flat whatever the payload writes.

mod caller;
mod capture;
mod console;
mod filter;
mod flow;
mod signals;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

pub(crate) use self::caller::of_our_own;
pub(crate) use self::capture::Capture;
pub use self::capture::Newest;
pub use self::filter::Filter;
pub use self::signals::Signals;

use self::console::Console;
use self::flow::Flow;
use crate::engine::cgroup::{CgroupUsage, Leaf};
use crate::engine::report::{Ended, ReadError, Reader};
use crate::engine::{Report, StepError};
use crate::kernel;
use crate::outcome::{Ending, Enforced, Files, Order, Outcome, Source, Usage, WallReport};
use crate::plan::Limits;

/// Bytes of one stream that are kept.
pub const KEPT: usize = 1 << 20;
/// How long a killed sandbox may take to be gone before that is an error. The kernel frees all its
/// memory first; a process in an uninterruptible sleep delays it.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
/// How long the answer waits for the rest of a sandbox whose payload has ended; and for whoever reads
/// its output, once somebody has ended it.
const PARTING: Duration = Duration::from_secs(1);

/// Where the payload's output goes and its input comes from.
#[derive(Debug)]
pub enum Channels {
    /// stdout and stderr are kept.
    Kept {
        /// What is read, and the pipe it is handed on to.
        input: Option<(OwnedFd, OwnedFd)>,
        /// Read ends.
        outputs: [OwnedFd; 2],
    },
    /// stdout and stderr are kept, and what comes is shown meanwhile.
    Watched {
        /// Read ends.
        outputs: [OwnedFd; 2],
        /// Where it is shown.
        newest: Newest,
    },
    /// stdout and stderr are kept and pass through; without orders to a terminal, if one is there.
    PassedOn {
        /// The read ends, and where what comes out of them goes.
        outputs: [(OwnedFd, OwnedFd); 2],
    },
    /// All three pass through.
    Through {
        /// What is read, and the pipe it is handed on to.
        input: (OwnedFd, OwnedFd),
        /// The read ends, and where what comes out of them goes.
        outputs: [(OwnedFd, OwnedFd); 2],
        /// Whether orders to a terminal are taken out where one is written to.
        filtered: bool,
    },
    /// The payload has a terminal of its own.
    Terminal {
        /// The caller's, to be read.
        input: OwnedFd,
        /// The caller's, to be written.
        output: OwnedFd,
        /// Where pid 1 sends the payload's.
        socket: OwnedFd,
        /// Whether orders to the terminal emulator are taken out.
        filtered: bool,
    },
}

/// The two ends over which pid 1 hands out the terminal that it made: ours, pid 1's.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn terminal_pair() -> Result<(OwnedFd, OwnedFd), SupervisorError> {
    kernel::message_pair().map_err(|errno| SupervisorError::Call("make a socket", errno))
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
    /// The limit is below what the sandbox itself needs.
    #[error("the memory limit of {0} bytes is too small: it ended the sandbox while it was set up")]
    TooLittleMemory(u64),
    /// It speaks another language, or cannot be heard.
    #[error(transparent)]
    Report(#[from] ReadError),
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
    /// Who passes the payload its signals, if that is not pid 1.
    pub relay: Option<&'a OwnedFd>,
    /// Its cgroup, if it has one.
    pub leaf: Option<&'a Leaf>,
    /// The read end of its report pipe.
    pub report: OwnedFd,
    /// Its streams.
    pub channels: Channels,
    /// Its limits; here those of time and output are held.
    pub limits: &'a Limits,
    /// Readable when the caller has cancelled.
    pub cancel: BorrowedFd<'a>,
    /// What this process gets and the payload shall get.
    pub signals: Option<&'a Signals>,
}

/// What is known so far.
#[derive(Default)]
struct State {
    walls: Vec<WallReport>,
    ready: bool,
    failed: Option<StepError>,
    not_executed: Option<(String, i32)>,
    ended: Option<(Ended, Usage)>,
    alone: bool,
    killed: Option<Ending>,
    told_to_end: bool,
    stopped: bool,
    may_disturb: bool,
    order: Order,
}

impl Watch<'_> {
    /// Watches to the end. Whatever happens, nothing of the sandbox is left when this returns.
    ///
    /// # Errors
    /// No payload ran, or a call of our own failed; never for what the payload does.
    pub fn to_end(self) -> Result<Outcome, SupervisorError> {
        let Self { pidfd, relay, leaf, report, channels, limits, cancel, signals } = self;
        let (flows, console) = connect(channels)?;
        let report =
            Reader::new(report).map_err(|errno| SupervisorError::Call("set O_NONBLOCK", errno))?;
        let started = Instant::now();
        let state = State::default();
        let mut watched =
            Loop { pidfd, relay, leaf, report, limits, cancel, signals, console, state, flows };
        let result = watched.run(started).and_then(|()| watched.empty_terminal());
        let Loop { mut state, mut flows, console, .. } = watched;
        let killed = state.killed.is_some() || result.is_err();
        let patience = if result.is_err() { PollTimeout::ZERO } else { state.patience() };
        // Gone also after an ordinary end: who asks what is left shall see nothing, and a cgroup is
        // empty when it is read and removed (its own event comes later: the kernel sends at most
        // one in 10 ms). Where pid 1 alone is left, and no cgroup to remove, nobody need wait for it.
        let gone = kill(pidfd, leaf).and_then(|()| match killed {
            true => wait_gone(pidfd, GRACE),
            false if state.alone && leaf.is_none() => Ok(()),
            false => wait_gone(pidfd, PARTING).or(Ok(())),
        });
        result.and(gone)?;
        for (at, flow) in flows.iter_mut().enumerate() {
            let before = flow.kept_bytes();
            flow.drain(patience, signals)?;
            let came = flow.kept_bytes() - before;
            state.order.note(source(at), usize::try_from(came).unwrap_or(usize::MAX));
        }
        drop(console);
        let counted = leaf.map(Leaf::usage).unwrap_or_default();
        let ending = state.ending(counted.out_of_memory, limits)?;
        let usage = match state.ended {
            Some((_, usage)) => usage,
            None => Usage { wall_us: micros(started.elapsed()), ..Usage::default() },
        };
        let usage = with_counted(usage, counted);
        let mut kept = flows.into_iter().filter_map(Flow::into_kept);
        let (stdout, stderr) = (kept.next().unwrap_or_default(), kept.next().unwrap_or_default());
        let enforced = Enforced(state.walls);
        Ok(Outcome {
            ending,
            stdout,
            stderr,
            order: state.order,
            usage,
            enforced,
            session: None,
            files: Files::default(),
        })
    }
}

fn connect(channels: Channels) -> Result<(Vec<Flow>, Option<Console>), SupervisorError> {
    let inward = |(stdin, pipe): (OwnedFd, OwnedFd)| {
        set_nonblocking(&pipe).and_then(|()| Flow::inward(stdin, pipe))
    };
    match channels {
        Channels::Kept { input, outputs } => {
            outputs.iter().try_for_each(set_nonblocking)?;
            let outputs = outputs.into_iter().map(|pipe| Ok(Flow::kept(pipe, Capture::new(KEPT))));
            let flows = outputs.chain(input.map(inward)).collect::<Result<_, SupervisorError>>()?;
            Ok((flows, None))
        }
        Channels::Watched { outputs, newest } => {
            outputs.iter().try_for_each(set_nonblocking)?;
            let capture = || Capture::new(KEPT).watched(Some(newest.clone()));
            Ok((outputs.map(|pipe| Flow::kept(pipe, capture())).into(), None))
        }
        Channels::PassedOn { outputs } => {
            let kept = |flow: Flow| flow.and_kept(Capture::new(KEPT));
            let flows = outward(outputs, true).map(|flow| flow.map(kept));
            Ok((flows.collect::<Result<_, _>>()?, None))
        }
        Channels::Through { input, outputs, filtered } => {
            let flows = outward(outputs, filtered).chain([inward(input)]);
            Ok((flows.collect::<Result<_, _>>()?, None))
        }
        Channels::Terminal { input, output, socket, filtered } => {
            Ok((Vec::new(), Some(Console::new(input, output, filtered, socket))))
        }
    }
}

/// What passes through, orders to a terminal taken out if `filtered`.
fn outward(
    outputs: [(OwnedFd, OwnedFd); 2],
    filtered: bool,
) -> impl Iterator<Item = Result<Flow, SupervisorError>> {
    outputs.into_iter().map(move |(from, to)| {
        set_nonblocking(&from)?;
        let filter = (filtered && nix::unistd::isatty(&to) == Ok(true)).then(Filter::text);
        Ok(Flow::outward(from, to, filter))
    })
}

/// The watching loop: what it looks at and what it knows.
struct Loop<'a> {
    pidfd: &'a OwnedFd,
    relay: Option<&'a OwnedFd>,
    leaf: Option<&'a Leaf>,
    report: Reader,
    limits: &'a Limits,
    cancel: BorrowedFd<'a>,
    signals: Option<&'a Signals>,
    console: Option<Console>,
    state: State,
    flows: Vec<Flow>,
}

impl Loop<'_> {
    fn run(&mut self, started: Instant) -> Result<(), SupervisorError> {
        let mut deadline = started.checked_add(self.limits.time());
        while !self.report.is_closed() && self.state.ended.is_none() {
            let cancelled = self.turn(deadline)?;
            if self.state.ended.is_some() {
                break;
            }
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if self.state.killed.is_some() {
                if late {
                    return Err(SupervisorError::Unkillable);
                }
                continue;
            }
            self.state.killed = self.reason_to_kill(cancelled, late);
            if self.state.killed.is_some() {
                kill(self.pidfd, self.leaf)?;
                deadline = Instant::now().checked_add(GRACE);
            } else if std::mem::take(&mut self.state.stopped) {
                self.suspend(true)?;
            }
        }
        Ok(())
    }

    /// What is still on its way through a terminal is lost with pid 1, so it is read before. Pid 1
    /// has killed everyone who could write more.
    fn empty_terminal(&mut self) -> Result<(), SupervisorError> {
        let patience = self.state.patience();
        match &self.console {
            Some(_) => {
                self.flows.iter_mut().try_for_each(|flow| flow.drain(patience, self.signals))
            }
            None => Ok(()),
        }
    }

    fn reason_to_kill(&self, cancelled: bool, late: bool) -> Option<Ending> {
        let written: u64 = self.flows.iter().map(Flow::kept_bytes).sum();
        // In raw mode no key ends the input: whoever sat there has gone, and the payload's files with
        // this run.
        let hung_up = self.console.is_some() && self.flows.iter().any(Flow::has_lost_its_input);
        if cancelled {
            Some(Ending::Cancelled)
        } else if hung_up {
            Some(Ending::Signaled { signal: libc::SIGHUP })
        } else if written > self.limits.output {
            Some(Ending::OutputLimit { bytes: self.limits.output })
        } else {
            late.then_some(Ending::TimedOut { after_ms: self.limits.time_ms })
        }
    }

    /// Waits for something to happen and deals with it. Whether the caller has cancelled.
    fn turn(&mut self, deadline: Option<Instant>) -> Result<bool, SupervisorError> {
        if let Some(console) = &mut self.console {
            console.follow()?;
        }
        let happened = self.wait(deadline)?;
        let mut cancelled = false;
        for event in happened {
            match event {
                Event::Report => self.read_report()?,
                Event::Cancel => cancelled = true,
                Event::Signal => self.pass_signals()?,
                Event::Terminal => {
                    if let Some(console) = &mut self.console {
                        self.flows = console.connect()?;
                    }
                }
                Event::Flow(at) if !self.state.may_disturb && self.flows[at].would_disturb() => {
                    self.pass(Signal::SIGTSTP)?;
                    self.state.stopped = true;
                }
                Event::Flow(at) => {
                    let before = self.flows[at].kept_bytes();
                    self.flows[at].pump()?;
                    let came = self.flows[at].kept_bytes() - before;
                    self.state.order.note(source(at), usize::try_from(came).unwrap_or(usize::MAX));
                }
            }
        }
        Ok(cancelled)
    }

    /// What has happened; flows first, so that none is read after the report of the end.
    fn wait(&self, deadline: Option<Instant>) -> Result<Vec<Event>, SupervisorError> {
        let mut fds = Vec::with_capacity(8);
        let mut events = Vec::with_capacity(8);
        let mut watch = |fd, flags, event| {
            fds.push(PollFd::new(fd, flags));
            events.push(event);
        };
        for (at, flow) in self.flows.iter().enumerate() {
            if let Some((fd, flags)) = flow.waits_for() {
                watch(fd, flags, Event::Flow(at));
            }
        }
        watch(self.report.as_fd(), PollFlags::POLLIN, Event::Report);
        if let Some(socket) = self.console.as_ref().and_then(Console::waits_for) {
            watch(socket, PollFlags::POLLIN, Event::Terminal);
        }
        // Once it is on it stays on; looked at again it would keep the loop from waiting.
        if self.state.killed.is_none() {
            watch(self.cancel, PollFlags::POLLIN, Event::Cancel);
        }
        if let Some(signals) = self.signals {
            watch(signals.as_fd(), PollFlags::POLLIN, Event::Signal);
        }
        match poll(&mut fds, until(deadline)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(SupervisorError::Call("poll", errno)),
        }
        let fired = fds.iter().map(|fd| fd.revents().is_some_and(|flags| !flags.is_empty()));
        Ok(events
            .into_iter()
            .zip(fired)
            .filter_map(|(event, fired)| fired.then_some(event))
            .collect())
    }

    fn pass_signals(&mut self) -> Result<(), SupervisorError> {
        let Some(signals) = self.signals else { return Ok(()) };
        let failed = |errno| SupervisorError::Call("read a signal", errno);
        while let Some(signal) = signals.next().map_err(failed)? {
            // After a Ctrl-C many go on.
            self.state.told_to_end |= signals::ends(signal) && signal != Signal::SIGINT;
            self.state.may_disturb |= signals::ends(signal);
            match (signal, &mut self.console) {
                (Signal::SIGWINCH, Some(console)) => console.resize(),
                (Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU, _) => {
                    self.pass(Signal::SIGTSTP)?;
                    self.suspend(false)?;
                }
                (Signal::SIGCONT, Some(console)) => {
                    console.enter()?;
                    self.pass(signal)?;
                }
                _ => self.pass(signal)?,
            }
        }
        Ok(())
    }

    /// To pid 1, which passes it on to the payload's process group.
    fn pass(&self, signal: Signal) -> Result<(), SupervisorError> {
        let to = self.relay.unwrap_or(self.pidfd);
        match kernel::pidfd_signal(to.as_fd(), signal as i32) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(SupervisorError::Call("pass on a signal", errno)),
        }
    }

    /// The payload is stopped: so stop we, the terminal as it was, until somebody continues us.
    fn suspend(&mut self, job: bool) -> Result<(), SupervisorError> {
        let Some(signals) = self.signals else { return Ok(()) };
        if let Some(console) = &mut self.console {
            console.leave();
        }
        signals.stop(job).map_err(|errno| SupervisorError::Call("stop", errno))?;
        // That it stopped, where it is we who stopped it, is no news any more.
        self.read_report()?;
        self.state.stopped = false;
        // Who lets us go on in the background wants to see it; and a group that nobody could let go on
        // does not stop.
        self.state.may_disturb = true;
        if let Some(console) = &mut self.console {
            console.enter()?;
            console.resize();
        }
        self.pass(Signal::SIGCONT)
    }

    fn read_report(&mut self) -> Result<(), SupervisorError> {
        for report in self.report.read()? {
            self.state.note(report);
        }
        Ok(())
    }
}

/// Which stream a flow carries, of those that are kept: they come first.
pub(crate) fn source(at: usize) -> Source {
    if at == 0 { Source::Stdout } else { Source::Stderr }
}

/// Something that happened.
#[derive(Debug, Clone, Copy)]
enum Event {
    Flow(usize),
    Report,
    Terminal,
    Cancel,
    Signal,
}

/// Waits until pid 1 is gone, and with it everything in its namespace.
pub(crate) fn wait_gone(pidfd: &OwnedFd, at_most: Duration) -> Result<(), SupervisorError> {
    let deadline = Instant::now().checked_add(at_most);
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

/// Kills pid 1, and with it its namespace; everything at once where a cgroup allows it.
pub(crate) fn kill(pidfd: &OwnedFd, leaf: Option<&Leaf>) -> Result<(), SupervisorError> {
    if let Some(leaf) = leaf {
        let _ = leaf.kill();
    }
    signal(pidfd, libc::SIGKILL)
}

/// Sends a signal to pid 1, which passes those of a terminal on to the payload.
pub(crate) fn signal(pidfd: &OwnedFd, signal: libc::c_int) -> Result<(), SupervisorError> {
    match kernel::pidfd_signal(pidfd.as_fd(), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(SupervisorError::Call("signal the sandbox", errno)),
    }
}

/// What is left until `deadline`, rounded up: rounded down, poll would spin through the last
/// millisecond.
pub(crate) fn until(deadline: impl Into<Option<Instant>>) -> PollTimeout {
    let Some(deadline) = deadline.into() else { return PollTimeout::NONE };
    let left = deadline.saturating_duration_since(Instant::now());
    let millis = left.as_micros().div_ceil(1000).min(1 << 30);
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}

/// What the cgroup counted, where it did, in place of what pid 1 could see.
fn with_counted(usage: Usage, counted: CgroupUsage) -> Usage {
    let CgroupUsage { out_of_memory: _, peak_memory, peak_pids, cpu_us } = counted;
    Usage {
        wall_us: usage.wall_us,
        cpu_us: cpu_us.unwrap_or(usage.cpu_us),
        peak_memory: peak_memory.unwrap_or(usage.peak_memory),
        peak_pids,
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn set_nonblocking(fd: &OwnedFd) -> Result<(), SupervisorError> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
        .map(drop)
        .map_err(|errno| SupervisorError::Call("set O_NONBLOCK", errno))
}

/// Where the time of a launch goes, for whoever reads traces.
fn tell(steps: &[(String, u64)]) {
    for (step, micros) in steps {
        tracing::trace!(micros, step);
    }
}

impl State {
    fn note(&mut self, report: Report) {
        match report {
            Report::Failed(error) => self.failed = Some(error),
            Report::Ready { walls } => {
                self.ready = true;
                self.walls = walls;
            }
            Report::NotExecuted { program, errno } => self.not_executed = Some((program, errno)),
            Report::Stopped => self.stopped = true,
            Report::Took { steps } => tell(&steps),
            Report::Ended { ending, wall_us, cpu_us, peak_memory, alone } => {
                self.alone = alone;
                let usage = Usage { wall_us, cpu_us, peak_memory, peak_pids: None };
                self.ended = Some((ending, usage));
            }
        }
    }

    /// How long whoever reads the output may take nothing of what is left at the end. Where somebody
    /// has ended it, nobody waits for who has stopped to read.
    fn patience(&self) -> PollTimeout {
        let ended = self.killed.is_some() || self.told_to_end;
        if ended { until(Instant::now().checked_add(PARTING)) } else { PollTimeout::NONE }
    }

    /// How it ended; `out_of_memory` if the kernel killed for that.
    fn ending(&mut self, out_of_memory: bool, limits: &Limits) -> Result<Ending, SupervisorError> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        if let Some((program, errno)) = self.not_executed.take() {
            return Ok(Ending::CouldNotStart { program, errno });
        }
        match (self.ended, self.killed.take()) {
            // It had ended before the kill reached it: then that is how it ended.
            (Some((Ended::Code(code), _)), _) => Ok(Ending::Exited { code }),
            (Some((Ended::OverMemory, _)), _) => Ok(Ending::OutOfMemory),
            (Some((Ended::Signal(libc::SIGKILL), _)), _) if out_of_memory => {
                Ok(Ending::OutOfMemory)
            }
            (Some((Ended::Signal(signal), _)), _) => Ok(Ending::Signaled { signal }),
            (None, Some(killed)) => Ok(killed),
            // The kernel kills the whole cgroup, pid 1 with it.
            (None, None) if out_of_memory && self.ready => Ok(Ending::OutOfMemory),
            (None, None) if out_of_memory => Err(SupervisorError::TooLittleMemory(limits.memory)),
            // Pid 1 itself was killed from outside, and the payload with it.
            (None, None) if self.ready => Ok(Ending::Signaled { signal: libc::SIGKILL }),
            (None, None) => Err(SupervisorError::Vanished),
        }
    }
}
