//! Entries of the list that a test shows which is no payload of this directory: which test, in which
//! file. That it is there is seen when this is compiled and run.

/// One entry and the tests that show it.
pub(crate) struct Shown {
    pub(crate) id: &'static str,
    file: &'static str,
    text: &'static str,
    tests: &'static [&'static str],
}

/// `"ID" "FILE": "TEST" "TEST";`
macro_rules! shown {
    ($($id:literal $file:literal: $($test:literal)+;)+) => {
        /// Every one.
        pub(crate) const SHOWN: &[Shown] = &[$(Shown {
            id: $id,
            file: $file,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $file)),
            tests: &[$($test),+],
        }),+];
    };
}

shown! {
    "MNT-18" "tests/escapes/mnt.rs": "mnt_18_the_project_is_replaced_after_it_was_checked";
    "MNT-19" "tests/conformance/project.rs": "a_bad_project_place_is_refused_at_start_by_name";
    "MNT-20" "tests/conformance/project.rs": "a_bad_project_directory_is_refused_at_start_by_name"
        "odd_names_are_shown_like_any_other";
    "MNT-22" "tests/conformance/project.rs": "below_the_project_other_mounts_are_read_only_too";
    "MNT-30" "tests/conformance/processes.rs": "no_mount_or_file_is_left_on_the_host";

    "PRC-10" "tests/escapes/prc.rs": "prc_10_no_fresh_proc";
    "PTR-10" "tests/escapes/ptr.rs": "ptr_10_planted_modules";
    "SEC-09" "tests/escapes/sec.rs":
        "sec_09_every_number_is_answered_as_the_golden_table_says";
    "SEC-13" "tests/escapes/sec.rs": "sec_13_a_filter_that_is_refused";

    "TTY-01" "tests/cli/terminal.rs": "pushing_input_with_tiocsti_is_refused";
    "TTY-03" "tests/cli/terminal.rs": "exec_on_a_terminal_has_a_pty_of_its_own";
    "TTY-03" "tests/cli/streams.rs": "without_a_terminal_there_is_none";
    "TTY-04" "tests/cli/terminal.rs": "ctrl_c_is_130_and_ctrl_backslash_131" "the_window_size_follows"
        "ctrl_z_then_fg_with_and_without_a_pty" "the_terminal_is_as_it_was_after_every_way_out";
    "TTY-04" "tests/cli/signals.rs": "sigint_reaches_the_payload_once";
    "TTY-05" "tests/cli/streams.rs": "to_a_terminal_control_characters_are_shown_unless_raw";
    "TTY-05" "tests/cli/terminal.rs": "drawing_passes_and_orders_to_the_emulator_do_not_unless_raw";
    "TTY-05" "tests/mcp/test_sdk.py": "test_terminal_escapes_are_harmless";
    "TTY-07" "tests/conformance/endings.rs":
        "output_beyond_its_limit_ends_the_run_and_memory_stays_flat";
    "TTY-07" "tests/cli/json.rs": "yes_with_a_time_limit_under_json_stays_under_32_mb";
    "TTY-07" "tests/conformance/results.rs": "both_streams_are_drained_at_once";
    "TTY-07" "src/mcp/text.rs": "the_middle_goes_and_the_counts_are_true";
    "TTY-08" "tests/mcp/test_sdk.py": "test_invalid_UTF_8_output" "test_NUL_bytes_in_the_output";
    "TTY-10" "tests/escapes/tty.rs": "tty_10_nothing_is_planted_in_the_log";

    "RES-19" "tests/conformance/results.rs": "a_program_of_one_mebibyte_runs";
    "RES-21" "tests/mcp/test_raw.py": "test_code_that_is_too_long_is_refused"
        "test_a_line_that_is_too_long_is_answered" "test_malformed_lines_are_answered";
    "RES-23" "tests/conformance/results.rs": "both_streams_are_drained_at_once";
    "RES-24" "tests/conformance/processes.rs":
        "background_processes_do_not_delay_the_end_and_none_is_left";
    "RES-24" "tests/cli/streams.rs": "exec_ends_long_before_the_sleeps_and_leaves_no_process";
    "RES-31" "tests/escapes/proto.rs": "res_31_sessions_are_counted_and_expire";

    "LIFE-01" "tests/escapes/life.rs": "life_01_the_server_is_killed";
    "LIFE-01" "tests/mcp/test_raw.py": "test_a_killed_server_leaves_nothing";
    "LIFE-02" "tests/escapes/life.rs": "life_02_life_10_a_launcher_of_one_thread_clones";
    "LIFE-02" "tests/escapes/proto.rs": "life_02_a_session_outlives_the_thread_that_started_it";
    "LIFE-03" "tests/escapes/life.rs": "life_03_killed_at_any_moment_of_the_start";
    "LIFE-05" "tests/escapes/life.rs": "life_05_signals_are_as_programs_expect";
    "LIFE-06" "tests/escapes/life.rs": "life_06_descriptors_in_a_server";
    "LIFE-06" "tests/conformance/identity.rs": "proc_self_fd_holds_only_0_1_2_and_the_directory_s_own"
        "descriptors_that_we_inherited_are_not_handed_on";
    "LIFE-07" "tests/escapes/life.rs": "life_07_nothing_odd_is_inherited";
    "LIFE-07" "tests/conformance/identity.rs": "inherited_values_are_fixed";
    "LIFE-08" "tests/cli/codes.rs": "exit_codes_0_to_255_are_the_commands_own" "a_signal_is_128_plus_n"
        "a_time_out_is_124_and_partial_output_is_there";
    "LIFE-08" "tests/conformance/endings.rs": "exit_codes_and_signals_are_exact"
        "a_program_that_cannot_be_started_is_told_apart";
    "LIFE-09" "tests/escapes/fault.rs": "life_09_a_step_that_fails_is_named_and_nothing_runs";
    "LIFE-10" "tests/escapes/life.rs": "life_02_life_10_a_launcher_of_one_thread_clones"
        "life_14_many_runs_leave_nothing_in_the_server";
    "LIFE-11" "tests/escapes/proto.rs": "proto_08_life_11_code_without_end";
    "LIFE-12" "tests/mcp/test_raw.py": "test_a_cancelled_request_dies_and_gets_no_reply"
        "test_after_the_end_of_input_long_runs_are_ended" "test_a_client_that_has_gone_ends_all_at_once";
    "LIFE-14" "tests/escapes/life.rs": "life_14_many_runs_leave_nothing_in_the_server";

    "PROTO-01" "tests/escapes/proto.rs": "proto_01_what_is_written_is_output";
    "PROTO-02" "tests/escapes/proto.rs": "proto_02_forged_frames" "proto_02_a_frame_that_is_forged_well";
    "PROTO-02" "src/session/protocol.rs": "only_the_answer_to_this_very_request_is_taken";
    "PROTO-04" "tests/escapes/proto.rs": "proto_04_the_interpreter_is_ended";
    "PROTO-05" "tests/escapes/proto.rs": "proto_05_odd_exceptions";
    "PROTO-07" "tests/escapes/proto.rs": "proto_07_standard_input";
    "PROTO-07" "tests/mcp/test_sdk.py": "test_standard_input_is_empty";
    "PROTO-08" "tests/escapes/proto.rs": "proto_08_life_11_code_without_end";
    "PROTO-09" "tests/escapes/proto.rs": "proto_09_no_newline_at_the_end";
    "PROTO-10" "tests/escapes/proto.rs": "proto_10_unterminated_source";
    "PROTO-12" "tests/escapes/proto.rs": "proto_12_markers_of_a_shell";
    "PROTO-14" "tests/escapes/proto.rs": "proto_14_state";
    "PROTO-16" "tests/escapes/proto.rs": "proto_16_calls_at_once_and_other_names";
    "PROTO-18" "tests/escapes/proto.rs": "proto_18_removing_everything";

    "RES-01" "tests/limits/cases.rs": "a_fork_bomb_leaves_room_for_others"
        "the_cgroup_alone_stops_processes";
    "RES-05" "tests/limits/cases.rs": "a_memory_bomb" "a_child_out_of_memory_ends_the_run"
        "killed_by_itself_is_not_out_of_memory";
    "RES-06" "tests/limits/cases.rs": "files_in_memory_count";
    "RES-17" "tests/limits/cases.rs": "processor_time_is_limited";
    "RES-32" "tests/limits/cases.rs": "a_limit_too_small_to_start_is_named";
    "RES-33" "tests/limits/cases.rs": "what_holds_is_in_the_result";

    "CFG-01" "tests/escapes/proto.rs": "cfg_01_names_of_sessions";
    "CFG-03" "src/environment/artifact/tests.rs": "what_is_no_metadata_is_skipped"
        "what_is_no_artifact_is_skipped" "what_others_can_change_is_skipped"
        "wrong_values_are_refused_by_name";
    "CFG-04" "tests/conformance/identity.rs": "the_environment_is_exactly_the_documented_allow_list";
    "CFG-05" "tests/escapes/life.rs": "cfg_05_no_command_line_tells_the_code";
    "CFG-05" "tests/conformance/identity.rs": "pid_1_tells_nothing_of_who_started_it";
    "CFG-07" "tests/escapes/proto.rs": "cfg_07_times_that_cannot_be";
    "CFG-07" "tests/conformance/limits.rs": "bad_limits_are_refused_with_a_sentence";
    "CFG-07" "src/plan/limits.rs": "bad_values_are_refused_with_name_value_and_range";
    "CFG-07" "src/settings/tests.rs": "bad_values_are_refused_with_name_and_value";
    "CFG-09" "tests/cli/streams.rs": "arguments_pass_unchanged";
    "CFG-09" "tests/cli/codes.rs": "our_own_failure_is_125_with_one_sentence"
        "a_command_that_cannot_be_executed_is_126_and_one_that_is_not_found_127";
    "CFG-09" "src/cli/mod.rs": "everything_after_the_dashes_is_the_command";
    "CFG-10" "tests/escapes/fault.rs": "cfg_10_a_wall_that_is_always_required_is_missing"
        "cfg_10_ll_12_a_wall_that_is_preferred_is_missing";
    "CFG-10" "tests/conformance/limits.rs": "a_required_wall_that_cannot_be_had_refuses_the_run";
    "CFG-11" "tests/escapes/fault.rs": "cfg_11_the_report_is_what_the_payload_meets";
    "CFG-11" "tests/escapes/net.rs": "net_12_the_report_is_true";
    "CFG-11" "tests/doctor/tests.rs": "our_own_sandbox_is_seen_from_inside_as_it_is_reported";
    "CFG-12" "tests/escapes/life.rs": "cfg_12_started_oddly";

    "LL-08" "tests/escapes/net.rs": "net_12_socket_file_in_the_project"
        "net_12_socket_file_under_strict" "net_12_the_report_is_true";
    "LL-12" "tests/escapes/fault.rs": "cfg_10_ll_12_a_wall_that_is_preferred_is_missing";
    "LL-12" "src/engine/landlock.rs": "an_older_kernel_is_reported_with_what_it_leaves_open";
}

#[test]
fn what_is_shown_elsewhere_is_there() {
    for Shown { id, file, text, tests } in SHOWN {
        for test in *tests {
            let forms = [format!("fn {test}("), format!("def {test}("), format!("    {test}: ")];
            let named = [format!("(\"{test}\", ")];
            let found = forms.iter().chain(&named).any(|form| text.contains(form.as_str()));
            assert!(found, "{id}: {file} has no {test}");
        }
    }
}
