//! What programs read of captured firings that these do not have.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use plane::builtin::Builtin;

/// A sum, for one message at the end.
#[derive(Debug, Default)]
pub(crate) struct Missing(Mutex<Sum>);

#[derive(Debug, Default)]
struct Sum {
    builtins: BTreeSet<String>,
    reads: u64,
    /// The address of the first read.
    first: u64,
    stacks: u64,
}

impl Missing {
    fn with(&self, change: impl FnOnce(&mut Sum)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A built-in variable.
    pub(super) fn builtin(&self, builtin: Builtin) {
        self.with(|sum| {
            sum.builtins.insert(builtin.to_string());
        });
    }

    /// Memory at an address, or what is made of it.
    pub(super) fn memory(&self, address: u64) {
        self.with(|sum| {
            if sum.reads == 0 {
                sum.first = address;
            }
            sum.reads += 1;
        });
    }

    /// A stack.
    pub(super) fn stack(&self) {
        self.with(|sum| sum.stacks += 1);
    }

    /// The messages.
    pub(crate) fn messages(&self) -> Vec<String> {
        let sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        if !sum.builtins.is_empty() {
            let names: Vec<&str> = sum.builtins.iter().map(String::as_str).collect();
            all.push(format!(
                "not in the capture, and 0 or empty in this replay: {} (of some or all firings)",
                names.join(", ")
            ));
        }
        if sum.reads > 0 {
            all.push(format!(
                "{} reads of memory that is not in the capture, the first at 0x{:x}: they are invalid addresses in this replay",
                sum.reads, sum.first
            ));
        }
        if sum.stacks > 0 {
            all.push(format!("{} stacks are not in the capture", sum.stacks));
        }
        all
    }
}
