//! How a run ended, what it wrote, what it used and which walls stood.
//!
//! Whatever sandboxed code does is an [`Outcome`]; an error is the caller's fault, the host's, or
//! ours.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::Wall;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Ending {
    /// The main process exited.
    Exited {
        /// Its exit code, 0 to 255.
        code: i32,
    },
    /// A signal ended the main process.
    Signaled {
        /// The signal's number.
        signal: i32,
    },
    /// The wall-clock limit was reached.
    TimedOut {
        /// The limit, milliseconds.
        after_ms: u64,
    },
    /// The sandbox needed more memory than its limit.
    OutOfMemory,
    /// The sandbox wrote more than its limit.
    OutputLimit {
        /// The limit, bytes.
        bytes: u64,
    },
    /// The caller cancelled.
    Cancelled,
    /// Code in a session answered in the place of the session's agent; it was ended.
    Interfered,
    /// The sandbox stood, but the program could not be executed.
    CouldNotStart {
        /// The program.
        program: String,
        /// The kernel's answer: an errno.
        errno: i32,
    },
}

impl Ending {
    /// The exit code that a shell or `timeout(1)` would give: the command's own, 128+n for a
    /// signal, 124 for a time-out, 126 and 127 for a program that cannot be executed or found,
    /// 137 (killed) where we ended it for another reason.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let code = match self {
            Self::Exited { code } => *code,
            Self::Signaled { signal } => 128 + signal,
            Self::TimedOut { .. } => 124,
            Self::CouldNotStart { errno, .. } if *errno == nix::errno::Errno::ENOENT as i32 => 127,
            Self::CouldNotStart { .. } => 126,
            Self::OutOfMemory | Self::OutputLimit { .. } | Self::Cancelled | Self::Interfered => {
                137
            }
        };
        u8::try_from(code & 0xff).unwrap_or(u8::MAX)
    }

    /// Whether the main process exited with code 0.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Exited { code: 0 })
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "exit {code}"),
            Self::Signaled { signal } => match nix::sys::signal::Signal::try_from(*signal) {
                Ok(name) => write!(f, "killed by {name}"),
                Err(_) => write!(f, "killed by signal {signal}"),
            },
            Self::TimedOut { after_ms } => {
                write!(f, "timed out after {} s", Duration::from_millis(*after_ms).as_secs_f64())
            }
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::OutputLimit { bytes } => write!(f, "stopped: wrote more than {bytes} bytes"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Interfered => f.write_str("ended: code answered in the place of its interpreter"),
            Self::CouldNotStart { program, errno } => {
                let why = match nix::errno::Errno::from_raw(*errno) {
                    nix::errno::Errno::ENOENT => {
                        "not found (or its interpreter or loader is missing)".to_owned()
                    }
                    errno => errno.desc().to_lowercase(),
                };
                write!(f, "could not start {program}: {why}")
            }
        }
    }
}

/// What was kept of one stream.
///
/// Head and tail are kept when it is longer than the cap; `bytes` always counts all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// The beginning; everything, if nothing was left out.
    pub head: Vec<u8>,
    /// The end, if something was left out between it and the head.
    pub tail: Vec<u8>,
    /// How many bytes were written in all.
    pub bytes: u64,
}

impl Stream {
    /// How many bytes were left out between head and tail.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.bytes.saturating_sub((self.head.len() + self.tail.len()) as u64)
    }

    /// What was kept where that is not all: `first and last 512 KiB`.
    #[must_use]
    pub fn ends(&self) -> Option<String> {
        let each = self.head.len().min(self.tail.len());
        (self.left_out() > 0).then(|| format!("first and last {} KiB", each >> 10))
    }

    /// Everything that was kept, a gap marked in words.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all = self.head.clone();
        if self.left_out() > 0 {
            all.extend_from_slice(
                format!("\n[… {} bytes left out …]\n", self.left_out()).as_bytes(),
            );
        }
        all.extend_from_slice(&self.tail);
        all
    }
}

/// About so many bytes of a run's output are shown to a model: more it reads worse.
pub const INLINE: usize = 8 << 10;

