//! Checks the types of arguments against a format.
//!
//! `plane::format` parses formats, and the consumer uses the same parser to print. Only the checks
//! of argument *types* are here.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use diagnostics::{Span, Tag};
use plane::format::{self, Amount, ConversionArg, Piece};
use types::{Kind, TypeId};

use crate::session::Checker;
use crate::state::recovery::CheckResult;

/// An argument of a format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FormatArg {
    pub(crate) ty: TypeId,
    pub(crate) span: Span,
    /// An aggregation, which no conversion of a value takes; its type is `void`.
    pub(crate) aggregation: bool,
}

impl FormatArg {
    pub(crate) fn value(ty: TypeId, span: Span) -> FormatArg {
        FormatArg { ty, span, aggregation: false }
    }
}

/// The kind of action that uses a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormatUse {
    /// `printf()`: the format must use all arguments, and none is an aggregation value.
    Printf,
    /// `printa()`: keys may be unused. `%@` takes the aggregation's value, which is unsigned for
    /// `count()`.
    Printa {
        /// True for `count()`.
        count: bool,
    },
}

impl Checker<'_> {
    fn takes(&self, takes: ConversionArg, ty: TypeId) -> bool {
        let t = self.types;
        let kind = t.base_kind(ty);
        let int = t.as_int(ty);
        match takes {
            ConversionArg::KernelAddr => int.is_some() || t.is_pointer(ty) || kind == Kind::Symaddr,
            ConversionArg::UserAddr => {
                kind == Kind::Usymaddr || self.cx.options.target && (int.is_some() || t.is_pointer(ty))
            }
            ConversionArg::Pointer => int.is_some() || t.is_pointer(ty),
            ConversionArg::Char => int.is_some_and(|i| i.size <= 4),
            ConversionArg::AnyInt | ConversionArg::Signed(0) | ConversionArg::Unsigned(0) => int.is_some(),
            ConversionArg::Signed(size) | ConversionArg::Unsigned(size) => {
                int.is_some_and(|i| i.size == size)
            }
            ConversionArg::Float(size) => matches!(kind, Kind::Float { size: s } if s == size || size == 8),
            ConversionArg::String | ConversionArg::Address => {
                t.is_string(ty) || t.is_array(ty) && t.is_string_like(ty)
            }
            ConversionArg::Stack => kind == Kind::Stack,
            ConversionArg::Time => int.is_some_and(|i| i.size == 8),
            ConversionArg::Port => int.is_some_and(|i| i.size == 2),
            ConversionArg::Nothing => true,
        }
    }

    fn shown(&self, arg: &FormatArg) -> String {
        if arg.aggregation { "aggregation".to_string() } else { self.name(arg.ty) }
    }

    /// Checks a format. `func` is the action's name, `at` the position of the format. Argument
    /// numbers in messages count from 2, because the format is the first argument.
    pub(crate) fn check_format(
        &mut self,
        func: &str,
        text: &str,
        at: Span,
        usage: FormatUse,
        args: &[FormatArg],
    ) -> CheckResult<()> {
        if text.is_empty() {
            return self.fail(Tag::D_PRINTF_FMT_EMPTY, at, format!("{func}( ) format string is empty"));
        }
        let pieces = match format::parse(text) {
            Ok(pieces) => pieces,
            Err(error) => return self.fail(Tag::D_SYNTAX, at, error.to_string()),
        };
        let mut next = 0;
        for piece in &pieces {
            let Piece::Conversion(c) = piece else { continue };
            let (number, name) = (c.number, c.name);
            for (amount, sign) in [(c.width, "*"), (c.precision, ".*")] {
                if amount != Amount::Argument {
                    continue;
                }
                let Some(arg) = args.get(next) else {
                    let message = format!(
                        "{func}( ) prototype mismatch: conversion #{number} (%{name}) is missing a \
                         corresponding \"{sign}\" argument"
                    );
                    return self.fail(Tag::D_PRINTF_DYN_PROTO, at, message);
                };
                next += 1;
                if !self.types.is_integer(arg.ty) {
                    let message = format!(
                        "{func}( ) argument #{} is incompatible with conversion #{number} prototype:\n\
                         \tconversion: % {sign} {name}\n\t prototype: int\n\t  argument: {}",
                        next + 1,
                        self.shown(arg)
                    );
                    return self.fail(Tag::D_PRINTF_DYN_TYPE, arg.span, message);
                }
            }
            let (what, arg) = if c.aggregation {
                let FormatUse::Printa { count } = usage else {
                    let message =
                        format!("%@ conversion requires an aggregation and is not for use with {func}( )");
                    return self.fail(Tag::D_PRINTF_AGG_CONV, at, message);
                };
                let ty = self.row_type(if count { "uint64_t" } else { "int64_t" });
                ("aggregating action".to_string(), FormatArg::value(ty, at))
            } else {
                let Some(arg) = args.get(next) else {
                    let message = format!(
                        "{func}( ) prototype mismatch: conversion #{number} (%{name}) is missing a \
                         corresponding value argument"
                    );
                    return self.fail(Tag::D_PRINTF_ARG_PROTO, at, message);
                };
                next += 1;
                (format!("argument #{}", next + 1), *arg)
            };
            if !self.takes(c.arg, arg.ty) {
                let message = format!(
                    "{func}( ) {what} is incompatible with conversion #{number} prototype:\n\
                     \tconversion: %{name}\n\t prototype: {}\n\t  argument: {}",
                    c.arg.describe(),
                    self.shown(&arg)
                );
                return self.fail(Tag::D_PRINTF_ARG_TYPE, arg.span, message);
            }
        }
        if let (FormatUse::Printf, Some(extra)) = (usage, args.get(next)) {
            let message =
                format!("{func}( ) prototype mismatch: only {next} arguments required by this format string");
            return self.fail(Tag::D_PRINTF_ARG_EXTRA, extra.span, message);
        }
        Ok(())
    }
}
