//! What `/proc/self/mountinfo` tells of the host (proc_pid_mountinfo(5)).

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::engine::mountinfo::mounts;

/// The state of `/proc`, on which depends whether the kernel allows a fresh one in a sandbox
/// (mount_namespaces(7)): it must be there, whole, and not more restricted than the fresh one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcMount {
    /// Whether a procfs is mounted at `/proc`.
    pub mounted: bool,
    /// Whether it is read-only.
    pub read_only: bool,
    /// What lies over parts of it.
    pub over_mounts: Vec<String>,
}

/// Directories of procfs that are made to be mounted on, and hide nothing.
const MADE_FOR_MOUNTS: [&str; 3] = ["/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd", "/proc/openprom"];

pub(super) fn proc_mount(text: &str) -> ProcMount {
    let proc = Path::new("/proc");
    let own = mounts(text.as_bytes()).rfind(|mount| mount.at == proc && mount.kind == "proc");
    let mut over_mounts: Vec<String> = mounts(text.as_bytes())
        .filter(|mount| mount.at.starts_with(proc) && mount.at != proc)
        .map(|mount| mount.at.display().to_string())
        .filter(|at| !MADE_FOR_MOUNTS.contains(&at.as_str()))
        .collect();
    over_mounts.sort();
    over_mounts.dedup();
    ProcMount {
        mounted: own.is_some(),
        read_only: own.is_some_and(|mount| mount.has("ro")),
        over_mounts,
    }
}

/// Whether `/` is not the root of the mount namespace. `first` is what pid 1 sees.
///
/// No mount at `/` is a sure sign. A mount at `/` is told from the namespace's root by where pid 1
/// sees it, if pid 1 is in the same namespace; else that cannot be known.
pub(super) fn chroot(own: &str, first: Option<&str>) -> Option<bool> {
    let top = Path::new("/");
    let own = own.as_bytes();
    mounts(own).next()?;
    let roots: Vec<String> = mounts(own).filter(|mount| mount.at == top).map(|it| it.id).collect();
    if roots.is_empty() {
        return Some(true);
    }
    let first = mounts(first?.as_bytes()).filter(|mount| roots.contains(&mount.id));
    let places: Vec<_> = first.map(|mount| mount.at).collect();
    if places.iter().any(|at| at == top) {
        Some(false)
    } else {
        (!places.is_empty()).then_some(true)
    }
}

pub(super) fn root_is_initramfs(text: &str) -> bool {
    let last = mounts(text.as_bytes()).rfind(|mount| mount.at == Path::new("/"));
    last.is_some_and(|mount| mount.kind == "rootfs")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 23 0:28 / /srv/my\\040root rw - ext4 /dev/vdb rw
40 22 0:30 / /proc/sys/fs/binfmt_misc rw - binfmt_misc binfmt_misc rw";

    #[test]
    fn a_whole_proc_has_nothing_over_it_but_what_is_made_for_mounts() {
        let whole = ProcMount { mounted: true, read_only: false, over_mounts: vec![] };
        assert_eq!(proc_mount(HOST), whole);
    }

    #[test]
    fn a_container_s_proc_is_read_with_all_that_lies_over_it() {
        let docker = "\
600 550 0:52 / / rw - overlay overlay rw
601 600 0:53 / /proc rw,nosuid - proc proc rw
602 601 0:53 /sys /proc/sys ro,nosuid - proc proc rw
603 601 0:54 /null /proc/keys rw - tmpfs tmpfs rw
604 601 0:54 /null /proc/keys rw - tmpfs tmpfs rw";
        assert_eq!(proc_mount(docker).over_mounts, ["/proc/keys", "/proc/sys"]);
        let read_only = "601 600 0:53 / /proc ro,nosuid - proc proc rw";
        assert!(proc_mount(read_only).read_only);
        assert!(!proc_mount("1 0 0:1 / / rw - ext4 x rw").mounted);
    }

    #[test]
    fn a_chroot_is_seen_where_it_can_be() {
        assert_eq!(chroot(HOST, Some(HOST)), Some(false));
        assert_eq!(chroot("22 27 0:21 / /proc rw - proc proc rw", Some(HOST)), Some(true));
        let onto_a_mount = "31 23 0:28 / / rw - ext4 /dev/vdb rw";
        assert_eq!(chroot(onto_a_mount, Some(HOST)), Some(true));
        let another_namespace = "931 923 0:28 / / rw - ext4 /dev/vdb rw";
        assert_eq!(chroot(another_namespace, Some(HOST)), None);
        assert_eq!(chroot(another_namespace, None), None);
        assert_eq!(chroot("", None), None);
    }

    #[test]
    fn the_initial_ramfs_is_seen() {
        assert!(root_is_initramfs("1 1 0:2 / / rw - rootfs rootfs rw"));
        assert!(!root_is_initramfs(
            "1 1 0:2 / / rw - rootfs rootfs rw\n2 1 8:1 / / rw - ext4 x rw"
        ));
    }
}
