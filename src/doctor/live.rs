//! The best evidence: one real launch, through the backend that every run goes through.
//!
//! Its program does not exist, on purpose: execve(2) is reached with every wall standing and says
//! `ENOENT`, so nothing of the host's programs or libraries matters.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::{Deserialize, Serialize};

use super::Wanted;
use crate::backend::{Backend, BackendError, Ends, native::Native};
use crate::engine::cgroup::{Cgroups, NoCgroup};
use crate::engine::{Launcher, LauncherError, StepError, probe, sources::Sources};
use crate::outcome::{Ending, WallReport};
use crate::plan::{
    Access, Command, FileIdentity, HostFile, Identity, Limits, Mount, MountKind, Plan, PlanBuilder,
};
use crate::policy::{Profile, Wearer};
use crate::supervisor::{Channels, SupervisorError, Watch};

/// Why no sandbox stood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NoLaunch {
    /// The sentence that a run would have answered.
    pub(super) sentence: String,
    /// The step that was refused, if it was one.
    pub(super) step: Option<StepError>,
}

type Launched = Result<Vec<WallReport>, NoLaunch>;

/// Launches a tiny sandbox in a throw-away child; the walls that stood.
pub(super) fn launch(wanted: &Wanted, cgroups: Result<Cgroups, NoCgroup>) -> Launched {
    probe::throw_away(move || Ok(launch_here(wanted, cgroups)))
        .unwrap_or_else(|step| Err(step.into()))
}

/// The directory in the sandbox at which a part of the host is shown.
const SHOWN: &str = "/shown";
/// What may be shown: the first that is there.
const CANDIDATES: [&str; 4] = ["/usr", "/nix/store", "/bin", "/etc"];
/// A program that no sandbox has.
const PROGRAM: &str = "/doctor/none";

fn launch_here(wanted: &Wanted, cgroups: Result<Cgroups, NoCgroup>) -> Launched {
    let plan = plan(wanted)?;
    let launcher = Launcher::direct()?;
    let backend = Native::new(launcher, Sources::default(), cgroups);
    backend.judge(&plan)?;
    let limits = *plan.limits();
    let failed = |errno| StepError::new("make a pipe", "", errno);
    let ends = Ends::new(plan.identity().outside);
    let (Ends { report, outputs, .. }, handover) = ends.map_err(failed)?;
    let started = backend.start(plan, handover)?;
    let cancel = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).map_err(failed)?;
    let outcome = Watch {
        pidfd: &started.pidfd,
        relay: None,
        leaf: started.leaf.as_ref(),
        report,
        channels: Channels::Kept { input: None, outputs },
        limits: &limits,
        cancel: cancel.as_fd(),
        signals: None,
    }
    .to_end()?;
    match outcome.ending {
        Ending::CouldNotStart { errno, .. } if errno == Errno::ENOENT as i32 => {
            Ok(outcome.enforced.0.into_iter().chain(started.walls).collect())
        }
        ending => {
            Err(NoLaunch { sentence: format!("the probe ended oddly: {ending}"), step: None })
        }
    }
}

fn plan(wanted: &Wanted) -> Result<Plan, NoLaunch> {
    let limits = Limits { time_ms: 2_000, ..Limits::default() };
    let writable = |mode| MountKind::Tmpfs { size: 1 << 20, inodes: 64, mode };
    let mut mounts = vec![
        mount("/proc", MountKind::Proc),
        mount("/dev", MountKind::Devices { shm: 1 << 20 }),
        mount("/tmp", writable(0o1777)),
        mount("/workspace", writable(0o755)),
    ];
    mounts.extend(CANDIDATES.iter().find_map(|path| shown(path)));
    let builder = PlanBuilder {
        environment: "doctor".to_owned(),
        identity: Identity::of(wanted.outside),
        mounts,
        limits,
        access: Access {
            profile: Profile::Default,
            wearer: Wearer::Shell,
            proc: wanted.proc,
            require: wanted.require.clone(),
        },
        command: Command {
            arguments: vec![PROGRAM.into()],
            variables: BTreeMap::new(),
            directory: PathBuf::from("/workspace"),
            jail: None,
        },
    };
    builder.build().map_err(|error| NoLaunch { sentence: error.to_string(), step: None })
}

fn mount(at: &str, kind: MountKind) -> Mount {
    Mount { at: PathBuf::from(at), kind }
}

fn shown(path: &str) -> Option<Mount> {
    // A link (`/bin` on many) is resolved: what is mounted must be what was looked at.
    let path = Path::new(path).canonicalize().ok()?;
    let metadata = path.metadata().ok()?;
    let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
    let source = HostFile { path, directory: metadata.is_dir(), identity };
    Some(mount(SHOWN, MountKind::Bind { source }))
}

impl From<StepError> for NoLaunch {
    fn from(step: StepError) -> Self {
        Self { sentence: step.to_string(), step: Some(step) }
    }
}

impl From<LauncherError> for NoLaunch {
    fn from(error: LauncherError) -> Self {
        match error {
            LauncherError::Step(step) => step.into(),
            LauncherError::Gone(_) => Self { sentence: error.to_string(), step: None },
        }
    }
}

impl From<BackendError> for NoLaunch {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Step(step) => step.into(),
            BackendError::Launcher(_) | BackendError::Jail(_) | BackendError::Refused { .. } => {
                Self { sentence: error.to_string(), step: None }
            }
        }
    }
}

impl From<SupervisorError> for NoLaunch {
    fn from(error: SupervisorError) -> Self {
        match error {
            SupervisorError::Step(step) => step.into(),
            _ => Self { sentence: error.to_string(), step: None },
        }
    }
}
