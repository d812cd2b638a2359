//! One running agent, and one call to it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};

use super::SessionError;
use super::protocol::{Line, Lines, Status, Tag};
use crate::backend::{AgentEnds, Backend, CgroupUsage, Ended, Ends, Leaf, Reader, Report};
use crate::gallery::Gallery;
use crate::outcome::{Ending, Enforced, Files, Order, Stream, Usage, WallReport};
use crate::plan::{Limits, Plan};
use crate::supervisor::{self, Capture, KEPT, Newest};

/// How long an agent may take until it waits for code.
const START: Duration = Duration::from_secs(20);
/// How long code may take to end after it was interrupted, before its interpreter is killed.
const GRACE: Duration = Duration::from_secs(2);
/// After how long it is interrupted again.
const AGAIN: Duration = Duration::from_millis(100);
/// Bytes of late output that are kept.
const LATE: usize = 8 << 10;

/// One running agent.
#[derive(Debug)]
pub(super) struct Live {
    pidfd: OwnedFd,
    relay: Option<OwnedFd>,
    leaf: Option<Leaf>,
    report: Reader,
    outputs: [OwnedFd; 2],
    requests: OwnedFd,
    replies: OwnedFd,
    lines: Lines,
    walls: Vec<WallReport>,
    ended: Option<Ended>,
    calls: u64,
    limits: Limits,
    gallery: Option<Gallery>,
    /// When it was started.
    pub(super) started: Instant,
}

/// What one call came to.
#[derive(Debug)]
pub(super) struct Called {
    pub(super) ending: Ending,
    /// Whether the agent waits for more.
    pub(super) alive: bool,
    pub(super) stdout: Stream,
    pub(super) stderr: Stream,
    pub(super) order: Order,
    /// What was written before the call.
    pub(super) late: Stream,
    pub(super) usage: Usage,
    pub(super) enforced: Enforced,
    pub(super) files: Files,
}

impl Live {
    /// Takes an agent that has started, or starts one, and waits until it is ready.
    pub(super) fn start(
        backend: &dyn Backend,
        plan: Plan,
        cancel: BorrowedFd<'_>,
        images: bool,
    ) -> Result<Self, SessionError> {
        let limits = *plan.limits();
        let (started, ends) = match backend.take_agent(&plan) {
            Some(waiting) => waiting,
            None => {
                let ends = AgentEnds::new(plan.identity().outside);
                let (ends, handover) = ends.map_err(call("make the agent's pipes"))?;
                (backend.start(plan, handover)?, ends)
            }
        };
        let AgentEnds { ends: Ends { report, outputs, workspace }, requests, replies } = ends;
        for fd in outputs.iter().chain([&requests, &replies]) {
            fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(call("set O_NONBLOCK"))?;
        }
        let report = Reader::new(report).map_err(call("set O_NONBLOCK"))?;
        let gallery = images.then(|| Gallery::of(workspace));
        let mut live = Self {
            pidfd: started.pidfd,
            relay: started.relay,
            leaf: started.leaf,
            report,
            outputs,
            requests,
            replies,
            lines: Lines::default(),
            walls: started.walls,
            ended: None,
            calls: 0,
            limits,
            gallery,
            started: Instant::now(),
        };
        live.wait_ready(cancel)?;
        Ok(live)
    }

    fn wait_ready(&mut self, cancel: BorrowedFd<'_>) -> Result<(), SessionError> {
        let mut turn = Turn::new(None, Vec::new(), START);
        loop {
            match self.step(&mut turn, cancel)? {
                Some(News::Line(Line::Ready)) => return Ok(()),
                Some(News::Cancelled) => return Err(SessionError::Cancelled),
                None => {}
                Some(_) => {
                    let said = turn.kept[1].take().to_bytes();
                    let said = String::from_utf8_lossy(&said).trim().to_owned();
                    return Err(SessionError::NotReady { said });
                }
            }
        }
    }

