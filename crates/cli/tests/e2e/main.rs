//! End-to-end tests: the real binary on the running kernel, against workloads of known size.
//!
//! A test target with the runner of [`testing`], because the tests must also run inside a guest
//! without cargo. There, `DTRACE_BIN` is the path of the binary. With `--workload NAME COUNT` the
//! program is itself the workload that a test traces.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate testing;

mod actions;
mod aggregations;
mod args;
mod basics;
mod builtins;
mod command;
mod control;
mod cpc;
mod deadman;
mod documents;
mod drilldown;
mod elsewhere;
mod faults;
mod fbt;
mod flow;
mod frontend;
mod ids;
mod interrupts;
mod kernel;
mod leaves_nothing;
mod long;
mod memory;
mod modules;
mod objects;
mod order;
mod profile;
mod restricted;
mod stability;
mod stacks;
mod subroutines;
mod surroundings;
mod symbols;
mod syscalls;
mod targets;
mod threads;
mod tool;
mod tracepoints;
mod translators;
mod variables;
mod workload;

use std::process::ExitCode;

pub(crate) use testing::{Test, Verdict};

fn main() -> ExitCode {
    // A process started in the background may ignore ^C, and dtrace would inherit that.
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: the default is set before there is another thread.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    testing::main("e2e", GROUPS, workload::run)
}

/// In this order. The test for objects that remain runs last.
const GROUPS: &[&[Test]] = &[
    basics::TESTS,
    builtins::TESTS,
    command::TESTS,
    control::TESTS,
    stability::TESTS,
    subroutines::TESTS,
    documents::TESTS,
    variables::TESTS,
    actions::TESTS,
    aggregations::TESTS,
    objects::TESTS,
    syscalls::TESTS,
    deadman::TESTS,
    args::TESTS,
    tracepoints::TESTS,
    profile::TESTS,
    stacks::TESTS,
    order::TESTS,
    flow::TESTS,
    cpc::TESTS,
    fbt::TESTS,
    ids::TESTS,
    modules::TESTS,
    drilldown::TESTS,
    elsewhere::TESTS,
    faults::TESTS,
    frontend::TESTS,
    kernel::TESTS,
    long::TESTS,
    memory::TESTS,
    translators::TESTS,
    targets::TESTS,
    threads::TESTS,
    symbols::TESTS,
    surroundings::TESTS,
    restricted::TESTS,
    interrupts::TESTS,
    leaves_nothing::TESTS,
];
