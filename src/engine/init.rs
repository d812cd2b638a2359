//! Pid 1 while the payload runs: reaps, forwards signals, reports the ending, ends.
//!
//! When pid 1 ends the kernel kills everything in its PID namespace (pid_namespaces(7)): double
//! forks, other sessions and stopped processes alike. So the run has ended when its main process
//! has, and a grandchild that holds stdout open delays nothing.

use std::fs::File;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::report::{Ended, Report};
use crate::kernel;
use crate::policy::Program;

/// Signals that are passed on to the payload's process group when they come from outside.
const FORWARDED: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];

/// Blocks every signal and opens a descriptor to read them from. Before the fork, so that none is
/// missed.
///
/// # Errors
/// `EMFILE`.
pub fn block_signals() -> nix::Result<SignalFd> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    let mut watched = SigSet::empty();
    watched.add(Signal::SIGCHLD);
    FORWARDED.iter().for_each(|signal| watched.add(*signal));
    SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC)
}

/// Unblocks every signal: the payload starts with an empty mask.
///
/// # Errors
/// Never in practice.
pub fn unblock_signals() -> nix::Result<()> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Watches the payload to its end and ends with it.
pub fn run(
    payload: Pid,
    started: Instant,
    report: &File,
    signals: &SignalFd,
    filter: &Program,
) -> ! {
    for descriptor in 0..=2 {
        // The payload's streams are the payload's: EOF must not wait for pid 1.
        let _ = nix::unistd::close(descriptor);
    }
    // A second wall: without it nothing is lost but depth, so a refusal does not end the run.
    let _ = kernel::load_filter(filter);
    loop {
        match signals.read_signal() {
            Ok(Some(info)) if info.ssi_signo == Signal::SIGCHLD as u32 => {
                if let Some(ending) = reap(payload) {
                    finish(ending, started, report);
                }
            }
            // From outside only: inside, whoever wants to signal the payload can do so itself.
            Ok(Some(info)) if info.ssi_pid == 0 => forward(payload, info.ssi_signo),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => kernel::exit_now(1),
        }
    }
}

/// Reaps whoever has ended. The payload's ending, once it is among them.
fn reap(payload: Pid) -> Option<Ended> {
    let mut ending = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == payload => ending = Some(Ended::Code(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == payload => {
                ending = Some(Ended::Signal(signal as i32));
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return ending,
            Ok(_) | Err(_) => {}
        }
    }
}

fn forward(payload: Pid, signal: u32) {
    let signal = i32::try_from(signal).ok().and_then(|signal| Signal::try_from(signal).ok());
    // ESRCH: it has just ended, which SIGCHLD tells.
    let _ = killpg(payload, signal);
}

fn finish(ending: Ended, started: Instant, report: &File) -> ! {
    let wall_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let (cpu_us, peak_memory) = match getrusage(UsageWho::RUSAGE_CHILDREN) {
        Ok(usage) => {
            let cpu = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
            (cpu.cast_unsigned(), usage.max_rss().cast_unsigned() * 1024)
        }
        Err(_) => (0, 0),
    };
    let sent = Report::Ended { ending, wall_us, cpu_us, peak_memory }.send(report);
    kernel::exit_now(i32::from(sent.is_err()));
}
