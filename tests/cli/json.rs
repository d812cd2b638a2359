//! `exec --json` and `run`.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{code, command, fed, output, seconds, slower, stderr, stdout};

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

#[test]
fn json_tells_ending_streams_usage_and_walls() {
    let output = fed(
        &["exec", "--json", "--", "sh", "-c", "cat; printf '\\377' >&2; exit 3"],
        b"from stdin",
    );
    assert_eq!((code(&output), stderr(&output).as_str()), (3, ""));
    let told = parsed(&output.stdout);
    assert_eq!(told["environment"], "shell");
    assert_eq!(told["ending"], json!({"kind": "exited", "code": 3}));
    assert_eq!(told["exit_code"], 3);
    assert_eq!(told["stdout"], json!({"text": "from stdin", "bytes": 10, "left_out": 0}));
    let invalid = json!({"text": "\u{fffd}", "bytes": 1, "left_out": 0, "base64": "/w=="});
    assert_eq!(told["stderr"], invalid);
    assert!(told["usage"]["wall_us"].as_u64() > Some(0));
    assert!(told["usage"]["cpu_us"].is_u64() && told["usage"]["peak_memory"].as_u64() > Some(0));
    let walls = told["enforced"].as_array().expect("walls");
    assert!(walls.iter().any(|wall| wall["wall"] == "seccomp" && wall["strength"] == "active"));
}

#[test]
fn json_tells_every_other_ending() {
    let half = seconds(0.5);
    for (words, ending, exit_code) in [
        (&["--", "sh", "-c", "kill -9 $$"][..], json!({"kind": "signaled", "signal": 9}), 137),
        (
            &["--timeout", &half, "--", "sleep", "1000"],
            json!({"kind": "timed_out", "after_ms": 500 * slower()}),
            124,
        ),
        (&["--", "nope"], json!({"kind": "could_not_start", "program": "nope", "errno": 2}), 127),
    ] {
        let output = output(&[&["exec", "--json"], words].concat());
        let told = parsed(&output.stdout);
        assert_eq!((&told["ending"], &told["exit_code"]), (&ending, &json!(exit_code)));
        assert_eq!((code(&output), stderr(&output).as_str()), (exit_code, ""));
    }
}

#[test]
fn yes_with_a_time_limit_under_json_stays_under_32_mb() {
    let mut child =
        command(&["exec", "--json", "--timeout", &seconds(2.0), "--", "sh", "-c", "yes"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
    let mut out = child.stdout.take().expect("stdout");
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut out, &mut all).expect("read");
        all
    });
    let mut most = 0;
    while child.try_wait().expect("waited for").is_none() {
        // Pid 1, its only child, shares most of it; counted twice all the same.
        let init = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()));
        let init = init.unwrap_or_default().trim().to_owned();
        most = most.max(peak(&child.id().to_string()) + peak(&init));
        std::thread::sleep(Duration::from_millis(5));
    }
    let told = parsed(&reader.join().expect("read"));
    let kind = told["ending"]["kind"].as_str().expect("kind");
    assert!(["timed_out", "output_limit"].contains(&kind), "{kind}");
    assert!(told["stdout"]["bytes"].as_u64() > Some(2 << 20));
    assert!(told["stdout"]["left_out"].as_u64() > Some(0));
    assert!(most > 0 && most < 32 << 10, "{most} KiB");
}

/// The most memory that process ever had, KiB.
fn peak(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

#[test]
fn run_takes_code_from_a_file_and_from_stdin() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("code");
    std::fs::write(&file, "echo out; echo err >&2; exit 3").expect("written");
    let file = file.to_str().expect("text");
    let from_file = output(&["run", "--env", "shell", file]);
    for output in [
        from_file,
        fed(&["run", "--env", "shell"], b"echo out; echo err >&2; exit 3"),
        fed(&["run", "--env", "shell", "-"], b"echo out; echo err >&2; exit 3"),
    ] {
        assert_eq!(code(&output), 3);
        assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("out\n", "err\n"));
    }
}

#[test]
fn run_passes_on_all_that_the_code_writes_as_it_comes() {
    let wanted: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    let output = fed(&["run", "--env", "shell"], b"seq 1 300000; seq 1 300000 >&2; exit 3");
    assert_eq!(code(&output), 3);
    assert!(stdout(&output) == wanted && stderr(&output) == wanted);
    let directory = tempfile::tempdir().expect("a directory");
    let code = directory.path().join("code");
    std::fs::write(&code, "echo now; sleep 1000").expect("written");
    let mut child = command(&["run", "--env", "shell", code.to_str().expect("text")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().expect("stdout"));
    std::io::BufRead::read_line(&mut out, &mut line).expect("a line");
    assert_eq!((line.as_str(), child.try_wait().expect("waited for")), ("now\n", None));
    child.kill().expect("killed");
    child.wait().expect("ended");
}

#[test]
fn whoever_reads_slowly_gets_all_that_was_written_before_a_time_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let code = directory.path().join("code");
    std::fs::write(&code, "head -c 150000 /dev/zero; sleep 1000").expect("written");
    let words = ["run", "--env", "shell", "--timeout", &seconds(1.0)];
    let mut child = command(&words)
        .arg(code)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let (mut out, mut came) = (child.stdout.take().expect("stdout"), 0);
    loop {
        match std::io::Read::read(&mut out, &mut [0; 4096]).expect("read") {
            0 => break,
            length => came += length,
        }
        std::thread::sleep(Duration::from_millis(50) * slower());
    }
    assert_eq!((came, child.wait().expect("ended").code()), (150_000, Some(124)));
}

#[test]
fn what_run_passes_on_is_limited_and_audited_all_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let (settings, audit) = (directory.path().join("settings"), directory.path().join("audit"));
    std::fs::write(&settings, "[limits]\noutput = \"1M\"\n").expect("written");
    let code_file = directory.path().join("code");
    std::fs::write(&code_file, "echo first; yes").expect("written");
    let mut command = command(&["run", "--env", "shell", code_file.to_str().expect("text")]);
    command.env("NIX_SANDBOX_CONFIG", &settings);
    command.env("NIX_SANDBOX_AUDIT", format!("{},output", audit.display()));
    let output = command.output().expect("started");
    assert_eq!((code(&output), output.stdout.starts_with(b"first\ny\n")), (137, true));
    assert_eq!(stderr(&output), "nix-sandbox-mcp: stopped: wrote more than 1048576 bytes\n");
    let line = parsed(&std::fs::read(&audit).expect("a line"));
    assert!(line["stdout"].as_str().expect("text").starts_with("first\ny\n"), "{line}");
}

#[test]
fn run_says_how_it_ended_if_it_was_no_exit() {
    let half = seconds(0.5);
    let output = fed(&["run", "--env", "shell", "--timeout", &half], b"printf '\\377'; sleep 1000");
    assert_eq!((code(&output), output.stdout.as_slice()), (124, &b"\xff"[..]));
    assert_eq!(
        stderr(&output),
        format!(
            "nix-sandbox-mcp: timed out after {half} s; --timeout SECONDS sets another limit\n"
        )
    );
    let output = fed(&["run", "--env", "shell", "--json"], b"kill -9 $$");
    assert_eq!(parsed(&output.stdout)["ending"], json!({"kind": "signaled", "signal": 9}));
}
