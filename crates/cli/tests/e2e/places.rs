//! Tests that need not run on every kernel of the matrix.
//!
//! A kernel cannot break what is decided before anything is loaded, nor what is done with records that
//! are read already. An emulated CPU takes ten times as long for it. Those tests run on the machine
//! itself and in no guest. Others take so long in a guest that one kernel has to suffice.
//!
//! The table is ignored where a filter names tests.

use crate::machine::{attaches_to_many_functions, is_guest};
use crate::{GROUPS, Test};

/// Where a test runs.
enum Place {
    /// Outside of guests only.
    Here,
    /// Of the guests, in that of this kernel.
    Kernel(&'static str),
}

use Place::{Here, Kernel};

/// (where the tests run, why, the beginnings of their names)
const PLACES: &[(Place, &str, &[&str])] = &[
    (
        Here,
        "the command line and the text of the program: nothing is loaded",
        &[
            "actions::destructive_actions_are_rejected_without_w",
            "command::a_wrong_option_value_is_an_error",
            "command::an_unreadable_script_is_an_error",
            "command::error_tags_are_printed_on_request",
            "command::operands_are_macro_variables",
            "command::the_preprocessor_applies_definitions_of_the_command_line",
            "command::unknown_names_are_errors",
            "command::words_of_bpftrace_get_the_way_of_d",
            "documents::",
            "evaltime::evaltime_is_an_option_of_the_command_line",
            "evaltime::main_is_found_without_symbols_and_without_pie",
            "elsewhere::",
            "frontend::an_operand_that_no_program_uses_is_an_error",
            "frontend::constants_of_the_d_libraries_are_defined",
            "frontend::libraries_of_the_user_are_loaded",
            "frontend::macro_variables_have_the_values_of_the_process",
            "frontend::pragmas_are_obeyed",
            "frontend::preprocessor_options_are_passed_on",
            "frontend::system_headers_can_be_included",
            "frontend::the_preprocessor_runs_with_c",
            "ids::raw_providers_match_only_where_they_are_named",
            "long::a_limit_that_is_exceeded_is_named",
            "long::a_program_beyond_the_limits_is_rejected",
            "options::definitions_come_from_libdir_and_syslibdir",
            "options::the_preprocessor_gets_its_options",
            "stability::",
            "toolkit::an_installed_dtrace_uses_the_libraries_and_the_tools_of_its_prefix",
            "toolkit::errors_of_a_tool_name_its_file_and_line",
            "toolkit::a_tool_without_its_probe_says_so_and_ends_with_status_1",
            "toolkit::every_option_of_every_tool_compiles",
            "toolkit::every_tool_is_in_the_manual_page_and_the_guide",
            "toolkit::every_tool_prints_its_usage_and_refuses_other_options",
            "toolkit::names_with_characters_of_the_shell_are_plain_text_to_tools",
            "toolkit::process_ids_that_are_no_numbers_are_refused_by_tools",
        ],
    ),
    (
        Here,
        "what is done with records after they are read",
        &[
            "actions::ftruncate_empties_a_file",
            "basics::the_argument_of_exit_is_the_exit_status",
            "command::a_closed_output_is_an_error",
            "command::a_closed_reader_ends_the_run_without_a_panic",
            "command::a_limit_of_file_size_is_an_error",
            "command::a_write_to_a_full_disk_is_an_error",
            "command::texts_that_cannot_be_written_are_errors",
            "control::",
            "ending::an_output_that_cannot_be_written_ends_the_session",
            "ending::effects_of_a_clause_are_in_order",
            "ending::effects_of_all_cpus_are_in_the_order_of_the_records",
            "ending::options_that_change_the_layout_apply_within_a_row",
            "ending::the_status_is_that_of_the_last_exit_and_never_that_of_the_target",
            "formats::a_key_that_one_of_several_aggregations_has_is_absent_in_the_others",
            "formats::a_session_prints_its_aggregations_as_csv",
            "formats::json_follows_the_output_to_another_file",
            "formats::the_output_of_commands_is_not_in_the_json",
            "options::quietresize_hides_lowered_sizes",
            "options::rows_are_sorted_by_the_chosen_column_and_aggregation",
        ],
    ),
    (
        Kernel("6.1"),
        "the language, over probes that every kernel has; the code that each kernel gets is compared with the interpreter on all",
        &[
            "actions::",
            "aggregations::",
            "args::",
            "basics::",
            "builtins::",
            "command::",
            "flow::",
            "formats::",
            "frontend::",
            "long::",
            "memory::",
            "objects::",
            "options::",
            "subroutines::",
            "variables::",
        ],
    ),
    (
        Kernel("7.2"),
        "the consumer and its buffers: they ask nothing of the kernel but preemption, which is at its worst there",
        &["buffers::", "deadman::", "ending::", "hours::", "order::", "speculation::", "surroundings::"],
    ),
    (
        Kernel("6.12"),
        "enabling all functions under load takes a minute and a half on 7.2; the counters are the same",
        &["interrupts::a_session_that_takes_most_of_the_time_says_so_early"],
    ),
    (
        Kernel("6.12"),
        "all probes are listed several times, a minute on an emulated CPU; the ids are given without the kernel",
        &["ids::an_id_of_a_list_is_the_same_probe_in_the_next_session", "ids::ids_fit_their_columns"],
    ),
    (
        Kernel("6.12"),
        "a tool takes seconds to start on an emulated CPU; the tests of its probes run on every kernel",
        &[
            "toolkit::a_tool_ends_quietly_when_its_reader_does",
            "toolkit_cpu::",
            "toolkit_files::",
            "toolkit_io::",
            "toolkit_memory::",
            "toolkit_net::",
        ],
    ),
];

/// Whether a test runs in the guest of this kernel.
fn runs_on(kernel: &str, test: &str) -> bool {
    let name = test.split_once("::").map_or(test, |(_, name)| name);
    let is_this = |place: &Place| matches!(place, Kernel(version) if is_kernel(kernel, version));
    PLACES.iter().all(|(place, _, tests)| is_this(place) || !tests.iter().any(|t| name.starts_with(t)))
}

/// Whether a release (`6.12.107+deb13-amd64`) is of a version (`6.12`).
fn is_kernel(release: &str, version: &str) -> bool {
    release.strip_prefix(version).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a test is to attach to all functions: on one kernel of the guests, because it takes half a
/// minute on an emulated CPU, and for a while the next tests are slow. Other tests do it on the others.
pub(crate) fn attaches_to_all_functions(version: &str) -> bool {
    attaches_to_many_functions() && (!is_guest() || is_kernel(&release(), version))
}

fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// The tests that run on this machine when no filter names others.
pub(crate) fn tests_of_this_machine() -> Vec<Test> {
    check();
    let all = GROUPS.iter().copied().flatten().copied();
    if !is_guest() {
        return all.collect();
    }
    let release = release();
    let chosen: Vec<Test> = all.filter(|(name, _)| runs_on(&release, name)).collect();
    let others = GROUPS.iter().map(|g| g.len()).sum::<usize>() - chosen.len();
    println!("{others} tests do not run in this guest (crates/cli/tests/e2e/places.rs)");
    chosen
}

/// Fails if a name in the table is that of no test, or if a version is mistaken for another one.
fn check() {
    for name in PLACES.iter().flat_map(|(.., tests)| *tests) {
        let named = |(test, _): &Test| test.strip_prefix("e2e::").is_some_and(|t| t.starts_with(name));
        assert!(GROUPS.iter().copied().flatten().any(named), "places.rs names {name}, which is no test");
    }
    assert!(is_kernel("6.1.0-50-amd64", "6.1") && !is_kernel("6.12.107+deb13-amd64", "6.1"));
    let slow = "e2e::interrupts::a_session_that_takes_most_of_the_time_says_so_early";
    assert!(runs_on("6.12.107+deb13-amd64", slow) && !runs_on("7.2.1", slow));
    assert!(!runs_on("6.12.1", "e2e::stability::x") && runs_on("6.12.1", "e2e::stacks::x"));
}
