//! `@name[keys] = function(args)`.

use std::sync::Arc;

use diagnostics::{Span, Tag};
use plane::desc::{AggFunc, AggId};
use syntax::ast;
use types::TypeId;

use crate::actions::Recorded;
use crate::columns::Column;
use crate::program::{Expr, ExprKind, KeyValue, StmtKind};
use crate::session::Checker;
use crate::state::recovery::{CheckResult, ErrorReported};
use crate::state::scopes::AggInfo;
use crate::tables::{self, Aggregating, FunctionKind, FunctionRow};

impl Checker<'_> {
    /// Checks the statement `@a[keys] = value`.
    pub(crate) fn aggregate(
        &mut self,
        agg: &ast::AggRef,
        value: &ast::Expr,
        span: Span,
    ) -> CheckResult<StmtKind> {
        let name = agg.name.text.clone();
        let out = self.aggregate_inner(agg, value, span);
        if out.is_err() {
            self.scopes.add_bad_agg(name);
        }
        out
    }

    fn aggregate_inner(&mut self, agg: &ast::AggRef, value: &ast::Expr, span: Span) -> CheckResult<StmtKind> {
        let (row, function, args) = self.aggregating_call(agg, value)?;
        let keys: Vec<CheckResult<Recorded>> =
            agg.keys.iter().flatten().map(|k| self.aggregation_key(k)).collect();
        let args = self.aggregating_args(row, function, args, value.span);
        let keys = keys.into_iter().collect::<CheckResult<Vec<Recorded>>>()?;
        let (func, args) = args?;
        let unsigned = args.first().is_none_or(|value| self.is_unsigned(value));
        let key_names: Vec<Arc<str>> = agg.keys.iter().flatten().map(|k| self.source(k.span)).collect();
        let known = self.known(&agg.name.text, func, agg.name.span, value.span)?;
        let id = match known {
            Some(id) => {
                self.match_keys(id, &keys, span)?;
                let known = self.scopes.aggs[id.0 as usize].key_names.iter_mut();
                known.zip(&key_names).filter(|(k, n)| k != n).for_each(|(k, _)| *k = "".into());
                self.scopes.aggs[id.0 as usize].unsigned &= unsigned;
                id
            }
            None => {
                let key = keys.iter().map(|k| (k.ty, k.column)).collect();
                self.scopes.add_agg(AggInfo {
                    name: agg.name.text.clone(),
                    func,
                    key,
                    key_names,
                    unsigned,
                    span: agg.name.span,
                })
            }
        };
        let signature: Vec<TypeId> = self.scopes.aggs[id.0 as usize].key.iter().map(|(ty, _)| *ty).collect();
        let key = keys
            .into_iter()
            .zip(signature)
            .map(|(k, ty)| match k.value {
                KeyValue::Expr(e) => KeyValue::Expr(self.coerce_key(e, ty)),
                other => other,
            })
            .collect();
        Ok(StmtKind::Aggregate { agg: id, key, args })
    }

    /// The call of an aggregating function on the right of `=`.
    fn aggregating_call<'e>(
        &mut self,
        agg: &ast::AggRef,
        value: &'e ast::Expr,
    ) -> CheckResult<(&'static FunctionRow, Aggregating, &'e [ast::Expr])> {
        if let ast::ExprKind::Call { callee, args } = &value.kind {
            let row = self.callee(callee)?;
            if let FunctionKind::Aggregating(function) = row.kind {
                return Ok((row, function, args));
            }
        } else if matches!(value.kind, ast::ExprKind::Error) {
            return Err(ErrorReported);
        }
        let message = format!("@{} must be assigned the result of an aggregating function", agg.name.text);
        self.fail(Tag::D_AGG_FUNC, value.span, message)
    }

    /// The aggregation of this name, if it was used before. Its function must be the same.
    fn known(&mut self, name: &str, func: AggFunc, span: Span, call: Span) -> CheckResult<Option<AggId>> {
        let Some(id) = self.scopes.agg(name) else { return Ok(None) };
        let info = &self.scopes.aggs[id.0 as usize];
        if info.func.name() == func.name() {
            self.same_parameters(info.func, func, call)?;
            return Ok(Some(id));
        }
        let line = self.cx.map.line_number(info.span.file, info.span.start);
        let message = format!(
            "aggregation redefined: @{name}\n\t current: @{name} = {}( )\n\tprevious: @{name} = {}( ) : line {line}",
            func.name(),
            info.func.name()
        );
        self.fail(Tag::D_AGG_REDEF, span, message)
    }

    fn aggregation_key(&mut self, e: &ast::Expr) -> CheckResult<Recorded> {
        if let ast::ExprKind::Agg(_) = e.kind {
            return self.fail(
                Tag::D_KEY_TYPE,
                e.span,
                "<DYN> expression may not be used as aggregation index",
            );
        }
        let action = self.action_name(e).and_then(tables::function);
        if self.is_void_call(e) || action.is_some_and(|row| row.ret == "void") {
            return self.fail(
                Tag::D_KEY_TYPE,
                e.span,
                "void expression may not be used as aggregation index",
            );
        }
        if self.action_name(e).is_none() {
            let value = self.value(e)?;
            let ty = self.types.decay(value.ty);
            if let (ExprKind::Deref { .. }, Some(size)) = (&value.kind, self.key_size(ty)) {
                let column = Column::Bytes { size };
                return Ok(Recorded { ty, column, span: value.span, value: KeyValue::Expr(value) });
            }
            if self.repr(ty).is_none() {
                let message = format!("{} expression may not be used as aggregation index", self.name(ty));
                return self.fail(Tag::D_KEY_TYPE, e.span, message);
            }
        }
        let recorded = self.recorded(e)?;
        if let Column::Bytes { .. } = recorded.column {
            let name = self.name(recorded.ty);
            let message = format!("{name} expression may not be used as aggregation index");
            return self.fail(Tag::D_KEY_TYPE, e.span, message);
        }
        Ok(recorded)
    }

    fn match_keys(&mut self, id: AggId, keys: &[Recorded], span: Span) -> CheckResult<()> {
        let info = self.scopes.aggs[id.0 as usize].clone();
        let prefix = format!("@{}", info.name);
        // Stacks and symbols are compared by type, so expressions of that type represent them.
        let values: Vec<Expr> = keys
            .iter()
            .map(|k| match &k.value {
                KeyValue::Expr(e) => e.clone(),
                _ => Expr { kind: crate::program::ExprKind::Old, ty: k.ty, span: k.span },
            })
            .collect();
        self.check_signature(&prefix, &info.key, &values, span)?;
        let joined = info
            .key
            .iter()
            .zip(keys)
            .map(|((ty, column), k)| {
                let other = match &k.value {
                    KeyValue::Expr(e) => self.column_for(&self.coerce_key(e.clone(), *ty), *ty),
                    _ => k.column,
                };
                (*ty, column.join(other))
            })
            .collect();
        self.scopes.aggs[id.0 as usize].key = joined;
        Ok(())
    }

    /// Whether the value cannot be negative: by its type, or because it is a constant.
    fn is_unsigned(&self, value: &Expr) -> bool {
        let is_positive = matches!(value.kind, ExprKind::Int(n) if n >= 0);
        is_positive || self.types.as_int(value.ty).is_some_and(|int| !int.signed)
    }

    /// The function with its parameters, and the arguments that are evaluated at run time.
    fn aggregating_args(
        &mut self,
        row: &FunctionRow,
        function: Aggregating,
        args: &[ast::Expr],
        span: Span,
    ) -> CheckResult<(AggFunc, Vec<Expr>)> {
        self.check_length(row, args.len(), span)?;
        if function == Aggregating::Quantize && args.len() > 2 {
            let message = "quantize( ) prototype mismatch: too many arguments";
            return self.fail(Tag::D_QUANT_PROTO, args[2].span, message);
        }
        let mut values = self.values(args)?;
        if let Some(first) = values.first()
            && !self.types.is_scalar(first.ty)
        {
            let message = format!("{}( ) argument #1 must be of scalar type", row.name);
            return self.fail(Tag::D_AGG_SCALAR, first.span, message);
        }
        let (func, parameters) = match function {
            Aggregating::Count => (AggFunc::Count, 0),
            Aggregating::Sum => (AggFunc::Sum, 0),
            Aggregating::Min => (AggFunc::Min, 0),
            Aggregating::Max => (AggFunc::Max, 0),
            Aggregating::Avg => (AggFunc::Avg, 0),
            Aggregating::Stddev => (AggFunc::Stddev, 0),
            Aggregating::Quantize => (AggFunc::Quantize, 0),
            Aggregating::Lquantize => self.lquantize(&values, span)?,
            Aggregating::Llquantize => self.llquantize(&values, span)?,
        };
        // The parameters are between the value and the increment.
        values.drain(1.min(values.len())..(1 + parameters).min(values.len()));
        if let [_, increment, ..] = &values[..]
            && !self.types.is_scalar(increment.ty)
        {
            let n = parameters + 2;
            let message = format!("{}( ) increment value (argument #{n}) must be of scalar type", row.name);
            return self.fail(Tag::D_PROTO_ARG, increment.span, message);
        }
        if values.len() > 2 {
            let most = parameters + 2;
            let message = format!(
                "{}( ) prototype mismatch: {} args passed, at most {most} expected",
                row.name,
                args.len()
            );
            return self.fail(Tag::D_PROTO_LEN, span, message);
        }
        Ok((func, values))
    }
}
