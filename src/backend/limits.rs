//! A cgroup for one run, or what holds in its place: alike for every backend.

use super::BackendError;
use crate::engine::cgroup::{Cgroups, Leaf};
use crate::outcome::{Strength, WallReport};
use crate::plan::{Limits, Plan, ProcMode, Wall};

/// Where cgroups come from, or why there are none.
pub(super) type Source = Result<Cgroups, String>;

/// Whether the cgroup that a plan requires can be had.
pub(super) fn judge(cgroups: &Source, plan: &Plan) -> Result<(), BackendError> {
    if !plan.access().requires(Wall::Cgroup) {
        return Ok(());
    }
    let missing = cgroups.as_ref().map_err(|why| refused(Wall::Cgroup, why))?.missing();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(refused(Wall::Cgroup, format!("not delegated: {}", missing.join(", ")))),
    }
}

/// A cgroup with `limits` and what it holds; without one, what holds in its place.
pub(super) fn leaf(
    cgroups: &Source,
    plan: &Plan,
    limits: &Limits,
) -> Result<(Option<Leaf>, WallReport), BackendError> {
    let memory = memory_without_cgroup(plan);
    let leaf = cgroups.as_ref().map_err(Clone::clone);
    match leaf.and_then(|cgroups| cgroups.leaf(limits).map_err(|error| error.to_string())) {
        Ok(leaf) => {
            let mut report = leaf.report().clone();
            if !leaf.holds_memory() {
                report.detail.push_str("; memory: ");
                report.detail.push_str(memory);
            }
            Ok((Some(leaf), report))
        }
        Err(reason) => {
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

const fn memory_without_cgroup(plan: &Plan) -> &'static str {
    match plan.access().proc {
        ProcMode::Fresh => "watched, best effort; many small memfds are not seen",
        ProcMode::None => "not watched, for want of /proc; files by the sizes of their tmpfs",
    }
}

/// A wall that the plan requires and that cannot be had.
pub(super) fn refused(wall: Wall, reason: impl Into<String>) -> BackendError {
    BackendError::Refused { wall, reason: reason.into() }
}
