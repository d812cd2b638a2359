//! Group 2: the mount tree and files.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::support::{self, command};
use crate::needs;

entries! {
    mnt_01_mount: "MNT-01" "mnt/MNT-01.py" =>
        "tmpfs: EPERM\nproc: EPERM\nsysfs: EPERM\ncgroup2: EPERM\ndevpts: EPERM\nmqueue: EPERM\n\
         overlay: EPERM\nfuse: EPERM\nbind: EPERM\nmove: EPERM\nshared: EPERM\n";
    mnt_02_umount: "MNT-02" "mnt/MNT-02.py" => "/proc: EPERM\n/proc/sys: EPERM\nmasks: EPERM\n";
    mnt_03_the_new_mount_api: "MNT-03" "mnt/MNT-03.py" =>
        "fsopen: ENOSYS\nfsconfig: ENOSYS\nfsmount: ENOSYS\nfspick: ENOSYS\nopen_tree: ENOSYS\n\
         open_tree(CLONE): ENOSYS\nmove_mount: ENOSYS\nmount_setattr: ENOSYS\n\
         open_tree_attr: ENOSYS\n";
    mnt_05_clearing_read_only: "MNT-05" "mnt/MNT-05.py" =>
        "mount_setattr: ENOSYS\ncreate: EROFS\nhost: untouched\n",
        after: Some(nothing_made);
    mnt_06_another_root: "MNT-06" "mnt/MNT-06.py" => "pivot_root: EPERM\nchroot: EPERM\n";
    mnt_07_walking_out_of_a_chroot: "MNT-07" "mnt/MNT-07.py" =>
        "chroot: EPERM\nchroot at the top: EPERM\ntop: the sandbox's\netc/shadow: ENOENT\n";
    mnt_08_through_descriptors: "MNT-08" "mnt/MNT-08.py" =>
        "through 0: ENOTDIR\nthrough 1: ENOTDIR\nthrough 2: ENOTDIR\nup: the sandbox's root\n\
         up/etc/shadow: ENOENT\n";
    mnt_10_racing_a_mount: "MNT-10" "mnt/MNT-10.py" =>
        "mounts beneath writable trees: 0\nmounts: unchanged\n";
    mnt_11_devices_are_what_they_are_called: "MNT-11" "mnt/MNT-11.py" =>
        "null: device 1:3\nzero: device 1:5\nfull: device 1:7\nrandom: device 1:8\n\
         urandom: device 1:9\ntty: device 5:0\n";
    mnt_12_a_false_proc: "MNT-12" "mnt/MNT-12.c" =>
        "/proc: procfs\n/proc/self: procfs\n/proc/sys: procfs\n/proc/sys/user: procfs\n";
    mnt_14_dev: "MNT-14" "mnt/MNT-14.py" =>
        "/dev: fd full null ptmx pts random shm stderr stdin stdout tty urandom zero\n\
         /dev/pts: ptmx\n";
    mnt_16_forged_file_handles: "MNT-16" "mnt/MNT-16.py" =>
        "name_to_handle_at: EPERM\nopen_by_handle_at: EPERM\n";
    mnt_17_links_in_the_project: "MNT-17" "mnt/MNT-17.py" =>
        "evil-absolute: ENOENT\nevil-host: ENOENT\nevil-init: EACCES\nevil-relative: ENOENT\n",
        before: Some(plant_links);
    mnt_21_changing_the_project: "MNT-21" "mnt/MNT-21.py" =>
        "read: 8 bytes\ncreate: EROFS\nopen for writing: EROFS\nopen O_TRUNC: EROFS\n\
         O_TMPFILE: EROFS\nunlink: EROFS\nrmdir: EROFS\nmkdir: EROFS\nlink: EROFS\n\
         link out: EXDEV\nsymlink: EROFS\nrename: EROFS\nmknod: EROFS\nchmod: EROFS\nchown: EROFS\n\
         utime: EROFS\nsetxattr: EROFS\ntruncate: EROFS\nmap shared, writable: EACCES\n\
         reopen: EROFS\nfchmod: EROFS\nhost: untouched\n",
        before: Some(fill_project), after: Some(project_untouched);
    mnt_23_the_nix_store: "MNT-23" "mnt/MNT-23.py" => "not of the closure: 0\n";
    mnt_24_the_nix_daemon: "MNT-24" "mnt/MNT-24.py" => "daemon: ENOENT\ndatabase: ENOENT\n";
    mnt_25_secrets_of_the_host: "MNT-25" "mnt/MNT-25.py" =>
        "etc: alternatives gitconfig group hosts ld.so.cache nsswitch.conf passwd resolv.conf\n";
    mnt_26_a_file_everywhere: "MNT-26" "mnt/MNT-26.py" => "\
        /: EROFS\n/etc: EROFS\n/usr: EROFS\n/usr/bin: EROFS\n/usr/lib: EROFS\n/bin: EROFS\n\
        /nix/store: {ENOENT|EROFS}\n/project: EROFS\n/proc: ENOENT\n/proc/sys: ENOENT\n\
        /proc/self: ENOENT\n/dev: EROFS\n/dev/pts: EACCES\n/workspace: ok\n/tmp: ok\n\
        /dev/shm: ok\n",
        varies: "a host without Nix has no store";
    mnt_28_programs_of_one_s_own: "MNT-28" "mnt/MNT-28.c" =>
        "exec /workspace/program: ok\nmap /workspace/program: ok\nexec /tmp/program: ok\n\
         map /tmp/program: ok\nexec /dev/shm/program: EACCES\nmap /dev/shm/program: EPERM\n";
    mnt_29_the_mount_table: "MNT-29" "mnt/MNT-29.py" =>
        "listmount: ENOSYS\nstatmount: ENOSYS\nmounts that tell where they come from: /project\n",
        note: "the kernel names a bind's source in /proc/self/mountinfo; the project's own path is told";
    mnt_31_propagation: "MNT-31" "mnt/MNT-31.py" =>
        "mounts: some\nshared, slave or unbindable: 0\n";
}

