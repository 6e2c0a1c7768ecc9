//! User memory that clauses read at addresses made of their probe's arguments.
//!
//! A system call's arguments point to what the process has written, and sometimes has not touched yet: a name in a
//! file's page that is mapped and not in memory. A program that may wait can bring such a page before the clauses run,
//! when it is told where they will look. This says where, as far as it shows in the code: an argument, plus a constant,
//! also by way of a variable. What a pointer in user memory leads to does not show.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::ir::{BinOp, Function, IntBuiltin, Module, Op, Space, Ty, Value, VarId};

/// A stretch of user memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reach {
    /// It begins at this argument,
    pub arg: u8,
    /// and so many bytes on.
    pub offset: i64,
    /// How long it is.
    pub len: Length,
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Length {
    /// So many, at most.
    Bytes(u32),
    /// As many as this argument says.
    Arg(u8),
}

/// An access in user memory whose length does not show is taken to be so long.
const UNKNOWN: u32 = 64;

/// True when some clause reads user memory: there may be something to find.
pub fn reads_user(module: &Module) -> bool {
    module.clauses.iter().any(|c| c.func.instructions().any(|(_, i)| address(&c.func, &i.op).is_some()))
}

/// The address of a read of user memory.
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

/// Where values of a function come from.
struct Origins<'a> {
    ops: HashMap<Value, &'a Op>,
    /// What jumps give to the parameters of blocks.
    given: HashMap<Value, Vec<Value>>,
    stores: Vec<(VarId, Value)>,
}

impl<'a> Origins<'a> {
    fn new(func: &'a Function) -> Origins<'a> {
        let insts = || func.blocks.iter().flat_map(|b| &b.insts);
        let mut given: HashMap<Value, Vec<Value>> = HashMap::new();
        for block in &func.blocks {
            block.term.for_each_edge(|to, args| {
                let params = func.blocks.get(to.0 as usize).map_or(&[][..], |b| &b.params);
                for (param, arg) in params.iter().zip(args) {
                    given.entry(*param).or_default().push(*arg);
                }
            });
        }
        let store = |op: &Op| match op {
            Op::StoreVar(var, value) => Some((*var, *value)),
            _ => None,
        };
        Origins {
            ops: insts().filter_map(|i| Some((i.result?, &i.op))).collect(),
            given,
            stores: insts().filter_map(|i| store(&i.op)).collect(),
        }
    }

    fn constant(&self, value: Value) -> Option<i64> {
        match self.plain(value)? {
            Op::Const(c) => Some(*c),
            _ => None,
        }
    }

    fn argument(&self, value: Value) -> Option<u8> {
        match self.plain(value)? {
            Op::Builtin(IntBuiltin::Arg(n)) => Some(*n),
            _ => None,
        }
    }

    /// What gives a value, changes of view aside.
    fn plain(&self, value: Value) -> Option<&'a Op> {
        let mut op = *self.ops.get(&value)?;
        while let Op::AsInt(v) | Op::AsPtr(_, v) | Op::Ext { value: v, .. } = op {
            op = self.ops.get(v)?;
        }
        Some(op)
    }
}

/// What each of `clauses` reads of user memory; they are those of one firing, in order.
pub fn reaches(module: &Module, clauses: &[usize]) -> Vec<Vec<Reach>> {
    let funcs: Vec<&Function> = clauses.iter().filter_map(|c| Some(&module.clauses.get(*c)?.func)).collect();
    let origins: Vec<Origins<'_>> = funcs.iter().map(|f| Origins::new(f)).collect();
    let of = |at: usize| {
        let mut found = BTreeSet::new();
        for (_, inst) in funcs[at].instructions() {
            let Some(addr) = address(funcs[at], &inst.op) else { continue };
            let mut search = Search { origins: &origins, seen: HashSet::new(), args: BTreeSet::new() };
            search.follow(at, addr, 0);
            let len = length(module, &origins[at], &inst.op);
            found.extend(search.args.iter().map(|(arg, offset)| Reach { arg: *arg, offset: *offset, len }));
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

/// The way back from an address to arguments.
struct Search<'a> {
    origins: &'a [Origins<'a>],
    seen: HashSet<(usize, Value, i64)>,
    args: BTreeSet<(u8, i64)>,
}

/// So many steps back, at most: a chain that is longer is no address that somebody wrote down.
const STEPS: usize = 256;

impl Search<'_> {
    fn follow(&mut self, at: usize, value: Value, offset: i64) {
        if self.seen.len() >= STEPS || !self.seen.insert((at, value, offset)) {
            return;
        }
        let origins = &self.origins[at];
        for from in origins.given.get(&value).into_iter().flatten() {
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

    fn reach(arg: u8, offset: i64, len: Length) -> Reach {
        Reach { arg, offset, len }
    }

    #[test]
    fn strings_at_an_argument() {
        let m = module(
            "",
            &["v0:int = builtin arg1\nv1:ptr.user = asptr v0\nv2:str = loadstr v1\n\
             v3:int = const 8\nv4:int = add v0, v3\nv5:ptr.user = asptr v4\nv6:str = loadstr v5, v3"],
        );
        assert!(reads_user(&m));
        let all = [reach(1, 0, Length::Bytes(256)), reach(1, 8, Length::Bytes(8))];
        assert_eq!(reaches(&m, &[0]), [all]);
    }

    #[test]
    fn bytes_as_many_as_an_argument_says() {
        let m = module(
            "",
            &["v0:int = builtin arg1\nv1:int = builtin arg2\nv2:ptr.user = asptr v0\n\
             v3:ptr.scratch = alloca v1\ncopy v3, v2, v1"],
        );
        assert_eq!(reaches(&m, &[0]), [[reach(1, 0, Length::Arg(2))]]);
    }

    #[test]
    fn by_way_of_a_variable_and_a_choice() {
        let m = module(
            "var var0 = this \"p\" u64",
            &[
                "v0:int = builtin arg0\nbranch v0, b1, b2\nb1:\nv1:int = builtin arg3\njump b3(v1)\n\
                 b2:\nv2:int = builtin arg4\njump b3(v2)\nb3(v3:int):\nstorevar var0, v3",
                "v0:int = loadvar var0\nv1:ptr.user = asptr v0\nv2:int = load.u32 v1",
            ],
        );
        let all = vec![reach(3, 0, Length::Bytes(4)), reach(4, 0, Length::Bytes(4))];
        assert_eq!(reaches(&m, &[0, 1]), [vec![], all]);
    }

    #[test]
    fn what_does_not_show_and_what_is_no_user_memory() {
        let m = module(
            "",
            &["v0:int = builtin arg1\nv1:ptr.user = asptr v0\nv2:int = load.u64 v1\n\
             v3:ptr.user = asptr v2\nv4:str = loadstr v3\nv5:ptr.kernel = asptr v0\nv6:int = load.u64 v5"],
        );
        assert_eq!(reaches(&m, &[0]), [[reach(1, 0, Length::Bytes(8))]]);
        let kernel = module("", &["v0:int = builtin arg1\nv1:ptr.kernel = asptr v0\nv2:int = load.u64 v1"]);
        assert!(!reads_user(&kernel));
        assert_eq!(reaches(&kernel, &[0]), [vec![]]);
    }
}
