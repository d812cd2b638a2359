//! The caller's terminal, while the payload has one of its own.
//!
//! The payload's terminal lies in the sandbox's devpts; the caller's is never passed in. Pid 1
//! sends its other side, the master, which is read and written here. The caller's is in raw mode
//! meanwhile: Ctrl-C is a byte that the payload's terminal makes a signal of.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::termios::{self, FlushArg, SetArg, Termios};

use super::caller::is_anothers;
use super::filter::Filter;
use super::flow::Flow;
use super::{SupervisorError, set_nonblocking};
use crate::kernel;

/// Both terminals.
#[derive(Debug)]
pub(super) struct Console {
    input: OwnedFd,
    output: OwnedFd,
    filtered: bool,
    /// Where the master comes, until it has come.
    socket: Option<OwnedFd>,
    master: Option<OwnedFd>,
    raw: Option<Raw>,
}

impl Console {
    /// The caller's terminal, and the socket on which pid 1 sends the payload's.
    pub(super) const fn new(
        input: OwnedFd,
        output: OwnedFd,
        filtered: bool,
        socket: OwnedFd,
    ) -> Self {
        Self { input, output, filtered, socket: Some(socket), master: None, raw: None }
    }

    /// Readable when the master has come, or never will.
    pub(super) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Takes the master, gives it the size and the modes of the caller's terminal, and lets pid 1
    /// go on. The two directions; none if there is no master.
    pub(super) fn connect(&mut self) -> Result<Vec<Flow>, SupervisorError> {
        let Some(socket) = self.socket.take() else { return Ok(Vec::new()) };
        let master = kernel::receive_message(socket.as_fd()).map_err(failed)?;
        // Pid 1 has ended, and its report says why.
        let Some((_, mut fds)) = master else { return Ok(Vec::new()) };
        let master = fds.pop().ok_or(SupervisorError::Call("take the terminal", Errno::EBADF))?;
        set_nonblocking(&master)?;
        // Those of another are none of ours, such as a shell's that edits a line: then it keeps the
        // usual ones, which it was made with.
        if !is_anothers(&self.input) {
            let modes = termios::tcgetattr(&self.input).map_err(failed)?;
            // Through the master these are the modes of the other side.
            termios::tcsetattr(&master, SetArg::TCSANOW, &modes).map_err(failed)?;
        }
        let copy = |fd: &OwnedFd| {
            fd.try_clone().map_err(|_| SupervisorError::Call("copy a descriptor", Errno::EMFILE))
        };
        let filter = self.filtered.then(Filter::drawing);
        let flows = vec![
            Flow::outward(copy(&master)?, copy(&self.output)?, filter),
            Flow::inward(copy(&self.input)?, copy(&master)?)?,
        ];
        self.master = Some(master);
        self.resize();
        self.enter()?;
        kernel::send_message(socket.as_fd(), b"go", &[]).map_err(failed)?;
        Ok(flows)
    }

    /// The caller's terminal has another size. The kernel tells the payload.
    pub(super) fn resize(&self) {
        if let (Some(master), Ok(size)) = (&self.master, kernel::window_size(self.output.as_fd())) {
            // Best effort: a terminal of the wrong size is better than none.
            let _ = kernel::set_window_size(master.as_fd(), size);
        }
    }

    /// Raw mode, unless it is on: as soon as we have the terminal.
    pub(super) fn follow(&mut self) -> Result<(), SupervisorError> {
        if self.raw.is_none() { self.enter() } else { Ok(()) }
    }

    /// Raw mode, also if somebody has changed it behind our back. Not while another has the terminal:
    /// it has its own modes there.
    pub(super) fn enter(&mut self) -> Result<(), SupervisorError> {
        if is_anothers(&self.input) {
            self.leave();
            return Ok(());
        }
        if self.master.is_none() {
            return Ok(());
        }
        let entered = match &self.raw {
            Some(raw) => raw.apply(),
            None => {
                let tty = self.input.try_clone().map_err(|_| failed(Errno::EMFILE))?;
                Raw::enter(tty).map(|raw| self.raw = Some(raw))
            }
        };
        match entered {
            // It has hung up, which whoever reads it will notice.
            Ok(()) | Err(Errno::EIO) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// The modes that it had.
    pub(super) fn leave(&mut self) {
        self.raw = None;
    }
}

fn failed(errno: Errno) -> SupervisorError {
    SupervisorError::Call("connect the terminals", errno)
}

/// Raw mode; dropped, the terminal is as it was, whatever the way out.
#[derive(Debug)]
struct Raw {
    tty: OwnedFd,
    before: Termios,
}

impl Raw {
    fn enter(tty: OwnedFd) -> nix::Result<Self> {
        let before = termios::tcgetattr(&tty)?;
        let raw = Self { tty, before };
        raw.apply()?;
        Ok(raw)
    }

    fn apply(&self) -> nix::Result<()> {
        let mut modes = self.before.clone();
        termios::cfmakeraw(&mut modes);
        termios::tcsetattr(&self.tty, SetArg::TCSANOW, &modes)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if is_anothers(&self.tty) {
            return;
        }
        // A terminal answers to some sequences as if the answer were typed. What has not been read
        // by now was meant for the payload and must not become the first words at a prompt.
        let _ = termios::tcflush(&self.tty, FlushArg::TCIFLUSH);
        let _ = termios::tcsetattr(&self.tty, SetArg::TCSANOW, &self.before);
    }
}
