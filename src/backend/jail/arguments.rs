//! A [`Plan`] → what bubblewrap is told. Pure: descriptors are numbers, and what they hold is named.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::plan::{Access, Command, Identity, Jail, Mount, MountKind, OUTPUTS, Plan, ProcMode};

/// What one of bubblewrap's descriptors holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Data<'p> {
    /// A small file.
    Text(&'p str),
    /// The code that travels beside the plan.
    Code,
    /// Nothing: what covers a file of `/proc`.
    Nothing,
}

/// A part of `/proc` that is covered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mask {
    /// Its name in `/proc`.
    pub(super) name: &'static str,
    /// Whether it is a directory.
    pub(super) directory: bool,
}

/// The numbers of bubblewrap's own descriptors, which it closes before the payload starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Where it reads its arguments.
    pub(super) arguments: RawFd,
    /// Where it tells who pid 1 is and how the payload ended.
    pub(super) status: RawFd,
    /// Where it reads the system-call filter, last of all.
    pub(super) filter: RawFd,
    /// The first of those with data.
    pub(super) data: RawFd,
}

impl Numbers {
    /// Those after the payload's own: three streams, and a session's two control pipes.
    pub(super) const fn after(payload: RawFd) -> Self {
        Self { arguments: payload, status: payload + 1, filter: payload + 2, data: payload + 3 }
    }
}

/// What bubblewrap is told, NUL after each word, and what its data descriptors hold, in order.
#[derive(Debug)]
pub(super) struct Arguments<'p> {
    words: Vec<OsString>,
    pub(super) data: Vec<Data<'p>>,
    numbers: Numbers,
}

/// Everything but the command. `sources` are where the plan's binds are found, in their order. What
/// `jail` says by itself is left out.
pub(super) fn arguments<'p>(
    plan: &'p Plan,
    sources: &[PathBuf],
    masks: &[Mask],
    numbers: Numbers,
    jail: Option<&Jail>,
) -> Arguments<'p> {
    let mut all = Arguments { words: Vec::new(), data: Vec::new(), numbers };
    let Command { arguments: _, variables, directory, jail: _ } = plan.command();
    if jail.is_none() {
        all.isolation(plan.identity());
    }
    all.outside();
    all.variables(variables);
    if jail.is_none() {
        all.at("--chdir", directory);
    }
    let mut sources = sources.iter();
    for mount in plan.mounts() {
        let shown = jail.is_some_and(|jail| jail.shows(mount));
        match (&mount.kind, &mount.at) {
            (MountKind::Bind { source }, at) => {
                let source = sources.next().unwrap_or(&source.path);
                if !shown {
                    all.words([OsStr::new("--ro-bind"), source.as_os_str(), at.as_os_str()]);
                }
            }
            _ if shown => {}
            _ => all.mount(mount, plan.access(), jail.is_some()),
        }
    }
    for mask in masks {
        all.mask(mask);
    }
    // Last: what stands in them had to be made first.
    all.words(["--remount-ro", "/dev"]);
    all.words(["--remount-ro", "/"]);
    all
}

