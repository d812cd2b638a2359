//! Groups 10 and 12: the life cycle, and what the program is started with.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::server::Server;
use super::support::{self, processes_with};
use crate::needs;

/// `exec`, started by words that change what a process hands on, such as `nice -n 5`.
fn behind(words: &str, script: &str) -> Output {
    let clean = support::command();
    let mut command = Command::new("sh");
    let line = format!("{words} \"$0\" exec -- sh -c '{script}'");
    command.arg("-c").arg(line).arg(clean.get_program()).stdin(Stdio::null());
    command.output().expect("sh")
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// A word that is in the command line of one payload only.
fn mark(test: &str) -> String {
    format!("payload-{test}-{}", std::process::id())
}

/// LIFE-03: whenever the program is killed during a start, nothing of the sandbox is left: not even
/// when it dies between the clone and the moment in which pid 1 asks to die with it.
#[test]
fn life_03_killed_at_any_moment_of_the_start() {
    needs!(Userns);
    let mark = mark("life-03");
    for micros in (0..24_000).step_by(800) {
        let mut command = support::command();
        command.args(["exec", "--", "sh", "-c", &format!("while :; do :; done; {mark}")]);
        let mut child = command.stdin(Stdio::null()).spawn().expect("start");
        // No event tells these moments apart; every one must do.
        std::thread::sleep(Duration::from_micros(micros));
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
    eventually("nothing is left", || processes_with(&mark).is_empty());
    // A pid 1 without arguments could still start its payload.
    let mut other = support::command();
    assert!(other.args(["exec", "--", "true"]).status().expect("start").success());
    assert_eq!(processes_with(&mark), Vec::<String>::new());
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::yield_now();
    }
}

/// LIFE-05: signals that whoever started the program blocks or ignores are neither inside.
#[test]
fn life_05_signals_are_as_programs_expect() {
    needs!(Userns);
    let script = "grep -E \"^Sig(Blk|Ign|Cgt)\" /proc/self/status; yes | head -1";
    let blocked = behind("exec env --block-signal --ignore-signal=PIPE,CHLD,INT,USR1", script);
    let zero = "0000000000000000";
    let told = said(&blocked);
    for line in [format!("SigBlk:\t{zero}"), format!("SigIgn:\t{zero}"), "y".to_owned()] {
        assert!(told.lines().any(|it| it == line), "{line}: {told}");
    }
    assert_eq!(blocked.status.code(), Some(0), "{told}");
}

/// LIFE-07: what is inherited has a fixed value, or at least gives nothing that others have not.
#[test]
fn life_07_nothing_odd_is_inherited() {
    needs!(Userns);
    let script = "umask; pwd; cat /proc/$$/oom_score_adj /proc/$$/personality; \
                  cat /proc/self/timerslack_ns; ulimit -c; nproc --all; nproc; nice";
    let plain = said(&behind("exec", script));
    let lines: Vec<&str> = plain.lines().collect();
    assert_eq!(&lines[..5], ["0022", "/workspace", "1000", "00000000", "50000"], "{plain}");
    let odd = said(&behind(
        "umask 077; cd /; exec nice -n 5 taskset -c 0 setarch -R choom -n 500 --",
        script,
    ));
    let odd: Vec<&str> = odd.lines().collect();
    // A lower priority is left: nobody may raise it.
    assert_eq!(odd[..odd.len() - 1], lines[..lines.len() - 1]);
    assert_eq!((lines.last(), odd.last()), (Some(&"0"), Some(&"5")));
    if support::is_root() {
        let words = "exec nice -n -5 ionice -c 1 chrt -f 1";
        let script = "nice; ionice; chrt -p $$ | head -1; cat /proc/$$/oom_score_adj";
        let usual = "0\nnone: prio 0\npid 2's current scheduling policy: SCHED_OTHER\n1000\n";
        assert_eq!(said(&behind(words, script)), usual);
    }
}

/// CFG-12: closed streams, no variable at all, an odd place: it works, or one sentence says why not.
#[test]
fn cfg_12_started_oddly() {
    needs!(Userns);
    for (words, code, out) in [
        ("exec <&-;", 0, "hello\n"),
        ("exec 2>&-;", 0, "hello\n"),
        ("exec <&- 2>&-;", 0, "hello\n"),
        ("exec <&- 7</ 8</etc 9>&2;", 0, "hello\n"),
        ("exec env -i", 0, "hello\n"),
        ("exec env -i HOME= TMPDIR=/nonexistent PATH=", 0, "hello\n"),
        ("cd /proc; exec", 0, "hello\n"),
        ("ulimit -n 64; exec", 0, "hello\n"),
        ("ulimit -s 256; exec", 0, "hello\n"),
        ("ulimit -c unlimited; exec", 0, "hello\n"),
        ("trap \"\" PIPE INT TERM CHLD; exec", 0, "hello\n"),
    ] {
        let output = behind(words, "echo hello");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!((output.status.code(), &*stdout), (Some(code), out), "{words} {output:?}");
    }
    // Nobody to tell: the payload's output is lost, and that is no crash.
    let output = behind("exec >&-;", "echo hello");
    assert_eq!(output.status.signal(), None, "{output:?}");
    assert_eq!(said(&output).matches("panicked").count(), 0, "{output:?}");
    let output = behind("ulimit -n 8; exec", "echo hello");
    assert!([Some(0), Some(125)].contains(&output.status.code()), "{output:?}");
    assert_eq!(said(&output).matches("panicked").count(), 0, "{output:?}");
    let gone = support::directory();
    let words = format!("mkdir {0}/gone; cd {0}/gone; rmdir {0}/gone; exec", gone.path().display());
    assert_eq!(said(&behind(&words, "echo hello")), "hello\n");
}

/// LIFE-02, LIFE-10: whoever clones has one thread, lives as long as the server, and was started by
/// the server's main thread: the death signal follows the thread that forked, and a fork of many
/// threads may run almost no code.
#[test]
fn life_02_life_10_a_launcher_of_one_thread_clones() {
    needs!(Userns);
    let mut server = Server::start(&[]);
    let mark = mark("life-02");
    // The answer tells the pid 1 that the payload has; it waits until the test has looked.
    server.call(1, "shell", &format!("while :; do :; done # {mark}"), 60);
    // Beside those that stand ready, whose payload is in the memory of its pid 1 and has its arguments.
    let executed = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|text| text.iter().any(|byte| *byte != 0))
    };
    let payloads = |launcher: u32| -> usize {
        let inits = children(launcher, launcher).into_iter();
        inits.flat_map(|init| children(init, init)).filter(executed).count()
    };
    let mut launcher = None;
    eventually("a sandbox runs", || {
        let started = children(server.pid(), server.pid());
        launcher = started.into_iter().find(|pid| payloads(*pid) == 1);
        launcher.is_some()
    });
    let launcher = launcher.expect("a launcher");
    let status = fs::read_to_string(format!("/proc/{launcher}/status")).expect("status");
    assert!(status.lines().any(|line| line == "Threads:\t1"), "{status}");
    server.notify("notifications/cancelled", &serde_json::json!({"requestId": 1}));
    eventually("the sandbox is gone", || payloads(launcher) == 0);
    assert_eq!(processes_with(&mark), Vec::<String>::new());
}

