//! Group 5: the mechanics of the filter.

use std::fs;
use std::process::Command;

use super::harness::{Entry, compile};
use super::support::{self, program};
use crate::needs;

entries! {
    sec_01_32_bit_calls: "SEC-01" "sec/SEC-01.c" => "\
        getpid: {SYS|SEGV}\nexecve: {SYS|SEGV}\nsocketcall: {SYS|SEGV}\nclone: {SYS|SEGV}\n\
        unshare: {SYS|SEGV}\n",
        varies: "a kernel without 32-bit calls does not get as far as the filter";
    sec_02_x32_calls: "SEC-02" "sec/SEC-02.c" => "\
        0x40000027: SYS\n0x40000110: SYS\n0x40000029: SYS\n0x40000200: SYS\n0x40000208: SYS\n\
        0x40000223: SYS\n0x7fffffff: SYS\n0xffffffffffffffff: SYS\n";
    sec_04_flipping_arguments: "SEC-04" "sec/SEC-04.c" => "answers other than ENOSYS: 0\n";
    sec_05_filters_of_one_s_own: "SEC-05" "sec/SEC-05.c" => "\
        allow: filter: ok\nallow: unshare: EPERM\ntrace: filter: ok\ntrace: unshare: EPERM\n\
        ask: filter: ok\nask: unshare: EPERM\n";
    sec_06_strict_mode: "SEC-06" "sec/SEC-06.py" => "PR_SET_SECCOMP: EINVAL\nthen exec: exit 0\n";
    sec_07_before_the_first_instruction: "SEC-07" "sec/SEC-07.c" =>
        "NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";
    sec_08_threads_before_the_filter: "SEC-08" "sec/SEC-08.py" =>
        "threads of 1: 1\nSeccomp of 1: 2\nthreads of self: 1\nSeccomp of self: 2\n";
    sec_11_calls_that_libraries_probe: "SEC-11" "sec/SEC-11.py" => "\
        openat2: allowed\nfaccessat2: allowed\nstatx: allowed\nrseq: allowed\nclone3: ENOSYS\n\
        close_range: allowed\nepoll_pwait2: allowed\nfutex_waitv: {allowed|ENOSYS}\n\
        getrandom: allowed\nmembarrier: allowed\ncopy_file_range: allowed\n\
        fchmodat2: {allowed|ENOSYS}\npidfd_open: allowed\nmseal: {allowed|ENOSYS}\n\
        preadv2: allowed\nio_uring_setup: ENOSYS\nmemfd_create: allowed\n\
        set_mempolicy_home_node: EPERM\nlandlock_create_ruleset: {allowed|ENOSYS}\n",
        varies: "an older kernel lacks the newer calls";
    sec_12_one_filter_two_errnos: "SEC-12" "sec/SEC-12.py" =>
        "filters: 1\nunshare: EPERM\nclone3: ENOSYS\n";
}

/// SEC-09, as an entry whose expectation is the golden table.
const EVERY_NUMBER: Entry = Entry {
    name: "sec_09_every_number",
    id: "SEC-09",
    file: "sec/SEC-09.c",
    payload: include_str!("sec/SEC-09.c"),
    // Its policy is the base, of which the table tells.
    environment: "python",
    ..Entry::USUAL
};

/// SEC-09: what every number meets inside is what the golden table of the policy says.
#[test]
fn sec_09_every_number_is_answered_as_the_golden_table_says() {
    needs!(Userns, Compiler, Python);
    let golden = include_str!("../../seccomp/golden.x86_64.txt");
    let classes: Vec<Vec<&str>> = golden
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let observed = EVERY_NUMBER.observe(&[]).text;
    let mut wrong = Vec::new();
    let mut probed = 0;
    for line in observed.lines() {
        let (number, answer) = line.split_once(' ').unwrap_or((line, ""));
        let Some(class) = classes.iter().find(|class| class[0] == number) else {
            wrong.push(format!("{line}: not in the golden table"));
            continue;
        };
        probed += 1;
        // What is allowed is answered by the kernel: by anything but the filter's own end.
        let may = &class[2..];
        let right = may.contains(&answer) || (may.contains(&"allow") && answer != "SYS");
        if !right {
            wrong.push(format!("{line}: the golden table says {may:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(probed, 599, "{observed}");
}

/// SEC-13: where the filter is refused, nothing runs, and the cause is named.
#[test]
fn sec_13_a_filter_that_is_refused() {
    needs!(Userns, Compiler);
    let place = support::directory();
    fs::write(place.path().join("SEC-13.c"), include_str!("sec/SEC-13.c")).expect("source");
    let refuser = compile(place.path(), "SEC-13.c");
    let mut command = Command::new(refuser);
    command.arg(program()).args(["exec", "--", "echo", "ran"]);
    let output = command.output().expect("start");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b""[..]), "{said}");
    assert!(said.contains("filter"), "{said}");
}
