//! Exit codes (LIFE-08).

use std::fs::File;
use std::process::{Output, Stdio};
use std::time::Instant;

use crate::harness::{code, command, output, seconds, sh, soon, stderr, stdout};

#[test]
fn exit_codes_0_to_255_are_the_commands_own() {
    for wanted in 0..=255 {
        assert_eq!(code(&sh(&format!("exit {wanted}"))), wanted);
    }
}

#[test]
fn a_signal_is_128_plus_n() {
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("PIPE", 13), ("INT", 2)] {
        let output = sh(&format!("kill -{name} $$"));
        assert_eq!((code(&output), stderr(&output).as_str()), (128 + number, ""), "{name}");
    }
}

#[test]
fn a_time_out_is_124_and_partial_output_is_there() {
    let (started, half) = (Instant::now(), seconds(0.5));
    let output = output(&["exec", "--timeout", &half, "--", "sh", "-c", "echo early; sleep 1000"]);
    assert_eq!((code(&output), stdout(&output).as_str()), (124, "early\n"));
    assert!(stderr(&output).starts_with(&format!("nix-sandbox-mcp: timed out after {half} s")));
    assert!(started.elapsed() < soon() / 2);
}

#[test]
fn our_own_failure_is_125_with_one_sentence() {
    for (words, says) in [
        (&["exec", "--env", "nope", "--", "true"][..], "there is no environment \"nope\""),
        (&["exec"], "there is no command"),
        (&["exec", "--"], "there is no command"),
        (&["exec", "--", ""], "there is no command"),
        (&["exec", "--nope", "--", "true"], "unexpected argument '--nope'"),
        (&["exec", "--timeout", "0", "--", "true"], "\"0\" is no time limit"),
        (&["exec", "--timeout", "NaN", "--", "true"], "\"NaN\" is no time limit"),
        (&["exec", "--memory", "12T", "--", "true"], "\"12T\" is no size"),
        (&["exec", "--memory", "0", "--", "true"], "limit `memory` is 0"),
        (&["exec", "--project", "/nonexistent", "--", "true"], "does not exist"),
        (&["run", "--env", "shell", "/nonexistent"], "cannot read the code from /nonexistent"),
        (&["run"], "--env <NAME>"),
        (&["nope"], "'nope'"),
    ] {
        let output = output(words);
        let said = stderr(&output);
        assert_eq!(code(&output), 125, "{words:?}: {said}");
        assert!(said.starts_with("nix-sandbox-mcp: ") && said.contains(says), "{words:?}: {said}");
        assert_eq!(stdout(&output), "", "{words:?}");
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_126_and_one_that_is_not_found_127() {
    for (words, wanted) in [
        (&["/nonexistent"][..], 127),
        (&["no-such-program"], 127),
        // An option of ours, but a command here.
        (&["--json"], 127),
        (&["-c", "x"], 127),
        (&["/etc/passwd"], 126),
        (&["/"], 126),
    ] {
        let output = output(&[&["exec", "--"], words].concat());
        assert_eq!(code(&output), wanted, "{words:?}");
        let says = format!("nix-sandbox-mcp: could not start {}: ", words[0]);
        assert!(stderr(&output).starts_with(&says), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn help_and_version_are_no_failure() {
    for words in [&["--help"][..], &["exec", "--help"], &["--version"], &["help", "plan"]] {
        let output = output(words);
        assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
        assert!(!output.stdout.is_empty());
    }
}

/// With standard output on a disk that is full.
fn to_a_full_disk(words: &[&str]) -> Output {
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    command(words).stdout(full).stderr(Stdio::piped()).output().expect("started")
}

#[test]
fn output_that_cannot_be_written_is_125_with_one_sentence() {
    for words in [
        &["exec", "--json", "--", "echo", "x"][..],
        &["run", "--env", "shell", "--json"],
        &["envs"],
        &["envs", "--json"],
        &["plan"],
        &["plan", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["doctor", "--print-apparmor"],
        &["generate", "completions", "bash"],
        &["generate", "man"],
        &["demo"],
        &["--help"],
        &["exec", "--help"],
        &["--version"],
    ] {
        let output = to_a_full_disk(words);
        let says = "nix-sandbox-mcp: cannot write to standard output: No space left on device \
                    (os error 28)\n";
        assert_eq!((code(&output), stderr(&output).as_str()), (125, says), "{words:?}");
    }
    let script = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(script.path(), "echo x").expect("written");
    let script = script.path().to_str().expect("text");
    for words in [&["exec", "--", "echo", "x"][..], &["run", "--env", "shell", script]] {
        let output = to_a_full_disk(words);
        let says = "nix-sandbox-mcp: write a stream: ENOSPC: No space left on device\n";
        assert_eq!((code(&output), stderr(&output).as_str()), (125, says), "{words:?}");
    }
}

#[test]
fn whoever_reads_nothing_of_what_we_print_is_no_failure() {
    for words in [&["envs"][..], &["plan", "--json"], &["generate", "man"], &["--help"]] {
        let (read, write) = std::io::pipe().expect("a pipe");
        drop(read);
        let output = command(words).stdout(write).stderr(Stdio::piped()).output().expect("started");
        assert_eq!((code(&output), stderr(&output).as_str()), (0, ""), "{words:?}");
    }
}

#[test]
fn what_cannot_be_told_on_stderr_changes_nothing() {
    let broken = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(broken.path().join("broken")).expect("made");
    for words in [&["envs"][..], &["exec", "--", "true"]] {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full");
        let mut command = command(words);
        command.env("NIX_SANDBOX_DIR", broken.path()).env("NIX_SANDBOX_LOG", "trace");
        assert_eq!(code(&command.stderr(full).output().expect("started")), 0, "{words:?}");
    }
}
