//! Parses operations.

use plane::builtin::Builtin;

use super::lex::Token;
use super::names::{BIN, COND, EXT, FAULT, INT, UN, item_of};
use super::parse::{Cursor, Parse};
use crate::ir::{Op, StrId, Ty, VarId};
use crate::subr::Subr;

impl Cursor {
    /// Parses an operation. `ty` is the type of its result, which determines the address space of a
    /// pointer.
    pub(super) fn op(&mut self, ty: Option<Ty>) -> Parse<Op> {
        let word = self.word()?;
        if let Some(op) = item_of(BIN, &word) {
            let (a, b) = self.two()?;
            return Ok(Op::Bin(op, a, b));
        }
        if let Some(op) = item_of(UN, &word) {
            return Ok(Op::Un(op, self.value()?));
        }
        if let Some((bits, signed)) = item_of(EXT, &word) {
            return Ok(Op::Ext { bits, signed, value: self.value()? });
        }
        if let Some((family, kind)) = word.split_once('.') {
            let unknown = || format!("unknown operation {word}");
            return match family {
                "load" => {
                    let (size, signed) = item_of(INT, kind).ok_or_else(unknown)?;
                    Ok(Op::Load { size, signed, addr: self.value()? })
                }
                "store" => {
                    let (size, _) = item_of(INT, kind).ok_or_else(unknown)?;
                    let (addr, value) = self.two()?;
                    Ok(Op::Store { size, addr, value })
                }
                "cmp" | "strcmp" => {
                    let cond = item_of(COND, kind).ok_or_else(unknown)?;
                    let (a, b) = self.two()?;
                    Ok(if family == "cmp" { Op::Cmp(cond, a, b) } else { Op::StrCmp(cond, a, b) })
                }
                _ => Err(unknown()),
            };
        }
        self.plain_op(&word, ty)
    }

    fn plain_op(&mut self, word: &str, ty: Option<Ty>) -> Parse<Op> {
        Ok(match word {
            "const" => Op::Const(self.number()?),
            "str" => Op::StrConst(StrId(self.indexed("s")?)),
            "null" => Op::Null,
            "asptr" => match ty {
                Some(Ty::Ptr(space)) => Op::AsPtr(space, self.value()?),
                _ => return Err("asptr gives a pointer".into()),
            },
            "asint" => Op::AsInt(self.value()?),
            "builtin" => {
                let name = self.word()?;
                match Builtin::named(&name) {
                    Some(Builtin::Int(b)) => Op::Builtin(b),
                    Some(Builtin::Str(b)) => Op::BuiltinStr(b),
                    None => return Err(format!("unknown builtin {name}")),
                }
            }
            "loadstr" => {
                let addr = self.value()?;
                let max = if self.accept(&Token::Sign(',')) { Some(self.value()?) } else { None };
                Op::LoadStr { addr, max }
            }
            "strlen" => Op::StrLen(self.value()?),
            "call" => {
                let name = self.word()?;
                let subr = Subr::by_name(&name).ok_or_else(|| format!("unknown subroutine {name}"))?;
                let mut args = Vec::new();
                while !self.at_end() {
                    if !args.is_empty() {
                        self.sign(',')?;
                    }
                    args.push(self.value()?);
                }
                Op::Call(subr, args)
            }
            "loadvar" => Op::LoadVar(VarId(self.indexed("var")?)),
            "storevar" => {
                let var = VarId(self.indexed("var")?);
                self.sign(',')?;
                Op::StoreVar(var, self.value()?)
            }
            "loadelem" => {
                let (var, key) = self.element()?;
                Op::LoadElem(var, key)
            }
            "storeelem" => {
                let (var, key) = self.element()?;
                self.sign(',')?;
                Op::StoreElem(var, key, self.value()?)
            }
            "addelem" => {
                let (var, key) = self.element()?;
                self.sign(',')?;
                Op::AddElem(var, key, self.value()?)
            }
            "deleteelem" => {
                let (var, key) = self.element()?;
                Op::DeleteElem(var, key)
            }
            "addrvar" => Op::AddrVar(VarId(self.indexed("var")?)),
            "alloca" => Op::Alloca(self.value()?),
            "copy" => {
                let (dst, src, len) = self.three()?;
                Op::Copy { dst, src, len }
            }
            "copyelem" => {
                let (var, key) = self.element()?;
                self.sign(',')?;
                Op::CopyElem { var, key, at: self.number()? }
            }
            "copyobj" => {
                let addr = self.value()?;
                self.sign(',')?;
                let size = self.number()?;
                self.sign(',')?;
                Op::CopyObj { addr, size, at: self.number()? }
            }
            "storeobj" => {
                let (var, key) = self.element()?;
                self.sign(',')?;
                Op::StoreObj { var, key, addr: self.value()? }
            }
            "straddr" => {
                let value = self.value()?;
                self.sign(',')?;
                Op::StrAddr { value, at: self.number()? }
            }
            "copyout" => {
                let (src, addr, len) = self.three()?;
                Op::CopyOut { src, addr, len }
            }
            "copyoutstr" => {
                let (value, addr, max) = self.three()?;
                Op::CopyOutStr { value, addr, max }
            }
            "kstack" => Op::Stack { user: false, frames: self.number()?, calls: false },
            "ustack" => Op::Stack { user: true, frames: self.number()?, calls: false },
            "jstack" => Op::Stack { user: true, frames: self.number()?, calls: true },
            "reserve" => Op::Reserve,
            "speculate" => Op::Speculate(self.value()?),
            "record" => {
                let field = self.field()?;
                self.sign(',')?;
                Op::Record(field, self.value()?)
            }
            "recordbytes" => {
                let field = self.field()?;
                self.sign(',')?;
                let addr = self.value()?;
                let len = if self.accept(&Token::Sign(',')) { Some(self.value()?) } else { None };
                Op::RecordBytes { field, addr, len }
            }
            "recordpacket" => {
                let field = self.field()?;
                self.sign(',')?;
                Op::RecordPacket { field, skb: self.value()? }
            }
            "recordpair" => {
                let field = self.field()?;
                self.sign(',')?;
                let (addr, pid) = self.two()?;
                Op::RecordPair(field, addr, pid)
            }
            "commit" => Op::Commit,
            "aggregate" => {
                let agg = self.agg()?;
                self.sign('[')?;
                let key = self.list(']', Self::value)?;
                self.sign('(')?;
                Op::Aggregate { agg, key, args: self.list(')', Self::value)? }
            }
            "exit" => Op::Exit(self.value()?),
            "snap" => Op::Snap,
            "faultunless" => {
                let kind = self.item(FAULT)?;
                let (cond, value) = self.two()?;
                Op::FaultUnless(kind, cond, value)
            }
            _ => return Err(format!("unknown operation {word}")),
        })
    }
}
