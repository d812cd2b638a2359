//! bubblewrap: the reference, and what is left where the engine cannot run.
//!
//! It makes the namespaces and the file tree out of the same [`Plan`]; what it has no word for is
//! done around it, and what nobody can do is refused or told with each result. Where Nix built a jail
//! for the very command (`nix/backends/jail.nix`), that calls bubblewrap.
//!
//! | process | file | what it does |
//! |---|---|---|
//! | caller | here | judges the plan, makes the run's cgroup, starts a jailer |
//! | jailer | [`jailer`] | this program once more, one for each run: gives up root, reports, passes signals on |
//! | jailer | `start` | starts bubblewrap and waits until everything stands but the payload |
//! | jailer | `finish` | sets limits, checks what was mounted |
//! | jailer | `inspect` | compares with the plan what a jail of the environment's own has made |
//! | watcher | `memory` | without a cgroup: looks how much memory the sandbox uses |
//! | `bwrap` | `arguments` | makes the sandbox and waits; a second one is the sandbox's pid 1 |

mod arguments;
mod finish;
mod inspect;
pub mod jailer;
mod memory;
mod start;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::{Backend, BackendError, Handover, Started, limits};
use crate::engine::cgroup::{Cgroups, Leaf, NoCgroup};
use crate::engine::start::Head;
use crate::kernel;
use crate::outcome::WallReport;
use crate::plan::{Limits, MountKind, Plan, Wall};

/// How this program is started to be a jailer: the first argument. Its 0 is a socket.
pub const ARGUMENT: &str = "--jailer";

/// bubblewrap, as the backend of every run.
#[derive(Debug)]
pub struct Jail {
    program: PathBuf,
    version: String,
    cgroups: Result<Cgroups, String>,
    /// Why it stands in for the engine, if nobody asked for it.
    fallback: Option<String>,
    jailers: Mutex<Vec<Child>>,
}

/// Why there is no bubblewrap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoJail {
    /// It is not installed.
    #[error(
        "bubblewrap is not installed: there is no `bwrap` in PATH (`apt-get install bubblewrap`, or the package of that name)"
    )]
    Missing,
    /// It does not work.
    #[error("{} --version failed: {problem}", program.display())]
    Broken {
        /// Which.
        program: PathBuf,
        /// How.
        problem: String,
    },
}

impl Jail {
    /// bubblewrap, the first of `candidates` that is there.
    ///
    /// # Errors
    /// See [`NoJail`].
    pub fn find(mut candidates: impl Iterator<Item = PathBuf>) -> Result<Self, NoJail> {
        let program = candidates.next().ok_or(NoJail::Missing)?;
        let broken = |problem: String| NoJail::Broken { program: program.clone(), problem };
        let told = Command::new(&program).arg("--version").env_clear().output();
        let told = told.map_err(|error| broken(error.to_string()))?;
        let version = String::from_utf8_lossy(&told.stdout).trim().to_owned();
        if !told.status.success() || version.is_empty() {
            return Err(broken(told.status.to_string()));
        }
        let cgroups = Err("none was looked for".to_owned());
        Ok(Self { program, version, cgroups, fallback: None, jailers: Mutex::default() })
    }

    /// With cgroups, or with the reason why there are none.
    #[must_use]
    pub fn with_cgroups(self, cgroups: Result<Cgroups, NoCgroup>) -> Self {
        Self { cgroups: cgroups.map_err(|reason| reason.to_string()), ..self }
    }

    /// In place of the engine, which cannot run for this reason; every result says so.
    #[must_use]
    pub fn in_place_of_the_engine(self, reason: String) -> Self {
        Self { fallback: Some(reason), ..self }
    }

