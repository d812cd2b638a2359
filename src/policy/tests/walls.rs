//! One test for each wall, named after it.

use super::super::syscall;
use super::{ARCHES, EAFNOSUPPORT, ENOSYS, EOPNOTSUPP, EPERM, EPROTONOSUPPORT, Filter, base};
use super::{PROFILES, WEARERS};
use crate::policy::{Arch, Call, Profile, Verdict, Wearer, compile};

/// Set in the upper half of a register by a caller who hopes that only the filter looks there.
const GARBAGE: u64 = 0xdead_beef_0000_0000;

/// Every payload wearer in every profile on every architecture.
fn payload_filters() -> impl Iterator<Item = (Profile, Filter)> {
    let wearers = WEARERS.into_iter().filter(|w| *w != Wearer::Init);
    wearers.flat_map(|wearer| {
        PROFILES.into_iter().flat_map(move |profile| {
            ARCHES.map(|arch| (profile, Filter::of(wearer, profile, arch)))
        })
    })
}

#[test]
fn clone3_is_enosys_also_for_flags_0() {
    for (_, filter) in payload_filters() {
        assert_eq!(filter.ask("clone3", &[0, 0]), ENOSYS);
        assert_eq!(filter.ask("clone3", &[0x7fff_0000, 88]), ENOSYS);
    }
}

#[test]
fn x32_numbers_are_killed() {
    for wearer in WEARERS {
        let filter = Filter::of(wearer, Profile::Default, Arch::X86_64);
        for nr in [0, 1, 41, 272, 512, 547, 0x3fff_ffff] {
            assert_eq!(filter.ask_number(0x4000_0000 | nr, &[]), Verdict::KillProcess);
        }
        assert_ne!(filter.ask_number(0x3fff_ffff, &[]), Verdict::KillProcess);
    }
}

#[test]
fn a_foreign_abi_is_killed() {
    const AUDIT_ARCH_I386: u32 = 0x4000_0003;
    const AUDIT_ARCH_ARM: u32 = 0x4000_0028;
    for (wearer, arch) in WEARERS.into_iter().flat_map(|w| ARCHES.map(|a| (w, a))) {
        let program = compile(wearer, Profile::Default, arch).unwrap();
        let other = ARCHES.into_iter().find(|a| *a != arch).unwrap();
        for foreign in [AUDIT_ARCH_I386, AUDIT_ARCH_ARM, other.audit(), 0, u32::MAX] {
            for nr in [0, 11, 20, 102, 120, 310, 600] {
                let call = Call { arch: foreign, nr, args: [0; 6] };
                assert_eq!(program.evaluate(&call), Verdict::KillProcess);
            }
        }
    }
}

#[test]
fn a_number_newer_than_any_table_is_enosys() {
    for (_, filter) in payload_filters() {
        for nr in 470..=1000 {
            assert_eq!(filter.ask_number(nr, &[]), ENOSYS, "{nr}");
        }
    }
}

#[test]
fn new_mount_api_and_io_uring_are_enosys_never_eperm() {
    for (_, filter) in payload_filters() {
        for nr in (425..=433).chain([442, 457, 458, 467]) {
            assert_eq!(filter.ask_number(nr, &[]), ENOSYS, "{nr}");
        }
    }
}

