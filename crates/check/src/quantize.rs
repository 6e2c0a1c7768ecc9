//! Parameters of the quantizing functions. They are constants that determine the layout of the
//! aggregation, and must be equal in every use.

use diagnostics::{Span, Tag};
use plane::desc::AggFunc;

use crate::program::Expr;
use crate::session::Checker;
use crate::state::recovery::{CheckResult, ErrorReported};

/// A parameter of `llquantize()`: its name in messages, and the error tags for a wrong type, a
/// wrong value, and a value that differs from an earlier use.
struct Parameter {
    name: &'static str,
    ty: Tag,
    value: Tag,
    mismatch: Tag,
}

const LLQUANTIZE: [Parameter; 4] = [
    Parameter {
        name: "factor",
        ty: Tag::D_LLQUANT_FACTORTYPE,
        value: Tag::D_LLQUANT_FACTORVAL,
        mismatch: Tag::D_LLQUANT_FACTORMATCH,
    },
    Parameter {
        name: "low magnitude",
        ty: Tag::D_LLQUANT_LOWTYPE,
        value: Tag::D_LLQUANT_LOWVAL,
        mismatch: Tag::D_LLQUANT_LOWMATCH,
    },
    Parameter {
        name: "high magnitude",
        ty: Tag::D_LLQUANT_HIGHTYPE,
        value: Tag::D_LLQUANT_HIGHVAL,
        mismatch: Tag::D_LLQUANT_HIGHMATCH,
    },
    Parameter {
        name: "linear steps per magnitude",
        ty: Tag::D_LLQUANT_NSTEPTYPE,
        value: Tag::D_LLQUANT_NSTEPVAL,
        mismatch: Tag::D_LLQUANT_NSTEPMATCH,
    },
];

