//! From a refused step and the facts of the host to one cause, and what helps.
//!
//! Pure, so that hosts which nobody here has can be tested. The narrow remedy comes first; one that
//! opens more than this program is named last, with its cost.

use std::fmt;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::host::{Container, Host, Wsl};
use crate::engine::StepError;

/// Why something does not work here. The names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The first Windows Subsystem for Linux.
    Wsl1,
    /// AppArmor takes the rights out of unprivileged user namespaces (Ubuntu 23.10 and later).
    ApparmorUserns,
    /// An AppArmor profile confines this program.
    ApparmorProfile,
    /// SELinux confines this program.
    Selinux,
    /// `kernel.unprivileged_userns_clone=0`.
    UsernsSwitchedOff,
    /// `user.max_user_namespaces=0`, or another `max_*_namespaces`.
    NamespaceLimitZero,
    /// A limit on namespaces is reached.
    NamespaceLimitReached,
    /// A limit on processes is reached.
    ProcessLimit,
    /// Somebody else's seccomp filter.
    OuterSeccomp,
    /// Somebody else's sandbox, of a kind that cannot be told.
    OuterSandbox,
    /// Parts of `/proc` are covered.
    ProcOverMounted,
    /// `/proc` is read-only.
    ProcReadOnly,
    /// There is no `/proc`.
    ProcAbsent,
    /// A chroot.
    Chroot,
    /// The initial ramfs.
    Initramfs,
    /// Root that cannot become somebody else.
    RootWithoutCapabilities,
    /// Root of a user namespace in which nobody else exists.
    RootWithoutIds,
    /// The kernel is too old.
    KernelTooOld,
    /// The kernel was built without something.
    KernelOption,
    /// No Landlock.
    LandlockAbsent,
    /// An old Landlock.
    LandlockOld,
    /// The user's keys are used up.
    KeyQuota,
    /// No cgroup file system.
    CgroupAbsent,
    /// Only the old cgroups.
    CgroupV1,
    /// Old and new cgroups side by side.
    CgroupHybrid,
    /// Cgroups that are not ours.
    CgroupNotDelegated,
    /// Cgroups without the controllers that matter.
    CgroupControllers,
}

/// One cause, told, and what helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Which.
    pub cause: Cause,
    /// One sentence without a full stop.
    pub because: String,
    /// What helps; the narrow remedy first.
    pub remedy: String,
}

impl Diagnosis {
    pub(super) fn new(cause: Cause, because: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { cause, because: because.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. What helps: {}", self.because, self.remedy)
    }
}

/// What a step wants of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    GiveUpRoot,
    Namespaces,
    Ids,
    Network,
    Mount,
    Proc,
    Pivot,
    Keyring,
    Landlock,
    Filter,
    Process,
}

/// The engine's names of its steps; a test holds them against its source.
const STEPS: [(&str, Stage); 23] = [
    ("drop root's groups", Stage::GiveUpRoot),
    ("give up root for", Stage::GiveUpRoot),
    ("create a user namespace", Stage::Namespaces),
    ("create the namespaces", Stage::Namespaces),
    ("make a user namespace for id-mapped mounts", Stage::Namespaces),
    ("write", Stage::Ids),
    ("become gid", Stage::Ids),
    ("become uid", Stage::Ids),
    ("bring lo up", Stage::Network),
    ("make all mounts private", Stage::Mount),
    ("make the root file system", Stage::Mount),
    ("mount read-only", Stage::Mount),
    ("mount a tmpfs at", Stage::Mount),
    ("mount a devpts at", Stage::Mount),
    ("mount device", Stage::Mount),
    ("mask", Stage::Mount),
    ("make the root read-only", Stage::Mount),
    ("mount a fresh procfs at", Stage::Proc),
    ("enter the new root", Stage::Pivot),
    ("join a new session keyring", Stage::Keyring),
    ("enter a Landlock domain", Stage::Landlock),
    ("load the system-call filter", Stage::Filter),
    ("start the payload", Stage::Process),
];

