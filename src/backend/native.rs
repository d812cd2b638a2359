//! The engine of this crate.

use std::os::fd::OwnedFd;

use super::{Backend, BackendError, Handover, Started};
use crate::engine::cgroup::{Cgroups, Leaf, NoCgroup};
use crate::engine::sources::Sources;
use crate::engine::start::Begin;
use crate::engine::{Launch, Launcher};
use crate::outcome::{Strength, WallReport};
use crate::plan::{Plan, ProcMode, Wall};

/// The engine of this crate.
#[derive(Debug)]
pub struct Native {
    launcher: Launcher,
    sources: Sources,
    /// After the launcher, which lives in one of them and so must be dropped first.
    cgroups: Result<Cgroups, String>,
}

impl Native {
    /// The engine, with whoever clones for it and whoever opens its sources; without cgroups.
    #[must_use]
    pub fn new(launcher: Launcher, sources: Sources) -> Self {
        Self { launcher, sources, cgroups: Err("none was looked for".to_owned()) }
    }

    /// With cgroups, or with the reason why there are none.
    #[must_use]
    pub fn with_cgroups(self, cgroups: Result<Cgroups, NoCgroup>) -> Self {
        Self { cgroups: cgroups.map_err(|reason| reason.to_string()), ..self }
    }

    /// A cgroup for one run and what it holds; without one, what holds in its place.
    fn leaf(&self, plan: &Plan) -> (Option<Leaf>, WallReport) {
        let leaf = self
            .cgroups
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|cgroups| cgroups.leaf(plan.limits()).map_err(|error| error.to_string()));
        match leaf {
            Ok(leaf) => {
                let mut report = leaf.report().clone();
                if !leaf.holds_memory() {
                    report.detail.push_str("; memory: ");
                    report.detail.push_str(memory_without_cgroup(plan));
                }
                (Some(leaf), report)
            }
            Err(reason) => {
                let memory = memory_without_cgroup(plan);
                let detail = format!(
                    "memory: {memory}; processes: RLIMIT_NPROC; processor time: not limited; no cgroup, because {reason}"
                );
                (None, WallReport { wall: Wall::Cgroup, strength: Strength::Off, detail })
            }
        }
    }
}

const fn memory_without_cgroup(plan: &Plan) -> &'static str {
    match plan.access().proc {
        ProcMode::Fresh => "watched, best effort; many small memfds are not seen",
        ProcMode::None => "not watched, for want of /proc; files by the sizes of their tmpfs",
    }
}

fn refused(wall: Wall, reason: impl Into<String>) -> BackendError {
    BackendError::Refused { wall, reason: reason.into() }
}

impl Backend for Native {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn judge(&self, plan: &Plan) -> Result<(), BackendError> {
        if plan.access().requires(Wall::Cgroup) {
            let cgroups = self.cgroups.as_ref().map_err(|reason| refused(Wall::Cgroup, reason))?;
            let missing = cgroups.missing();
            if !missing.is_empty() {
                let reason = format!("not delegated: {}", missing.join(", "));
                return Err(refused(Wall::Cgroup, reason));
            }
        }
        if plan.access().requires(Wall::Landlock) && crate::kernel::landlock_abi().is_none() {
            let reason = "this kernel has no Landlock (built without it, or missing in the boot parameter `lsm=`)";
            return Err(refused(Wall::Landlock, reason));
        }
        Ok(())
    }

    fn mend(&self) -> Result<Option<OwnedFd>, BackendError> {
        Ok(self.launcher.mend()?)
    }

    fn start(&self, plan: Plan, handover: Handover) -> Result<Started, BackendError> {
        let (leaf, wall) = self.leaf(&plan);
        if leaf.is_none() && plan.access().requires(Wall::Cgroup) {
            return Err(refused(Wall::Cgroup, wall.detail));
        }
        let cgroup = leaf.as_ref().map(Leaf::fd).transpose()?;
        let watch_memory = !leaf.as_ref().is_some_and(Leaf::holds_memory);
        let begin = Begin::Now(handover);
        let launch = Launch { plan, begin, sources: Vec::new(), cgroup, watch_memory };
        let sandbox = self.launcher.launch(launch, &self.sources)?;
        Ok(Started { pidfd: sandbox.pidfd, walls: vec![wall], leaf })
    }
}
