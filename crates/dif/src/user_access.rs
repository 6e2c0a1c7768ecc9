//! Finds user memory that clauses read at addresses computed from their probe's arguments.
//!
//! The arguments of a system call point to memory that the process has set up but may not have
//! touched yet. An example is a name in a page of a mapped file that is not yet in memory. A
//! program that may sleep can fault such a page in before the clauses run, if it knows the
//! addresses. This module derives them from the code: an argument plus a constant, also when the
//! address was stored in a variable. It cannot derive addresses that were loaded from user memory.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::ir::{BinOp, Function, IntBuiltin, Module, Op, Space, Ty, Value, VarId};

/// A range of user memory that a clause reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserAccess {
    /// The argument that holds the start address.
    pub arg: u8,
    /// Offset from that address in bytes.
    pub offset: i64,
    /// Length of the range.
    pub len: Length,
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Length {
    /// At most this number of bytes.
    Bytes(u32),
    /// As many bytes as this argument says.
    Arg(u8),
}

/// The assumed length of an access whose length is not known at compile time.
const UNKNOWN: u32 = 64;

/// True when some clause reads user memory.
pub fn reads_user(module: &Module) -> bool {
    module.clauses.iter().any(|c| c.func.instructions().any(|(_, i)| address(&c.func, &i.op).is_some()))
}

/// The address, if the operation reads user memory.
fn address(func: &Function, op: &Op) -> Option<Value> {
    let addr = match op {
        Op::Load { addr, .. }
        | Op::LoadStr { addr, .. }
        | Op::Copy { src: addr, .. }
        | Op::CopyObj { addr, .. } => *addr,
        _ => return None,
    };
    (func.values.get(addr.0 as usize) == Some(&Ty::Ptr(Space::User))).then_some(addr)
}

/// The definitions of the values of a function.
struct Origins<'a> {
    ops: HashMap<Value, &'a Op>,
    /// For each block parameter, the arguments that jumps pass.
    passed: HashMap<Value, Vec<Value>>,
    stores: Vec<(VarId, Value)>,
}

impl<'a> Origins<'a> {
    fn new(func: &'a Function) -> Origins<'a> {
        let insts = || func.blocks.iter().flat_map(|b| &b.insts);
        let mut passed: HashMap<Value, Vec<Value>> = HashMap::new();
        for block in &func.blocks {
            block.term.for_each_edge(|to, args| {
                let params = func.blocks.get(to.0 as usize).map_or(&[][..], |b| &b.params);
                for (param, arg) in params.iter().zip(args) {
                    passed.entry(*param).or_default().push(*arg);
                }
            });
        }
        let store = |op: &Op| match op {
            Op::StoreVar(var, value) => Some((*var, *value)),
            _ => None,
        };
        Origins {
            ops: insts().filter_map(|i| Some((i.result?, &i.op))).collect(),
            passed,
            stores: insts().filter_map(|i| store(&i.op)).collect(),
        }
    }

    fn constant(&self, value: Value) -> Option<i64> {
        match self.underlying_op(value)? {
            Op::Const(c) => Some(*c),
            _ => None,
        }
    }

    fn argument(&self, value: Value) -> Option<u8> {
        match self.underlying_op(value)? {
            Op::Builtin(IntBuiltin::Arg(n)) => Some(*n),
            _ => None,
        }
    }

    /// The operation that defines a value, without reinterpretations.
    fn underlying_op(&self, value: Value) -> Option<&'a Op> {
        let mut op = *self.ops.get(&value)?;
        while let Op::AsInt(v) | Op::AsPtr(_, v) | Op::Ext { value: v, .. } = op {
            op = self.ops.get(v)?;
        }
        Some(op)
    }
}

/// The user memory that each of `clauses` reads. They are the clauses of one firing, in order.
pub fn user_accesses(module: &Module, clauses: &[usize]) -> Vec<Vec<UserAccess>> {
    let funcs: Vec<&Function> = clauses.iter().filter_map(|c| Some(&module.clauses.get(*c)?.func)).collect();
    let origins: Vec<Origins<'_>> = funcs.iter().map(|f| Origins::new(f)).collect();
    let of = |at: usize| {
        let mut found = BTreeSet::new();
        for (_, inst) in funcs[at].instructions() {
            let Some(addr) = address(funcs[at], &inst.op) else { continue };
            let mut search = ArgSearch { origins: &origins, seen: HashSet::new(), args: BTreeSet::new() };
            search.follow(at, addr, 0);
            let len = length(module, &origins[at], &inst.op);
            found.extend(search.args.iter().map(|(arg, offset)| UserAccess {
                arg: *arg,
                offset: *offset,
                len,
            }));
        }
        found.into_iter().collect()
    };
    (0..funcs.len()).map(of).collect()
}

fn length(module: &Module, origins: &Origins<'_>, op: &Op) -> Length {
    let bytes = |n: i64| Length::Bytes(u32::try_from(n).unwrap_or(UNKNOWN));
    match op {
        Op::Load { size, .. } => Length::Bytes(u32::from(*size)),
        Op::CopyObj { size, .. } => Length::Bytes(*size),
        Op::LoadStr { max, .. } => {
            let max =
                max.and_then(|m| origins.constant(m)).filter(|m| (0..i64::from(module.strsize)).contains(m));
            bytes(max.unwrap_or(i64::from(module.strsize)))
        }
        Op::Copy { len, .. } => match (origins.constant(*len), origins.argument(*len)) {
            (Some(n), _) => bytes(n),
            (None, Some(n)) => Length::Arg(n),
            (None, None) => Length::Bytes(UNKNOWN),
        },
        _ => Length::Bytes(UNKNOWN),
    }
}

