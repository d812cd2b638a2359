//! Group 9: resources. Limits are set low, so that a missing one shows and harms nobody.
//!
//! What needs a cgroup, or the watch that stands in for one, is in `tests/limits`.

use std::any::Any;
use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::support::{command, processes_with};

const FEW: &str = "[limits]\npids = 64\n";
const LITTLE: &str = "[limits]\nmemory = \"64M\"\n";
const SMALL: &str = "[limits]\nworkspace = \"1M\"\nfiles = 64\n";
const MEMORY: &str = "without a limit it takes the machine's memory";
const COUNTERS: &str = "without its walls it uses up what the host's other programs need";
const SECOND: &str = "its second wall is a cgroup, which the host need not have";
const BOMB: &str = "without a limit of processes it stops the machine";

entries! {
    res_01_forks: "RES-01" "res/RES-01.py" =>
        "\
        forked: 63, then EAGAIN\n\
        ", settings: FEW, only_in_a_vm: BOMB;
    res_01_fork_bomb: "RES-01" "res/RES-01-bomb.sh" =>
        "\
        processes: at most 80\n\
        [timed_out]\n\
        ", settings: FEW,
        seconds: 10.0, only_in_a_vm: BOMB;
    res_02_threads_whoever_started_it: "RES-02" "res/RES-02.py" =>
        "\
        root of the host: False\n\
        threads: 63, then refused\n\
        ", settings: FEW, only_in_a_vm: SECOND;
    res_03_each_sandbox_has_its_own_count: "RES-03" "res/RES-01.py" =>
        "\
        forked: 63, then EAGAIN\n\
        ", settings: FEW,
        before: Some(fork_elsewhere), only_in_a_vm: BOMB;
    res_05_memory: "RES-05" "res/RES-05.py" => "[out_of_memory]\n", settings: LITTLE,
        only_in_a_vm: MEMORY;
    res_06_many_files_in_memory: "RES-06" "res/RES-06-many.py" => "{[out_of_memory]|held after 3 s: 256 MiB}\n",
        settings: LITTLE, only_in_a_vm: MEMORY,
        varies: "without a cgroup they are not seen, as the result says";
    res_06_files_in_memory: "RES-06" "res/RES-06.py" =>
        "\
        ftruncate to 10 GiB: EFBIG\n\
        fallocate up to 10 GiB: EFBIG\n\
        write at 10 GiB: EFBIG\n\
        written: 1 MiB, then File too large\n\
        ", settings: SMALL, only_in_a_vm: MEMORY;
    res_07_full_file_systems: "RES-07" "res/RES-07.py" =>
        "\
        bytes in /workspace: ENOSPC\n\
        size of /workspace: 1024 KiB\n\
        files in /workspace: ENOSPC\n\
        bytes in /tmp: ENOSPC\n\
        size of /tmp: 1024 KiB\n\
        files in /tmp: ENOSPC\n\
        bytes in /dev/shm: ENOSPC\n\
        size of /dev/shm: 1024 KiB\n\
        files in /dev/shm: ENOSPC\n\
        bytes in /: EROFS\n\
        bytes in /dev: EROFS\n\
        bytes in /dev/pts: EACCES\n\
        bytes in /proc: ENOENT\n\
        bytes in /project: EROFS\n\
        bytes in /etc: EROFS\n\
        bytes in /usr: EROFS\n\
        ", settings: SMALL;
    res_09_shared_memory: "RES-09" "res/RES-09.py" =>
        "\
        segments: 16, ok\n\
        written: ok\n\
        host: 0 segments left\n\
        ", after: Some(no_segment);
    res_11_pipes: "RES-11" "res/RES-11.py" =>
        "\
        pipes: fewer than 2048, then EMFILE\n\
        of 1 MiB: at most 64\n\
        beyond: EPERM\n\
        2 MiB: EPERM\n\
        ", only_in_a_vm: MEMORY;
    res_12_sockets: "RES-12" "res/RES-12.py" =>
        "\
        descriptors on their way: at most 4200, then ETOOMANYREFS\n\
        full sockets: fewer than 2048, then EMFILE\n\
        ", only_in_a_vm: MEMORY;
    res_14_large_files: "RES-14" "res/RES-14.py" =>
        "\
        /workspace truncate to 8 EiB - 1: EFBIG\n\
        /workspace truncate to 1 GiB: EFBIG\n\
        /workspace fallocate 1 GiB: EFBIG\n\
        /workspace write at 1 GiB: EFBIG\n\
        /tmp truncate to 8 EiB - 1: EFBIG\n\
        /tmp truncate to 1 GiB: EFBIG\n\
        /tmp fallocate 1 GiB: EFBIG\n\
        /tmp write at 1 GiB: EFBIG\n\
        /dev/shm truncate to 8 EiB - 1: EFBIG\n\
        /dev/shm truncate to 1 GiB: EFBIG\n\
        /dev/shm fallocate 1 GiB: EFBIG\n\
        /dev/shm write at 1 GiB: EFBIG\n\
        ", settings: SMALL;
    res_14_large_files_and_their_signal: "RES-14" "res/RES-14-signal.sh" =>
        "\
        truncate: 153\n\
        No space left on device\n\
        dd: 1048576 bytes\n\
        ", settings: SMALL;
    res_15_a_deep_tree: "RES-15" "res/RES-15.py" =>
        "\
        deeper than 20,000: True\n\
        ";
    res_17_processors: "RES-17" "res/RES-17.py" =>
        "\
        nice -20: EACCES\n\
        first in, first out: EPERM\n\
        I/O in real time: EPERM\n\
        [timed_out]\n\
        ", seconds: 1.0;
    res_18_the_disk: "RES-18" "res/RES-18.py" =>
        "\
        what can be written lies on: tmpfs\n\
        write and fsync: ok\n\
        drop the page cache: EACCES\n\
        ";
    res_25_daemons: "RES-25" "res/RES-25.sh" =>
        "\
        started\n\
        host: none left\n\
        ",
        before: Some(mark), after: Some(none_left);
    res_25_daemons_at_a_time_out: "RES-25" "res/RES-25.sh" =>
        "\
        started\n\
        [timed_out]\n\
        host: none left\n\
        ", seconds: 1.0,
        before: Some(mark_and_stay), after: Some(none_left);
    res_26_deaf_stopped_and_waiting: "RES-26" "res/RES-26.c" =>
        "\
        mkfifo: ok\n\
        waiting\n\
        [timed_out]\n\
        ", seconds: 1.0;
    res_27_zombies: "RES-27" "res/RES-27.py" =>
        "\
        orphans unburied: 0\n\
        own zombies: 63, then EAGAIN\n\
        ", settings: FEW, only_in_a_vm: BOMB;
    res_30_counters_of_the_host: "RES-30" "res/RES-30.py" =>
        "\
        io_setup: ENOSYS\n\
        add_key: EPERM\n\
        inotify instances: 8, then EMFILE\n\
        eventfd: fewer than 4096, then EMFILE\n\
        host's asynchronous I/O: unchanged\n\
        ",
        before: Some(remember_aio), after: Some(aio_unchanged), only_in_a_vm: COUNTERS;
    res_33_without_a_cgroup: "RES-33" "res/RES-33.py" =>
        "\
        CORE: limited\n\
        NPROC: limited\n\
        NOFILE: limited\n\
        FSIZE: limited\n\
        MEMLOCK: limited\n\
        MSGQUEUE: limited\n\
        NICE: limited\n\
        RTPRIO: limited\n\
        AS: none\n\
        DATA: none\n\
        wall rlimits: active: processes, file size, open files, locked memory, no core dumps\n\
        wall cgroup: {active: v2: memory 512 MiB, |off: memory}{*}\n\
        ", reported: &["rlimits", "cgroup"],
        varies: "where there is a cgroup, it limits memory and processors too";
}

