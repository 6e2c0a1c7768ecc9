//! Instructions as text, for golden files, `-x bpflog` and error messages.
//!
//! The notation is the verifier's (`r0 = *(u64 *)(r1 +16)`), so that a listing can be compared with
//! the kernel's log. Jump targets are absolute slot numbers, because a reader looks for a number
//! and not for a sum.

use crate::insn::{Insn, op};
use std::fmt::Write;

/// Lists the whole program, one instruction a line: slot, two spaces, text.
pub fn listing(insns: &[Insn]) -> String {
    let mut out = String::new();
    let mut at = 0;
    while at < insns.len() {
        let (text, slots) = one(insns, at);
        let _ = writeln!(out, "{at:4}  {text}");
        at += slots;
    }
    out
}

/// The instruction at slot `at` and the slots it takes (1 or 2).
pub fn one(insns: &[Insn], at: usize) -> (String, usize) {
    let Some(&insn) = insns.get(at) else { return ("<end>".into(), 1) };
    if insn.is_wide() {
        return match insns.get(at + 1) {
            Some(high) => (wide(insn, high.imm, at), 2),
            None => ("<half of a 64-bit load>".into(), 1),
        };
    }
    let text = match insn.class() {
        op::ALU | op::ALU64 => alu(insn),
        op::JMP | op::JMP32 => jump(insn, at),
        op::LDX | op::ST | op::STX => memory(insn),
        _ => None,
    };
    (text.unwrap_or_else(|| format!("<unknown {insn:?}>")), 1)
}

fn wide(insn: Insn, high: i32, at: usize) -> String {
    let dst = insn.dst();
    match insn.src() {
        0 => format!("r{dst} = 0x{:x} ll", (high as u32 as u64) << 32 | insn.imm as u32 as u64),
        op::PSEUDO_MAP_FD => format!("r{dst} = map[fd:{}]", insn.imm),
        op::PSEUDO_MAP_VALUE => format!("r{dst} = map[fd:{}][0]+{}", insn.imm, high as u32),
        op::PSEUDO_BTF_ID => format!("r{dst} = ksym[btf:{}]", insn.imm),
        op::PSEUDO_FUNC => format!("r{dst} = func {}", target(at, insn.imm)),
        other => format!("r{dst} = <pseudo {other}> {} {high}", insn.imm),
    }
}

/// The slot that a jump or call at slot `at` reaches.
pub fn target(at: usize, distance: i32) -> i64 {
    at as i64 + 1 + i64::from(distance)
}

fn alu(insn: Insn) -> Option<String> {
    let wide = insn.class() == op::ALU64;
    let r = if wide { 'r' } else { 'w' };
    let (dst, src) = (insn.dst(), insn.src());
    let operation = insn.code & op::OPERATION;
    if operation == op::END {
        let name = match (wide, insn.code & op::X != 0) {
            (true, _) => "bswap",
            (false, true) => "be",
            (false, false) => "le",
        };
        return Some(format!("r{dst} = {name}{} r{dst}", insn.imm));
    }
    if operation == op::NEG {
        return Some(format!("{r}{dst} = -{r}{dst}"));
    }
    let operand = if insn.code & op::X != 0 { format!("{r}{src}") } else { insn.imm.to_string() };
    let sign = if insn.off == 1 { "s" } else { "" };
    let symbol = match operation {
        0x00 => "+=",
        0x10 => "-=",
        0x20 => "*=",
        0x30 => "/=",
        0x40 => "|=",
        0x50 => "&=",
        0x60 => "<<=",
        0x70 => ">>=",
        0x90 => "%=",
        0xa0 => "^=",
        0xc0 => "s>>=",
        op::MOV if insn.off != 0 => return Some(format!("{r}{dst} = (s{}){operand}", insn.off)),
        op::MOV => return Some(format!("{r}{dst} = {operand}")),
        _ => return None,
    };
    Some(format!("{r}{dst} {sign}{symbol} {operand}"))
}

