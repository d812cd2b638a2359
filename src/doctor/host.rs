//! What is known of this host: a value, read from files that every user may read.
//!
//! A fact is no verdict. Whether something works is found out by doing it; facts only explain why a
//! step was refused ([`super::explain`]).

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cgroup::Cgroup;
use super::mountinfo::{self, ProcMount};

/// Windows Subsystem for Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wsl {
    /// System calls translated by Windows: no namespaces at all.
    Wsl1,
    /// A Linux kernel in a virtual machine.
    Wsl2,
}

/// What this program runs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Container {
    /// Docker or a relative of it.
    Docker,
    /// Podman.
    Podman,
    /// A pod.
    Kubernetes,
    /// Another one, by the name it gives itself.
    Other(String),
}

/// The switches and labels of AppArmor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppArmor {
    /// `kernel.apparmor_restrict_unprivileged_userns`, where there is such a switch.
    pub restrict_userns: Option<u64>,
    /// Our label.
    pub label: Option<String>,
    /// The label of a process of ours once it is in a user namespace, if that was tried.
    pub label_in_userns: Option<String>,
}

/// SELinux, where it can be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selinux {
    /// Whether it denies or only writes down.
    pub enforcing: bool,
    /// Our context.
    pub context: String,
}

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Effective user id.
    pub uid: u32,
    /// Effective capabilities, as `/proc/self/status` writes them.
    pub capabilities: u64,
    /// How many user ids exist in this user namespace; `None` for all of them.
    pub mapped_uids: Option<u64>,
    /// Whether setgroups(2) is denied in this user namespace.
    pub setgroups_denied: bool,
}

impl User {
    /// Whether capability number `bit` is effective.
    #[must_use]
    pub const fn has(&self, bit: u32) -> bool {
        self.capabilities & (1 << bit) != 0
    }
}

/// Things that every process of a host sees, in a sandbox or not. `None`: there is no such switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switches {
    /// `dev.tty.legacy_tiocsti`.
    pub legacy_tiocsti: Option<u64>,
    /// `kernel.io_uring_disabled`.
    pub io_uring_disabled: Option<u64>,
    /// `kernel.dmesg_restrict`.
    pub dmesg_restrict: Option<u64>,
    /// `kernel.kptr_restrict`.
    pub kptr_restrict: Option<u64>,
    /// `kernel.yama.ptrace_scope`.
    pub ptrace_scope: Option<u64>,
    /// `kernel.core_pattern`.
    pub core_pattern: Option<String>,
    /// Whether there is a vsock device: a way to the hypervisor that no network namespace closes.
    pub vsock: bool,
}

/// What is known of this host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub machine: String,
    /// `PRETTY_NAME` of `/etc/os-release`.
    pub distribution: Option<String>,
    /// Windows Subsystem for Linux.
    pub wsl: Option<Wsl>,
    /// What this program runs in.
    pub container: Option<Container>,
    /// Who asks.
    pub user: User,
    /// The seccomp mode that this program was started with: 2 is somebody else's filter.
    pub seccomp_mode: u64,
    /// Whether this program was started with `no_new_privs`.
    pub no_new_privs: bool,
    /// Whether `/` is not the root of the mount namespace; `None` where that cannot be seen.
    pub chroot: Option<bool>,
    /// Whether `/` is the initial ramfs, which cannot be pivoted away.
    pub initramfs: bool,
    /// The state of `/proc`.
    pub proc: ProcMount,
    /// `kernel.unprivileged_userns_clone` (Debian and relatives).
    pub unprivileged_userns_clone: Option<u64>,
    /// `user.max_*_namespaces`, by kind.
    pub max_namespaces: BTreeMap<String, u64>,
    /// AppArmor.
    pub apparmor: AppArmor,
    /// SELinux.
    pub selinux: Option<Selinux>,
    /// `kernel.seccomp.actions_avail`.
    pub seccomp_actions: Vec<String>,
    /// Whether 32-bit programs run (`/proc/sys/abi/vsyscall32`).
    pub ia32: bool,
    /// `CONFIG_X86_X32_ABI`, where the kernel's configuration can be read.
    pub x32: Option<bool>,
    /// Landlock's version.
    pub landlock_abi: Option<u32>,
    /// cgroups.
    pub cgroup: Cgroup,
    /// What every process sees.
    pub switches: Switches,
}

