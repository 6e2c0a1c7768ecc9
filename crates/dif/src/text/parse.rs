//! The parser. Its input may be written by a person or a fuzzer. No input may make it panic, or
//! allocate memory out of proportion to the length of the input.

use std::fmt;

use plane::desc::{AggFunc, AggId};

use super::lex::{Token, tokens};
use super::names::{ADDR, INT, SCOPE, TY, item_of};
use crate::ir::{
    AggDesc, Block, BlockData, Clause, Datum, Field, Function, InstData, Module, RecordDesc, Term, Ty, Value,
    VarDesc, VarId, VarTy,
};
use crate::memory::SCRATCH_SIZE;

/// A syntax error and its line (counted from 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line.
    pub line: usize,
    /// The message.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

pub(super) type Parse<T> = Result<T, String>;

/// Parses a module. Spans are not part of the text, so they are `None`.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    let mut parser = Parser { module: Module::default(), open: None, limit: text.len() };
    for (i, line) in text.lines().enumerate() {
        parser.line(line).map_err(|message| ParseError { line: i + 1, message })?;
    }
    let last = text.lines().count();
    if parser.open.is_some() {
        return Err(ParseError { line: last, message: "the clause has no }".into() });
    }
    Ok(parser.module)
}

/// A clause between its braces.
struct OpenClause {
    clause: Clause,
    action: u16,
    /// Parameters and instructions of the block that has no terminator yet.
    block: Option<(Vec<Value>, Vec<InstData>)>,
}

struct Parser {
    module: Module,
    open: Option<OpenClause>,
    /// Upper bound of value numbers: a text cannot define more values than it has bytes.
    limit: usize,
}

impl Parser {
    fn line(&mut self, line: &str) -> Parse<()> {
        let mut t = Cursor { tokens: tokens(line)?, at: 0 };
        if t.at_end() {
            return Ok(());
        }
        match self.open.take() {
            Some(mut open) => {
                if t.accept(&Token::Sign('}')) {
                    if open.block.is_some() {
                        return Err("the block has no end".into());
                    }
                    self.module.clauses.push(open.clause);
                } else {
                    self.clause_line(&mut open, &mut t)?;
                    self.open = Some(open);
                }
            }
            None => self.top(&mut t)?,
        }
        t.end()
    }

    fn top(&mut self, t: &mut Cursor) -> Parse<()> {
        match t.word()?.as_str() {
            "module" => {
                t.keyword("strsize")?;
                self.module.strsize = t.number()?;
                self.module.scratchsize =
                    if t.accept_word("scratchsize") { t.number()? } else { SCRATCH_SIZE };
            }
            "string" => {
                t.numbered("s", self.module.strings.len())?;
                self.module.strings.push(t.bytes()?);
            }
            "var" => {
                t.numbered("var", self.module.vars.len())?;
                let scope = t.item(SCOPE)?;
                let name = t.string()?;
                let ty = match t.word()?.as_str() {
                    "str" => VarTy::Str,
                    "bytes" => VarTy::Bytes { size: t.parenthesized()? },
                    "int" => VarTy::Int,
                    word => return Err(format!("unknown type {word}")),
                };
                let (key, key_size) =
                    if t.at_end() { (None, 0) } else { t.key().map(|(k, s)| (Some(k), s))? };
                self.module.vars.push(VarDesc { name, scope, ty, key, key_size });
            }
            "agg" => {
                t.numbered("agg", self.module.aggs.len())?;
                let name = t.string()?;
                let func = t.function()?;
                let (key, key_size) = t.key()?;
                self.module.aggs.push(AggDesc { name, func, key, key_size });
            }
            "clause" => {
                let name = t.string()?;
                let record = if t.accept_word("record") {
                    Some(RecordDesc { size: t.number()?, actions: Vec::new(), process: None })
                } else {
                    None
                };
                t.sign('{')?;
                let func = Function { name, blocks: Vec::new(), values: Vec::new() };
                let clause = Clause { func, record, span: None };
                self.open = Some(OpenClause { clause, action: 0, block: None });
            }
            word => return Err(format!("unknown line {word}")),
        }
        Ok(())
    }