fn jump(insn: Insn, at: usize) -> Option<String> {
    let operation = insn.code & op::OPERATION;
    let short = insn.class() == op::JMP32;
    match operation {
        op::JA => {
            return Some(format!("goto {}", target(at, if short { insn.imm } else { insn.off.into() })));
        }
        op::EXIT => return Some("exit".into()),
        op::CALL => {
            return Some(match insn.src() {
                0 => format!("call {}", crate::helpers::Helper(insn.imm)),
                op::PSEUDO_CALL => format!("call func {}", target(at, insn.imm)),
                op::PSEUDO_KFUNC_CALL if insn.off != 0 => {
                    format!("call kfunc[btf:{}:{}]", insn.off, insn.imm)
                }
                op::PSEUDO_KFUNC_CALL => format!("call kfunc[btf:{}]", insn.imm),
                other => format!("call <pseudo {other}> {}", insn.imm),
            });
        }
        _ => {}
    }
    let symbol = match operation {
        0x10 => "==",
        0x20 => ">",
        0x30 => ">=",
        0x40 => "&",
        0x50 => "!=",
        0x60 => "s>",
        0x70 => "s>=",
        0xa0 => "<",
        0xb0 => "<=",
        0xc0 => "s<",
        0xd0 => "s<=",
        _ => return None,
    };
    let r = if short { 'w' } else { 'r' };
    let operand = if insn.code & op::X != 0 { format!("{r}{}", insn.src()) } else { insn.imm.to_string() };
    Some(format!("if {r}{} {symbol} {operand} goto {}", insn.dst(), target(at, insn.off.into())))
}

fn memory(insn: Insn) -> Option<String> {
    use crate::insn::Size;
    let (dst, src, off) = (insn.dst(), insn.src(), insn.off);
    let bits = Size::from_code(insn.code).bytes() * 8;
    match (insn.class(), insn.code & op::MODE) {
        (op::LDX, op::MEM) => Some(format!("r{dst} = *(u{bits} *)(r{src} {off:+})")),
        (op::LDX, op::MEMSX) => Some(format!("r{dst} = *(s{bits} *)(r{src} {off:+})")),
        (op::ST, op::MEM) => Some(format!("*(u{bits} *)(r{dst} {off:+}) = {}", insn.imm)),
        (op::STX, op::MEM) => Some(format!("*(u{bits} *)(r{dst} {off:+}) = r{src}")),
        (op::STX, op::ATOMIC) => {
            let place = format!("(u{bits} *)(r{dst} {off:+})");
            let name = match insn.imm & !op::FETCH {
                0x00 => "add",
                0x40 => "or",
                0x50 => "and",
                0xa0 => "xor",
                0xe0 => return Some(format!("r{src} = atomic_xchg({place}, r{src})")),
                0xf0 => return Some(format!("r0 = atomic_cmpxchg({place}, r0, r{src})")),
                _ => return None,
            };
            Some(if insn.imm & op::FETCH != 0 {
                format!("r{src} = atomic_fetch_{name}({place}, r{src})")
            } else {
                format!("lock *{place} {name} r{src}")
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insn::{Alu, Atomic, Helper, Jmp, Reg, Size};

    #[test]
    fn a_listing_has_the_verifiers_notation() {
        let mut p = vec![Insn::ldx(Size::B8, Reg::R6, Reg::R1, 8)];
        p.extend(Insn::ld_map_value(Reg::R7, 5, 64));
        p.push(Insn::jmp_imm(Jmp::Sle, Reg::R6, -1, 3));
        p.push(Insn::alu64(Alu::Add, Reg::R6, Reg::R7));
        p.push(Insn::alu32_imm(Alu::And, Reg::R6, 7));
        p.push(Insn::atomic64(Atomic::CmpXchg, Reg::R7, 0, Reg::R6));
        p.push(Insn::call(Helper::KTIME_GET_NS));
        p.push(Insn::call_pseudo(-9));
        p.push(Insn::exit());
        let want = "   0  r6 = *(u64 *)(r1 +8)
   1  r7 = map[fd:5][0]+64
   3  if r6 s<= -1 goto 7
   4  r6 += r7
   5  w6 &= 7
   6  r0 = atomic_cmpxchg((u64 *)(r7 +0), r0, r6)
   7  call ktime_get_ns
   8  call func 0
   9  exit
";
        assert_eq!(listing(&p), want);
    }

    #[test]
    fn arbitrary_bytes_are_listed_without_a_panic() {
        for code in 0..=255 {
            let i = Insn { code, regs: 0xff, off: -1, imm: -1 };
            let _ = listing(&[i, i]);
            let _ = listing(&[i]);
        }
    }
}
