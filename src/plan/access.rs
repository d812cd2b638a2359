//! What the payload may do, and which walls must stand.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::policy::{Profile, Wearer};

/// A layer of isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wall {
    /// User, PID, mount, network, IPC, UTS and cgroup namespaces.
    Namespaces,
    /// All five capability sets empty, `no_new_privs` set.
    Capabilities,
    /// The system-call filter.
    Seccomp,
    /// A private file tree, read-only but for sized tmpfs.
    Mounts,
    /// A file-access domain of its own, nested in that of pid 1.
    Landlock,
    /// Memory, process and processor limits by cgroup v2.
    Cgroup,
    /// Limits per process and per user.
    Rlimits,
    /// A host uid that is not 0, and no supplementary group of root.
    Identity,
    /// A session keyring of its own.
    Keyring,
}

impl Wall {
    /// All, in the order in which reports list them.
    pub const ALL: [Self; 9] = [
        Self::Namespaces,
        Self::Identity,
        Self::Capabilities,
        Self::Seccomp,
        Self::Mounts,
        Self::Rlimits,
        Self::Keyring,
        Self::Landlock,
        Self::Cgroup,
    ];

    /// Whether a sandbox without it is never started. The others can be made required with
    /// `require = ["landlock", "cgroup"]`.
    #[must_use]
    pub const fn always_required(self) -> bool {
        !matches!(self, Self::Landlock | Self::Cgroup | Self::Keyring)
    }

    /// The name in settings and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Capabilities => "capabilities",
            Self::Seccomp => "seccomp",
            Self::Mounts => "mounts",
            Self::Landlock => "landlock",
            Self::Cgroup => "cgroup",
            Self::Rlimits => "rlimits",
            Self::Identity => "identity",
            Self::Keyring => "keyring",
        }
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Wall {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|wall| wall.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|wall| wall.name()).collect();
            format!("no wall is called {text:?}; the walls are {}", names.join(", "))
        })
    }
}

/// What stands at `/proc`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcMode {
    /// A fresh procfs of the sandbox's own PID namespace, host-wide entries masked.
    #[default]
    Fresh,
    /// An empty directory: for hosts whose kernel refuses a fresh procfs (containers).
    None,
}

impl FromStr for ProcMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fresh" => Ok(Self::Fresh),
            "none" => Ok(Self::None),
            _ => Err(format!("{text:?} is no mode of /proc; the modes are fresh and none")),
        }
    }
}

/// What the payload may call, and which walls must stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// How much the system-call filter allows.
    pub profile: Profile,
    /// Which interpreter's filter.
    pub wearer: Wearer,
    /// What stands at `/proc`.
    pub proc: ProcMode,
    /// Walls without which the run is refused, besides those that always are.
    pub require: BTreeSet<Wall>,
}

impl Access {
    /// Whether the run must be refused without `wall`.
    #[must_use]
    pub fn requires(&self, wall: Wall) -> bool {
        wall.always_required() || self.require.contains(&wall)
    }
}
