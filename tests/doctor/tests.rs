//! What the doctor must say of each host.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Uid, chown, geteuid};
use nix_sandbox::engine::probe::{PATIENCE, throw_away};
use serde_json::Value;

type Test = (&'static str, fn());

/// Those that need a host on which sandboxes can be made.
const ON_A_GOOD_HOST: [Test; 9] = [
    ("a_good_host_can_run_and_names_the_missing_cgroup", a_good_host),
    ("the_walls_are_those_of_a_run", the_walls_are_those_of_a_run),
    ("the_text_begins_with_the_verdict", the_text_begins_with_the_verdict),
    ("what_covers_proc_is_named", what_covers_proc_is_named),
    ("a_covered_proc_matters_not_where_none_is_wanted", covered_proc_where_none_is_wanted),
    ("namespaces_switched_off_are_no_full_disk", namespaces_switched_off),
    ("a_chroot_is_named", a_chroot_is_named),
    ("our_own_sandbox_is_seen_from_inside_as_it_is_reported", our_own_sandbox),
    ("a_wall_that_is_required_and_missing_is_a_refusal", a_required_wall),
];
const EVERYWHERE: [Test; 3] = [
    ("keys_are_stable", keys_are_stable),
    ("an_outer_filter_is_named", an_outer_filter_is_named),
    ("a_probe_that_hangs_is_killed_and_none_is_left", a_probe_that_hangs),
];

/// Runs those whose name contains `wanted`, one after the other: this process has one thread.
///
/// Where no sandbox can be made, those that need one are skipped by name, unless
/// `SANDBOX_MUST_WORK` lists `userns`.
pub(crate) fn run(wanted: Option<&str>) -> ExitCode {
    let chosen = |(name, _): &&Test| wanted.is_none_or(|part| name.contains(part));
    let must_work = std::env::var("SANDBOX_MUST_WORK").unwrap_or_default();
    let good = must_work.split(',').any(|name| name == "userns")
        || start(&["report", "json"], true).code != 2;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, test) in EVERYWHERE.iter().filter(chosen) {
        count(name, *test, &mut passed, &mut failed);
    }
    for (name, test) in ON_A_GOOD_HOST.iter().filter(chosen) {
        if good {
            count(name, *test, &mut passed, &mut failed);
        } else {
            lacks_userns(name);
            skipped += 1;
        }
    }
    println!("\ntest result: {passed} passed; {failed} failed; {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

/// Said by name, and counted where `tests/all` counts.
fn lacks_userns(name: &str) {
    println!("LACKS userns: {name}");
    if let Some(path) = std::env::var_os("SANDBOX_LACKS") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("lacks");
        // At once: others write beside it.
        file.write_all(format!("userns {name}\n").as_bytes()).expect("lacks");
    }
}

fn count(name: &str, test: fn(), passed: &mut u32, failed: &mut u32) {
    let ok = catch_unwind(test).is_ok();
    println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
    *if ok { passed } else { failed } += 1;
}

/// A copy of this program in a place that an ordinary user reaches.
struct Copy(tempfile::TempDir);

impl Copy {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("doctor-").tempdir_in("/tmp").expect("dir");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).expect("chmod");
        let copy = Self(directory);
        std::fs::copy(std::env::current_exe().expect("own name"), copy.program()).expect("copy");
        copy
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("doctor")
    }
}

/// What the doctor said, and how it ended.
struct Said {
    code: i32,
    text: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    fn check(&self, name: &str) -> Value {
        let json = self.json();
        let checks = json["checks"].as_array().expect("checks");
        checks.iter().find(|check| check["name"] == name).expect(name).clone()
    }
}

/// As the user who runs the tests, or, for root, as an ordinary one.
fn start(words: &[&str], ordinary: bool) -> Said {
    let copy = Copy::new();
    let mut command = Command::new(copy.program());
    command.args(words);
    if ordinary && geteuid().is_root() {
        let path: &Path = copy.0.path();
        chown(path, Some(Uid::from_raw(64_000)), Some(Gid::from_raw(64_000))).expect("chown");
        command.uid(64_000).gid(64_000);
    }
    let output = command.output().expect("start");
    let text = String::from_utf8(output.stdout).expect("text");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors, "", "{words:?} complained");
    Said { code: output.status.code().expect("code"), text }
}

/// Both users where this process may be both.
fn users() -> &'static [bool] {
    if geteuid().is_root() { &[false, true] } else { &[true] }
}

fn a_good_host() {
    for ordinary in users() {
        let said = start(&["report", "json"], *ordinary);
        assert_eq!(said.check("launch")["status"], "ok", "{}", said.text);
        let cgroup = said.check("cgroup");
        let found = cgroup["found"].as_str().expect("found");
        match cgroup["status"].as_str() {
            Some("ok") => {}
            _ => assert!(found.contains("cgroup") && cgroup["cause"].is_string(), "{cgroup}"),
        }
        let checks = said.json()["checks"].as_array().expect("checks").clone();
        let worst = checks.iter().any(|check| check["status"] == "degraded");
        assert_eq!(said.code, i32::from(worst), "{}", said.text);
        assert!(checks.iter().all(|check| check["status"] != "failed"), "{}", said.text);
    }
}

fn the_walls_are_those_of_a_run() {
    for ordinary in users() {
        let json = start(&["report", "json"], *ordinary).json();
        let walls: Vec<&str> = json["walls"]
            .as_array()
            .expect("walls")
            .iter()
            .map(|wall| wall["wall"].as_str().expect("name"))
            .collect();
        let all: Vec<&str> = nix_sandbox::plan::Wall::ALL.iter().map(|wall| wall.name()).collect();
        assert_eq!(walls, all);
    }
}

