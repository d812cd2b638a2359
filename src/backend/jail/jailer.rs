//! The jailer: the small process beside each sandbox that bubblewrap makes.
//!
//! bubblewrap reads the system-call filter last, when the file tree stands and it has given up its
//! capabilities. The filter comes through a pipe that is full until then and is not closed: so the
//! jailer knows when that point is reached, and the payload does not start before limits are set,
//! and everything that was mounted has been seen to be what was checked. The filter's last bytes
//! are held back; should the jailer die meanwhile, bubblewrap refuses the rest.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, Uid};

use super::finish::walls;
use super::memory;
use super::start::{PAGE, Sandbox, expose, launch};
use super::{Answer, Order};
use crate::engine::StepError;
use crate::engine::filters::filter;
use crate::engine::init::FORWARDED;
use crate::engine::privilege::become_outside;
use crate::engine::process::fixed_values;
use crate::engine::report::{Ended, Report};
use crate::engine::start::Start;
use crate::engine::steps::bind_sources;
use crate::kernel;
use crate::plan::{Identity, Jail, Plan, ProcMode, Wall};
use crate::policy::Instruction;

/// Bytes of the filter that are held back until the payload may start.
pub(super) const HELD_BACK: usize = 4;

/// What the jailer process does, to its end.
#[must_use]
pub fn main() -> i32 {
    let Ok(socket) = std::io::stdin().as_fd().try_clone_to_owned() else { return 1 };
    let launched = receive(socket.as_fd()).and_then(|mut task| {
        prepare(&mut task)?;
        let sandbox = launch(&task, task.start.outputs[1].as_fd())?;
        Ok((task, sandbox))
    });
    match launched {
        Err(problem) => i32::from(reply(&socket, &Err(problem), &[]).is_err()),
        Ok((task, sandbox)) => {
            let Ok(own) = kernel::pidfd_open(Pid::this()) else { return 1 };
            let fds = [sandbox.pid1.as_fd(), own.as_fd()];
            if reply(&socket, &Ok(()), &fds).is_err() {
                return 1;
            }
            drop(socket);
            watch(task, sandbox).map_or(1, |()| 0)
        }
    }
}

