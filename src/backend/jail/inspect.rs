//! A jail that Nix built is another's program: what it has made is compared with the plan while the
//! payload does not run yet.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::Pid;

use crate::engine::StepError;
use crate::engine::mountinfo::mounts;
use crate::kernel;
use crate::plan::{Ids, Jail, MountKind, Plan};

const NAMESPACES: [&str; 7] = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"];

/// What every mount carries.
const NEVER: [&str; 2] = ["nosuid", "nodev"];

/// Compares the sandbox whose pid 1 the host calls `pid`.
///
/// # Errors
/// The first difference.
pub(super) fn inspect(pid: Pid, plan: &Plan, jail: &Jail) -> Result<(), StepError> {
    let program = jail.program.path.display();
    let step = format!("run code in the jail of {program}, which");
    let failed = |what: String, errno| StepError::new(&step, what, errno);
    let read = |name: &str| {
        let unread = |error: std::io::Error| {
            let errno = kernel::errno(&error);
            failed(format!("does not show its {name}"), errno)
        };
        fs::read(format!("/proc/{pid}/{name}")).map_err(unread)
    };
    let differs = |problem: Option<String>| match problem {
        None => Ok(()),
        Some(problem) => Err(failed(problem, Errno::EPERM)),
    };
    differs(shared_namespace(pid))?;
    differs(capability(&read("status")?))?;
    let Ids { uid, gid } = plan.identity().inside;
    differs(other_id("uid", &read("uid_map")?, uid))?;
    differs(other_id("gid", &read("gid_map")?, gid))?;
    differs(other_command(&read("cmdline")?, &plan.command().arguments))?;
    differs(other_mount(&read("mountinfo")?, plan, jail))
}

fn shared_namespace(pid: Pid) -> Option<String> {
    let of = |whose: &str, name: &str| fs::read_link(format!("/proc/{whose}/ns/{name}")).ok();
    let shared = |name: &&&str| match (of("self", name), of(&pid.to_string(), name)) {
        (Some(own), Some(its)) => own == its,
        _ => true,
    };
    NAMESPACES.iter().find(shared).map(|name| format!("leaves the {name} namespace as it is"))
}

fn capability(status: &[u8]) -> Option<String> {
    let status = String::from_utf8_lossy(status);
    let sets = status.lines().filter(|line| line.starts_with("Cap"));
    let mut held = sets.filter(|line| !line.ends_with("\t0000000000000000"));
    held.next().map(|set| format!("keeps {}", set.replace('\t', " ")))
}

fn other_id(kind: &str, map: &[u8], wanted: u32) -> Option<String> {
    let map = String::from_utf8_lossy(map);
    let parts: Vec<&str> = map.split_whitespace().collect();
    let same = matches!(parts[..], [inside, _, "1"] if inside == wanted.to_string());
    (!same).then(|| format!("maps another {kind} than {wanted}"))
}

fn other_command(line: &[u8], wanted: &[OsString]) -> Option<String> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let wanted = [&b"--"[..]].into_iter().chain(wanted.iter().map(|word| word.as_bytes()));
    // After the last word there is a NUL too.
    let wanted: Vec<&[u8]> = wanted.chain([&b""[..]]).collect();
    (!words.ends_with(&wanted)).then(|| "runs another command than the plan's".to_owned())
}

fn other_mount(mountinfo: &[u8], plan: &Plan, jail: &Jail) -> Option<String> {
    mounts(mountinfo).find_map(|mount| {
        let at = &mount.at;
        // Both are made anew, and what of them speaks of the host is masked.
        if at.starts_with("/proc") || at.starts_with("/dev") {
            return None;
        }
        let weak = NEVER.into_iter().find(|wanted| !mount.has(wanted));
        match (place(at, plan, jail), weak) {
            (Place::Unknown, _) => Some(format!("shows {}", at.display())),
            (Place::ReadOnly, _) if !mount.has("ro") => {
                Some(format!("leaves {} writable", at.display()))
            }
            (_, Some(weak)) => Some(format!("mounts {} without {weak}", at.display())),
            _ => None,
        }
    })
}

enum Place {
    ReadOnly,
    Writable,
    Unknown,
}

fn place(at: &Path, plan: &Plan, jail: &Jail) -> Place {
    let known = plan.mounts().iter().find_map(|mount| match mount.kind {
        MountKind::Tmpfs { .. } if mount.at == at => Some(Place::Writable),
        // What is mounted below on the host comes with it.
        MountKind::Bind { .. } if at.starts_with(&mount.at) => Some(Place::ReadOnly),
        _ => None,
    });
    let made = at == Path::new("/") || at.starts_with(&jail.store);
    known.unwrap_or(if made { Place::ReadOnly } else { Place::Unknown })
}

#[cfg(test)]
mod tests {
    use super::super::arguments::tests::plan;
    use super::*;
    use crate::plan::{FileIdentity, HostFile};

    fn file(path: &str) -> HostFile {
        let identity = FileIdentity { device: 1, inode: 2 };
        HostFile { path: path.into(), directory: false, identity }
    }

    /// What is said of a sandbox with this mount, of a plan with a project at `/a b`.
    fn told(mount: &str) -> Option<String> {
        let jail = Jail { program: file("/nix/store/j/run"), store: "/nix/store".into() };
        let bind = MountKind::Bind { source: file("/srv") };
        let tmpfs = MountKind::Tmpfs { size: 4096, inodes: 9, mode: 0o755 };
        let plan = plan(vec![("/a b", bind), ("/workspace", tmpfs)]);
        let line = format!("31 23 0:28 / {mount},relatime - tmpfs tmpfs rw\n");
        other_mount(line.as_bytes(), &plan, &jail)
    }

    #[test]
    fn only_what_the_plan_shows_is_mounted_and_nothing_else_is_writable() {
        for mount in [
            "/ ro,nosuid,nodev",
            "/proc rw",
            "/dev/null rw",
            "/nix/store/x ro,nosuid,nodev",
            "/a\\040b/below ro,nosuid,nodev",
            "/workspace rw,nosuid,nodev",
        ] {
            assert_eq!(told(mount), None, "{mount}");
        }
        for (mount, says) in [
            ("/a ro,nosuid,nodev", "shows /a"),
            ("/a\\040c ro,nosuid,nodev", "shows /a c"),
            ("/workspace/x rw,nosuid,nodev", "shows /workspace/x"),
            ("/ rw,nosuid,nodev", "leaves / writable"),
            ("/a\\040b rw,nosuid,nodev", "leaves /a b writable"),
            ("/nix/store/x ro,nodev", "mounts /nix/store/x without nosuid"),
            ("/workspace rw,nosuid", "mounts /workspace without nodev"),
        ] {
            assert_eq!(told(mount).as_deref(), Some(says), "{mount}");
        }
    }

    #[test]
    fn the_command_is_the_whole_of_the_plan_s() {
        let wanted = ["/bin/x", "-u", "a"].map(OsString::from);
        assert_eq!(other_command(b"bwrap\0--\0/bin/x\0-u\0a\0", &wanted), None);
        for line in [
            &b"bwrap\0--\0/bin/x\0-u\0"[..],
            b"bwrap\0--\0/bin/x\0-u\0a\0b\0",
            b"bwrap\0--\0sh\0/bin/x\0-u\0a\0",
            b"bwrap\0--\0/bin/x\0-u\0a",
        ] {
            assert!(other_command(line, &wanted).is_some(), "{}", String::from_utf8_lossy(line));
        }
    }
}
