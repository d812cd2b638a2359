//! The engine of this crate.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::agent::{AgentEnds, WaitingAgent};
use super::pool::{Held, Pool, Standing};
use super::warm::{self, Warm};
use super::{Backend, BackendError, Begun, Handover, Started, StepError, limits};
use crate::engine::cgroup::{Cgroups, Leaf, NoCgroup};
use crate::engine::sources::Sources;
use crate::engine::start::{Begin, wait_until_standing};
use crate::engine::{Launch, Launcher};
use crate::plan::{Plan, Wall};

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
    cgroups: limits::Source,
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
            self.pool = Some(Pool::new(most, Arc::new(move |plan, warm| hands.make(plan, warm))));
        }
        self
    }

    /// Waits until as many sandboxes stand ready as are wanted by now, or could not be made. For whoever
    /// wants many at once, and measures.
    pub fn wait_until_filled(&self) {
        if let Some(pool) = &self.pool {
            pool.wait_until_filled();
        }
    }
}

impl Hands {
    /// Launches now; the payload starts at once or when it is ordered.
    fn launch(&self, plan: Plan, begin: Begin) -> Result<Started, BackendError> {
        let (leaf, wall) = limits::leaf(&self.cgroups, &plan, plan.limits())?;
        let cgroup = leaf.as_ref().map(Leaf::fd).transpose()?;
        let watch_memory = !leaf.as_ref().is_some_and(Leaf::holds_memory);
        let timed = tracing::enabled!(tracing::Level::TRACE);
        let launch = Launch { plan, begin, sources: Vec::new(), cgroup, watch_memory, timed };
        let sandbox = self.launcher.launch(launch, &self.sources)?;
        Ok(Started { pidfd: sandbox.pidfd, relay: None, walls: vec![wall], leaf })
    }

    fn make(&self, plan: &Plan, warm: bool) -> Result<Held, BackendError> {
        let runs_code = warm::code_place(plan).is_some();
        let standing = self.make_standing(plan.clone(), warm && runs_code)?;
        match (warm, runs_code) {
            (false, _) => Ok(Held::Standing(standing)),
            (true, true) => Warm::heat(standing, plan).map(Held::Warm),
            (true, false) => WaitingAgent::start(standing, plan).map(Held::Agent),
        }
    }

    fn make_standing(&self, plan: Plan, warm: bool) -> Result<Standing, BackendError> {
        let failed = |errno| StepError::new("make a sandbox ahead", "", errno);
        let (order, theirs) = crate::kernel::message_pair().map_err(failed)?;
        let started = self.launch(plan, Begin::Ordered { order: theirs, warm })?;
        let place = wait_until_standing(order.as_fd()).inspect_err(|_| {
            // It has ended, or hangs.
            let _ = crate::kernel::pidfd_signal(started.pidfd.as_fd(), libc::SIGKILL);
        })?;
        Ok(Standing { order, started, place })
    }
}

impl Backend for Native {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn judge(&self, plan: &Plan) -> Result<(), BackendError> {
        limits::judge(&self.hands.cgroups, plan)?;
        if plan.access().requires(Wall::Landlock) && crate::kernel::landlock_abi().is_none() {
            let reason = "this kernel has no Landlock (built without it, or missing in the boot parameter `lsm=`)";
            return Err(limits::refused(Wall::Landlock, reason));
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

    fn begin_warm(&self, plan: &Plan, code: &[u8]) -> Option<Begun> {
        while let Some(warm) = self.pool.as_ref().and_then(|pool| pool.take_warm(plan)) {
            if self.hands.sources.have_changed(plan) {
                break;
            }
            if let Some(begun) = warm.begin(plan, code) {
                return Some(begun);
            }
        }
        None
    }

    fn take_agent(&self, plan: &Plan) -> Option<(Started, AgentEnds)> {
        while let Some(agent) = self.pool.as_ref().and_then(|pool| pool.take_agent(plan)) {
            if self.hands.sources.have_changed(plan) {
                break;
            }
            if let Some(waiting) = agent.if_alive() {
                return Some(waiting);
            }
        }
        None
    }
}
