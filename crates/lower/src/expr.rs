//! Lowers expressions to values.

use check::program::{Builtin, Expr, ExprKind, Logic, Place, Repr};
use dif::ir::{BinOp, Cond, FaultKind, IntBuiltin, Space, Subr, Ty, UnOp, Value, VarId};
use dif::subr::Param;

use crate::Lowering;
use crate::memory::MemoryScalar;

impl Lowering<'_> {
    /// The value of an expression. A void expression has the value 0.
    pub(crate) fn value(&mut self, e: &Expr) -> Value {
        let before = self.b.set_span(Some(e.span));
        let value = self.expr_kind(e);
        self.b.set_span(before);
        value
    }

    /// A user register of the current process. A kernel thread has none: reading it is a
    /// bad-address fault with address 0.
    fn ureg(&mut self, builtin: IntBuiltin) -> Value {
        let present = self.b.builtin(IntBuiltin::UserThread);
        let zero = self.b.int(0);
        self.b.fault_unless(FaultKind::BadAddr, present, zero);
        self.b.builtin(builtin)
    }

    /// An operand of a string comparison. NULL compares as the empty string, and so does a NULL
    /// pointer.
    fn comparison_operand(&mut self, e: &Expr) -> Value {
        match &e.kind {
            ExprKind::Null => self.zero(Ty::Str),
            ExprKind::LoadStr { addr, user: false, max: None } => {
                let value = self.value(addr);
                let (present, null) = (self.b.create_block(), self.b.create_block());
                let (join, joined) = self.b.create_join(Ty::Str);
                self.b.branch(value, (present, vec![]), (null, vec![]));
                self.b.switch_to(present);
                let from = self.pointer(addr, false, value);
                let text = self.b.load_str(from, None);
                self.b.jump(join, vec![text]);
                self.b.switch_to(null);
                let empty = self.zero(Ty::Str);
                self.b.jump(join, vec![empty]);
                self.b.switch_to(join);
                joined
            }
            _ => self.value(e),
        }
    }

    fn expr_kind(&mut self, e: &Expr) -> Value {
        match &e.kind {
            ExprKind::Int(v) => self.b.int(*v),
            ExprKind::Str(bytes) => {
                let id = self.module.intern(bytes);
                self.b.string(id)
            }
            ExprKind::Null => self.b.null(),
            ExprKind::Builtin(Builtin::Int(register @ IntBuiltin::Ureg(_))) => self.ureg(*register),
            ExprKind::Builtin(builtin) => self.b.any_builtin(*builtin),
            ExprKind::KernelArg(n) => self.b.builtin(IntBuiltin::Arg(*n)),
            ExprKind::FamilyProbeprov => self.provider_text(),
            ExprKind::Read(place) => {
                let place = self.place(place);
                self.read(&place)
            }
            ExprKind::Old => match self.old {
                Some(value) => value,
                None => self.b.int(0),
            },
            ExprKind::Neg(v) => {
                let v = self.value(v);
                self.b.un(UnOp::Neg, v)
            }
            ExprKind::BitNot(v) => {
                let v = self.value(v);
                self.b.un(UnOp::Not, v)
            }
            ExprKind::Not(v) => {
                let v = self.value(v);
                self.test(Cond::Eq, v)
            }
            ExprKind::Truth(v) => self.truth(v),
            ExprKind::Arith(op, l, r) => {
                let (l, r) = (self.value(l), self.value(r));
                self.b.bin(*op, l, r)
            }
            ExprKind::Compare { relation, signed, left, right } => {
                let (l, r) = (self.value(left), self.value(right));
                self.b.cmp(relation.cond(*signed), l, r)
            }
            ExprKind::CompareStr(relation, l, r) => {
                if let Some(value) = self.compare_provider(*relation, l, r) {
                    return value;
                }
                let (l, r) = (self.comparison_operand(l), self.comparison_operand(r));
                self.b.str_cmp(relation.cond(false), l, r)
            }
            ExprKind::Logic(logic, l, r) => self.logic(*logic, l, r),
            ExprKind::Cond(c, a, b) => self.conditional(c, a, b),
            ExprKind::Comma(a, b) => {
                self.value(a);
                self.value(b)
            }
            ExprKind::Convert { size, signed, value } => {
                let value = self.value(value);
                self.b.ext(size * 8, *signed, value)
            }
            // An object that is not read has no value. A void context can use its address instead.
            ExprKind::Deref { addr, .. } => self.value(addr),
            ExprKind::Array { addr, .. } => self.value(addr),
            ExprKind::Xlated { input, .. } => self.value(input),
            ExprKind::Let { id, value, body } => {
                let value = self.value(value);
                self.bound.insert(*id, value);
                self.value(body)
            }
            ExprKind::Bound(id) => match self.bound.get(id) {
                Some(value) => *value,
                None => self.b.int(0),
            },
            ExprKind::AddrVar(id) => self.b.addr_var(VarId(id.0)),
            ExprKind::ElemAddr(id, keys) => self.elem_addr(VarId(id.0), keys),
            ExprKind::KeyObject { addr, user, size, padding } => self.key_object(addr, *user, *size, padding),
            ExprKind::StrAddr(v) => self.str_addr(v),
            ExprKind::Bounded { index, count } => self.checked_index(index, *count),
            ExprKind::CopyObject { dst, src, user, size } => self.copy_object(dst, src, *user, *size),
            ExprKind::MemoryCall { call, args, user } => self.memory_call(*call, args, *user),
            ExprKind::Load { addr, size, signed, user } => self.load(addr, *user, *size, *signed),
            ExprKind::LoadStr { addr, user, max } => {
                let value = self.value(addr);
                let max = max.as_ref().map(|m| self.value(m));
                let addr = self.pointer(addr, *user, value);
                self.b.load_str(addr, max)
            }
            ExprKind::Call { name, args, user } => self.call(name, args, *user),
            ExprKind::Strlen(v) => {
                let v = self.value(v);
                self.b.str_len(v)
            }
            ExprKind::Assign(place, value) => {
                let place = self.place(place);
                let value = self.value(value);
                self.store(place, value)
            }
            ExprKind::Delete(place) => {
                match self.place(place) {
                    Target::Elem(var, key) => {
                        self.b.delete_elem(var, key);
                        self.deleted(var)
                    }
                    Target::Var(var) if self.is_object(var) => self.cleared(var),
                    Target::Var(var) => {
                        let deleted = self.deleted(var);
                        self.b.store_var(var, deleted);
                        deleted
                    }
                    // Memory cannot be deleted.
                    Target::Memory(_) | Target::Char { .. } => self.b.int(0),
                }
            }
            ExprKind::Update { place, new, post } => {
                if let Some(value) = self.added(place, new, *post) {
                    return value;
                }
                let place = self.place(place);
                let old = self.read(&place);
                let outer = self.old.replace(old);
                let new = self.value(new);
                self.old = outer;
                let new = self.store(place, new);
                if *post { old } else { new }
            }
        }
    }

    /// `+=`, `++` and their like on an element that is a number are one operation, which is atomic:
    /// no CPU loses what another adds, and of several that count down one counts to 0. `None` for
    /// any other update.
    fn added(&mut self, place: &Place, new: &Expr, post: bool) -> Option<Value> {
        let Place::Elem(id, keys) = place else { return None };
        let var = self.checked.vars.get(id.0 as usize)?;
        let ExprKind::Arith(op @ (BinOp::Add | BinOp::Sub), old, by) = &new.kind else { return None };
        let fits = matches!(var.repr, Repr::Int { .. }) && matches!(old.kind, ExprKind::Old);
        if !fits {
            return None;
        }
        let key = self.array_key(VarId(id.0), keys);
        let by = self.value(by);
        let by = if *op == BinOp::Sub { self.b.un(UnOp::Neg, by) } else { by };
        let sum = self.b.add_elem(VarId(id.0), key, by);
        Some(if post { self.b.bin(BinOp::Sub, sum, by) } else { sum })
    }

    fn call(&mut self, name: &str, args: &[Expr], user: bool) -> Value {
        // Every name has a row; a test checks this.
        let Some(subr) = Subr::by_name(name) else { return self.b.int(0) };
        let row = subr.row();
        let mut values: Vec<Value> = Vec::with_capacity(row.params.len());
        for (i, param) in row.params.iter().enumerate() {
            // Only the last parameters can be omitted.
            let default = row.defaults.len().checked_sub(row.params.len() - i);
            let value = match (args.get(i), default) {
                (Some(arg), _) => self.value(arg),
                (None, Some(d)) => self.b.int(row.defaults[d]),
                (None, None) => self.b.int(0),
            };
            values.push(match (param, args.get(i)) {
                (Param::Ptr, Some(arg)) => self.pointer(arg, user, value),
                (Param::Ptr, None) => self.b.as_ptr(Space::Unknown, value),
                (Param::Int | Param::Str, _) => value,
            });
        }
        self.b.call(subr, values)
    }

    /// The value of a variable after 0 or NULL was assigned.
    fn deleted(&mut self, var: VarId) -> Value {
        match self.var_ty(var) {
            Ty::Str => self.b.null(),
            ty => self.zero(ty),
        }
    }

    fn is_object(&self, var: VarId) -> bool {
        self.checked.vars.get(var.0 as usize).is_some_and(|v| matches!(v.repr, Repr::Bytes { .. }))
    }

    /// Stores zeros in a variable that is an object.
    fn cleared(&mut self, var: VarId) -> Value {
        let size = self.object_size(var);
        let (object, zero) = (self.b.addr_var(var), self.b.int(0));
        let mut at = 0;
        while at < size {
            let bytes = [8, 4, 2].into_iter().find(|n| at + n <= size).unwrap_or(1);
            let by = self.b.int(i64::from(at));
            let place = self.b.bin(BinOp::Add, object, by);
            self.b.store(bytes as u8, place, zero);
            at += bytes;
        }
        zero
    }

    fn zero(&mut self, ty: Ty) -> Value {
        match ty {
            Ty::Str => {
                let id = self.module.intern(b"");
                self.b.string(id)
            }
            _ => self.b.int(0),
        }
    }

    fn test(&mut self, cond: Cond, value: Value) -> Value {
        let zero = self.b.int(0);
        self.b.cmp(cond, value, zero)
    }

    /// 1 when the expression is not 0. Values that are already 0 or 1 are not converted.
    fn truth(&mut self, e: &Expr) -> Value {
        let value = self.value(e);
        match e.kind {
            ExprKind::Not(_)
            | ExprKind::Truth(_)
            | ExprKind::Compare { .. }
            | ExprKind::CompareStr(..)
            | ExprKind::Logic(..) => value,
            _ => self.test(Cond::Ne, value),
        }
    }

    fn logic(&mut self, logic: Logic, l: &Expr, r: &Expr) -> Value {
        if logic == Logic::Xor {
            let (l, r) = (self.truth(l), self.truth(r));
            return self.b.bin(BinOp::Xor, l, r);
        }
        let left = self.value(l);
        let more = self.b.create_block();
        let (join, joined) = self.b.create_join(Ty::Int);
        // The result when the left operand decides it.
        let decided = self.b.int(i64::from(logic == Logic::Or));
        let (then, other) = match logic {
            Logic::And => ((more, vec![]), (join, vec![decided])),
            _ => ((join, vec![decided]), (more, vec![])),
        };
        self.b.branch(left, then, other);
        self.b.switch_to(more);
        let right = self.truth(r);
        self.b.jump(join, vec![right]);
        self.b.switch_to(join);
        joined
    }

    fn conditional(&mut self, c: &Expr, a: &Expr, b: &Expr) -> Value {
        let c = self.value(c);
        let (then, other) = (self.b.create_block(), self.b.create_block());
        self.b.branch(c, (then, vec![]), (other, vec![]));
        self.b.switch_to(then);
        let value = self.value(a);
        let ty = if self.b.ty(value) == Ty::Str { Ty::Str } else { Ty::Int };
        let (join, joined) = self.b.create_join(ty);
        self.arm(join, value, ty);
        self.b.switch_to(other);
        let value = self.value(b);
        self.arm(join, value, ty);
        self.b.switch_to(join);
        joined
    }

    /// Ends a branch of `?:`. The join takes an integer or a string, never a pointer.
    fn arm(&mut self, join: dif::ir::Block, value: Value, ty: Ty) {
        let value = if ty == Ty::Int { self.b.as_int(value) } else { value };
        self.b.jump(join, vec![value]);
    }

    fn place(&mut self, place: &Place) -> Target {
        match place {
            Place::Var(id) => Target::Var(VarId(id.0)),
            Place::Elem(id, keys) => {
                let key = self.array_key(VarId(id.0), keys);
                Target::Elem(VarId(id.0), key)
            }
            Place::Memory(memory) => Target::Memory(self.memory_place(memory)),
            Place::Char { string, index } => {
                let string = Box::new(self.place(string));
                Target::Char { string, index: self.value(index) }
            }
        }
    }

    fn var_ty(&self, var: VarId) -> Ty {
        match self.checked.vars.get(var.0 as usize).map(|v| v.repr) {
            Some(Repr::Str) => Ty::Str,
            _ => Ty::Int,
        }
    }

    fn read(&mut self, target: &Target) -> Value {
        match target {
            Target::Var(var) => self.b.load_var(*var, self.var_ty(*var)),
            Target::Elem(var, key) => self.b.load_elem(*var, key.clone(), self.var_ty(*var)),
            Target::Memory(memory) => self.read_memory(memory),
            Target::Char { string, index } => {
                let text = self.read(string);
                let rest = self.b.call(Subr::Tail, vec![text, *index]);
                self.b.call(Subr::First, vec![rest])
            }
        }
    }

    /// Stores a value. Returns the value that the place then has.
    fn store(&mut self, target: Target, value: Value) -> Value {
        match target {
            Target::Var(var) => self.b.store_var(var, value),
            Target::Elem(var, key) => self.b.store_elem(var, key, value),
            Target::Memory(memory) => return self.store_memory(memory, value),
            Target::Char { string, index } => {
                let text = self.read(&string);
                let text = self.b.call(Subr::SetChar, vec![text, index, value]);
                self.store(*string, text);
            }
        }
        value
    }
}

