//! Signals on their way to the payload (LIFE, TTY-04).

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::Signal;

use crate::harness::{command, eventually, marked, program, send, slower};

/// A payload that has said that it is ready.
fn ready(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
    let mut out = BufReader::new(child.stdout.take().expect("stdout"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    (child, out)
}

#[test]
fn sigint_sigterm_sighup_and_sigquit_end_it_with_128_plus_n() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        // Not a shell: dash forgets a SIGINT that comes while it starts a program, bash ignores
        // SIGQUIT.
        let mut cat = command(&["exec", "--", "cat"]);
        let (read, mut write) = std::io::pipe().expect("a pipe");
        write.write_all(b"ready\n").expect("written");
        cat.stdin(read);
        let (mut child, _out) = ready(cat);
        send(&child, signal);
        assert_eq!(child.wait().expect("ended").code(), Some(128 + signal as i32));
    }
}

/// Whether a program blocks a signal, to read it from a descriptor.
fn takes(child: &Child, signal: Signal) -> bool {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    mask & 1 << (signal as i32 - 1) != 0
}

#[test]
fn a_signal_under_json_is_told_and_is_128_plus_n() {
    let mut sleep = command(&["exec", "--json", "--", "sleep", "1000"]);
    let child = sleep.stdout(Stdio::piped()).spawn().expect("started");
    // Signals are taken from the first moment on: none is missed, once main() runs.
    eventually("signals are taken", || takes(&child, Signal::SIGINT));
    send(&child, Signal::SIGINT);
    let output = child.wait_with_output().expect("ended");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["ending"], serde_json::json!({"kind": "signaled", "signal": 2}));
    assert_eq!(output.status.code(), Some(130));
}

#[test]
fn sigint_reaches_the_payload_once() {
    let script = "trap 'echo got' INT; echo ready; \
                  for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; exit 5";
    let (mut child, mut out) = ready(command(&["exec", "--", "sh", "-c", script]));
    send(&child, Signal::SIGINT);
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the rest");
    assert_eq!((rest.as_str(), child.wait().expect("ended").code()), ("got\n", Some(5)));
}

#[test]
fn a_signal_at_any_moment_of_the_start_is_not_lost() {
    for micros in (0..30_000).step_by(1500) {
        let mut child = command(&["exec", "--", "sleep", "1000"]).spawn().expect("started");
        // Before main() has taken them, the default action gives the same answer to the shell.
        std::thread::sleep(std::time::Duration::from_micros(micros));
        send(&child, Signal::SIGTERM);
        let status = child.wait().expect("ended");
        let by_default = std::os::unix::process::ExitStatusExt::signal(&status) == Some(15);
        assert!(by_default || status.code() == Some(143), "after {micros} µs: {status}");
    }
}

#[test]
fn what_was_ignored_stays_ignored() {
    let mut command = Command::new("sh");
    let script = "trap '' HUP; exec \"$0\" exec -- sh -c 'echo ready; sleep 0.5; exit 6'";
    command.args(["-c", script]).arg(program()).stdin(Stdio::null());
    let (mut child, _out) = ready(command);
    send(&child, Signal::SIGHUP);
    assert_eq!(child.wait().expect("ended").code(), Some(6));
}

#[test]
fn after_the_end_a_signal_ends_the_wait_for_a_slow_reader() {
    // More than the pipe to the reader holds, and less than that and the one from the payload.
    let mark = format!("slow-reader-{}", std::process::id());
    let script = format!("echo ready; head -c 100000 /dev/zero; exit 7 # {mark}");
    let (mut child, out) = ready(command(&["exec", "--", "sh", "-c", &script]));
    let program = child.id().to_string();
    eventually("the payload has ended", || marked(&mark) == [program.as_str()]);
    // Until the program has heard of that, which nothing tells: before, the signal is the payload's.
    std::thread::sleep(std::time::Duration::from_millis(500) * slower());
    send(&child, Signal::SIGTERM);
    assert_eq!(child.wait().expect("ended").code(), Some(7));
    drop(out);
}
