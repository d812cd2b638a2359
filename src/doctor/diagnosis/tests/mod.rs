use std::collections::BTreeMap;

use nix::errno::Errno::{EACCES, EAGAIN, EDQUOT, EINVAL, ENOENT, ENOMEM, ENOSPC, ENOSYS, EPERM};

use super::super::host::{AppArmor, Selinux, User};
use super::super::mountinfo::ProcMount;
use super::*;

/// An ordinary user on an ordinary host.
fn host() -> Host {
    Host {
        kernel: "6.1.0-18-amd64".to_owned(),
        user: User { uid: 1000, ..User::default() },
        chroot: Some(false),
        proc: ProcMount { mounted: true, ..ProcMount::default() },
        max_namespaces: BTreeMap::from([("user".to_owned(), 63_000), ("net".to_owned(), 63_000)]),
        landlock_abi: Some(2),
        ..Host::default()
    }
}

fn apparmor(label: &str) -> AppArmor {
    AppArmor { restrict_userns: Some(1), label: Some(label.to_owned()), label_in_userns: None }
}

fn ubuntu() -> Host {
    Host { apparmor: apparmor("unconfined"), ..host() }
}

fn docker() -> Host {
    Host {
        container: Some(Container::Docker),
        seccomp_mode: 2,
        apparmor: AppArmor { restrict_userns: None, ..apparmor("docker-default (enforce)") },
        ..host()
    }
}

fn masked(container: Option<Container>) -> Host {
    let over_mounts = vec!["/proc/keys".to_owned(), "/proc/sys".to_owned()];
    Host { container, proc: ProcMount { over_mounts, ..host().proc }, ..host() }
}

fn root(capabilities: u64, mapped_uids: Option<u64>) -> Host {
    Host { user: User { uid: 0, capabilities, mapped_uids, setgroups_denied: false }, ..host() }
}

fn limited(kind: &str) -> Host {
    let mut host = host();
    host.max_namespaces.insert(kind.to_owned(), 0);
    host
}

fn selinux(container: Option<Container>) -> Host {
    let context = "system_u:system_r:container_t:s0:c1,c2".to_owned();
    Host { container, selinux: Some(Selinux { enforcing: true, context }), ..host() }
}

/// The sentence of a step that was refused on a host.
fn told(step: &str, errno: Errno, host: &Host) -> (Cause, String, String) {
    let Diagnosis { cause, because, remedy } =
        explain(&StepError::new(step, "", errno), host).expect(step);
    (cause, because, remedy)
}

const KEYRING: &str = "join a new session keyring";
const PIVOT: &str = "enter the new root";
const CLONE: &str = "create the namespaces";
const PROC: &str = "mount a fresh procfs at";
const ALL: u64 = 0x1ff_ffff_ffff;

/// What is refused, how, where; the cause and the sentence.
type Case<'a> = (&'a str, Errno, &'a Host, Cause, &'a str);

