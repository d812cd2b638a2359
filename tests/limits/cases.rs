//! One limit each.

use std::fs;
use std::io::BufRead;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::pause;
use nix_sandbox::engine::cgroup::{Cgroups, Leaf, Scope};
use nix_sandbox::kernel::{self, Cloned, Namespaces};
use nix_sandbox::outcome::{Ending, Strength};
use nix_sandbox::plan::{LimitOverrides, Limits, Wall};
use nix_sandbox::request::{Request, Work};
use nix_sandbox::runner::{Cancel, Fault, Streams};

use crate::{Host, Wants, assert_ending, limits, outside, probe, run, runner, said};

const MIB: u64 = 1 << 20;

type Case = fn(&Host);

pub(crate) const ALL: &[(&str, Case)] = &[
    ("what_holds_is_in_the_result", what_holds_is_in_the_result),
    ("a_required_cgroup_is_there_or_nothing_runs", a_required_cgroup_is_there_or_nothing_runs),
    ("a_memory_bomb_ends_as_out_of_memory_with_its_peak", a_memory_bomb),
    ("a_child_out_of_memory_ends_the_run", a_child_out_of_memory_ends_the_run),
    ("what_fits_the_memory_limit_runs", what_fits_the_memory_limit_runs),
    ("shared_memory_counts_once", shared_memory_counts_once),
    ("files_in_memory_count", files_in_memory_count),
    ("killed_by_itself_is_not_out_of_memory", killed_by_itself_is_not_out_of_memory),
    ("a_full_tmpfs_says_enospc", a_full_tmpfs_says_enospc),
    ("too_many_files_say_enospc", too_many_files_say_enospc),
    ("one_10_gib_memfd_ends_with_efbig", one_10_gib_memfd_ends_with_efbig),
    ("processes_end_at_the_limit", processes_end_at_the_limit),
    ("threads_end_at_the_limit", threads_end_at_the_limit),
    ("a_fork_bomb_leaves_room_for_others", a_fork_bomb_leaves_room_for_others),
    ("processor_time_is_limited", processor_time_is_limited),
    ("a_limit_too_small_to_start_is_named", a_limit_too_small_to_start_is_named),
    ("the_cgroup_alone_stops_processes", the_cgroup_alone_stops_processes),
    ("the_cgroup_alone_stops_memory", the_cgroup_alone_stops_memory),
    ("cgroup_kill_ends_all_and_nothing_is_left", cgroup_kill_ends_all_and_nothing_is_left),
    ("what_a_killed_program_left_is_removed", what_a_killed_program_left_is_removed),
    ("a_scope_of_systemd_is_entered_once_or_not", a_scope_of_systemd_is_entered_once_or_not),
];

fn memory(mib: u64) -> LimitOverrides {
    LimitOverrides { memory: Some(mib * MIB), ..LimitOverrides::default() }
}

fn pids(pids: u32) -> LimitOverrides {
    LimitOverrides { pids: Some(pids), time: Some(3.0), ..LimitOverrides::default() }
}

fn what_holds_is_in_the_result(host: &Host) {
    let outcome = probe(Wants::default(), &["hold", "1"]);
    let report = outcome.enforced.get(Wall::Cgroup).expect("a report");
    println!("    {:?}: {}", report.strength, report.detail);
    if host.has_cgroup() {
        assert_eq!(report.strength, Strength::Active, "{}", report.detail);
        assert_eq!(report.detail, "v2: memory 512 MiB, swap 0 MiB, 512 processes, 2 processors");
        assert!(outcome.usage.cpu_us > 0);
    } else {
        assert_eq!(report.strength, Strength::Off);
        let words = "memory: watched, best effort; many small memfds are not seen; processes: RLIMIT_NPROC; processor time: not limited; no cgroup, because ";
        assert!(report.detail.starts_with(words), "{}", report.detail);
    }
}

fn a_required_cgroup_is_there_or_nothing_runs(host: &Host) {
    let wants = Wants { require: Some(Wall::Cgroup), ..Wants::default() };
    let runner = runner(wants).expect("a runner");
    match run(&runner, &["sh", "-c", "exit 3"]) {
        Ok(outcome) => assert!(host.has_cgroup() && outcome.ending == Ending::Exited { code: 3 }),
        Err(error) => {
            println!("    {error}");
            assert!(!host.has_cgroup());
            assert!(error.to_string().starts_with("cgroup is required and cannot be had here: "));
        }
    }
}

