//! How runs end, and what is told of it.

use crate::needs;
use crate::support::{code, exec, exec_with, sh};

#[test]
fn exit_codes_and_signals_are_exact() {
    needs!(Userns);
    for code in [0, 1, 2, 3, 77, 126, 127, 128, 200, 255] {
        let ran = sh(&format!("exit {code}"));
        assert_eq!((ran.ending(), ran.code), ("exited", code));
        assert_eq!(ran.json["ending"]["code"], code);
    }
    for signal in [1, 2, 6, 8, 9, 11, 15, 31] {
        let ran = sh(&format!("kill -{signal} $$"));
        assert_eq!((ran.ending(), ran.code), ("signaled", 128 + signal), "{ran:?}");
        assert_eq!(ran.json["ending"]["signal"], signal);
    }
}

#[test]
fn a_program_that_cannot_be_started_is_told_apart() {
    needs!(Userns);
    let ran = exec("shell", &["/no/such/program"]);
    assert_eq!((ran.ending(), ran.code), ("could_not_start", 127));
    let ran = exec("shell", &["no-such-program"]);
    assert_eq!((ran.ending(), ran.code), ("could_not_start", 127));
    let ran = exec("shell", &["/etc/passwd"]);
    assert_eq!((ran.ending(), ran.code), ("could_not_start", 126));
}

#[test]
fn output_beyond_its_limit_ends_the_run_and_memory_stays_flat() {
    needs!(Userns);
    let ran = exec_with("shell", &[], &["--timeout", "60"], &["sh", "-c", "yes"]);
    assert_eq!(ran.ending(), "output_limit");
    assert!(ran.json["stdout"]["bytes"].as_u64() > Some(64 << 20));
    assert!(ran.json["stdout"]["text"].as_str().expect("text").len() < 3 << 20);
}

#[test]
fn the_walls_that_stood_are_listed_with_each_result() {
    needs!(Userns);
    let ran = sh("true");
    let walls = ran.json["enforced"].as_array().expect("enforced").clone();
    let names: Vec<&str> = walls.iter().filter_map(|wall| wall["wall"].as_str()).collect();
    assert_eq!(
        names,
        [
            "namespaces",
            "identity",
            "capabilities",
            "seccomp",
            "mounts",
            "rlimits",
            "keyring",
            "landlock",
            "cgroup"
        ]
    );
    for wall in &walls {
        let strength = wall["strength"].as_str().expect("strength");
        let detail = wall["detail"].as_str().expect("detail");
        assert!(["active", "weaker", "off"].contains(&strength));
        assert!(!detail.is_empty());
        let required =
            !["landlock", "cgroup", "keyring"].contains(&wall["wall"].as_str().expect("wall"));
        assert!(!required || strength == "active", "{wall}");
    }
}

#[test]
fn usage_is_measured() {
    needs!(Userns, Python);
    let ran = code("python", &[], b"import time\nx = bytearray(50_000_000)\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass\n");
    let usage = &ran.json["usage"];
    assert!(usage["cpu_us"].as_u64() >= Some(100_000), "{usage}");
    assert!(usage["wall_us"].as_u64() >= Some(100_000), "{usage}");
    assert!(usage["peak_memory"].as_u64() >= Some(50_000_000), "{usage}");
}
