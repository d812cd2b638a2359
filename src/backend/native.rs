//! The engine of this crate.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::pool::{Pool, Standing};
use super::{Backend, BackendError, Handover, Started, StepError};
use crate::engine::cgroup::{Cgroups, Leaf, NoCgroup};
use crate::engine::sources::Sources;
use crate::engine::start::{Begin, wait_until_standing};
use crate::engine::{Launch, Launcher};
use crate::outcome::{Strength, WallReport};
use crate::plan::{Plan, ProcMode, Wall};

/// The engine of this crate.
#[derive(Debug)]
pub struct Native {
    /// Before what it is made with.
    pool: Option<Pool>,
    hands: Arc<Hands>,
}

/// What a launch is made with.
#[derive(Debug)]
struct Hands {
    launcher: Launcher,
    sources: Sources,
    /// After the launcher, which lives in one of them and so must be dropped first.
    cgroups: Result<Cgroups, String>,
}

impl Native {
    /// The engine, with whoever clones for it, whoever opens its sources, and cgroups or the reason
    /// why there are none.
    #[must_use]
    pub fn new(launcher: Launcher, sources: Sources, cgroups: Result<Cgroups, NoCgroup>) -> Self {
        let cgroups = cgroups.map_err(|reason| reason.to_string());
        Self { pool: None, hands: Arc::new(Hands { launcher, sources, cgroups }) }
    }

    /// With at most `most` sandboxes that stand ready. Starts a thread, so only for whoever has a
    /// launcher process.
    #[must_use]
    pub fn with_pool(mut self, most: usize) -> Self {
        if most > 0 {
            let hands = Arc::clone(&self.hands);
            self.pool = Some(Pool::new(most, Arc::new(move |plan| hands.make_ahead(plan))));
        }
        self
    }
}

impl Hands {
    /// A cgroup for one run and what it holds; without one, what holds in its place.
    fn leaf(&self, plan: &Plan) -> Result<(Option<Leaf>, WallReport), BackendError> {
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
                Ok((Some(leaf), report))
            }
            Err(reason) => {
                let memory = memory_without_cgroup(plan);
                let detail = format!(
                    "memory: {memory}; processes: RLIMIT_NPROC; processor time: not limited; no cgroup, because {reason}"
                );
                if plan.access().requires(Wall::Cgroup) {
                    return Err(refused(Wall::Cgroup, detail));
                }
                Ok((None, WallReport { wall: Wall::Cgroup, strength: Strength::Off, detail }))
            }
        }
    }

    /// Launches now; the payload starts at once or when it is ordered.
    fn launch(&self, plan: Plan, begin: Begin) -> Result<Started, BackendError> {
        let (leaf, wall) = self.leaf(&plan)?;
        let cgroup = leaf.as_ref().map(Leaf::fd).transpose()?;
        let watch_memory = !leaf.as_ref().is_some_and(Leaf::holds_memory);
        let timed = tracing::enabled!(tracing::Level::TRACE);
        let launch = Launch { plan, begin, sources: Vec::new(), cgroup, watch_memory, timed };
        let sandbox = self.launcher.launch(launch, &self.sources)?;
        Ok(Started { pidfd: sandbox.pidfd, relay: None, walls: vec![wall], leaf })
    }

    fn make_ahead(&self, plan: Plan) -> Result<Standing, BackendError> {
        let failed = |errno| StepError::new("make a sandbox ahead", "", errno);
        let (order, theirs) = crate::kernel::message_pair().map_err(failed)?;
        let started = self.launch(plan, Begin::Ordered(theirs))?;
        wait_until_standing(order.as_fd())?;
        Ok(Standing { order, started })
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
            let cgroups =
                self.hands.cgroups.as_ref().map_err(|reason| refused(Wall::Cgroup, reason))?;
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
        if let Some(pool) = &self.pool {
            pool.tidy();
        }
        Ok(self.hands.launcher.mend()?)
    }

    fn start(&self, plan: Plan, handover: Handover) -> Result<Started, BackendError> {
        while let Some(standing) = self.pool.as_ref().and_then(|pool| pool.take(&plan)) {
            if self.hands.sources.have_changed(&plan) {
                break;
            }
            if let Some(started) = standing.begin(plan.command(), &handover) {
                return Ok(started);
            }
        }
        self.hands.launch(plan, Begin::Now(handover))
    }
}
