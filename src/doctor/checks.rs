//! The checks, in the order in which a sandbox is made.

use super::diagnosis::{Cause, Diagnosis, explain, landlock_absent};
use super::host::{Host, Wsl};
use super::live::NoLaunch;
use super::{Check, LAUNCH, Status, Wanted};
use crate::engine::StepError;
use crate::engine::probe::{self, Trial};
use crate::outcome::{Strength, WallReport};
use crate::plan::{ProcMode, Wall};

impl Check {
    fn new(name: &'static str, status: Status, found: impl Into<String>) -> Self {
        Self { name, status, found: found.into(), cause: None, remedy: None }
    }

    fn info(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Status::Info, found)
    }

    fn refused(name: &'static str, status: Status, error: &StepError, host: &Host) -> Self {
        Self::new(name, status, error.to_string()).because(explain(error, host))
    }

    /// Adds a cause and its sentence.
    fn because(mut self, diagnosis: Option<Diagnosis>) -> Self {
        if let Some(Diagnosis { cause, because, remedy }) = diagnosis {
            if !self.found.contains(&because) {
                self.found = format!("{}; {because}", self.found);
            }
            self.cause = Some(cause);
            self.remedy = Some(remedy);
        }
        self
    }
}

/// What this program runs on and in.
pub(super) fn surroundings(host: &Host) -> Vec<Check> {
    let mut checks = vec![Check::info("system", system(host)), Check::info("outer", outer(host))];
    if host.wsl == Some(Wsl::Wsl2) {
        checks.push(Check::info("wsl", "WSL2: who reaches /run/WSL starts Windows programs, which no Linux sandbox holds; our sandboxes show neither /run nor /mnt"));
    }
    checks
}

fn system(host: &Host) -> String {
    let distribution = host.distribution.as_deref().unwrap_or("an unnamed system");
    format!("{distribution}, Linux {} on {}", host.kernel, host.machine)
}

fn outer(host: &Host) -> String {
    let container = host.container.as_ref().map_or_else(
        || "no container".to_owned(),
        |container| format!("a container ({container:?})"),
    );
    let filter = if host.seccomp_mode == 2 {
        "a seccomp filter of somebody else's"
    } else {
        "no seccomp filter"
    };
    let mut found = format!("{container}, {filter}, uid {}", host.user.uid);
    if let Some(count) = host.user.mapped_uids {
        found.push_str(&format!(" in a user namespace that maps {count}"));
    }
    if host.no_new_privs {
        found.push_str(", no_new_privs");
    }
    if let Some(profile) = host.apparmor_profile() {
        found.push_str(&format!(", AppArmor profile {profile}"));
    }
    if let Some(selinux) = &host.selinux {
        let mode = if selinux.enforcing { "enforcing" } else { "permissive" };
        found.push_str(&format!(", SELinux {mode} {}", selinux.context));
    }
    found
}

/// Each trial, and the check without which it is not worth trying.
const TRIALS: [(&str, Trial, &str); 10] = [
    ("user_namespace", Trial::UserNamespace, "identity"),
    ("namespaces", Trial::Namespaces, "user_namespace"),
    ("loopback", Trial::Loopback, "namespaces"),
    ("tmpfs", Trial::Tmpfs, "namespaces"),
    ("read_only_bind", Trial::ReadOnlyBind, "namespaces"),
    ("proc", Trial::Proc, "namespaces"),
    ("devpts", Trial::Devpts, "namespaces"),
    ("pivot_root", Trial::PivotRoot, "namespaces"),
    ("nested_namespaces", Trial::NestedNamespaces, "proc"),
    ("rlimits", Trial::ProcessLimit, "user_namespace"),
];

/// Every operation that a sandbox needs, performed by itself. Where an earlier one failed that a
/// later one needs, the later says so instead of repeating it.
pub(super) fn trials(wanted: &Wanted, host: &Host) -> Vec<Check> {
    let perform = |name, trial: Trial| match trial.perform(wanted.outside) {
        Ok(found) => Check::new(name, Status::Ok, found),
        Err(error) => Check::refused(name, severity(trial, wanted), &error, host),
    };
    let mut checks = vec![perform("identity", Trial::GiveUpRoot)];
    for (name, trial, needs) in TRIALS {
        checks.push(untried(&checks, name, needs).unwrap_or_else(|| perform(name, trial)));
    }
    let alone = |name, perform: &dyn Fn(&'static str) -> Check| {
        untried(&checks, name, "identity").unwrap_or_else(|| perform(name))
    };
    let more = [
        alone("seccomp", &|name| perform(name, Trial::Seccomp)),
        foreign_calls(host),
        alone("landlock", &|_| landlock(wanted, host)),
        alone("keyring", &|name| perform(name, Trial::Keyring)),
    ];
    checks.extend(more);
    checks
}

/// Says that `name` was not tried, if what it `needs` does not work.
fn untried(checks: &[Check], name: &'static str, needs: &str) -> Option<Check> {
    let works = checks.iter().any(|check| check.name == needs && check.status == Status::Ok);
    (!works).then(|| Check::info(name, format!("not tried: it needs {needs}")))
}

/// A fresh `/proc` is not needed where the settings do without it.
const fn severity(trial: Trial, wanted: &Wanted) -> Status {
    match (trial, wanted.proc) {
        (Trial::Proc, ProcMode::None) => Status::Degraded,
        _ => Status::Failed,
    }
}