/// Why the kernel refused a step on this host, and what helps; `None` where the facts do not say.
///
/// Refusals of a run and the doctor use this alike, and so the same words.
#[must_use]
pub fn explain(error: &StepError, host: &Host) -> Option<Diagnosis> {
    let (_, stage) = STEPS.iter().find(|(name, _)| *name == error.step)?;
    if host.wsl == Some(Wsl::Wsl1) {
        return Some(wsl1());
    }
    let errno = error.errno();
    match (stage, errno) {
        (Stage::Namespaces, Errno::ENOSPC | Errno::EUSERS) => Some(namespace_limit(host)),
        (Stage::Namespaces | Stage::Process, Errno::EAGAIN) => Some(process_limit(host)),
        (Stage::Namespaces, Errno::EINVAL) => Some(kernel_option(NAMESPACE_OPTIONS)),
        (Stage::Namespaces, Errno::EPERM | Errno::EACCES) => namespaces_denied(errno, host),
        (Stage::GiveUpRoot, _) => Some(root_is_stuck(host)),
        (Stage::Mount, Errno::EINVAL) if host.chroot == Some(true) => Some(chroot()),
        (Stage::Mount | Stage::Proc, Errno::ENODEV) => Some(kernel_option(FILE_SYSTEM_OPTIONS)),
        (Stage::Proc, Errno::EPERM | Errno::EACCES) => {
            proc_refused(host).or_else(|| denied(errno, host, "a fresh procfs"))
        }
        (Stage::Pivot, Errno::EINVAL) if host.initramfs => Some(initramfs()),
        (Stage::Pivot, Errno::EINVAL) if host.chroot == Some(true) => Some(chroot()),
        (Stage::Filter, Errno::EINVAL) => Some(kernel_option("CONFIG_SECCOMP_FILTER")),
        (Stage::Landlock, _) if host.landlock_abi.is_none() => Some(landlock_absent()),
        (Stage::Keyring, Errno::EDQUOT) => Some(key_quota(host)),
        (_, Errno::ENOSYS) => Some(call_missing(host, *stage)),
        (_, Errno::EPERM | Errno::EACCES) => denied(errno, host, what(*stage)),
        _ => None,
    }
}

const fn what(stage: Stage) -> &'static str {
    match stage {
        Stage::GiveUpRoot | Stage::Process => "this",
        Stage::Namespaces => "new user namespaces",
        Stage::Ids => "mapping ids in a user namespace",
        Stage::Network => "setting up a network namespace",
        Stage::Mount => "mounting",
        Stage::Proc => "a fresh procfs",
        Stage::Pivot => "pivot_root(2)",
        Stage::Keyring => "keyctl(2)",
        Stage::Landlock => "Landlock",
        Stage::Filter => "seccomp(2)",
    }
}

/// `EPERM` at the very beginning has the most causes.
fn namespaces_denied(errno: Errno, host: &Host) -> Option<Diagnosis> {
    if label_took_rights(host) {
        Some(apparmor_userns())
    } else if host.unprivileged_userns_clone == Some(0) {
        Some(switched_off())
    } else if host.chroot == Some(true) {
        Some(chroot())
    } else {
        denied(errno, host, what(Stage::Namespaces))
    }
}

/// Somebody forbids it: a filter says `EPERM`, a security module mostly `EACCES`.
fn denied(errno: Errno, host: &Host, what: &str) -> Option<Diagnosis> {
    let filter = || (host.seccomp_mode == 2).then(|| outer_seccomp(host, what));
    let restricted = || (host.apparmor.restrict_userns == Some(1)).then(apparmor_userns);
    if label_took_rights(host) {
        return Some(apparmor_userns());
    }
    let module = || security_module(host, what);
    if errno == Errno::EACCES {
        return module().or_else(restricted).or_else(filter);
    }
    // A filter without a container is a weak sign: many services have one that forbids nothing of
    // ours.
    if host.container.is_some() {
        filter().or_else(module).or_else(restricted)
    } else {
        restricted().or_else(filter).or_else(module)
    }
}

