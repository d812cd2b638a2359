//! Processes: none of the host's is seen, none of ours is left.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::needs;
use crate::support::{command, exec, processes_with, sh};

/// A duration for `sleep` that no other test uses: it names our processes among the host's.
fn marker() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("10{:07}{number:03}", std::process::id())
}

fn none_left(marker: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !processes_with(marker).is_empty() {
        assert!(Instant::now() < deadline, "left: {:?}", processes_with(marker));
        std::thread::yield_now();
    }
}

#[test]
fn no_other_process_is_seen() {
    needs!(Userns);
    // Pid 1 and the payload, which forks nothing here; nothing of the host.
    assert_eq!(exec("shell", &["sh", "-c", "echo /proc/[0-9]*"]).stdout, "/proc/1 /proc/2\n");
}

#[test]
fn background_processes_do_not_delay_the_end_and_none_is_left() {
    needs!(Userns);
    let marker = marker();
    let started = Instant::now();
    let script = format!("(setsid sleep {marker} &) ; sleep {marker} & exit 0");
    assert_eq!(exec("shell", &["sh", "-c", &script]).code, 0);
    assert!(started.elapsed() < Duration::from_secs(60), "waited for the sleeps");
    none_left(&marker);
}

#[test]
fn a_time_out_returns_what_was_written_and_kills_everything() {
    needs!(Userns);
    let marker = marker();
    let script = format!(
        "echo partial; trap '' TERM INT HUP; (setsid sh -c 'trap \"\" TERM; sleep {marker}' &); \
         sh -c 'kill -STOP $$; sleep {marker}' & sleep {marker}"
    );
    let ran = crate::support::exec_with("shell", &[], &["--timeout", "2"], &["sh", "-c", &script]);
    assert_eq!((ran.ending(), ran.code, ran.stdout.as_str()), ("timed_out", 124, "partial\n"));
    none_left(&marker);
}

#[test]
fn sigkill_of_the_program_leaves_no_process() {
    needs!(Userns);
    let marker = marker();
    let script = format!("echo up; (setsid sleep {marker} &); sleep {marker}");
    let mut command = command();
    command.args(["exec", "--", "sh", "-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("start");
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("stdout"));
    std::io::BufRead::read_line(&mut stdout, &mut line).expect("up");
    assert_eq!(line, "up\n");
    child.kill().expect("SIGKILL");
    child.wait().expect("reap");
    none_left(&marker);
}

#[test]
fn pid_1_cannot_be_signalled_traced_or_looked_into() {
    needs!(Userns);
    let ran = sh("kill -9 1; kill -TERM 1; kill -STOP 1; cat /proc/1/environ; ls /proc/1/fd; \
                  readlink /proc/1/exe /proc/1/root; (echo x >/proc/1/mem) ; echo alive");
    assert_eq!(ran.stdout, "alive\n");
    assert_eq!(ran.json["ending"]["kind"], "exited");
}

#[test]
fn orphans_are_reaped() {
    needs!(Userns);
    let ran = sh("i=0; while [ $i -lt 200 ]; do (true &) ; i=$((i+1)); done; \
                  n=1; while [ $n -lt 200 ] && grep -q 'State:.*zombie' /proc/[0-9]*/status 2>/dev/null; do n=$((n+1)); done; \
                  grep -c 'State:.*zombie' /proc/[0-9]*/status 2>/dev/null | grep -cv ':0'");
    assert_eq!(ran.stdout, "0\n", "{}", ran.stderr);
}

#[test]
fn no_mount_or_file_is_left_on_the_host() {
    needs!(Userns);
    let mounts = || {
        let text = fs::read_to_string("/proc/self/mounts").expect("mounts");
        text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    let before = mounts();
    for _ in 0..20 {
        sh("touch /tmp/x /workspace/y; mkdir /dev/shm/z");
    }
    assert_eq!(mounts(), before);
}
