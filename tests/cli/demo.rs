//! `demo`: the main job.

use std::io::Read;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{code, command, output, stderr, stdout};

/// A wall is not credited with what never ran.
#[test]
fn demo_tells_what_did_not_run_apart_from_what_was_stopped() {
    let place = tempfile::tempdir().expect("a directory");
    let settings = place.path().join("settings.toml");
    std::fs::write(&settings, "[limits]\ntime = 0.001\n").expect("settings");
    let mut demo = command(&["demo"]);
    let output = demo.env("NIX_SANDBOX_CONFIG", &settings).output().expect("started");
    let said = stdout(&output);
    assert_eq!(code(&output), 1, "{said}");
    assert!(said.contains("✗ did not run: [timed out after 0.001 s"), "{said}");
    // A shell may be done within a millisecond.
    assert_eq!(said.matches("wall: ").count(), said.matches("✓ stopped: ").count(), "{said}");
    assert!(!said.contains("NOT stopped") && !said.contains("✓ stopped: [timed out"), "{said}");
    let last = said.lines().last().expect("a summary");
    assert!(last.ends_with("did not run; `nix-sandbox-mcp doctor` says more"), "{last}");
}

#[test]
fn demo_that_is_interrupted_leaves_no_directory() {
    let place = tempfile::tempdir().expect("a directory");
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut demo = command(&["demo"]);
        let mut demo =
            demo.env("TMPDIR", place.path()).stdout(Stdio::piped()).spawn().expect("demo");
        let mut out = demo.stdout.take().expect("its output");
        // Once it says something its directory is there.
        out.read_exact(&mut [0]).expect("a word");
        kill(Pid::from_raw(demo.id().cast_signed()), signal).expect("kill");
        let mut rest = Vec::new();
        out.read_to_end(&mut rest).expect("the rest");
        demo.wait().expect("its end");
        assert_eq!(std::fs::read_dir(place.path()).expect("list").count(), 0, "{signal}");
    }
}

#[test]
fn demo_computes_in_every_environment_and_shows_the_wall_that_stopped_each_attempt() {
    let output = output(&["demo"]);
    let said = stdout(&output);
    assert_eq!(code(&output), 0, "{said}{}", stderr(&output));
    assert!(!said.contains('\x1b'), "no colours where there is no terminal");
    let computed = said.matches("→ 42").count();
    assert!(computed >= 1);
    assert_eq!(said.matches("✓ stopped: ").count(), 3 * computed, "{said}");
    assert_eq!(said.matches("wall: ").count(), 3 * computed, "{said}");
    let last = said.lines().last().expect("a summary");
    assert!(last.starts_with(&format!("✓ {computed} environments computed")), "{last}");
}