fn a_memory_bomb(host: &Host) {
    let outcome = probe(limits(memory(64)), &["hold", "100000"]);
    println!("    {}, {:?}", outcome.ending, outcome.usage);
    assert_ending(&outcome, &Ending::OutOfMemory);
    // The watch looks every 10 ms at the earliest; a cgroup is exact.
    let most = if host.has_cgroup() { 64 } else { 512 };
    let peak = outcome.usage.peak_memory;
    assert!((60 * MIB..=most * MIB).contains(&peak), "{peak}");
}

fn a_child_out_of_memory_ends_the_run(_: &Host) {
    let outcome = probe(limits(memory(64)), &["hold-in-child", "100000"]);
    assert_ending(&outcome, &Ending::OutOfMemory);
}

fn what_fits_the_memory_limit_runs(_: &Host) {
    let outcome = probe(limits(memory(64)), &["hold", "48"]);
    assert_ending(&outcome, &Ending::Exited { code: 0 });
    assert!(outcome.usage.peak_memory >= 48 * MIB, "{:?}", outcome.usage);
}

fn shared_memory_counts_once(_: &Host) {
    let outcome = probe(limits(memory(96)), &["share", "32", "8"]);
    assert_ending(&outcome, &Ending::Exited { code: 0 });
}

fn files_in_memory_count(_: &Host) {
    let limits = LimitOverrides { workspace: Some(48 * MIB), ..memory(64) };
    // It stays after it has filled them: without a cgroup they are seen while the payload lives.
    let words = ["fill-and-stay", "/workspace/x", "/tmp/x", "/dev/shm/x"];
    let outcome = probe(crate::limits(limits), &words);
    assert_ending(&outcome, &Ending::OutOfMemory);
}

fn killed_by_itself_is_not_out_of_memory(_: &Host) {
    let outcome = probe(Wants::default(), &["kill-self"]);
    assert_ending(&outcome, &Ending::Signaled { signal: 9 });
}

fn a_full_tmpfs_says_enospc(_: &Host) {
    let limits = LimitOverrides { workspace: Some(8 * MIB), ..LimitOverrides::default() };
    let outcome = probe(crate::limits(limits), &["fill", "/workspace/x", "/tmp/x", "/dev/shm/x"]);
    let full = "8 MiB, then ENOSPC\n";
    let all = format!("/workspace/x: {full}/tmp/x: {full}/dev/shm/x: {full}");
    assert_eq!(said(&outcome), all);
}

fn too_many_files_say_enospc(_: &Host) {
    let limits = LimitOverrides { files: Some(100), ..LimitOverrides::default() };
    let outcome = probe(crate::limits(limits), &["files", "/tmp"]);
    // The directory itself is one.
    assert_eq!(said(&outcome), "99 files, then ENOSPC\n");
}

fn one_10_gib_memfd_ends_with_efbig(_: &Host) {
    let outcome = probe(Wants::default(), &["memfd", "10"]);
    assert_eq!(said(&outcome), "EFBIG\n");
}

fn processes_end_at_the_limit(host: &Host) {
    let outcome = probe(limits(pids(40)), &["fork", "500"]);
    // The forking one is the first of 40.
    assert_eq!(said(&outcome), "forked 39, then EAGAIN\n");
    if let Some(peak) = outcome.usage.peak_pids {
        assert!(host.has_cgroup() && peak <= 41, "{peak}");
    }
}

fn threads_end_at_the_limit(_: &Host) {
    let outcome = probe(limits(pids(40)), &["thread", "500"]);
    assert_eq!(said(&outcome), "started 39, then EAGAIN\n");
}

fn a_fork_bomb_leaves_room_for_others(_: &Host) {
    let runner = Arc::new(runner(limits(pids(128))).expect("a runner"));
    let bomb = Arc::clone(&runner);
    let script = ":(){ :|:& };: ; while :; do :; done # SANDBOX-FORK-BOMB";
    let bomb = std::thread::spawn(move || run(&bomb, &["bash", "-c", script]));
    // Until it has been at its limit for a while.
    std::thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    let other = run(&runner, &["sh", "-c", "echo alive"]).expect("an outcome");
    println!("    another run answered in {:.2} s", begun.elapsed().as_secs_f64());
    assert_eq!(said(&other), "alive\n");
    assert!(begun.elapsed() < Duration::from_secs(10));
    let outcome = bomb.join().expect("no panic").expect("an outcome");
    println!("    the bomb: {}, {:?}", outcome.ending, outcome.usage);
    assert_ending(&outcome, &Ending::TimedOut { after_ms: 3000 });
    assert!(said(&outcome).contains("Resource temporarily unavailable"), "{}", said(&outcome));
    assert_eq!(processes_with("SANDBOX-FORK-BOMB"), 0);
}

