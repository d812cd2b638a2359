//! One stream on its way out of a sandbox, or into it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::isatty;

use super::SupervisorError;
use super::caller::{self, Arrivals};
use super::capture::Capture;
use super::filter::Filter;
use super::signals::Signals;
use crate::outcome::Stream;

/// Read at once.
const CHUNK: usize = 64 << 10;
/// Written at once: what a pipe that is ready to be written to takes without blocking
/// (`PIPE_BUF`, pipe(7)), also where it is the caller's own, in blocking mode.
const ATOMIC: usize = 4096;

/// One stream: bytes that were read and not yet handed on, and both ends while they are open.
#[derive(Debug)]
pub(super) struct Flow {
    from: Option<OwnedFd>,
    to: Sink,
    kept: Option<Capture>,
    filter: Option<Filter>,
    pending: Vec<u8>,
    done: usize,
    inward: bool,
    /// Where what comes is typed.
    arrivals: Option<Arrivals>,
    /// Whether it leads to a terminal.
    is_seen: bool,
}

#[derive(Debug)]
enum Sink {
    /// It is kept, and that is all.
    Nowhere,
    /// Out of the sandbox: what comes must arrive.
    Outward(OwnedFd),
    /// Into the sandbox: the payload may not care.
    Inward(OwnedFd),
    Closed,
}

impl Flow {
    /// A payload's output that is kept.
    pub(super) fn kept(from: OwnedFd, capture: Capture) -> Self {
        Self::new(from, Sink::Nowhere).and_kept(capture)
    }

    /// The same, and all of it is kept.
    pub(super) fn and_kept(self, capture: Capture) -> Self {
        Self { kept: Some(capture), ..self }
    }

    /// A payload's output that passes through.
    pub(super) fn outward(from: OwnedFd, to: OwnedFd, filter: Option<Filter>) -> Self {
        let is_seen = isatty(&to) == Ok(true);
        Self { filter, is_seen, ..Self::new(from, Sink::Outward(to)) }
    }

    /// A payload's input.
    pub(super) fn inward(from: OwnedFd, to: OwnedFd) -> Result<Self, SupervisorError> {
        let arrivals = (isatty(&from) == Ok(true)).then(|| Arrivals::at(&from)).transpose();
        let arrivals =
            arrivals.map_err(|errno| SupervisorError::Call("watch a terminal", errno))?;
        Ok(Self { inward: true, arrivals, ..Self::new(from, Sink::Inward(to)) })
    }

    const fn new(from: OwnedFd, to: Sink) -> Self {
        Self {
            from: Some(from),
            to,
            kept: None,
            filter: None,
            pending: Vec::new(),
            done: 0,
            inward: false,
            arrivals: None,
            is_seen: false,
        }
    }