    /// Which bubblewrap it is: `bubblewrap 0.8.0`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    fn leaf(&self, plan: &Plan) -> Result<(Option<Leaf>, WallReport), BackendError> {
        // bubblewrap's own process waits in there too.
        let own = Limits { pids: plan.limits().pids.saturating_add(1), ..*plan.limits() };
        let (leaf, mut wall) = limits::leaf(&self.cgroups, plan, &own)?;
        if leaf.is_some() {
            wall.detail.push_str("; one of the processes is bubblewrap's own");
        }
        Ok((leaf, wall))
    }

    fn jailers(&self) -> std::sync::MutexGuard<'_, Vec<Child>> {
        self.jailers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a jailer; the socket to it.
    fn jailer(&self) -> Result<OwnedFd, BackendError> {
        let failed = |errno: Errno| jail(format!("a jailer cannot be started: {}", errno.desc()));
        let (socket, theirs) = kernel::message_pair().map_err(failed)?;
        let child = Command::new("/proc/self/exe")
            .arg0("nix-sandbox-mcp")
            .arg(ARGUMENT)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(kernel::errno(&error)))?;
        let mut jailers = self.jailers();
        // Those that have ended leave no zombie for longer than until here.
        jailers.retain_mut(|jailer| matches!(jailer.try_wait(), Ok(None)));
        jailers.push(child);
        Ok(socket)
    }
}

fn jail(problem: String) -> BackendError {
    BackendError::Jail(problem)
}

impl Backend for Jail {
    fn name(&self) -> &'static str {
        "jail"
    }

    fn judge(&self, plan: &Plan) -> Result<(), BackendError> {
        limits::judge(&self.cgroups, plan)?;
        if plan.access().requires(Wall::Landlock) {
            return Err(limits::refused(Wall::Landlock, "bubblewrap has none; use the engine"));
        }
        if plan.mounts().iter().any(|mount| mount.kind == MountKind::Outputs) {
            return Err(jail("it cannot show /outputs, which no path of the host leads to".into()));
        }
        Ok(())
    }

    fn start(&self, plan: Plan, handover: Handover) -> Result<Started, BackendError> {
        if handover.terminal.is_some() {
            return Err(jail("it gives no terminal of one's own; use --no-tty".into()));
        }
        let (leaf, wall) = self.leaf(&plan)?;
        let cgroup = leaf.as_ref().map(Leaf::fd).transpose()?;
        let order = Order {
            program: self.program.clone(),
            version: self.version.clone(),
            fallback: self.fallback.clone(),
            cgroup: cgroup.is_some(),
            start: handover.head(),
            watch_memory: !leaf.as_ref().is_some_and(Leaf::holds_memory),
        };
        let call = |errno: Errno| jail(format!("the jailer cannot be told: {}", errno.desc()));
        let own = kernel::pidfd_open(Pid::this()).map_err(call)?;
        let plan = serde_json::to_vec(&plan).map_err(|error| jail(error.to_string()))?;
        let plan = kernel::file_in_memory(c"plan", &plan).map_err(call)?;
        let socket = self.jailer()?;
        let fds = [&own, &plan].into_iter().chain(&cgroup).map(AsFd::as_fd);
        let fds: Vec<BorrowedFd<'_>> = fds.chain(handover.descriptors()).collect();
        let order = serde_json::to_vec(&order).map_err(|error| jail(error.to_string()))?;
        kernel::send_message(socket.as_fd(), &order, &fds).map_err(call)?;
        // The jailer has its own copies now; ours would keep pipes open.
        drop(handover);
        let (pidfd, relay) = answer(socket.as_fd())?;
        Ok(Started { pidfd, relay: Some(relay), walls: vec![wall], leaf })
    }
}

/// What a jailer is told. The descriptors follow: the caller's pidfd, the plan's text, the cgroup,
/// the start's.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    program: PathBuf,
    version: String,
    fallback: Option<String>,
    cgroup: bool,
    start: Head,
    watch_memory: bool,
}

/// What a jailer answers: two pidfds, the sandbox's pid 1 and its own; or why there is no sandbox.
type Answer = Result<(), String>;

fn answer(socket: BorrowedFd<'_>) -> Result<(OwnedFd, OwnedFd), BackendError> {
    let (bytes, fds) = match kernel::receive_message(socket) {
        Ok(Some(message)) => message,
        Ok(None) => return Err(jail("the jailer has ended".to_owned())),
        Err(errno) => return Err(jail(format!("the jailer cannot be heard: {}", errno.desc()))),
    };
    let answer: Answer = serde_json::from_slice(&bytes).map_err(|error| jail(error.to_string()))?;
    answer.map_err(jail)?;
    let mut fds = fds.into_iter();
    fds.next().zip(fds.next()).ok_or_else(|| jail("the jailer sent no descriptors".to_owned()))
}

/// Whether `path` of the host is there at all.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
