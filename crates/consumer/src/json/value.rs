//! Values of records and keys as JSON.

use events::{AddrForm, AggValue, Form, Int, Member, Shape, Stack, Symbol, Value, normalized};

use super::write::{Object, hex, key, list, object, signed, string, unsigned};
use crate::pad::up_to;
use crate::raw::{number, printable, text};

/// Writes a value.
pub(super) fn value(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Int(int) => self::int(out, *int),
        Value::Str { text, .. } | Value::Name { text, .. } => bytes(out, text),
        Value::Bytes(all) => match printable(all) {
            Some(text) => bytes(out, text),
            None => memory(out, all),
        },
        Value::Stack(stack) => self::stack(out, stack),
        Value::Symbol(symbol) => object(out, |o| {
            o.object(key!("symbol"), |o| {
                frame(o, symbol);
                o.text(key!("form"), form(symbol.form));
            });
        }),
        // A value of a later version.
        _ => out.extend_from_slice(b"null"),
    }
}

fn int(out: &mut Vec<u8>, int: Int) {
    match int.signed {
        true => signed(out, int.as_signed()),
        false => unsigned(out, int.as_unsigned()),
    }
}

/// Writes a string of a program: a JSON string if it is UTF-8, and its bytes if it is not.
pub(super) fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => string(out, text),
        Err(_) => object(out, |o| digits(o.member(key!("bytes")), bytes)),
    }
}

/// Writes memory.
pub(super) fn memory(out: &mut Vec<u8>, bytes: &[u8]) {
    object(out, |o| digits(o.member(key!("memory")), bytes));
}

fn digits(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    hex(out, bytes);
    out.push(b'"');
}

fn form(form: AddrForm) -> &'static str {
    match form {
        AddrForm::Symbol => "symbol",
        AddrForm::Function => "function",
        AddrForm::Module => "module",
        AddrForm::Address => "address",
        AddrForm::Guest => "guest",
    }
}

/// Writes an address, which is a string: no reader rounds it.
pub(super) fn address(out: &mut Vec<u8>, address: u64) {
    out.extend_from_slice(b"\"0x");
    let significant = address.to_be_bytes();
    let zeros = (address.leading_zeros() as usize / 8).min(7);
    let begin = out.len();
    hex(out, significant.get(zeros..).unwrap_or_default());
    // The highest digit may be 0.
    if out.get(begin) == Some(&b'0') {
        out.remove(begin);
    }
    out.push(b'"');
}

/// Writes the members of a frame or a symbol.
fn frame(o: &mut Object<'_>, symbol: &Symbol) {
    let name = &symbol.name;
    address(o.member(key!("address")), symbol.address);
    o.some_unsigned(key!("pid"), symbol.process);
    o.some_text(key!("object"), name.module.as_deref().unwrap_or_default());
    o.some_text(key!("path"), name.path.as_deref().unwrap_or_default());
    if let Some(symbol) = &name.symbol {
        o.text(key!("symbol"), symbol);
        o.unsigned(key!("offset"), name.offset);
    } else if let Some(in_file) = name.in_file {
        address(o.member(key!("fileaddress")), in_file);
    }
    o.some_text(key!("file"), name.file.as_deref().unwrap_or_default());
    o.some_unsigned(key!("line"), name.line);
    if name.inlined {
        o.flag(key!("inlined"), true);
    }
    if name.interpreted {
        o.flag(key!("interpreted"), true);
    }
}

fn stack(out: &mut Vec<u8>, stack: &Stack) {
    object(out, |o| {
        o.some_unsigned(key!("pid"), stack.process);
        o.list(key!("stack"), &stack.frames, |out, symbol| {
            object(out, |o| {
                frame(o, symbol);
            });
        });
    });
}

/// Writes the value of an aggregation: `null` where it does not have the key.
pub(super) fn aggregated(out: &mut Vec<u8>, all: &AggValue<'_>) {
    if all.absent {
        return out.extend_from_slice(b"null");
    }
    object(out, |o| {
        counted(o, all);
        if all.normal != 1 {
            o.unsigned(key!("normal"), all.normal);
        }
        if !all.cpus.is_empty() {
            o.list(key!("cpus"), all.each_cpu(), |out, (cpu, of_cpu)| {
                object(out, |o| {
                    o.unsigned(key!("cpu"), cpu);
                    counted(o, &of_cpu);
                });
            });
        }
    });
}

