//! What a caller asked for.

use std::ffi::OsString;
use std::time::Duration;

/// What shall be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Source text for the environment's interpreter; any bytes.
    Code(Vec<u8>),
    /// A program with its arguments.
    Command(Vec<OsString>),
}

/// What a caller asked for. Whatever is not said here comes from the environment and the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The environment's name.
    pub environment: String,
    /// What shall be run.
    pub work: Work,
    /// A shorter (or, up to the environment's maximum, longer) wall-clock limit.
    pub timeout: Option<Duration>,
    /// Another memory limit, bytes.
    pub memory: Option<u64>,
    /// A terminal of its own, with what `TERM` shall say of it. Whoever sits before it decides how
    /// long it takes: without `timeout` there is no time limit but the longest there is.
    pub terminal: Option<OsString>,
}

impl Request {
    /// The largest source text, bytes. Larger ones are refused before anything is allocated.
    pub const MAX_CODE: usize = 8 << 20;

    /// A request with nothing but an environment and some work.
    #[must_use]
    pub fn new(environment: impl Into<String>, work: Work) -> Self {
        Self { environment: environment.into(), work, timeout: None, memory: None, terminal: None }
    }
}
