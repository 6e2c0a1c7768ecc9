//! The printer.

use std::fmt::{self, Write};

use diagnostics::{SourceMap, Span};
use plane::desc::AggFunc;

use super::names::{ADDR, BIN, COND, EXT, FAULT, INT, SCOPE, TY, UN, name_of};
use crate::ir::{
    Block, Clause, Datum, Field, Function, InstData, Module, Op, Scope, StrId, Term, Value, VarId, VarTy,
};
use crate::memory::SCRATCH_SIZE;

/// Prints a module. With a source map, each instruction is followed by its line and column.
pub fn print(module: &Module, map: Option<&SourceMap>) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = Printer { module, map, out: &mut out }.module();
    out
}

/// Prints one clause, for messages.
pub fn print_function(module: &Module, function: &Function, map: Option<&SourceMap>) -> String {
    let mut out = String::new();
    let _ = Printer { module, map, out: &mut out }.blocks(function);
    out
}

/// The column where comments start on shorter lines.
const COMMENT_COLUMN: usize = 48;

pub(super) struct Printer<'a> {
    module: &'a Module,
    map: Option<&'a SourceMap>,
    pub(super) out: &'a mut String,
}

impl Printer<'_> {
    fn module(&mut self) -> fmt::Result {
        write!(self.out, "module strsize {}", self.module.strsize)?;
        if self.module.scratchsize != SCRATCH_SIZE {
            write!(self.out, " scratchsize {}", self.module.scratchsize)?;
        }
        writeln!(self.out)?;
        for (i, s) in self.module.strings.iter().enumerate() {
            writeln!(self.out, "string {} = {}", StrId(i as u32), quote(s))?;
        }
        for (i, var) in self.module.vars.iter().enumerate() {
            let (id, scope, name) = (VarId(i as u32), name_of(SCOPE, var.scope), quote(var.name.as_bytes()));
            write!(self.out, "var {id} = {scope} {name} ")?;
            match var.ty {
                VarTy::Int => self.out.push_str("int"),
                VarTy::Str => self.out.push_str("str"),
                VarTy::Bytes { size } => write!(self.out, "bytes({size})")?,
            }
            if let Some(key) = &var.key {
                write!(self.out, " [{}] size {}", Fields(key), var.key_size)?;
            }
            writeln!(self.out)?;
        }
        for (i, agg) in self.module.aggs.iter().enumerate() {
            let (id, name, func) = (agg_id(i), quote(agg.name.as_bytes()), Func(agg.func));
            writeln!(self.out, "agg {id} = {name} {func} [{}] size {}", Fields(&agg.key), agg.key_size)?;
        }
        for clause in &self.module.clauses {
            self.clause(clause)?;
        }
        Ok(())
    }

    fn clause(&mut self, clause: &Clause) -> fmt::Result {
        write!(self.out, "\nclause {}", quote(clause.func.name.as_bytes()))?;
        if let Some(record) = &clause.record {
            write!(self.out, " record {}", record.size)?;
        }
        self.out.push_str(" {");
        if let Some(at) = self.place(clause.span) {
            write!(self.out, " ; {at}")?;
        }
        self.out.push('\n');
        for action in clause.record.iter().flat_map(|r| &r.actions) {
            write!(self.out, "    does ")?;
            self.action(action)?;
            self.out.push('\n');
        }
        self.blocks(&clause.func)?;
        self.out.push_str("}\n");
        Ok(())
    }

    fn blocks(&mut self, function: &Function) -> fmt::Result {
        let mut action = 0;
        for (b, block) in function.blocks.iter().enumerate() {
            write!(self.out, "{}", Block(b as u32))?;
            if !block.params.is_empty() {
                write!(self.out, "({})", List(block.params.iter().map(|p| typed(function, *p))))?;
            }
            self.out.push_str(":\n");
            for inst in &block.insts {
                if inst.action != action {
                    action = inst.action;
                    writeln!(self.out, "  action {action}")?;
                }
                self.instruction(function, inst)?;
            }
            self.term(&block.term)?;
        }
        Ok(())
    }

    fn instruction(&mut self, function: &Function, inst: &InstData) -> fmt::Result {
        let start = self.out.len();
        self.out.push_str("    ");
        if let Some(v) = inst.result {
            write!(self.out, "{} = ", typed(function, v))?;
        }
        self.op(&inst.op)?;
        let mut notes = Vec::new();
        notes.extend(self.place(inst.span));
        notes.extend(self.meaning(&inst.op));
        if !notes.is_empty() {
            let pad = COMMENT_COLUMN.saturating_sub(self.out.len() - start);
            write!(self.out, "{:pad$} ; {}", "", notes.join("  "))?;
        }
        self.out.push('\n');
        Ok(())
    }

    /// The name of the variable, aggregation or string in the operation.
    fn meaning(&self, op: &Op) -> Option<String> {
        match op {
            Op::StrConst(id) => self.module.strings.get(id.0 as usize).map(|s| quote(s)),
            Op::LoadVar(v)
            | Op::AddrVar(v)
            | Op::CopyElem { var: v, .. }
            | Op::StoreObj { var: v, .. }
            | Op::StoreVar(v, _)
            | Op::LoadElem(v, _)
            | Op::StoreElem(v, ..)
            | Op::AddElem(v, ..)
            | Op::DeleteElem(v, _) => {
                let var = self.module.vars.get(v.0 as usize)?;
                let prefix = match var.scope {
                    Scope::Global => "",
                    Scope::Thread => "self->",
                    Scope::Clause => "this->",
                };
                Some(format!("{prefix}{}", var.name.escape_default()))
            }
            Op::Aggregate { agg, .. } => {
                self.module.aggs.get(agg.0 as usize).map(|a| format!("@{}", a.name.escape_default()))
            }
            _ => None,
        }
    }

    fn place(&self, span: Option<Span>) -> Option<String> {
        let (map, span) = (self.map?, span?);
        let (line, column) = map.line_column(span.file, span.start);
        Some(format!("{}:{column}", map.line_origin(span.file, line).1))
    }

    fn op(&mut self, op: &Op) -> fmt::Result {
        let out = &mut *self.out;
        match op {
            Op::Const(n) => write!(out, "const {n}"),
            Op::StrConst(id) => write!(out, "str {id}"),
            Op::Null => write!(out, "null"),
            Op::Bin(op, a, b) => write!(out, "{} {a}, {b}", name_of(BIN, *op)),
            Op::Un(op, v) => write!(out, "{} {v}", name_of(UN, *op)),
            Op::Cmp(c, a, b) => write!(out, "cmp.{} {a}, {b}", name_of(COND, *c)),
            Op::StrCmp(c, a, b) => write!(out, "strcmp.{} {a}, {b}", name_of(COND, *c)),
            Op::Ext { bits, signed, value } => write!(out, "{} {value}", name_of(EXT, (*bits, *signed))),
            Op::AsPtr(_, v) => write!(out, "asptr {v}"),
            Op::AsInt(v) => write!(out, "asint {v}"),
            Op::Builtin(b) => write!(out, "builtin {b}"),
            Op::BuiltinStr(b) => write!(out, "builtin {b}"),
            Op::Load { size, signed, addr } => write!(out, "load.{} {addr}", name_of(INT, (*size, *signed))),
            Op::LoadStr { addr, max: None } => write!(out, "loadstr {addr}"),
            Op::LoadStr { addr, max: Some(max) } => write!(out, "loadstr {addr}, {max}"),
            Op::StrLen(v) => write!(out, "strlen {v}"),
            Op::Call(subr, args) if args.is_empty() => write!(out, "call {}", subr.row().name),
            Op::Call(subr, args) => write!(out, "call {} {}", subr.row().name, List(args.iter())),
            Op::AddrVar(var) => write!(out, "addrvar {var}"),
            Op::Store { size, addr, value } => {
                write!(out, "store.{} {addr}, {value}", name_of(INT, (*size, false)))
            }
            Op::Alloca(size) => write!(out, "alloca {size}"),
            Op::Copy { dst, src, len } => write!(out, "copy {dst}, {src}, {len}"),
            Op::CopyElem { var, key, at } => write!(out, "copyelem {var}[{}], {at}", List(key.iter())),
            Op::CopyObj { addr, size, at } => write!(out, "copyobj {addr}, {size}, {at}"),
            Op::StoreObj { var, key, addr } => write!(out, "storeobj {var}[{}], {addr}", List(key.iter())),
            Op::StrAddr { value, at } => write!(out, "straddr {value}, {at}"),
            Op::RecordBytes { field, addr, len: None } => {
                write!(out, "recordbytes {}, {addr}", FieldText(*field))
            }
            Op::RecordBytes { field, addr, len: Some(len) } => {
                write!(out, "recordbytes {}, {addr}, {len}", FieldText(*field))
            }
            Op::RecordPacket { field, skb } => write!(out, "recordpacket {}, {skb}", FieldText(*field)),
            Op::CopyOut { src, addr, len } => write!(out, "copyout {src}, {addr}, {len}"),
            Op::CopyOutStr { value, addr, max } => write!(out, "copyoutstr {value}, {addr}, {max}"),
            Op::LoadVar(var) => write!(out, "loadvar {var}"),
            Op::StoreVar(var, v) => write!(out, "storevar {var}, {v}"),
            Op::LoadElem(var, key) => write!(out, "loadelem {var}[{}]", List(key.iter())),
            Op::StoreElem(var, key, v) => write!(out, "storeelem {var}[{}], {v}", List(key.iter())),
            Op::AddElem(var, key, v) => write!(out, "addelem {var}[{}], {v}", List(key.iter())),
            Op::DeleteElem(var, key) => write!(out, "deleteelem {var}[{}]", List(key.iter())),
            Op::Stack { user: false, frames, .. } => write!(out, "kstack {frames}"),
            Op::Stack { user: true, frames, calls: false } => write!(out, "ustack {frames}"),
            Op::Stack { user: true, frames, calls: true } => write!(out, "jstack {frames}"),
            Op::Reserve => write!(out, "reserve"),
            Op::Speculate(id) => write!(out, "speculate {id}"),
            Op::Record(f, v) => write!(out, "record {}, {v}", FieldText(*f)),
            Op::RecordPair(f, a, p) => write!(out, "recordpair {}, {a}, {p}", FieldText(*f)),
            Op::Commit => write!(out, "commit"),
            Op::Aggregate { agg, key, args } => {
                write!(
                    out,
                    "aggregate {}[{}]({})",
                    agg_id(agg.0 as usize),
                    List(key.iter()),
                    List(args.iter())
                )
            }
            Op::Exit(v) => write!(out, "exit {v}"),
            Op::Snap => write!(out, "snap"),
            Op::FaultUnless(kind, c, v) => write!(out, "faultunless {} {c}, {v}", name_of(FAULT, *kind)),
        }
    }

    fn term(&mut self, term: &Term) -> fmt::Result {
        self.out.push_str("    ");
        match term {
            Term::Jump(to, args) => writeln!(self.out, "jump {}", Edge(*to, args)),
            Term::Branch { cond, then, other } => {
                let (then, other) = (Edge(then.0, &then.1), Edge(other.0, &other.1));
                writeln!(self.out, "branch {cond}, {then}, {other}")
            }
            Term::Return => writeln!(self.out, "return"),
            Term::PredicateFalse => writeln!(self.out, "predfalse"),
        }
    }
}

