//! Generates the code of a random clause.

use super::memory::{DPtr, KEPT};
use super::{Config, Rng};
use crate::builder::FunctionBuilder;
use crate::ir::{
    AggFunc, AggId, BinOp, Cond, Datum, FaultKind, Field, Function, IntBuiltin, Module, Space, StrBuiltin,
    StrId, Ty, UnOp, Value, VarId, VarTy,
};
use crate::subr::{Effect, Param, Row, Subr, TABLE};

const BIN: [BinOp; 9] = [
    BinOp::Add,
    BinOp::Sub,
    BinOp::Mul,
    BinOp::And,
    BinOp::Or,
    BinOp::Xor,
    BinOp::Shl,
    BinOp::Lshr,
    BinOp::Ashr,
];
const DIV: [BinOp; 4] = [BinOp::Sdiv, BinOp::Udiv, BinOp::Srem, BinOp::Urem];
const COND: [Cond; 10] = [
    Cond::Eq,
    Cond::Ne,
    Cond::Slt,
    Cond::Sle,
    Cond::Sgt,
    Cond::Sge,
    Cond::Ult,
    Cond::Ule,
    Cond::Ugt,
    Cond::Uge,
];

pub(super) fn function(
    rng: &mut Rng,
    config: &Config,
    module: &Module,
    name: String,
    records: bool,
    fields: &[Field],
) -> Function {
    let mut body = Body {
        rng,
        config,
        module,
        b: FunctionBuilder::new(name),
        ints: vec![],
        strs: vec![],
        d_ptrs: vec![],
        fixed: 0,
        fields,
    };
    body.predicate();
    body.b.set_action(1);
    if records {
        body.b.reserve();
    }
    body.statements(config.depth, records);
    body.end(records);
    // Every block above has a terminator, and no edge goes backward.
    body.b.finish().unwrap_or_else(|_| Function { name: String::new(), blocks: vec![], values: vec![] })
}

pub(super) struct Body<'a> {
    pub(super) rng: &'a mut Rng,
    pub(super) config: &'a Config,
    pub(super) module: &'a Module,
    pub(super) b: FunctionBuilder,
    /// Integers and strings whose definition dominates the current position.
    ints: Vec<Value>,
    strs: Vec<Value>,
    /// Likewise, pointers to D memory.
    pub(super) d_ptrs: Vec<DPtr>,
    /// Bytes of fixed scratch memory allocated so far.
    pub(super) fixed: u32,
    fields: &'a [Field],
}

