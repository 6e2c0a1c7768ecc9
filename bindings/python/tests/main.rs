//! The tests of the package, in Python (`tests/test_*.py`): each is a test of this program by its
//! name. They run with the Python of the system, and all of them once more with a newer one.
//!
//! The package that they import is made of the sources, of the library of this crate and of the
//! command `dtrace` of the workspace, which reads the symbols of processes for it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use testing::Verdict::{Pass, Skip};
use testing::dir::Dir;
use testing::{Test, Verdict};

fn main() -> ExitCode {
    testing::heed_signals();
    testing::main(
        &[
            test_notebook::TESTS,
            test_package::TESTS,
            test_processes::TESTS,
            test_run::TESTS,
            test_session::TESTS,
            TESTS,
        ],
        |_| ExitCode::FAILURE,
    )
}

const TESTS: &[Test] = &[
    ("every_test_in_python_is_one_of_this_program", every_test_in_python_is_one_of_this_program),
    (
        "all_tests_pass_with_a_newer_python_pandas_and_jupyter",
        all_tests_pass_with_a_newer_python_pandas_and_jupyter,
    ),
];

/// Tests in Python, by the names of their files and functions.
macro_rules! in_python {
    ($($file:ident: $($name:ident)*;)*) => {
        $(mod $file {
            $(fn $name() -> testing::Verdict {
                crate::run(concat!(stringify!($file), ".py::", stringify!($name)))
            })*
            testing::tests! { $($name)* }
        })*

        const NAMES: &[(&str, &str)] = &[$($((stringify!($file), stringify!($name)),)*)*];
    };
}

in_python! {
    test_notebook:
        test_names_are_text_whatever_is_in_them
        test_counts_have_bars
        test_distributions_have_bars
        test_long_tables_end_with_what_is_left
        test_stacks_are_a_flame_graph_in_a_frame
        test_stacks_are_a_table_where_no_picture_can_be_drawn
        test_distributions_over_time_are_a_heat_map
        test_records_are_shown_as_their_text
        test_pandas_is_not_needed;
    test_package:
        test_importing_it_imports_little
        test_the_command_of_the_package_runs
        test_the_stubs_have_what_the_package_has
        test_there_are_ten_examples
        test_an_example_runs;
    test_processes:
        test_a_session_is_that_of_its_process
        test_a_notebook_shows_a_result_in_a_child_as_text
        test_a_child_has_nothing_of_a_session
        test_probes_end_with_their_session_though_a_child_lives
        test_a_pool_of_processes_is_traced
        test_processes_of_a_pool_can_trace
        test_a_copy_of_a_process_that_has_traced_begins_no_session
        test_a_copy_of_a_process_that_has_not_traced_can_trace;
    test_run:
        test_a_count_is_exact
        test_rows_are_found_by_their_keys
        test_words_of_a_command_are_arguments_whatever_is_in_them
        test_a_text_of_a_command_is_split_on_blanks
        test_a_process_that_runs_is_traced
        test_a_run_ends_after_its_seconds
        test_a_run_ends_by_exit_with_its_status
        test_integers_are_exact_by_their_types
        test_bytes_that_are_no_text_come_back
        test_a_process_may_have_any_name
        test_distributions_have_their_buckets
        test_several_aggregations_of_a_printa_are_each_their_own
        test_what_a_printa_has_printed_grows_until_the_end
        test_options_are_those_of_the_command
        test_options_that_only_the_command_obeys_are_refused
        test_what_end_adds_to_an_aggregation_that_was_printed_is_in_the_result
        test_a_stream_has_each_aggregation_once
        test_errors_have_their_places
        test_what_cannot_be_traced_is_an_error
        test_a_time_that_is_none_is_refused
        test_what_is_no_number_of_a_process_is_refused
        test_an_executable_can_be_named_that_reads_symbols
        test_what_a_printa_has_printed_comes_at_the_end_as_others_do
        test_several_programs_are_one_session
        test_faults_are_in_the_result
        test_what_is_dropped_is_counted
        test_intervals_add_up_to_what_there_is
        test_stacks_of_the_kernel_are_frames
        test_functions_of_processes_have_names
        test_the_result_of_a_run_can_be_sent_elsewhere;
    test_session:
        test_events_come_in_their_order
        test_records_come_while_the_session_runs
        test_nothing_comes_within_the_time
        test_aggregations_can_be_asked_for_while_the_session_runs
        test_programs_can_be_added_while_the_session_runs
        test_another_thread_can_stop_a_session
        test_the_end_of_its_block_closes_a_session
        test_a_session_that_is_over_has_nothing_in_the_kernel
        test_a_session_that_nobody_has_is_closed
        test_other_threads_run_while_a_session_is_given_up
        test_several_sessions_run_at_once
        test_each_thread_can_have_a_session
        test_other_threads_run_while_a_session_waits
        test_two_threads_can_read_one_session
        test_an_interrupt_ends_a_wait
        test_an_interrupt_ends_a_long_enabling
        test_handlers_of_signals_run_while_a_session_waits
        test_a_handler_that_uses_a_session_at_work_is_an_error_and_no_deadlock
        test_a_handler_can_close_a_session_at_work
        test_a_panic_is_an_error_and_ends_its_session_alone
        test_a_panic_where_an_event_is_taken_is_an_error_and_ends_its_session;
}

