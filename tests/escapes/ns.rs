//! Group 1: namespaces, and capabilities regained through them.

use std::fs;
use std::path::Path;

entries! {
    ns_01_unshare_newuser: "NS-01" "ns/NS-01.py" => "unshare(CLONE_NEWUSER): EPERM\n";
    ns_02_clone_with_each_namespace: "NS-02" "ns/NS-02.py" => "\
        clone(CLONE_NEWUSER): EPERM\nclone(CLONE_NEWNS): EPERM\nclone(CLONE_NEWCGROUP): EPERM\n\
        clone(CLONE_NEWUTS): EPERM\nclone(CLONE_NEWIPC): EPERM\nclone(CLONE_NEWPID): EPERM\n\
        clone(CLONE_NEWNET): EPERM\n";
    ns_03_clone3: "NS-03" "ns/NS-03.py" => "clone3(0x10000000): ENOSYS\nclone3(0x0): ENOSYS\n";
    ns_04_threads_and_spawn_work: "NS-04" "ns/NS-04.c" =>
        "pthread_create: ok\nposix_spawn: ok\nstatus: 0\n";
    ns_04_python_threads_and_processes_work: "NS-04" "ns/NS-04-threads.py" =>
        "threads: 10\nprocesses: 3\nsubprocess: 0\n";
    ns_04_node_workers_work: "NS-04" "ns/NS-04-workers.js" => "worker: 42\n";
    ns_05_packet_socket_in_a_nested_namespace: "NS-05" "ns/NS-05.py" =>
        "unshare(NEWUSER|NEWNET): EPERM\nsocket(AF_PACKET, SOCK_RAW): EAFNOSUPPORT\n";
    ns_06_fsopen_in_a_nested_namespace: "NS-06" "ns/NS-06.py" =>
        "unshare(NEWUSER|NEWNS): EPERM\nfsopen(ext4): ENOSYS\nfsconfig: ENOSYS\n";
    ns_07_mounts_in_a_nested_namespace: "NS-07" "ns/NS-07.py" =>
        "unshare(NEWUSER|NEWNS): EPERM\nmount(tmpfs): EPERM\nmount over /project: EPERM\n\
         mount(overlay): EPERM\n";
    ns_08_nf_tables_in_a_nested_namespace: "NS-08" "ns/NS-08.py" =>
        "unshare(NEWUSER|NEWNET): EPERM\nsocket(NETLINK_NETFILTER): EAFNOSUPPORT\n";
    ns_09_joining_the_namespaces_of_pid_1: "NS-09" "ns/NS-09.py" => "\
        open /proc/1/ns/mnt: EACCES\nopen /proc/1/ns/pid: EACCES\nopen /proc/1/ns/net: EACCES\n\
        open /proc/1/ns/user: EACCES\nsetns(/proc/self/ns/mnt): EPERM\n\
        setns(pidfd of 1, NEWNS|NEWPID): EPERM\n";
    ns_10_inherited_descriptors: "NS-10" "ns/NS-10.py" => "0: pipe\n1: pipe\n2: pipe\n";
    ns_12_a_long_uid_map: "NS-12" "ns/NS-12.py" =>
        "unshare(CLONE_NEWUSER): EPERM\nwrite uid_map: EPERM\n";
    ns_13_supplementary_groups: "NS-13" "ns/NS-13.py" =>
        "/proc/self/setgroups: deny\nsetgroups(none): EPERM\nsetgroups(root): EPERM\n\
         groups: {none|65534|1000|1000 65534}\n",
        varies: "root drops its groups; an ordinary user's stay, and show as 65534, or as 1000 where \
                 one is the primary group";
    ns_14_clone_fs: "NS-14" "ns/NS-14.c" =>
        "unshare(CLONE_FS): EPERM\nclone(CLONE_FS|CLONE_NEWUSER): EPERM\n";
    ns_15_making_the_project_writable_again: "NS-15" "ns/NS-15.py" =>
        "remount, as we are: EPERM\ncreate, as we are: EROFS\nunshare(NEWUSER|NEWNS): EPERM\n\
         remount, nested: EPERM\ncreate, nested: EROFS\nhost: untouched\n",
        after: Some(nothing_made);
    ns_17_root_of_a_nested_namespace: "NS-17" "ns/NS-17.py" =>
        "unshare(CLONE_NEWUSER): EPERM\nwrite uid_map: EPERM\nuid: 1000\n";
    ns_18_rights_of_every_thread: "NS-18" "ns/NS-18.py" =>
        "tasks: 4\nCapInh: 0\nCapPrm: 0\nCapEff: 0\nCapBnd: 0\nCapAmb: 0\nNoNewPrivs: 1\nSeccomp: 2\n";
    ns_19_asking_for_capabilities: "NS-19" "ns/NS-19.py" =>
        "PR_CAP_AMBIENT_RAISE: EPERM\ncapset(all): EPERM\nPR_SET_SECUREBITS: EPERM\n\
         PR_CAPBSET_READ: 0\n";
    ns_20_set_user_id_programs: "NS-20" "ns/NS-20.c" =>
        "/: nosuid\n/usr: nosuid\n/project: nosuid\n/workspace: nosuid\n/tmp: nosuid\n\
         /dev/shm: nosuid\n/dev/null: nosuid\n/proc: nosuid\nchmod 6755: ok\n\
         uid 1000 euid 1000 gid 1000 egid 1000\n";
    ns_21_namespaces_of_the_host: "NS-21" "ns/NS-21.py" =>
        "cgroup: its own\nipc: its own\nmnt: its own\nnet: its own\npid: its own\ntime: the host's\n\
         user: its own\nuts: its own\n",
        before: Some(write_down_namespaces);
    ns_23_calls_of_newer_kernels: "NS-23" "ns/NS-23.py" =>
        "470: ENOSYS\n471: ENOSYS\n500: ENOSYS\n600: ENOSYS\n1023: ENOSYS\n1073741823: ENOSYS\n";
}

fn nothing_made(project: &Path) -> String {
    let made = project.join("made").exists();
    format!("host: {}\n", if made { "a file was made" } else { "untouched" })
}

fn write_down_namespaces(project: &Path) {
    let names = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];
    let line = |name: &str| {
        let target = fs::read_link(format!("/proc/self/ns/{name}")).expect("namespace");
        format!("{name} {}\n", target.display())
    };
    fs::write(project.join("host-namespaces"), names.map(line).concat()).expect("write");
}
