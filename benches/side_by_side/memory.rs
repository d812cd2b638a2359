//! What stays in memory beside a sandbox that sleeps, and of a server that has nothing to do.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix_sandbox::backend::{Backend, Ends, Started};

use crate::contestants::{Servers, ends, plan_of};
use crate::mcp::Client;
use crate::workplace::Workplace;

/// KiB.
pub(crate) struct Memory {
    /// Proportional set size of our pid 1 beside a sleeping payload, and what of it is nobody else's.
    pub(crate) ours: (u64, u64),
    /// The first, where so many sleep at once.
    pub(crate) ours_of_many: u64,
    /// Of bubblewrap's two processes.
    pub(crate) bubblewrap: u64,
    /// Resident: a server and its launcher that have answered nothing yet.
    pub(crate) idle_server: u64,
    /// Their processor time within one second, clock ticks.
    pub(crate) idle_ticks: u64,
}

pub(crate) fn measure(workplace: &Workplace, servers: &Servers) -> Memory {
    let client = Client::new(workplace, 8);
    let launcher = children(client.pid());
    let idle_server = std::iter::once(client.pid())
        .chain(launcher)
        .map(|pid| field(&format!("/proc/{pid}/smaps_rollup"), "Rss:"))
        .sum();
    let before = ticks(client.pid());
    std::thread::sleep(Duration::from_secs(1));
    let idle_ticks = ticks(client.pid()) - before;
    let ours = sleeping(workplace, servers, 1);
    let ours_of_many = sleeping(workplace, servers, MANY).0;
    Memory { ours, ours_of_many, bubblewrap: bubblewrap(), idle_server, idle_ticks }
}

/// So many sleep at once.
pub(crate) const MANY: u64 = 16;

/// Proportional and private KiB of each pid 1, on average.
fn sleeping(workplace: &Workplace, servers: &Servers, count: u64) -> (u64, u64) {
    let all: Vec<_> = (0..count).map(|_| asleep(workplace, servers)).collect();
    std::thread::sleep(Duration::from_millis(200));
    let sum = |key: &str| -> u64 {
        let pid = |started: &Started| {
            field(&format!("/proc/self/fdinfo/{}", started.pidfd.as_raw_fd()), "Pid:")
        };
        let of = |pid| field(&format!("/proc/{pid}/smaps_rollup"), key);
        all.iter().map(|(started, _)| of(pid(started))).sum::<u64>() / count
    };
    (sum("Pss:"), sum("Private_Dirty:"))
}

/// A sandbox whose payload never ends, and who hears its report.
fn asleep(workplace: &Workplace, servers: &Servers) -> (Started, OwnedFd) {
    let plan = plan_of(workplace, 10, &["/project/true", "stay"]);
    let (Ends { report, outputs: _unread, .. }, handover) = ends(&plan);
    let started = servers.template.start(plan, handover).expect("a sandbox");
    // Told when every wall stands; then its program is executed.
    let _ = nix::unistd::read(&report, &mut [0; 4096]).expect("its report");
    (started, report)
}

fn bubblewrap() -> u64 {
    let mut process = Command::new("bwrap")
        .args(["--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib"])
        .args(["--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--", "/usr/bin/cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("bwrap");
    std::thread::sleep(Duration::from_millis(200));
    let outer = process.id();
    let inner = children(outer);
    let sum = std::iter::once(outer)
        .chain(inner)
        .map(|pid| field(&format!("/proc/{pid}/smaps_rollup"), "Pss:"))
        .sum();
    drop(process.stdin.take());
    let _ = process.wait();
    sum
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn field(path: &str, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("0");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = text.rsplit_once(") ").map_or("", |(_, after)| after);
    after.split(' ').skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// Descriptors, threads and resident KiB of this process.
pub(crate) fn own() -> [u64; 3] {
    let count = |path| fs::read_dir(path).map_or(0, |entries| entries.count() as u64);
    let resident = field("/proc/self/smaps_rollup", "Rss:");
    [count("/proc/self/fd"), count("/proc/self/task"), resident]
}