/// A place with its key or address lowered to values.
enum Target {
    Var(VarId),
    Elem(VarId, Vec<Value>),
    Memory(MemoryScalar),
    Char { string: Box<Target>, index: Value },
}

#[cfg(test)]
mod tests {
    use check::tables::{FUNCTIONS, FunctionKind, Subroutine};
    use dif::subr::Param;

    use super::*;

    #[test]
    fn every_subroutine_of_d_has_a_dif_row_with_the_same_parameters() {
        for row in FUNCTIONS {
            let FunctionKind::Subroutine(Subroutine::Call(name)) = row.kind else { continue };
            let subr = Subr::by_name(name).map(Subr::row);
            assert!(subr.is_some(), "{name}");
            let subr = subr.unwrap();
            // A constant that says which text it makes is for the checker.
            let params = if row.name == "inet_ntoa6" { "void *" } else { row.params };
            let words: Vec<&str> = params.split(',').map(str::trim).filter(|w| !w.is_empty()).collect();
            assert_eq!(words.len(), subr.params.len(), "{}", row.name);
            let optional = words.iter().filter(|w| w.starts_with('[')).count();
            assert_eq!(optional, subr.defaults.len(), "{}", row.name);
            for (word, param) in words.iter().zip(subr.params) {
                assert_eq!(*word == "string", *param == Param::Str, "{}", row.name);
            }
            assert_eq!(row.ret == "string", subr.result == Ty::Str, "{}", row.name);
        }
    }
}
