//! End-to-end tests: the real binary on the running kernel, against workloads of known size.
//!
//! A test target with the runner of [`testing`], because the tests must also run inside a guest
//! without cargo. `DTRACE_BIN` names another binary, as that of `cargo xtask test --static`. With
//! `--workload NAME COUNT` the program is itself the workload that a test traces.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate testing;

#[path = "../../../heat/tests/read/mod.rs"]
mod read;
#[path = "../../../timeline/tests/read/mod.rs"]
mod trace;

mod actions;
mod aggregations;
mod anonymous;
mod args;
mod basics;
mod blocks;
mod boot;
mod buffers;
mod builtins;
mod captures;
mod captures_wide;
mod command;
mod completions;
mod container_kinds;
mod container_names;
mod containers;
mod control;
mod counters;
mod cpc;
mod deadman;
mod debug_files;
mod debuggers;
mod definitions;
mod derived;
mod documents;
mod drilldown;
mod elsewhere;
mod ending;
mod evaltime;
mod events;
mod exports;
mod faults;
mod fbt;
mod flames;
mod flight;
mod flow;
mod follow;
mod follow_counts;
mod foreign;
mod formats;
mod frontend;
mod guests;
mod heat;
mod hours;
mod ids;
mod images;
mod interrupts;
mod iscsi_initiator;
mod kernel;
mod kernel_walk;
mod leaves_nothing;
mod limited;
mod lines;
mod live;
mod lives;
mod locks;
mod long;
mod machine;
mod many;
mod memory;
mod metrics;
mod modules;
mod namespaces;
mod nasty;
mod network;
mod objects;
mod options;
mod order;
mod packages;
mod packets;
mod pcap;
mod pid;
mod pid_chosen;
mod pid_go;
mod pid_hard;
mod pid_later;
mod pid_odd;
mod pid_parts;
mod pid_returns;
mod postmortem;
mod processes;
mod profile;
mod python;
mod recorded;
mod restricted;
mod speculation;
mod stability;
mod stable;
mod stable_cgroup;
mod stable_counters;
mod stable_drops;
mod stable_files;
mod stable_fpuinfo;
mod stable_icmp;
mod stable_io;
mod stable_io_layers;
mod stable_ip;
mod stable_irq;
mod stable_iscsi;
mod stable_kvm;
mod stable_lockstat;
mod stable_mib;
mod stable_mib_errors;
mod stable_nfs;
mod stable_nfs4;
mod stable_plockstat;
mod stable_proc;
mod stable_sched;
mod stable_tcp;
mod stable_udp;
mod stacks;
mod subroutines;
mod surroundings;
mod symbols;
mod syscalls;
mod targets;
mod threads;
mod timeline;
mod tool;
mod toolkit;
mod toolkit_calls;
mod toolkit_cpu;
mod toolkit_disks;
mod toolkit_files;
mod toolkit_index;
mod toolkit_io;
mod toolkit_kernel;
mod toolkit_memory;
mod toolkit_net;
mod toolkit_processes;
mod toolkit_sched;
mod toolkit_sockets;
mod toolkit_user;
mod tracepoints;
mod translators;
mod unwinding;
mod unwinding_narrow;
mod usdt;
mod usdt_definitions;
mod usdt_dynamic;
mod usdt_fair;
mod usdt_files;
mod usdt_formats;
mod usdt_gone;
mod usdt_held;
mod usdt_languages;
mod usdt_later;
mod usdt_places;
mod user_types;
mod variables;
mod watching;
mod wires;
mod workload;

use std::process::ExitCode;

pub(crate) use testing::{Test, Verdict};

fn main() -> ExitCode {
    testing::heed_signals();
    testing::main(GROUPS, workload::run)
}