fn label_took_rights(host: &Host) -> bool {
    let label = host.apparmor.label_in_userns.as_deref();
    label.is_some_and(|label| label.starts_with("unprivileged_userns"))
}

fn security_module(host: &Host, what: &str) -> Option<Diagnosis> {
    if let Some(selinux) = host.selinux.as_ref().filter(|selinux| selinux.enforcing) {
        let because = format!("SELinux forbids {what} to this program ({})", selinux.context);
        let remedy = if host.container.is_some() {
            "start this one container with `--security-opt label=type:TYPE`, TYPE being one whose policy allows user namespaces and mounts in them (`label=disable` would take SELinux away from the whole container)"
        } else {
            "see what was denied with `ausearch -m avc -ts recent` and allow that for this program alone (`audit2allow -M nix-sandbox-mcp`)"
        };
        return Some(Diagnosis::new(Cause::Selinux, because, remedy));
    }
    let profile = host.apparmor_profile()?;
    let because = format!("the AppArmor profile {profile} forbids {what}");
    let rules = "`userns, mount, umount, pivot_root,`";
    let remedy = if host.container.is_some() {
        format!(
            "start this one container with a profile of its own, a copy of that one which also has {rules} (`--security-opt apparmor=NAME`; `apparmor=unconfined` would take AppArmor away from the whole container)"
        )
    } else {
        format!("add {rules} to that profile")
    };
    Some(Diagnosis::new(Cause::ApparmorProfile, because, remedy))
}

fn wsl1() -> Diagnosis {
    Diagnosis::new(
        Cause::Wsl1,
        "this is WSL1, which translates system calls and has no namespaces",
        "use WSL2: `wsl --set-version DISTRIBUTION 2` on the Windows side",
    )
}

fn apparmor_userns() -> Diagnosis {
    Diagnosis::new(
        Cause::ApparmorUserns,
        "AppArmor takes all rights from the user namespaces of ordinary programs (kernel.apparmor_restrict_unprivileged_userns=1), and no profile exempts this one",
        "exempt this one program: `nix-sandbox-mcp doctor --print-apparmor | sudo tee /etc/apparmor.d/nix-sandbox-mcp && sudo apparmor_parser -r /etc/apparmor.d/nix-sandbox-mcp` (profiles go by path, and the path in /nix/store changes with every upgrade: the profile names a pattern); the switch for the whole host, `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, exempts every program of every user",
    )
}

fn switched_off() -> Diagnosis {
    Diagnosis::new(
        Cause::UsernsSwitchedOff,
        "user namespaces are switched off for ordinary users (kernel.unprivileged_userns_clone=0)",
        "run it where they are on: a virtual machine, or another host; this host has only a switch for everybody: `sysctl -w kernel.unprivileged_userns_clone=1`, and the same line in /etc/sysctl.d/ to keep it (the cost: every local user reaches more of the kernel)",
    )
}

fn namespace_limit(host: &Host) -> Diagnosis {
    let zero = host.max_namespaces.iter().find(|(_, most)| **most == 0);
    let nested = host.user.mapped_uids.is_some();
    let around = "whoever made the sandbox or container around this program set that limit, and can raise it";
    let Some((kind, _)) = zero else {
        let because = "as many namespaces exist as are allowed here or around us (user.max_*_namespaces, or 32 levels); ENOSPC does not mean a full disk";
        let remedy = if nested {
            around
        } else {
            "end other sandboxes, or raise the limit that is reached: `sysctl user | grep max_`"
        };
        return Diagnosis::new(Cause::NamespaceLimitReached, because, remedy);
    };
    let because = format!(
        "{kind} namespaces are switched off (user.max_{kind}_namespaces=0); ENOSPC does not mean a full disk"
    );
    let remedy = if nested {
        around.to_owned()
    } else {
        format!(
            "a small number is enough, one for each sandbox at a time: `sysctl -w user.max_{kind}_namespaces=64`, and the same line in /etc/sysctl.d/ to keep it (the cost: every local user may make that many)"
        )
    };
    Diagnosis::new(Cause::NamespaceLimitZero, because, remedy)
}

