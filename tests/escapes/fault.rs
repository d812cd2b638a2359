//! Kernels that refuse a step: LIFE-09, CFG-10, LL-12. `fault.c` makes them out of this one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use nix::errno::Errno;

use super::support::{self, Ran, processes_with};
use crate::needs;

/// The program on a kernel that refuses system calls, in an environment that is clean.
struct Kernel {
    directory: tempfile::TempDir,
    refused: Vec<String>,
}

impl Kernel {
    fn refusing(refused: &[(i64, Errno)]) -> Self {
        let directory = support::directory();
        fs::write(directory.path().join("fault.c"), include_str!("fault.c")).expect("source");
        let mut compiler = Command::new("cc");
        compiler.args(["-static", "-o", "fault", "fault.c"]).current_dir(directory.path());
        assert!(compiler.status().expect("cc").success());
        let refused = refused.iter().flat_map(|(call, errno)| [*call, i64::from(*errno as i32)]);
        Self { directory, refused: refused.map(|word| word.to_string()).collect() }
    }

    fn settings(&self, text: &str) {
        fs::write(self.directory.path().join("settings.toml"), text).expect("settings");
    }

    /// What a server answers to runs of these codes in a shell.
    fn serve(&self, codes: &[&str]) -> String {
        let mut lines = vec![
            serde_json::json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "fault", "version": "1"}}}),
            serde_json::json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        ];
        lines.extend(codes.iter().enumerate().map(|(at, code)| {
            serde_json::json!({"jsonrpc": "2.0", "id": at + 1, "method": "tools/call", "params": {
                "name": "run", "arguments": {"env": "shell", "code": code}}})
        }));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let mut child = self
            .command(&["--stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        let mut stdin = child.stdin.take().expect("its input");
        stdin.write_all(text.as_bytes()).expect("asked");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let answers = lines.take(codes.len() + 1).map(|line| line.expect("text"));
        let answers = answers.collect::<Vec<_>>().join("\n");
        // It ends with its input.
        drop(stdin);
        child.wait().expect("its end");
        answers
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).stdin(Stdio::null()).output().expect("start")
    }

    fn command(&self, words: &[&str]) -> Command {
        let clean = support::command();
        let mut command = Command::new(self.directory.path().join("fault"));
        command.args(&self.refused).arg("--").arg(clean.get_program()).args(words);
        for (name, value) in clean.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let settings = self.directory.path().join("settings.toml");
        if settings.exists() {
            command.env("NIX_SANDBOX_CONFIG", settings);
        }
        command
    }
}

/// What is made ahead needs setns(2), which a container's filter may not know: then nothing is, and
/// runs are as ever.
#[test]
fn a_server_that_may_not_change_namespaces_runs_code_all_the_same() {
    needs!(Userns, Compiler);
    let kernel = Kernel::refusing(&[(libc::SYS_setns, Errno::EPERM)]);
    let said = kernel.serve(&["echo 41", "echo 42", "echo 43"]);
    for answer in ["41\\n[exit 0", "42\\n[exit 0", "43\\n[exit 0"] {
        assert!(said.contains(answer), "{answer}: {said}");
    }
}

/// LIFE-09: each call that a launch makes, refused in turn. The answer names what was tried and the
/// kernel's errno, the payload never runs, and nothing is left.
#[test]
fn life_09_a_step_that_fails_is_named_and_nothing_runs() {
    needs!(Userns, Compiler);
    let root = support::is_root();
    for (call, says) in [
        (libc::SYS_clone3, "create the namespaces"),
        (libc::SYS_setresgid, if root { "give up root for gid" } else { "become gid 1000" }),
        (libc::SYS_setresuid, if root { "give up root for uid" } else { "become uid 1000" }),
        (libc::SYS_setsid, "start a session"),
        (libc::SYS_sethostname, "set the hostname sandbox"),
        (libc::SYS_fsopen, "make the root file system"),
        (libc::SYS_fsconfig, "make the root file system"),
        (libc::SYS_fsmount, "make the root file system"),
        (libc::SYS_open_tree, "mount"),
        (libc::SYS_mount_setattr, "make all mounts private"),
        (libc::SYS_move_mount, "make the root file system"),
        (libc::SYS_mkdirat, "make directory"),
        (libc::SYS_symlinkat, "make symbolic link"),
        (libc::SYS_pivot_root, "enter the new root"),
        (libc::SYS_umount2, "enter the new root"),
        (libc::SYS_personality, "reset the personality"),
        (libc::SYS_sched_setaffinity, "reset the processor affinity"),
        (libc::SYS_capset, "empty the capability set"),
        (libc::SYS_landlock_add_rule, "enter a Landlock domain"),
        (libc::SYS_landlock_restrict_self, "enter a Landlock domain"),
        (libc::SYS_seccomp, "load the system-call filter"),
        (libc::SYS_chdir, "enter the new root"),
    ] {
        let mark = format!("payload-of-{}-{call}", std::process::id());
        let kernel = Kernel::refusing(&[(call, Errno::EIO)]);
        let output = kernel.run(&["exec", "--", "sh", "-c", &format!("echo {mark}; sleep 1000")]);
        refused(&output, says, "EIO");
        assert_eq!(processes_with(&mark), Vec::<String>::new(), "{says}");
    }
}

