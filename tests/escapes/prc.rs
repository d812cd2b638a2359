//! Group 3: /proc, /sys and the kernel's knobs.

use std::process::Command;

use super::support::program;
use crate::needs;

entries! {
    prc_01_sysrq: "PRC-01" "prc/PRC-01.py" => "/proc/sysrq-trigger: {EROFS|EACCES|ENOENT}\n",
        varies: "not every kernel has it";
    prc_02_knobs: "PRC-02" "prc/PRC-02.py" => "all of /proc/sys: {EACCES|EACCES EROFS}\n",
        varies: "which files are anybody's to write depends on the kernel";
    prc_04_the_kernel_s_insides: "PRC-04" "prc/PRC-04.py" => "\
        kallsyms: {empty|ENOENT}\nmodules: {empty|ENOENT}\niomem: {empty|ENOENT}\n\
        ioports: {empty|ENOENT}\nconfig.gz: {empty|ENOENT}\ninterrupts: {empty|ENOENT}\n\
        diskstats: {empty|ENOENT}\npartitions: {empty|ENOENT}\nkcore: {empty|ENOENT}\n\
        kmsg: {empty|ENOENT}\nslabinfo: {empty|ENOENT}\ntimer_list: {empty|ENOENT}\n\
        vmallocinfo: {empty|ENOENT}\nsoftirqs: {empty|ENOENT}\nswaps: {empty|ENOENT}\n\
        crypto: {empty|ENOENT}\n",
        varies: "masked where it is there; which are there depends on how the kernel was built";
    prc_05_keys_of_the_host: "PRC-05" "prc/PRC-05.py" => "keys: {empty|ENOENT}\nkey-users: {empty|ENOENT}\n",
        // The same user's keys are the ones that could be seen.
        before: Some(super::res::idle_elsewhere),
        varies: "a kernel may have no keyrings";
    prc_06_the_machine: "PRC-06" "prc/PRC-06.py" =>
        "cmdline: empty\npressure: {|none}\nversion: told\ncpuinfo: told\nstat: told\nuptime: told\n\
         loadavg: told\nmeminfo: told\n",
        varies: "a kernel may have no pressure files";
    prc_08_limits_of_one_s_own_namespaces: "PRC-08" "prc/PRC-08.py" =>
        "max_user_namespaces: 0\nwrite user: EACCES\nwrite net: EACCES\n";
    prc_09_processes: "PRC-09" "prc/PRC-09.py" => "1: init\nanother: this one\n";
    prc_11_without_proc: "PRC-11" "prc/PRC-11.py" => "/proc: empty\nprocessors: True\n",
        settings: "proc = \"none\"\n";
    prc_12_sysfs: "PRC-12" "prc/PRC-12.py" => "/sys: ENOENT\nmount: EPERM\n";
    prc_14_crashes: "PRC-14" "prc/PRC-14.py" =>
        "limit: (1, 1)\nraised: EPERM\ncrash: SIGSEGV\ndumped: False\n";
    prc_15_files_of_the_process: "PRC-15" "prc/PRC-15.py" =>
        "coredump_filter: ok\nclear_refs: ok\ntimerslack_ns: ok\noom_score_adj: ok\ncomm: ok\n\
         oom_score_adj, lower: EACCES\noom_score_adj of 1: EACCES\n";
}

/// PRC-10: where the host's /proc is covered in part, the kernel refuses a fresh one. Then the
/// outer one is not shown instead: no sandbox starts, and the cause is named.
#[test]
fn prc_10_no_fresh_proc() {
    needs!(Userns, Root);
    // In a mount namespace of its own: nothing is mounted on the host.
    let script =
        format!("mount -t tmpfs none /proc/sys && exec {} exec -- ls /proc", program().display());
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &script]);
    let output = command.output().expect("unshare");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b""[..]), "{said}");
    assert!(said.contains("/proc"), "{said}");
}
