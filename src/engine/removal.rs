//! Taking single walls away, to show which of them stops what: in test builds only.
//!
//! `docs/evidence/walls.md` is made by running every escape with walls missing. That needs an engine
//! that can leave one out. Only a build with the feature `wall-removal` can; in every other build the
//! functions below are constants, and a test sees that the program knows nothing of the switch.

use super::steps::Step;
use crate::kernel::{Attributes, Namespaces};

/// A wall that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The filters of the payload and of pid 1.
    Seccomp,
    /// A cgroup of its own.
    Cgroup,
    /// The watch on memory that stands in for a cgroup.
    Watch,
}

#[cfg(not(feature = "wall-removal"))]
mod switch {
    use super::{Attributes, Namespaces, Part, Step};

    pub(in super::super) const fn stands(_: Part) -> bool {
        true
    }

    pub(in super::super) const fn namespaces() -> Namespaces {
        Namespaces::ALL
    }

    pub(in super::super) const fn attributes(all: Attributes) -> Attributes {
        all
    }

    pub(in super::super) const fn standing(steps: Vec<Step<'_>>) -> Vec<Step<'_>> {
        steps
    }

    pub(in super::super) const fn keep_capabilities() {}
}

#[cfg(feature = "wall-removal")]
mod switch {
    use std::sync::OnceLock;

    use super::{Attributes, Namespaces, Part, Step};

    /// Names of walls, separated by commas.
    const VARIABLE: &str = "NIX_SANDBOX_TEST_WITHOUT";

    /// Whether a wall is named. Asked first before the clone: later the variable is wiped out.
    fn without(wall: &str) -> bool {
        static REMOVED: OnceLock<String> = OnceLock::new();
        let removed = REMOVED.get_or_init(|| std::env::var(VARIABLE).unwrap_or_default());
        removed.split(',').any(|name| name == wall)
    }

    pub(in super::super) fn stands(part: Part) -> bool {
        !match part {
            Part::Seccomp => without("seccomp"),
            Part::Cgroup => without("cgroup"),
            Part::Watch => without("watch"),
        }
    }

    pub(in super::super) fn namespaces() -> Namespaces {
        if without("network") { Namespaces::BUT_NETWORK } else { Namespaces::ALL }
    }

    /// The attributes of what is shown of the host.
    pub(in super::super) fn attributes(all: Attributes) -> Attributes {
        if without("read-only") { Attributes::NOSUID.and(Attributes::NODEV) } else { all }
    }

    /// The steps without those of removed walls.
    pub(in super::super) fn standing(mut steps: Vec<Step<'_>>) -> Vec<Step<'_>> {
        steps.retain(|step| !match step {
            Step::LoopbackUp => without("network"),
            Step::NewKeyring => without("keyring"),
            Step::SealRoot => without("read-only"),
            Step::MaskProc => without("masks"),
            Step::OpenNamespaceLimits | Step::WriteNamespaceLimits => without("namespace-limits"),
            Step::Rlimits(_) => without("rlimits"),
            Step::DropCapabilities => without("capabilities"),
            Step::Undumpable => without("undumpable"),
            Step::Landlock | Step::NestedLandlock => without("landlock"),
            _ => false,
        });
        steps
    }

    /// An exec by anybody but uid 0 drops capabilities by itself, unless they are ambient.
    pub(in super::super) fn keep_capabilities() {
        use caps::{CapSet, all};
        if without("capabilities") {
            let _ = caps::set(None, CapSet::Inheritable, &all());
            for capability in all() {
                let _ = caps::raise(None, CapSet::Inheritable, capability);
                let _ = caps::raise(None, CapSet::Ambient, capability);
            }
        }
    }
}

pub(super) use switch::{attributes, keep_capabilities, namespaces, standing, stands};