/// Nothing ran, and one sentence says what was tried and what the kernel answered.
fn refused(output: &Output, says: &str, errno: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{says}: {said}");
    assert!(output.stdout.is_empty(), "{says}: the payload ran");
    let tried = format!("nix-sandbox-mcp: {says}");
    assert!(said.starts_with(&tried) && said.contains(&format!(": {errno} (")), "{says}: {said}");
}

/// CFG-10: without namespaces and without a filter there is no sandbox.
#[test]
fn cfg_10_a_wall_that_is_always_required_is_missing() {
    needs!(Userns, Compiler);
    for (call, answer, says) in [
        (libc::SYS_clone3, Errno::EPERM, "create the namespaces"),
        (libc::SYS_clone3, Errno::ENOSPC, "create the namespaces"),
        (libc::SYS_clone3, Errno::ENOSYS, "create the namespaces"),
        (libc::SYS_seccomp, Errno::EINVAL, "load the system-call filter"),
        (libc::SYS_seccomp, Errno::ENOSYS, "load the system-call filter"),
        (libc::SYS_mount_setattr, Errno::ENOSYS, "make all mounts private"),
    ] {
        let output = Kernel::refusing(&[(call, answer)]).run(&["exec", "--", "echo", "ran"]);
        refused(&output, says, &format!("{answer:?}"));
    }
}

/// CFG-10, LL-12: without a wall that is preferred a run goes on and says so; where the settings
/// require it, nothing runs. Whether there is Landlock is asked of the kernel, not of a file.
#[test]
fn cfg_10_ll_12_a_wall_that_is_preferred_is_missing() {
    needs!(Userns, Compiler);
    let landlock = "the kernel has no Landlock; the file system is still protected by its mounts; \
                    open: socket files in the project can be connected to";
    let keyring =
        "the host refuses a new one: that of the launcher is shared; seccomp denies keyctl";
    for (wall, call, answer, report) in [
        ("landlock", libc::SYS_landlock_create_ruleset, Errno::ENOSYS, ("off", landlock)),
        ("landlock", libc::SYS_landlock_create_ruleset, Errno::EOPNOTSUPP, ("off", landlock)),
        ("keyring", libc::SYS_keyctl, Errno::EPERM, ("weaker", keyring)),
        ("keyring", libc::SYS_keyctl, Errno::ENOSYS, ("active", "the kernel has no keyrings")),
    ] {
        let kernel = Kernel::refusing(&[(call, answer)]);
        let ran = Ran::of(&kernel.run(&["exec", "--json", "--", "echo", "ran"]));
        let (strength, detail) = report;
        assert_eq!(ran.stdout, "ran\n", "{wall} {answer}");
        assert_eq!(ran.report(wall), format!("wall {wall}: {strength}: {detail}\n"), "{answer}");
        kernel.settings(&format!("require = [\"{wall}\"]\n"));
        let output = kernel.run(&["exec", "--", "echo", "ran"]);
        let said = String::from_utf8_lossy(&output.stderr);
        if strength == "active" {
            assert_eq!(output.status.code(), Some(0), "{said}");
        } else {
            assert_eq!(output.status.code(), Some(125), "{wall} {answer}: {said}");
            assert!(output.stdout.is_empty(), "{wall} {answer}: the payload ran");
        }
    }
}

/// CFG-11: what the result says of a wall is what the payload meets: a domain around the payload
/// keeps it from signalling pid 1, which is outside of it, and nothing else does.
#[test]
fn cfg_11_the_report_is_what_the_payload_meets() {
    needs!(Userns, Compiler);
    let observe = |kernel: &Kernel| {
        let words =
            ["exec", "--json", "--", "sh", "-c", "kill -0 1 2>/dev/null && echo reached; :"];
        let ran = Ran::of(&kernel.run(&words));
        (ran.stdout.contains("reached"), ran.report("landlock"))
    };
    let without = Kernel::refusing(&[(libc::SYS_landlock_create_ruleset, Errno::ENOSYS)]);
    let (reached, report) = observe(&without);
    assert!(reached && report.starts_with("wall landlock: off: "), "{reached} {report}");
    let (reached, report) = observe(&Kernel::refusing(&[]));
    assert_eq!(!reached, report.starts_with("wall landlock: active: "), "{reached} {report}");
}