fn process_limit(host: &Host) -> Diagnosis {
    Diagnosis::new(
        Cause::ProcessLimit,
        format!("uid {} or its cgroup may have no more processes", host.user.uid),
        "end some of them, or raise `ulimit -u` (a container: `--pids-limit`)",
    )
}

const NAMESPACE_OPTIONS: &str = "one of CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_IPC_NS, CONFIG_UTS_NS, CONFIG_CGROUPS";
const FILE_SYSTEM_OPTIONS: &str = "one of CONFIG_TMPFS, CONFIG_PROC_FS, CONFIG_UNIX98_PTYS";

fn kernel_option(option: &str) -> Diagnosis {
    Diagnosis::new(
        Cause::KernelOption,
        format!("this kernel was built without {option}"),
        "a kernel that has it; those of all large distributions do",
    )
}

/// What the engine needs of a filter around it, besides what the usual profiles allow.
const CALLS: &str = "clone, clone3, unshare, pivot_root, umount2, open_tree, move_mount, fsopen, fsconfig, fsmount, mount_setattr, sethostname and keyctl (deploy/container-seccomp.json is such a profile)";

fn outer_seccomp(host: &Host, what: &str) -> Diagnosis {
    let (whose, remedy) = match host.container {
        Some(Container::Kubernetes) => (
            "the pod's",
            format!(
                "give this one pod `seccompProfile: {{type: Localhost}}` with the runtime's default profile plus {CALLS}, and `hostUsers: false` (`type: Unconfined` would take the filter away from the whole pod)"
            ),
        ),
        Some(_) => (
            "the container's",
            format!(
                "start this one container with `--security-opt seccomp=FILE`, FILE being the runtime's default profile plus {CALLS} (`seccomp=unconfined` would take the filter away from the whole container)"
            ),
        ),
        None => (
            "an outer",
            format!(
                "let whoever put it on this program (another sandbox, or `RestrictNamespaces=` and `SystemCallFilter=` of a systemd unit) allow {CALLS}"
            ),
        ),
    };
    let because = format!("{whose} seccomp filter forbids {what}");
    Diagnosis::new(Cause::OuterSeccomp, because, remedy)
}

/// `ENOSYS`: the kernel is too old, or somebody pretends that it is.
fn call_missing(host: &Host, stage: Stage) -> Diagnosis {
    if older_than(&host.kernel, (5, 12)) {
        let because = format!("kernel {} is too old: the engine needs 5.12", host.kernel);
        return Diagnosis::new(Cause::KernelTooOld, because, "a kernel since 5.12 (April 2021)");
    }
    if host.seccomp_mode == 2 {
        return outer_seccomp(host, what(stage));
    }
    Diagnosis::new(
        Cause::OuterSandbox,
        format!(
            "kernel {} has this call, but somebody around this program hides it (gVisor or the like)",
            host.kernel
        ),
        "run it outside of that sandbox, which is a wall of its own",
    )
}

fn older_than(release: &str, least: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < least,
        _ => false,
    }
}

