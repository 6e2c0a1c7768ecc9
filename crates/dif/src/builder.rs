//! Builds functions, one instruction at a time.
//!
//! The front end walks a tree and emits instructions as it goes. It creates a block when it meets a
//! branch and fills that block later, so blocks are created in any order.
//! [`FunctionBuilder::finish`] sorts them ([`Function::normalize`]); the front end need not plan
//! the order. The operation determines the type of its result, so the front end cannot state a
//! wrong one. Loads of variables are the exception: the module holds those types, so the caller
//! passes them.
//!
//! Instructions emitted after the end of a block go to an unreachable block, which `finish`
//! removes. So the front end need not check whether its last statement ended the clause.

use diagnostics::Span;
use plane::builtin::Builtin;

use crate::ir::{
    AggId, BinOp, Block, BlockData, Cond, FaultKind, Field, Function, InstData, IntBuiltin, Module, Op,
    Space, StrBuiltin, StrId, Subr, Term, Ty, UnOp, Value, VarId,
};
use crate::memory::SCRATCH_SIZE;

/// Why a function could not be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// A reachable block has no terminator.
    Unterminated(Block),
    /// An edge goes backward. D has no loops.
    Cycle(Block),
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BuildError::Unterminated(b) => write!(f, "block {} has no end", b.0),
            BuildError::Cycle(b) => write!(f, "block {} lies on a cycle", b.0),
        }
    }
}

impl std::error::Error for BuildError {}

#[derive(Debug, Default)]
struct OpenBlock {
    params: Vec<Value>,
    insts: Vec<InstData>,
    term: Option<Term>,
}

/// A function under construction. The current block is at first the entry block.
#[derive(Debug)]
pub struct FunctionBuilder {
    name: String,
    values: Vec<Ty>,
    blocks: Vec<OpenBlock>,
    current: usize,
    span: Option<Span>,
    action: u16,
}