impl<'p> Arguments<'p> {
    /// As bubblewrap reads them from a descriptor.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect()
    }

    fn words<const N: usize>(&mut self, words: [impl AsRef<OsStr>; N]) {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
    }

    fn at(&mut self, option: &str, path: &Path) {
        self.words([option.as_ref(), path.as_os_str()]);
    }

    fn isolation(&mut self, identity: &Identity) {
        let Identity { inside, outside: _, hostname } = identity;
        for name in ["user", "ipc", "pid", "net", "uts", "cgroup"] {
            self.words([format!("--unshare-{name}")]);
        }
        self.words(["--disable-userns", "--new-session", "--die-with-parent"]);
        self.words(["--uid", &inside.uid.to_string()]);
        self.words(["--gid", &inside.gid.to_string()]);
        self.words(["--hostname", hostname]);
    }

    fn outside(&mut self) {
        self.words(["--json-status-fd", &self.numbers.status.to_string()]);
        self.words(["--seccomp", &self.numbers.filter.to_string()]);
    }

    fn variables(&mut self, variables: &BTreeMap<OsString, OsString>) {
        self.words(["--clearenv"]);
        for (name, value) in variables {
            self.words([OsStr::new("--setenv"), name, value]);
        }
    }

    /// With a jail of its own, `/proc` and `/dev` are there already.
    fn mount(&mut self, mount: &'p Mount, access: &Access, jailed: bool) {
        let Mount { at, kind } = mount;
        match kind {
            // Made by the caller, who knows where it is found.
            MountKind::Bind { .. } => {}
            MountKind::Symlink { target } => {
                self.words([OsStr::new("--symlink"), target.as_os_str(), at.as_os_str()]);
            }
            MountKind::File { content } => self.file("--file", at, Data::Text(content)),
            MountKind::Code => self.file("--file", at, Data::Code),
            MountKind::Directory => self.at("--dir", at),
            MountKind::Tmpfs { size, inodes: _, mode } => self.tmpfs(at, *size, *mode),
            // It has no name outside of the launcher; the judge has refused it.
            MountKind::Outputs => self.at("--dir", Path::new(OUTPUTS)),
            MountKind::Proc => match access.proc {
                ProcMode::Fresh if jailed => {}
                ProcMode::Fresh => self.at("--proc", at),
                ProcMode::None => self.at("--dir", at),
            },
            MountKind::Devices { shm } => {
                if !jailed {
                    self.at("--dev", at);
                }
                self.tmpfs(&at.join("shm"), *shm, 0o1777);
            }
        }
    }

    fn tmpfs(&mut self, at: &Path, size: u64, mode: u32) {
        self.words(["--perms", &format!("{mode:o}"), "--size", &size.to_string()]);
        self.at("--tmpfs", at);
    }

    fn file(&mut self, option: &str, at: &Path, data: Data<'p>) {
        let number = self.numbers.data + RawFd::try_from(self.data.len()).unwrap_or(RawFd::MAX);
        self.data.push(data);
        self.words(["--perms", "0444", option, &number.to_string()]);
        self.words([at]);
    }

    fn mask(&mut self, mask: &Mask) {
        let at = Path::new("/proc").join(mask.name);
        if mask.directory {
            self.at("--tmpfs", &at);
            self.at("--remount-ro", &at);
        } else {
            self.file("--ro-bind-data", &at, Data::Nothing);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::plan::{FileIdentity, HostFile, Ids, Limits, PlanBuilder};
    use crate::policy::{Profile, Wearer};

    pub(in super::super) fn plan(mounts: Vec<(&str, MountKind)>) -> Plan {
        let mounts = mounts.into_iter().map(|(at, kind)| Mount { at: at.into(), kind });
        PlanBuilder {
            environment: "e".to_owned(),
            identity: Identity::of(Ids { uid: 1234, gid: 1234 }),
            mounts: mounts.collect(),
            limits: Limits::default(),
            access: Access {
                profile: Profile::Default,
                wearer: Wearer::Shell,
                proc: ProcMode::Fresh,
                require: BTreeSet::new(),
            },
            command: Command {
                arguments: vec!["true".into()],
                variables: BTreeMap::from([("A".into(), "b c".into())]),
                directory: "/workspace".into(),
                jail: None,
            },
        }
        .build()
        .expect("plan")
    }

    fn text(plan: &Plan, masks: &[Mask]) -> String {
        let all = arguments(plan, &["/usr/lib".into()], masks, Numbers::after(3), None);
        String::from_utf8(all.bytes()).expect("text").replace('\0', " ")
    }

    #[test]
    fn every_namespace_is_new_and_the_variables_are_the_plan_s_alone() {
        let text = text(&plan(vec![]), &[]);
        assert!(
            text.starts_with(
                "--unshare-user --unshare-ipc --unshare-pid --unshare-net --unshare-uts \
             --unshare-cgroup --disable-userns --new-session --die-with-parent --uid 1000 \
             --gid 1000 --hostname sandbox --json-status-fd 4 --seccomp 5 --clearenv \
             --setenv A b c --chdir /workspace "
            ),
            "{text}"
        );
    }

    #[test]
    fn every_kind_of_mount_has_its_words_and_the_root_is_sealed_last() {
        let identity = FileIdentity { device: 1, inode: 2 };
        let source = HostFile { path: "/usr/lib".into(), directory: true, identity };
        let plan = plan(vec![
            ("/lib", MountKind::Bind { source }),
            ("/bin", MountKind::Symlink { target: "usr/bin".into() }),
            ("/etc/a", MountKind::File { content: "text".to_owned() }),
            ("/code/main.sh", MountKind::Code),
            ("/empty", MountKind::Directory),
            ("/tmp", MountKind::Tmpfs { size: 4096, inodes: 9, mode: 0o1777 }),
            ("/proc", MountKind::Proc),
            ("/dev", MountKind::Devices { shm: 8192 }),
        ]);
        let masks =
            [Mask { name: "kcore", directory: false }, Mask { name: "acpi", directory: true }];
        let said = text(&plan, &masks);
        let (_, mounts) = said.split_once("--chdir /workspace ").expect("mounts");
        assert_eq!(
            mounts,
            "--symlink usr/bin /bin --perms 0444 --file 6 /code/main.sh --dev /dev --perms 1777 \
             --size 8192 --tmpfs /dev/shm --dir /empty --perms 0444 --file 7 /etc/a \
             --ro-bind /usr/lib /lib --proc /proc --perms 1777 --size 4096 --tmpfs /tmp \
             --perms 0444 --ro-bind-data 8 /proc/kcore --tmpfs /proc/acpi \
             --remount-ro /proc/acpi --remount-ro /dev --remount-ro / "
        );
        let all = arguments(&plan, &[], &masks, Numbers::after(3), None);
        assert_eq!(all.data, [Data::Code, Data::Text("text"), Data::Nothing]);
    }

    #[test]
    fn a_jail_of_nix_is_told_all_but_what_it_says_by_itself() {
        let identity = FileIdentity { device: 1, inode: 2 };
        let file = |path: &str| HostFile { path: path.into(), directory: false, identity };
        let bind = |path: &str| MountKind::Bind { source: file(path) };
        let plan = plan(vec![
            ("/nix/store/a", bind("/nix/store/a")),
            ("/nix/store/b", MountKind::Symlink { target: "a".into() }),
            ("/nix/store/c", bind("/srv/c")),
            ("/project", bind("/srv/project")),
            ("/bin/sh", MountKind::Symlink { target: "/nix/store/a/bin/sh".into() }),
            ("/code/main.sh", MountKind::Code),
            ("/tmp", MountKind::Tmpfs { size: 4096, inodes: 9, mode: 0o1777 }),
            ("/proc", MountKind::Proc),
            ("/dev", MountKind::Devices { shm: 8192 }),
        ]);
        let jail = Jail { program: file("/nix/store/j/bin/run"), store: "/nix/store".into() };
        let sources = ["/nix/store/a", "/sys/1", "/sys/2"].map(PathBuf::from);
        let masks = [Mask { name: "kcore", directory: false }];
        let all = arguments(&plan, &sources, &masks, Numbers::after(3), Some(&jail));
        assert_eq!(
            String::from_utf8(all.bytes()).expect("text").replace('\0', " "),
            "--json-status-fd 4 --seccomp 5 --clearenv --setenv A b c \
             --symlink /nix/store/a/bin/sh /bin/sh --perms 0444 --file 6 /code/main.sh \
             --perms 1777 --size 8192 --tmpfs /dev/shm --ro-bind /sys/1 /nix/store/c \
             --ro-bind /sys/2 /project --perms 1777 --size 4096 --tmpfs /tmp \
             --perms 0444 --ro-bind-data 7 /proc/kcore --remount-ro /dev --remount-ro / "
        );
    }
}