/// Their folder.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// A folder in which `dtrace` is the package.
fn package() -> &'static Dir {
    static PACKAGE: OnceLock<Dir> = OnceLock::new();
    PACKAGE.get_or_init(|| {
        let dir = Dir::new("python-package");
        let package = dir.join("dtrace");
        std::fs::create_dir_all(package.join("bin")).unwrap();
        for entry in std::fs::read_dir(sources().join("python/dtrace")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                symlink(entry.path(), package.join(entry.file_name())).unwrap();
            }
        }
        // This program is in target/PROFILE/deps, as the library is when it is built for this.
        let this = std::env::current_exe().unwrap();
        let built = this.parent().and_then(Path::parent).unwrap();
        let library = this.with_file_name("libdtrace_python.so");
        assert!(library.exists(), "there is no {}", library.display());
        symlink(library, package.join("_dtrace.abi3.so")).unwrap();
        let command = std::env::var_os("DTRACE_BIN").map_or_else(|| built.join("dtrace"), PathBuf::from);
        assert!(
            command.exists(),
            "there is no {}, which cargo test --workspace or cargo build -p cli makes",
            command.display()
        );
        symlink(command, package.join("bin/dtrace")).unwrap();
        dir
    })
}

/// pytest for a test or a folder of them.
fn pytest(python: &Path, tests: &str) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--tb=short"]);
    command.arg(sources().join("tests").join(tests));
    command.env("PYTHONPATH", &**package());
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("DTRACE_EXAMPLES", sources().join("examples"));
    command
}

/// A Python that has pytest.
fn python() -> Option<&'static Path> {
    let has = |python: &&Path| {
        let found = Command::new(python).args(["-c", "import pytest"]).output();
        found.is_ok_and(|o| o.status.success())
    };
    ["/usr/bin/python3", "python3"].map(Path::new).into_iter().find(has)
}

/// Runs a test.
fn run(test: &str) -> Verdict {
    static PYTHON: OnceLock<Option<&Path>> = OnceLock::new();
    let Some(python) = PYTHON.get_or_init(python) else {
        return Skip("no package python3-pytest".into());
    };
    let o = pytest(python, test).output().unwrap();
    let out = String::from_utf8_lossy(&o.stdout);
    assert!(o.status.success(), "{out}\n{}", String::from_utf8_lossy(&o.stderr));
    // A test of several cases that has skipped one has run the others.
    match out.lines().find_map(|line| line.strip_prefix("SKIPPED")) {
        Some(why) if !out.contains(" passed") => Skip(why.into()),
        _ => Pass,
    }
}

fn every_test_in_python_is_one_of_this_program() -> Verdict {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(sources().join("tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if ["test_jupyter", "test_pandas"].contains(&&*name) || !name.starts_with("test_") {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let tests = text.lines().filter_map(|line| line.strip_prefix("def test_")?.split('(').next());
        found.extend(tests.map(|test| (name.clone(), format!("test_{test}"))));
    }
    let listed: BTreeSet<_> = NAMES.iter().map(|(file, name)| (file.to_string(), name.to_string())).collect();
    assert_eq!(listed, found);
    Pass
}

/// A newer Python than 3.11: of the system, or of those that pyenv has.
fn newer() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin/python3")).collect();
    all.extend(["python3.14", "python3.13", "python3.12", "/usr/bin/python3"].map(PathBuf::from));
    let is_newer = |python: &PathBuf| {
        let asked =
            Command::new(python).args(["-c", "import sys; print(sys.version_info >= (3, 12))"]).output();
        asked.is_ok_and(|o| o.stdout == b"True\n")
    };
    all.retain(is_newer);
    all.sort();
    all.pop()
}

fn all_tests_pass_with_a_newer_python_pandas_and_jupyter() -> Verdict {
    let Some(newer) = newer() else {
        return Skip("no package python3 of a Python from 3.12 on".into());
    };
    let dir = Dir::new("python-newer");
    let made = |command: &mut Command| -> Result<(), String> {
        let o = command.output().map_err(|e| e.to_string())?;
        if o.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&o.stderr).into_owned()) }
    };
    let python = dir.join("bin/python3");
    let installed = made(Command::new(&newer).args(["-m", "venv"]).arg(&*dir)).and_then(|()| {
        let words = ["-m", "pip", "install", "-q", "--timeout=20", "--retries=1"];
        let packages = ["pytest", "pandas", "ipykernel", "jupyter_client"];
        made(Command::new(&python).args(words).args(packages))
    });
    if let Err(why) = installed {
        return Skip(format!("no packages pandas and ipykernel for {}: {why}", newer.display()));
    }
    let o = pytest(&python, "").output().unwrap();
    let out = String::from_utf8_lossy(&o.stdout);
    assert!(o.status.success(), "{out}\n{}", String::from_utf8_lossy(&o.stderr));
    assert!(!out.contains("SKIPPED"), "{out}");
    Pass
}
