//! What a caller asked for.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::plan::LimitOverrides;

/// What shall be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Source text for the environment's interpreter; any bytes.
    Code(Vec<u8>),
    /// A program with its arguments.
    Command(Vec<OsString>),
}

/// The name of a session: `[A-Za-z0-9_.-]{1,64}`. Never a path, never handed to a shell.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionName(String);

impl SessionName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SessionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "{:?} is no name for a session; use 1 to 64 of A-Z, a-z, 0-9, `_`, `.` and `-`",
            beginning(text)
        ))
    }
}

/// As much of a name as is told of one that is none: it may be of any length.
#[must_use]
pub fn beginning(name: &str) -> &str {
    name.char_indices().nth(80).map_or(name, |(end, _)| &name[..end])
}

/// What is known of a request that was refused before it could be run: the caller's words, unchecked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Draft<'r> {
    /// The environment that it names.
    pub environment: Option<&'r str>,
    /// The session that it names.
    pub session: Option<&'r str>,
    /// Its code.
    pub code: Option<&'r [u8]>,
}

/// What a caller asked for. Whatever is not said here comes from the environment and the settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The environment's name.
    pub environment: String,
    /// What shall be run.
    pub work: Work,
    /// The session in which code is run, its state that of the calls before. Without one, the
    /// sandbox is new and gone afterwards.
    pub session: Option<SessionName>,
    /// A shorter wall-clock limit, or a longer one, up to [`crate::planner::MOST_TIME`].
    pub timeout: Option<Duration>,
    /// Limits that the operator has set for this request: whoever sits at a command line, never a
    /// model.
    pub limits: LimitOverrides,
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
        Self {
            environment: environment.into(),
            work,
            session: None,
            timeout: None,
            limits: LimitOverrides::default(),
            terminal: None,
        }
    }

    /// What is told of it where it is not run.
    #[must_use]
    pub fn draft(&self) -> Draft<'_> {
        Draft {
            environment: Some(&self.environment),
            session: self.session.as_ref().map(SessionName::as_str),
            code: match &self.work {
                Work::Code(code) => Some(code),
                Work::Command(_) => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_names_are_plain() {
        for name in ["a", "A-b_c.9", &"x".repeat(64)] {
            assert_eq!(name.parse::<SessionName>().expect(name).as_str(), name);
        }
        for name in
            ["", "../../x", "/etc/x", "a\0b", "a b", "a\n", "é", "%s$", "$(id)", &"x".repeat(65)]
        {
            let error = name.parse::<SessionName>().expect_err(name);
            assert!(error.contains("is no name for a session"), "{error}");
        }
        assert_eq!(beginning(&"é".repeat(100)), "é".repeat(80));
    }
}