/// A picture that a run made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its path below `/workspace`; the run's words.
    pub name: String,
    /// `image/png` and the like, by its first bytes.
    pub mime: &'static str,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// A picture that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its path below `/workspace`; the run's words.
    pub name: String,
    /// How large it is.
    pub bytes: u64,
    /// Why: a few words.
    pub why: &'static str,
}

/// What a run left besides what is in its streams. Only a server looks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// Where later sandboxes of the same server find what was kept of its standard output, if that
    /// is long.
    pub stdout: Option<String>,
    /// Likewise its standard error.
    pub stderr: Option<String>,
    /// Pictures that it made or changed in `/workspace`, the oldest first.
    pub images: Vec<Image>,
    /// Those that were not taken.
    pub left_out: Vec<LeftOut>,
    /// How many files were looked at, if there are more.
    pub looked_at: Option<usize>,
}

/// In which order both streams were written, as far as their pipes show it: what was written between
/// two looks at both counts as written stream by stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    runs: Vec<(Source, usize)>,
    too_many: bool,
}

/// One of the two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Order {
    /// More changes from one stream to the other tell nobody anything.
    const MOST: usize = 16;

    /// Notes that `bytes` more came from `source`.
    pub fn note(&mut self, source: Source, bytes: usize) {
        if bytes == 0 || self.too_many {
            return;
        }
        let full = self.runs.len() >= Self::MOST;
        match self.runs.last_mut() {
            Some((last, length)) if *last == source => *length += bytes,
            _ if full => self.too_many = true,
            _ => self.runs.push((source, bytes)),
        }
    }

    /// The runs, if they are known from the first byte to the last.
    #[must_use]
    pub fn runs(&self) -> &[(Source, usize)] {
        if self.too_many { &[] } else { &self.runs }
    }
}

/// What a run used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// From the start of the payload to its end, microseconds.
    pub wall_us: u64,
    /// Processor time in user and kernel mode, microseconds: of the sandbox where a cgroup measured
    /// it, else of every process that was waited for.
    pub cpu_us: u64,
    /// The most memory in use, bytes: of the sandbox where a cgroup measured it, else of its
    /// largest process.
    pub peak_memory: u64,
    /// The most processes and threads at once, pid 1 among them, where a cgroup counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_pids: Option<u64>,
}

/// How much of one wall stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strength {
    /// All of it.
    Active,
    /// Some of it; the detail says what is missing.
    Weaker,
    /// Nothing; the detail says why.
    Off,
}

/// One wall as it stood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WallReport {
    /// Which.
    pub wall: Wall,
    /// How much of it.
    pub strength: Strength,
    /// What it covered, or what is missing and why, in words.
    pub detail: String,
}

/// The walls of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Enforced(pub Vec<WallReport>);

impl Enforced {
    /// The report of one wall.
    #[must_use]
    pub fn get(&self, wall: Wall) -> Option<&WallReport> {
        self.0.iter().find(|report| report.wall == wall)
    }

    /// The walls that do not stand whole.
    pub fn missing(&self) -> impl Iterator<Item = &WallReport> {
        self.0.iter().filter(|report| report.strength != Strength::Active)
    }
}

/// What became of a session by one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionNote {
    /// Its name.
    pub name: String,
    /// Whether its state (variables, imports, files) is still there for the next call.
    pub kept: bool,
    /// Where this call began anew though there had been state: why that is gone.
    pub restarted: Option<String>,
    /// What background jobs wrote between the last call and this one.
    pub late: Stream,
}

/// How a run ended, what it wrote, what it used and which walls stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// What it wrote to its standard output.
    pub stdout: Stream,
    /// What it wrote to its standard error.
    pub stderr: Stream,
    /// In which order.
    pub order: Order,
    /// What it used.
    pub usage: Usage,
    /// Which walls stood.
    pub enforced: Enforced,
    /// What became of the session, if the call named one.
    pub session: Option<SessionNote>,
    /// What it left besides.
    pub files: Files,
}