fn typed(function: &Function, v: Value) -> String {
    format!("{v}:{}", function.values.get(v.0 as usize).map_or("?", |ty| name_of(TY, *ty)))
}

pub(super) fn agg_id(index: usize) -> String {
    format!("agg{index}")
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

impl fmt::Display for StrId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

impl fmt::Display for VarId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "var{}", self.0)
    }
}

pub(super) struct List<I>(pub(super) I);

impl<I: Iterator<Item: fmt::Display> + Clone> fmt::Display for List<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, item) in self.0.clone().enumerate() {
            write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

struct Edge<'a>(Block, &'a [Value]);

impl fmt::Display for Edge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        if !self.1.is_empty() {
            write!(f, "({})", List(self.1.iter()))?;
        }
        Ok(())
    }
}

pub(super) struct Fields<'a>(pub(super) &'a [Field]);

impl fmt::Display for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", List(self.0.iter().map(|x| FieldText(*x))))
    }
}

pub(super) struct FieldText(pub(super) Field);

impl fmt::Display for FieldText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.0.offset)?;
        match self.0.datum {
            Datum::Int { size, signed } => f.write_str(name_of(INT, (size, signed))),
            Datum::Whole { size, signed } => write!(f, "whole({})", name_of(INT, (size, signed))),
            Datum::Str { size } => write!(f, "str({size})"),
            Datum::Name { size } => write!(f, "name({size})"),
            Datum::Interned => f.write_str("interned"),
            Datum::Provider => f.write_str("provider"),
            Datum::Bytes { size } => write!(f, "bytes({size})"),
            Datum::Address { strsize } => write!(f, "address({strsize})"),
            Datum::KernelStack { frames } => write!(f, "kstack({frames})"),
            Datum::UserStack { frames, strsize } => write!(f, "ustack({frames}, {strsize})"),
            Datum::KernelAddr(form) => write!(f, "kaddr({})", name_of(ADDR, form)),
            Datum::UserAddr(form) => write!(f, "uaddr({})", name_of(ADDR, form)),
        }
    }
}

struct Func(AggFunc);

impl fmt::Display for Func {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())?;
        match self.0 {
            AggFunc::Lquantize { base, limit, step } => write!(f, "({base}, {limit}, {step})"),
            AggFunc::Llquantize { factor, low, high, nsteps } => {
                write!(f, "({factor}, {low}, {high}, {nsteps})")
            }
            _ => Ok(()),
        }
    }
}

/// Quotes bytes. Those that are not printable ASCII become `\n`, `\t` or `\xNN`.
pub(super) fn quote(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii()).replace("\\'", "'")
}