    /// How many bytes came, if they are kept.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, Capture::bytes)
    }

    /// What was kept, if anything was to be.
    pub(super) fn into_kept(self) -> Option<Stream> {
        self.kept.map(Capture::finish)
    }

    /// Whether it led into the sandbox and its beginning is gone.
    pub(super) const fn has_lost_its_input(&self) -> bool {
        self.inward && self.from.is_none()
    }

    /// What has to happen next, if anything.
    pub(super) fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.to {
            Sink::Outward(to) | Sink::Inward(to) if self.done < self.pending.len() => {
                Some((to.as_fd(), PollFlags::POLLOUT))
            }
            Sink::Closed => None,
            _ => self.from.as_ref().map(|from| {
                let arrivals = self.arrivals_for_another().map(Arrivals::as_fd);
                (arrivals.unwrap_or(from.as_fd()), PollFlags::POLLIN)
            }),
        }
    }

    /// What is typed, if it is for who has our terminal at the moment.
    fn arrivals_for_another(&self) -> Option<&Arrivals> {
        self.arrivals.as_ref().filter(|_| self.from.as_ref().is_some_and(caller::is_anothers))
    }

    /// Whether the next write would disturb who has our terminal at the moment.
    pub(super) fn would_disturb(&self) -> bool {
        match &self.to {
            Sink::Outward(to) if self.is_seen && self.done < self.pending.len() => {
                caller::is_not_to_be_disturbed(to)
            }
            _ => false,
        }
    }

    /// Does it: one read or one write.
    pub(super) fn pump(&mut self) -> Result<(), SupervisorError> {
        if self.done < self.pending.len() { self.write() } else { self.read().map(drop) }
    }

    /// Reads what is there. Whether more may be.
    fn read(&mut self) -> Result<bool, SupervisorError> {
        let Some(from) = &self.from else { return Ok(false) };
        if let Some(arrivals) = self.arrivals_for_another() {
            arrivals.forget();
            return Ok(false);
        }
        self.pending.resize(CHUNK, 0);
        self.done = 0;
        let length = match nix::unistd::read(from, &mut self.pending) {
            Ok(length) => length,
            Err(Errno::EAGAIN | Errno::EINTR) => {
                self.pending.clear();
                return Ok(false);
            }
            // Another has got it between the two calls.
            Err(Errno::EIO) if self.arrivals_for_another().is_some() => {
                self.pending.clear();
                return Ok(false);
            }
            // EIO: the other side of a terminal is gone; that is its end of file. What is kept comes
            // from pipes.
            Err(Errno::EIO) if !matches!(self.to, Sink::Nowhere) => 0,
            Err(errno) => return Err(SupervisorError::Call("read a stream", errno)),
        };
        self.pending.truncate(length);
        if let Some(capture) = &mut self.kept {
            capture.push(&self.pending);
        }
        if let Some(filter) = &mut self.filter {
            self.pending = if length > 0 { filter.pass(&self.pending) } else { filter.finish() };
        }
        if length == 0 {
            self.from = None;
            if matches!(self.to, Sink::Inward(_)) {
                self.to = Sink::Closed;
            }
        }
        if matches!(self.to, Sink::Nowhere) {
            self.pending.clear();
        }
        Ok(length > 0)
    }

    fn write(&mut self) -> Result<(), SupervisorError> {
        let (Sink::Outward(to) | Sink::Inward(to)) = &self.to else {
            self.pending.clear();
            return Ok(());
        };
        let part = &self.pending[self.done..];
        match nix::unistd::write(to, &part[..part.len().min(ATOMIC)]) {
            Ok(length) => self.done += length,
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            // Whoever read it has gone (EIO: with a terminal): then whoever writes it shall know
            // (SIGPIPE).
            Err(Errno::EPIPE | Errno::EIO) => {
                self.from = None;
                self.to = Sink::Closed;
                self.pending.clear();
            }
            Err(errno) => return Err(SupervisorError::Call("write a stream", errno)),
        }
        if self.done >= self.pending.len() {
            self.pending.clear();
            self.done = 0;
        }
        Ok(())
    }

    /// The run has ended: hands on what is still on its way, until whoever reads it has taken
    /// nothing for as long as `patience`, or one of `signals` says that it is enough.
    pub(super) fn drain(
        &mut self,
        patience: PollTimeout,
        signals: Option<&Signals>,
    ) -> Result<(), SupervisorError> {
        if matches!(self.to, Sink::Inward(_) | Sink::Closed) {
            return Ok(());
        }
        loop {
            while self.done < self.pending.len() {
                if self.give_up(patience, signals)? {
                    self.to = Sink::Closed;
                    return Ok(());
                }
                self.write()?;
            }
            if !self.read()? && self.pending.is_empty() {
                return Ok(());
            }
        }
    }

    /// Waits until a write is possible. Whether it was in vain.
    fn give_up(
        &self,
        patience: PollTimeout,
        signals: Option<&Signals>,
    ) -> Result<bool, SupervisorError> {
        let Some((to, flags)) = self.waits_for() else { return Ok(false) };
        loop {
            let mut fds = vec![PollFd::new(to, flags)];
            fds.extend(signals.map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN)));
            if poll(&mut fds, patience) == Ok(0) {
                return Ok(true);
            }
            if fds[0].any() == Some(true) {
                return Ok(false);
            }
            if let Some(signals) = signals {
                let told = signals.told_to_end();
                if told.map_err(|errno| SupervisorError::Call("read a signal", errno))? {
                    return Ok(true);
                }
            }
        }
    }
}
