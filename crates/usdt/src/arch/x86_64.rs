//! Operands of x86-64, in the syntax of the GNU assembler.
//!
//! ```text
//!  $N              a constant               N(%b) (%b)          memory at a register
//!  %rax %ax %ah    a register, or a part    N(%b,%i,s)          with an index
//!  SYM(%rip)       memory at a symbol       N+SYM(%rip) SYM     and so on
//! ```

use crate::argument::{Address, Register, Source};
use crate::sum::sum;

/// `EM_X86_64`.
pub(super) const EM: u64 = 62;

/// The registers in which a call has its arguments, and what is around the offset of those on the
/// stack.
pub(super) const CALL: ([&str; 6], (&str, &str)) =
    (["%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"], ("", "(%rsp)"));

/// The registers in the order of their numbers: their names with 8, 4, 2 and 1 bytes.
const REGISTERS: [[&str; 4]; 16] = [
    ["rax", "eax", "ax", "al"],
    ["rbx", "ebx", "bx", "bl"],
    ["rcx", "ecx", "cx", "cl"],
    ["rdx", "edx", "dx", "dl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
    ["rbp", "ebp", "bp", "bpl"],
    ["rsp", "esp", "sp", "spl"],
    ["r8", "r8d", "r8w", "r8b"],
    ["r9", "r9d", "r9w", "r9b"],
    ["r10", "r10d", "r10w", "r10b"],
    ["r11", "r11d", "r11w", "r11b"],
    ["r12", "r12d", "r12w", "r12b"],
    ["r13", "r13d", "r13w", "r13b"],
    ["r14", "r14d", "r14w", "r14b"],
    ["r15", "r15d", "r15w", "r15b"],
];

/// The second bytes of the first four registers.
const SECOND_BYTES: [&str; 4] = ["ah", "bh", "ch", "dh"];

/// The name of a register.
pub(crate) fn name(number: u8) -> Option<&'static str> {
    REGISTERS.get(usize::from(number)).map(|names| names[0])
}

fn register(name: &str) -> Option<Register> {
    for (number, names) in (0..).zip(&REGISTERS) {
        if let Some(power) = names.iter().position(|n| *n == name) {
            return Some(Register { number, first: 0, bytes: 8 >> power });
        }
    }
    let number = SECOND_BYTES.iter().position(|n| *n == name)?;
    Some(Register { number: number as u8, first: 1, bytes: 1 })
}

/// Reads an operand. The error says why it is not understood.
pub(crate) fn operand(text: &str) -> Result<Source, String> {
    if let Some(constant) = text.strip_prefix('$') {
        return match sum(constant) {
            Some(sum) if sum.symbol.is_none() => Ok(Source::Constant(sum.number)),
            Some(_) => Err(format!("the address {text} is fixed when the program is linked")),
            None => Err(format!("{text} is no number")),
        };
    }
    if let Some(name) = text.strip_prefix('%') {
        if name.contains(':') {
            return Err(format!("{text} is memory of a segment"));
        }
        return register(name).map(Source::Register).ok_or_else(|| format!("{text} holds no integer"));
    }
    memory(text).map(Source::Memory)
}

fn memory(text: &str) -> Result<Address, String> {
    let wrong = || format!("{text} is no operand");
    let Some((before, inside)) = text.split_once('(') else {
        let sum = sum(text).ok_or_else(wrong)?;
        // `SYM` alone. A number alone would be an address that is the same in all processes.
        let symbol = Some(sum.symbol.ok_or_else(wrong)?.to_owned());
        return whole_symbol(text, Address { symbol, offset: sum.number, ..Address::default() });
    };
    let inside = inside.strip_suffix(')').ok_or_else(wrong)?;
    let sum = if before.is_empty() { Some(Default::default()) } else { sum(before) };
    let sum = sum.ok_or_else(wrong)?;
    let symbol = sum.symbol.map(str::to_owned);
    let mut address = Address { symbol, offset: sum.number, ..Address::default() };
    let whole = |text: &str| {
        let register = text.strip_prefix('%').and_then(register).filter(|r| r.bytes == 8);
        register.map(|r| r.number).ok_or_else(wrong)
    };
    let mut parts = inside.split(',').map(str::trim);
    match parts.next().unwrap_or_default() {
        "%rip" if address.symbol.is_some() => {
            return if parts.next().is_none() { whole_symbol(text, address) } else { Err(wrong()) };
        }
        "%rip" => return Err(format!("{text} depends on the length of an instruction that there is not")),
        // `(,%rax,8)`
        "" if inside.starts_with(',') => {}
        base => address.base = Some(whole(base)?),
    }
    if let Some(index) = parts.next() {
        let scale = match parts.next() {
            None => 1,
            Some("1") => 1,
            Some("2") => 2,
            Some("4") => 4,
            Some("8") => 8,
            Some(_) => return Err(wrong()),
        };
        let index = whole(index)?;
        if parts.next().is_some() || name(index) == Some("rsp") {
            return Err(wrong());
        }
        address.index = Some((index, scale));
    }
    whole_symbol(text, address)
}

/// The address, if its symbol is the place of the value and not of something that leads to it
/// (`x@GOTPCREL`).
fn whole_symbol(text: &str, address: Address) -> Result<Address, String> {
    match &address.symbol {
        Some(symbol) if symbol.contains('@') => Err(format!("{text} is filled in by a linker")),
        _ => Ok(address),
    }
}
