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
pub(crate) use builder::{is_plain, lies_in};
pub use identity::{Identity, Ids};
pub use limits::{Limit, LimitError, LimitOverrides, Limits, parse_size};
pub use mount::{FileIdentity, HostFile, Mount, MountKind, OUTPUTS};

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// What Nix built to run these very arguments, for a backend that makes use of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jail: Option<Jail>,
}

/// A program of the host that makes a jail out of a part of a Nix store and runs one interpreter in it,
/// with the arguments that it is given. It is started as what it is, outside of any sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jail {
    /// The program, which lies in the store.
    pub program: HostFile,
    /// The store. What the plan shows below it the jail shows by itself.
    #[serde(with = "os_text::path")]
    pub store: PathBuf,
}

impl Jail {
    /// Whether it shows this by itself: what of its store is at the place that it has on the host.
    #[must_use]
    pub fn shows(&self, mount: &Mount) -> bool {
        let alike = match &mount.kind {
            MountKind::Bind { source } => source.path == mount.at,
            MountKind::Symlink { .. } => true,
            _ => false,
        };
        alike && mount.at.starts_with(&self.store)
    }
}

/// A complete, checked description of one sandbox.
///
/// Fields are private: see [`PlanBuilder`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PlanBuilder", into = "PlanBuilder")]
pub struct Plan {
    environment: String,
    identity: Identity,
    /// Shared: a closure may have a thousand, and each launch has copies of its plan.
    mounts: Arc<[Mount]>,
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

    /// What this plan has in common with others of its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind { mounts: Arc::clone(&self.mounts), proc: self.access.proc }
    }

    /// Whether a sandbox made for this plan can serve `other`: all is alike but what is run and what
    /// is watched from outside (time and output).
    #[must_use]
    pub fn stands_for(&self, other: &Self) -> bool {
        let Limits { time_ms, output, .. } = other.limits;
        self.identity == other.identity
            && self.access == other.access
            && Limits { time_ms, output, ..self.limits } == other.limits
            && self.environment == other.environment
            && self.mounts == other.mounts
    }

    /// The same without the mounts that can be shown to many sandboxes alike: what is left to do
    /// where those stand already.
    #[must_use]
    pub fn own_part(&self) -> Self {
        let mounts = self.mounts.iter().filter(|mount| mount.kind.is_own()).cloned().collect();
        Self {
            environment: self.environment.clone(),
            identity: self.identity.clone(),
            mounts,
            limits: self.limits,
            access: self.access.clone(),
            command: self.command.clone(),
        }
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

/// The file tree of a plan, whatever the sizes of its writable parts: plans of one kind can have one
/// tree made ahead.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    mounts: Arc<[Mount]>,
    proc: ProcMode,
}

impl Kind {
    /// Whether `plan` is of this kind.
    #[must_use]
    pub fn is_of(&self, plan: &Plan) -> bool {
        let alike = |(a, b): (&Mount, &Mount)| a == b || (a.at == b.at && sized_alike(a, b));
        self.proc == plan.access.proc
            && self.mounts.len() == plan.mounts.len()
            && self.mounts.iter().zip(plan.mounts.iter()).all(alike)
    }
}

const fn sized_alike(a: &Mount, b: &Mount) -> bool {
    matches!(
        (&a.kind, &b.kind),
        (MountKind::Tmpfs { .. }, MountKind::Tmpfs { .. })
            | (MountKind::Devices { .. }, MountKind::Devices { .. })
    )
}
