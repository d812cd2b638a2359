//! The engine of this crate.

use super::{Backend, BackendError, Handover, Started};
use crate::engine::sources::Sources;
use crate::engine::{Launch, Launcher};
use crate::outcome::{Strength, WallReport};
use crate::plan::{Plan, Wall};

/// The engine of this crate.
#[derive(Debug)]
pub struct Native {
    launcher: Launcher,
    sources: Sources,
}

/// Why there is no cgroup.
const NO_CGROUP: &str = "memory and processor time are not limited as a whole: no cgroup v2 subtree is used; processes are limited by RLIMIT_NPROC, files by the sizes of /workspace, /tmp and /dev/shm";

impl Native {
    /// The engine, with whoever clones for it and whoever opens its sources.
    #[must_use]
    pub const fn new(launcher: Launcher, sources: Sources) -> Self {
        Self { launcher, sources }
    }
}

impl Backend for Native {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn judge(&self, plan: &Plan) -> Result<(), BackendError> {
        if plan.access().requires(Wall::Cgroup) {
            return Err(BackendError::Refused { wall: Wall::Cgroup, reason: NO_CGROUP.to_owned() });
        }
        if plan.access().requires(Wall::Landlock) && crate::kernel::landlock_abi().is_none() {
            let reason = "this kernel has no Landlock (built without it, or missing in the boot parameter `lsm=`)";
            return Err(BackendError::Refused { wall: Wall::Landlock, reason: reason.to_owned() });
        }
        Ok(())
    }

    fn start(&self, plan: Plan, handover: Handover) -> Result<Started, BackendError> {
        let sources = self.sources.open(&plan)?;
        let Handover { stdio, report, code, terminal, control } = handover;
        let launch = Launch { plan, stdio, report, code, sources, terminal, control };
        let sandbox = self.launcher.launch(launch)?;
        let cgroup = WallReport {
            wall: Wall::Cgroup,
            strength: Strength::Off,
            detail: NO_CGROUP.to_owned(),
        };
        Ok(Started { pidfd: sandbox.pidfd, walls: vec![cgroup] })
    }
}
