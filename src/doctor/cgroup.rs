//! Whether this host could limit a sandbox by cgroup, and what stands in the way.

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};

use super::diagnosis::{Cause, Diagnosis};
use crate::engine::mountinfo::mounts;

/// Which versions are mounted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Neither.
    #[default]
    None,
    /// The old one.
    V1,
    /// Both, side by side; the controllers are the old one's.
    Hybrid,
    /// The new one alone.
    V2,
}

/// The facts about cgroups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Which versions are mounted.
    pub layout: Layout,
    /// Our own directory in version 2.
    pub path: Option<PathBuf>,
    /// Whether we may make cgroups in it and move processes.
    pub delegated: bool,
    /// What can be controlled there.
    pub controllers: Vec<String>,
    /// Whether swap can be limited; `None` where the kernel does not show it (the topmost cgroup).
    pub swap: Option<bool>,
}

/// Without these two a cgroup limits nothing that we need limited.
const NEEDED: [&str; 2] = ["memory", "pids"];
const OWN_SUBTREE: &str = "start it in a subtree of its own: `systemd-run --user --scope -p Delegate=yes nix-sandbox-mcp …`, or as a service with `Delegate=yes`";
const UNIFIED: &str = "boot with `systemd.unified_cgroup_hierarchy=1`, the default of every current distribution (it concerns everything on this host that uses cgroup v1)";

impl Cgroup {
    pub(super) fn read(mountinfo: &str) -> Self {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let (layout, path) = place(mountinfo, &own);
        let Some(path) = path else { return Self { layout, ..Self::default() } };
        let controllers = std::fs::read_to_string(path.join("cgroup.controllers"));
        Self {
            layout,
            delegated: may_manage(&path),
            controllers: controllers
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            swap: path.join("memory.max").exists().then(|| path.join("memory.swap.max").exists()),
            path: Some(path),
        }
    }

    /// What is there, in words.
    #[must_use]
    pub fn facts(&self) -> String {
        let path = self.path.as_deref().unwrap_or(Path::new("/")).display();
        match self.layout {
            Layout::None => "no cgroup file system is mounted".to_owned(),
            Layout::V1 => "only cgroup v1 is mounted, which cannot be handed to a user safely".to_owned(),
            Layout::Hybrid => "cgroup v1 and v2 are mounted side by side (hybrid), and the controllers are v1's, which cannot be handed to a user safely".to_owned(),
            Layout::V2 if !self.delegated => format!("cgroup v2, but {path} is not delegated to this user"),
            Layout::V2 => {
                let swap = if self.swap == Some(false) { "; swap cannot be limited" } else { "" };
                format!("cgroup v2, {path} is ours, controllers: {}{swap}", self.controllers_text())
            }
        }
    }

    fn controllers_text(&self) -> String {
        if self.controllers.is_empty() { "none".to_owned() } else { self.controllers.join(" ") }
    }

    /// What stands in the way of a limit by cgroup; `None` if nothing does.
    #[must_use]
    pub fn diagnosis(&self) -> Option<Diagnosis> {
        let missing = || NEEDED.iter().any(|name| !self.controllers.iter().any(|c| c == name));
        let (cause, remedy) = match self.layout {
            Layout::None => {
                (Cause::CgroupAbsent, "mount it: `mount -t cgroup2 cgroup2 /sys/fs/cgroup` as root")
            }
            Layout::V1 => (Cause::CgroupV1, UNIFIED),
            Layout::Hybrid => (Cause::CgroupHybrid, UNIFIED),
            Layout::V2 if !self.delegated => (Cause::CgroupNotDelegated, OWN_SUBTREE),
            Layout::V2 if missing() => (
                Cause::CgroupControllers,
                "delegate more: `systemctl edit user@.service` with `[Service]` and `Delegate=memory pids cpu`, then log in again",
            ),
            Layout::V2 => return None,
        };
        Some(Diagnosis::new(cause, self.facts(), remedy))
    }
}

fn place(mountinfo: &str, own: &str) -> (Layout, Option<PathBuf>) {
    let v1 = mounts(mountinfo.as_bytes()).any(|mount| mount.kind == "cgroup");
    let v2 = mounts(mountinfo.as_bytes()).find(|mount| mount.kind == "cgroup2");
    let layout = match (v1, &v2) {
        (false, None) => Layout::None,
        (true, None) => Layout::V1,
        (true, Some(_)) => Layout::Hybrid,
        (false, Some(_)) => Layout::V2,
    };
    let ours = own.lines().find_map(|line| line.strip_prefix("0::"));
    // Of a container's mount the upper part of the path is not seen.
    let path = v2.zip(ours).and_then(|(mount, ours)| {
        let below = Path::new(ours).strip_prefix(&mount.root).ok()?;
        Some(mount.at.components().chain(below.components()).collect())
    });
    (layout, path)
}

/// The three files that delegation means (cgroups(7)).
fn may_manage(path: &Path) -> bool {
    let writable = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
    writable(path)
        && ["cgroup.procs", "cgroup.subtree_control"].iter().all(|name| writable(&path.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
    const V2: &str = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";

    #[test]
    fn the_layouts_are_told_apart() {
        let own = "1:cpu:/\n0::/user.slice/a.scope\n";
        assert_eq!(place("", own), (Layout::None, None));
        assert_eq!(place(V1, own), (Layout::V1, None));
        let path = Some(PathBuf::from("/sys/fs/cgroup/user.slice/a.scope"));
        assert_eq!(place(V2, own), (Layout::V2, path.clone()));
        assert_eq!(place(&format!("{V1}\n{V2}"), own), (Layout::Hybrid, path));
        let part = "41 31 0:38 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        let path = Some(PathBuf::from("/sys/fs/cgroup/inner"));
        assert_eq!(place(part, "0::/box/inner\n"), (Layout::V2, path));
        assert_eq!(place(part, "0::/elsewhere\n"), (Layout::V2, None));
    }

    fn v2(delegated: bool, controllers: &[&str]) -> Cgroup {
        Cgroup {
            layout: Layout::V2,
            path: Some(PathBuf::from("/sys/fs/cgroup/a.scope")),
            delegated,
            controllers: controllers.iter().map(|name| (*name).to_owned()).collect(),
            swap: Some(false),
        }
    }

    #[test]
    fn each_obstacle_has_its_own_sentence() {
        let cause = |cgroup: &Cgroup| cgroup.diagnosis().map(|diagnosis| diagnosis.cause);
        let only = |layout| Cgroup { layout, ..Cgroup::default() };
        assert_eq!(cause(&only(Layout::None)), Some(Cause::CgroupAbsent));
        assert_eq!(cause(&only(Layout::V1)), Some(Cause::CgroupV1));
        assert_eq!(cause(&only(Layout::Hybrid)), Some(Cause::CgroupHybrid));
        assert_eq!(cause(&v2(false, &["memory"])), Some(Cause::CgroupNotDelegated));
        assert_eq!(cause(&v2(true, &["pids"])), Some(Cause::CgroupControllers));
        assert_eq!(cause(&v2(true, &["memory", "pids"])), None);
        assert_eq!(
            v2(false, &[]).facts(),
            "cgroup v2, but /sys/fs/cgroup/a.scope is not delegated to this user"
        );
        assert_eq!(
            v2(true, &["memory", "pids"]).facts(),
            "cgroup v2, /sys/fs/cgroup/a.scope is ours, controllers: memory pids; swap cannot be limited"
        );
    }
}