#[test]
fn a_namespace_flag_in_clone_is_eperm() {
    let flags =
        [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
    for (_, filter) in payload_filters() {
        for flag in flags {
            assert_eq!(filter.ask("clone", &[flag | 17]), EPERM, "{flag:#x}");
            assert_eq!(filter.ask("clone", &[GARBAGE | flag]), EPERM);
        }
    }
}

#[test]
fn fork_and_pthread_create_pass() {
    const PTHREAD: u64 = 0x003d_0f00;
    for (_, filter) in payload_filters() {
        assert_eq!(filter.ask("clone", &[17]), Verdict::Allow);
        assert_eq!(filter.ask("clone", &[PTHREAD]), Verdict::Allow);
        assert_eq!(filter.ask("clone", &[GARBAGE | PTHREAD]), Verdict::Allow);
    }
}

#[test]
fn known_dangers_are_eperm() {
    let names = "unshare setns mount umount2 pivot_root chroot ptrace process_vm_readv \
        process_vm_writev pidfd_getfd process_madvise process_mrelease kcmp bpf perf_event_open \
        userfaultfd add_key request_key keyctl name_to_handle_at open_by_handle_at \
        fanotify_init fanotify_mark kexec_load init_module finit_module delete_module swapon \
        swapoff reboot acct quotactl quotactl_fd vhangup settimeofday clock_settime \
        clock_adjtime adjtimex sethostname setdomainname syslog vmsplice get_mempolicy \
        set_mempolicy mbind set_mempolicy_home_node migrate_pages move_pages lookup_dcookie \
        cachestat sched_setattr nfsservctl kexec_file_load";
    for filter in base() {
        for name in names.split_whitespace() {
            assert_eq!(filter.ask(name, &[]), EPERM, "{name}");
        }
    }
    let x86_64 = Filter::of(Wearer::Base, Profile::Default, Arch::X86_64);
    for name in "modify_ldt iopl ioperm uselib sysfs ustat _sysctl create_module \
        get_kernel_syms query_module"
        .split_whitespace()
    {
        assert_eq!(x86_64.ask(name, &[]), EPERM, "{name}");
    }
}

#[test]
fn what_libc_falls_back_from_is_allowed() {
    let names = "openat2 faccessat2 statx rseq close_range epoll_pwait2 futex_waitv getrandom \
        membarrier copy_file_range fchmodat2 pidfd_open pidfd_send_signal mseal memfd_create \
        execveat landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp \
        setuid setgroups capset shmget semget msgget mq_open splice tee mincore inotify_init1 \
        newfstatat prctl prlimit64 sched_getaffinity signalfd4 timerfd_create eventfd2";
    for filter in base() {
        for name in names.split_whitespace() {
            assert_eq!(filter.ask(name, &[]), Verdict::Allow, "{name}");
        }
    }
}

#[test]
fn tiocsti_is_compared_on_32_bits() {
    for (_, filter) in payload_filters() {
        for request in [0x5412, 0x541c, 0x5423, 0x541d] {
            assert_eq!(filter.ask("ioctl", &[0, request]), EPERM);
            assert_eq!(filter.ask("ioctl", &[0, GARBAGE | request]), EPERM);
        }
        // TCGETS and FIONREAD
        assert_eq!(filter.ask("ioctl", &[0, 0x5401]), Verdict::Allow);
        assert_eq!(filter.ask("ioctl", &[0, 0x541b]), Verdict::Allow);
    }
}

#[test]
fn foreign_socket_families_are_eafnosupport() {
    for filter in base() {
        for family in (0..=50).filter(|family| ![1, 2, 10, 16].contains(family)) {
            for kind in [1, 2, 3, 5] {
                assert_eq!(filter.ask("socket", &[family, kind]), EAFNOSUPPORT);
                let hidden = [GARBAGE | family, kind];
                assert_eq!(filter.ask("socket", &hidden), EAFNOSUPPORT);
                assert_eq!(filter.ask("socketpair", &[family, kind]), EAFNOSUPPORT);
            }
        }
    }
}

#[test]
fn of_netlink_only_the_routing_table_is_left() {
    for filter in base() {
        assert_eq!(filter.ask("socket", &[16, 3, 0]), Verdict::Allow);
        for protocol in 1..=22 {
            assert_eq!(filter.ask("socket", &[16, 3, protocol]), EAFNOSUPPORT);
        }
    }
}

#[test]
fn tcp_udp_icmp_and_unix_sockets_pass() {
    const FLAGS: u64 = 0x8_0800;
    for filter in base() {
        for [family, kind, protocol] in [
            [1, 1, 0],
            [1, 2, 0],
            [1, 5, 0],
            [2, 1, 0],
            [2, 1, 6],
            [2, 2, 17],
            [2, 2, 1],
            [10, 1, 6],
            [10, 2, 58],
        ] {
            for flags in [0, FLAGS] {
                let args = [family, kind | flags, protocol];
                assert_eq!(filter.ask("socket", &args), Verdict::Allow, "{args:?}");
            }
        }
    }
}

#[test]
fn raw_sockets_are_eperm() {
    for filter in base() {
        for family in [2, 10] {
            assert_eq!(filter.ask("socket", &[family, 0x8_0003, 255]), EPERM);
        }
    }
}

#[test]
fn no_protocol_module_is_loaded_by_a_socket() {
    const DCCP_TYPE: u64 = 6;
    for filter in base() {
        for protocol in [33, 132, 136, 256, 262] {
            let args = [2, 1, GARBAGE | protocol];
            assert_eq!(filter.ask("socket", &args), EPROTONOSUPPORT);
        }
        for kind in [4, 5, DCCP_TYPE, 7, 10, 15] {
            assert_eq!(filter.ask("socket", &[10, kind, 0]), EPROTONOSUPPORT);
        }
    }
}

#[test]
fn urgent_data_is_eopnotsupp() {
    for filter in base() {
        for (name, at) in [
            ("sendto", 3),
            ("sendmsg", 2),
            ("sendmmsg", 3),
            ("recvfrom", 3),
            ("recvmsg", 2),
            ("recvmmsg", 3),
        ] {
            let mut args = [0; 4];
            assert_eq!(filter.ask(name, &args), Verdict::Allow);
            // MSG_NOSIGNAL | MSG_DONTWAIT
            args[at] = 0x4040;
            assert_eq!(filter.ask(name, &args), Verdict::Allow);
            args[at] = 0x4041 | GARBAGE;
            assert_eq!(filter.ask(name, &args), EOPNOTSUPP);
        }
    }
}

#[test]
fn personality_knows_five_values() {
    for filter in base() {
        for value in [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff] {
            assert_eq!(filter.ask("personality", &[value]), Verdict::Allow);
        }
        for value in [1, 0x4_0000, 0x40_0000, 0x0200_0000, 0xffff_fffe] {
            assert_eq!(filter.ask("personality", &[value]), EPERM);
        }
    }
}

#[test]
fn prctl_keeps_what_programs_use() {
    for filter in base() {
        // PDEATHSIG, DUMPABLE, NAME, SECCOMP, NO_NEW_PRIVS, VMA names
        for option in [1, 4, 15, 22, 38, 0x5356_4d41] {
            assert_eq!(filter.ask("prctl", &[option]), Verdict::Allow);
        }
        for option in [35, 62, 67, GARBAGE | 35] {
            assert_eq!(filter.ask("prctl", &[option]), EPERM);
        }
    }
}

#[test]
fn speculation_may_be_restricted_not_freed() {
    const PR_SET_SPECULATION_CTRL: u64 = 53;
    for filter in base() {
        let ask = |state| filter.ask("prctl", &[PR_SET_SPECULATION_CTRL, 0, state]);
        assert_eq!(ask(2), EPERM);
        assert_eq!(ask(4), Verdict::Allow);
        assert_eq!(ask(8), Verdict::Allow);
    }
}

#[test]
fn nobody_sets_the_limits_of_pid_1() {
    for filter in base() {
        let new_limits = 0x7fff_0000_0000;
        assert_eq!(filter.ask("prlimit64", &[1, 7, new_limits, 0]), EPERM);
        assert_eq!(filter.ask("prlimit64", &[1, 7, 0, 8]), Verdict::Allow);
        let own = [0, 7, new_limits, 0];
        assert_eq!(filter.ask("prlimit64", &own), Verdict::Allow);
    }
}

#[test]
fn nobody_makes_pid_1_wait() {
    for filter in base() {
        for (call, own, pid_1) in [
            ("sched_setscheduler", [0, 5], [GARBAGE | 1, 5]),
            ("sched_setparam", [7, 0], [1, 0]),
            ("sched_setaffinity", [0, 8], [1, 8]),
            ("setpriority", [0, 0], [0, 1]),
            ("setpriority", [1, 7], [1, 1]),
            ("setpriority", [0, 7], [GARBAGE | 2, 0]),
            ("ioprio_set", [1, 0], [1, 1]),
            ("ioprio_set", [2, 7], [2, 1]),
            ("ioprio_set", [1, 7], [3, 1000]),
        ] {
            assert_eq!(filter.ask(call, &own), Verdict::Allow, "{call}{own:?}");
            assert_eq!(filter.ask(call, &pid_1), EPERM, "{call}{pid_1:?}");
        }
    }
}

#[test]
fn kernel_tls_is_eperm() {
    for filter in base() {
        assert_eq!(filter.ask("setsockopt", &[3, 6, 31]), EPERM);
        assert_eq!(filter.ask("setsockopt", &[3, 6, 1]), Verdict::Allow);
        assert_eq!(filter.ask("setsockopt", &[3, 1, 31]), Verdict::Allow);
    }
}

#[test]
fn cpuid_faulting_is_eperm_and_thread_storage_passes() {
    let filter = Filter::of(Wearer::Base, Profile::Default, Arch::X86_64);
    assert_eq!(filter.ask("arch_prctl", &[0x1012]), EPERM);
    assert_eq!(filter.ask("arch_prctl", &[0x1002]), Verdict::Allow);
}

#[test]
fn aio_is_enosys_but_in_compat() {
    for (profile, filter) in payload_filters() {
        let expected = match profile {
            Profile::Compat => Verdict::Allow,
            _ => ENOSYS,
        };
        assert_eq!(filter.ask("io_setup", &[8]), expected);
    }
}

#[test]
fn strict_has_no_named_sockets_and_no_shared_ipc() {
    for arch in ARCHES {
        let strict = Filter::of(Wearer::Shell, Profile::Strict, arch);
        assert_eq!(strict.ask("socket", &[1, 1, 0]), EAFNOSUPPORT);
        assert_eq!(strict.ask("socketpair", &[1, 1, 0]), Verdict::Allow);
        assert_eq!(strict.ask("socket", &[2, 1, 0]), Verdict::Allow);
        for name in ["shmget", "semop", "msgsnd", "mq_open", "mincore"] {
            assert_eq!(strict.ask(name, &[]), EPERM, "{name}");
        }
    }
}

#[test]
fn compat_gives_debuggers_and_nothing_of_the_namespaces() {
    for arch in ARCHES {
        let compat = Filter::of(Wearer::Base, Profile::Compat, arch);
        for name in ["ptrace", "process_vm_readv", "mbind"] {
            assert_eq!(compat.ask(name, &[]), Verdict::Allow, "{name}");
        }
        assert_eq!(compat.ask("personality", &[0x4_0000]), Verdict::Allow);
        assert_eq!(compat.ask("sendto", &[3, 0, 0, 1]), Verdict::Allow);
        for name in ["unshare", "setns", "mount", "bpf", "keyctl", "pidfd_getfd"] {
            assert_eq!(compat.ask(name, &[]), EPERM, "{name}");
        }
    }
}

/// Filters stack, so a call that strict refuses must be one that default could allow.
#[test]
fn strict_allows_nothing_that_default_refuses() {
    for arch in ARCHES {
        let strict = Filter::of(Wearer::Base, Profile::Strict, arch);
        let default = Filter::of(Wearer::Base, Profile::Default, arch);
        for nr in 0..=600 {
            if strict.ask_number(nr, &[]) == Verdict::Allow {
                assert_eq!(default.ask_number(nr, &[]), Verdict::Allow, "{nr}");
            }
        }
    }
}

#[test]
fn init_reaps_and_does_nothing_else() {
    for arch in ARCHES {
        let init = Filter::of(Wearer::Init, Profile::Default, arch);
        for name in "wait4 waitid read write close ppoll kill exit_group getrusage futex munmap \
            brk madvise restart_syscall getpid signalfd4 sendmsg rt_sigreturn clock_nanosleep \
            clock_gettime setitimer"
            .split_whitespace()
        {
            assert_eq!(init.ask(name, &[]), Verdict::Allow, "{name}");
        }
        let all = (0..=600).chain([0x3fff_ffff]);
        for verdict in all.map(|nr| init.ask_number(nr, &[])) {
            assert!(matches!(verdict, Verdict::Allow | EPERM), "{verdict:?}");
        }
        // It looks, where it has to watch over memory, and changes nothing.
        assert_eq!(init.ask("openat", &[0, 0, 0o2_000_000]), Verdict::Allow);
        for flags in [1, 2, 3, 0o100, 0o1000] {
            assert_eq!(init.ask("openat", &[0, 0, flags]), EPERM, "{flags}");
        }
        for name in ["openat2", "execve", "clone", "clone3", "socket", "ptrace"] {
            assert_eq!(init.ask(name, &[]), EPERM, "{name}");
        }
    }
}

#[test]
fn init_makes_no_new_code_and_stays_undumpable() {
    for arch in ARCHES {
        let init = Filter::of(Wearer::Init, Profile::Default, arch);
        for name in ["mmap", "mprotect"] {
            assert_eq!(init.ask(name, &[0, 4096, 3]), Verdict::Allow);
            assert_eq!(init.ask(name, &[0, 4096, 5]), EPERM);
        }
        assert_eq!(init.ask("prctl", &[4, 0]), Verdict::Allow);
        assert_eq!(init.ask("prctl", &[4, 1]), EPERM);
        assert_eq!(init.ask("prctl", &[22]), EPERM);
    }
}

#[test]
fn init_is_the_same_in_every_profile() {
    for arch in ARCHES {
        let [default, strict, compat] =
            PROFILES.map(|profile| compile(Wearer::Init, profile, arch).unwrap());
        assert_eq!(default, strict);
        assert_eq!(default, compat);
    }
}

#[test]
fn a_payload_program_stays_within_250_instructions() {
    for (wearer, profile) in WEARERS.into_iter().flat_map(|w| PROFILES.map(|p| (w, p))) {
        for arch in ARCHES {
            let length = compile(wearer, profile, arch).unwrap().instructions().len();
            assert!(length <= 250, "{wearer:?} {profile} {arch:?}: {length}");
        }
    }
}

#[test]
fn a_name_of_one_architecture_is_skipped_on_the_other() {
    assert_eq!(syscall::number("open", Arch::X86_64), Ok(Some(2)));
    assert_eq!(syscall::number("open", Arch::Aarch64), Ok(None));
    assert_eq!(syscall::number("newfstatat", Arch::Aarch64), Ok(Some(79)));
}

#[test]
fn profiles_are_spelled_as_in_settings() {
    for profile in PROFILES {
        assert_eq!(profile.to_string().parse::<Profile>().unwrap(), profile);
        let json = serde_json::to_string(&profile).unwrap();
        assert_eq!(json, format!("\"{profile}\""));
    }
    assert!("Strict".parse::<Profile>().is_err());
}
