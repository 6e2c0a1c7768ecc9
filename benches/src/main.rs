//! The benchmark harness: this tracer beside its peer and the floor, interleaved in one run.
//!
//! `cargo xtask bench [--vm KERNEL] [SECTION…]` runs it, here or in a guest. The peer is bpftrace,
//! from a root file system made with debootstrap (`DTRACE_PEERS`, default `target/vm/peers`) or
//! from this machine. The C port of DTrace is used likewise. If one of them is missing, its columns
//! say so. The floor is the minimum cost for any tracer: a program of two instructions.
//!
//! Every figure is the minimum (costs) or median (times) of interleaved rounds. On a shared machine
//! the minimum is the cost of the code, and interleaving keeps a drift of the machine out of the
//! ratios. All programs run at the highest ordinary priority, if permitted, so that other work on
//! the machine has less effect.

mod all;
mod arrivals;
mod built;
mod calls;
mod captures;
mod compiled;
mod disabled;
mod dynamic;
mod elsewhere;
mod flame;
mod floor;
mod followed;
mod guest;
mod keys;
mod long;
mod output;
mod peer;
mod run;
mod second;
mod sections;
mod session;
mod sinks;
mod speculation;
mod stable;
mod stacks;
mod usdt;
mod user;

use std::process::ExitCode;

use sections::Place;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--loop") {
        run::child_loop(&args[1..]);
        return ExitCode::SUCCESS;
    }
    if args.first().is_some_and(|a| a == "--called") {
        user::child();
        return ExitCode::SUCCESS;
    }
    if args.first().is_some_and(|a| a == "--forks") {
        followed::child();
        return ExitCode::SUCCESS;
    }
    if args.first().is_some_and(|a| a == "--floor") {
        return match floor::child(&args[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("floor: {e}");
                ExitCode::FAILURE
            }
        };
    }
    let here = if std::env::var_os("DTRACE_IN_VM").is_some() { Place::Guest } else { Place::Machine };
    if let Some(unknown) = args.iter().find(|a| !sections::ALL.iter().any(|(name, ..)| name == a)) {
        eprintln!(
            "bench: no section {unknown}; there are {}",
            sections::ALL.map(|(name, ..)| name).join(", ")
        );
        return ExitCode::FAILURE;
    }
    let wanted = |name: &str, place: Place| match args.is_empty() {
        true => place == here || place == Place::Both,
        false => args.iter().any(|a| a == name),
    };
    let tools = match run::Tools::new(peer::bpftrace(), peer::c_port()) {
        Ok(tools) => tools,
        Err(e) => {
            eprintln!("bench: {e}");
            return ExitCode::FAILURE;
        }
    };
    // SAFETY: the call accesses no memory. If it is not permitted, the priority stays as it is.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    if here == Place::Guest && std::env::var_os("RANDOM_ADDRESSES").is_none() {
        // An emulator must translate code again when it is at another address, which takes longer
        // than a short program runs. So address randomization is disabled for all programs of a
        // run. SAFETY: the call accesses no memory.
        unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
    }
    println!("{}", tools.heading());
    for (name, place, section) in sections::ALL {
        if wanted(name, place) {
            section(&tools);
        }
    }
    ExitCode::SUCCESS
}