    /// Why it cannot be asked again, if so: it has ended since the last call, or it has said
    /// something though nobody asked, as where code forged its own answer and the true one followed.
    pub(super) fn is_gone(&mut self) -> Option<&'static str> {
        const ENDED: &str = "it had ended since the last call";
        const SPOKE: &str = "it had answered one call twice";
        if self.take_reports().is_err() || self.report.is_closed() || self.ended.is_some() {
            return Some(ENDED);
        }
        let mut buffer = [0; 1024];
        match nix::unistd::read(&self.replies, &mut buffer) {
            Ok(0) => return Some(ENDED),
            Ok(length) => self.lines.push(&buffer[..length]),
            Err(_) => {}
        }
        (!matches!(self.lines.next(None), Ok(None))).then_some(SPOKE)
    }

    /// Hands over `code` and waits for what becomes of it.
    pub(super) fn call(
        &mut self,
        code: &[u8],
        time: Duration,
        cancel: BorrowedFd<'_>,
        newest: Option<&Newest>,
    ) -> Result<Called, SessionError> {
        let late = self.drain_late()?;
        self.calls += 1;
        let tag = Tag::fresh(self.calls).map_err(|_| call("read /dev/urandom")(Errno::EIO))?;
        let request = tag.request(code);
        let mut turn = Turn::new(Some(tag), request, time).watched(newest);
        let begun = Instant::now();
        let cpu_before = self.counted().cpu_us.unwrap_or(0);
        let (ending, alive) = self.until_over(&mut turn, time, cancel)?;
        let counted = self.counted();
        let usage = Usage {
            wall_us: u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            cpu_us: counted.cpu_us.unwrap_or(0).saturating_sub(cpu_before),
            peak_memory: counted.peak_memory.unwrap_or(0),
            peak_pids: counted.peak_pids,
        };
        let order = turn.order;
        let [stdout, stderr] = turn.kept.map(Capture::finish);
        let enforced = Enforced(self.walls.clone());
        let mut files = Files::default();
        if let Some(gallery) = &mut self.gallery {
            gallery.look(&mut files);
        }
        Ok(Called { ending, alive, stdout, stderr, order, late, usage, enforced, files })
    }

    /// What the session has used until now, where a cgroup counts it.
    fn counted(&self) -> CgroupUsage {
        self.leaf.as_ref().map(Leaf::usage).unwrap_or_default()
    }

    /// How the code ended, and whether the agent still waits.
    fn until_over(
        &mut self,
        turn: &mut Turn,
        time: Duration,
        cancel: BorrowedFd<'_>,
    ) -> Result<(Ending, bool), SessionError> {
        let mut stopped: Option<Ending> = None;
        loop {
            let news = self.step(turn, cancel)?;
            let over = turn.kept.iter().map(Capture::bytes).sum::<u64>() > self.limits.output;
            match news {
                Some(News::Line(Line::Done(status))) => {
                    self.drain(turn)?;
                    let ending = Ending::Exited { code: i32::from(status) };
                    return Ok((stopped.unwrap_or(ending), true));
                }
                Some(News::Line(Line::End(status))) if turn.status.is_none() => {
                    turn.status = Some(status);
                }
                Some(News::Gone) => {
                    let ending = self.bury(turn)?;
                    return Ok((stopped.unwrap_or(ending), false));
                }
                Some(News::Nonsense | News::Line(_)) => {
                    self.bury(turn)?;
                    return Ok((Ending::Interfered, false));
                }
                Some(News::Late) if turn.interrupted.is_some_and(|at| at.elapsed() < GRACE) => {
                    self.interrupt(turn)?;
                }
                Some(News::Late) if stopped.is_some() => {
                    let ending = self.bury(turn)?;
                    return Ok((stopped.unwrap_or(ending), false));
                }
                Some(News::Late) => {
                    let after_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                    stopped = Some(Ending::TimedOut { after_ms });
                    self.interrupt(turn)?;
                }
                Some(News::Cancelled) if stopped.is_none() => {
                    stopped = Some(Ending::Cancelled);
                    self.interrupt(turn)?;
                }
                _ if over && stopped.is_none() => {
                    stopped = Some(Ending::OutputLimit { bytes: self.limits.output });
                    self.interrupt(turn)?;
                }
                _ => {}
            }
        }
    }

    /// Asks the code to stop as Ctrl-C would; pid 1 passes it on. Asked again and again: a signal in
    /// the first moments of a call, or while node is between two scripts, comes to nothing.
    fn interrupt(&self, turn: &mut Turn) -> Result<(), SessionError> {
        turn.interrupted.get_or_insert_with(Instant::now);
        turn.deadline = Instant::now() + AGAIN;
        supervisor::signal(self.relay.as_ref().unwrap_or(&self.pidfd), libc::SIGINT)?;
        Ok(())
    }

    /// Waits for one thing to happen and deals with it.
    fn step(
        &mut self,
        turn: &mut Turn,
        cancel: BorrowedFd<'_>,
    ) -> Result<Option<News>, SessionError> {
        if let Some(news) = self.next_line(turn) {
            return Ok(Some(news));
        }
        let fired = self.wait(turn, cancel)?;
        for (at, pipe) in self.outputs.iter().enumerate().filter(|(at, _)| fired[*at]) {
            turn.open[at] =
                turn.noting(at, |kept| kept.fill(pipe)).map_err(call("read a stream"))?;
        }
        if fired[2] {
            self.take_reports()?;
        }
        if fired[4] {
            turn.write(&self.requests).map_err(call("hand over the code"))?;
        }
        if turn.hung_up && (self.report.is_closed() || self.ended.is_some()) {
            return Ok(Some(News::Gone));
        }
        // Before what the agent says: code can speak in its place, without an end.
        if fired[5] {
            return Ok(Some(News::Cancelled));
        }
        if Instant::now() >= turn.deadline {
            return Ok(Some(News::Late));
        }
        if fired[3] { self.take_reply(turn) } else { Ok(None) }
    }

    /// Which of: stdout, stderr, report, replies, requests, cancel.
    fn wait(&self, turn: &Turn, cancel: BorrowedFd<'_>) -> Result<[bool; 6], SessionError> {
        let wanted = [
            (self.outputs[0].as_fd(), PollFlags::POLLIN, turn.open[0]),
            (self.outputs[1].as_fd(), PollFlags::POLLIN, turn.open[1]),
            (self.report.as_fd(), PollFlags::POLLIN, !self.report.is_closed()),
            (self.replies.as_fd(), PollFlags::POLLIN, !turn.hung_up),
            (self.requests.as_fd(), PollFlags::POLLOUT, !turn.request.is_empty()),
            // Once it is on it stays on; looked at again it would keep the loop from waiting.
            (cancel, PollFlags::POLLIN, turn.interrupted.is_none()),
        ];
        let watched: Vec<usize> = (0..wanted.len()).filter(|at| wanted[*at].2).collect();
        let mut fds: Vec<PollFd<'_>> =
            watched.iter().map(|at| PollFd::new(wanted[*at].0, wanted[*at].1)).collect();
        match poll(&mut fds, supervisor::until(turn.deadline)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(call("poll")(errno)),
        }
        let mut fired = [false; 6];
        for (at, fd) in watched.iter().zip(&fds) {
            fired[*at] = fd.revents().is_some_and(|flags| !flags.is_empty());
        }
        Ok(fired)
    }

    fn take_reply(&mut self, turn: &mut Turn) -> Result<Option<News>, SessionError> {
        let mut buffer = [0; 1024];
        match nix::unistd::read(&self.replies, &mut buffer) {
            Ok(0) => {
                turn.hung_up = true;
                Ok(None)
            }
            Ok(length) => {
                self.lines.push(&buffer[..length]);
                Ok(self.next_line(turn))
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(errno) => Err(call("read an answer")(errno)),
        }
    }

    fn next_line(&mut self, turn: &Turn) -> Option<News> {
        match self.lines.next(turn.tag.as_ref()) {
            Ok(line) => line.map(News::Line),
            Err(unexpected) => {
                tracing::warn!(%unexpected, "session ended");
                Some(News::Nonsense)
            }
        }
    }

    fn take_reports(&mut self) -> Result<(), SessionError> {
        for report in self.report.read()? {
            match report {
                Report::Failed(step) => return Err(SessionError::Step(step)),
                Report::Ready { walls } => {
                    let own = std::mem::replace(&mut self.walls, walls);
                    self.walls.extend(own);
                }
                Report::NotExecuted { program, errno } => {
                    return Err(SessionError::NotExecuted { program, errno });
                }
                Report::Ended { ending, .. } => self.ended = Some(ending),
                _ => {}
            }
        }
        Ok(())
    }

    /// Kills what is left. How the interpreter ended, if it had by itself.
    fn bury(&mut self, turn: &mut Turn) -> Result<Ending, SessionError> {
        supervisor::kill(&self.pidfd, self.leaf.as_ref())?;
        supervisor::wait_gone(&self.pidfd, supervisor::GRACE)?;
        self.drain(turn)?;
        let killed = !matches!(self.ended, Some(Ended::Code(_)));
        if killed && self.counted().out_of_memory {
            return Ok(Ending::OutOfMemory);
        }
        Ok(match (self.ended, turn.status) {
            (Some(Ended::OverMemory), _) => Ending::OutOfMemory,
            (Some(Ended::Code(code)), _) => Ending::Exited { code },
            (Some(Ended::Signal(signal)), _) => Ending::Signaled { signal },
            (None, Some(status)) => Ending::Exited { code: i32::from(status) },
            (None, None) => Ending::Signaled { signal: libc::SIGKILL },
        })
    }

    /// What is in the pipes now belongs to this call: it was written before the agent answered.
    fn drain(&self, turn: &mut Turn) -> Result<(), SessionError> {
        for (at, pipe) in self.outputs.iter().enumerate() {
            turn.noting(at, |kept| kept.drain(pipe)).map_err(call("read a stream"))?;
        }
        Ok(())
    }

    /// What background jobs wrote since the last call.
    fn drain_late(&self) -> Result<Stream, SessionError> {
        let mut late = Capture::new(LATE);
        for pipe in &self.outputs {
            late.drain(pipe).map_err(call("read a stream"))?;
        }
        Ok(late.finish())
    }

    /// Ends it at once, with everything in its sandbox.
    pub(super) fn kill(&self) {
        let _ = supervisor::kill(&self.pidfd, self.leaf.as_ref());
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.kill();
    }
}