impl Host {
    /// Reads all of it. Starts nothing and changes nothing; any thread may call it.
    #[must_use]
    pub fn read() -> Self {
        let status = text("/proc/self/status").unwrap_or_default();
        let mounts = text("/proc/self/mountinfo").unwrap_or_default();
        let kernel = text("/proc/sys/kernel/osrelease").or_else(uname_release).unwrap_or_default();
        Self {
            wsl: wsl(&kernel),
            machine: std::env::consts::ARCH.to_owned(),
            distribution: text("/etc/os-release").as_deref().and_then(pretty_name),
            container: container(),
            user: user(&status),
            seccomp_mode: field(&status, "Seccomp").and_then(|n| n.parse().ok()).unwrap_or(0),
            no_new_privs: field(&status, "NoNewPrivs") == Some("1"),
            chroot: mountinfo::chroot(&mounts, text("/proc/1/mountinfo").as_deref()),
            initramfs: mountinfo::root_is_initramfs(&mounts),
            proc: mountinfo::proc_mount(&mounts),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            max_namespaces: max_namespaces(),
            apparmor: apparmor(),
            selinux: selinux(),
            seccomp_actions: words("/proc/sys/kernel/seccomp/actions_avail"),
            ia32: Path::new("/proc/sys/abi/vsyscall32").exists(),
            x32: text(&format!("/boot/config-{kernel}"))
                .map(|config| config.contains("\nCONFIG_X86_X32_ABI=y")),
            landlock_abi: crate::kernel::landlock_abi(),
            cgroup: Cgroup::read(&mounts),
            switches: switches(),
            kernel,
        }
    }

    /// Whether AppArmor confines us by a profile that is in force.
    #[must_use]
    pub fn apparmor_profile(&self) -> Option<&str> {
        let label = self.apparmor.label.as_deref()?;
        let free = label.starts_with("unconfined") || label.ends_with("(unconfined)");
        (!free && self.selinux.is_none()).then_some(label)
    }
}

fn text(path: &str) -> Option<String> {
    let text = String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned();
    Some(text.trim_end_matches(['\n', '\0']).to_owned())
}

fn number(path: &str) -> Option<u64> {
    text(path)?.parse().ok()
}

fn words(path: &str) -> Vec<String> {
    text(path).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn uname_release() -> Option<String> {
    nix::sys::utsname::uname().ok()?.release().to_str().map(str::to_owned)
}

/// A line of `/proc/self/status`.
fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn pretty_name(os_release: &str) -> Option<String> {
    let line = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches('"').to_owned())
}

/// `4.4.0-19041-Microsoft` is WSL1, `5.15.90.1-microsoft-standard-WSL2` is WSL2. A WSL2 kernel of
/// one's own may be called anything, but then `/run/WSL` is there.
fn wsl(release: &str) -> Option<Wsl> {
    if release.contains("WSL2") || release.contains("microsoft-standard") {
        Some(Wsl::Wsl2)
    } else if release.ends_with("-Microsoft") {
        Some(Wsl::Wsl1)
    } else {
        Path::new("/run/WSL").exists().then_some(Wsl::Wsl2)
    }
}

fn container() -> Option<Container> {
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Some(Container::Kubernetes);
    }
    if Path::new("/run/.containerenv").exists() {
        return Some(Container::Podman);
    }
    if Path::new("/.dockerenv").exists() {
        return Some(Container::Docker);
    }
    let own_name = text("/run/systemd/container")
        .or_else(|| std::env::var("container").ok())
        .or_else(|| {
            let cgroup = text("/proc/self/cgroup")?;
            let names = ["kubepods", "docker", "libpod", "lxc", "nspawn"];
            names.into_iter().find(|name| cgroup.contains(name)).map(str::to_owned)
        })?;
    Some(match own_name.as_str() {
        "docker" => Container::Docker,
        "podman" | "libpod" => Container::Podman,
        "kubepods" => Container::Kubernetes,
        _ => Container::Other(own_name),
    })
}