fn proc_refused(host: &Host) -> Option<Diagnosis> {
    let state = &host.proc;
    let (cause, because) = if !state.mounted {
        let because =
            "no procfs is mounted at /proc, and the kernel allows a fresh one only beside it";
        return Some(Diagnosis::new(
            Cause::ProcAbsent,
            because,
            "`mount -t proc proc /proc` as root",
        ));
    } else if !state.over_mounts.is_empty() {
        let list = state.over_mounts.join(", ");
        (
            Cause::ProcOverMounted,
            format!(
                "the kernel allows a fresh procfs only beside a whole one, and /proc is over-mounted by: {list}"
            ),
        )
    } else if state.read_only {
        let because =
            "/proc is read-only, and the kernel allows no fresh procfs that is less restricted";
        (Cause::ProcReadOnly, because.to_owned())
    } else {
        return None;
    };
    let unmask = match host.container {
        Some(Container::Docker) => {
            "or uncover it in this one container: `--security-opt systempaths=unconfined`"
        }
        Some(Container::Podman) => {
            "or uncover it in this one container: `--security-opt unmask=ALL`"
        }
        Some(Container::Kubernetes) => {
            "or uncover it in this one pod: `procMount: Unmasked`, which wants `hostUsers: false`"
        }
        Some(Container::Other(_)) => "or have the container's runtime leave /proc uncovered",
        None => "or unmount what covers it",
    };
    let cost = if host.container.is_some() {
        " (the cost: root in the container then reaches kernel switches of the host)"
    } else {
        ""
    };
    let remedy = format!(
        "`proc = \"none\"` in the settings file runs sandboxes without /proc (programs that need /proc/self fail, and nested namespaces are then stopped by seccomp alone); {unmask}{cost}"
    );
    Some(Diagnosis::new(cause, because, remedy))
}

fn chroot() -> Diagnosis {
    Diagnosis::new(
        Cause::Chroot,
        "this program runs in a chroot, where the kernel allows no user namespaces (clone(2))",
        "run it outside, or enter that tree with pivot_root instead of chroot: `systemd-nspawn -D DIR`, `bwrap --bind DIR / …`",
    )
}

fn initramfs() -> Diagnosis {
    Diagnosis::new(
        Cause::Initramfs,
        "the root is the initial ramfs, which cannot be exchanged",
        "`switch_root` to another file system first; a tmpfs is enough",
    )
}

const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
const AS_ORDINARY: &str = "start the program as an ordinary user, who has nothing to give up (a container: `--user 1000:1000`)";

fn root_is_stuck(host: &Host) -> Diagnosis {
    let able = host.user.has(CAP_SETUID) && host.user.has(CAP_SETGID);
    if !able {
        return Diagnosis::new(
            Cause::RootWithoutCapabilities,
            "this root lacks CAP_SETUID or CAP_SETGID and cannot become an ordinary user, and no sandbox runs as root",
            format!(
                "{AS_ORDINARY}; or give root the two back: `--cap-add SETUID --cap-add SETGID`"
            ),
        );
    }
    let why = match host.user.mapped_uids {
        _ if host.user.setgroups_denied => {
            "setgroups(2) is denied in its user namespace".to_owned()
        }
        Some(count) => {
            format!("its user namespace has only {count} uid{}", if count == 1 { "" } else { "s" })
        }
        None => "the kernel refused it".to_owned(),
    };
    Diagnosis::new(
        Cause::RootWithoutIds,
        format!("this root cannot become an ordinary user ({why}), and no sandbox runs as root"),
        AS_ORDINARY,
    )
}

pub(super) fn landlock_absent() -> Diagnosis {
    Diagnosis::new(
        Cause::LandlockAbsent,
        "this kernel has no Landlock, or its boot parameter `lsm=` leaves it out; files are still protected by mounts",
        "add `landlock` to `lsm=` on the kernel's command line, or use a kernel since 5.13 that was built with it",
    )
}

fn key_quota(host: &Host) -> Diagnosis {
    Diagnosis::new(
        Cause::KeyQuota,
        format!("uid {} has as many keys as it may (kernel.keys.maxkeys)", host.user.uid),
        "end other sandboxes or sessions of this user; `cat /proc/key-users` shows who holds how many",
    )
}

#[cfg(test)]
mod tests;
