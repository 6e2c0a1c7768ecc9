//! Prints a checked program as text, for golden tests and `-x tree`.

use std::fmt::Write;

use plane::desc::{Action, Datum, Field};
use probes::Attributes;
use types::Types;

use crate::program::{Builtin, Checked, Clause, Expr, ExprKind, Form, IntBuiltin, KeyValue, Place, StmtKind};

/// The text of a checked program, with one fact per line.
pub fn dump(checked: &Checked, types: &Types) -> String {
    let mut out = String::new();
    for v in &checked.vars {
        let _ = write!(out, "var {}{}: {}", v.scope.prefix(), v.name, v.type_name);
        if let Some(key) = &v.key {
            let _ = write!(out, " [{}]", fields(key));
        }
        out.push('\n');
    }
    for a in &checked.aggs {
        let _ = writeln!(out, "agg @{}: {} [{}]", a.name, a.func.name(), fields(&a.key));
    }
    let dump = Dump { checked, types };
    for c in &checked.clauses {
        dump.clause(c, &mut out);
    }
    out
}

fn fields(fields: &[Field]) -> String {
    fields.iter().map(|f| field(*f)).collect::<Vec<_>>().join(", ")
}

fn field(f: Field) -> String {
    let int = |size: u8, signed| format!("{}{}", if signed { 'i' } else { 'u' }, u32::from(size) * 8);
    let what = match f.datum {
        Datum::Int { size, signed } => int(size, signed),
        Datum::Whole { size, signed } => format!("whole-{}", int(size, signed)),
        Datum::Str { size } => format!("str{size}"),
        Datum::Name { size } => format!("name{size}"),
        Datum::Interned => "interned".into(),
        Datum::Provider => "provider".into(),
        Datum::Bytes { size } => format!("bytes{size}"),
        Datum::KernelStack { frames } => format!("stack{frames}"),
        Datum::UserStack { frames, strsize } => format!("ustack{frames}/{strsize}"),
        Datum::KernelAddr(form) => format!("kaddr:{form:?}"),
        Datum::Address { strsize } => format!("address:{strsize}"),
        Datum::UserAddr(form) => format!("uaddr:{form:?}"),
    };
    format!("{what}@{}", f.offset)
}

struct Dump<'a> {
    checked: &'a Checked,
    types: &'a Types,
}