impl Body<'_> {
    /// Generates a predicate. Sometimes it is an `&&` as the front end emits it: a join block that
    /// branches on its parameter.
    fn predicate(&mut self) {
        if self.rng.one_in(2) {
            return;
        }
        let (run, refuse) = (self.b.create_block(), self.b.create_block());
        let mut cond = self.int(2);
        if self.rng.one_in(2) {
            let (join, both) = self.b.create_join(Ty::Int);
            let more = self.b.create_block();
            let zero = self.b.int(0);
            self.b.branch(cond, (more, vec![]), (join, vec![zero]));
            self.b.switch_to(more);
            let scope = self.scope();
            let right = self.int(2);
            self.restore(scope);
            let zero = self.b.int(0);
            let truth = self.b.cmp(Cond::Ne, right, zero);
            self.b.jump(join, vec![truth]);
            self.b.switch_to(join);
            cond = both;
        }
        self.b.branch(cond, (run, vec![]), (refuse, vec![]));
        self.b.switch_to(refuse);
        self.b.predicate_false();
        self.b.switch_to(run);
    }

    fn scope(&self) -> (usize, usize, usize) {
        (self.ints.len(), self.strs.len(), self.d_ptrs.len())
    }

    fn restore(&mut self, (ints, strs, d_ptrs): (usize, usize, usize)) {
        self.ints.truncate(ints);
        self.strs.truncate(strs);
        self.d_ptrs.truncate(d_ptrs);
    }

    /// Ends the clause: fills and commits the record, if there is one, and returns.
    fn end(&mut self, reserved: bool) {
        if reserved {
            for field in self.fields {
                if let Datum::Bytes { size } = field.datum {
                    if let Some(addr) = self.object_bytes(size) {
                        self.b.record_bytes(*field, addr, None);
                    }
                    continue;
                }
                let values = self.column(field.datum);
                match values.as_slice() {
                    [value, pid] => self.b.record_pair(*field, *value, *pid),
                    [value] => self.b.record(*field, *value),
                    _ => {}
                }
            }
            self.b.commit();
        }
        self.b.ret();
    }

    fn statements(&mut self, depth: usize, reserved: bool) {
        for i in 0..=self.rng.below(self.config.statements) {
            self.b.set_action(1 + i as u16);
            self.statement(depth, reserved);
        }
    }

    fn statement(&mut self, depth: usize, reserved: bool) {
        match self.rng.below(if self.config.objects { 15 } else { 12 }) {
            12.. => self.memory_statement(),
            0..=2 => self.store(),
            3..=4 => self.store_element(),
            5..=6 => self.aggregate(),
            7 if self.config.exit && self.rng.one_in(4) => {
                let status = self.int(1);
                self.b.exit(status);
            }
            8 if self.config.faults && self.rng.one_in(2) => {
                let (cond, value) = (self.int(2), self.int(1));
                let kind = self.rng.pick(&FaultKind::ALL).unwrap_or(FaultKind::IllegalOp);
                self.b.fault_unless(kind, cond, value);
            }
            9..=10 if depth > 0 => self.branch(depth - 1, reserved),
            _ => {
                // A value that later instructions may use.
                self.int(self.config.depth);
                if self.config.strings {
                    self.string(1);
                }
            }
        }
    }

    /// Two branches and a join with a parameter. Sometimes one branch ends the clause instead.
    fn branch(&mut self, depth: usize, reserved: bool) {
        let text = self.config.strings && self.rng.one_in(3);
        let cond = self.int(2);
        let (join, param) = self.b.create_join(if text { Ty::Str } else { Ty::Int });
        let (then, other) = (self.b.create_block(), self.b.create_block());
        self.b.branch(cond, (then, vec![]), (other, vec![]));
        let leaves = self.rng.one_in(4);
        for (block, ends) in [(then, false), (other, leaves)] {
            self.b.switch_to(block);
            let scope = self.scope();
            if self.rng.one_in(2) {
                self.statements(depth, reserved);
            }
            if ends {
                self.end(reserved);
            } else {
                let value = if text { self.string(1) } else { self.int(1) };
                self.b.jump(join, vec![value]);
            }
            self.restore(scope);
        }
        self.b.switch_to(join);
        if text { self.strs.push(param) } else { self.ints.push(param) }
    }

    fn variable(&mut self, array: bool, text: Option<bool>) -> Option<VarId> {
        let fits: Vec<VarId> = (0u32..)
            .zip(&self.module.vars)
            .filter(|(_, v)| !matches!(v.ty, VarTy::Bytes { .. }) && v.name != KEPT)
            .filter(|(_, v)| v.key.is_some() == array && text.is_none_or(|t| t == (v.ty == VarTy::Str)))
            .map(|(i, _)| VarId(i))
            .collect();
        self.rng.pick(&fits)
    }

    /// Whether the elements of the array can be added to.
    fn is_number(&self, var: VarId) -> bool {
        let desc = self.module.vars.get(var.0 as usize);
        desc.is_some_and(|v| v.ty == VarTy::Int)
    }

    /// A value of the variable's type.
    fn value_for(&mut self, var: VarId) -> Value {
        match self.module.vars.get(var.0 as usize).map(|v| v.ty) {
            Some(VarTy::Str) => self.string(1),
            Some(VarTy::Int) => self.int(2),
            Some(VarTy::Bytes { .. }) | None => self.int(0),
        }
    }

    fn store(&mut self) {
        if let Some(var) = self.variable(false, None) {
            let value = self.value_for(var);
            self.b.store_var(var, value);
        }
    }

    pub(super) fn array_key(&mut self, var: VarId) -> Vec<Value> {
        let columns = self.module.vars.get(var.0 as usize).and_then(|v| v.key.clone()).unwrap_or_default();
        columns.iter().flat_map(|c| self.column(c.datum)).collect()
    }

    fn store_element(&mut self) {
        let Some(var) = self.variable(true, None) else { return };
        let key = self.array_key(var);
        if self.rng.one_in(4) {
            self.b.delete_elem(var, key);
        } else if self.is_number(var) && self.rng.one_in(3) {
            let by = self.int(2);
            let sum = self.b.add_elem(var, key, by);
            self.ints.push(sum);
        } else {
            let value = self.value_for(var);
            self.b.store_elem(var, key, value);
        }
    }

    fn aggregate(&mut self) {
        let n = self.module.aggs.len();
        let index = self.rng.below(n);
        let Some(desc) = self.module.aggs.get(index) else { return };
        let key = desc.key.iter().flat_map(|c| self.column(c.datum)).collect();
        let arity = match desc.func {
            AggFunc::Count => 0,
            AggFunc::Quantize | AggFunc::Lquantize { .. } | AggFunc::Llquantize { .. } => {
                1 + self.rng.below(2)
            }
            _ => 1,
        };
        let args = (0..arity).map(|_| self.int(2)).collect();
        self.b.aggregate(AggId(index as u32), key, args);
    }

    /// The values of one column. Integers are often small, so that keys repeat.
    fn column(&mut self, datum: Datum) -> Vec<Value> {
        match datum {
            Datum::Interned => vec![self.known_string()],
            Datum::Provider => {
                let known = self.known_string();
                vec![known, self.b.builtin(IntBuiltin::ProviderPid)]
            }
            Datum::Str { .. } | Datum::Name { .. } => vec![self.string(1)],
            Datum::UserAddr(_) | Datum::Address { .. } => vec![self.int(1), self.int(1)],
            Datum::Bytes { size } => vec![self.key_object(size)],
            _ if self.rng.one_in(2) => {
                let n = self.rng.below(3) as i64;
                vec![self.b.int(n)]
            }
            _ => vec![self.int(2)],
        }
    }

    /// A constant or a probe name.
    fn known_string(&mut self) -> Value {
        let names: Vec<StrBuiltin> =
            self.config.str_builtins.iter().copied().filter(|b| *b != StrBuiltin::Execname).collect();
        match self.rng.pick(&names) {
            Some(name) if self.rng.one_in(2) => self.b.builtin_str(name),
            _ => self.constant_string(),
        }
    }

    fn constant_string(&mut self) -> Value {
        let n = self.rng.below(self.module.strings.len());
        self.b.string(StrId(n as u32))
    }

    pub(super) fn string(&mut self, depth: usize) -> Value {
        let kinds = if self.config.subroutines { 12 } else { 7 };
        let value = match self.rng.below(kinds) {
            0 => match self.rng.pick(&self.strs) {
                Some(v) => v,
                None => self.constant_string(),
            },
            1 if depth > 0 => match self.variable(true, Some(true)) {
                Some(var) => {
                    let key = self.array_key(var);
                    self.b.load_elem(var, key, Ty::Str)
                }
                None => self.known_string(),
            },
            2 => match self.variable(false, Some(true)) {
                Some(var) => self.b.load_var(var, Ty::Str),
                None => self.constant_string(),
            },
            3 => match self.rng.pick(&self.config.str_builtins) {
                Some(b) => self.b.builtin_str(b),
                None => self.constant_string(),
            },
            4 => self.load_string(),
            9 if self.config.faults && self.rng.one_in(4) => self.b.null(),
            5 | 7..=8 if depth > 0 => self.call(depth - 1, Ty::Str).unwrap_or_else(|| self.constant_string()),
            _ => self.constant_string(),
        };
        self.strs.push(value);
        value
    }

    /// Calls a subroutine whose result depends only on its arguments and on memory that both
    /// executors have.
    fn call(&mut self, depth: usize, result: Ty) -> Option<Value> {
        use Subr::{InetNtoa, InetNtoa6, InetNtop, LinkNtop, Memstr};
        let reads: &[Subr] =
            if self.config.subroutines { &[InetNtoa, InetNtoa6, InetNtop, LinkNtop, Memstr] } else { &[] };
        let pure = |r: &&Row| (r.effect == Effect::None || reads.contains(&r.subr)) && r.result == result;
        let takes_strings = |r: &&Row| result == Ty::Str || r.params.contains(&Param::Str);
        let rows: Vec<&Row> =
            TABLE.iter().filter(pure).filter(|r| self.config.strings || !takes_strings(r)).collect();
        let row = self.rng.pick(&rows)?;
        let args = row.params.iter().map(|p| match p {
            Param::Str => self.string(depth.min(1)),
            // An address with enough readable bytes for the longest network address. A byte string
            // may exceed them; then both executors fault.
            Param::Ptr => match self.address(20) {
                Some((pointer, _)) => pointer,
                None => {
                    let null = self.b.int(0);
                    self.b.as_ptr(Space::Kernel, null)
                }
            },
            // Address families.
            Param::Int if row.params.contains(&Param::Ptr) && self.rng.one_in(2) => {
                let kind = [1, 2, 10, 32, 1 | 1 << 32, 2 | -1 << 32][self.rng.below(6)];
                self.b.int(kind)
            }
            // Positions and lengths are small, so that they select something. Some would be small
            // only when truncated to 32 bits.
            _ if self.rng.one_in(2) => {
                let n = self.rng.below(2 * self.config.strsize as usize) as i64 / 2 - 4;
                let beyond = if self.rng.one_in(6) { (self.rng.below(3) as i64 - 1) << 32 } else { 0 };
                self.b.int(n + beyond)
            }
            _ => self.int(depth),
        });
        let args = args.collect();
        Some(self.b.call(row.subr, args))
    }

    fn load_string(&mut self) -> Value {
        if self.config.objects
            && self.rng.one_in(3)
            && let Some(value) = self.object_string()
        {
            return value;
        }
        let Some((addr, _)) = self.address(1) else { return self.constant_string() };
        let max = if self.rng.one_in(2) {
            let n = self.rng.below(12) as i64;
            Some(if self.rng.one_in(8) { self.int(1) } else { self.b.int(n) })
        } else {
            None
        };
        self.b.load_str(addr, max)
    }

    /// A readable pointer. When faults are wanted, sometimes an unreadable one.
    pub(super) fn address(&mut self, size: u64) -> Option<(Value, Space)> {
        let bad = self.config.faults && self.rng.one_in(12);
        let (space, at) = match self.rng.pick(&self.config.unreadable) {
            Some(bad_place) if bad => bad_place,
            _ => {
                let (space, start, len) = self.rng.pick(&self.config.readable)?;
                let slack = len.checked_sub(size)?;
                (space, start + self.rng.below(slack as usize + 1) as u64)
            }
        };
        // Half of the addresses come from arithmetic, which a constant folder must not get wrong.
        let pointer = if self.rng.one_in(2) {
            let n = self.b.int(at as i64);
            self.b.as_ptr(space, n)
        } else {
            let back = self.rng.below(64) as i64;
            let base = self.b.int((at as i64).wrapping_sub(back));
            let base = self.b.as_ptr(space, base);
            let offset = self.b.int(back);
            self.b.bin(BinOp::Add, base, offset)
        };
        Some((pointer, space))
    }

    pub(super) fn int(&mut self, depth: usize) -> Value {
        let value = if depth == 0 || self.rng.one_in(4) { self.leaf() } else { self.expression(depth - 1) };
        self.ints.push(value);
        value
    }

    fn leaf(&mut self) -> Value {
        match self.rng.below(5) {
            0..=1 if !self.ints.is_empty() => {
                let index = self.rng.below(self.ints.len());
                self.ints[index]
            }
            2 => match self.variable(false, Some(false)) {
                Some(var) => self.b.load_var(var, Ty::Int),
                None => self.constant(),
            },
            3 => match self.rng.pick(&self.config.int_builtins) {
                Some(builtin) => self.b.builtin(builtin),
                None => self.constant(),
            },
            _ => self.constant(),
        }
    }

    fn constant(&mut self) -> Value {
        let n = self.rng.int();
        self.b.int(n)
    }

    fn condition(&mut self) -> Cond {
        self.rng.pick(&COND).unwrap_or(Cond::Eq)
    }

    fn expression(&mut self, depth: usize) -> Value {
        match self.rng.below(if self.config.subroutines { 22 } else { 15 }) {
            0..=4 => {
                let op = self.rng.pick(&BIN).unwrap_or(BinOp::Add);
                let (a, b) = (self.int(depth), self.int(depth));
                self.b.bin(op, a, b)
            }
            5 => self.division(depth),
            6 => {
                let v = self.int(depth);
                self.b.un(if self.rng.one_in(2) { UnOp::Neg } else { UnOp::Not }, v)
            }
            7..=8 => {
                let cond = self.condition();
                let (a, b) = (self.int(depth), self.int(depth));
                self.b.cmp(cond, a, b)
            }
            9 => {
                let v = self.int(depth);
                let (bits, signed) = ([8, 16, 32][self.rng.below(3)], self.rng.one_in(2));
                self.b.ext(bits, signed, v)
            }
            10 if self.config.strings => {
                let s = self.string(depth.min(1));
                self.b.str_len(s)
            }
            11 if self.config.strings => {
                let cond = self.condition();
                let (a, b) = (self.string(depth.min(1)), self.string(depth.min(1)));
                self.b.str_cmp(cond, a, b)
            }
            12 => match self.variable(true, Some(false)) {
                Some(var) => {
                    let key = self.array_key(var);
                    self.b.load_elem(var, key, Ty::Int)
                }
                None => self.leaf(),
            },
            13 | 15.. => self.call(depth, Ty::Int).unwrap_or_else(|| self.leaf()),
            14 if self.config.stacks && self.rng.one_in(2) => {
                let user = self.rng.one_in(2);
                self.b.stack(user, 20, user && self.rng.one_in(2))
            }
            _ => {
                if self.config.objects
                    && self.rng.one_in(2)
                    && let Some(value) = self.object_load()
                {
                    return value;
                }
                let size = [1u8, 2, 4, 8][self.rng.below(4)];
                let signed = self.rng.one_in(2);
                match self.address(u64::from(size)) {
                    Some((addr, _)) => self.b.load(size, signed, addr),
                    None => self.leaf(),
                }
            }
        }
    }

    fn division(&mut self, depth: usize) -> Value {
        let op = self.rng.pick(&DIV).unwrap_or(BinOp::Sdiv);
        let left = self.int(depth);
        let right = if self.config.faults && self.rng.one_in(3) {
            self.int(depth)
        } else {
            let n = match self.rng.int() {
                0 => 1,
                n => n,
            };
            self.b.int(n)
        };
        self.b.bin(op, left, right)
    }
}
