//! What passes through `exec`, and what does not (CFG-04, CFG-09, LIFE-06).

use std::process::Stdio;
use std::time::Instant;

use nix::sys::signal::Signal;

use crate::harness::{
    Tty, code, command, eventually, fed, is_full, marked, output, seconds, send, sh, soon, stderr,
    stdout,
};

/// Every byte value, in no order that a cut could hide.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..count).map(next).collect()
}

#[test]
fn three_mib_pass_byte_exact_from_stdin_to_stdout_and_to_stderr() {
    let input = bytes(3 << 20);
    let output = fed(&["exec", "--", "cat"], &input);
    assert_eq!(code(&output), 0);
    assert!(output.stdout == input && output.stderr.is_empty());
    let output = fed(&["exec", "--", "sh", "-c", "cat >&2"], &input);
    assert!(output.stderr == input && output.stdout.is_empty());
}

#[test]
fn more_than_the_cap_of_captured_output_passes() {
    let output = sh("head -c 100000000 /dev/zero; exit 4");
    assert_eq!((code(&output), output.stdout.len()), (4, 100_000_000));
}

#[test]
fn a_pipe_that_nobody_reads_keeps_neither_the_time_limit_nor_a_signal_from_ending_it() {
    let half = seconds(0.5);
    for (limit, code) in [(half.as_str(), 124), ("600", 143)] {
        // Both outputs in one pipe: what one of them was promised the other may have taken.
        let (_read, write) = std::io::pipe().expect("a pipe");
        let script = "yes & yes >&2";
        let mut command = command(&["exec", "--timeout", limit, "--", "sh", "-c", script]);
        command.stdout(write.try_clone().expect("a copy"));
        let mut child =
            command.stderr(write.try_clone().expect("a copy")).spawn().expect("started");
        if code == 143 {
            eventually("it is full", || is_full(&write));
            send(&child, Signal::SIGTERM);
        }
        eventually("it ends", || child.try_wait().expect("waited for").is_some());
        assert_eq!(child.wait().expect("ended").code(), Some(code));
    }
}

#[test]
fn arguments_pass_unchanged() {
    let words = ["--", "-x", "--json", "a\nb", "", "*", "$HOME", "é"];
    let output = output(&[&["exec", "--", "printf", "<%s>"], &words[..]].concat());
    let wanted: String = words.iter().map(|word| format!("<{word}>")).collect();
    assert_eq!(stdout(&output), wanted);
}

#[test]
fn whoever_reads_no_more_ends_it_with_sigpipe() {
    let mut child =
        command(&["exec", "--", "yes"]).stdout(Stdio::piped()).spawn().expect("started");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("ended").code(), Some(128 + 13));
}

#[test]
fn exec_ends_long_before_the_sleeps_and_leaves_no_process() {
    let mark = format!("1000.{:09}", std::process::id());
    let started = Instant::now();
    let output = sh(&format!("(setsid sleep {mark} &) ; sleep {mark} & exit 0"));
    assert_eq!(code(&output), 0);
    assert!(started.elapsed() < soon() / 2);
    eventually("no process is left", || marked(&mark).is_empty());
}

#[test]
fn sigkill_of_the_program_leaves_no_process() {
    let mark = format!("1001.{:09}", std::process::id());
    let script = format!("(setsid sleep {mark} &) ; sleep {mark}");
    let mut child = command(&["exec", "--", "sh", "-c", &script]).spawn().expect("started");
    // The program itself, the shell, and both sleeps.
    eventually("all run", || marked(&mark).len() >= 4);
    child.kill().expect("killed");
    child.wait().expect("ended");
    eventually("no process is left", || marked(&mark).is_empty());
}

#[test]
fn descriptors_and_variables_are_the_documented_ones() {
    let mut command = command(&["exec", "--", "sh", "-c", "ls /proc/self/fd; env | sort"]);
    command.env("AWS_SECRET_ACCESS_KEY", "secret").env("LD_PRELOAD_X", "x").env("TERM", "xterm");
    let output = command.output().expect("started");
    let said = stdout(&output);
    let names: Vec<&str> =
        said.lines().map(|line| line.split_once('=').map_or(line, |(name, _)| name)).collect();
    assert_eq!(names[..4], ["0", "1", "2", "3"], "ls has the directory itself open");
    assert!(!said.contains("secret") && !names.contains(&"LD_PRELOAD_X"), "{said}");
    assert!(said.contains("\nTERM=dumb\n") && said.contains("\nHOME=/workspace\n"), "{said}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn without_a_terminal_there_is_none() {
    let output = sh("for n in 0 1 2; do test -t $n && echo $n; done; tty; exit 0");
    assert_eq!(stdout(&output), "not a tty\n");
}

#[test]
fn to_a_terminal_control_characters_are_shown_unless_raw() {
    let script = r"printf '\033]52;c;aGk=\007\033[31mred'";
    let mut tty = Tty::start(&["exec", "--no-tty", "--", "sh", "-c", script]);
    assert_eq!(tty.code(), 0);
    assert_eq!(tty.seen, r"\x1b]52;c;aGk=\x07\x1b[31mred");
    let mut tty = Tty::start(&["exec", "--no-tty", "--raw", "--", "sh", "-c", script]);
    assert_eq!(tty.code(), 0);
    assert_eq!(tty.seen, "\x1b]52;c;aGk=\x07\x1b[31mred");
    // A pipe gets what was written.
    assert_eq!(stdout(&sh(script)), "\x1b]52;c;aGk=\x07\x1b[31mred");
}