thread_local! {
    /// What the host holds while a payload runs.
    static HELD: RefCell<Vec<Box<dyn Any>>> = RefCell::default();
}

/// A sandbox that is ended with its test.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another sandbox of the same user that has used up all of its own processes.
fn fork_elsewhere(project: &Path) {
    let script = "n=0; while [ $n -lt 60 ]; do sleep 300 & n=$((n + 1)); done; echo up; wait";
    run_elsewhere(project, script);
}

/// Another sandbox of the same user, with a keyring of its own.
pub(super) fn idle_elsewhere(project: &Path) {
    run_elsewhere(project, "echo up; exec sleep 300");
}

/// Runs a script in another sandbox; it says `up`, and lives as long as this test.
fn run_elsewhere(project: &Path, script: &str) {
    let settings = project.join("settings.toml");
    fs::write(&settings, FEW).expect("settings");
    let mut command = command();
    command.args(["exec", "--timeout", "300", "--", "sh", "-c", script]);
    command.env("NIX_SANDBOX_CONFIG", settings).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("start");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut line).expect("a line");
    assert_eq!(line, "up\n");
    HELD.with_borrow_mut(|held| held.push(Box::new(Other(child))));
}

/// A duration for `sleep` by which the payload's processes are known among the host's.
fn mark(project: &Path) {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mark = format!("12{:07}{number:03}", std::process::id());
    fs::write(project.join("mark"), mark).expect("mark");
}

fn mark_and_stay(project: &Path) {
    mark(project);
    fs::write(project.join("stay"), "").expect("stay");
}

/// At once: when the program has ended, its sandbox is gone.
fn none_left(project: &Path) -> String {
    let mark = fs::read_to_string(project.join("mark")).expect("mark");
    match processes_with(&mark).as_slice() {
        [] => "host: none left\n".to_owned(),
        left => format!("host: left {left:?}\n"),
    }
}

fn no_segment(_: &Path) -> String {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    // The payload's keys: 0x5afe and those after it.
    let left = table.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
    let left = left.filter(|key: &i64| (0x5afe..0x5afe + 16).contains(key)).count();
    format!("host: {left} segments left\n")
}

/// How many asynchronous I/O contexts the machine has in use.
fn aio() -> String {
    fs::read_to_string("/proc/sys/fs/aio-nr").unwrap_or_default()
}

fn remember_aio(_: &Path) {
    HELD.with_borrow_mut(|held| held.push(Box::new(aio())));
}

fn aio_unchanged(_: &Path) -> String {
    let before = HELD.with_borrow(|held| held[0].downcast_ref::<String>().cloned());
    let same = before == Some(aio());
    format!("host's asynchronous I/O: {}\n", if same { "unchanged" } else { "changed" })
}