/// The processes that a thread has started.
fn children(pid: u32, thread: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// LIFE-06: of all that a server holds, and of another run at the same time, a payload has nothing.
#[test]
fn life_06_descriptors_in_a_server() {
    needs!(Userns);
    let mut server = Server::start(&[]);
    server.call(1, "shell", "while :; do :; done", 60);
    for id in 2..5 {
        server.call(
            id,
            "shell",
            "ls /proc/self/fd | tr '\\n' ' '; ls -l /proc/self/fd | grep -c pipe:",
            30,
        );
        let text = server.text(id);
        // ls has the directory itself open.
        assert!(text.starts_with("0 1 2 3 2\n"), "{text}");
    }
}

/// LIFE-10, LIFE-14: after many runs, several at a time, the server and its launcher hold what they
/// held before.
#[test]
fn life_14_many_runs_leave_nothing_in_the_server() {
    needs!(Userns);
    let mut server = Server::start(&[]);
    let mut batch = |first: u64| {
        for id in first..first + 40 {
            server.call(id, "shell", "echo hello", 30);
        }
        let mut answers: Vec<u64> = (0..40)
            .map(|_| {
                let (id, text) = server.next_text();
                assert!(text.starts_with("hello\n[exit 0"), "{text}");
                id
            })
            .collect();
        answers.sort_unstable();
        assert_eq!(answers, (first..first + 40).collect::<Vec<_>>());
        let launcher = children(server.pid(), server.pid())[0];
        [held(server.pid()), held(launcher)]
    };
    let before = [batch(1), batch(1001)][1];
    let after = [batch(2001), batch(3001), batch(4001)][2];
    for (before, after) in before.iter().zip(after) {
        // Eight sandboxes stand ready, some of them still on their way, and four networks.
        assert!(after.0 <= before.0 + 20, "descriptors: {before:?}, then {after:?}");
        assert!(after.1 <= before.1 + 2, "threads: {before:?}, then {after:?}");
        assert!(after.2 <= before.2 + (4 << 10), "KiB: {before:?}, then {after:?}");
    }
}

/// Descriptors, threads, KiB of memory.
fn held(pid: u32) -> (usize, usize, u64) {
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let memory = memory.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok());
    (count("fd"), count("task"), memory.expect("VmRSS"))
}

