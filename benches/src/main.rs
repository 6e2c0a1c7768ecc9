//! The benchmark harness: this tracer beside its peer and the floor, interleaved in one run.
//!
//! `cargo xtask bench [start|event|rows|exit]` runs it. The peer is bpftrace, taken from a root made with debootstrap
//! (`DTRACE_PEERS`, default `target/vm/peers`) or from this machine; where there is none its columns say so. The floor
//! is the least any tracer can do: a raw-tracepoint program of two instructions.
//!
//! Every figure is the minimum (costs) or median (times) of interleaved rounds: on a shared machine the minimum is what
//! the code costs, and interleaving keeps a drift of the machine out of the ratios. All of them run at the highest
//! ordinary priority, where that is allowed, so that other work on the machine counts less.

mod long;
mod peer;
mod run;
mod sections;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--loop") {
        run::child_loop(&args[1..]);
        return ExitCode::SUCCESS;
    }
    let wanted = |name: &str| args.is_empty() || args.iter().any(|a| a == name);
    let peer = peer::find();
    let tools = match run::Tools::new(peer) {
        Ok(tools) => tools,
        Err(e) => {
            eprintln!("bench: {e}");
            return ExitCode::FAILURE;
        }
    };
    // SAFETY: no memory is involved. Where it is refused, the figures are what the machine leaves us.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    println!("{}", tools.heading());
    for (name, section) in sections::ALL {
        if wanted(name) {
            section(&tools);
        }
    }
    ExitCode::SUCCESS
}