fn user(status: &str) -> User {
    let capabilities =
        field(status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    User {
        uid: nix::unistd::geteuid().as_raw(),
        capabilities,
        mapped_uids: mapped_uids(&text("/proc/self/uid_map").unwrap_or_default()),
        setgroups_denied: text("/proc/self/setgroups").as_deref() == Some("deny"),
    }
}

/// Every 32-bit number but one is an id where nothing was mapped.
fn mapped_uids(map: &str) -> Option<u64> {
    let counts = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    let all: u64 = counts.sum();
    (all < u64::from(u32::MAX)).then_some(all)
}

fn max_namespaces() -> BTreeMap<String, u64> {
    let kinds = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"];
    let read = |kind: &str| number(&format!("/proc/sys/user/max_{kind}_namespaces"));
    kinds.into_iter().filter_map(|kind| Some((kind.to_owned(), read(kind)?))).collect()
}

fn apparmor() -> AppArmor {
    AppArmor {
        restrict_userns: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        label: text("/proc/self/attr/apparmor/current")
            .or_else(|| text("/proc/self/attr/current"))
            .filter(|label| !label.is_empty() && label.matches(':').count() < 3),
        label_in_userns: None,
    }
}

/// By its own files where they are mounted; else by a label with the form of a context.
fn selinux() -> Option<Selinux> {
    let context = text("/proc/self/attr/current").filter(|label| label.matches(':').count() >= 3);
    let enforcing = number("/sys/fs/selinux/enforce");
    if enforcing.is_none() && context.is_none() {
        return None;
    }
    let enforcing = enforcing.is_none_or(|enforcing| enforcing == 1);
    Some(Selinux { enforcing, context: context.unwrap_or_default() })
}

fn switches() -> Switches {
    Switches {
        legacy_tiocsti: number("/proc/sys/dev/tty/legacy_tiocsti"),
        io_uring_disabled: number("/proc/sys/kernel/io_uring_disabled"),
        dmesg_restrict: number("/proc/sys/kernel/dmesg_restrict"),
        kptr_restrict: number("/proc/sys/kernel/kptr_restrict"),
        ptrace_scope: number("/proc/sys/kernel/yama/ptrace_scope"),
        core_pattern: read_to_string("/proc/sys/kernel/core_pattern")
            .ok()
            .map(|pattern| pattern.trim_end().to_owned()),
        vsock: Path::new("/dev/vsock").exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_subsystems_of_windows_are_told_apart() {
        assert_eq!(wsl("4.4.0-19041-Microsoft"), Some(Wsl::Wsl1));
        assert_eq!(wsl("5.15.167.4-microsoft-standard-WSL2"), Some(Wsl::Wsl2));
        assert_eq!(wsl("6.1.0-18-amd64"), None);
    }

    #[test]
    fn a_status_field_is_not_taken_for_one_with_a_longer_name() {
        let status = "NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        assert_eq!(field(status, "Seccomp"), Some("2"));
        assert_eq!(field(status, "Sec"), None);
    }

    #[test]
    fn ids_are_counted_unless_all_exist() {
        assert_eq!(mapped_uids("         0          0 4294967295"), None);
        assert_eq!(mapped_uids("0 1000 1\n1 100000 65536\n"), Some(65_537));
    }

    #[test]
    fn a_profile_that_allows_all_confines_nobody() {
        let with = |label: &str| Host {
            apparmor: AppArmor { label: Some(label.to_owned()), ..AppArmor::default() },
            ..Host::default()
        };
        assert_eq!(with("unconfined").apparmor_profile(), None);
        assert_eq!(with("nix-sandbox-mcp (unconfined)").apparmor_profile(), None);
        let docker = with("docker-default (enforce)");
        assert_eq!(docker.apparmor_profile(), Some("docker-default (enforce)"));
    }
}
