//! Where no cgroup limits memory: pid 1 looks how much the sandbox uses, now and then.
//!
//! Pid 1 and not the supervisor, because the sandbox's `/proc` and its tmpfs exist in pid 1's
//! namespaces only, and because nothing in the sandbox can stop or deceive it.
//!
//! | what is used | seen by | |
//! |---|---|---|
//! | memory of processes | `/proc/PID/statm`, which needs no rights | too much: what is shared counts for each |
//! | the same, exactly | `/proc/PID/smaps_rollup` | dear, so only where the cheap sum is above the limit |
//! | the same of a process that is not dumpable | `/proc/PID/status` | what is shared counts for each |
//! | files in `/workspace`, `/tmp`, `/dev/shm` | statfs(2) | |
//! | System V memory, queues and semaphores | `/proc/sysvipc` | also where nobody maps them |
//! | memfds, pipes, sockets that nobody maps | not seen | `RLIMIT_FSIZE` and `RLIMIT_NOFILE` bound them |
//!
//! It looks the more rarely the dearer a look is, so that it costs a hundredth of a processor; but every
//! 100 ms at least, which costs more where there are hundreds of processes. It is late by some
//! milliseconds, and what is used for a shorter time goes unseen.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::statfs::statfs;
use nix::unistd::{SysconfVar, sysconf};

use crate::plan::{Mount, MountKind, Plan};

/// How much longer it waits than it has looked: a hundredth of a processor, with what it costs to
/// wake up.
const SHARE: u32 = 150;
/// How often it looks at most and at least, if that can be had for its share.
const EAGER: Duration = Duration::from_millis(10);
const LAZY: Duration = Duration::from_millis(100);
/// How often it looks exactly at least, while the cheap sum is above the limit.
const EXACT: Duration = Duration::from_secs(1);

/// Pid 1's look at the memory of the sandbox.
#[derive(Debug)]
pub(crate) struct MemoryWatch {
    limit: u64,
    tmpfs: Vec<PathBuf>,
    page: u64,
    due: Instant,
    /// When an exact look is due again, and at which cheap sum even before.
    exact_due: Instant,
    exact_above: u64,
}

impl MemoryWatch {
    /// Watches over `limit` bytes. `tmpfs` are the places where files are memory.
    pub(super) fn new(limit: u64, tmpfs: Vec<PathBuf>) -> Self {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        let page = page.and_then(|page| u64::try_from(page).ok()).unwrap_or(4096);
        let now = Instant::now();
        Self { limit, tmpfs, page, due: now + EAGER, exact_due: now, exact_above: limit }
    }

