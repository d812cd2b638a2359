//! Environments: what a sandbox offers to run code with.
//!
//! Bundled presets, artifacts that Nix built and programs found on this host all become one
//! [`Environment`]; nobody above this floor knows which it was.

pub mod catalog;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::plan::{LimitOverrides, Mount};
use crate::policy::Wearer;

/// The language an environment speaks: `interpreter_type` in `metadata.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interpreter {
    /// GNU Bash.
    Bash,
    /// CPython.
    Python,
    /// Node.js.
    Node,
}

impl Interpreter {
    /// The name in `metadata.json` and presets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Python => "python",
            Self::Node => "node",
        }
    }

    /// Which system-call filter its payload wears.
    #[must_use]
    pub const fn wearer(self) -> Wearer {
        match self {
            Self::Bash => Wearer::Shell,
            Self::Python => Wearer::Python,
            Self::Node => Wearer::Node,
        }
    }

    /// The file in which code is handed to it. Named for tracebacks: `/code/main.py`.
    #[must_use]
    pub const fn code_file(self) -> &'static str {
        match self {
            Self::Bash => "/code/main.sh",
            Self::Python => "/code/main.py",
            Self::Node => "/code/main.js",
        }
    }

    /// What stands between the interpreter and the code file on its command line. Python is
    /// unbuffered, so that a time-out loses nothing that was printed.
    #[must_use]
    pub const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Bash | Self::Node => &[],
            Self::Python => &["-u"],
        }
    }
}

impl fmt::Display for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Interpreter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bash" => Ok(Self::Bash),
            "python" => Ok(Self::Python),
            "node" => Ok(Self::Node),
            _ => Err(format!("{text:?} is no interpreter; there are bash, python and node")),
        }
    }
}

/// Where an environment came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Origin {
    /// A bundled preset, with programs found on this host.
    Host,
    /// A directory that Nix built.
    Artifact {
        /// The directory.
        path: PathBuf,
    },
}

/// What a sandbox offers to run code with. Complete: nothing is looked up later.
#[derive(Debug, Clone, PartialEq)]
pub struct Environment {
    /// Its name: `[A-Za-z0-9_.-]{1,64}`.
    pub name: String,
    /// The language it speaks.
    pub interpreter: Interpreter,
    /// Where it came from.
    pub origin: Origin,
    /// The interpreter, as the sandbox sees it; absolute.
    pub program: PathBuf,
    /// What it needs in the sandbox's file tree: binds, links and small files. `/bin/sh` and
    /// `/usr/bin/env` are among them. Nothing below `/proc`, `/dev`, `/workspace`, `/tmp`, `/code`
    /// or the project's place.
    pub mounts: Vec<Mount>,
    /// Where programs are looked up, as the sandbox sees it.
    pub path: Vec<PathBuf>,
    /// Further environment variables of its own.
    pub variables: BTreeMap<OsString, OsString>,
    /// Limits of its own, over the defaults and under the settings.
    pub limits: LimitOverrides,
    /// One line for people and models.
    pub description: String,
}
