//! Environments: what a sandbox offers to run code with.
//!
//! Bundled presets, artifacts that Nix built and programs found on this host all become one
//! [`Environment`]; nobody above this floor knows which it was.

pub mod agent;
pub mod artifact;
pub mod ask;
pub mod catalog;
pub mod flake;
pub mod host;
mod links;
pub(crate) mod place;
pub mod preset;
pub mod source;
pub mod store;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::plan::{Jail, LimitOverrides, Mount};
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

    /// The name of its program, in `bin/` of an environment and in `PATH` of a host.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Python => "python3",
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

    /// Whether it can be started before `code` is there, and does with it then what it does
    /// otherwise. Its code comes out of a FIFO: Bash reads what it cannot seek in byte by byte, and
    /// Python cannot begin anew in another encoding (PEP 263).
    #[must_use]
    pub fn can_wait_for(self, code: &[u8]) -> bool {
        match self {
            Self::Bash => false,
            Self::Python => {
                let mut first = code.split(|byte| *byte == b'\n').take(2);
                let has = |line: &[u8], word: &[u8]| line.windows(word.len()).any(|it| it == word);
                !first.any(|line| has(line, b"coding") && !has(line, b"utf-8"))
            }
            Self::Node => true,
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
    /// `/usr/bin/env` are among them. Nothing below `/proc`, `/dev`, `/workspace`, `/tmp`, `/code`,
    /// `/agent` or the project's place.
    pub mounts: Vec<Mount>,
    /// Where programs are looked up, as the sandbox sees it.
    pub path: Vec<PathBuf>,
    /// Further environment variables of its own.
    pub variables: BTreeMap<OsString, OsString>,
    /// Limits of its own, over the defaults and under the settings.
    pub limits: LimitOverrides,
    /// One line for people and models.
    pub description: String,
    /// Programs that would have come before its own and were not used: a sentence for each.
    pub passed_over: Vec<String>,
    /// What it was made of, where Nix made it.
    pub receipt: Option<Receipt>,
    /// The jails that Nix made beside it.
    pub jails: Option<Jails>,
}

/// Jails that Nix made for an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jails {
    /// For code.
    pub run: Jail,
    /// For the agent of a session.
    pub session: Jail,
}

/// What an environment that Nix built was made of: enough to have the same elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The store path with `bin/`.
    pub store_path: PathBuf,
    /// SHA-256 over the sorted store paths of the closure, each with a line feed after it: what
    /// `sort store-paths | sha256sum` prints.
    pub closure_sha256: String,
    /// Store paths in the closure.
    pub closure_paths: usize,
    /// The flake that it was built from at the start, and what that was locked to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flake: Option<flake::Lock>,
}

/// An artifact that the settings name themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    /// What it is called.
    pub name: String,
    /// The directory that Nix built.
    pub artifact: PathBuf,
    /// Limits over its own.
    pub limits: LimitOverrides,
}

/// Where environments are looked for: what the settings say of this host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sources {
    /// `PATH` of this process.
    pub path: Option<OsString>,
    /// The caller's home directory, without links in its path.
    pub home: Option<PathBuf>,
    /// The project, without links in its path. It must not supply an interpreter.
    pub project: Option<PathBuf>,
    /// The directory of artifacts.
    pub artifacts: Option<PathBuf>,
    /// Artifacts that the settings name.
    pub named: Vec<Named>,
    /// Flake references that are built at the start.
    pub flakes: Vec<flake::Flake>,
    /// Where their garbage-collector roots are.
    pub roots: Option<PathBuf>,
    /// Where a chroot store lies: `S` has `/nix/store` at `S/nix/store`.
    pub store_root: Option<PathBuf>,
    /// Who runs this program.
    pub euid: u32,
}

/// Where programs are when `PATH` does not say.
const FALLBACK_PATH: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

impl Sources {
    /// The directories in which programs are looked for: those of `PATH` that are absolute and not
    /// in the project, then the usual ones.
    pub(crate) fn search(&self) -> impl Iterator<Item = PathBuf> {
        self.everywhere().filter(|dir| !self.in_project(dir))
    }

    fn everywhere(&self) -> impl Iterator<Item = PathBuf> {
        let own = self.path.iter().flat_map(std::env::split_paths);
        let usual = FALLBACK_PATH.into_iter().map(PathBuf::from);
        own.filter(|dir| dir.is_absolute()).chain(usual)
    }

    /// The programs called `name` that we may execute, in the order of [`Self::search`].
    pub fn candidates(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        self.all_candidates(name).filter(|path| !self.in_project(path))
    }

    /// Likewise, those in the project too: to be told of, not to be executed.
    pub(crate) fn all_candidates(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        let executable = |path: &PathBuf| {
            let access = nix::unistd::AccessFlags::X_OK;
            nix::unistd::eaccess(path, access).is_ok() && path.is_file()
        };
        self.everywhere().map(move |dir| dir.join(name)).filter(executable)
    }

    /// What a program that is asked a question sees: `PATH`, `HOME`, and a plain locale.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        let path = std::env::join_paths(self.search()).ok().map(|path| ("PATH", path));
        let home = self.home.as_ref().map(|home| ("HOME", home.clone().into_os_string()));
        path.into_iter().chain(home).chain([("LC_ALL", OsString::from("C.UTF-8"))])
    }

    pub(crate) fn in_project(&self, path: &Path) -> bool {
        self.project.as_ref().is_some_and(|project| path.starts_with(project))
    }
}
