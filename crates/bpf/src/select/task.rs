//! Members of the current thread's task, loaded directly.
//!
//! `curthread` is a plain number, and what is read through it is a checked read: a helper, a copy to the stack, a branch. But
//! the task itself is always there, and the verifier lets a program that asked for it by BTF load its members with one
//! instruction. So loads at a constant distance from `curthread` that are exactly a number among the task's members
//! (`Target::task_numbers`) become that, and the number itself is not even fetched where nothing else uses it.
//!
//! Pointers among the members are not: what the verifier says of a pointer that it knows forbids arithmetic that D allows.

use dif::ir::{BinOp, Function, InstData, IntBuiltin, Op, Space, Value};

use super::layout::each_term_use;
use super::{Clause, Val};
use crate::mir::{Operand, Size};
use crate::program::Target;

/// What the values of a clause have to do with the task.
pub(crate) struct TaskLoads {
    /// Bytes from `curthread`, of an address that is so.
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
        // Users stand behind what they use.
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

    /// Where in the task a load is that can be a direct one.
    fn direct(&self, addr: Value, size: u8, target: &Target) -> Option<i16> {
        let at = self.offset.get(addr.0 as usize).copied().flatten();
        let at = at.and_then(|at| i16::try_from(at).ok())?;
        target.task_numbers.contains(&(at, size)).then_some(at)
    }

    /// True for an instruction whose value nobody needs.
    pub(crate) fn is_unused(&self, inst: &InstData) -> bool {
        inst.result.is_some_and(|r| self.unused.get(r.0 as usize).copied().unwrap_or(false))
    }
}

impl Clause<'_, '_> {
    /// Loads a number of the task directly, if that can be.
    pub(crate) fn load_of_task(&mut self, inst: &InstData, size: u8, signed: bool, addr: Value) -> bool {
        let Some(at) = self.tasks.direct(addr, size, self.env.target) else { return false };
        let Some(width) = Size::of(u32::from(size)) else { return false };
        let task = self.task();
        let raw = self.b.load(width, task, at);
        let value = match signed && size < 8 {
            true => super::int::extend(self.b, size * 8, true, raw),
            false => raw,
        };
        self.set(inst, Val::Int(Operand::V(value)));
        true
    }
}