fn all(cases: &[Case<'_>]) {
    for (step, errno, host, cause, because) in cases {
        let (found, said, _) = told(step, *errno, host);
        assert_eq!((found, said.as_str()), (*cause, *because), "{step} {errno}");
    }
}

#[test]
fn ubuntu_s_apparmor_in_exact_words() {
    let because = "AppArmor takes all rights from the user namespaces of ordinary programs (kernel.apparmor_restrict_unprivileged_userns=1), and no profile exempts this one";
    all(&[
        (CLONE, EPERM, &ubuntu(), Cause::ApparmorUserns, because),
        ("write", EACCES, &ubuntu(), Cause::ApparmorUserns, because),
        ("bring lo up", EPERM, &ubuntu(), Cause::ApparmorUserns, because),
    ]);
}

#[test]
fn switches_and_limits_in_exact_words() {
    let off =
        "user namespaces are switched off for ordinary users (kernel.unprivileged_userns_clone=0)";
    let user = "user namespaces are switched off (user.max_user_namespaces=0); ENOSPC does not mean a full disk";
    let net = "net namespaces are switched off (user.max_net_namespaces=0); ENOSPC does not mean a full disk";
    let reached = "as many namespaces exist as are allowed here or around us (user.max_*_namespaces, or 32 levels); ENOSPC does not mean a full disk";
    let debian = Host { unprivileged_userns_clone: Some(0), ..host() };
    let wsl2 = Host { wsl: Some(Wsl::Wsl2), ..debian.clone() };
    let processes = "uid 1000 or its cgroup may have no more processes";
    let keys = "uid 1000 has as many keys as it may (kernel.keys.maxkeys)";
    all(&[
        (CLONE, EPERM, &debian, Cause::UsernsSwitchedOff, off),
        (CLONE, EPERM, &wsl2, Cause::UsernsSwitchedOff, off),
        (CLONE, ENOSPC, &limited("user"), Cause::NamespaceLimitZero, user),
        (CLONE, ENOSPC, &limited("net"), Cause::NamespaceLimitZero, net),
        (CLONE, ENOSPC, &host(), Cause::NamespaceLimitReached, reached),
        (CLONE, EAGAIN, &host(), Cause::ProcessLimit, processes),
        (KEYRING, EDQUOT, &host(), Cause::KeyQuota, keys),
    ]);
}

#[test]
fn containers_in_exact_words() {
    let pod = Host { container: Some(Container::Kubernetes), ..docker() };
    let unit = Host { seccomp_mode: 2, ..host() };
    let docker_says = "the container's seccomp filter forbids new user namespaces";
    let pod_says = "the pod's seccomp filter forbids new user namespaces";
    let unit_says = "an outer seccomp filter forbids new user namespaces";
    let keys = "the container's seccomp filter forbids keyctl(2)";
    let profile = "the AppArmor profile docker-default (enforce) forbids mounting";
    let label = "SELinux forbids mounting to this program (system_u:system_r:container_t:s0:c1,c2)";
    all(&[
        (CLONE, EPERM, &docker(), Cause::OuterSeccomp, docker_says),
        (CLONE, ENOSYS, &docker(), Cause::OuterSeccomp, docker_says),
        (CLONE, EPERM, &pod, Cause::OuterSeccomp, pod_says),
        (CLONE, EPERM, &unit, Cause::OuterSeccomp, unit_says),
        (KEYRING, EPERM, &docker(), Cause::OuterSeccomp, keys),
        ("make all mounts private", EACCES, &docker(), Cause::ApparmorProfile, profile),
        ("mask", EACCES, &selinux(Some(Container::Podman)), Cause::Selinux, label),
    ]);
}

#[test]
fn the_state_of_proc_in_exact_words() {
    let state = |mounted, read_only| ProcMount { mounted, read_only, over_mounts: vec![] };
    let read_only = Host { proc: state(true, true), ..host() };
    let absent = Host { proc: state(false, false), ..host() };
    let covered = "the kernel allows a fresh procfs only beside a whole one, and /proc is over-mounted by: /proc/keys, /proc/sys";
    let restricted =
        "/proc is read-only, and the kernel allows no fresh procfs that is less restricted";
    let none = "no procfs is mounted at /proc, and the kernel allows a fresh one only beside it";
    all(&[
        (PROC, EPERM, &masked(Some(Container::Docker)), Cause::ProcOverMounted, covered),
        (PROC, EPERM, &masked(None), Cause::ProcOverMounted, covered),
        (PROC, EPERM, &read_only, Cause::ProcReadOnly, restricted),
        (PROC, EPERM, &absent, Cause::ProcAbsent, none),
    ]);
}

#[test]
fn roots_of_all_kinds_in_exact_words() {
    let chroot = Host { chroot: Some(true), ..host() };
    let initramfs = Host { initramfs: true, ..host() };
    let in_chroot =
        "this program runs in a chroot, where the kernel allows no user namespaces (clone(2))";
    let in_initramfs = "the root is the initial ramfs, which cannot be exchanged";
    let bare = "this root lacks CAP_SETUID or CAP_SETGID and cannot become an ordinary user, and no sandbox runs as root";
    let alone = "this root cannot become an ordinary user (its user namespace has only 1 uid), and no sandbox runs as root";
    all(&[
        (CLONE, EPERM, &chroot, Cause::Chroot, in_chroot),
        (PIVOT, EINVAL, &chroot, Cause::Chroot, in_chroot),
        (PIVOT, EINVAL, &initramfs, Cause::Initramfs, in_initramfs),
        ("give up root for", EPERM, &root(0, None), Cause::RootWithoutCapabilities, bare),
        ("give up root for", EINVAL, &root(ALL, Some(1)), Cause::RootWithoutIds, alone),
    ]);
}

#[test]
fn kernels_in_exact_words() {
    let wsl1 = Host { wsl: Some(Wsl::Wsl1), ..host() };
    let old = Host { kernel: "5.4.0-150-generic".to_owned(), ..host() };
    let no_landlock = Host { landlock_abi: None, ..host() };
    let translated = "this is WSL1, which translates system calls and has no namespaces";
    let too_old = "kernel 5.4.0-150-generic is too old: the engine needs 5.12";
    let hidden = "kernel 6.1.0-18-amd64 has this call, but somebody around this program hides it (gVisor or the like)";
    let filter = "this kernel was built without CONFIG_SECCOMP_FILTER";
    let landlock = "this kernel has no Landlock, or its boot parameter `lsm=` leaves it out; files are still protected by mounts";
    all(&[
        (CLONE, EINVAL, &wsl1, Cause::Wsl1, translated),
        (CLONE, ENOSYS, &old, Cause::KernelTooOld, too_old),
        ("mount read-only", ENOSYS, &host(), Cause::OuterSandbox, hidden),
        ("load the system-call filter", EINVAL, &host(), Cause::KernelOption, filter),
        ("enter a Landlock domain", ENOSYS, &no_landlock, Cause::LandlockAbsent, landlock),
    ]);
}

#[test]
fn the_narrow_remedy_comes_first_and_the_wide_one_has_its_cost() {
    let cases = [
        (
            told(CLONE, EPERM, &ubuntu()).2,
            "doctor --print-apparmor",
            "sysctl -w kernel.apparmor",
            "every program of every user",
        ),
        (
            told(CLONE, EPERM, &docker()).2,
            "seccomp=FILE",
            "seccomp=unconfined",
            "the whole container",
        ),
        (
            told(PROC, EPERM, &masked(Some(Container::Docker))).2,
            "proc = \"none\"",
            "systempaths=unconfined",
            "the cost",
        ),
        (
            told(PROC, EPERM, &masked(Some(Container::Podman))).2,
            "proc = \"none\"",
            "unmask=ALL",
            "the cost",
        ),
        (
            told(PROC, EPERM, &masked(Some(Container::Kubernetes))).2,
            "proc = \"none\"",
            "procMount: Unmasked",
            "the cost",
        ),
        (
            told("mask", EACCES, &selinux(Some(Container::Podman))).2,
            "label=type:TYPE",
            "label=disable",
            "the whole container",
        ),
        (
            told("mask", EACCES, &docker()).2,
            "apparmor=NAME",
            "apparmor=unconfined",
            "the whole container",
        ),
    ];
    for (remedy, narrow, wide, cost) in cases {
        let at = |part: &str| remedy.find(part).unwrap_or_else(|| panic!("{part} in {remedy}"));
        assert!(at(narrow) < at(wide), "{remedy}");
        assert!(remedy.contains(cost), "{remedy}");
    }
    assert!(!told(PROC, EPERM, &masked(None)).2.contains("unconfined"));
    let everywhere = told(CLONE, EPERM, &Host { unprivileged_userns_clone: Some(0), ..host() }).2;
    assert!(everywhere.find("virtual machine") < everywhere.find("sysctl"), "{everywhere}");
    assert!(everywhere.contains("the cost: every local user"), "{everywhere}");
}

#[test]
fn a_filter_around_a_program_is_not_blamed_for_what_apparmor_does() {
    // A desktop's filter that forbids nothing of ours, on Ubuntu.
    let both = Host { seccomp_mode: 2, ..ubuntu() };
    assert_eq!(told(CLONE, EPERM, &both).0, Cause::ApparmorUserns);
    // In a container on Ubuntu the switch of the host can be seen, but the filter was first.
    let container = Host { container: Some(Container::Docker), ..both };
    assert_eq!(told(CLONE, EPERM, &container).0, Cause::OuterSeccomp);
    // Unless the label was seen to change.
    let mut moved = container;
    moved.apparmor.label_in_userns = Some("unprivileged_userns (enforce)".to_owned());
    assert_eq!(told("write", EPERM, &moved).0, Cause::ApparmorUserns);
}

#[test]
fn a_limit_of_somebody_around_us_is_not_ours_to_raise() {
    let mut nested = limited("user");
    nested.user.mapped_uids = Some(1);
    let remedy = told(CLONE, ENOSPC, &nested).2;
    assert!(remedy.starts_with("whoever made the sandbox"), "{remedy}");
}

#[test]
fn what_the_facts_do_not_explain_is_not_explained() {
    let refused = |step: &str, errno| explain(&StepError::new(step, "", errno), &host());
    assert_eq!(refused(CLONE, EPERM), None);
    assert_eq!(refused(CLONE, ENOMEM), None);
    assert_eq!(refused("open", ENOENT), None);
    assert_eq!(refused(PROC, EPERM), None);
}

#[test]
fn a_refusal_is_one_line() {
    let error = StepError::new(CLONE, "", ENOSPC);
    let text = explain(&error, &limited("user")).expect("known").to_string();
    assert_eq!(
        text,
        "user namespaces are switched off (user.max_user_namespaces=0); ENOSPC does not mean a full disk. What helps: a small number is enough, one for each sandbox at a time: `sysctl -w user.max_user_namespaces=64`, and the same line in /etc/sysctl.d/ to keep it (the cost: every local user may make that many)"
    );
}

#[test]
fn the_steps_are_called_as_the_engine_calls_them() {
    let engine = [
        include_str!("../../../engine/child.rs"),
        include_str!("../../../engine/child/order.rs"),
        include_str!("../../../engine/child/tree.rs"),
        include_str!("../../../engine/launcher.rs"),
        include_str!("../../../engine/landlock.rs"),
        include_str!("../../../engine/privilege.rs"),
        include_str!("../../../engine/process.rs"),
        include_str!("../../../engine/probe.rs"),
        include_str!("../../../engine/sources.rs"),
    ];
    for (step, _) in STEPS {
        let quoted = format!("\"{step}\"");
        assert!(engine.iter().any(|source| source.contains(&quoted)), "no step is called {step:?}");
    }
}
