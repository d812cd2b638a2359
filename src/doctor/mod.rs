//! What this host can do, as a value, each lack with its remedy.
//!
//! [`examine`] performs every operation that a sandbox needs in throw-away children, and one whole
//! launch. [`explain`] turns a refused step into its cause; a run that is refused says the same
//! words. Everything a person or a program reads is in [`Report`].

mod apparmor;
mod cgroup;
mod checks;
mod diagnosis;
mod host;
mod live;
mod mountinfo;
mod text;

pub use apparmor::apparmor_profile;
pub use cgroup::{Cgroup, Layout};
pub use diagnosis::{Cause, Diagnosis, explain};
pub use host::{AppArmor, Container, Host, Selinux, Switches, User, Wsl};
pub use mountinfo::ProcMount;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::cgroup::{Cgroups, NoCgroup, Scope};
use crate::engine::probe::Trial;
use crate::outcome::{Strength, WallReport};
use crate::plan::{Ids, ProcMode, Wall};

/// What sandboxes shall be like on this host: as the settings say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The host ids of sandboxes.
    pub outside: Ids,
    /// What stands at `/proc`.
    pub proc: ProcMode,
    /// Walls that must stand, besides those that always must.
    pub require: BTreeSet<Wall>,
    /// What else makes the sandboxes, if not the engine does; what is found here is the engine's.
    pub instead: Option<&'static str>,
    /// Whether a scope of the user's systemd may be entered for a cgroup, as servers do.
    pub scope: Scope,
}

impl Wanted {
    /// The defaults.
    #[must_use]
    pub const fn of(outside: Ids) -> Self {
        Self {
            outside,
            proc: ProcMode::Fresh,
            require: BTreeSet::new(),
            instead: None,
            scope: Scope::Never,
        }
    }
}

/// How one check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It works.
    Ok,
    /// It works in part, or something that is preferred does not.
    Degraded,
    /// It does not work, and sandboxes need it.
    Failed,
    /// Worth knowing.
    Info,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// A stable key.
    pub name: &'static str,
    /// How it went.
    pub status: Status,
    /// What was found, in words.
    pub found: String,
    /// Why it does not work, where that is known.
    pub cause: Option<Cause>,
    /// What helps, the narrow remedy first.
    pub remedy: Option<String>,
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Every check, in a stable order.
    pub checks: Vec<Check>,
    /// The walls as they stood in a real launch: what a run reports. Empty if none could stand.
    pub walls: Vec<WallReport>,
    /// The facts.
    pub host: Host,
    /// What else makes the sandboxes as the settings say: then all of this is what the engine could do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<&'static str>,
}

/// The check that decides: a whole launch.
const LAUNCH: &str = "launch";

/// Finds out what this host can do. Every check has two seconds; nothing is left behind.
///
/// The caller must have one thread: it forks. Nothing of the caller changes, root included; but where
/// a scope may be entered, the program is started once more in it.
#[must_use]
pub fn examine(wanted: &Wanted) -> Report {
    let mut host = Host::read();
    let label = Trial::LabelInside.perform(wanted.outside);
    host.apparmor.label_in_userns = label.ok().filter(|label| !label.is_empty());
    let cgroups = Cgroups::find(wanted.outside, wanted.scope);
    let launched = live::launch(wanted, cgroups);
    let mut checks = checks::surroundings(&host);
    checks.extend(checks::trials(wanted, &host));
    checks.push(checks::cgroup(&host, launched.as_deref().unwrap_or_default()));
    checks.push(checks::launch(&host, &launched));
    checks.extend(checks::switches(&host));
    Report { checks, walls: launched.unwrap_or_default(), host, instead: wanted.instead }
}

/// Whether the engine can make a sandbox here, without a cgroup: one whole launch, some
/// milliseconds. The caller must have one thread.
///
/// # Errors
/// Why not, in a sentence.
pub fn try_engine(wanted: &Wanted) -> Result<(), String> {
    let cgroups = Err(NoCgroup::NotMounted);
    live::launch(wanted, cgroups).map(drop).map_err(|no| no.sentence)
}

impl Report {
    /// The check called `name`.
    #[must_use]
    pub fn check(&self, name: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name)
    }

    /// Whether sandboxes can be made here.
    #[must_use]
    pub fn can_run(&self) -> bool {
        self.check(LAUNCH).is_some_and(|check| check.status == Status::Ok)
    }

    /// 0: every wall stands whole. 1: sandboxes can be made, but something preferred is missing or
    /// weaker. 2: no sandbox can be made.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let lacks = |check: &Check| matches!(check.status, Status::Degraded | Status::Failed);
        let weaker = |wall: &WallReport| wall.strength != Strength::Active;
        if !self.can_run() {
            2
        } else {
            u8::from(self.checks.iter().any(lacks) || self.walls.iter().any(weaker))
        }
    }

    /// The verdict, one line: whether sandboxes can be made, and what is missing.
    #[must_use]
    pub fn verdict(&self) -> String {
        text::verdict(self)
    }

    /// All of it for people: the verdict, the walls, what does not work, what is worth knowing.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::report(self)
    }
}