/// System calls in other forms than our own: the filter kills them, whatever the kernel knows.
fn foreign_calls(host: &Host) -> Check {
    let known = |known: Option<bool>| match known {
        Some(true) => "on",
        Some(false) => "off",
        None => "unknown",
    };
    let missing: Vec<&str> = ["kill_process", "errno", "allow"]
        .into_iter()
        .filter(|action| !host.seccomp_actions.iter().any(|have| have == action))
        .collect();
    let mut found = match host.machine.as_str() {
        "x86_64" => format!(
            "this kernel's 32-bit calls: {}, x32: {}; a sandbox that uses either is killed",
            known(Some(host.ia32)),
            known(host.x32)
        ),
        _ => "a sandbox that uses calls of another architecture is killed".to_owned(),
    };
    if !missing.is_empty() && !host.seccomp_actions.is_empty() {
        found.push_str(&format!("; the kernel lacks the filter actions {}", missing.join(", ")));
        return Check::new("foreign_calls", Status::Degraded, found);
    }
    Check::info("foreign_calls", found)
}

fn landlock(wanted: &Wanted, host: &Host) -> Check {
    let report = match probe::landlock_domain(wanted.outside) {
        Ok(report) => report,
        Err(error) => return Check::refused("landlock", Status::Degraded, &error, host),
    };
    let WallReport { strength, detail, .. } = report;
    match strength {
        Strength::Active => Check::new("landlock", Status::Ok, detail),
        Strength::Weaker => Check {
            cause: Some(Cause::LandlockOld),
            remedy: Some("a newer kernel".to_owned()),
            ..Check::new("landlock", Status::Degraded, detail)
        },
        Strength::Off => {
            let Diagnosis { cause, because, remedy } = landlock_absent();
            Check {
                cause: Some(cause),
                remedy: Some(remedy),
                ..Check::new("landlock", Status::Degraded, because)
            }
        }
    }
}

/// `walls` as they stood in the launch.
pub(super) fn cgroup(host: &Host, walls: &[WallReport]) -> Check {
    let stood = walls.iter().find(|report| report.wall == Wall::Cgroup);
    match stood {
        Some(WallReport { strength: Strength::Active, detail, .. }) => {
            Check::new("cgroup", Status::Ok, detail)
        }
        Some(WallReport { strength: Strength::Weaker, detail, .. }) => {
            Check::new("cgroup", Status::Degraded, detail).because(host.cgroup.diagnosis())
        }
        off => {
            let detail = off.map_or_else(|| host.cgroup.facts(), |report| report.detail.clone());
            Check::new("cgroup", Status::Degraded, detail).because(host.cgroup.diagnosis())
        }
    }
}

/// The verdict of one whole launch.
pub(super) fn launch(host: &Host, launched: &Result<Vec<WallReport>, NoLaunch>) -> Check {
    match launched {
        Ok(_) => {
            Check::new(LAUNCH, Status::Ok, "a sandbox stood, with every wall that is required")
        }
        Err(NoLaunch { step: Some(step), .. }) => {
            Check::refused(LAUNCH, Status::Failed, step, host)
        }
        Err(NoLaunch { sentence, step: None }) => Check::new(LAUNCH, Status::Failed, sentence),
    }
}

/// What no sandbox can hide, since it belongs to the whole host.
pub(super) fn switches(host: &Host) -> Vec<Check> {
    let switches = &host.switches;
    let mut checks = vec![
        Check::info("legacy_tiocsti", tiocsti(switches.legacy_tiocsti)),
        Check::info("io_uring", io_uring(switches.io_uring_disabled)),
        Check::info(
            "kernel_log",
            match switches.dmesg_restrict {
                Some(0) => {
                    "every user may read the kernel's log (kernel.dmesg_restrict=0); in a sandbox seccomp alone forbids it"
                }
                _ => "only root reads the kernel's log",
            },
        ),
        Check::info(
            "kernel_pointers",
            match switches.kptr_restrict {
                Some(0) => {
                    "kernel addresses are shown (kernel.kptr_restrict=0); the files that show them are masked in a sandbox"
                }
                _ => "kernel addresses are hidden",
            },
        ),
        Check::info(
            "ptrace",
            match switches.ptrace_scope {
                Some(0) | None => {
                    "a process may trace any other of its user (no Yama); in a sandbox seccomp and Landlock stand between payload and pid 1"
                }
                Some(_) => "a process may trace its own children only (Yama)",
            },
        ),
        Check::info("core_dumps", core_dumps(switches.core_pattern.as_deref())),
    ];
    if switches.vsock {
        checks.push(Check::info("vsock", "/dev/vsock exists: vsock leads to the hypervisor and no network namespace closes it; seccomp alone refuses the socket"));
    }
    checks
}

const fn tiocsti(switch: Option<u64>) -> &'static str {
    match switch {
        Some(0) => "no program can type into a terminal that it shares (dev.tty.legacy_tiocsti=0)",
        Some(_) => {
            "a program can type into a terminal that it shares (dev.tty.legacy_tiocsti=1); sandboxes share none"
        }
        None => {
            "a program can type into a terminal that it shares (the kernel has no switch for it before 6.2); sandboxes share none"
        }
    }
}

const fn io_uring(switch: Option<u64>) -> &'static str {
    match switch {
        Some(0) => {
            "io_uring is on for everybody (kernel.io_uring_disabled=0); in a sandbox seccomp alone forbids it"
        }
        Some(_) => "io_uring is off for ordinary users",
        None => "io_uring has no switch on this kernel; in a sandbox seccomp alone forbids it",
    }
}

fn core_dumps(pattern: Option<&str>) -> String {
    match pattern {
        Some(pattern) if pattern.starts_with('|') => {
            let program = pattern[1..].split_whitespace().next().unwrap_or_default();
            format!(
                "a crash starts {program} as root outside of every sandbox (kernel.core_pattern); RLIMIT_CORE 1 keeps crashes in a sandbox from it"
            )
        }
        _ => "a crash starts no program".to_owned(),
    }
}