fn call(what: &'static str) -> impl Fn(Errno) -> SessionError {
    move |errno| SessionError::Call(what, errno)
}

/// Something that happened.
enum News {
    /// The agent said something that may be said now.
    Line(Line),
    /// The agent said something else.
    Nonsense,
    /// The interpreter has ended, or another program that took its place.
    Gone,
    /// The caller has cancelled.
    Cancelled,
    /// The time is over.
    Late,
}

/// One call under way.
struct Turn {
    tag: Option<Tag>,
    /// What of the request is not written yet.
    request: Vec<u8>,
    deadline: Instant,
    /// When it was first asked to stop.
    interrupted: Option<Instant>,
    /// What the code's end of the interpreter said.
    status: Option<Status>,
    kept: [Capture; 2],
    order: Order,
    open: [bool; 2],
    /// Whether the agent's end of the pipe for answers is closed.
    hung_up: bool,
}

impl Turn {
    fn new(tag: Option<Tag>, request: Vec<u8>, time: Duration) -> Self {
        let now = Instant::now();
        Self {
            tag,
            request,
            deadline: now.checked_add(time).unwrap_or(now + START),
            interrupted: None,
            status: None,
            kept: [Capture::new(KEPT), Capture::new(KEPT)],
            order: Order::default(),
            open: [true, true],
            hung_up: false,
        }
    }

    fn watched(self, newest: Option<&Newest>) -> Self {
        let kept = self.kept.map(|capture| capture.watched(newest.cloned()));
        Self { kept, ..self }
    }

    /// Takes something from one stream and notes its place in the order of both.
    fn noting<T>(
        &mut self,
        at: usize,
        take: impl FnOnce(&mut Capture) -> nix::Result<T>,
    ) -> nix::Result<T> {
        let before = self.kept[at].bytes();
        let taken = take(&mut self.kept[at]);
        let came = usize::try_from(self.kept[at].bytes() - before).unwrap_or(usize::MAX);
        self.order.note(supervisor::source(at), came);
        taken
    }

    fn write(&mut self, to: &OwnedFd) -> nix::Result<()> {
        match nix::unistd::write(to, &self.request) {
            Ok(length) => {
                self.request.drain(..length);
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            // The agent is gone: its other pipe says so too.
            Err(Errno::EPIPE) => self.request.clear(),
            Err(errno) => return Err(errno),
        }
        Ok(())
    }
}
