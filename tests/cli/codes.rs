//! Exit codes (LIFE-08).

use std::time::Instant;

use crate::harness::{code, output, seconds, sh, soon, stderr, stdout};

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