fn nothing_made(project: &Path) -> String {
    let made = project.join("made").exists();
    format!("host: {}\n", if made { "a file was made" } else { "untouched" })
}

fn plant_links(project: &Path) {
    let secret = project.parent().expect("parent");
    let links = [
        ("evil-absolute", Path::new("/etc/shadow")),
        ("evil-relative", Path::new("../../../../../../root/.ssh")),
        ("evil-init", Path::new("/proc/1/root")),
        ("evil-host", secret),
    ];
    for (name, target) in links {
        symlink(
            target.join(if name == "evil-host" { "sandbox-test-none" } else { "" }),
            project.join(name),
        )
        .expect("link");
    }
}

/// Long ago, so that every change of a time shows.
fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

fn fill_project(project: &Path) {
    fs::create_dir(project.join("sub")).expect("sub");
    fs::write(project.join("file"), "content\n").expect("file");
    fs::set_permissions(project.join("file"), fs::Permissions::from_mode(0o666)).expect("mode");
    fs::set_permissions(project.join("sub"), fs::Permissions::from_mode(0o777)).expect("mode");
    let times = FileTimes::new().set_accessed(long_ago()).set_modified(long_ago());
    File::options()
        .write(true)
        .open(project.join("file"))
        .and_then(|file| file.set_times(times))
        .expect("times");
}

fn project_untouched(project: &Path) -> String {
    let same = || -> std::io::Result<bool> {
        let seen = fs::metadata(project.join("file"))?;
        Ok(fs::read(project.join("file"))? == b"content\n"
            && (seen.accessed()?, seen.modified()?) == (long_ago(), long_ago())
            && seen.mode() & 0o7777 == 0o666
            && seen.nlink() == 1
            && project.join("sub").is_dir()
            && fs::read_dir(project)?.count() == 4)
    };
    format!("host: {}\n", if same().is_ok_and(|same| same) { "untouched" } else { "changed" })
}

/// MNT-18: the project directory is exchanged for a link to `/` while sandboxes start. `/` may not
/// be a project: what is seen is what was checked, or nothing.
#[test]
fn mnt_18_the_project_is_replaced_after_it_was_checked() {
    needs!(Userns);
    let parent = support::directory();
    let (project, other) = (parent.path().join("project"), parent.path().join("other"));
    fs::create_dir(&project).expect("project");
    fs::write(project.join("own"), "").expect("own");
    symlink("/", &other).expect("link");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let flags = nix::fcntl::RenameFlags::RENAME_EXCHANGE;
                let here = nix::fcntl::AT_FDCWD;
                nix::fcntl::renameat2(here, &project, here, &other, flags).expect("exchange");
            }
        });
        let mut outcomes = std::collections::BTreeMap::new();
        for _ in 0..30 {
            let mut command = command();
            command.args(["exec", "--", "ls", "/project"]).env("PROJECT_DIR", &project);
            let output = command.output().expect("exec");
            let seen = String::from_utf8_lossy(&output.stdout).into_owned();
            *outcomes.entry((output.status.code(), seen)).or_insert(0) += 1;
        }
        done.store(true, Ordering::Relaxed);
        let right = [(Some(0), "own\n".to_owned()), (Some(125), String::new())];
        assert!(outcomes.keys().all(|outcome| right.contains(outcome)), "{outcomes:?}");
    });
}