impl FunctionBuilder {
    /// Creates a function with an empty entry block. The current action is the predicate (0).
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            values: Vec::new(),
            blocks: vec![OpenBlock::default()],
            current: 0,
            span: None,
            action: 0,
        }
    }

    /// Sets the source text of the instructions that follow. Returns the previous one, for the
    /// caller to restore.
    pub fn set_span(&mut self, span: Option<Span>) -> Option<Span> {
        std::mem::replace(&mut self.span, span)
    }

    /// Sets the action of the instructions that follow: 0 is the predicate, actions count from 1.
    pub fn set_action(&mut self, action: u16) {
        self.action = action;
    }

    /// A new, empty block.
    pub fn create_block(&mut self) -> Block {
        self.blocks.push(OpenBlock::default());
        Block(self.blocks.len() as u32 - 1)
    }

    /// A new block with one parameter: the join of the two branches of a `?:` or `&&`.
    pub fn create_join(&mut self, ty: Ty) -> (Block, Value) {
        let block = self.create_block();
        (block, self.block_param(block, ty))
    }

    /// Adds a parameter to a block of this builder.
    pub fn block_param(&mut self, block: Block, ty: Ty) -> Value {
        let value = self.value(ty);
        if let Some(b) = self.blocks.get_mut(block.0 as usize) {
            b.params.push(value);
        }
        value
    }

    /// Makes `block` the current block: instructions are emitted into it from now on.
    pub fn switch_to(&mut self, block: Block) {
        if (block.0 as usize) < self.blocks.len() {
            self.current = block.0 as usize;
        }
    }

    /// The current block.
    pub fn current(&self) -> Block {
        Block(self.current as u32)
    }

    /// True when the current block already has a terminator.
    pub fn is_terminated(&self) -> bool {
        self.blocks[self.current].term.is_some()
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> Ty {
        self.values.get(value.0 as usize).copied().unwrap_or(Ty::Int)
    }

    fn value(&mut self, ty: Ty) -> Value {
        self.values.push(ty);
        Value(self.values.len() as u32 - 1)
    }

    fn push(&mut self, op: Op, result: Option<Value>) {
        if self.is_terminated() {
            self.current = self.create_block().0 as usize;
        }
        let inst = InstData { op, result, span: self.span, action: self.action };
        self.blocks[self.current].insts.push(inst);
    }

    fn emit(&mut self, op: Op, ty: Ty) -> Value {
        let value = self.value(ty);
        self.push(op, Some(value));
        value
    }

    fn terminate(&mut self, term: Term) {
        let block = &mut self.blocks[self.current];
        if block.term.is_none() {
            block.term = Some(term);
        }
    }

    /// An integer constant.
    pub fn int(&mut self, value: i64) -> Value {
        self.emit(Op::Const(value), Ty::Int)
    }

    /// A string constant.
    pub fn string(&mut self, id: StrId) -> Value {
        self.emit(Op::StrConst(id), Ty::Str)
    }

    /// NULL as a string.
    pub fn null(&mut self) -> Value {
        self.emit(Op::Null, Ty::Str)
    }

    /// Arithmetic. A pointer plus or minus an integer is a pointer.
    pub fn bin(&mut self, op: BinOp, left: Value, right: Value) -> Value {
        let ty = match (op, self.ty(left)) {
            (BinOp::Add | BinOp::Sub, Ty::Ptr(space)) => Ty::Ptr(space),
            _ => Ty::Int,
        };
        self.emit(Op::Bin(op, left, right), ty)
    }

    /// Negation or complement.
    pub fn un(&mut self, op: UnOp, value: Value) -> Value {
        self.emit(Op::Un(op, value), Ty::Int)
    }

    /// Compares integers or pointers.
    pub fn cmp(&mut self, cond: Cond, left: Value, right: Value) -> Value {
        self.emit(Op::Cmp(cond, left, right), Ty::Int)
    }

    /// Compares strings.
    pub fn str_cmp(&mut self, cond: Cond, left: Value, right: Value) -> Value {
        self.emit(Op::StrCmp(cond, left, right), Ty::Int)
    }

    /// The low `bits` of a value, extended. With 64 bits the result is the value itself (for a
    /// pointer, its integer).
    pub fn ext(&mut self, bits: u8, signed: bool, value: Value) -> Value {
        match (bits, self.ty(value)) {
            (64, Ty::Ptr(_)) => self.as_int(value),
            (64, _) => value,
            _ => self.emit(Op::Ext { bits, signed, value }, Ty::Int),
        }
    }

    /// Reinterprets a value as a pointer.
    pub fn as_ptr(&mut self, space: Space, value: Value) -> Value {
        if self.ty(value) == Ty::Ptr(space) {
            return value;
        }
        self.emit(Op::AsPtr(space, value), Ty::Ptr(space))
    }

    /// Reinterprets a pointer as an integer.
    pub fn as_int(&mut self, value: Value) -> Value {
        if self.ty(value) == Ty::Int {
            return value;
        }
        self.emit(Op::AsInt(value), Ty::Int)
    }

    /// A built-in variable.
    pub fn any_builtin(&mut self, builtin: Builtin) -> Value {
        match builtin {
            Builtin::Int(builtin) => self.builtin(builtin),
            Builtin::Str(builtin) => self.builtin_str(builtin),
        }
    }

    /// An integer built-in variable.
    pub fn builtin(&mut self, builtin: IntBuiltin) -> Value {
        self.emit(Op::Builtin(builtin), Ty::Int)
    }

    /// A string built-in variable.
    pub fn builtin_str(&mut self, builtin: StrBuiltin) -> Value {
        self.emit(Op::BuiltinStr(builtin), Ty::Str)
    }

    /// A checked load of 1, 2, 4 or 8 bytes.
    pub fn load(&mut self, size: u8, signed: bool, addr: Value) -> Value {
        self.emit(Op::Load { size, signed, addr }, Ty::Int)
    }

    /// A checked load of a NUL-terminated string.
    pub fn load_str(&mut self, addr: Value, max: Option<Value>) -> Value {
        self.emit(Op::LoadStr { addr, max }, Ty::Str)
    }

    /// The length of a string.
    pub fn str_len(&mut self, value: Value) -> Value {
        self.emit(Op::StrLen(value), Ty::Int)
    }

    /// Calls a subroutine. The number of arguments must match the subroutine's row.
    pub fn call(&mut self, subr: Subr, args: Vec<Value>) -> Value {
        self.emit(Op::Call(subr, args), subr.row().result)
    }

    /// Reads a scalar variable of type `ty` (Int or Str).
    pub fn load_var(&mut self, var: VarId, ty: Ty) -> Value {
        self.emit(Op::LoadVar(var), ty)
    }

    /// The address of a variable that is an object.
    pub fn addr_var(&mut self, var: VarId) -> Value {
        self.emit(Op::AddrVar(var), Ty::Ptr(Space::Static))
    }

    /// Stores the low bytes of a value in D memory.
    pub fn store(&mut self, size: u8, addr: Value, value: Value) {
        self.push(Op::Store { size, addr, value }, None);
    }

    /// Allocates scratch memory.
    pub fn alloca(&mut self, size: Value) -> Value {
        self.emit(Op::Alloca(size), Ty::Ptr(Space::Scratch))
    }

    /// Copies bytes to D memory.
    pub fn copy(&mut self, dst: Value, src: Value, len: Value) {
        self.push(Op::Copy { dst, src, len }, None);
    }

    /// Copies an element that is an object to fixed scratch memory. Returns the address of the
    /// copy.
    pub fn copy_elem(&mut self, var: VarId, key: Vec<Value>, at: u32) -> Value {
        self.emit(Op::CopyElem { var, key, at }, Ty::Ptr(Space::Scratch))
    }

    /// Copies an object to fixed scratch memory. Returns the address of the copy.
    pub fn copy_obj(&mut self, addr: Value, size: u32, at: u32) -> Value {
        self.emit(Op::CopyObj { addr, size, at }, Ty::Ptr(Space::Scratch))
    }

    /// Stores an object as an element.
    pub fn store_obj(&mut self, var: VarId, key: Vec<Value>, addr: Value) {
        self.push(Op::StoreObj { var, key, addr }, None);
    }

    /// Copies a string to fixed scratch memory. Returns the address of the copy.
    pub fn str_addr(&mut self, value: Value, at: u32) -> Value {
        self.emit(Op::StrAddr { value, at }, Ty::Ptr(Space::Scratch))
    }

    /// Writes a field of bytes, read from memory.
    pub fn record_bytes(&mut self, field: Field, addr: Value, len: Option<Value>) {
        self.push(Op::RecordBytes { field, addr, len }, None);
    }

    /// Writes a field from a socket buffer of the kernel.
    pub fn record_packet(&mut self, field: Field, skb: Value) {
        self.push(Op::RecordPacket { field, skb }, None);
    }

    /// Writes to memory of the current process.
    pub fn copy_out(&mut self, src: Value, addr: Value, len: Value) {
        self.push(Op::CopyOut { src, addr, len }, None);
    }

    /// Writes a string to memory of the current process.
    pub fn copy_out_str(&mut self, value: Value, addr: Value, max: Value) {
        self.push(Op::CopyOutStr { value, addr, max }, None);
    }

    /// Assigns to a scalar variable.
    pub fn store_var(&mut self, var: VarId, value: Value) {
        self.push(Op::StoreVar(var, value), None);
    }

    /// Reads an element of type `ty` (Int or Str).
    pub fn load_elem(&mut self, var: VarId, key: Vec<Value>, ty: Ty) -> Value {
        self.emit(Op::LoadElem(var, key), ty)
    }

    /// Assigns to an element.
    pub fn store_elem(&mut self, var: VarId, key: Vec<Value>, value: Value) {
        self.push(Op::StoreElem(var, key, value), None);
    }

    /// Adds to an element, atomically. Returns the sum.
    pub fn add_elem(&mut self, var: VarId, key: Vec<Value>, value: Value) -> Value {
        self.emit(Op::AddElem(var, key, value), Ty::Int)
    }

    /// Deletes an element.
    pub fn delete_elem(&mut self, var: VarId, key: Vec<Value>) {
        self.push(Op::DeleteElem(var, key), None);
    }

    /// Captures a stack, with `calls` also the frames of an interpreter in it.
    pub fn stack(&mut self, user: bool, frames: u32, calls: bool) -> Value {
        self.emit(Op::Stack { user, frames, calls }, Ty::Int)
    }

    /// Reserves the record.
    pub fn reserve(&mut self) {
        self.push(Op::Reserve, None);
    }

    /// Directs the rest of the clause to a speculation.
    pub fn speculate(&mut self, id: Value) {
        self.push(Op::Speculate(id), None);
    }

    /// Writes a field.
    pub fn record(&mut self, field: Field, value: Value) {
        self.push(Op::Record(field, value), None);
    }

    /// Writes a field of two values: an address or a provider, and its process.
    pub fn record_pair(&mut self, field: Field, value: Value, pid: Value) {
        self.push(Op::RecordPair(field, value, pid), None);
    }

    /// Commits the record.
    pub fn commit(&mut self) {
        self.push(Op::Commit, None);
    }

    /// Adds a sample to an aggregation.
    pub fn aggregate(&mut self, agg: AggId, key: Vec<Value>, args: Vec<Value>) {
        self.push(Op::Aggregate { agg, key, args }, None);
    }

    /// Ends the session with an exit status.
    pub fn exit(&mut self, status: Value) {
        self.push(Op::Exit(status), None);
    }

    /// Requests a snapshot of the rings.
    pub fn snap(&mut self) {
        self.push(Op::Snap, None);
    }

    /// Faults with `kind` and `value` when `cond` is 0.
    pub fn fault_unless(&mut self, kind: FaultKind, cond: Value, value: Value) {
        self.push(Op::FaultUnless(kind, cond, value), None);
    }

    /// Ends the block with a jump. A second terminator is ignored, as is everything after a
    /// `return`.
    pub fn jump(&mut self, to: Block, args: Vec<Value>) {
        self.terminate(Term::Jump(to, args));
    }

    /// Ends the block with a conditional branch.
    pub fn branch(&mut self, cond: Value, then: (Block, Vec<Value>), other: (Block, Vec<Value>)) {
        self.terminate(Term::Branch { cond, then, other });
    }

    /// Ends the block and the clause.
    pub fn ret(&mut self) {
        self.terminate(Term::Return);
    }

    /// Ends the block and the clause: the predicate is false.
    pub fn predicate_false(&mut self) {
        self.terminate(Term::PredicateFalse);
    }

    /// Finishes the function: sorts the blocks, removes unreachable blocks and renumbers the values
    /// in order.
    pub fn finish(self) -> Result<Function, BuildError> {
        let mut open = Vec::new();
        let blocks: Vec<BlockData> = self
            .blocks
            .into_iter()
            .enumerate()
            .map(|(i, b)| {
                if b.term.is_none() {
                    open.push(i);
                }
                BlockData { params: b.params, insts: b.insts, term: b.term.unwrap_or(Term::Return) }
            })
            .collect();
        if !open.is_empty() {
            let reached = reachable(&blocks);
            if let Some(i) = open.into_iter().find(|i| reached[*i]) {
                return Err(BuildError::Unterminated(Block(i as u32)));
            }
        }
        let mut function = Function { name: self.name, blocks, values: self.values };
        function.normalize().map_err(BuildError::Cycle)?;
        Ok(function)
    }
}