/// In this order. The test for objects that remain runs last.
const GROUPS: &[&[Test]] = &[
    basics::TESTS,
    boot::TESTS,
    builtins::TESTS,
    command::TESTS,
    completions::TESTS,
    control::TESTS,
    container_kinds::TESTS,
    container_names::TESTS,
    containers::TESTS,
    images::TESTS,
    stability::TESTS,
    subroutines::TESTS,
    derived::TESTS,
    stable::TESTS,
    stable_cgroup::TESTS,
    stable_drops::TESTS,
    stable_counters::TESTS,
    stable_icmp::TESTS,
    stable_files::TESTS,
    stable_io::TESTS,
    stable_io_layers::TESTS,
    stable_ip::TESTS,
    stable_irq::TESTS,
    stable_fpuinfo::TESTS,
    stable_iscsi::TESTS,
    stable_kvm::TESTS,
    stable_lockstat::TESTS,
    stable_mib::TESTS,
    stable_mib_errors::TESTS,
    stable_nfs::TESTS,
    stable_nfs4::TESTS,
    stable_plockstat::TESTS,
    stable_proc::TESTS,
    stable_sched::TESTS,
    stable_tcp::TESTS,
    toolkit::TESTS,
    toolkit_cpu::TESTS,
    toolkit_user::TESTS,
    toolkit_sockets::TESTS,
    toolkit_kernel::TESTS,
    toolkit_disks::TESTS,
    toolkit_sched::TESTS,
    toolkit_processes::TESTS,
    toolkit_calls::TESTS,
    toolkit_files::TESTS,
    toolkit_index::TESTS,
    toolkit_io::TESTS,
    toolkit_memory::TESTS,
    toolkit_net::TESTS,
    stable_udp::TESTS,
    documents::TESTS,
    variables::TESTS,
    actions::TESTS,
    pcap::TESTS,
    pid::TESTS,
    usdt::TESTS,
    usdt_definitions::TESTS,
    usdt_formats::TESTS,
    usdt_dynamic::TESTS,
    usdt_fair::TESTS,
    usdt_files::TESTS,
    usdt_gone::TESTS,
    usdt_held::TESTS,
    usdt_languages::TESTS,
    usdt_later::TESTS,
    usdt_places::TESTS,
    pid_chosen::TESTS,
    pid_go::TESTS,
    pid_hard::TESTS,
    lines::TESTS,
    user_types::TESTS,
    pid_later::TESTS,
    pid_odd::TESTS,
    pid_parts::TESTS,
    pid_returns::TESTS,
    many::TESTS,
    speculation::TESTS,
    buffers::TESTS,
    aggregations::TESTS,
    hours::TESTS,
    objects::TESTS,
    syscalls::TESTS,
    deadman::TESTS,
    debug_files::TESTS,
    debuggers::TESTS,
    definitions::TESTS,
    args::TESTS,
    tracepoints::TESTS,
    profile::TESTS,
    python::TESTS,
    recorded::TESTS,
    captures::TESTS,
    captures_wide::TESTS,
    flight::TESTS,
    stacks::TESTS,
    kernel_walk::TESTS,
    unwinding::TESTS,
    unwinding_narrow::TESTS,
    options::TESTS,
    order::TESTS,
    ending::TESTS,
    flow::TESTS,
    follow::TESTS,
    follow_counts::TESTS,
    foreign::TESTS,
    formats::TESTS,
    flames::TESTS,
    exports::TESTS,
    events::TESTS,
    anonymous::TESTS,
    live::TESTS,
    guests::TESTS,
    heat::TESTS,
    metrics::TESTS,
    timeline::TESTS,
    cpc::TESTS,
    fbt::TESTS,
    blocks::TESTS,
    packages::TESTS,
    packets::TESTS,
    ids::TESTS,
    modules::TESTS,
    namespaces::TESTS,
    nasty::TESTS,
    drilldown::TESTS,
    elsewhere::TESTS,
    faults::TESTS,
    frontend::TESTS,
    kernel::TESTS,
    long::TESTS,
    memory::TESTS,
    limited::TESTS,
    translators::TESTS,
    postmortem::TESTS,
    processes::TESTS,
    targets::TESTS,
    evaltime::TESTS,
    threads::TESTS,
    symbols::TESTS,
    watching::TESTS,
    surroundings::TESTS,
    restricted::TESTS,
    interrupts::TESTS,
    leaves_nothing::TESTS,
];
