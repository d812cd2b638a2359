//! Group 6: dangerous system calls.

use std::fs;
use std::path::Path;

const MACHINE: &str = "without its walls it is a call that concerns the whole machine";

entries! {
    sys_01_io_uring: "SYS-01" "sys/SYS-01.py" =>
        "io_uring_setup: ENOSYS\nio_uring_enter: ENOSYS\nio_uring_register: ENOSYS\n";
    sys_02_bpf: "SYS-02" "sys/SYS-02.py" => "BPF_MAP_CREATE: EPERM\nBPF_PROG_LOAD: EPERM\n";
    sys_03_perf_event_open: "SYS-03" "sys/SYS-03.py" => "perf_event_open: EPERM\n";
    sys_04_userfaultfd: "SYS-04" "sys/SYS-04.py" =>
        "userfaultfd: EPERM\nuserfaultfd(USER_MODE_ONLY): EPERM\n";
    sys_05_keys_of_the_launcher: "SYS-05" "sys/SYS-05.py" =>
        "add_key: EPERM\nrequest_key: EPERM\nsearch session: EPERM\nread session: EPERM\n\
         search user session: EPERM\nread user session: EPERM\n",
        starter: STARTER_WITH_A_KEY;
    sys_06_key_quota: "SYS-06" "sys/SYS-06.py" => "add_key: EPERM\n",
        only_in_a_vm: "without its walls it uses up the keys of a user of the host";
    sys_08_inotify: "SYS-08" "sys/SYS-08.py" => "instances: 8, then EMFILE\nwatches: 8192, then ENOSPC\n",
        only_in_a_vm: "without its walls it uses up the inotify instances of a user of the host";
    sys_10_segments_and_ports: "SYS-10" "sys/SYS-10.py" =>
        "modify_ldt: EPERM\narch_prctl(ARCH_SET_CPUID): EPERM\niopl: EPERM\nioperm: EPERM\n";
    sys_12_dirty_pipe: "SYS-12" "sys/SYS-12.c" =>
        "splice: ok\nwrite on: ok\nvmsplice: EPERM\nfile: content\nhost: content\n",
        before: Some(a_file), after: Some(the_file);
    sys_13_dirty_cow: "SYS-13" "sys/SYS-13.c" => "file: content\nhost: content\n",
        before: Some(a_file), after: Some(the_file);
    sys_14_programs_in_memory: "SYS-14" "sys/SYS-14.py" =>
        "CapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nexec: exit 0\nmemfd_secret: ENOSYS\n";
    sys_16_kernels_and_modules: "SYS-16" "sys/SYS-16.py" =>
        "kexec_load: EPERM\nkexec_file_load: EPERM\ninit_module: EPERM\nfinit_module: EPERM\n\
         delete_module: EPERM\ncreate_module: EPERM\n",
        only_in_a_vm: MACHINE;
    sys_17_the_whole_machine: "SYS-17" "sys/SYS-17.py" =>
        "swapon: EPERM\nswapoff: EPERM\nreboot(CAD_OFF): EPERM\nacct: EPERM\n\
         quotactl(Q_SYNC): EPERM\nquotactl_fd: EPERM\nnfsservctl: EPERM\nvhangup: EPERM\n\
         uselib: EPERM\nsysfs: EPERM\nustat: EPERM\n_sysctl: EPERM\n",
        only_in_a_vm: MACHINE;
    sys_19_the_clock: "SYS-19" "sys/SYS-19.py" =>
        "settimeofday: EPERM\nclock_settime: EPERM\nadjtimex, reading: EPERM\n\
         adjtimex, setting: EPERM\nclock_adjtime: EPERM\n",
        only_in_a_vm: MACHINE;
    sys_20_the_hostname: "SYS-20" "sys/SYS-20.py" =>
        "sethostname: EPERM\nsetdomainname: EPERM\nhostname: sandbox\n";
    sys_21_more_processor: "SYS-21" "sys/SYS-21.py" =>
        "SCHED_FIFO: EPERM\nSCHED_RR: EPERM\nSCHED_DEADLINE: EPERM\nutilisation clamp: EPERM\n\
         setpriority(-20): EACCES\nioprio_set(realtime): EPERM\n";
    sys_23_locked_memory: "SYS-23" "sys/SYS-23.py" =>
        "mlockall: ENOMEM\nmlock2: ENOMEM\nmmap(MAP_LOCKED): EAGAIN\n";
    sys_24_ipc: "SYS-24" "sys/SYS-24.py" =>
        "shmget: ok\nsemget: ok\nmsgget: ok\nmq_open: {EACCES|ok}\nshm: 1\nsem: 1\nmsg: 1\n",
        varies: "POSIX queues lie on a file system of their own, outside of every Landlock rule";
    sys_26_the_page_cache: "SYS-26" "sys/SYS-26.py" => "mincore: ok\ncachestat: EPERM\n";
    sys_27_speculation: "SYS-27" "sys/SYS-27.py" => "store bypass: EPERM\nindirect branch: EPERM\n";
    sys_28_core_scheduling: "SYS-28" "sys/SYS-28.py" =>
        "PR_SCHED_CORE_CREATE: EPERM\nPR_SCHED_CORE_SHARE_TO 1: EPERM\n";
    sys_29_executable_memory: "SYS-29" "sys/SYS-29.py" => "mmap RWX: ok\nmprotect W->X: ok\n";
    sys_31_kernel_addresses: "SYS-31" "sys/SYS-31.py" =>
        "waitid into the kernel: EFAULT\nits parent: 1\nclone(CLONE_PARENT): ok\n";
    sys_32_urgent_data: "SYS-32" "sys/SYS-32.py" =>
        "send: EOPNOTSUPP\nsendmsg: EOPNOTSUPP\nrecv: EOPNOTSUPP\nrecvmsg: EOPNOTSUPP\n";
    sys_34_programs_that_make_namespaces: "SYS-34" "sys/SYS-34.sh" =>
        "unshare: unshare failed: Operation not permitted\nunshare: 1\n\
         unshare: unshare failed: Operation not permitted\nunshare -n: 1\n\
         nsenter: cannot open /proc/1/ns/mnt: Permission denied\nnsenter: 1\n";
    sys_35_uprobe_calls: "SYS-35" "sys/SYS-35.c" => "335: {ILL|ENXIO|ENOSYS}\n336: {ILL|ENXIO|ENOSYS}\n",
        varies: "uretprobe is of Linux 6.11, uprobe of 6.18";
}

fn a_file(project: &Path) {
    fs::write(project.join("file"), "content\n").expect("file");
}

fn the_file(project: &Path) -> String {
    format!("host: {}", fs::read_to_string(project.join("file")).expect("file"))
}

/// A key in the session keyring of whoever starts the sandbox. The starter takes a keyring of its own
/// before: nobody's keys are touched.
const STARTER_WITH_A_KEY: &str = "
JOIN_SESSION_KEYRING, SESSION = 1, -3
assert syscall('keyctl', JOIN_SESSION_KEYRING, 0) > 0
assert syscall('add_key', b'user', b'secret-of-the-host', b'hunter2', 7, SESSION) > 0
";
