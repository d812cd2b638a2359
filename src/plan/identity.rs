//! Who the payload is.

use serde::{Deserialize, Serialize};

/// A user and a group id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Who the payload is, inside the sandbox and for the host's kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// What `id` prints inside. Never 0: no step and no program needs it.
    pub inside: Ids,
    /// What the host's kernel sees. Never uid 0: root's writes to `/proc/sys` pass a uid check
    /// without any capability, and `RLIMIT_NPROC` does not bind uid 0.
    pub outside: Ids,
    /// What `uname -n` prints.
    pub hostname: String,
}

impl Identity {
    /// The ids inside, in every sandbox.
    pub const INSIDE: Ids = Ids { uid: 1000, gid: 1000 };
    /// The host ids of a sandbox that root starts, unless the project's owner gives better ones.
    pub const FALLBACK_OUTSIDE: Ids = Ids { uid: 64000, gid: 64000 };
    /// The user's name inside.
    pub const USER: &'static str = "sandbox";
    /// The hostname inside.
    pub const HOSTNAME: &'static str = "sandbox";

    /// The usual identity for a given outside.
    #[must_use]
    pub fn of(outside: Ids) -> Self {
        Self { inside: Self::INSIDE, outside, hostname: Self::HOSTNAME.to_owned() }
    }
}
