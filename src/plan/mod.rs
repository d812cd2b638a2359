//! What shall hold in one sandbox: a [`Plan`].
//!
//! Pure values: no I/O, no system calls, no clock. A plan is made by the planner, printed by
//! `nix-sandbox-mcp plan`, judged by a backend and enacted by the engine. It exists only through
//! [`PlanBuilder::build`], also when it comes off a wire, so what must never be (a writable
//! project, a mount over `/proc`, host uid 0) cannot be written down.

mod access;
mod builder;
mod identity;
mod limits;
mod mount;
pub(crate) mod os_text;

pub use access::{Access, ProcMode, Wall};
pub use builder::{PlanBuilder, PlanError};
pub use identity::{Identity, Ids};
pub use limits::{Limit, LimitError, LimitOverrides, Limits, parse_size};
pub use mount::{FileIdentity, HostFile, Mount, MountKind, OUTPUTS};

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What the payload is: one program, its arguments, its whole environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments. A program without `/` is looked up in the `PATH` of `variables`.
    #[serde(with = "os_text::list")]
    pub arguments: Vec<OsString>,
    /// Every environment variable that the payload gets; nothing is inherited.
    #[serde(with = "os_text::map")]
    pub variables: BTreeMap<OsString, OsString>,
    /// Working directory.
    #[serde(with = "os_text::path")]
    pub directory: PathBuf,
}

/// A complete, checked description of one sandbox.
///
/// Fields are private: see [`PlanBuilder`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PlanBuilder", into = "PlanBuilder")]
pub struct Plan {
    environment: String,
    identity: Identity,
    mounts: Vec<Mount>,
    limits: Limits,
    access: Access,
    command: Command,
}

impl Plan {
    /// The environment's name.
    #[must_use]
    pub fn environment(&self) -> &str {
        &self.environment
    }

    /// Who the payload is, inside and outside.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Everything in the sandbox's file tree, parents before children.
    #[must_use]
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// How much the payload may use.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What the payload may call and which walls must stand.
    #[must_use]
    pub const fn access(&self) -> &Access {
        &self.access
    }

    /// What is run.
    #[must_use]
    pub const fn command(&self) -> &Command {
        &self.command
    }

    /// Whether a writable tmpfs stands at `path`.
    #[must_use]
    pub fn is_writable(&self, path: &Path) -> bool {
        self.mounts
            .iter()
            .rfind(|mount| path.starts_with(&mount.at))
            .is_some_and(|mount| matches!(mount.kind, MountKind::Tmpfs { .. }))
    }
}
