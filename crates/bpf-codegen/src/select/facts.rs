//! Facts about a clause's values, computed before code generation: how often each is used, which
//! may be NULL, how each string is represented, and which temporary it takes.

use dif::ir::{Function, Op, StrBuiltin, Term, Ty, Value};

/// The representation of a string value, decided before code generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An index.
    Interned,
    /// Two words.
    Comm,
    /// Memory.
    Bytes,
}

impl Shape {
    /// The representation that can hold either.
    pub(crate) fn join(self, other: Shape) -> Shape {
        if self == other { self } else { Shape::Bytes }
    }

    /// True when the representation needs a temporary in the slot.
    pub(crate) fn needs_temp(self) -> bool {
        self == Shape::Bytes
    }
}

/// Facts about a function, computed before code generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Number of uses of each value.
    pub(crate) uses: Vec<u32>,
    /// Whether each value may be a NULL string.
    pub(crate) nulls: Vec<bool>,
    pub(crate) temps: Temps,
}

impl Facts {
    /// The facts of a function. `null_vars` is the module's [`dif::ir::Module::null_vars`].
    pub(crate) fn new(f: &Function, null_vars: &[bool]) -> Facts {
        let mut uses = vec![0; f.values.len()];
        for block in &f.blocks {
            for inst in &block.insts {
                inst.op.for_each_use(|v| uses[v.0 as usize] += 1);
            }
            each_term_use(&block.term, |v| uses[v.0 as usize] += 1);
        }
        Facts { uses, nulls: f.nulls(null_vars), temps: Temps::new(f) }
    }
}

/// The temporaries that a clause's strings use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Temps {
    /// The temporary's number, for each value that needs one.
    pub(crate) of: Vec<Option<u32>>,
    /// The representation of each value of type string.
    pub(crate) shape: Vec<Option<Shape>>,
    /// Number of temporaries.
    pub(crate) count: u32,
}

impl Temps {
    /// Edges only go forward, so a value is live from its definition to the last instruction that
    /// uses it.
    pub(crate) fn new(f: &Function) -> Temps {
        let n = f.values.len();
        let shape = shapes(f);
        let mut last = vec![0usize; n];
        let mut first = vec![usize::MAX; n];
        let mut at = 0;
        let mut block_start = Vec::new();
        for block in &f.blocks {
            block_start.push(at);
            for p in &block.params {
                first[p.0 as usize] = at;
            }
            for inst in &block.insts {
                inst.op.for_each_use(|v| last[v.0 as usize] = last[v.0 as usize].max(at));
                if let Some(r) = inst.result {
                    first[r.0 as usize] = at;
                }
                at += 1;
            }
            each_term_use(&block.term, |v| last[v.0 as usize] = last[v.0 as usize].max(at));
            at += 1;
        }
        // A parameter's temporary is written where the jumps to its block are.
        let mut at = 0;
        for block in &f.blocks {
            at += block.insts.len();
            let targets: Vec<(dif::ir::Block, &Vec<Value>)> = match &block.term {
                Term::Jump(b, args) => vec![(*b, args)],
                Term::Branch { then, other, .. } => vec![(then.0, &then.1), (other.0, &other.1)],
                _ => Vec::new(),
            };
            for (target, _) in targets {
                for p in &f.blocks[target.0 as usize].params {
                    first[p.0 as usize] = first[p.0 as usize].min(at);
                }
            }
            at += 1;
        }
        let mut order: Vec<usize> =
            (0..n).filter(|i| shape[*i].is_some_and(Shape::needs_temp) && first[*i] != usize::MAX).collect();
        order.sort_by_key(|i| (first[*i], *i));
        let mut free_from: Vec<usize> = Vec::new();
        let mut of = vec![None; n];
        for i in order {
            let slot = free_from.iter().position(|from| *from <= first[i]).unwrap_or_else(|| {
                free_from.push(0);
                free_from.len() - 1
            });
            // The last instruction that reads the temporary must not write its own result to it.
            free_from[slot] = last[i].max(first[i]) + 1;
            of[i] = Some(slot as u32);
        }
        Temps { of, shape, count: free_from.len() as u32 }
    }
}

/// The representation of each string value.
fn shapes(f: &Function) -> Vec<Option<Shape>> {
    let mut shape: Vec<Option<Shape>> = f.values.iter().map(|_| None).collect();
    // Subroutines take strings as bytes.
    let mut called = vec![false; f.values.len()];
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        if let Op::Call(_, args) = &inst.op {
            args.iter().for_each(|a| called[a.0 as usize] = true);
        }
    }
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        let Some(r) = inst.result else { continue };
        if f.values[r.0 as usize] == Ty::Str {
            shape[r.0 as usize] = Some(match inst.op {
                Op::StrConst(_) => Shape::Interned,
                Op::BuiltinStr(StrBuiltin::Execname) if !called[r.0 as usize] => Shape::Comm,
                Op::BuiltinStr(StrBuiltin::Execname) => Shape::Bytes,
                Op::BuiltinStr(_) => Shape::Interned,
                _ => Shape::Bytes,
            });
        }
    }
    // Blocks are in topological order, so all jumps to a block are processed before the block's own
    // jumps.
    for block in &f.blocks {
        let mut pass = |target: dif::ir::Block, args: &[Value]| {
            for (p, a) in f.blocks[target.0 as usize].params.iter().zip(args) {
                if f.values[p.0 as usize] == Ty::Str {
                    let from = match shape[a.0 as usize].unwrap_or(Shape::Bytes) {
                        Shape::Comm if called[p.0 as usize] => Shape::Bytes,
                        from => from,
                    };
                    let now = shape[p.0 as usize];
                    shape[p.0 as usize] = Some(now.map_or(from, |now| now.join(from)));
                }
            }
        };
        match &block.term {
            Term::Jump(b, args) => pass(*b, args),
            Term::Branch { then, other, .. } => {
                pass(then.0, &then.1);
                pass(other.0, &other.1);
            }
            Term::Return | Term::PredicateFalse => {}
        }
    }
    shape
}

/// True for an integer in a register of the program.
pub fn is_this_int(v: &dif::ir::VarDesc) -> bool {
    v.scope == dif::ir::Scope::Clause && v.key.is_none() && v.ty == dif::ir::VarTy::Int
}

/// Calls `f` for each value that a block's terminator uses.
pub(crate) fn each_term_use(term: &Term, mut f: impl FnMut(Value)) {
    match term {
        Term::Jump(_, args) => args.iter().copied().for_each(f),
        Term::Branch { cond, then, other } => {
            f(*cond);
            then.1.iter().chain(&other.1).copied().for_each(f);
        }
        Term::Return | Term::PredicateFalse => {}
    }
}
