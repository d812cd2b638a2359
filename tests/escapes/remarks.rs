//! Why an entry is stopped by one wall only, or by none of those that can be taken away.

/// A reason, and the entries that it holds for. An entry's own `note` comes before it.
const REMARKS: &[(&str, &[&str])] = &[
    (
        "it must work, and does",
        &[
            "res_09_shared_memory",
            "ll_06_flags",
            "ns_04_threads_and_spawn_work",
            "ns_04_python_threads_and_processes_work",
            "ns_04_node_workers_work",
            "mnt_28_programs_of_one_s_own",
            "ptr_11_becoming_another_program",
            "sys_24_ipc",
            "sys_29_executable_memory",
            "net_08_own_loopback",
            "net_17_what_look_ups_read",
            "tty_08_bytes_that_are_no_text",
        ],
    ),
    (
        "its own file tree, which always stands: there is nothing to reach",
        &[
            "ll_04_orders_to_devices",
            "mnt_08_through_descriptors",
            "mnt_10_racing_a_mount",
            "mnt_11_devices_are_what_they_are_called",
            "mnt_12_a_false_proc",
            "mnt_14_dev",
            "mnt_23_the_nix_store",
            "mnt_24_the_nix_daemon",
            "mnt_25_secrets_of_the_host",
            "mnt_31_propagation",
            "prc_11_without_proc",
            "prc_12_sysfs",
            "net_10_the_desktop",
            "net_11_daemons_that_start_programs",
            "ll_14_links",
        ],
    ),
    (
        "the PID namespace, which always stands",
        &[
            "prc_09_processes",
            "res_25_daemons",
            "res_25_daemons_at_a_time_out",
            "res_26_deaf_stopped_and_waiting",
        ],
    ),
    (
        "descriptors and the environment are cleared for whatever is run",
        &[
            "ns_10_inherited_descriptors",
            "net_13_passing_descriptors",
            "net_14_inherited_sockets",
            "net_18_proxies",
        ],
    ),
    (
        "the kernel refuses it to everybody who is not root of the machine; seccomp answers before",
        &[
            "mnt_16_forged_file_handles",
            "prc_01_sysrq",
            "sys_02_bpf",
            "sys_16_kernels_and_modules",
            "sys_21_more_processor",
            "sys_28_core_scheduling",
        ],
    ),
    (
        "the kernel has no fault here; the files were untouched",
        &["sys_12_dirty_pipe", "sys_13_dirty_cow", "sys_31_kernel_addresses"],
    ),
    (
        "nothing is let through where it stands alone: it shows what the set-up made",
        &[
            "ns_13_supplementary_groups",
            "ns_20_set_user_id_programs",
            "ns_21_namespaces_of_the_host",
        ],
    ),
    (
        "calls that this kernel does not have",
        &["ns_23_calls_of_newer_kernels", "sys_35_uprobe_calls"],
    ),
    (
        "shows that very wall",
        &[
            "ll_10_sixteen_domains",
            "ns_18_rights_of_every_thread",
            "ns_19_asking_for_capabilities",
            "prc_08_limits_of_one_s_own_namespaces",
            "sec_06_strict_mode",
            "sec_07_before_the_first_instruction",
            "sec_08_threads_before_the_filter",
            "sec_11_calls_that_libraries_probe",
            "sec_12_one_filter_two_errnos",
            "sys_14_programs_in_memory",
            "res_33_without_a_cgroup",
        ],
    ),
    (
        "without new namespaces it changes nothing; those have a second wall",
        &["ns_03_clone3", "ns_14_clone_fs", "sec_04_flipping_arguments"],
    ),
    (
        "a descriptor of what is seen anyway; what it is for needs capabilities",
        &["mnt_03_the_new_mount_api"],
    ),
    (
        "in a network of its own, without capabilities, the socket does nothing",
        &["ns_08_nf_tables_in_a_nested_namespace", "net_04_netlink"],
    ),
    (
        "the processes are its own; pid 1 has a second wall",
        &["ptr_01_ptrace", "ptr_02_memory_of_others"],
    ),
    (
        "it tells what everybody may know and changes nothing",
        &["sys_17_the_whole_machine", "sys_19_the_clock"],
    ),
    ("how many there are, and nothing of them", &["ptr_05_descriptors_of_pid_1"]),
    (
        "pid 1 ignores what is sent from inside its PID namespace",
        &["ll_05_signals_and_abstract_sockets", "ll_07_threads", "ptr_08_signals"],
    ),
    (
        "the kernel offers no second wall",
        &[
            "net_06_out",
            "net_06_out_with_bash",
            "net_07_listeners_of_the_host",
            "res_06_files_in_memory",
            "res_06_many_files_in_memory",
            "res_11_pipes",
            "res_12_sockets",
            "res_30_counters_of_the_host",
            "sys_06_key_quota",
            "sys_08_inotify",
            "ll_03_the_network",
            "res_02_threads_whoever_started_it",
            "res_14_large_files",
            "res_14_large_files_and_their_signal",
            "mnt_29_the_mount_table",
            "prc_02_knobs",
            "prc_04_the_kernel_s_insides",
            "prc_05_keys_of_the_host",
            "prc_06_the_machine",
            "prc_14_crashes",
            "prc_15_files_of_the_process",
            "sec_01_32_bit_calls",
            "sec_02_x32_calls",
            "sys_01_io_uring",
            "sys_03_perf_event_open",
            "sys_04_userfaultfd",
            "sys_10_segments_and_ports",
            "sys_26_the_page_cache",
            "sys_27_speculation",
            "sys_32_urgent_data",
            "net_01_socket_families",
            "net_02_vsock_and_wsl",
            "net_15_modules_by_protocol",
        ],
    ),
    (
        "the key is out of reach twice; adding one's own is refused by one",
        &["sys_05_keys_of_the_launcher"],
    ),
    (
        "Landlock knows no right for metadata; the files' owner is another where root started it",
        &["mnt_21_changing_the_project"],
    ),
    ("a limit that root of the sandbox could not raise either", &["sys_23_locked_memory"]),
    (
        "the second wall is Landlock, from version 9 (Linux 7.1) on",
        &["net_12_socket_file_under_strict"],
    ),
    ("sized memory file systems of its own, which always stand", &["res_15_a_deep_tree"]),
    (
        "the same share of the processors as others; the cgroup's part is in `tests/limits`",
        &["res_17_processors"],
    ),
    ("where a file could lie; the host's owners and modes still hold there", &["res_18_the_disk"]),
];

/// What is said of an entry in `docs/evidence/walls.md`.
pub(super) fn of(entry: &super::Entry) -> &'static str {
    if !entry.note.is_empty() {
        return entry.note;
    }
    let found = REMARKS.iter().find(|(_, names)| names.contains(&entry.name));
    found.map_or("", |(reason, _)| reason)
}

/// Names that are no entry's.
pub(super) fn unknown(entries: &[&super::Entry]) -> Vec<&'static str> {
    let names = REMARKS.iter().flat_map(|(_, names)| names.iter().copied());
    names.filter(|name| !entries.iter().any(|entry| entry.name == *name)).collect()
}
