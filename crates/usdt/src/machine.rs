//! The arguments of a note of `.note.stapsdt`: texts as `-4@%eax 8@-24(%rbp)`.
//!
//! ```text
//!  -4@%eax          ┌ bytes, negative for a value with a sign
//!  8f@%xmm0         │ `f`: a floating-point value, which is no integer and is not read
//!  %rax             └ without a size (the oldest notes), that of the register, else 8
//! ```

use crate::arch::Machine;
use crate::argument::{Argument, MAX_ARGUMENTS, Source};

/// Characters of an operand in a message.
const SHOWN: usize = 48;

impl Machine {
    /// Reads the arguments of a note. What is not understood is unreadable; more than
    /// [`MAX_ARGUMENTS`] are ignored.
    pub fn arguments(self, text: &str) -> Vec<Argument> {
        operands(text).take(MAX_ARGUMENTS).map(|operand| self.argument(operand)).collect()
    }

    /// Reads one argument.
    pub fn argument(self, text: &str) -> Argument {
        let (size, operand) = match text.split_once('@') {
            Some((size, operand)) if is_size(size) => (Some(size), operand),
            _ => (None, text),
        };
        let shown = || shortened(operand);
        let (size, signed, is_integer) = match size {
            None => (None, false, true),
            Some(size) => match format(size) {
                Some((bytes, signed, is_integer)) => (Some(bytes), signed, is_integer),
                None => {
                    return Argument::unreadable(
                        8,
                        false,
                        format!("{}: values have 1, 2, 4 or 8 bytes", shortened(text)),
                    );
                }
            },
        };
        if !is_integer {
            return Argument::unreadable(
                size.unwrap_or(8),
                true,
                format!("{} is a floating-point value", shown()),
            );
        }
        let source = match operand.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
            true if operand.len() <= MAX_OPERAND => self.operand(operand),
            _ => Err("its operand is no text".into()),
        };
        let source = source.unwrap_or_else(|why| Source::Unreadable(shortened(&why)));
        let size = size.unwrap_or(match &source {
            Source::Register(register) => register.bytes,
            _ => 8,
        });
        Argument { size, signed, source }
    }
}

/// The longest operand. A symbol of C++ may have thousands of characters.
const MAX_OPERAND: usize = 4096;

fn is_size(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit())
}

/// Bytes, sign, and whether the value is an integer.
fn format(text: &str) -> Option<(u8, bool, bool)> {
    let (signed, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (digits, is_integer) = rest.strip_suffix('f').map_or((rest, true), |digits| (digits, false));
    let bytes = match digits {
        "1" => 1,
        "2" => 2,
        "4" => 4,
        "8" => 8,
        // `long double` and vectors: no integer of ours.
        "10" | "16" | "32" | "64" if !is_integer => 8,
        _ => return None,
    };
    Some((bytes, signed, is_integer))
}

/// The operands of a text: what spaces separate, outside of brackets.
fn operands(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_matches(' ');
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut depth = 0usize;
        let end = rest.find(|c| {
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ' ' && depth == 0
        });
        let (operand, more) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        rest = more.trim_start_matches(' ');
        Some(operand)
    })
}

fn shortened(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
    match text.char_indices().nth(2 * SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests;