impl Dump<'_> {
    fn clause(&self, c: &Clause, out: &mut String) {
        let patterns: Vec<String> = c.patterns.iter().map(|p| p.pattern.to_string()).collect();
        let what = if c.part { "part of" } else { "clause" };
        let _ = writeln!(out, "{what} {} ({} probes)", patterns.join(", "), c.probes.len());
        if c.attributes != Attributes::STABLE {
            let _ = writeln!(out, "  promises {}", c.attributes);
        }
        if let Some(p) = &c.predicate {
            let _ = writeln!(out, "  predicate {}", self.expr(p));
        }
        for s in &c.body {
            let text = match &s.kind {
                StmtKind::Expr(e) => self.expr(e),
                StmtKind::Record(writes) => {
                    let list: Vec<String> =
                        writes.iter().map(|(f, v)| format!("{} = {}", field(*f), self.key(v))).collect();
                    format!("record {}", list.join(", "))
                }
                StmtKind::Speculate(e) => format!("speculate {}", self.expr(e)),
                StmtKind::Exit(f, e) => format!("exit {} = {}", field(*f), self.expr(e)),
                StmtKind::Snap(f, e) => format!("snap {} = {}", field(*f), self.expr(e)),
                StmtKind::Aggregate { agg, key, args } => {
                    let name = self.checked.aggs.get(agg.0 as usize).map_or("?", |a| a.name.as_str());
                    let key: Vec<String> = key.iter().map(|k| self.key(k)).collect();
                    let args: Vec<String> = args.iter().map(|a| self.expr(a)).collect();
                    format!("aggregate @{name}[{}] ({})", key.join(", "), args.join(", "))
                }
            };
            let _ = writeln!(out, "  {}: {text}", s.action);
        }
        if let Some(r) = &c.record {
            let actions: Vec<String> = r.actions.iter().map(action).collect();
            let _ = writeln!(out, "  record {} bytes: {}", r.size, actions.join("; "));
        }
    }

    fn key(&self, k: &KeyValue) -> String {
        match k {
            KeyValue::Expr(e) => self.expr(e),
            KeyValue::Bytes { addr, user, len } => {
                let len =
                    len.as_ref().map_or(String::new(), |(_, len)| format!(" at most {}", self.expr(len)));
                format!("({}bytes {}{len})", if *user { "u" } else { "" }, self.expr(addr))
            }
            KeyValue::Packet(skb) => format!("(packet {})", self.expr(skb)),
            KeyValue::Stack { user, frames, calls } => {
                let name = match (user, calls) {
                    (false, _) => "stack",
                    (true, false) => "ustack",
                    (true, true) => "jstack",
                };
                format!("{name}({frames})")
            }
            KeyValue::KernelAddr(e) => format!("kernel-address {}", self.expr(e)),
            KeyValue::UserAddr(e) => format!("user-address {}", self.expr(e)),
        }
    }

    fn place(&self, p: &Place) -> String {
        let name = |id: &crate::program::VarId| {
            self.checked
                .vars
                .get(id.0 as usize)
                .map_or("?".to_string(), |v| format!("{}{}", v.scope.prefix(), v.name))
        };
        match p {
            Place::Var(id) => name(id),
            Place::Elem(id, keys) => {
                let keys: Vec<String> = keys.iter().map(|k| self.expr(k)).collect();
                format!("{}[{}]", name(id), keys.join(", "))
            }
            Place::Memory(m) => {
                let form = match m.form {
                    Form::Int { size, signed } => {
                        format!("{}{}", if signed { 'i' } else { 'u' }, u32::from(size) * 8)
                    }
                    Form::Bits { size, shift, bits, signed } => {
                        let sign = if signed { 'i' } else { 'u' };
                        format!("bits-{sign}{bits}-at-{shift}-of-{}", u32::from(size) * 8)
                    }
                    Form::Str => "str".to_string(),
                };
                format!("({form} {})", self.expr(&m.addr))
            }
            Place::Char { string, index } => {
                format!("(char {} {})", self.place(string), self.expr(index))
            }
        }
    }

    /// `(operator operands):type`.
    fn expr(&self, e: &Expr) -> String {
        let x = |e: &Expr| self.expr(e);
        let text = match &e.kind {
            ExprKind::Int(v) => v.to_string(),
            ExprKind::Null => "NULL".to_owned(),
            ExprKind::Str(s) => format!("{:?}", String::from_utf8_lossy(s)),
            ExprKind::Builtin(Builtin::Int(IntBuiltin::Arg(n))) => format!("arg({n})"),
            ExprKind::Builtin(Builtin::Int(IntBuiltin::Ureg(n))) => format!("ureg({n})"),
            ExprKind::Builtin(b) => b.to_string(),
            ExprKind::KernelArg(n) => format!("kernelarg({n})"),
            ExprKind::FamilyProbeprov => "familyprobeprov".into(),
            ExprKind::Read(p) => self.place(p),
            ExprKind::Old => "old".into(),
            ExprKind::Neg(v) => format!("(neg {})", x(v)),
            ExprKind::BitNot(v) => format!("(bitnot {})", x(v)),
            ExprKind::Not(v) => format!("(not {})", x(v)),
            ExprKind::Truth(v) => format!("(truth {})", x(v)),
            ExprKind::Arith(op, a, b) => {
                format!("({} {} {})", format!("{op:?}").to_lowercase(), x(a), x(b))
            }
            ExprKind::Compare { relation, signed, left, right } => {
                let sign = if *signed { 's' } else { 'u' };
                format!("({}{sign} {} {})", format!("{relation:?}").to_lowercase(), x(left), x(right))
            }
            ExprKind::CompareStr(relation, a, b) => {
                format!("({}str {} {})", format!("{relation:?}").to_lowercase(), x(a), x(b))
            }
            ExprKind::Logic(op, a, b) => {
                format!("(log{} {} {})", format!("{op:?}").to_lowercase(), x(a), x(b))
            }
            ExprKind::Cond(c, a, b) => format!("(if {} {} {})", x(c), x(a), x(b)),
            ExprKind::Comma(a, b) => format!("(then {} {})", x(a), x(b)),
            ExprKind::Convert { size, signed, value } => {
                format!("({}{} {})", if *signed { "sext" } else { "zext" }, u32::from(*size) * 8, x(value))
            }
            ExprKind::AddrVar(id) => format!("&{}", self.place(&Place::Var(*id))),
            ExprKind::ElemAddr(id, keys) => format!("&{}", self.place(&Place::Elem(*id, keys.clone()))),
            ExprKind::KeyObject { addr, user, size, padding } => {
                let gaps: String =
                    padding.iter().map(|p| format!(" {}&{:02x}", p.offset, p.member_bits)).collect();
                format!("({}bytes-{size} {}{gaps})", if *user { "u" } else { "" }, x(addr))
            }
            ExprKind::StrAddr(v) => format!("(straddr {})", x(v)),
            ExprKind::Bounded { index, count } => format!("(below-{count} {})", x(index)),
            ExprKind::CopyObject { dst, src, user, size } => {
                format!("({}copy-{size} {} {})", if *user { "u" } else { "" }, x(dst), x(src))
            }
            ExprKind::MemoryCall { call, args, user } => {
                let args: String = args.iter().map(|a| format!(" {}", x(a))).collect();
                let call = format!("{call:?}").to_lowercase();
                format!("({}{call}{args})", if *user { "u" } else { "" })
            }
            ExprKind::Deref { addr, .. } => format!("(object {})", x(addr)),
            ExprKind::Xlated { input, .. } => format!("(xlate {})", x(input)),
            ExprKind::Let { id, value, body } => format!("(let %{id} {} {})", x(value), x(body)),
            ExprKind::Bound(id) => format!("%{id}"),
            ExprKind::Array { addr, bytes } => format!("(array{bytes} {})", x(addr)),
            ExprKind::Load { addr, size, signed, user } => format!(
                "({}load-{}{} {})",
                if *user { "u" } else { "" },
                if *signed { 'i' } else { 'u' },
                u32::from(*size) * 8,
                x(addr)
            ),
            ExprKind::LoadStr { addr, user, max } => {
                let max = max.as_ref().map_or(String::new(), |m| format!(" {}", x(m)));
                format!("({}loadstr {}{max})", if *user { "u" } else { "" }, x(addr))
            }
            ExprKind::Call { name, args, user } => {
                let args: String = args.iter().map(|a| format!(" {}", x(a))).collect();
                format!("({}{name}{args})", if *user { "u" } else { "" })
            }
            ExprKind::Strlen(v) => format!("(strlen {})", x(v)),
            ExprKind::Assign(p, v) => format!("(set {} {})", self.place(p), x(v)),
            ExprKind::Delete(p) => format!("(delete {})", self.place(p)),
            ExprKind::Update { place, new, post } => {
                format!("({} {} {})", if *post { "post-update" } else { "update" }, self.place(place), x(new))
            }
        };
        format!("{text}:{}", self.types.name(e.ty))
    }
}

