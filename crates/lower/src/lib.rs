//! Lowers a checked program to DIF. This crate does not know BPF.
//!
//! Each clause becomes one function, in the order of the module's clauses:
//!
//! ```text
//!   predicate ── 0 ──> predicate-false
//!      │
//!   Reserve          only where the clause records; not if it speculates
//!   statements       action 1, 2, …; each field is written when its statement runs
//!                    speculate() reserves the record of a clause that speculates
//!   Commit, Return
//! ```
//!
//! The main design decision: lowering is mechanical. The checked program already contains every
//! width, sign, conversion and field. So this crate knows no rule of D, and the behaviour of the
//! code is visible in the DIF text. Short-circuit logic and `?:` become blocks whose join has the
//! value as a parameter. DIF has no mutable temporaries.
//!
//! The optimizer handles the rest: constant operands, repeated loads, extensions without effect.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! lib
//! memory provider
//! address
//! expr
//! ```

mod address;
mod expr;
mod memory;
mod provider;

use std::collections::HashMap;

use check::Checked;
use check::program::{Clause, ExprKind, KeyValue, Repr, Scope, Stmt, StmtKind};
use dif::ir::{self, Datum, Field, IntBuiltin, Module, ProcessFields, Value, VarTy};
use dif::{BuildError, FunctionBuilder};

/// A clause that could not be built. This is an error of the checker, not of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowerError {
    /// Index of the clause.
    pub clause: usize,
    /// The error.
    pub error: BuildError,
}

impl std::fmt::Display for LowerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "clause {}: {}", self.clause, self.error)
    }
}

impl std::error::Error for LowerError {}

/// Lowers a checked program. Numbers of clauses, variables and aggregations are unchanged.
pub fn lower(checked: &Checked) -> Result<Module, LowerError> {
    lower_more(checked, Vec::new())
}

/// Like [`lower`], for a session that already has interned strings. These keep their numbers.
pub fn lower_more(checked: &Checked, strings: Vec<Vec<u8>>) -> Result<Module, LowerError> {
    let mut module = Module::new(checked.strsize);
    if !strings.is_empty() {
        module.strings = strings;
    }
    module.vars = checked.vars.iter().map(variable).collect();
    module.aggs = checked.aggs.clone();
    for (i, clause) in checked.clauses.iter().enumerate() {
        let func = Lowering::new(checked, &mut module, format!("clause_{i}"))
            .clause(clause)
            .map_err(|error| LowerError { clause: i, error })?;
        module.clauses.push(ir::Clause { func, record: clause.record.clone(), span: Some(clause.span) });
    }
    Ok(module)
}

fn variable(v: &check::program::Var) -> ir::VarDesc {
    ir::VarDesc {
        name: v.name.clone(),
        scope: match v.scope {
            Scope::Global => ir::Scope::Global,
            Scope::Thread => ir::Scope::Thread,
            Scope::Clause => ir::Scope::Clause,
        },
        ty: match v.repr {
            Repr::Int { .. } => VarTy::Int,
            Repr::Str => VarTy::Str,
            Repr::Bytes { size } => VarTy::Bytes { size },
        },
        key: v.key.clone(),
        key_size: v.key_size,
    }
}

/// The statement before which the record of a clause is reserved. `None` if `speculate()` reserves
/// it. Usually it is the first, so that a clause without space has no effect. Behind a `commit()`
/// only effects such as `system()` are recorded, which come after the speculation in the output.
fn reserve_before(body: &[Stmt]) -> Option<usize> {
    let is_commit = |kind: &StmtKind| matches!(kind, StmtKind::Expr(e) if matches!(e.kind, ExprKind::Call { name: "commit", .. }));
    if body.iter().any(|s| matches!(s.kind, StmtKind::Speculate(_))) {
        return None;
    }
    let records = body
        .iter()
        .position(|s| matches!(s.kind, StmtKind::Record(_) | StmtKind::Exit(..) | StmtKind::Snap(..)));
    match body.iter().position(|s| is_commit(&s.kind)) {
        Some(_) => Some(records.unwrap_or(0)),
        None => Some(0),
    }
}

/// The state of lowering one function.
struct Lowering<'a> {
    checked: &'a Checked,
    module: &'a mut Module,
    b: FunctionBuilder,
    /// The old value of the place in the enclosing update expression.
    old: Option<Value>,
    /// Values that are computed once and used more than once.
    bound: HashMap<u32, Value>,
    /// Bytes of scratch memory that copies of this statement use so far.
    scratch: u32,
    /// The clause has ended the session. A second `exit()` of it has a column, and no effect.
    exits: bool,
}