/// CFG-05: what everybody on the host may read in `/proc/*/cmdline` holds neither code nor a secret.
#[test]
fn cfg_05_no_command_line_tells_the_code() {
    needs!(Userns);
    let mark = mark("cfg-05");
    let directory = support::directory();
    let settings: PathBuf = directory.path().join("settings.toml");
    fs::write(&settings, "inherit_env = [\"TOKEN\"]\n").expect("settings");
    let token = format!("token-{mark}");
    let settings = settings.to_str().expect("text");
    let mut server = Server::start(&[("NIX_SANDBOX_CONFIG", settings), ("TOKEN", &token)]);
    server.call(1, "shell", &format!("echo $TOKEN # {mark}\necho x; while :; do :; done"), 60);
    eventually("it runs", || {
        let launcher = children(server.pid(), server.pid());
        launcher
            .iter()
            .any(|pid| children(*pid, *pid).iter().any(|it| !children(*it, *it).is_empty()))
    });
    assert_eq!(processes_with(&mark), Vec::<String>::new());
    server.notify("notifications/cancelled", &serde_json::json!({"requestId": 1}));
    server.call(2, "shell", "echo $TOKEN", 30);
    assert!(server.text(2).starts_with(&format!("{token}\n")));
}

/// LIFE-01: SIGKILL of the server, and everything is gone; the pipe that the payload held says when.
#[test]
fn life_01_the_server_is_killed() {
    needs!(Userns);
    let mark = mark("life-01");
    let mut command = support::command();
    command.args([
        "exec",
        "--",
        "sh",
        "-c",
        &format!("echo up; (setsid sleep 1000 &); : {mark}; cat"),
    ]);
    let mut child: Child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start");
    let mut out = BufReader::new(child.stdout.take().expect("stdout"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "up\n");
    let killed = Instant::now();
    child.kill().expect("kill");
    child.wait().expect("wait");
    eventually("the payload is gone", || processes_with(&mark).is_empty());
    assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
    let mut fds = [PollFd::new(out.get_ref().as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::from(5000_u16)), Ok(1), "the stream ends");
    assert_eq!(out.read_to_string(&mut line).expect("the end"), 0);
}
