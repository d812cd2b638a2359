//! The project: shown read-only at its place, and nothing beside it.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::needs;
use crate::support::{command, directory, exec_with, in_shell, plain, program};

fn in_project(project: &Path, script: &str) -> crate::support::Ran {
    exec_with("shell", &[("PROJECT_DIR", project)], &[], &["sh", "-c", script])
}

#[test]
fn the_project_can_be_read_and_not_be_changed() {
    needs!(Userns);
    let project = directory();
    fs::write(project.path().join("file"), "content").expect("file");
    fs::create_dir(project.path().join("sub")).expect("sub");
    let before = fs::metadata(project.path().join("file")).expect("metadata");
    let ran = in_project(
        project.path(),
        "cat /project/file; cd /project; for c in 'touch x' 'rm -rf file sub' 'mkdir d' 'ln file l' \
         'chmod 777 file' 'touch file' 'truncate -s 0 file' 'mv file g' 'cp /bin/sh sub'; do \
         $c 2>/dev/null && echo \"did: $c\"; done; (echo x >>file) 2>&1",
    );
    assert!(ran.stdout.starts_with("content"), "{ran:?}");
    assert!(!ran.stdout.contains("did:"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("Read-only file system") || ran.stdout.contains("Permission denied")
    );
    let after = fs::metadata(project.path().join("file")).expect("metadata");
    assert_eq!(
        (before.mtime(), before.mode(), before.len()),
        (after.mtime(), after.mode(), after.len())
    );
    assert_eq!(fs::read_dir(project.path()).expect("list").count(), 2);
}

/// A lease lets the host's next write wait for `fs.lease-break-time`; a notice tells who reads what.
#[test]
fn nobody_on_the_host_waits_for_a_lease_on_the_project() {
    needs!(Userns, Python);
    let project = directory();
    fs::write(project.path().join("file"), "content").expect("file");
    let code = "import errno, fcntl, os, signal\n\
        file, directory = (os.open(place, os.O_RDONLY) for place in ('/project/file', '/project'))\n\
        for of, request, value in [(file, 1024, fcntl.F_RDLCK), (directory, 1026, 1), (directory, 1040, fcntl.F_RDLCK)]:\n\
        \x20   try: print(fcntl.fcntl(of, request, value))\n\
        \x20   except OSError as error: print(errno.errorcode[error.errno])\n\
        print(fcntl.fcntl(file, 1025), fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 100))\n";
    let ran =
        exec_with("python", &[("PROJECT_DIR", project.path())], &[], &["python3", "-c", code]);
    assert_eq!(ran.stdout, "EPERM\nEPERM\nEPERM\n2 100\n", "{ran:?}");
}

#[test]
fn symbolic_links_in_the_project_lead_nowhere_outside() {
    needs!(Userns);
    let outside = directory();
    fs::write(outside.path().join("secret"), "secret").expect("secret");
    let project = directory();
    symlink(outside.path().join("secret"), project.path().join("absolute")).expect("link");
    symlink("../../../../../etc/shadow", project.path().join("relative")).expect("link");
    symlink("/proc/1/root", project.path().join("root")).expect("link");
    let ran = in_project(
        project.path(),
        "cat /project/absolute; cat /project/relative; ls /project/root/; true",
    );
    assert_eq!(ran.stdout, "");
    let said: Vec<&str> = ran.stderr.lines().collect();
    assert!(said[0].ends_with("No such file or directory"), "{said:?}");
    assert!(said[1].ends_with("No such file or directory"), "{said:?}");
    assert!(said[2].ends_with("Permission denied"), "{said:?}");
}

#[test]
fn odd_names_are_shown_like_any_other() {
    needs!(Userns);
    let parent = directory();
    for name in [
        &b"with space"[..],
        b"new\nline",
        b"co:lon",
        b"back\\slash",
        b"no\xfftext",
        b"-dash",
        b"q\"'$(id)",
    ] {
        let path = parent.path().join(std::ffi::OsString::from_vec(name.to_vec()));
        fs::create_dir(&path).expect("directory");
        fs::write(path.join("f"), "seen").expect("file");
        let ran = in_project(&path, "cat /project/f");
        assert_eq!(ran.stdout, "seen", "{path:?} {ran:?}");
    }
}

#[test]
fn project_mount_places_it_elsewhere() {
    needs!(Userns);
    let project = directory();
    fs::write(project.path().join("f"), "seen").expect("file");
    let ran = exec_with(
        "shell",
        &[("PROJECT_DIR", project.path()), ("PROJECT_MOUNT", Path::new("/projects/deep/er"))],
        &[],
        &["sh", "-c", "cat /projects/deep/er/f"],
    );
    assert_eq!(ran.stdout, "seen", "{ran:?}");
}

#[test]
fn a_bad_project_place_is_refused_at_start_by_name() {
    let project = directory();
    let long = format!("/{}", "x".repeat(4096));
    for place in [
        "/",
        "/proc",
        "/proc/self",
        "/dev",
        "/sys",
        "/etc",
        "/nix",
        "/nix/store",
        "/workspace",
        "/tmp",
        "..",
        "project",
        "/a/../proc",
        "",
        "//",
        "/project/../../etc",
        &long,
    ] {
        let mut command = command();
        command.env("PROJECT_DIR", project.path()).env("PROJECT_MOUNT", place);
        let output = command.args(["exec", "--", "true"]).output().expect("exec");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{place:?}: {said}");
        assert!(said.contains("PROJECT_MOUNT"), "{place:?}: {said}");
    }
}

#[test]
fn a_bad_project_directory_is_refused_at_start_by_name() {
    let here = directory();
    let file = here.path().join("file");
    fs::write(&file, "").expect("file");
    let fifo = here.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("fifo");
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
    for place in [
        Path::new("/"),
        Path::new("/proc"),
        Path::new("/sys"),
        Path::new("/dev"),
        Path::new("/run"),
        Path::new("/nix"),
        Path::new("/no/such/place"),
        Path::new("relative"),
        Path::new(""),
        &file,
        &fifo,
        Path::new(&home),
    ] {
        let mut command = command();
        command.env("PROJECT_DIR", place).env("HOME", &home);
        let output = command.args(["exec", "--", "true"]).output().expect("exec");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{place:?}: {said}");
        assert!(said.contains("PROJECT_DIR"), "{place:?}: {said}");
    }
}

#[test]
fn as_root_a_project_that_only_root_can_reach_and_read_is_shown() {
    needs!(Userns, Root, Idmap);
    let closed = tempfile::tempdir().expect("0700");
    let project = closed.path().join("project");
    fs::create_dir(&project).expect("project");
    fs::set_permissions(&project, fs::Permissions::from_mode(0o700)).expect("mode");
    fs::write(project.join("f"), "seen").expect("file");
    fs::set_permissions(project.join("f"), fs::Permissions::from_mode(0o600)).expect("mode");
    let ran =
        in_project(&project, "cat /project/f; stat -c %U /project/f; (echo x >/project/f) 2>&1");
    assert!(ran.stdout.starts_with("seensandbox\n"), "{ran:?}");
    assert_eq!(fs::read_to_string(project.join("f")).expect("f"), "seen");
}

#[test]
fn as_root_the_sandbox_of_another_s_project_runs_as_its_owner() {
    needs!(Userns, Root);
    let project = directory();
    let file = project.path().join("f");
    fs::write(&file, "seen").expect("file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("mode");
    std::os::unix::fs::chown(project.path(), Some(64007), Some(64008)).expect("chown");
    std::os::unix::fs::chown(&file, Some(64007), Some(64008)).expect("chown");
    let ran = in_project(
        project.path(),
        "cat /project/f; stat -c ' %U %G' /project/f; cat /proc/self/uid_map",
    );
    assert!(ran.stdout.starts_with("seen sandbox sandbox\n"), "{ran:?}");
    assert!(ran.stdout.contains("64007"), "{ran:?}");
}

#[test]
fn below_the_project_other_mounts_are_read_only_too() {
    needs!(Userns, Root);
    // In a mount namespace of our own, so that nothing is mounted on the host.
    let project = directory();
    fs::create_dir(project.path().join("sub")).expect("sub");
    let script = format!(
        "mount -t tmpfs none {0}/sub && echo inner >{0}/sub/f && chmod 777 {0}/sub && PROJECT_DIR={0} {1} {2}",
        project.path().display(),
        program().display(),
        in_shell("cat /project/sub/f; touch /project/sub/x")
    );
    let output = plain(Command::new("unshare"))
        .args(["-m", "--propagation", "private", "sh", "-c", &script])
        .output()
        .expect("unshare");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "inner\n", "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Read-only file system"), "{said}");
}
