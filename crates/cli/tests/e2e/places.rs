//! Tests that need not run on every kernel of the matrix.
//!
//! A kernel cannot break what is decided before anything is loaded, nor what is done with records that
//! are read already. An emulated CPU takes ten times as long for it. Those tests run on the machine
//! itself and in no guest. Of the others only those that a kernel is most likely to break run in all guests. Of the rest, each
//! that a machine may have to skip runs in one of them, and every second one of the others, because emulated CPUs are slow.
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

/// (where the tests run, why, the beginnings of their names): the first row that names a test decides.
const PLACES: &[(Place, &str, &[&str])] = &[
    (
        Kernel("6.12"),
        "they need functions of the kernel, or may write to processes, which a machine may refuse",
        &[
            "command::functions_that_cannot_be_traced_say_why",
            "flow::a_system_calls_functions_form_a_tree",
            "memory::copyout_writes_user_memory_with_w",
            "toolkit_files::cachestat_counts_hits_of_files_in_memory",
        ],
    ),
    (
        Here,
        "held children take half a minute in a guest (the counts were right there in ten of ten runs); what is held is tested by others",
        &["follow::children_of_a_target_are_held_where_they_execute"],
    ),
    (
        Here,
        "a hundred programs take long in a guest; that a killed tracer leaves targets running is tested by others",
        &[
            "follow::a_target_with_held_children_goes_on_when_its_tracer_is_killed",
            "pid_later::a_target_goes_on_when_its_tracer_is_killed",
        ],
    ),
    (
        Here,
        "which types and lines a file has is decided before anything is loaded; that they are read in the process is tested by others",
        &[
            "lines::lines_of_separate_shared_and_compressed_debug_information_are_shown",
            "lines::flame_graphs_show_inlined_functions_as_such",
            "user_types::debug_files_of_a_server_are_fetched_once_if_the_option_names_it",
            "user_types::types_lines_and_inlined_functions_of_split_debug_information_are_read",
            "user_types::types_of_separate_and_shared_debug_files_are_read",
            "user_types::types_that_a_program_has_as_",
            "user_types::a_server_of_debug_files_is_known_by_its_certificate",
            "user_types::objects_of_cpp_and_rust_have_their_members",
            "user_types::what_has_no_types_is_named_with_its_tag",
        ],
    ),
    (
        Here,
        "a debugger takes long in a guest; that stacks are walked so there is tested by others",
        &[
            "debuggers::stacks_of_",
            "debuggers::stacks_in_a_container_are_those_of_a_debugger",
            "debuggers::stacks_through_code_made_at_run_time_go_to_the_start",
            "usdt_dynamic::a_debugger_reads_the_probes_of_a_file_in_memory",
        ],
    ),
    (
        Here,
        "all probes are listed several times, two minutes on an emulated CPU; the ids are given without the kernel",
        &["ids::an_id_of_a_list_is_the_same_probe_in_the_next_session"],
    ),
    (
        Here,
        "what is done with stacks and definitions is no matter of the kernel",
        &[
            "definitions::a_header_",
            "definitions::definitions_are_preprocessed",
            "definitions::errors_of_a_definition",
            "definitions::what_is_missing",
            "flames::",
        ],
    ),
    (
        Here,
        "hundreds of files take a kernel long that attaches to them one by one; how many are looked at is decided before",
        &[
            "usdt_dynamic::hundreds_of_files_of_one_process_hide_no_other_process",
            "usdt_dynamic::a_process_that_makes_probes_without_end_has_a_limit_that_is_its_own",
        ],
    ),
    (
        Here,
        "the test waits twice for ten seconds to be over, which the session counts and not the kernel",
        &["usdt_later::files_of_processes_that_have_ended_are_closed"],
    ),
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
        "a tool takes seconds to start on an emulated CPU; the tests of its probes run in guests",
        &[
            "toolkit::a_tool_ends_quietly_when_its_reader_does",
            "toolkit_cpu::",
            "toolkit_files::",
            "toolkit_io::",
            "toolkit_memory::",
            "toolkit_net::",
        ],
    ),
    (
        Here,
        "programs that an emulated CPU compiles, or starts, for minutes",
        &[
            "many::five_hundred_selected_processes_have_exact_counts",
            "packages::",
            "pid_chosen::addresses_of_a_stripped_program_are_found_by_its_unwind_tables",
            "pid_hard::a_go_program_behaves_as_untraced",
            "pid_hard::ten_thousand_functions_of_a_library_are_entered_and_return",
            "usdt_languages::",
            "usdt_later::a_thousand_processes_have_one_provider",
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
        Here,
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
        "a dozen processes in namespaces start and end one after the other, which takes a minute on an emulated CPU; sets of processes \
         are tested on every kernel",
        &[
            "namespaces::a_set_has_processes_of_namespaces_below",
            "pid_odd::sets_of_processes_are_found_in_a_pid_namespace",
        ],
    ),
    (
        Kernel("6.12"),
        "enabling all functions under load takes a minute and a half on 7.2; the counters are the same",
        &["interrupts::a_session_that_takes_most_of_the_time_says_so_early"],
    ),
    (
        Kernel("6.12"),
        "all probes are listed, ten seconds on an emulated CPU; the ids are given without the kernel",
        &["ids::ids_fit_their_columns"],
    ),
];

