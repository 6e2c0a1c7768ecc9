//! Actions: statements that record. Each action determines its fields in the clause's record and
//! the consumer's action.

use std::sync::Arc;

use diagnostics::{Span, Tag};
use plane::desc::{Action, AddrForm, AggFunc, AggId, Datum, Field};
use probes::{Calls, ProbeInfo};
use syntax::ast;
use types::TypeId;

use crate::columns::{Column, StrUses};
use crate::names;
use crate::printf::{FormatArg, FormatUse};
use crate::program::{Expr, ExprKind, KeyValue, Repr, StmtKind};
use crate::session::Checker;
use crate::state::recovery::{CheckResult, ErrorReported};
use crate::tables::{self, ActionKind, FunctionKind, FunctionRow};

/// The stop signal, which a process cannot ignore or handle.
const SIGSTOP: i64 = 19;

/// A value that is recorded or is a key: its type, its column, and its expression.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) ty: TypeId,
    pub(crate) column: Column,
    pub(crate) value: KeyValue,
    pub(crate) span: Span,
}

/// A format with its arguments in the record.
struct Formatted {
    text: String,
    fields: Vec<Field>,
    /// The expressions of the arguments.
    spans: Vec<Span>,
    writes: Vec<(Field, KeyValue)>,
}

impl Checker<'_> {
    /// Adds an action of the clause, with the expressions of its values.
    pub(crate) fn act(&mut self, action: Action, values: &[Span]) {
        let names = values.iter().map(|span| self.source(*span)).collect();
        self.clause.actions.push(action);
        self.clause.names.push(names);
    }

    /// An expression as it is in the program, in one line and without comments.
    pub(crate) fn source(&self, span: Span) -> Arc<str> {
        names::collapsed(self.cx.map.snippet(span)).into()
    }

    /// Allocates a field for a value in the clause's record.
    fn place_field(&mut self, column: Column) -> Field {
        self.clause.layout.push(column.datum(self.cx.options.string_size()))
    }

    /// The action that an expression calls, if only records and keys can hold its value: `stack()`,
    /// `sym()` ….
    pub(crate) fn recordable(e: &ast::Expr) -> Option<(&'static FunctionRow, ActionKind, &[ast::Expr])> {
        let ast::ExprKind::Call { callee, args } = &e.kind else { return None };
        let ast::ExprKind::Ident(name) = &callee.kind else { return None };
        let row = tables::function(&name.text)?;
        match row.kind {
            FunctionKind::Action(kind) if row.ret != "void" => Some((row, kind, args)),
            _ => None,
        }
    }

    /// A value to record or to use as a key column: an expression, or `stack()`, `sym()` and
    /// similar actions.
    pub(crate) fn recorded(&mut self, e: &ast::Expr) -> CheckResult<Recorded> {
        if let Some((row, kind, args)) = Self::recordable(e) {
            self.uses_word(row.kind.word(), row.name, e.span);
            return self.special(row, kind, args, e.span);
        }
        let value = self.value(e)?;
        self.recorded_value(value)
    }

    pub(crate) fn recorded_value(&mut self, value: Expr) -> CheckResult<Recorded> {
        let span = value.span;
        let value = self.text_of_array(value);
        if let ExprKind::Array { .. } | ExprKind::Deref { .. } = value.kind {
            return self.recorded_object("trace", value);
        }
        let ty = self.types.decay(value.ty);
        let column = match self.repr(ty) {
            Some(Repr::Str) => Column::Str(StrUses::of(value.str_source())),
            Some(Repr::Int { size, signed }) => Column::Int { size, signed, whole: self.is_whole(&value) },
            None if ty == TypeId::DYN => {
                let message = "a translated pointer may not be recorded: only its members are values";
                return self.fail(Tag::D_PRINTF_ARG_TYPE, span, message);
            }
            Some(Repr::Bytes { .. }) | None => {
                let name = self.name(ty);
                return self.unsupported(span, format!("recording a value of type \"{name}\""));
            }
        };
        Ok(Recorded { ty, column, value: KeyValue::Expr(value), span })
    }

    fn special(
        &mut self,
        row: &FunctionRow,
        kind: ActionKind,
        args: &[ast::Expr],
        span: Span,
    ) -> CheckResult<Recorded> {
        let form = match kind {
            ActionKind::Sym | ActionKind::Usym => AddrForm::Symbol,
            ActionKind::Func | ActionKind::Ufunc => AddrForm::Function,
            ActionKind::Mod | ActionKind::Umod => AddrForm::Module,
            ActionKind::Guestsym => AddrForm::Guest,
            _ => AddrForm::Address,
        };
        match kind {
            ActionKind::Stack => {
                let frames = self.stack_frames(args)?;
                let column = Column::KernelStack { frames };
                let value = KeyValue::Stack { user: false, frames, calls: false };
                Ok(Recorded { ty: TypeId::STACK, column, value, span })
            }
            ActionKind::Ustack | ActionKind::Jstack => {
                let (frames, strsize) = self.ustack_frames(row.name, kind == ActionKind::Jstack, args)?;
                let column = Column::UserStack { frames, strsize };
                let value = KeyValue::Stack { user: true, frames, calls: strsize > 0 };
                Ok(Recorded { ty: TypeId::STACK, column, value, span })
            }
            _ => {
                let values = self.values(args)?;
                let mut values = self.check_prototype(row, values, span)?;
                let Some(addr) = values.pop() else { return Err(ErrorReported) };
                let ty = self.row_type(row.ret);
                let user = ty == TypeId::USYMADDR;
                let (column, value) = if user {
                    (Column::UserAddr(form), KeyValue::UserAddr(addr))
                } else {
                    (Column::KernelAddr(form), KeyValue::KernelAddr(addr))
                };
                Ok(Recorded { ty, column, value, span })
            }
        }
    }

    /// Requires a constant above zero.
    pub(crate) fn positive(&mut self, e: &ast::Expr, tag: Tag, message: &str) -> CheckResult<u64> {
        let value = self.value(e)?;
        let signed = self.types.is_signed(value.ty);
        match value.as_const() {
            Some(v) if v > 0 || !signed && v != 0 => Ok(v as u64),
            _ => self.fail(tag, e.span, message),
        }
    }

    /// A constant number of frames above zero. No stack has more than 32 bits can count.
    fn frames(&mut self, e: &ast::Expr, tag: Tag, message: &str) -> CheckResult<u32> {
        self.positive(e, tag, message).map(|frames| u32::try_from(frames).unwrap_or(u32::MAX))
    }

    fn stack_frames(&mut self, args: &[ast::Expr]) -> CheckResult<u32> {
        match args {
            [] => Ok(self.cx.options.stackframes),
            [frames] => self.frames(
                frames,
                Tag::D_STACK_SIZE,
                "stack( ) size must be a non-zero positive integral constant expression",
            ),
            [_, extra, ..] => {
                self.fail(Tag::D_STACK_PROTO, extra.span, "stack( ) prototype mismatch: too many arguments")
            }
        }
    }

    /// Frames and string size of `ustack()`, or of `jstack()`, which has its own defaults.
    fn ustack_frames(&mut self, func: &str, jstack: bool, args: &[ast::Expr]) -> CheckResult<(u32, u32)> {
        let options = &self.cx.options;
        let (frames, strsize) = match jstack {
            true => (options.jstackframes, options.jstackstrsize),
            false => (options.ustackframes, 0),
        };
        if let [_, _, extra, ..] = args {
            return self.fail(
                Tag::D_USTACK_PROTO,
                extra.span,
                format!("{func}( ) prototype mismatch: too many arguments"),
            );
        }
        let frames = match args.first() {
            None => frames,
            Some(frames) => {
                let message = format!("{func}( ) argument #1 must be a non-zero positive integer constant");
                self.frames(frames, Tag::D_USTACK_FRAMES, &message)?
            }
        };
        let strsize = match args.get(1) {
            None => strsize,
            Some(e) => {
                let value = self.value(e)?;
                match value.as_const().map(u32::try_from) {
                    Some(Ok(v)) => v,
                    _ => {
                        let message = format!("{func}( ) argument #2 must be a positive integer constant");
                        return self.fail(Tag::D_USTACK_STRSIZE, e.span, message);
                    }
                }
            }
        };
        Ok((frames, strsize))
    }

    /// An action as a statement.
    pub(crate) fn action(
        &mut self,
        row: &'static FunctionRow,
        kind: ActionKind,
        args: &[ast::Expr],
        span: Span,
    ) -> CheckResult<StmtKind> {
        if row.ret != "void" {
            let recorded = self.special(row, kind, args, span)?;
            let field = self.place_field(recorded.column);
            self.act(Action::Trace(field), &[span]);
            return Ok(StmtKind::Record(vec![(field, recorded.value)]));
        }
        self.check_length(row, args.len(), span)?;
        match kind {
            ActionKind::Trace | ActionKind::Print => self.trace(row.name, &args[0]),
            ActionKind::Printm => self.printm(row.name, args),
            ActionKind::Tracemem => self.tracemem(row, args, span),
            ActionKind::Pcap => self.pcap(row.name, args),
            ActionKind::Printf => self.printf(row.name, args),
            ActionKind::Printa => self.printa(row.name, args),
            ActionKind::Exit => {
                let values = self.values(args)?;
                let mut values = self.check_prototype(row, values, span)?;
                let Some(status) = values.pop() else { return Err(ErrorReported) };
                let status = self.convert(status, TypeId::INT);
                let field = self.place_field(Column::Int { size: 4, signed: true, whole: false });
                self.act(Action::Exit(field), &[status.span]);
                Ok(StmtKind::Exit(field, status))
            }
            ActionKind::System => {
                let Formatted { text, fields: args, spans, writes } = self.formatted(row.name, args)?;
                self.act(Action::System { format: text, args }, &spans);
                Ok(StmtKind::Record(writes))
            }
            ActionKind::Snap => self.snap(row, args, span),
            ActionKind::Freopen => self.freopen(row.name, args),
            ActionKind::Ftruncate => {
                self.act(Action::Ftruncate, &[]);
                Ok(StmtKind::Record(Vec::new()))
            }
            ActionKind::Speculate => {
                let values = self.values(args)?;
                let mut values = self.check_prototype(row, values, span)?;
                values.pop().map(StmtKind::Speculate).ok_or(ErrorReported)
            }
            ActionKind::Raise
            | ActionKind::Return
            | ActionKind::Stop
            | ActionKind::Chill
            | ActionKind::Commit
            | ActionKind::Discard => {
                if kind == ActionKind::Return {
                    self.returns_from(span)?;
                }
                let values = self.values(args)?;
                let mut args = self.check_prototype(row, values, span)?;
                if kind == ActionKind::Stop {
                    args.push(self.int(SIGSTOP, TypeId::INT, span));
                }
                let name = match kind {
                    ActionKind::Chill => "chill",
                    ActionKind::Return => "return",
                    ActionKind::Commit => "commit",
                    ActionKind::Discard => "discard",
                    _ => "raise",
                };
                let kind = ExprKind::Call { name, args, user: false };
                Ok(StmtKind::Expr(Expr { kind, ty: TypeId::INT, span }))
            }
            ActionKind::Setopt => self.setopt(row, args, span),
            _ => self.library_action(row.name, kind, args, span),
        }
    }

    /// `return()` sets the result of the function that is entered, so it is only allowed at entry
    /// probes.
    fn returns_from(&mut self, span: Span) -> CheckResult<()> {
        let calls = |p: &ProbeInfo| self.cx.catalog.calls(&p.desc.provider);
        let fits = |p: &ProbeInfo| calls(p) == Calls::Kernel && &*p.desc.name == "entry";
        let Some(other) = self.args.probes.iter().find(|p| !fits(p)) else { return Ok(()) };
        let message = format!("return( ) may not be used in a clause of {}", other.desc);
        let help = match calls(other) {
            Calls::System => {
                "the kernel lets no program give a system call's result; but the result of a function that the call \
                 asks for leave (fbt::security_*:entry)"
            }
            _ => "it is for the entries of kernel functions (fbt:::entry)",
        };
        self.fail_with(Tag::D_ACT_RETURN, span, message, Some(help.into()))
    }

    fn printf(&mut self, func: &str, args: &[ast::Expr]) -> CheckResult<StmtKind> {
        let Formatted { text, fields: args, spans, writes } = self.formatted(func, args)?;
        self.act(Action::Printf { format: text, args }, &spans);
        Ok(StmtKind::Record(writes))
    }

    /// `freopen("")` restores the original output. The original's compiler uses "." for this, so
    /// "." is not a file name.
    fn freopen(&mut self, func: &str, args: &[ast::Expr]) -> CheckResult<StmtKind> {
        if let [ast::Expr { kind: ast::ExprKind::Str(lit), span }, rest @ ..] = args {
            match lit.text().as_str() {
                "" if rest.is_empty() => {
                    self.act(Action::Freopen { format: None, args: Vec::new() }, &[]);
                    return Ok(StmtKind::Record(Vec::new()));
                }
                "." => {
                    let message = format!("{func}( ) argument #1 cannot be \".\"");
                    return self.fail(Tag::D_FREOPEN_INVALID, *span, message);
                }
                _ => {}
            }
        }
        let Formatted { text, fields: args, spans, writes } = self.formatted(func, args)?;
        self.act(Action::Freopen { format: Some(text), args }, &spans);
        Ok(StmtKind::Record(writes))
    }

    fn snap(&mut self, row: &FunctionRow, args: &[ast::Expr], span: Span) -> CheckResult<StmtKind> {
        let values = self.values(args)?;
        let mut values = self.check_prototype(row, values, span)?;
        let Some(reason) = values.pop() else { return Err(ErrorReported) };
        if !self.cx.options.snaps {
            let message =
                "snap( ) writes the last moments of a capture: add --capture FILE -x bufpolicy=ring";
            return self.fail(Tag::D_SNAP_CAPTURE, span, message);
        }
        let field = self.place_field(Column::Str(StrUses::of(reason.str_source())));
        self.act(Action::Snap(field), &[reason.span]);
        Ok(StmtKind::Snap(field, reason))
    }

    fn setopt(&mut self, row: &FunctionRow, args: &[ast::Expr], span: Span) -> CheckResult<StmtKind> {
        let values = self.values(args)?;
        let values = self.check_prototype(row, values, span)?;
        let mut writes: Vec<(Field, KeyValue)> = Vec::new();
        for value in values {
            let field = self.place_field(Column::Str(StrUses::of(value.str_source())));
            writes.push((field, KeyValue::Expr(value)));
        }
        let fields: Vec<Field> = writes.iter().map(|(f, _)| *f).collect();
        if let [name, rest @ ..] = &fields[..] {
            self.act(Action::Setopt { name: *name, value: rest.first().copied() }, &[]);
        }
        Ok(StmtKind::Record(writes))
    }

    /// A literal format and its arguments, with fields in the record.
    fn formatted(&mut self, func: &str, args: &[ast::Expr]) -> CheckResult<Formatted> {
        let Some((format, args)) = args.split_first() else { return Err(ErrorReported) };
        let text = match &format.kind {
            ast::ExprKind::Str(lit) => lit.text(),
            _ => {
                let value = self.typed(format)?;
                // The type is checked first, then whether the string is constant.
                let (tag, wanted) = match self.fits(TypeId::STRING, &value) {
                    true => (Tag::D_PRINTF_ARG_FMT, "string constant"),
                    false => (Tag::D_PROTO_ARG, "string"),
                };
                let message = format!(
                    "{func}( ) argument #1 is incompatible with prototype:\n\tprototype: {wanted}\n\t argument: {}",
                    self.name(value.ty)
                );
                return self.fail(tag, format.span, message);
            }
        };
        let mut recorded = Vec::with_capacity(args.len());
        let mut types = Vec::with_capacity(args.len());
        let mut wrong = false;
        for arg in args {
            match self.format_argument(func, arg) {
                Ok((known, value)) => {
                    types.push(known);
                    recorded.extend(value);
                }
                Err(ErrorReported) => wrong = true,
            }
        }
        if wrong {
            return Err(ErrorReported);
        }
        self.check_format(func, &text, format.span, FormatUse::Printf, &types)?;
        let mut fields = Vec::with_capacity(recorded.len());
        let mut writes = Vec::with_capacity(recorded.len());
        for r in recorded {
            let field = self.place_field(r.column);
            fields.push(field);
            writes.push((field, r.value));
        }
        let spans = args.iter().map(|arg| arg.span).collect();
        Ok(Formatted { text, fields, spans, writes })
    }

    /// What a format is compared with, and what is recorded. An aggregation and a void value have
    /// nothing to record, and no conversion takes them.
    fn format_argument(&mut self, func: &str, arg: &ast::Expr) -> CheckResult<(FormatArg, Option<Recorded>)> {
        if let ast::ExprKind::Agg(_) = &arg.kind {
            return Ok((FormatArg { aggregation: true, ..FormatArg::value(TypeId::VOID, arg.span) }, None));
        }
        if Self::recordable(arg).is_some() {
            let value = self.recorded(arg)?;
            return Ok((FormatArg::value(value.ty, value.span), Some(value)));
        }
        let value = if self.is_void_call(arg) { self.typed(arg)? } else { self.expr(arg)? };
        if self.types.is_void(value.ty) {
            return Ok((FormatArg::value(TypeId::VOID, arg.span), None));
        }
        let value = self.format_value(func, value)?;
        Ok((FormatArg::value(value.ty, value.span), Some(value)))
    }

    /// An argument that must be an aggregation which has been assigned. `n` counts from 1.
    fn aggregation(
        &mut self,
        func: &str,
        arg: &ast::Expr,
        n: usize,
        wrong_kind: Tag,
        unknown: Tag,
    ) -> CheckResult<AggId> {
        let ast::ExprKind::Agg(agg) = &arg.kind else {
            let value = self.value(arg)?;
            let message = format!(
                "{func}( ) argument #{n} is incompatible with prototype:\n\tprototype: aggregation\n\t \
                 argument: {}",
                self.name(value.ty)
            );
            return self.fail(wrong_kind, arg.span, message);
        };
        let name = agg.name.text.as_str();
        match self.scopes.agg(name) {
            Some(id) => Ok(id),
            None if self.scopes.is_bad_agg(name) => Err(ErrorReported),
            None => {
                self.require_not_deferred(unknown, None, name, arg.span)?;
                self.require_not_doubtful(name)?;
                let known = self.scopes.aggs.iter().map(|a| a.name.as_str());
                let near = self.sink.may_suggest().then(|| diagnostics::nearest(name, known)).flatten();
                let help = near.map(|n| crate::session::did_you_mean(&format!("@{n}")));
                self.fail_with(unknown, arg.span, format!("undefined aggregation: @{name}"), help)
            }
        }
    }

    fn printa(&mut self, func: &str, args: &[ast::Expr]) -> CheckResult<StmtKind> {
        let (format, rest, first) = match args.split_first() {
            Some((ast::Expr { kind: ast::ExprKind::Str(lit), span }, rest)) => {
                (Some((lit.text(), *span)), rest, 2)
            }
            _ => (None, args, 1),
        };
        if rest.is_empty() {
            let message =
                format!("{func}( ) prototype mismatch: {} args passed, {first} expected", args.len());
            let span = args.first().map(|a| a.span);
            return match span {
                Some(span) => self.fail(Tag::D_PRINTA_PROTO, span, message),
                None => Err(ErrorReported),
            };
        }
        let mut aggs: Vec<AggId> = Vec::with_capacity(rest.len());
        for (i, arg) in rest.iter().enumerate() {
            let id = self.aggregation(func, arg, first + i, Tag::D_PRINTA_AGGARG, Tag::D_PRINTA_AGGBAD)?;
            if let Some(first) = aggs.first() {
                self.same_keys(*first, id, arg.span)?;
            }
            aggs.push(id);
        }
        if let (Some((text, span)), Some(first)) = (&format, aggs.first()) {
            let info = &self.scopes.aggs[first.0 as usize];
            let usage = FormatUse::Printa { count: info.func == AggFunc::Count };
            let keys: Vec<FormatArg> = info.key.iter().map(|(ty, _)| FormatArg::value(*ty, *span)).collect();
            self.check_format(func, text, *span, usage, &keys)?;
        }
        self.act(Action::Printa { format: format.map(|f| f.0), aggs }, &[]);
        Ok(StmtKind::Record(Vec::new()))
    }

    fn same_keys(&mut self, left: AggId, right: AggId, span: Span) -> CheckResult<()> {
        let (l, r) = (self.scopes.aggs[left.0 as usize].clone(), self.scopes.aggs[right.0 as usize].clone());
        let (n, m) = (l.key.len(), r.key.len());
        if n != m {
            let s = |n| if n == 1 { "" } else { "s" };
            let message = format!(
                "printa( ): @{} and @{} do not have matching key signatures: @{} has {n} key{}, @{} has {m} key{}",
                l.name,
                r.name,
                l.name,
                s(n),
                r.name,
                s(m)
            );
            return self.fail(Tag::D_PRINTA_AGGKEY, span, message);
        }
        for (i, ((a, _), (b, _))) in l.key.iter().zip(&r.key).enumerate() {
            let same = self.types.assignable(*a, *b) || self.types.compatible(*a, *b);
            if !same {
                let i = i + 1;
                let message = format!(
                    "printa( ): @{}[ ] key #{i} is incompatible with @{}:\n{:>9} key #{i}: {}\n{:>9} key #{i}: {}",
                    r.name,
                    l.name,
                    l.name,
                    self.name(*a),
                    r.name,
                    self.name(*b)
                );
                return self.fail(Tag::D_PRINTA_AGGPROTO, span, message);
            }
        }
        Ok(())
    }

    /// `clear`, `trunc`, `normalize`, `denormalize`: the consumer executes these in record order.
    fn library_action(
        &mut self,
        func: &str,
        kind: ActionKind,
        args: &[ast::Expr],
        span: Span,
    ) -> CheckResult<StmtKind> {
        let (least, most, tags) = match kind {
            ActionKind::Clear => {
                (1, 1, (Tag::D_CLEAR_PROTO, Tag::D_CLEAR_AGGARG, Tag::D_CLEAR_AGGBAD, Tag::D_UNKNOWN))
            }
            ActionKind::Trunc => {
                (1, 2, (Tag::D_TRUNC_PROTO, Tag::D_TRUNC_AGGARG, Tag::D_TRUNC_AGGBAD, Tag::D_TRUNC_SCALAR))
            }
            _ => {
                let n = if kind == ActionKind::Normalize { 2 } else { 1 };
                let tags = (
                    Tag::D_NORMALIZE_PROTO,
                    Tag::D_NORMALIZE_AGGARG,
                    Tag::D_NORMALIZE_AGGBAD,
                    Tag::D_NORMALIZE_SCALAR,
                );
                (n, n, tags)
            }
        };
        let (proto, wrong_kind, unknown, scalar) = tags;
        if args.len() < least || args.len() > most {
            let expected = match (least == most, args.len() < least) {
                (true, _) => least.to_string(),
                (false, true) => format!("at least {least}"),
                (false, false) => format!("no more than {most}"),
            };
            let message =
                format!("{func}( ) prototype mismatch: {} args passed, {expected} expected", args.len());
            return self.fail(proto, span, message);
        }
        let agg = self.aggregation(func, &args[0], 1, wrong_kind, unknown)?;
        let mut writes = Vec::new();
        let field = match args.get(1) {
            None => None,
            Some(arg) => {
                let value = self.value(arg)?;
                let message = format!("{func}( ) argument #2 must be of scalar type");
                let value = self.scalar(value, scalar, arg.span, &message)?;
                let signed = kind == ActionKind::Trunc;
                let value: Expr = self.convert(value, if signed { TypeId::LONG } else { TypeId::ULONG });
                let field = self.clause.layout.push(Datum::Int { size: 8, signed });
                writes.push((field, KeyValue::Expr(value)));
                Some(field)
            }
        };
        let action = match (kind, field) {
            (ActionKind::Clear, _) => Action::Clear(agg),
            (ActionKind::Trunc, field) => Action::Trunc(agg, field),
            (ActionKind::Normalize, Some(field)) => Action::Normalize(agg, field),
            _ => Action::Denormalize(agg),
        };
        self.act(action, &[]);
        Ok(StmtKind::Record(writes))
    }
}