    /// How long until the next look.
    pub(crate) fn pause(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Looks, if it is time to. What the sandbox uses, bytes, if that is above the limit.
    pub(crate) fn above_limit(&mut self) -> Option<u64> {
        let now = Instant::now();
        if now < self.due {
            return None;
        }
        let above = self.look(now);
        self.due = Instant::now() + (now.elapsed() * SHARE).clamp(EAGER, LAZY);
        above
    }

    fn look(&mut self, now: Instant) -> Option<u64> {
        let files = self.files() + ipc();
        let most = files + self.processes(|pid| Some(statm(pid)? * self.page));
        if most <= self.limit || (most <= self.exact_above && now < self.exact_due) {
            return None;
        }
        let begun = Instant::now();
        let exact = self.exact(files);
        self.exact_due = Instant::now() + (begun.elapsed() * SHARE).clamp(EAGER, EXACT);
        // What is used anew is in the cheap sum too; only what stops being shared is not.
        self.exact_above = most + self.limit.saturating_sub(exact);
        (exact > self.limit).then_some(exact)
    }

    /// Bytes of all files in the sandbox's tmpfs.
    fn files(&self) -> u64 {
        let used = |path: &PathBuf| {
            let stat = statfs(path).ok()?;
            let blocks = stat.blocks().saturating_sub(stat.blocks_free());
            Some(blocks * u64::try_from(stat.block_size()).ok()?)
        };
        self.tmpfs.iter().filter_map(used).sum()
    }

    /// The sum over all processes but pid 1, bytes.
    fn processes(&self, bytes: impl Fn(&str) -> Option<u64>) -> u64 {
        let Ok(entries) = fs::read_dir("/proc") else { return 0 };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let pids =
            names.filter(|name| name != "1" && name.starts_with(|c: char| c.is_ascii_digit()));
        pids.filter_map(|pid| bytes(&pid)).sum()
    }

    /// What processes and files use together. A file that is mapped is in both sums, so of the two
    /// kinds of shared memory the larger one counts: rather too little than an innocent end.
    fn exact(&self, files: u64) -> u64 {
        let shared = std::cell::Cell::new(0);
        let own = self.processes(|pid| {
            // A process that is not dumpable shows the first to nobody.
            let (anonymous, shmem) = rollup(pid).or_else(|| status(pid))?;
            shared.set(shared.get() + shmem);
            Some(anonymous)
        });
        own + shared.get().max(files)
    }
}

/// The watch of a plan: its limit, and the places where files are memory.
pub(crate) fn of(plan: &Plan) -> MemoryWatch {
    let place = |mount: &Mount| match mount.kind {
        MountKind::Tmpfs { .. } => Some(mount.at.clone()),
        MountKind::Devices { .. } => Some(mount.at.join("shm")),
        _ => None,
    };
    MemoryWatch::new(plan.limits().memory, plan.mounts().iter().filter_map(place).collect())
}

/// Resident pages (proc_pid_statm(5)).
fn statm(pid: &str) -> Option<u64> {
    parse_statm(&fs::read_to_string(format!("/proc/{pid}/statm")).ok()?)
}

fn parse_statm(text: &str) -> Option<u64> {
    text.split(' ').nth(1)?.parse().ok()
}

/// Bytes of anonymous and of shared memory; what several processes map counts for each in part
/// (`Documentation/ABI/testing/procfs-smaps_rollup`).
fn rollup(pid: &str) -> Option<(u64, u64)> {
    parse_rollup(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

fn parse_rollup(text: &str) -> Option<(u64, u64)> {
    Some((bytes(text, "Pss_Anon:")?, bytes(text, "Pss_Shmem:")?))
}

/// The same where each of several processes counts in full (proc_pid_status(5)).
fn status(pid: &str) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some((bytes(&text, "RssAnon:")?, bytes(&text, "RssShmem:")?))
}

fn bytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// What a semaphore takes, bytes: a line of the processor's cache (`struct sem`, ipc/sem.c).
const SEMAPHORE: u64 = 64;

/// Bytes of System V shared memory, messages and semaphores, which live on while nobody uses them
/// (proc_sysvipc(5)).
fn ipc() -> u64 {
    let sum = |kind: &str, columns: &[&str]| {
        let text = fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default();
        sum_columns(&text, columns)
    };
    sum("shm", &["rss", "swap"]) + sum("msg", &["cbytes"]) + sum("sem", &["nsems"]) * SEMAPHORE
}

/// The sum of all numbers below these heads.
fn sum_columns(table: &str, heads: &[&str]) -> u64 {
    let mut lines = table.lines().map(str::split_whitespace);
    let Some(names) = lines.next() else { return 0 };
    let wanted: Vec<bool> = names.map(|name| heads.contains(&name)).collect();
    let numbers = lines.flat_map(|line| line.zip(&wanted).filter(|(_, wanted)| **wanted));
    numbers.filter_map(|(number, _)| number.parse::<u64>().ok()).sum()
}

/// Kills every process of the sandbox but the caller, pid 1, and collects them: what they used
/// counts.
pub(super) fn end_all() {
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::wait;
    use nix::unistd::Pid;
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    while !matches!(wait(), Err(Errno::ECHILD)) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read_as_documented() {
        assert_eq!(parse_statm("2331 1450 700 5 0 300 0\n"), Some(1450));
        assert_eq!(parse_statm("0 0 0 0 0 0 0\n"), Some(0));
        assert_eq!(parse_statm(""), None);
        let text = "55d0-7ffc ---p 00000000 00:00 0  [rollup]\nRss:  3000 kB\nPss:  900 kB\n\
            Pss_Anon:             512 kB\nPss_File:  300 kB\nPss_Shmem:             16 kB\n";
        assert_eq!(parse_rollup(text), Some((512 << 10, 16 << 10)));
        let shm = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid\
            \x20 cuid  cgid      atime      dtime      ctime                   rss                  swap\n\
            \x20        0          3   600               8192   9     9      0  1000  1000\
            \x20 1000  1000          0          0 1700000000                  4096                  8192\n";
        assert_eq!(sum_columns(shm, &["rss", "swap"]), 12288);
        assert_eq!(sum_columns("", &["rss"]), 0);
        // Before Linux 5.4 it does not tell them apart.
        assert_eq!(parse_rollup("Rss:  3000 kB\nPss:  900 kB\n"), None);
    }

    #[test]
    fn what_is_used_is_seen_and_looked_at_only_when_it_is_time() {
        let mut watch = MemoryWatch::new(1, vec![PathBuf::from("/dev/shm")]);
        assert_eq!(watch.above_limit(), None);
        assert!(watch.pause() <= EAGER);
        watch.due -= EAGER;
        assert!(watch.above_limit().is_some_and(|bytes| bytes > 1));
        assert!(watch.pause() <= LAZY);
        watch.due += LAZY * 1000;
        assert_eq!(watch.above_limit(), None);
        let mut watch = MemoryWatch::new(u64::MAX, vec![]);
        assert_eq!(watch.above_limit(), None);
    }
}