fn reply(socket: &OwnedFd, answer: &Answer, fds: &[BorrowedFd<'_>]) -> nix::Result<()> {
    let bytes = serde_json::to_vec(answer).map_err(|_| Errno::EINVAL)?;
    kernel::send_message(socket.as_fd(), &bytes, fds)
}

/// Everything that one run needs.
pub(super) struct Task {
    pub(super) order: Order,
    /// The process that asked: the sandbox ends with it.
    pub(super) caller: OwnedFd,
    pub(super) plan: Plan,
    pub(super) filter: Vec<u8>,
    /// Where bubblewrap finds what it shall show, by the order of the plan's binds.
    pub(super) sources: Vec<PathBuf>,
    pub(super) cgroup: Option<OwnedFd>,
    pub(super) start: Start,
    pub(super) report: File,
}

impl Task {
    /// What Nix built to make this sandbox, where somebody asked for jails and where it can do all that
    /// the plan says.
    pub(super) fn jail(&self) -> Option<&Jail> {
        let plan = &self.plan;
        let usual = *plan.identity() == Identity::of(plan.identity().outside)
            && plan.command().directory == Path::new("/workspace")
            && plan.access().proc == ProcMode::Fresh;
        plan.command().jail.as_ref().filter(|_| usual && self.order.fallback.is_none())
    }
}

fn receive(socket: BorrowedFd<'_>) -> Result<Task, String> {
    let unheard = |errno: Errno| format!("the jailer was told nothing: {}", errno.desc());
    let message = kernel::receive_message(socket).map_err(unheard)?;
    let (bytes, fds) = message.ok_or_else(|| unheard(Errno::EPIPE))?;
    let order: Order = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or_else(|| unheard(Errno::EMFILE));
    let caller = next()?;
    let text = File::from(next()?);
    let plan: Plan = serde_json::from_reader(text).map_err(|error| error.to_string())?;
    let cgroup = order.cgroup.then(&mut next).transpose()?;
    let start = Start::read(order.start, fds).ok_or_else(|| unheard(Errno::EMFILE))?;
    let report = start.report.try_clone().map(File::from).map_err(|error| error.to_string())?;
    let access = plan.access();
    let filter = bytes_of(filter(access.wearer, access.profile))?;
    let sources = bind_sources(&plan).map(|(_, source)| source.path.clone()).collect();
    Ok(Task { order, caller, plan, filter, sources, cgroup, start, report })
}

/// As bubblewrap reads it: an array of the kernel's `struct sock_filter`.
fn bytes_of(program: &[Instruction]) -> Result<Vec<u8>, String> {
    let bytes: Vec<u8> = program
        .iter()
        .flat_map(|one| {
            let [c0, c1] = one.code.to_ne_bytes();
            let [k0, k1, k2, k3] = one.k.to_ne_bytes();
            [c0, c1, one.jt, one.jf, k0, k1, k2, k3]
        })
        .collect();
    // More would not fill the pipe as it must be filled.
    if bytes.len() > PAGE {
        return Err(format!("the system-call filter has {} bytes, more than a page", bytes.len()));
    }
    Ok(bytes)
}

/// Makes of this process what bubblewrap shall inherit.
fn prepare(task: &mut Task) -> Result<(), String> {
    let told = |what: &'static str| move |errno: Errno| format!("{what}: {}", errno.desc());
    // Keys of the caller's terminal reach the payload by way of the caller, once.
    nix::unistd::setsid().map_err(told("start a session"))?;
    if Uid::effective().is_root() {
        match expose(task) {
            Ok(()) => {}
            // An old kernel, or a container's filter: bubblewrap opens sources as any user would.
            Err(error) if matches!(error.errno(), Errno::ENOSYS | Errno::EPERM) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    become_outside(task.plan.identity().outside).map_err(|error| error.to_string())?;
    // Its own files in /proc would be root's.
    nix::sys::prctl::set_dumpable(true).map_err(told("become dumpable"))?;
    // Whose pid 1 is left over by bubblewrap is waited for here.
    nix::sys::prctl::set_child_subreaper(true).map_err(told("become a reaper"))?;
    umask(Mode::from_bits_truncate(0o022));
    fixed_values().map_err(|error| error.to_string())
}

/// Lets the payload start, watches to the end, and reports it.
fn watch(task: Task, mut sandbox: Sandbox) -> nix::Result<()> {
    let walls = match sandbox.finish(&task) {
        Ok(walls) => walls,
        Err(report) => {
            let ready = Report::Ready { walls: walls(&task, sandbox.keyring) };
            sandbox.kill();
            let reports = match report {
                Report::NotExecuted { .. } => vec![ready, report],
                other => vec![other],
            };
            // EPIPE: nobody wants to know.
            reports.iter().for_each(|report| drop(report.send(&task.report)));
            return Ok(());
        }
    };
    let signals = signals()?;
    let required = task.plan.access().requires(Wall::Keyring);
    if let (Err(errno), true) = (sandbox.keyring, required) {
        sandbox.kill();
        let error = StepError::new("join a new session keyring", "", errno);
        let _ = Report::Failed(error).send(&task.report);
        return Ok(());
    }
    let watcher = match task.order.watch_memory {
        true => memory::watch(sandbox.pid, &task.plan)?,
        false => None,
    };
    let _ = Report::Ready { walls }.send(&task.report);
    let started = Instant::now();
    let last = &task.filter[task.filter.len() - HELD_BACK..];
    nix::unistd::write(&sandbox.filter, last)?;
    let Task { report, caller, plan, .. } = task;
    // Its write end too: what is read to the end can go on.
    let Sandbox { bwrap, ref bwrap_fd, pid, ref pid1, ref mut status, filter, .. } = sandbox;
    drop(filter);
    let watched = Watched {
        pid,
        pid1,
        bwrap: bwrap_fd,
        caller: &caller,
        watcher: &watcher,
        signals: &signals,
    };
    let too_much = watched.until_it_ends()?;
    let wall_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let _ = waitpid(bwrap, None);
    let pid1_end = waitpid(pid, None);
    status.read();
    let how = match (too_much, pid1_end, status.exit_code) {
        (true, ..) => Some(Ok(Ended::OverMemory)),
        // The whole cgroup was killed, bubblewrap too. Whoever did that knows why.
        (false, Ok(WaitStatus::Signaled(..)), None) => None,
        // Whoever is left over was still there when the payload ended.
        (false, Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)), code) => {
            Some(ended(code, &plan))
        }
        // Bubblewrap has waited for it itself: pid 1 was killed, and whoever did that knows.
        (false, ..) => None,
    };
    if let Some(report_of) = how {
        let (cpu_us, peak_memory) = usage();
        let last = match report_of {
            Ok(ending) => Report::Ended { ending, wall_us, cpu_us, peak_memory, alone: true },
            Err(not_executed) => not_executed,
        };
        let _ = last.send(&report);
    }
    Ok(())
}

/// How the payload ended. Without an exit code it never began: then bubblewrap has told why on the
/// payload's standard error, and what is known here is that a file was there.
fn ended(exit_code: Option<i32>, plan: &Plan) -> Result<Ended, Report> {
    match exit_code {
        // bubblewrap does as shells do, so an exit code of 128 and more is taken for a signal.
        Some(code @ 129..=192) => Ok(Ended::Signal(code - 128)),
        Some(code) => Ok(Ended::Code(code)),
        None => {
            let program = plan.command().arguments.first().map(|it| it.to_string_lossy());
            let program = program.unwrap_or_default().into_owned();
            Err(Report::NotExecuted { program, errno: Errno::ENOEXEC as i32 })
        }
    }
}

fn usage() -> (u64, u64) {
    match getrusage(UsageWho::RUSAGE_CHILDREN) {
        Ok(usage) => {
            let cpu = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
            (cpu.cast_unsigned(), usage.max_rss().cast_unsigned() * 1024)
        }
        Err(_) => (0, 0),
    }
}

fn signals() -> nix::Result<SignalFd> {
    let mut watched = SigSet::empty();
    FORWARDED.iter().for_each(|signal| watched.add(*signal));
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&watched), None)?;
    SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC)
}