/// The kernels of the matrix.
const MATRIX: [&str; 3] = ["6.1", "6.12", "7.2"];

/// The beginnings of the names of tests that run on each kernel of the matrix: how the kernel is attached to, and what it has.
///
/// Any other test runs on one at most, because emulated CPUs take hours for all of them on each. `DTRACE_MATRIX=all` runs them on
/// each.
const ON_EACH: &[&str] = &[
    "fbt::",
    "leaves_nothing::",
    "pid::a_string_in_a_page_that_is_not_there_yet_is_read",
    "pid::entries_and_returns_of_a_function_have_its_arguments_and_its_value",
    "stable::",
    "stacks::stacks_begin_at_the_probed_function",
    "syscalls::",
    "tracepoints::",
    "unwinding::a_clock_sees_the_whole_stack",
    "unwinding::stacks_below_probed_returns_have_the_true_addresses",
    "unwinding::stacks_go_through_",
];

/// Whether a test runs in the guest of this kernel. `all`: whatever suffices.
fn runs_on(kernel: &str, test: &str, all: bool) -> bool {
    let name = test.split_once("::").map_or(test, |(_, name)| name);
    let is_this = |place: &Place| matches!(place, Kernel(version) if is_kernel(kernel, version));
    let begins = |tests: &[&str]| tests.iter().any(|t| name.starts_with(t));
    if let Some((place, ..)) = PLACES.iter().find(|(.., tests)| begins(tests)) {
        return is_this(place);
    }
    let known = MATRIX.iter().position(|version| is_kernel(kernel, version));
    let (kernel, turn) = (sum(name) % MATRIX.len(), sum(name) / MATRIX.len());
    let is_chosen = turn.is_multiple_of(2) || may_be_skipped(name);
    all || begins(ON_EACH) || known.is_none_or(|index| kernel == index && is_chosen)
}

/// Whether a machine whose kernel lacks much skips a test, which then runs in guests only.
fn may_be_skipped(name: &str) -> bool {
    const RESTRICTED: &str = include_str!("../../../../testing/skips/restricted");
    let is_line_of = |line: &str| {
        let rest = line.trim_start_matches('~').strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(':'))
    };
    RESTRICTED.lines().any(is_line_of)
}

/// A number of a test: of its name, so that a test that is added moves no other one.
fn sum(name: &str) -> usize {
    name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

/// Whether a test is of a half, 1 or 2, of all tests.
fn is_of_half(half: usize, test: &str) -> bool {
    sum(test) / MATRIX.len() % 2 == half % 2
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
    let on_all = std::env::var_os("DTRACE_MATRIX").is_some_and(|which| which == "all");
    let half: Option<usize> = std::env::var("DTRACE_HALF").ok().and_then(|half| half.parse().ok());
    let runs = |name: &str| runs_on(&release, name, on_all) && half.is_none_or(|half| is_of_half(half, name));
    let chosen: Vec<Test> = all.filter(|(name, _)| runs(name)).collect();
    let others = GROUPS.iter().map(|g| g.len()).sum::<usize>() - chosen.len();
    println!("{others} tests do not run in this guest (crates/cli/tests/e2e/places.rs)");
    chosen
}

/// Fails if a name in the table is that of no test, or if a version is mistaken for another one.
fn check() {
    for name in PLACES.iter().flat_map(|(.., tests)| *tests).chain(ON_EACH) {
        let named = |(test, _): &Test| test.strip_prefix("e2e::").is_some_and(|t| t.starts_with(name));
        assert!(GROUPS.iter().copied().flatten().any(named), "places.rs names {name}, which is no test");
    }
    for test in ["e2e::fbt::x", "e2e::fbt::y"] {
        assert!(is_of_half(1, test) != is_of_half(2, test), "{test}");
    }
    assert!(is_kernel("6.1.0-50-amd64", "6.1") && !is_kernel("6.12.107+deb13-amd64", "6.1"));
    let slow = "e2e::interrupts::a_session_that_takes_most_of_the_time_says_so_early";
    assert!(runs_on("6.12.107+deb13-amd64", slow, false) && !runs_on("7.2.1", slow, true));
    for (test, all, kernels) in [
        ("e2e::stability::x", true, 0),
        ("e2e::fbt::x", false, 3),
        ("e2e::watching::x", true, 3),
        ("e2e::watching::x", false, 0),
        ("e2e::watching::w", false, 1),
        ("e2e::kernel::types_of_modules_are_found", false, 1),
    ] {
        let on = MATRIX.iter().filter(|version| runs_on(&format!("{version}.1"), test, all)).count();
        assert_eq!(on, kernels, "{test}");
    }
}
