//! Prints and parses the `does` lines: what the consumer does for a record.

use std::fmt::{self, Write};
use std::sync::Arc;

use plane::desc::Action;

use super::lex::Token;
use super::parse::{Cursor, Parse};
use super::print::{FieldText, Fields, List, Printer, agg_id, quote};
use crate::ir::Field;

impl Printer<'_> {
    pub(super) fn action(&mut self, action: &Action) -> fmt::Result {
        match action {
            Action::Trace(f) => write!(self.out, "trace {}", FieldText(*f)),
            Action::Print(f, shape) => {
                write!(self.out, "print {} {}", FieldText(*f), quote(shape.to_string().as_bytes()))
            }
            Action::Tracemem { bytes, len: None } => write!(self.out, "tracemem {}", FieldText(*bytes)),
            Action::Tracemem { bytes, len: Some(len) } => {
                write!(self.out, "tracemem {}, {}", FieldText(*bytes), FieldText(*len))
            }
            Action::Pcap { packet, protocol, time } => {
                write!(
                    self.out,
                    "pcap {}, {}, {}",
                    FieldText(*packet),
                    FieldText(*protocol),
                    FieldText(*time)
                )
            }
            Action::Printf { format, args } => {
                write!(self.out, "printf {} [{}]", quote(format.as_bytes()), Fields(args))
            }
            Action::Printa { format, aggs } => {
                self.out.push_str("printa ");
                if let Some(format) = format {
                    write!(self.out, "{} ", quote(format.as_bytes()))?;
                }
                write!(self.out, "[{}]", List(aggs.iter().map(|a| agg_id(a.0 as usize))))
            }
            Action::Clear(agg) => write!(self.out, "clear {}", agg_id(agg.0 as usize)),
            Action::Trunc(agg, None) => write!(self.out, "trunc {}", agg_id(agg.0 as usize)),
            Action::Trunc(agg, Some(f)) => {
                write!(self.out, "trunc {}, {}", agg_id(agg.0 as usize), FieldText(*f))
            }
            Action::Normalize(agg, f) => {
                write!(self.out, "normalize {}, {}", agg_id(agg.0 as usize), FieldText(*f))
            }
            Action::Denormalize(agg) => write!(self.out, "denormalize {}", agg_id(agg.0 as usize)),
            Action::Exit(f) => write!(self.out, "exit {}", FieldText(*f)),
            Action::Snap(f) => write!(self.out, "snap {}", FieldText(*f)),
            Action::System { format, args } => {
                write!(self.out, "system {} [{}]", quote(format.as_bytes()), Fields(args))
            }
            Action::Freopen { format: None, .. } => write!(self.out, "freopen back"),
            Action::Freopen { format: Some(format), args } => {
                write!(self.out, "freopen {} [{}]", quote(format.as_bytes()), Fields(args))
            }
            Action::Ftruncate => write!(self.out, "ftruncate"),
            Action::Setopt { name, value: None } => write!(self.out, "setopt {}", FieldText(*name)),
            Action::Setopt { name, value: Some(value) } => {
                write!(self.out, "setopt {}, {}", FieldText(*name), FieldText(*value))
            }
            Action::None => write!(self.out, "nothing"),
        }
    }
}

impl Cursor {
    pub(super) fn action(&mut self) -> Parse<Action> {
        Ok(match self.word()?.as_str() {
            "trace" => Action::Trace(self.field()?),
            "print" => {
                let field = self.field()?;
                Action::Print(field, Arc::new(self.string()?.parse()?))
            }
            "tracemem" => {
                let bytes = self.field()?;
                let len = if self.accept(&Token::Sign(',')) { Some(self.field()?) } else { None };
                Action::Tracemem { bytes, len }
            }
            "pcap" => {
                let packet = self.field()?;
                self.sign(',')?;
                let protocol = self.field()?;
                self.sign(',')?;
                Action::Pcap { packet, protocol, time: self.field()? }
            }
            "printf" => {
                let (format, args) = self.format()?;
                Action::Printf { format, args }
            }
            "printa" => {
                let bare = self.tokens.get(self.at) == Some(&Token::Sign('['));
                let format = if bare { None } else { Some(self.string()?) };
                self.sign('[')?;
                Action::Printa { format, aggs: self.list(']', Self::agg)? }
            }
            "clear" => Action::Clear(self.agg()?),
            "trunc" => {
                let agg = self.agg()?;
                let field = if self.accept(&Token::Sign(',')) { Some(self.field()?) } else { None };
                Action::Trunc(agg, field)
            }
            "normalize" => {
                let agg = self.agg()?;
                self.sign(',')?;
                Action::Normalize(agg, self.field()?)
            }
            "denormalize" => Action::Denormalize(self.agg()?),
            "exit" => Action::Exit(self.field()?),
            "snap" => Action::Snap(self.field()?),
            "system" => {
                let (format, args) = self.format()?;
                Action::System { format, args }
            }
            "freopen" if self.accept_word("back") => Action::Freopen { format: None, args: Vec::new() },
            "freopen" => {
                let (format, args) = self.format()?;
                Action::Freopen { format: Some(format), args }
            }
            "ftruncate" => Action::Ftruncate,
            "setopt" => {
                let name = self.field()?;
                let value = if self.accept(&Token::Sign(',')) { Some(self.field()?) } else { None };
                Action::Setopt { name, value }
            }
            "nothing" => Action::None,
            word => return Err(format!("unknown action {word}")),
        })
    }

    /// A format and its fields.
    fn format(&mut self) -> Parse<(String, Vec<Field>)> {
        let format = self.string()?;
        self.sign('[')?;
        Ok((format, self.list(']', Self::field)?))
    }
}
