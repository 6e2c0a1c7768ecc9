//! The benchmark harness: this tracer beside its peer and the floor, interleaved in one run.
//!
//! `cargo xtask bench [--vm KERNEL] [SECTION…]` runs it, here or in a guest. The peer is bpftrace, taken from a root made
//! with debootstrap (`DTRACE_PEERS`, default `target/vm/peers`) or from this machine; where there is none its columns say
//! so; likewise the C port of DTrace. The floor is the least any tracer can do: a program of two instructions.
//!
//! Every figure is the minimum (costs) or median (times) of interleaved rounds: on a shared machine the minimum is what
//! the code costs, and interleaving keeps a drift of the machine out of the ratios. All of them run at the highest
//! ordinary priority, where that is allowed, so that other work on the machine counts less.

mod all;
mod floor;
mod guest;
mod long;
mod peer;
mod run;
mod sections;
mod session;

use std::process::ExitCode;

use sections::Where;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--loop") {
        run::child_loop(&args[1..]);
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
    let here = if std::env::var_os("DTRACE_IN_VM").is_some() { Where::Guest } else { Where::Machine };
    if let Some(unknown) = args.iter().find(|a| !sections::ALL.iter().any(|(name, ..)| name == a)) {
        eprintln!(
            "bench: no section {unknown}; there are {}",
            sections::ALL.map(|(name, ..)| name).join(", ")
        );
        return ExitCode::FAILURE;
    }
    let wanted = |name: &str, place: Where| match args.is_empty() {
        true => place == here || place == Where::Both,
        false => args.iter().any(|a| a == name),
    };
    let tools = match run::Tools::new(peer::bpftrace(), peer::c_port()) {
        Ok(tools) => tools,
        Err(e) => {
            eprintln!("bench: {e}");
            return ExitCode::FAILURE;
        }
    };
    // SAFETY: no memory is involved. Where it is refused, the figures are what the machine leaves us.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    if here == Where::Guest && std::env::var_os("RANDOM_ADDRESSES").is_none() {
        // An emulator translates code that comes to lie elsewhere anew, which takes it longer than a short program runs. So
        // all programs of a run lie where they lay the time before.
        // SAFETY: no memory is involved.
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
