//! Landlock domains: one for pid 1, a second, nested one for the payload.

use std::error::Error;
use std::io;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use nix::errno::Errno;

use super::report::StepError;
use crate::kernel;
use crate::outcome::{Strength, WallReport};
use crate::plan::{Access, Wall};
use crate::policy::Profile;

/// The newest version of Landlock that the rules below speak. A kernel's newer rights are not
/// handled, an older kernel's missing ones are listed by [`uncovered`].
const NEWEST: ABI = ABI::V9;

/// The first version that refuses a connection to a socket file (Linux 7.1). No read-only mount
/// does, and no filter can tell whose socket it is. A wall that no kernel had until lately is not
/// called weaker without it, but what is open is told; the strict profile has no named sockets.
const SOCKET_FILES: u32 = 9;

/// Where files may be changed.
const WRITABLE: [&str; 3] = ["/workspace", "/tmp", "/dev/shm"];
/// Where files may be written but none be made.
const WRITE_ONLY_EXISTING: [&str; 2] = ["/dev", "/proc"];

/// Enters a domain; entered twice, the second is nested in the first.
pub(super) fn enter(access: &Access) -> Result<WallReport, StepError> {
    let step = "enter a Landlock domain";
    let failed =
        |error: RulesetError| StepError::new(step, format_args!("({error})"), errno(&error));
    let status = restrict().map_err(failed)?;
    let report = report(status, kernel::landlock_abi(), access.profile);
    if report.strength == Strength::Off && access.requires(Wall::Landlock) {
        return Err(StepError::new(step, "(required, and the kernel has none)", Errno::ENOSYS));
    }
    Ok(report)
}

/// What the kernel answered, out of the crate's error.
fn errno(error: &RulesetError) -> Errno {
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(error) = next {
        let answer = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if let Some(answer) = answer {
            return Errno::from_raw(answer);
        }
        next = error.source();
    }
    Errno::EINVAL
}

fn restrict() -> Result<RulesetStatus, RulesetError> {
    let read = AccessFs::from_read(NEWEST);
    let existing =
        AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::IoctlDev;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let places = std::iter::once(("/", read))
        .chain(WRITE_ONLY_EXISTING.map(|place| (place, existing)))
        .chain(WRITABLE.map(|place| (place, AccessFs::from_all(NEWEST))));
    for (place, rights) in places {
        // A sandbox need not have each of them.
        if let Ok(directory) = PathFd::new(Path::new(place)) {
            rules = rules.add_rule(PathBeneath::new(directory, rights))?;
        }
    }
    Ok(rules.restrict_self()?.ruleset)
}

fn report(status: RulesetStatus, abi: Option<u32>, profile: Profile) -> WallReport {
    let (strength, mut detail) = match (status, abi) {
        (RulesetStatus::NotEnforced, _) | (_, None) => (
            Strength::Off,
            "the kernel has no Landlock; the file system is still protected by its mounts"
                .to_owned(),
        ),
        (_, Some(abi)) => {
            let open = uncovered(abi);
            let strength = if open.is_empty() { Strength::Active } else { Strength::Weaker };
            let mut detail = format!("ABI {abi}, a domain for pid 1 and one for the payload");
            if !open.is_empty() {
                detail.push_str("; not covered by this kernel: ");
                detail.push_str(&open.join(", "));
            }
            (strength, detail)
        }
    };
    let refused = strength != Strength::Off && abi >= Some(SOCKET_FILES);
    if !refused && profile != Profile::Strict {
        detail.push_str("; open: socket files in the project can be connected to");
    }
    WallReport { wall: Wall::Landlock, strength, detail }
}

/// What Landlock version `abi` leaves open of what our rules ask for (landlock(7)).
fn uncovered(abi: u32) -> Vec<&'static str> {
    let since = [
        (2, "renames between directories"),
        (3, "truncation"),
        (5, "device ioctls"),
        (6, "signals and abstract sockets"),
    ];
    since.into_iter().filter(|(first, _)| abi < *first).map(|(_, what)| what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_kernel_is_reported_with_what_it_leaves_open() {
        let report = |status, abi| report(status, abi, Profile::Strict);
        let older = report(RulesetStatus::PartiallyEnforced, Some(2));
        assert_eq!(older.strength, Strength::Weaker);
        assert!(older.detail.ends_with("truncation, device ioctls, signals and abstract sockets"));
        assert_eq!(report(RulesetStatus::FullyEnforced, Some(9)).strength, Strength::Active);
        assert_eq!(report(RulesetStatus::NotEnforced, None).strength, Strength::Off);
    }

    #[test]
    fn socket_files_are_told_of_where_nothing_refuses_them() {
        let told = |abi, profile| {
            let report = report(RulesetStatus::PartiallyEnforced, Some(abi), profile);
            assert_eq!(report.strength, Strength::Active);
            report.detail.ends_with("; open: socket files in the project can be connected to")
        };
        let none = report(RulesetStatus::NotEnforced, None, Profile::Default);
        assert!(none.detail.ends_with("can be connected to"), "{}", none.detail);
        assert!(told(7, Profile::Default) && told(8, Profile::Compat));
        assert!(!told(9, Profile::Default) && !told(7, Profile::Strict));
    }
}