/// Processes of this machine whose command line holds `marker`.
fn processes_with(marker: &str) -> usize {
    let lines = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = lines.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(marker)).count()
}

fn processor_time_is_limited(host: &Host) {
    if !host.needs_cgroup() {
        return;
    }
    let fifth = LimitOverrides { cpu: Some(0.2), ..LimitOverrides::default() };
    let outcome = probe(limits(fifth), &["spin", "2000"]);
    println!("    {}", said(&outcome).trim());
    let used: u64 = said(&outcome).trim().parse().expect("milliseconds");
    assert!((200..=600).contains(&used), "{used}");
}

fn a_limit_too_small_to_start_is_named(host: &Host) {
    if !host.needs_cgroup() {
        return;
    }
    let outcome = probe(limits(memory(4)), &["hold", "1"]);
    assert_ending(&outcome, &Ending::Exited { code: 0 });
    // The code is copied into the sandbox's memory before anything runs.
    let code = format!("# {}", "x".repeat(6 << 20)).into_bytes();
    let request = Request::new("shell", Work::Code(code));
    let runner = runner(limits(memory(4))).expect("a runner");
    let cancel = Cancel::new().expect("cancel");
    let error = runner.run(&request, Streams::Capture, &cancel).expect_err("no room");
    println!("    {error}");
    assert_eq!(error.fault(), Fault::Caller);
    assert!(error.to_string().starts_with("the memory limit of 4194304 bytes"), "{error}");
}

/// A leaf of our own, and what runs in it: no sandbox around it.
fn in_leaf(leaf: &Leaf, child: impl FnOnce() -> i32) -> nix::unistd::Pid {
    let fd = leaf.fd().expect("its descriptor");
    match kernel::clone(Namespaces::NONE, Some(fd.as_fd())).expect("clone") {
        Cloned::Child => kernel::exit_now(child()),
        Cloned::Parent { pid, .. } => pid,
    }
}

/// A leaf and, to be dropped after it, whose it is.
fn leaf(limits: &Limits) -> (Cgroups, Leaf) {
    let cgroups = Cgroups::find(outside(), Scope::Never).expect("cgroups");
    let leaf = cgroups.leaf(limits).expect("a leaf");
    (cgroups, leaf)
}

/// Where in the host's file tree.
fn place(leaf: &Leaf) -> PathBuf {
    let fd = leaf.fd().expect("its descriptor");
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("its place")
}

/// Forks until it may not; how often it could.
fn fork_all() -> i32 {
    for count in 0..100 {
        match kernel::fork() {
            Ok(nix::unistd::ForkResult::Child) => pause(),
            Ok(nix::unistd::ForkResult::Parent { .. }) => {}
            Err(_) => return count,
        }
    }
    100
}

fn the_cgroup_alone_stops_processes(host: &Host) {
    if !host.needs_cgroup() {
        return;
    }
    let (_cgroups, leaf) = leaf(&Limits { pids: 20, ..Limits::default() });
    let pid = in_leaf(&leaf, fork_all);
    assert_eq!(waitpid(pid, None), Ok(WaitStatus::Exited(pid, 20)));
    println!("    {:?}", leaf.usage());
}

fn the_cgroup_alone_stops_memory(host: &Host) {
    if !host.needs_cgroup() {
        return;
    }
    let (_cgroups, leaf) = leaf(&Limits { memory: 16 * MIB, ..Limits::default() });
    assert!(!leaf.usage().out_of_memory);
    let pid = in_leaf(&leaf, || {
        let held: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 1 << 20]).collect();
        i32::from(held.is_empty())
    });
    let ended = waitpid(pid, None).expect("wait");
    assert!(matches!(ended, WaitStatus::Signaled(_, nix::sys::signal::SIGKILL, _)), "{ended:?}");
    let usage = leaf.usage();
    println!("    {usage:?}");
    assert!(usage.out_of_memory && usage.peak_memory.is_some_and(|peak| peak <= 16 * MIB));
}