/// A backward search from an address to arguments.
struct ArgSearch<'a> {
    origins: &'a [Origins<'a>],
    seen: HashSet<(usize, Value, i64)>,
    args: BTreeSet<(u8, i64)>,
}

/// Maximum number of backward steps. A longer chain is not an address computation that somebody
/// wrote.
const STEPS: usize = 256;

impl ArgSearch<'_> {
    fn follow(&mut self, at: usize, value: Value, offset: i64) {
        if self.seen.len() >= STEPS || !self.seen.insert((at, value, offset)) {
            return;
        }
        let origins = &self.origins[at];
        for from in origins.passed.get(&value).into_iter().flatten() {
            self.follow(at, *from, offset);
        }
        match origins.ops.get(&value) {
            Some(Op::Builtin(IntBuiltin::Arg(n))) => {
                self.args.insert((*n, offset));
            }
            Some(Op::AsPtr(_, v) | Op::AsInt(v) | Op::Ext { value: v, .. }) => self.follow(at, *v, offset),
            Some(Op::Bin(op @ (BinOp::Add | BinOp::Sub), a, b)) => {
                let sign = if *op == BinOp::Add { 1 } else { -1 };
                match (origins.constant(*a), origins.constant(*b)) {
                    (_, Some(c)) => self.follow(at, *a, offset.wrapping_add(c.wrapping_mul(sign))),
                    (Some(c), None) if sign == 1 => self.follow(at, *b, offset.wrapping_add(c)),
                    _ => {
                        self.follow(at, *a, offset);
                        self.follow(at, *b, offset);
                    }
                }
            }
            Some(Op::Bin(BinOp::And | BinOp::Or, a, b)) => {
                self.follow(at, *a, offset);
                self.follow(at, *b, offset);
            }
            Some(Op::LoadVar(var)) => {
                for (clause, origins) in self.origins.iter().enumerate() {
                    for (_, stored) in origins.stores.iter().filter(|(v, _)| v == var) {
                        self.follow(clause, *stored, offset);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(head: &str, bodies: &[&str]) -> Module {
        let clauses: String =
            bodies.iter().map(|b| format!("clause \"c\" {{\nb0:\n{b}\n    return\n}}\n")).collect();
        let text = format!("module strsize 256\nstring s0 = \"\"\n{head}\n{clauses}");
        let module = crate::text::parse(&text).unwrap();
        crate::verify(&module).unwrap();
        module
    }

    fn access(arg: u8, offset: i64, len: Length) -> UserAccess {
        UserAccess { arg, offset, len }
    }

    #[test]
    fn strings_at_an_argument_plus_a_constant_are_found() {
        let m = module(
            "",
            &["v0:int = builtin arg1\nv1:ptr.user = asptr v0\nv2:str = loadstr v1\n\
             v3:int = const 8\nv4:int = add v0, v3\nv5:ptr.user = asptr v4\nv6:str = loadstr v5, v3"],
        );
        assert!(reads_user(&m));
        let all = [access(1, 0, Length::Bytes(256)), access(1, 8, Length::Bytes(8))];
        assert_eq!(user_accesses(&m, &[0]), [all]);
    }

    #[test]
    fn the_length_of_a_copy_may_be_another_argument() {
        let m = module(
            "",
            &["v0:int = builtin arg1\nv1:int = builtin arg2\nv2:ptr.user = asptr v0\n\
             v3:ptr.scratch = alloca v1\ncopy v3, v2, v1"],
        );
        assert_eq!(user_accesses(&m, &[0]), [[access(1, 0, Length::Arg(2))]]);
    }

    #[test]
    fn addresses_are_followed_through_variables_and_block_parameters() {
        let m = module(
            "var var0 = this \"p\" int",
            &[
                "v0:int = builtin arg0\nbranch v0, b1, b2\nb1:\nv1:int = builtin arg3\njump b3(v1)\n\
                 b2:\nv2:int = builtin arg4\njump b3(v2)\nb3(v3:int):\nstorevar var0, v3",
                "v0:int = loadvar var0\nv1:ptr.user = asptr v0\nv2:int = load.u32 v1",
            ],
        );
        let all = vec![access(3, 0, Length::Bytes(4)), access(4, 0, Length::Bytes(4))];
        assert_eq!(user_accesses(&m, &[0, 1]), [vec![], all]);
    }

    #[test]
    fn loaded_addresses_and_kernel_memory_are_left_out() {
        let m = module(
            "",
            &["v0:int = builtin arg1\nv1:ptr.user = asptr v0\nv2:int = load.u64 v1\n\
             v3:ptr.user = asptr v2\nv4:str = loadstr v3\nv5:ptr.kernel = asptr v0\nv6:int = load.u64 v5"],
        );
        assert_eq!(user_accesses(&m, &[0]), [[access(1, 0, Length::Bytes(8))]]);
        let kernel = module("", &["v0:int = builtin arg1\nv1:ptr.kernel = asptr v0\nv2:int = load.u64 v1"]);
        assert!(!reads_user(&kernel));
        assert_eq!(user_accesses(&kernel, &[0]), [vec![]]);
    }
}