fn the_text_begins_with_the_verdict() {
    let said = start(&["report", "text"], true);
    assert!(said.text.starts_with("can run: yes"), "{}", said.text);
    assert!(said.text.contains("\n  cgroup  "), "{}", said.text);
    assert!(!said.text.contains('\u{1b}'), "no colour");
    assert!(said.text.lines().all(|line| line.chars().count() <= 110), "{}", said.text);
}

fn keys_are_stable() {
    let json = start(&["report", "json"], true).json();
    let names: Vec<&str> = json["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .map(|check| check["name"].as_str().expect("name"))
        .filter(|name| !["wsl", "vsock"].contains(name))
        .collect();
    let expected = "system outer identity user_namespace namespaces loopback tmpfs read_only_bind \
        proc devpts pivot_root nested_namespaces rlimits seccomp foreign_calls landlock keyring \
        cgroup launch legacy_tiocsti io_uring kernel_log kernel_pointers ptrace core_dumps";
    assert_eq!(names.join(" "), expected);
    let mut keys: Vec<&str> =
        json.as_object().expect("object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["checks", "host", "walls"]);
}

/// The host cannot run sandboxes, for this reason.
fn cannot(said: &Said, check: &str, cause: &str) {
    assert_eq!(said.code, 2, "{}", said.text);
    for name in [check, "launch"] {
        let check = said.check(name);
        assert_eq!(check["status"], "failed", "{check}");
        assert_eq!(check["cause"], cause, "{check}");
        assert!(check["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{check}");
    }
    assert_eq!(said.json()["walls"], Value::Array(vec![]));
}

fn what_covers_proc_is_named() {
    for ordinary in users() {
        let said = start(&["scenario", "over-mounted"], *ordinary);
        cannot(&said, "proc", "proc_over_mounted");
        let found = said.check("proc")["found"].as_str().expect("found").to_owned();
        assert!(found.contains("over-mounted by: /proc/irq, /proc/key-users"), "{found}");
    }
}

fn covered_proc_where_none_is_wanted() {
    let said = start(&["scenario", "over-mounted-no-proc"], true);
    assert_eq!(said.code, 1, "{}", said.text);
    assert_eq!(said.check("proc")["status"], "degraded");
    assert_eq!(said.check("launch")["status"], "ok");
}

fn namespaces_switched_off() {
    let said = start(&["scenario", "no-namespaces"], true);
    cannot(&said, "user_namespace", "namespace_limit_zero");
    assert!(said.text.contains("ENOSPC does not mean a full disk"), "{}", said.text);
}

fn a_chroot_is_named() {
    for ordinary in users() {
        cannot(&start(&["scenario", "chroot"], *ordinary), "user_namespace", "chroot");
    }
}

fn an_outer_filter_is_named() {
    for ordinary in users() {
        let said = start(&["scenario", "filter"], *ordinary);
        cannot(&said, "user_namespace", "outer_seccomp");
        assert_eq!(said.check("keyring")["cause"], "outer_seccomp");
    }
}

/// The doctor as the payload: what it observes is what the walls were said to be.
fn our_own_sandbox() {
    for ordinary in users() {
        let said = start(&["scenario", "sandbox"], *ordinary);
        let cause = said.check("user_namespace")["cause"].clone();
        cannot(&said, "user_namespace", cause.as_str().expect("cause"));
        assert!(["outer_seccomp", "namespace_limit_zero"].contains(&cause.as_str().expect("text")));
        let host = &said.json()["host"];
        assert_eq!(host["seccomp_mode"], 2, "seccomp: {host}");
        assert_eq!(host["no_new_privs"], true, "capabilities: {host}");
        assert_eq!(host["user"]["capabilities"], 0, "capabilities: {host}");
        assert_eq!(host["user"]["uid"], 1000, "identity: {host}");
        assert_eq!(host["user"]["mapped_uids"], 1, "namespaces: {host}");
        assert_eq!(host["user"]["setgroups_denied"], true, "namespaces: {host}");
        assert_eq!(host["max_namespaces"]["user"], 0, "namespaces: {host}");
        assert_eq!(host["cgroup"]["layout"], "none", "mounts: {host}");
    }
}

fn a_probe_that_hangs() {
    let started = Instant::now();
    let slow = throw_away(|| {
        std::thread::sleep(Duration::from_secs(60));
        Ok(())
    });
    assert_eq!(slow.expect_err("slow").errno(), Errno::ETIMEDOUT);
    assert!(started.elapsed() < PATIENCE * 2, "{:?}", started.elapsed());
    let silent = throw_away(|| -> Result<(), _> { std::process::exit(0) });
    assert_eq!(silent.expect_err("silent").errno(), Errno::ECHILD);
    let answered = throw_away(|| Ok("x".repeat(1 << 20)));
    assert_eq!(answered.map(|text| text.len()), Ok(1 << 20));
    assert_eq!(waitpid(None, None), Err(Errno::ECHILD), "no child is left");
}

fn a_required_wall() {
    let said = start(&["report", "require-cgroup"], true);
    if said.check("cgroup")["status"] == "ok" {
        return println!("(this host has a cgroup: nothing is missing)");
    }
    assert_eq!(said.code, 2, "{}", said.text);
    let found = said.check("launch")["found"].as_str().expect("found").to_owned();
    assert!(found.starts_with("cgroup is required and cannot be had here"), "{found}");
}