fn cgroup_kill_ends_all_and_nothing_is_left(host: &Host) {
    if !host.needs_cgroup() {
        return;
    }
    let (cgroups, leaf) = leaf(&Limits { pids: 30, ..Limits::default() });
    let place = place(&leaf);
    let pid = in_leaf(&leaf, || {
        fork_all();
        pause();
        0
    });
    let procs = || fs::read_to_string(place.join("cgroup.procs")).unwrap_or_default();
    while procs().lines().count() < 31 {
        std::thread::yield_now();
    }
    let begun = Instant::now();
    drop(leaf);
    println!(
        "    31 processes killed and removed in {:.1} ms",
        begun.elapsed().as_secs_f64() * 1e3
    );
    assert!(matches!(waitpid(pid, None), Ok(WaitStatus::Signaled(..))));
    assert!(!place.exists() && !place.parent().expect("leaf").exists());
    let base = place.ancestors().nth(2).expect("base").to_owned();
    drop(cgroups);
    assert_eq!(ours(&base), 0, "something is left in {}", base.display());
    cost(&Cgroups::find(outside(), Scope::Never).expect("cgroups"));
}

/// What a leaf costs.
fn cost(cgroups: &Cgroups) {
    let begun = Instant::now();
    let leaves: Vec<Leaf> =
        (0..50).map(|_| cgroups.leaf(&Limits::default()).expect("leaf")).collect();
    let made = begun.elapsed();
    drop(leaves);
    let removed = begun.elapsed() - made;
    println!(
        "    a leaf: made in {} us, removed in {} us",
        (made / 50).as_micros(),
        (removed / 50).as_micros()
    );
}

/// Directories of ours in `base`.
fn ours(base: &PathBuf) -> usize {
    // It may have been ours too.
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("sandbox-")).count()
}

/// Makes a leaf, says where, and waits to be killed.
pub(crate) fn hold() -> ExitCode {
    let (_cgroups, leaf) = leaf(&Limits::default());
    println!("{}", place(&leaf).display());
    pause();
    ExitCode::SUCCESS
}

fn what_a_killed_program_left_is_removed(host: &Host) {
    if !host.needs_cgroup() {
        return;
    }
    let mut program = Command::new("/proc/self/exe");
    let mut child = program.arg("hold").stdout(Stdio::piped()).spawn().expect("start");
    let mut line = String::new();
    let mut lines = std::io::BufReader::new(child.stdout.take().expect("stdout"));
    lines.read_line(&mut line).expect("a line");
    let place = PathBuf::from(line.trim());
    assert!(place.is_dir(), "{line}");
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert!(place.is_dir(), "nobody can have removed it");
    drop(Cgroups::find(outside(), Scope::Never).expect("cgroups"));
    assert!(!place.parent().expect("leaf").exists(), "{}", place.display());
}

/// Looks for a cgroup as the program does, and says what it found.
pub(crate) fn scoped() -> ExitCode {
    match Cgroups::find(outside(), Scope::Enter) {
        Ok(_) => println!("found"),
        Err(reason) => println!("{reason}"),
    }
    ExitCode::SUCCESS
}

/// With systemd-run and a bus that are ours: what they do to a process needs the real ones.
fn a_scope_of_systemd_is_entered_once_or_not(host: &Host) {
    if !host.needs_undelegated() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let tool = directory.path().join("systemd-run");
    let says = |script: &str| {
        fs::write(&tool, format!("#!/bin/sh\n{script}\n")).expect("script");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("executable");
        let mut program = Command::new("/proc/self/exe");
        let path = format!("{}:/usr/bin:/bin", directory.path().display());
        program.arg("scoped").env("PATH", path).env("XDG_RUNTIME_DIR", directory.path());
        let output = program.output().expect("start");
        String::from_utf8(output.stdout).expect("text")
    };
    let run = "while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"";
    assert!(says(run).contains("has no bus here"));
    let _bus = std::os::unix::net::UnixListener::bind(directory.path().join("bus")).expect("bus");
    let once = says(run);
    assert!(once.contains("was entered already"), "{once}");
    assert!(says("exit 1").contains("refuses a scope"));
    let begun = Instant::now();
    let hangs = says("exec sleep 60");
    assert!(hangs.contains("start systemd-run: ETIMEDOUT"), "{hangs}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    println!("    {once}");
}