    fn clause_line(&self, open: &mut OpenClause, t: &mut Cursor) -> Parse<()> {
        if t.accept_word("does") {
            let record = open.clause.record.as_mut().ok_or("the clause has no record")?;
            record.actions.push(t.action()?);
            return Ok(());
        }
        if t.accept_word("action") {
            open.action = t.number()?;
            return Ok(());
        }
        if open.block.is_none() {
            let number = t.indexed("b")?;
            if number as usize != open.clause.func.blocks.len() {
                return Err(format!("b{number} is out of order"));
            }
            let mut params = Vec::new();
            if t.accept(&Token::Sign('(')) {
                while !t.accept(&Token::Sign(')')) {
                    params.push(self.definition(open, t)?);
                    t.accept(&Token::Sign(','));
                }
            }
            t.sign(':')?;
            open.block = Some((params, Vec::new()));
            return Ok(());
        }
        if let Some(term) = t.term()? {
            if let Some((params, insts)) = open.block.take() {
                open.clause.func.blocks.push(BlockData { params, insts, term });
            }
            return Ok(());
        }
        let result = if t.is_definition() {
            let v = self.definition(open, t)?;
            t.sign('=')?;
            Some(v)
        } else {
            None
        };
        let ty = result.and_then(|v| open.clause.func.values.get(v.0 as usize).copied());
        let op = t.op(ty)?;
        let action = open.action;
        if let Some((_, insts)) = &mut open.block {
            insts.push(InstData { op, result, span: None, action });
        }
        Ok(())
    }

    /// `v3:int`.
    fn definition(&self, open: &mut OpenClause, t: &mut Cursor) -> Parse<Value> {
        let v = t.value()?;
        t.sign(':')?;
        let ty = t.item(TY)?;
        let index = v.0 as usize;
        if index >= self.limit {
            return Err(format!("v{index} is too high a number"));
        }
        let values = &mut open.clause.func.values;
        if values.len() <= index {
            values.resize(index + 1, Ty::Int);
        }
        values[index] = ty;
        Ok(v)
    }
}

/// The tokens of a line and the current position.
pub(super) struct Cursor {
    pub(super) tokens: Vec<Token>,
    pub(super) at: usize,
}

impl Cursor {
    pub(super) fn at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    fn end(&self) -> Parse<()> {
        match self.tokens.get(self.at) {
            None => Ok(()),
            Some(t) => Err(format!("unexpected {t:?}")),
        }
    }

    fn next(&mut self) -> Parse<&Token> {
        self.at += 1;
        self.tokens.get(self.at - 1).ok_or_else(|| "the line is too short".into())
    }