/// What is looked at while the payload runs.
struct Watched<'a> {
    pid: Pid,
    pid1: &'a OwnedFd,
    bwrap: &'a OwnedFd,
    caller: &'a OwnedFd,
    watcher: &'a Option<OwnedFd>,
    signals: &'a SignalFd,
}

impl Watched<'_> {
    /// Passes signals on until bubblewrap has ended; ends it if the caller has, or if the sandbox
    /// uses too much memory: whether that is so.
    fn until_it_ends(&self) -> nix::Result<bool> {
        let (mut killed, mut too_much) = (false, false);
        loop {
            for event in self.wait(killed)? {
                match event {
                    Event::Ended => return Ok(too_much),
                    Event::Signal => {
                        if let Ok(Some(info)) = self.signals.read_signal() {
                            forward(self.pid, info.ssi_signo);
                        }
                    }
                    Event::CallerLeft | Event::WatcherEnded => {
                        too_much = matches!(event, Event::WatcherEnded);
                        killed = true;
                        kernel::pidfd_signal(self.pid1.as_fd(), libc::SIGKILL)?;
                    }
                }
            }
        }
    }

    fn wait(&self, killed: bool) -> nix::Result<Vec<Event>> {
        let mut fds = vec![
            PollFd::new(self.bwrap.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
        ];
        let mut events = vec![Event::Ended, Event::Signal];
        // Once they are on they stay on.
        if !killed {
            fds.push(PollFd::new(self.caller.as_fd(), PollFlags::POLLIN));
            events.push(Event::CallerLeft);
            if let Some(watcher) = self.watcher {
                fds.push(PollFd::new(watcher.as_fd(), PollFlags::POLLIN));
                events.push(Event::WatcherEnded);
            }
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let fired = fds.iter().map(|fd| fd.revents().is_some_and(|flags| !flags.is_empty()));
        let fired = events.into_iter().zip(fired);
        Ok(fired.filter_map(|(event, fired)| fired.then_some(event)).collect())
    }
}

/// Something that happened.
#[derive(Debug, Clone, Copy)]
enum Event {
    Ended,
    Signal,
    CallerLeft,
    WatcherEnded,
}

/// To the payload's process group, which is that of pid 1: the kernel keeps from pid 1 what it does
/// not handle.
fn forward(pid1: Pid, signal: u32) {
    let signal = i32::try_from(signal).ok().and_then(|signal| Signal::try_from(signal).ok());
    let _ = killpg(pid1, signal);
}
