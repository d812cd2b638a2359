//! Limits that hold with and without a cgroup.

use crate::needs;
use crate::support::{code, exec_with, sh};

#[test]
fn a_full_workspace_says_enospc() {
    needs!(Userns);
    // One after the other: both are memory, and together they are above its limit.
    let ran = sh(
        "dd if=/dev/zero of=/workspace/x bs=1M count=400 2>&1 | tail -1; stat -c %s /workspace/x; \
                  rm /workspace/x; dd if=/dev/zero of=/tmp/x bs=1M count=400 2>&1 | grep -c 'No space left'",
    );
    assert!(ran.stdout.ends_with("268435456\n1\n"), "{}", ran.stdout);
}

#[test]
fn too_many_files_say_enospc() {
    needs!(Userns, Python);
    let ran = code(
        "python",
        &[],
        b"import errno\nn = 0\ntry:\n\x20 while True: open(f'/tmp/{n}', 'x').close(); n += 1\nexcept OSError as e: print(errno.errorcode[e.errno], 60000 < n < 65536)\n",
    );
    assert_eq!(ran.stdout, "ENOSPC True\n", "{}", ran.stderr);
}

/// Runs Python that has `make` made until it fails; how many there are, and why no more.
fn most(make: &str) -> String {
    let code = format!(
        "import ctypes, errno\nlibc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_int()\n\
        for n in range(100_000):\n\
        \x20   if libc.{make} < 0: break\n\
        print(n, errno.errorcode[ctypes.get_errno()])\n"
    );
    exec_with("python", &[], &[], &["python3", "-c", &code]).stdout
}

// Both count for the user on the host too, of whom one sandbox has a small part.

#[test]
fn timers_are_few() {
    needs!(Userns, Python);
    assert_eq!(most("timer_create(1, None, ctypes.byref(timer))"), "1024 EAGAIN\n");
}

#[test]
fn inotify_instances_are_few() {
    needs!(Userns, Python);
    assert_eq!(most("inotify_init1(0)"), "8 EMFILE\n");
}

#[test]
fn one_10_gib_memfd_ends_with_efbig() {
    needs!(Userns, Python);
    let ran = code(
        "python",
        &[],
        b"import os, errno\nfd = os.memfd_create('x')\ntry: os.ftruncate(fd, 10 << 30); print('made it')\nexcept OSError as e: print(errno.errorcode[e.errno])\n",
    );
    assert_eq!(ran.stdout, "EFBIG\n", "{}", ran.stderr);
}

#[test]
fn a_fork_bomb_stops_at_the_limit() {
    needs!(Userns, Python);
    let ran = code(
        "python",
        &[],
        b"import os, errno, signal\nn = 0\ntry:\n\x20 while n < 5000:\n\x20   if os.fork() == 0: signal.pause()\n\x20   n += 1\nexcept OSError as e: print(errno.errorcode[e.errno], n < 520)\n",
    );
    assert_eq!(ran.stdout, "EAGAIN True\n", "{}", ran.stderr);
}

#[test]
fn no_core_is_dumped() {
    needs!(Userns);
    let ran = sh("cd /workspace; sh -c 'kill -SEGV $$'; ls -A; ulimit -c");
    assert_eq!(ran.stdout, "0\n", "{}", ran.stderr);
}

#[test]
fn bad_limits_are_refused_with_a_sentence() {
    for (option, value, says) in [
        ("--timeout", "0", "0"),
        ("--timeout", "-1", "-1"),
        ("--timeout", "NaN", "NaN"),
        ("--timeout", "1e99", "1e99"),
        ("--memory", "0", "memory"),
        ("--memory", "lots", "lots"),
    ] {
        let mut command = crate::support::command();
        command.args(["exec", &format!("{option}={value}"), "--", "true"]);
        let output = command.output().expect("exec");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{option} {value}: {said}");
        assert!(said.contains(says), "{option} {value}: {said}");
    }
}

#[test]
fn a_required_wall_that_cannot_be_had_refuses_the_run() {
    needs!(Userns);
    let directory = crate::support::directory();
    let settings = directory.path().join("settings.toml");
    std::fs::write(&settings, "require = [\"cgroup\"]\n").expect("settings");
    let mut command = crate::support::command();
    command.env("NIX_SANDBOX_CONFIG", &settings).args(["exec", "--", "true"]);
    let output = command.output().expect("exec");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        // This host has a cgroup to give: then it must have been used.
        let ran = exec_with("shell", &[("NIX_SANDBOX_CONFIG", &settings)], &[], &["true"]);
        let walls = ran.json["enforced"].as_array().expect("walls").clone();
        assert!(walls.iter().any(|wall| wall["wall"] == "cgroup" && wall["strength"] == "active"));
    } else {
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains("cgroup is required"), "{said}");
    }
}

#[test]
fn memory_of_a_process_that_shows_its_own_to_nobody_counts() {
    needs!(Userns, Python);
    let program = "import ctypes, mmap, time\n\
        PR_SET_DUMPABLE = 4\n\
        assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0\n\
        held = mmap.mmap(-1, 256 << 20, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)\n\
        for at in range(0, len(held), 4096): held[at] = 1\n\
        time.sleep(3)\n";
    assert_eq!(code("python", &["--memory", "64M"], program.as_bytes()).ending(), "out_of_memory");
}

#[test]
fn system_v_memory_that_nobody_maps_counts() {
    needs!(Userns, Python);
    let program = "import ctypes, time\n\
        libc = ctypes.CDLL(None)\n\
        libc.shmat.restype = ctypes.c_void_p\n\
        libc.shmdt.argtypes = [ctypes.c_void_p]\n\
        for _ in range(64):\n\
        \x20 place = libc.shmat(libc.shmget(0, 4 << 20, 0o1600), None, 0)\n\
        \x20 ctypes.memset(place, 1, 4 << 20)\n\
        \x20 libc.shmdt(place)\n\
        time.sleep(3)\n";
    assert_eq!(code("python", &["--memory", "64M"], program.as_bytes()).ending(), "out_of_memory");
}