    pub(super) fn accept(&mut self, token: &Token) -> bool {
        let found = self.tokens.get(self.at) == Some(token);
        self.at += usize::from(found);
        found
    }

    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(Token::Word(w)) if w == word);
        self.at += usize::from(found);
        found
    }

    pub(super) fn sign(&mut self, sign: char) -> Parse<()> {
        match self.next()? {
            Token::Sign(c) if *c == sign => Ok(()),
            t => Err(format!("{sign:?} expected, not {t:?}")),
        }
    }

    pub(super) fn word(&mut self) -> Parse<String> {
        match self.next()? {
            Token::Word(w) => Ok(w.clone()),
            t => Err(format!("a word expected, not {t:?}")),
        }
    }

    fn keyword(&mut self, word: &str) -> Parse<()> {
        if self.accept_word(word) { Ok(()) } else { Err(format!("{word} expected")) }
    }

    fn bytes(&mut self) -> Parse<Vec<u8>> {
        match self.next()? {
            Token::Bytes(b) => Ok(b.clone()),
            t => Err(format!("a string expected, not {t:?}")),
        }
    }

    pub(super) fn string(&mut self) -> Parse<String> {
        String::from_utf8(self.bytes()?).map_err(|_| "the string is not UTF-8".into())
    }

    pub(super) fn number<T: TryFrom<i128>>(&mut self) -> Parse<T> {
        match self.next()? {
            Token::Number(n) => T::try_from(*n).map_err(|_| format!("{n} is out of range")),
            t => Err(format!("a number expected, not {t:?}")),
        }
    }

    fn parenthesized(&mut self) -> Parse<u32> {
        self.sign('(')?;
        let n = self.number()?;
        self.sign(')')?;
        Ok(n)
    }

    pub(super) fn item<T: Copy>(&mut self, table: &[(T, &'static str)]) -> Parse<T> {
        let word = self.word()?;
        item_of(table, &word).ok_or_else(|| format!("unknown word {word}"))
    }

    /// A word made of a prefix and a number: `v3`, `agg0`.
    pub(super) fn indexed(&mut self, prefix: &str) -> Parse<u32> {
        let word = self.word()?;
        let digits = word.strip_prefix(prefix).filter(|d| !d.starts_with('+'));
        digits.and_then(|d| d.parse().ok()).ok_or_else(|| format!("{prefix}N expected, not {word}"))
    }

    /// `s3 =`, in order.
    fn numbered(&mut self, prefix: &str, expected: usize) -> Parse<()> {
        let number = self.indexed(prefix)?;
        if number as usize != expected {
            return Err(format!("{prefix}{number} is out of order"));
        }
        self.sign('=')
    }

    pub(super) fn value(&mut self) -> Parse<Value> {
        self.indexed("v").map(Value)
    }

    fn is_definition(&self) -> bool {
        self.tokens.get(self.at + 1) == Some(&Token::Sign(':'))
    }

    pub(super) fn list<T>(
        &mut self,
        close: char,
        mut item: impl FnMut(&mut Self) -> Parse<T>,
    ) -> Parse<Vec<T>> {
        let mut out = Vec::new();
        while !self.accept(&Token::Sign(close)) {
            if !out.is_empty() {
                self.sign(',')?;
            }
            out.push(item(self)?);
        }
        Ok(out)
    }

    /// `[0:i32, 8:str(16)] size 24`.
    fn key(&mut self) -> Parse<(Vec<Field>, u32)> {
        self.sign('[')?;
        let fields = self.list(']', Self::field)?;
        self.keyword("size")?;
        Ok((fields, self.number()?))
    }

    pub(super) fn field(&mut self) -> Parse<Field> {
        let offset = self.number()?;
        self.sign(':')?;
        let word = self.word()?;
        if let Some((size, signed)) = item_of(INT, &word) {
            return Ok(Field { offset, datum: Datum::Int { size, signed } });
        }
        if word == "interned" {
            return Ok(Field { offset, datum: Datum::Interned });
        }
        if word == "provider" {
            return Ok(Field { offset, datum: Datum::Provider });
        }
        self.sign('(')?;
        let datum = match word.as_str() {
            "whole" => {
                let (size, signed) = self.item(INT)?;
                Datum::Whole { size, signed }
            }
            "str" => Datum::Str { size: self.number()? },
            "name" => Datum::Name { size: self.number()? },
            "bytes" => Datum::Bytes { size: self.number()? },
            "address" => Datum::Address { strsize: self.number()? },
            "kstack" => Datum::KernelStack { frames: self.number()? },
            "ustack" => {
                let frames = self.number()?;
                self.sign(',')?;
                Datum::UserStack { frames, strsize: self.number()? }
            }
            "kaddr" => Datum::KernelAddr(self.item(ADDR)?),
            "uaddr" => Datum::UserAddr(self.item(ADDR)?),
            _ => return Err(format!("unknown datum {word}")),
        };
        self.sign(')')?;
        Ok(Field { offset, datum })
    }

    fn function(&mut self) -> Parse<AggFunc> {
        let word = self.word()?;
        let simple = [
            AggFunc::Count,
            AggFunc::Sum,
            AggFunc::Min,
            AggFunc::Max,
            AggFunc::Avg,
            AggFunc::Stddev,
            AggFunc::Quantize,
        ];
        if let Some(func) = simple.into_iter().find(|f| f.name() == word) {
            return Ok(func);
        }
        self.sign('(')?;
        let numbers: Vec<i128> = self.list(')', Self::number)?;
        let range = |_| "an argument is out of range".to_string();
        let short = |n: i128| u16::try_from(n).map_err(range);
        let int = |n: i128| i32::try_from(n).map_err(range);
        match (word.as_str(), numbers.as_slice()) {
            ("lquantize", &[base, limit, step]) => {
                Ok(AggFunc::Lquantize { base: int(base)?, limit: int(limit)?, step: short(step)? })
            }
            ("llquantize", &[factor, low, high, nsteps]) => Ok(AggFunc::Llquantize {
                factor: short(factor)?,
                low: short(low)?,
                high: short(high)?,
                nsteps: short(nsteps)?,
            }),
            _ => Err(format!("unknown function {word}")),
        }
    }

    pub(super) fn agg(&mut self) -> Parse<AggId> {
        self.indexed("agg").map(AggId)
    }

    fn edge(&mut self) -> Parse<(Block, Vec<Value>)> {
        let block = Block(self.indexed("b")?);
        let args = if self.accept(&Token::Sign('(')) { self.list(')', Self::value)? } else { Vec::new() };
        Ok((block, args))
    }

    fn term(&mut self) -> Parse<Option<Term>> {
        Ok(Some(if self.accept_word("jump") {
            let (to, args) = self.edge()?;
            Term::Jump(to, args)
        } else if self.accept_word("branch") {
            let cond = self.value()?;
            self.sign(',')?;
            let then = self.edge()?;
            self.sign(',')?;
            Term::Branch { cond, then, other: self.edge()? }
        } else if self.accept_word("return") {
            Term::Return
        } else if self.accept_word("predfalse") {
            Term::PredicateFalse
        } else {
            return Ok(None);
        }))
    }

    pub(super) fn two(&mut self) -> Parse<(Value, Value)> {
        let a = self.value()?;
        self.sign(',')?;
        Ok((a, self.value()?))
    }

    pub(super) fn three(&mut self) -> Parse<(Value, Value, Value)> {
        let (a, b) = self.two()?;
        self.sign(',')?;
        Ok((a, b, self.value()?))
    }

    pub(super) fn element(&mut self) -> Parse<(VarId, Vec<Value>)> {
        let var = VarId(self.indexed("var")?);
        self.sign('[')?;
        Ok((var, self.list(']', Self::value)?))
    }
}
