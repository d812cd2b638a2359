//! The file tree: nothing of the host but what a program needs, nothing writable but its own.

use crate::needs;
use crate::support::sh;

#[test]
fn the_root_holds_only_what_the_sandbox_makes() {
    needs!(Userns);
    let ran = sh("ls /");
    let known = [
        "bin",
        "code",
        "dev",
        "etc",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "nix",
        "proc",
        "sbin",
        "tmp",
        "usr",
        "workspace",
    ];
    assert!(ran.stdout.lines().all(|name| known.contains(&name)), "{}", ran.stdout);
}

#[test]
fn nothing_of_the_host_s_homes_and_no_etc_shadow() {
    needs!(Userns);
    let ran = sh("for f in /etc/shadow /root /home /run /var /mnt /media /boot /sys /srv /opt \
                  /nix/var /etc/ssh /etc/nix /run/user /var/run/docker.sock; do \
                  [ -e $f ] && echo \"$f is there\"; done; ls /etc");
    let known = [
        "alternatives",
        "gitconfig",
        "group",
        "hosts",
        "ld.so.cache",
        "nsswitch.conf",
        "passwd",
        "resolv.conf",
    ];
    let java = |name: &str| name == "java" || name.starts_with("java-");
    assert!(ran.stdout.lines().all(|name| known.contains(&name) || java(name)), "{}", ran.stdout);
}

#[test]
fn writing_anywhere_but_workspace_tmp_dev_shm_fails_with_erofs_or_eacces() {
    needs!(Userns);
    let ran = sh(
        "for d in / /etc /usr /usr/bin /bin /lib /dev /dev/pts /proc /proc/sys/kernel; do \
                  [ ! -d $d ] || touch $d/x 2>&1; done; for d in /workspace /tmp /dev/shm; do touch $d/x && echo $d; done",
    );
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(&lines[lines.len() - 3..], ["/workspace", "/tmp", "/dev/shm"]);
    for line in &lines[..lines.len() - 3] {
        // procfs takes no new file from anyone, and says so in its own way.
        let procfs = line.contains("'/proc/") && line.ends_with("No such file or directory");
        let refused = ["Read-only file system", "Permission denied"];
        assert!(procfs || refused.iter().any(|end| line.ends_with(end)), "{line}");
    }
}

#[test]
fn what_of_proc_speaks_of_the_whole_host_is_masked() {
    needs!(Userns);
    let ran = sh(
        "for f in kallsyms modules iomem ioports config.gz interrupts diskstats partitions \
                  keys key-users cmdline timer_list sched_debug kcore kmsg vmallocinfo slabinfo; do \
                  [ -e /proc/$f ] && wc -c </proc/$f; done; ls /proc/irq /proc/bus /proc/fs /proc/tty 2>/dev/null | grep -v :",
    );
    assert!(ran.stdout.lines().all(|line| line == "0" || line.is_empty()), "{}", ran.stdout);
}

#[test]
fn kernel_knobs_cannot_be_written() {
    needs!(Userns);
    let ran = sh("for f in sysrq-trigger sys/kernel/core_pattern sys/kernel/modprobe \
                  sys/vm/overcommit_memory sys/fs/file-max sys/user/max_user_namespaces \
                  sys/net/ipv4/ip_forward sys/kernel/randomize_va_space; do \
                  (echo 1 >/proc/$f) 2>/dev/null && echo \"wrote $f\"; done; \
                  cat /proc/sys/user/max_user_namespaces");
    assert_eq!(ran.stdout, "0\n");
}

#[test]
fn dev_is_our_own_and_minimal() {
    needs!(Userns);
    let ran =
        sh("ls /dev; stat -c '%a %U' /dev; echo hi >/dev/null && head -c 4 /dev/zero | wc -c; \
                  (echo x >/dev/full) 2>&1; stat -f -c %T /dev/shm /dev/pts");
    assert_eq!(
        ran.stdout,
        "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero\n\
         755 sandbox\n4\n/dev/full\ntmpfs\ndevpts\n"
            .replace("/dev/full", dev_full(&ran.stdout))
    );
}

/// dash and bash tell a full device in their own words.
fn dev_full(stdout: &str) -> &str {
    stdout.lines().find(|line| line.contains("echo:")).unwrap_or_default()
}

#[test]
fn mounts_are_nosuid_and_nodev_and_only_our_own() {
    needs!(Userns);
    let ran = sh("cat /proc/self/mountinfo");
    for line in ran.stdout.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (at, options) = (fields[4], fields[5]);
        assert!(options.contains("nosuid"), "{line}");
        let device = at.starts_with("/dev/") && !at.starts_with("/dev/shm");
        assert!(device || options.contains("nodev"), "{line}");
        let writable = ["/tmp", "/workspace", "/dev/shm", "/dev/pts", "/proc"];
        let one_device = device && at != "/dev/pts";
        assert!(options.starts_with("ro") || one_device || writable.contains(&at), "{line}");
    }
}

#[test]
fn workspace_and_tmp_are_sized_and_their_files_counted() {
    needs!(Userns);
    let ran = sh("df -B1 --output=size /workspace /tmp /dev/shm / | tail -n +2; \
                  df --output=itotal /workspace /tmp | tail -n +2");
    let numbers: Vec<u64> = ran.stdout.split_whitespace().map(|n| n.parse().expect("n")).collect();
    assert_eq!(&numbers[..2], [256 << 20, 256 << 20]);
    assert!(numbers[2] <= 256 << 20 && numbers[3] <= 64 << 20, "{numbers:?}");
    assert_eq!(&numbers[4..], [65536, 65536]);
}

#[test]
fn sh_and_env_are_where_scripts_look_for_them() {
    needs!(Userns);
    let ran = sh(
        "cd; printf '#!/usr/bin/env sh\\necho from env\\n' >a; printf '#!/bin/sh\\necho from sh\\n' >b; \
                  chmod +x a b; ./a; ./b",
    );
    assert_eq!(ran.stdout, "from env\nfrom sh\n", "{}", ran.stderr);
}

#[test]
fn a_compiled_or_copied_program_in_the_workspace_can_be_executed() {
    needs!(Userns);
    let ran = sh("cp $(command -v bash) ./mine && ./mine -c 'echo works'; chmod 6755 mine; \
                  ./mine -c 'echo still'");
    assert_eq!(ran.stdout, "works\nstill\n", "{}", ran.stderr);
}

#[test]
fn of_a_home_an_interpreter_s_own_prefix_is_shown_and_nothing_beside_it() {
    needs!(Userns, Python);
    let ran = crate::support::code(
        "python",
        &[],
        b"import os, sys\n\
          place = sys.base_prefix\n\
          while place not in ('/', '/usr') and not place.startswith('/nix/store/'):\n\
          \x20   above = os.path.dirname(place)\n\
          \x20   if above != '/': print(above, os.listdir(above) == [os.path.basename(place)])\n\
          \x20   place = above\n",
    );
    assert!(ran.stdout.lines().all(|line| line.ends_with(" True")), "{}", ran.stdout);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}