fn action(a: &Action) -> String {
    let aggs = |ids: &[plane::desc::AggId]| ids.iter().map(|i| i.0.to_string()).collect::<Vec<_>>().join(" ");
    match a {
        Action::Trace(f) => format!("trace {}", field(*f)),
        Action::Print(f, shape) => format!("print {} {shape}", field(*f)),
        Action::Tracemem { bytes, .. } => format!("tracemem {}", field(*bytes)),
        Action::Pcap { packet, protocol, time } => {
            format!("pcap {} {} {}", field(*packet), field(*protocol), field(*time))
        }
        Action::Printf { format, args } => format!("printf {format:?} [{}]", fields(args)),
        Action::Printa { format, aggs: ids } => format!("printa {format:?} aggs {}", aggs(ids)),
        Action::Clear(id) => format!("clear agg {}", id.0),
        Action::Trunc(id, f) => {
            format!("trunc agg {}{}", id.0, f.map_or(String::new(), |f| format!(" {}", field(f))))
        }
        Action::Normalize(id, f) => format!("normalize agg {} {}", id.0, field(*f)),
        Action::Denormalize(id) => format!("denormalize agg {}", id.0),
        Action::Exit(f) => format!("exit {}", field(*f)),
        Action::Snap(f) => format!("snap {}", field(*f)),
        Action::System { format, args } => format!("system {format:?} [{}]", fields(args)),
        Action::Freopen { format, args } => format!("freopen {format:?} [{}]", fields(args)),
        Action::Ftruncate => "ftruncate".into(),
        Action::Setopt { name, value } => {
            format!("setopt {}{}", field(*name), value.map_or(String::new(), |v| format!(" {}", field(v))))
        }
        Action::None => "default".into(),
    }
}