fn reachable(blocks: &[BlockData]) -> Vec<bool> {
    let mut seen = vec![false; blocks.len()];
    let mut work = vec![0usize];
    while let Some(i) = work.pop() {
        if i < blocks.len() && !std::mem::replace(&mut seen[i], true) {
            blocks[i].term.for_each_edge(|to, _| work.push(to.0 as usize));
        }
    }
    seen
}

impl Module {
    /// Creates a module without clauses. String 0 is "".
    pub fn new(strsize: u32) -> Module {
        Module { strings: vec![Vec::new()], strsize, scratchsize: SCRATCH_SIZE, ..Module::default() }
    }

    /// Bytes that a string takes in memory: see [`plane::desc::string_storage`].
    pub fn string_storage(&self) -> u32 {
        plane::desc::string_storage(self.strsize)
    }

    /// Interns a constant string: truncates it at its first NUL and at `strsize - 1` bytes, and
    /// returns its number. Equal strings have one number.
    pub fn intern(&mut self, text: &[u8]) -> StrId {
        if self.strings.is_empty() {
            self.strings.push(Vec::new());
        }
        let text = text.split(|b| *b == 0).next().unwrap_or_default();
        let text = &text[..text.len().min(self.strsize.saturating_sub(1) as usize)];
        let found = self.strings.iter().position(|s| s == text).unwrap_or_else(|| {
            self.strings.push(text.to_vec());
            self.strings.len() - 1
        });
        StrId(found as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finish_sorts_blocks_forward_and_drops_unreachable_ones() {
        let mut b = FunctionBuilder::new("clause_0");
        let (join, joined) = b.create_join(Ty::Int);
        let no = b.create_block();
        let yes = b.create_block();
        let lost = b.create_block();
        let pid = b.builtin(IntBuiltin::Pid);
        b.branch(pid, (yes, vec![]), (no, vec![]));
        b.switch_to(lost);
        b.reserve();
        b.switch_to(no);
        let two = b.int(2);
        b.jump(join, vec![two]);
        b.switch_to(yes);
        let one = b.int(1);
        b.jump(join, vec![one]);
        b.switch_to(join);
        b.exit(joined);
        b.ret();
        b.reserve();
        b.ret();
        let f = b.finish().unwrap();
        assert_eq!(f.blocks.len(), 4);
        assert_eq!(f.blocks[1].insts[0].op, Op::Const(1));
        assert_eq!(f.blocks[2].insts[0].op, Op::Const(2));
        assert_eq!(f.blocks[3].params, [Value(3)]);
        assert_eq!(f.values.len(), 4);
        for (i, block) in f.blocks.iter().enumerate() {
            block.term.for_each_edge(|to, _| assert!(to.0 as usize > i));
        }
    }

    #[test]
    fn finish_rejects_a_block_without_end_and_a_cycle() {
        let mut b = FunctionBuilder::new("f");
        let next = b.create_block();
        b.jump(next, vec![]);
        assert_eq!(b.finish().unwrap_err(), BuildError::Unterminated(Block(1)));
        let mut b = FunctionBuilder::new("f");
        let next = b.create_block();
        b.jump(next, vec![]);
        b.switch_to(next);
        b.jump(next, vec![]);
        assert_eq!(b.finish().unwrap_err(), BuildError::Cycle(Block(1)));
    }

    #[test]
    fn strings_are_interned_once_and_truncated_at_nul_and_strsize() {
        let mut m = Module::new(8);
        assert_eq!(m.intern(b""), StrId(0));
        assert_eq!(m.intern(b"abc"), StrId(1));
        assert_eq!(m.intern(b"abc\0def"), StrId(1));
        assert_eq!(m.intern(b"12345678"), StrId(2));
        assert_eq!(m.strings[2], b"1234567");
    }
}