/// The number, or the buckets that are not empty.
fn counted(o: &mut Object<'_>, value: &AggValue<'_>) {
    if let Some(number) = value.number() {
        return o.signed(key!("value"), number);
    }
    let ranges = value.ranges();
    let full = value.buckets().zip(&ranges).filter(|((_, count), _)| *count != 0);
    o.list(key!("buckets"), full, |out, ((_, count), (least, greatest))| {
        object(out, |o| {
            if let Some(least) = least {
                o.signed(key!("min"), *least);
            }
            if let Some(greatest) = greatest {
                o.signed(key!("max"), *greatest);
            }
            o.signed(key!("count"), normalized(count, value.normal));
        });
    });
}

/// Writes a value of `print()` by its type.
pub(super) fn shaped(out: &mut Vec<u8>, shape: &Shape, bytes: &[u8], functions: &[Symbol]) {
    let bytes = up_to(bytes, shape.size as usize);
    match &shape.form {
        Form::Int { signed } | Form::Char { signed } if bytes.len() <= 8 => {
            int(out, Int::new(number(bytes), bytes.len() as u8, *signed));
        }
        Form::Int { .. } | Form::Char { .. } => memory(out, bytes),
        Form::Pointer => address(out, number(bytes)),
        Form::FunctionPointer => {
            let at = number(bytes);
            match functions.iter().find(|s| s.address == at) {
                None => address(out, at),
                Some(symbol) => object(out, |o| {
                    o.object(key!("symbol"), |o| {
                        frame(o, symbol);
                        o.text(key!("form"), form(symbol.form));
                    });
                }),
            }
        }
        Form::Float => float(out, bytes),
        Form::Enum { signed: is_signed, names } => {
            let int = Int::new(number(bytes), bytes.len().clamp(1, 8) as u8, *is_signed);
            match names.iter().find(|(_, v)| *v == int.bits as i64) {
                Some((name, _)) => string(out, name),
                None => self::int(out, int),
            }
        }
        Form::String => self::bytes(out, text(bytes)),
        // A text, unless something follows its NUL.
        Form::Array(elem) if matches!(elem.form, Form::Char { .. }) => match bytes.get(text(bytes).len()..) {
            Some(rest) if rest.iter().any(|byte| *byte != 0) => memory(out, bytes),
            _ => self::bytes(out, text(bytes)),
        },
        Form::Array(elem) => {
            let parts = bytes.chunks(elem.size.max(1) as usize);
            list(out, parts, |out, part| shaped(out, elem, part, functions));
        }
        Form::Sou(all) => object(out, |o| members(o, all, bytes, functions)),
    }
}

/// The members of a struct or union. Those of an anonymous one are members of what contains it, as
/// in C.
fn members(o: &mut Object<'_>, all: &[Member], bytes: &[u8], functions: &[Symbol]) {
    for member in all {
        let bytes = bytes.get(member.offset as usize..).unwrap_or_default();
        match (&member.bits, &member.shape.form) {
            (Some((shift, width)), form) => {
                let above = 64 - u32::from((*width).min(64));
                let value = number(bytes).checked_shr((*shift).into()).unwrap_or(0);
                let value = value.checked_shl(above).unwrap_or(0);
                let out = o.named(&member.name);
                match form {
                    Form::Int { signed: true } | Form::Enum { signed: true, .. } => {
                        signed(out, (value as i64).checked_shr(above).unwrap_or(0));
                    }
                    _ => unsigned(out, value.checked_shr(above).unwrap_or(0)),
                }
            }
            (None, Form::Sou(inner)) if member.name.is_empty() => members(o, inner, bytes, functions),
            (None, _) => shaped(o.named(&member.name), &member.shape, bytes, functions),
        }
    }
}

/// The shortest number that is read as the same value. What is no number is a string.
fn float(out: &mut Vec<u8>, bytes: &[u8]) {
    let (value, text) = match *bytes {
        [a, b, c, d] => {
            let value = f32::from_le_bytes([a, b, c, d]);
            (f64::from(value), value.to_string())
        }
        [a, b, c, d, e, f, g, h] => {
            let value = f64::from_le_bytes([a, b, c, d, e, f, g, h]);
            (value, value.to_string())
        }
        _ => return memory(out, bytes),
    };
    match value.is_finite() {
        true => out.extend_from_slice(text.as_bytes()),
        false => string(out, &text),
    }
}
