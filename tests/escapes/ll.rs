//! Group 13: Landlock by version. The kernel that this was written on has version 7.
//!
//! LL-12 is in `fault.rs`: a kernel without Landlock, made by a filter.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::net::{listen_abstract, nobody_came};

entries! {
    ll_01_truncation: "LL-01" "ll/LL-01.py" =>
        "\
        truncate /project/victim: EROFS\n\
        open /project/victim: EROFS\n\
        truncate /project/link: EROFS\n\
        open /project/link: EROFS\n\
        truncate an own file: ok\n\
        host: untouched\n\
        ", before: Some(plant), after: Some(untouched);
    ll_02_renames_between_directories: "LL-02" "ll/LL-02.py" =>
        "\
        rename between own directories: {ok|EXDEV}\n\
        rename to /tmp: EXDEV\n\
        rename into the project: EXDEV\n\
        rename out of the project: EXDEV\n\
        link out of the project: EXDEV\n\
        link a program: EXDEV\n\
        rename within the project: EROFS\n\
        host: untouched\n\
        ",
        varies: "version 1 refuses every rename between directories",
        before: Some(plant), after: Some(untouched);
    ll_03_the_network: "LL-03" "ll/LL-03.py" =>
        "\
        TCP bind: ok\n\
        TCP out: ENETUNREACH\n\
        UDP bind: ok\n\
        UDP out: ENETUNREACH\n\
        raw IP: EPERM\n\
        packet: EAFNOSUPPORT\n\
        interfaces: lo\n\
        ";
    ll_04_orders_to_devices: "LL-04" "ll/LL-04.py" =>
        "\
        TIOCSTI on null: EPERM\n\
        TIOCSTI + 2^32 on null: EPERM\n\
        TIOCLINUX on null: EPERM\n\
        TIOCCONS on null: EPERM\n\
        FIONREAD on null: ENOTTY\n\
        TIOCSTI on an own terminal: EPERM\n\
        TIOCSTI + 2^32 on an own terminal: EPERM\n\
        TIOCLINUX on an own terminal: EPERM\n\
        TIOCCONS on an own terminal: EPERM\n\
        FIONREAD on an own terminal: ok\n\
        ";
    ll_05_signals_and_abstract_sockets: "LL-05" "ll/LL-05.py" =>
        "\
        the host's abstract socket: ECONNREFUSED\n\
        a process of the host: ESRCH\n\
        pid 1: {EPERM|ok}\n\
        all of them: ESRCH\n\
        itself: ok\n\
        host: nobody came\n\
        ",
        varies: "before version 6 pid 1 can be signalled, and ignores it",
        before: Some(outside), after: Some(nobody_came);
    ll_06_flags: "LL-06" "ll/LL-06.py" =>
        "\
        an own rule set: ok\n\
        an unknown flag: EINVAL\n\
        LOG_SAME_EXEC_OFF: as its version says\n\
        ";
    ll_07_threads: "LL-07" "ll/LL-07.py" =>
        "\
        threads at the start: 1\n\
        pid 1 from each of 8 threads: {EPERM|ok}\n\
        as from the first: True\n\
        ",
        varies: "before version 6 pid 1 can be signalled, and ignores it";
    ll_10_sixteen_domains: "LL-10" "ll/LL-10.py" =>
        "\
        own domains: 14, then E2BIG\n\
        pid 1 and the project: as before\n\
        ";
    ll_11_mounts: "LL-11" "ll/LL-11.py" =>
        "\
        mount: EPERM\n\
        bind: EPERM\n\
        make private: EPERM\n\
        remount: EPERM\n\
        umount2: EPERM\n\
        pivot_root: EPERM\n\
        open_tree: ENOSYS\n\
        move_mount: ENOSYS\n\
        ";
    ll_14_links: "LL-14" "ll/LL-14.py" =>
        "\
        /etc/resolv.conf: readable\n\
        /etc/hosts: readable\n\
        /etc/nsswitch.conf: readable\n\
        /etc/passwd: readable\n\
        programs that cannot be read: none\n\
        ";
}

/// A file that its mode lets anybody change.
fn plant(project: &Path) {
    let file = project.join("victim");
    fs::write(&file, "victim").expect("file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("mode");
    symlink("victim", project.join("link")).expect("link");
    let directory = project.join("directory");
    fs::create_dir(&directory).expect("directory");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("mode");
}

fn untouched(project: &Path) -> String {
    let whole = fs::read_to_string(project.join("victim")).is_ok_and(|text| text == "victim");
    format!("host: {}\n", if whole { "untouched" } else { "changed" })
}

fn outside(project: &Path) {
    listen_abstract(project);
    fs::write(project.join("pid"), std::process::id().to_string()).expect("pid");
}
