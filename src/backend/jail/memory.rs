//! Where no cgroup limits memory: a process that looks how much the sandbox uses, as the engine's
//! pid 1 does, and ends when that is too much.
//!
//! It sees the sandbox's `/proc`, files and System V memory, since it joins the namespaces of mounts and
//! IPC; the sandbox does not see it, since it stays in the host's PID namespace.

use std::os::fd::OwnedFd;

use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::finish::join_mounts;
use crate::engine::memory_watch;
use crate::kernel::{self, Cloned, Namespaces};
use crate::plan::{Plan, ProcMode};

/// Starts the process; readable once the sandbox uses too much. Nothing without `/proc`.
pub(super) fn watch(pid1: Pid, plan: &Plan) -> nix::Result<Option<OwnedFd>> {
    if plan.access().proc == ProcMode::None {
        return Ok(None);
    }
    match kernel::clone(Namespaces::NONE, None)? {
        Cloned::Parent { pidfd, .. } => Ok(Some(pidfd)),
        Cloned::Child => {
            // A copy of the filter's pipe would keep bubblewrap waiting for its end.
            let joined = kernel::close_inherited()
                .and_then(|()| nix::sys::prctl::set_pdeathsig(Signal::SIGKILL))
                .and_then(|()| join(pid1));
            if joined.is_ok() {
                let mut watch = memory_watch::of(plan);
                while watch.above_limit().is_none() {
                    std::thread::sleep(watch.pause());
                }
            }
            kernel::exit_now(0)
        }
    }
}

fn join(pid1: Pid) -> nix::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let ipc = open(format!("/proc/{pid1}/ns/ipc").as_str(), flags, Mode::empty())?;
    join_mounts(pid1)?;
    setns(ipc, CloneFlags::CLONE_NEWIPC)
}
