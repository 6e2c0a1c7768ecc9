//! Members of the current thread's task, loaded directly.
//!
//! `curthread` is a plain number, so a read through it is a checked read: a helper call, a copy to
//! the stack, a branch. The task itself is always accessible, and the verifier allows a program
//! that obtained it by BTF to load its members with one instruction. So a load at a constant offset
//! from `curthread` becomes a direct load where it matches a numeric member of the task
//! (`Target::task_numbers`). The number `curthread` itself is fetched only where something else
//! uses it.
//!
//! Members that are pointers are excluded: the verifier forbids arithmetic on a typed pointer that
//! D allows.

use dif::ir::{BinOp, Function, InstData, IntBuiltin, Op, Space, Value};

use super::facts::each_term_use;
use crate::target::Target;

/// The task loads of a clause.
pub(crate) struct TaskLoads {
    /// For each value that is an address in the task: its offset from `curthread`.
    offset: Vec<Option<i64>>,
    /// Addresses that only direct loads use.
    unused: Vec<bool>,
}

impl TaskLoads {
    pub(crate) fn new(f: &Function, target: &Target) -> TaskLoads {
        if !target.task_btf || target.task_numbers.is_empty() {
            return TaskLoads { offset: Vec::new(), unused: Vec::new() };
        }
        let mut loads = TaskLoads { offset: vec![None; f.values.len()], unused: vec![false; f.values.len()] };
        let insts = || f.blocks.iter().flat_map(|b| &b.insts);
        let mut constant = vec![None; f.values.len()];
        for inst in insts() {
            let Some(r) = inst.result.map(|r| r.0 as usize) else { continue };
            let of = |v: &Value| loads.offset[v.0 as usize];
            let number = |v: &Value| constant[v.0 as usize];
            let offset = match &inst.op {
                Op::Const(n) => {
                    constant[r] = Some(*n);
                    None
                }
                Op::Builtin(IntBuiltin::CurThread) => Some(0),
                Op::AsPtr(Space::Kernel | Space::Unknown, v) | Op::AsInt(v) => of(v),
                Op::Bin(BinOp::Add, x, y) => match (of(x), number(y), number(x), of(y)) {
                    (Some(at), Some(n), ..) | (.., Some(n), Some(at)) => at.checked_add(n),
                    _ => None,
                },
                _ => None,
            };
            loads.offset[r] = offset;
        }
        // A use is behind the definition.
        loads.unused = loads.offset.iter().map(Option::is_some).collect();
        for block in &f.blocks {
            each_term_use(&block.term, |v| loads.unused[v.0 as usize] = false);
        }
        for inst in f.blocks.iter().rev().flat_map(|b| b.insts.iter().rev()) {
            let fine = match (&inst.op, inst.result) {
                (Op::Load { addr, size, .. }, _) => loads.direct(*addr, *size, target).is_some(),
                (Op::AsPtr(..) | Op::AsInt(_) | Op::Bin(..), Some(r)) => loads.unused[r.0 as usize],
                _ => false,
            };
            if !fine {
                inst.op.for_each_use(|v| loads.unused[v.0 as usize] = false);
            }
        }
        loads
    }

    /// The offset in the task of a load that can be direct.
    pub(super) fn direct(&self, addr: Value, size: u8, target: &Target) -> Option<i16> {
        let at = self.offset.get(addr.0 as usize).copied().flatten();
        let at = at.and_then(|at| i16::try_from(at).ok())?;
        target.task_numbers.contains(&(at, size)).then_some(at)
    }

    /// True for an instruction whose value is not needed.
    pub(crate) fn is_unused(&self, inst: &InstData) -> bool {
        inst.result.is_some_and(|r| self.unused.get(r.0 as usize).copied().unwrap_or(false))
    }
}
