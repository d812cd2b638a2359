//! What a sandbox tells its supervisor: lines of JSON on a pipe that the payload never holds.

use std::fmt;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::{Deserialize, Serialize};

use crate::kernel;
use crate::outcome::WallReport;

/// A step that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
pub struct StepError {
    /// What was tried, as a verb phrase: `mount read-only`.
    pub step: String,
    /// On what: a path, a name; empty where the step says it all.
    pub subject: String,
    /// The kernel's answer.
    pub errno: i32,
}

impl StepError {
    /// Longest subject that is told, bytes: a report line must fit one atomic pipe write.
    const SUBJECT_MAX: usize = 1024;

    /// A failed step.
    pub fn new(step: impl Into<String>, subject: impl fmt::Display, errno: Errno) -> Self {
        let mut subject = subject.to_string();
        if subject.len() > Self::SUBJECT_MAX {
            let mut end = Self::SUBJECT_MAX;
            while !subject.is_char_boundary(end) {
                end -= 1;
            }
            subject.truncate(end);
            subject.push('…');
        }
        Self { step: step.into(), subject, errno: errno as i32 }
    }

    /// The kernel's answer as a value.
    #[must_use]
    pub fn errno(&self) -> Errno {
        Errno::from_raw(self.errno)
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.step)?;
        if !self.subject.is_empty() {
            write!(f, " {}", self.subject)?;
        }
        let errno = self.errno();
        write!(f, ": {errno:?} ({})", errno.desc())
    }
}

/// What a step comes to.
pub(crate) type Done = Result<(), StepError>;

/// Gives an errno its step and subject.
pub(super) trait At<T> {
    /// `step` is a verb phrase, `subject` what it was tried on.
    fn at(self, step: &str, subject: impl std::fmt::Display) -> Result<T, StepError>;
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, step: &str, subject: impl std::fmt::Display) -> Result<T, StepError> {
        self.map_err(|errno| StepError::new(step, subject, errno))
    }
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, step: &str, subject: impl std::fmt::Display) -> Result<T, StepError> {
        self.map_err(|error| {
            let errno = kernel::errno(&error);
            StepError::new(step, subject, errno)
        })
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Report {
    /// A step failed; no payload ran.
    Failed(StepError),
    /// Every wall stands; the payload is started next.
    Ready {
        /// How the walls stand that pid 1 raised.
        walls: Vec<WallReport>,
    },
    /// Every wall stands, but the program could not be executed.
    NotExecuted {
        /// The program.
        program: String,
        /// The kernel's answer.
        errno: i32,
    },
    /// How long each step took, where that was asked for: what was done, microseconds.
    Took {
        /// In their order.
        steps: Vec<(String, u64)>,
    },
    /// The payload's main process was stopped, by Ctrl-Z or a signal.
    Stopped,
    /// The payload's main process ended.
    Ended {
        /// As wait(2) gives it.
        ending: Ended,
        /// From the payload's start to its end, microseconds.
        wall_us: u64,
        /// Processor time of all that pid 1 waited for, microseconds.
        cpu_us: u64,
        /// Largest resident set of one process, bytes; of the sandbox if that was above its limit.
        peak_memory: u64,
        /// Whether it was the last: nothing else is left that pid 1 would take along.
        alone: bool,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Pid 1 ended it: the sandbox used more memory than its limit.
    OverMemory,
}

impl Report {
    /// Writes one line with one call, so that lines of two writers cannot mix (pipe(7)).
    ///
    /// # Errors
    /// `EPIPE` when the supervisor is gone.
    pub fn send(&self, mut to: &std::fs::File) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)
    }

    /// Reads one line.
    ///
    /// # Errors
    /// For what no sandbox of this version would send.
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }
}

/// A fresh report pipe: read end, write end.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn pipe() -> nix::Result<(OwnedFd, OwnedFd)> {
    nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
}

/// Longest report line, bytes: the walls and what they say.
const LINE: usize = 64 << 10;

/// The supervisor's end of the pipe.
#[derive(Debug)]
pub struct Reader {
    pipe: OwnedFd,
    pending: Vec<u8>,
    closed: bool,
}

/// Why reports cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No sandbox of this version says that.
    #[error("the sandbox reported nonsense: {0}")]
    Nonsense(String),
    /// The kernel refused to read.
    #[error("read the report: {0}")]
    Read(Errno),
}

impl Reader {
    /// Takes the read end; from now on it never waits.
    ///
    /// # Errors
    /// Never in practice.
    pub fn new(pipe: OwnedFd) -> nix::Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { pipe, pending: Vec::new(), closed: false })
    }

    /// Readable when there is something to read.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Whether every writer has gone: pid 1 has ended.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// What has been reported since.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&mut self) -> Result<Vec<Report>, ReadError> {
        let mut buffer = [0; 4096];
        loop {
            match nix::unistd::read(&self.pipe, &mut buffer) {
                Ok(0) => {
                    self.closed = true;
                    break;
                }
                Ok(length) => self.pending.extend_from_slice(&buffer[..length]),
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(ReadError::Read(errno)),
            }
        }
        let mut reports = Vec::new();
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            let report = Report::parse(&line);
            reports.push(report.map_err(|error| ReadError::Nonsense(error.to_string()))?);
        }
        if self.pending.len() > LINE {
            return Err(ReadError::Nonsense("a line without end".to_owned()));
        }
        Ok(reports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_step_is_told_as_one_sentence() {
        let error = StepError::new("mount read-only", "/nix/store/abc-python3", Errno::EPERM);
        assert_eq!(
            error.to_string(),
            "mount read-only /nix/store/abc-python3: EPERM (Operation not permitted)"
        );
        let error = StepError::new("bring lo up", "", Errno::ENODEV);
        assert_eq!(error.to_string(), "bring lo up: ENODEV (No such device)");
    }

    #[test]
    fn a_long_subject_still_fits_one_atomic_write() {
        let error = StepError::new("mount", "é".repeat(5000), Errno::EPERM);
        assert!(serde_json::to_vec(&Report::Failed(error)).expect("json").len() < 4096);
    }
}