impl Checker<'_> {
    fn constant(&mut self, e: &Expr, ty: Tag, message: String) -> CheckResult<i64> {
        match e.as_const() {
            Some(v) if self.types.is_integer(e.ty) => Ok(v),
            _ => self.fail(ty, e.span, message),
        }
    }

    /// `lquantize(e, base, limit[, step[, increment]])`. Returns its function and the number of
    /// arguments that determine the layout.
    pub(crate) fn lquantize(&mut self, args: &[Expr], span: Span) -> CheckResult<(AggFunc, usize)> {
        let [_, base, limit, rest @ ..] = args else { return Err(ErrorReported) };
        let mut bound = |e: &Expr, n: u32, ty, value| {
            let message = format!("lquantize( ) argument #{n} must be an integer constant");
            let v = self.constant(e, ty, message)?;
            match i32::try_from(v) {
                Ok(v) => Ok(v),
                Err(_) => {
                    let message = format!("lquantize( ) argument #{n} must be a 32-bit quantity");
                    self.fail(value, e.span, message)
                }
            }
        };
        let base = bound(base, 1, Tag::D_LQUANT_BASETYPE, Tag::D_LQUANT_BASEVAL)?;
        let limit = bound(limit, 2, Tag::D_LQUANT_LIMTYPE, Tag::D_LQUANT_LIMVAL)?;
        if limit <= base {
            let message = "lquantize( ) base (argument #1) must be less than limit (argument #2)";
            return self.fail(Tag::D_LQUANT_MISMATCH, span, message);
        }
        let step = match rest.first() {
            None => 1,
            Some(e) => match e.as_const() {
                Some(v) if v > 0 => match u16::try_from(v) {
                    Ok(v) => v,
                    Err(_) => {
                        let message = "lquantize( ) argument #3 must be a 16-bit quantity";
                        return self.fail(Tag::D_LQUANT_STEPVAL, e.span, message);
                    }
                },
                _ => {
                    let message = "lquantize( ) argument #3 must be a non-zero positive integer constant";
                    return self.fail(Tag::D_LQUANT_STEPTYPE, e.span, message);
                }
            },
        };
        let levels = (i64::from(limit) - i64::from(base)) / i64::from(step);
        if levels == 0 {
            let message =
                "lquantize( ) step (argument #3) too large: must have at least one quantization level";
            return self.fail(Tag::D_LQUANT_STEPLARGE, span, message);
        }
        if levels > i64::from(u16::MAX) {
            let message = "lquantize( ) step (argument #3) too small: number of quantization levels must be a \
                           16-bit quantity";
            return self.fail(Tag::D_LQUANT_STEPSMALL, span, message);
        }
        Ok((AggFunc::Lquantize { base, limit, step }, if rest.is_empty() { 2 } else { 3 }))
    }

    /// `llquantize(e, factor, low, high, nsteps[, increment])`.
    pub(crate) fn llquantize(&mut self, args: &[Expr], span: Span) -> CheckResult<(AggFunc, usize)> {
        let mut values = [0u16; 4];
        for (i, (p, e)) in LLQUANTIZE.iter().zip(args.iter().skip(1)).enumerate() {
            let n = i + 1;
            let message = format!("llquantize( ) argument #{n} ({}) must be an integer constant", p.name);
            let v = self.constant(e, p.ty, message)?;
            let Ok(v) = u16::try_from(v) else {
                let message =
                    format!("llquantize( ) argument #{n} ({}) must be an unsigned 16-bit quantity", p.name);
                return self.fail(p.value, e.span, message);
            };
            values[i] = v;
        }
        let [factor, low, high, nsteps] = values;
        if factor < 2 {
            let message = "llquantize( ) factor (argument #1) must be two or more";
            return self.fail(Tag::D_LLQUANT_FACTORSMALL, span, message);
        }
        if low >= high {
            let message = "llquantize( ) high magnitude (argument #3) must be greater than low magnitude \
                           (argument #2)";
            return self.fail(Tag::D_LLQUANT_MAGRANGE, span, message);
        }
        if nsteps < factor {
            let message = "llquantize( ) factor (argument #1) must be less than or equal to the number of \
                           linear steps per magnitude (argument #4)";
            return self.fail(Tag::D_LLQUANT_FACTORNSTEPS, span, message);
        }
        let (f, n) = (u64::from(factor), u64::from(nsteps));
        let mut power = f;
        while power < n {
            power *= f;
        }
        if n % f != 0 || power % n != 0 {
            let message = "llquantize( ) factor (argument #1) must evenly divide the number of steps per \
                           magnitude (argument #4), and the number of steps per magnitude must evenly divide \
                           a power of the factor";
            return self.fail(Tag::D_LLQUANT_FACTOREVEN, span, message);
        }
        if i64::from(factor).checked_pow(u32::from(high) + 1).is_none() {
            let message = format!(
                "llquantize( ) factor ({factor}) raised to power of high magnitude ({high}) plus 1 overflows \
                 64-bits"
            );
            return self.fail(Tag::D_LLQUANT_MAGTOOBIG, span, message);
        }
        Ok((AggFunc::Llquantize { factor, low, high, nsteps }, 4))
    }

    /// Reports an error when the same function has other parameters than in an earlier use.
    pub(crate) fn same_parameters(&mut self, old: AggFunc, new: AggFunc, span: Span) -> CheckResult<()> {
        let differs = |what: &str, n: usize, expected: i64, found: i64| {
            format!(
                "{}( ) {what} (argument #{n}) doesn't match previous declaration: expected {expected}, found \
                 {found}",
                new.name()
            )
        };
        match (old, new) {
            (AggFunc::Lquantize { base: b, limit: l, step: s }, AggFunc::Lquantize { base, limit, step }) => {
                for (what, n, tag, expected, found) in [
                    ("base", 1, Tag::D_LQUANT_MATCHBASE, i64::from(b), i64::from(base)),
                    ("limit", 2, Tag::D_LQUANT_MATCHLIM, i64::from(l), i64::from(limit)),
                    ("step", 3, Tag::D_LQUANT_MATCHSTEP, i64::from(s), i64::from(step)),
                ] {
                    if expected != found {
                        return self.fail(tag, span, differs(what, n, expected, found));
                    }
                }
            }
            (
                AggFunc::Llquantize { factor: a, low: b, high: c, nsteps: d },
                AggFunc::Llquantize { factor, low, high, nsteps },
            ) => {
                for (i, (expected, found)) in
                    [(a, factor), (b, low), (c, high), (d, nsteps)].into_iter().enumerate()
                {
                    if expected != found {
                        let p = &LLQUANTIZE[i];
                        let message = differs(p.name, i + 1, i64::from(expected), i64::from(found));
                        return self.fail(p.mismatch, span, message);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
