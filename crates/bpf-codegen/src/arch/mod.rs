//! Machines, as the code generator knows them: where their registers are saved, and how functions
//! and system calls get their arguments.
//!
//! A [`Machine`] is a table, one file each. Code is generated for the one of the
//! [`crate::target::Target`], which need not be that which runs this: golden files show the code
//! for each.
//!
//! ```text
//!  Machine          offsets in `struct pt_regs`                 x86_64, aarch64
//!  x86_64::regs     those that only the walks of stacks use     a machine without `walks` has none of these
//! ```

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("nothing is known of this machine: see docs/book/src/internals/x86-64.md");

pub mod aarch64;
mod machine;
pub mod x86_64;

pub use aarch64::AARCH64;
pub use machine::{FastEntry, Machine, Mark};
pub use x86_64::X86_64;

/// The bit of `task_struct.flags` that marks a kernel thread (`PF_KTHREAD`, linux/sched.h).
pub const PF_KTHREAD_BIT: i64 = 21;
/// The bit of `task_struct.flags` of a task that runs a guest (`PF_VCPU`, linux/sched.h).
pub const PF_VCPU: i64 = 1;

impl Machine {
    /// All of them.
    pub const ALL: [&'static Machine; 2] = [&X86_64, &AARCH64];

    /// The machine that runs this.
    pub const fn own() -> &'static Machine {
        if cfg!(target_arch = "aarch64") { &AARCH64 } else { &X86_64 }
    }
}

impl Default for &Machine {
    fn default() -> Self {
        Machine::own()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_offset_is_that_of_a_whole_register() {
        for machine in Machine::ALL {
            let all =
                [machine.ip, machine.sp, machine.result, machine.call, machine.user.at, machine.narrow.at];
            let lists = [
                machine.args,
                machine.go_args,
                machine.operands,
                &machine.call_args,
                &machine.narrow_call_args,
            ];
            for at in all.iter().chain(lists.into_iter().flatten()) {
                assert_eq!(at % 8, 0, "{}: {at}", machine.name);
            }
            let saved: Vec<i16> = machine.uregs.iter().map(|(at, _)| *at).collect();
            for at in [machine.ip, machine.sp].iter().chain(machine.args).chain(machine.operands) {
                assert!(saved.contains(at), "{}: {at}", machine.name);
            }
        }
    }
}