impl<'a> Lowering<'a> {
    fn new(checked: &'a Checked, module: &'a mut Module, name: String) -> Self {
        Self {
            checked,
            module,
            b: FunctionBuilder::new(name),
            old: None,
            bound: HashMap::new(),
            scratch: 0,
            exits: false,
        }
    }

    fn clause(mut self, clause: &Clause) -> Result<ir::Function, BuildError> {
        self.b.set_span(Some(clause.span));
        if let Some(predicate) = &clause.predicate {
            self.b.set_span(Some(predicate.span));
            let (then, other) = (self.b.create_block(), self.b.create_block());
            let value = self.value(predicate);
            self.b.branch(value, (then, vec![]), (other, vec![]));
            self.b.switch_to(other);
            self.b.predicate_false();
            self.b.switch_to(then);
            self.b.set_span(Some(clause.span));
        }
        let first = clause.record.as_ref().and_then(|_| reserve_before(&clause.body));
        if first == Some(0) {
            self.b.reserve();
        }
        for (n, stmt) in clause.body.iter().enumerate() {
            if n > 0 && first == Some(n) {
                self.b.reserve();
            }
            self.b.set_action(stmt.action);
            self.scratch = 0;
            self.b.set_span(Some(stmt.span));
            self.statement(&stmt.kind);
        }
        self.b.set_span(Some(clause.span));
        // After the statements, so that the offsets in messages of faults are the same without
        // them.
        if let Some(ProcessFields { pid, tid }) = clause.record.as_ref().and_then(|r| r.process) {
            for (field, id) in [(pid, IntBuiltin::Pid), (tid, IntBuiltin::Tid)] {
                let id = self.b.builtin(id);
                self.b.record(field, id);
            }
        }
        if let Some(record) = &clause.record {
            self.b.commit();
            // Who is woken finds the reason.
            if record.snaps() {
                self.b.snap();
            }
        }
        self.b.ret();
        self.b.finish()
    }

    fn statement(&mut self, kind: &StmtKind) {
        match kind {
            StmtKind::Expr(e) => {
                self.value(e);
            }
            StmtKind::Record(writes) => {
                for (field, value) in writes {
                    self.write(*field, value);
                }
            }
            StmtKind::Speculate(id) => {
                let id = self.value(id);
                self.b.speculate(id);
            }
            StmtKind::Exit(field, status) => {
                let value = self.value(status);
                self.b.record(*field, value);
                if !std::mem::replace(&mut self.exits, true) {
                    self.b.exit(value);
                }
            }
            StmtKind::Snap(field, reason) => self.write(*field, &KeyValue::Expr(reason.clone())),
            StmtKind::Aggregate { agg, key, args } => {
                let columns = self.module.aggs.get(agg.0 as usize).map_or(Vec::new(), |a| a.key.clone());
                let key = columns.iter().zip(key).flat_map(|(f, k)| self.key(f.datum, k)).collect();
                let args = args.iter().map(|a| self.value(a)).collect();
                self.b.aggregate(*agg, key, args);
            }
        }
    }

    fn write(&mut self, field: Field, value: &KeyValue) {
        if let KeyValue::Bytes { addr, user, len } = value {
            let at = self.value(addr);
            let at = self.pointer(addr, *user, at);
            let len = len.as_ref().map(|(field, len)| {
                let len = self.value(len);
                self.b.record(*field, len);
                len
            });
            return self.b.record_bytes(field, at, len);
        }
        if let KeyValue::Packet(skb) = value {
            let skb = self.value(skb);
            return self.b.record_packet(field, skb);
        }
        let values = self.key(field.datum, value);
        match values[..] {
            [addr, pid] => self.b.record_pair(field, addr, pid),
            [value] => self.b.record(field, value),
            _ => {}
        }
    }

    /// The values of a column or field: see [`plane::desc::Datum::values`].
    fn key(&mut self, datum: Datum, value: &KeyValue) -> Vec<Value> {
        match value {
            KeyValue::Expr(e) if datum == Datum::Provider => self.provider(e).into(),
            KeyValue::Expr(e) if matches!(datum, Datum::Address { .. }) => self.address(e).into(),
            KeyValue::Expr(e) => vec![self.value(e)],
            // Keys contain no such values.
            KeyValue::Bytes { .. } | KeyValue::Packet(_) => Vec::new(),
            KeyValue::Stack { user, frames, calls } => vec![self.b.stack(*user, *frames, *calls)],
            KeyValue::KernelAddr(e) => vec![self.value(e)],
            KeyValue::UserAddr(e) => {
                let addr = self.value(e);
                vec![addr, self.b.builtin(IntBuiltin::Pid)]
            }
        }
    }
}
