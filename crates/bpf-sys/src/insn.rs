//! The eBPF instruction: eight bytes, and constructors that cannot build a wrong one.
//!
//! All code that emits instructions (code generator, routines, tests) uses the constructors below.
//! No other code writes an opcode byte. The alternative is a Rust enum that is encoded at the end.
//! It would need a second form for relocations and a second pass over every program. The kernel's
//! form already has a fixed size and is easy to decode (`disasm`).
//!
//! A 64-bit load of an immediate takes two slots, so its constructors return `[Insn; 2]`.
//! Instructions that only kernels from 6.6 know (sign-extending loads and moves, signed division,
//! unconditional bswap) say so. By default they are not used.

use std::fmt;

/// The kernel's limit on the instructions of a program, and on the instructions that the verifier
/// processes (`BPF_COMPLEXITY_LIMIT_INSNS`).
pub const INSTRUCTIONS_MAX: usize = 1_000_000;

/// A machine register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(u8);

impl Reg {
    /// Result of calls and of the program.
    pub const R0: Reg = Reg(0);
    /// First argument; the context at entry.
    pub const R1: Reg = Reg(1);
    /// Second argument.
    pub const R2: Reg = Reg(2);
    /// Third argument.
    pub const R3: Reg = Reg(3);
    /// Fourth argument.
    pub const R4: Reg = Reg(4);
    /// Fifth argument.
    pub const R5: Reg = Reg(5);
    /// Preserved across calls.
    pub const R6: Reg = Reg(6);
    /// Preserved across calls.
    pub const R7: Reg = Reg(7);
    /// Preserved across calls.
    pub const R8: Reg = Reg(8);
    /// Preserved across calls.
    pub const R9: Reg = Reg(9);
    /// Frame pointer, read-only. The stack is `R10 - 512 .. R10`.
    pub const R10: Reg = Reg(10);

    /// The register with a number from 0 to 10.
    pub const fn new(number: u8) -> Option<Reg> {
        if number <= 10 { Some(Reg(number)) } else { None }
    }

    /// The register's number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Argument register `index` (0–4) of a call.
    pub const fn arg(index: u8) -> Option<Reg> {
        if index < 5 { Some(Reg(index + 1)) } else { None }
    }

    /// True for R1–R5 and R0, which a call destroys.
    pub const fn is_caller_saved(self) -> bool {
        self.0 <= 5
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// Instruction classes and other opcode bits, as in the kernel's `uapi/linux/bpf.h`.
#[allow(missing_docs)]
pub mod op {
    pub const LD: u8 = 0x00;
    pub const LDX: u8 = 0x01;
    pub const ST: u8 = 0x02;
    pub const STX: u8 = 0x03;
    pub const ALU: u8 = 0x04;
    pub const JMP: u8 = 0x05;
    pub const JMP32: u8 = 0x06;
    pub const ALU64: u8 = 0x07;
    pub const CLASS: u8 = 0x07;

    pub const K: u8 = 0x00;
    pub const X: u8 = 0x08;

    pub const IMM: u8 = 0x00;
    pub const MEM: u8 = 0x60;
    pub const MEMSX: u8 = 0x80;
    pub const ATOMIC: u8 = 0xc0;
    pub const MODE: u8 = 0xe0;
    pub const SIZE: u8 = 0x18;

    pub const MOV: u8 = 0xb0;
    pub const END: u8 = 0xd0;
    pub const NEG: u8 = 0x80;
    pub const JA: u8 = 0x00;
    pub const CALL: u8 = 0x80;
    pub const EXIT: u8 = 0x90;
    pub const OPERATION: u8 = 0xf0;

    pub const LD_IMM64: u8 = LD | IMM | 0x18;

    /// `src` of `LD_IMM64`: a map's file descriptor.
    pub const PSEUDO_MAP_FD: u8 = 1;
    /// `src` of `LD_IMM64`: address of a map's first element, plus an offset.
    pub const PSEUDO_MAP_VALUE: u8 = 2;
    /// `src` of `LD_IMM64`: a kernel variable by BTF id.
    pub const PSEUDO_BTF_ID: u8 = 3;
    /// `src` of `LD_IMM64`: a function of this program.
    pub const PSEUDO_FUNC: u8 = 4;
    /// `src` of `CALL`: a function of this program, `imm` slots from the next one.
    pub const PSEUDO_CALL: u8 = 1;
    /// `src` of `CALL`: a kernel function by BTF id.
    pub const PSEUDO_KFUNC_CALL: u8 = 2;

    pub const FETCH: i32 = 0x01;
    pub const XCHG: i32 = 0xe0 | FETCH;
    pub const CMPXCHG: i32 = 0xf0 | FETCH;
}

/// Bytes of a memory access.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Size {
    B1 = 0x10,
    B2 = 0x08,
    B4 = 0x00,
    B8 = 0x18,
}

impl Size {
    /// The size of 1, 2, 4 or 8 bytes.
    pub const fn of(bytes: u32) -> Option<Size> {
        match bytes {
            1 => Some(Size::B1),
            2 => Some(Size::B2),
            4 => Some(Size::B4),
            8 => Some(Size::B8),
            _ => None,
        }
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Size::B1 => 1,
            Size::B2 => 2,
            Size::B4 => 4,
            Size::B8 => 8,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Size {
        match code & op::SIZE {
            0x10 => Size::B1,
            0x08 => Size::B2,
            0x00 => Size::B4,
            _ => Size::B8,
        }
    }
}

/// Two-operand arithmetic. Division is unsigned; a zero divisor gives 0, a zero modulus leaves the
/// dividend.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
    Mod = 0x90,
    Xor = 0xa0,
    Arsh = 0xc0,
}

/// Conditions of a jump; `S` signed, the others unsigned. `Set`: jump when `a & b` is not 0.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Jmp {
    Eq = 0x10,
    Gt = 0x20,
    Ge = 0x30,
    Set = 0x40,
    Ne = 0x50,
    Sgt = 0x60,
    Sge = 0x70,
    Lt = 0xa0,
    Le = 0xb0,
    Slt = 0xc0,
    Sle = 0xd0,
}

impl Jmp {
    /// Whether a comparison with a constant bounds its operand: first where the jump is taken, then
    /// where it is not. An unsigned comparison counts when it gives an upper bound, a signed one on
    /// both sides.
    pub const fn bounds(self) -> (bool, bool) {
        match self {
            Jmp::Eq | Jmp::Ne | Jmp::Set => (false, false),
            Jmp::Lt | Jmp::Le => (true, false),
            Jmp::Gt | Jmp::Ge => (false, true),
            Jmp::Sgt | Jmp::Sge | Jmp::Slt | Jmp::Sle => (true, true),
        }
    }

    /// The condition that holds when this one does not; `None` for `Set`, which has no opposite.
    pub const fn negate(self) -> Option<Jmp> {
        Some(match self {
            Jmp::Eq => Jmp::Ne,
            Jmp::Ne => Jmp::Eq,
            Jmp::Gt => Jmp::Le,
            Jmp::Le => Jmp::Gt,
            Jmp::Ge => Jmp::Lt,
            Jmp::Lt => Jmp::Ge,
            Jmp::Sgt => Jmp::Sle,
            Jmp::Sle => Jmp::Sgt,
            Jmp::Sge => Jmp::Slt,
            Jmp::Slt => Jmp::Sge,
            Jmp::Set => return None,
        })
    }

    /// The condition with its operands exchanged (`a < b` is `b > a`).
    pub const fn swap(self) -> Jmp {
        match self {
            Jmp::Gt => Jmp::Lt,
            Jmp::Lt => Jmp::Gt,
            Jmp::Ge => Jmp::Le,
            Jmp::Le => Jmp::Ge,
            Jmp::Sgt => Jmp::Slt,
            Jmp::Slt => Jmp::Sgt,
            Jmp::Sge => Jmp::Sle,
            Jmp::Sle => Jmp::Sge,
            other => other,
        }
    }
}

/// Atomic read-modify-write. All are sequentially consistent when they fetch; without fetch they
/// are relaxed.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Atomic {
    Add,
    Or,
    And,
    Xor,
    /// The source register receives the old value.
    FetchAdd,
    FetchOr,
    FetchAnd,
    FetchXor,
    /// The source register receives the old value.
    Xchg,
    /// Compares with R0 and stores the source register if equal. R0 receives the old value.
    CmpXchg,
}

impl Atomic {
    /// The immediate that selects the operation.
    pub const fn imm(self) -> i32 {
        match self {
            Atomic::Add => 0x00,
            Atomic::Or => 0x40,
            Atomic::And => 0x50,
            Atomic::Xor => 0xa0,
            Atomic::FetchAdd => op::FETCH,
            Atomic::FetchOr => 0x40 | op::FETCH,
            Atomic::FetchAnd => 0x50 | op::FETCH,
            Atomic::FetchXor => 0xa0 | op::FETCH,
            Atomic::Xchg => op::XCHG,
            Atomic::CmpXchg => op::CMPXCHG,
        }
    }
}

/// One slot of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(C)]
pub struct Insn {
    /// Class, operation, size.
    pub code: u8,
    /// Destination in the low half, source in the high half (little-endian bit fields).
    pub regs: u8,
    /// Jump distance in slots, counted from the next slot, or offset in bytes.
    pub off: i16,
    /// Constant.
    pub imm: i32,
}

const NONE: Reg = Reg::R0;

impl Insn {
    const fn make(code: u8, dst: Reg, src: Reg, off: i16, imm: i32) -> Insn {
        Insn { code, regs: pack(dst.0, src.0), off, imm }
    }

    /// Destination register's number.
    pub const fn dst(self) -> u8 {
        if cfg!(target_endian = "little") { self.regs & 0xf } else { self.regs >> 4 }
    }

    /// Source register's number, or pseudo kind.
    pub const fn src(self) -> u8 {
        if cfg!(target_endian = "little") { self.regs >> 4 } else { self.regs & 0xf }
    }

    /// Replaces the source field (relocation of pseudo kinds).
    #[must_use]
    pub const fn with_src(self, src: u8) -> Insn {
        Insn { regs: pack(self.dst(), src), ..self }
    }

    /// Class bits.
    pub const fn class(self) -> u8 {
        self.code & op::CLASS
    }

    /// True for the first slot of a two-slot load.
    pub const fn is_wide(self) -> bool {
        self.code == op::LD_IMM64
    }

    /// True when `off` is a jump distance.
    pub const fn is_jump(self) -> bool {
        let class = self.class();
        (class == op::JMP || class == op::JMP32)
            && self.code & op::OPERATION != op::CALL
            && self.code & op::OPERATION != op::EXIT
    }

    /// True for a call of a function of this program.
    pub const fn is_pseudo_call(self) -> bool {
        self.code == op::JMP | op::CALL && self.src() == op::PSEUDO_CALL
    }

    /// The slot as the kernel decodes it.
    pub const fn to_u64(self) -> u64 {
        (self.code as u64)
            | (self.regs as u64) << 8
            | (self.off as u16 as u64) << 16
            | (self.imm as u32 as u64) << 32
    }

    // --- arithmetic ---

    /// `dst = dst op src`, 64 bits.
    pub const fn alu64(operation: Alu, dst: Reg, src: Reg) -> Insn {
        Insn::make(op::ALU64 | op::X | operation as u8, dst, src, 0, 0)
    }

    /// `dst = dst op imm`, 64 bits, `imm` sign-extended.
    pub const fn alu64_imm(operation: Alu, dst: Reg, imm: i32) -> Insn {
        Insn::make(op::ALU64 | op::K | operation as u8, dst, NONE, 0, imm)
    }

    /// `dst = (u32)(dst op src)`.
    pub const fn alu32(operation: Alu, dst: Reg, src: Reg) -> Insn {
        Insn::make(op::ALU | op::X | operation as u8, dst, src, 0, 0)
    }

    /// `dst = (u32)(dst op imm)`.
    pub const fn alu32_imm(operation: Alu, dst: Reg, imm: i32) -> Insn {
        Insn::make(op::ALU | op::K | operation as u8, dst, NONE, 0, imm)
    }

    /// `dst = dst / src` (`Div`) or `dst % src` (`Mod`), signed. Kernels from 6.6.
    pub const fn signed64(operation: Alu, dst: Reg, src: Reg) -> Insn {
        Insn::make(op::ALU64 | op::X | operation as u8, dst, src, 1, 0)
    }

    /// `dst = -dst`.
    pub const fn neg64(dst: Reg) -> Insn {
        Insn::make(op::ALU64 | op::NEG, dst, NONE, 0, 0)
    }

    /// `dst = (u32)-dst`.
    pub const fn neg32(dst: Reg) -> Insn {
        Insn::make(op::ALU | op::NEG, dst, NONE, 0, 0)
    }

    /// `dst = src`.
    pub const fn mov64(dst: Reg, src: Reg) -> Insn {
        Insn::make(op::ALU64 | op::X | op::MOV, dst, src, 0, 0)
    }

    /// `dst = imm`, sign-extended.
    pub const fn mov64_imm(dst: Reg, imm: i32) -> Insn {
        Insn::make(op::ALU64 | op::K | op::MOV, dst, NONE, 0, imm)
    }

    /// `dst = (u32)src`.
    pub const fn mov32(dst: Reg, src: Reg) -> Insn {
        Insn::make(op::ALU | op::X | op::MOV, dst, src, 0, 0)
    }

    /// `dst = (u32)imm`.
    pub const fn mov32_imm(dst: Reg, imm: i32) -> Insn {
        Insn::make(op::ALU | op::K | op::MOV, dst, NONE, 0, imm)
    }

    /// `dst = src` sign-extended from `bits` (8, 16 or 32). Kernels from 6.6.
    pub const fn movsx64(dst: Reg, src: Reg, bits: i16) -> Insn {
        Insn::make(op::ALU64 | op::X | op::MOV, dst, src, bits, 0)
    }

    /// `dst` from the machine's order to big-endian, zero-extended; `bits` is 16, 32 or 64.
    pub const fn to_be(dst: Reg, bits: i32) -> Insn {
        Insn::make(op::ALU | op::X | op::END, dst, NONE, 0, bits)
    }

    /// `dst` from the machine's order to little-endian, zero-extended; `bits` is 16, 32 or 64. On a
    /// little-endian machine this truncates.
    pub const fn to_le(dst: Reg, bits: i32) -> Insn {
        Insn::make(op::ALU | op::K | op::END, dst, NONE, 0, bits)
    }

    /// Reverses the low `bits` of `dst`. Kernels from 6.6.
    pub const fn bswap(dst: Reg, bits: i32) -> Insn {
        Insn::make(op::ALU64 | op::K | op::END, dst, NONE, 0, bits)
    }

    // --- 64-bit constants and addresses (two slots) ---

    const fn wide(dst: Reg, kind: u8, low: i32, high: i32) -> [Insn; 2] {
        [
            Insn { code: op::LD_IMM64, regs: pack(dst.0, kind), off: 0, imm: low },
            Insn { code: 0, regs: 0, off: 0, imm: high },
        ]
    }

    /// `dst = imm`.
    pub const fn ld_imm64(dst: Reg, imm: u64) -> [Insn; 2] {
        Insn::wide(dst, 0, imm as u32 as i32, (imm >> 32) as u32 as i32)
    }

    /// `dst` = the map open as `fd`.
    pub const fn ld_map_fd(dst: Reg, fd: i32) -> [Insn; 2] {
        Insn::wide(dst, op::PSEUDO_MAP_FD, fd, 0)
    }

    /// `dst` = address of the first element of the array map open as `fd`, plus `offset`.
    pub const fn ld_map_value(dst: Reg, fd: i32, offset: u32) -> [Insn; 2] {
        Insn::wide(dst, op::PSEUDO_MAP_VALUE, fd, offset as i32)
    }

    /// `dst` = address of the kernel variable with this BTF id; `module_fd` is 0 for vmlinux.
    pub const fn ld_btf_id(dst: Reg, id: u32, module_fd: i32) -> [Insn; 2] {
        Insn::wide(dst, op::PSEUDO_BTF_ID, id as i32, module_fd)
    }

    /// `dst` = a function of this program, `distance` slots from the slot after the first half
    /// (callbacks).
    pub const fn ld_func(dst: Reg, distance: i32) -> [Insn; 2] {
        Insn::wide(dst, op::PSEUDO_FUNC, distance, 0)
    }

    // --- memory ---

    /// `dst = *(size *)(src + off)`, zero-extended.
    pub const fn ldx(size: Size, dst: Reg, src: Reg, off: i16) -> Insn {
        Insn::make(op::LDX | op::MEM | size as u8, dst, src, off, 0)
    }

    /// `dst = *(signed size *)(src + off)`, sign-extended. Kernels from 6.6.
    pub const fn ldsx(size: Size, dst: Reg, src: Reg, off: i16) -> Insn {
        Insn::make(op::LDX | op::MEMSX | size as u8, dst, src, off, 0)
    }

    /// `*(size *)(dst + off) = imm`, sign-extended to 64 bits.
    pub const fn st(size: Size, dst: Reg, off: i16, imm: i32) -> Insn {
        Insn::make(op::ST | op::MEM | size as u8, dst, NONE, off, imm)
    }

    /// `*(size *)(dst + off) = src`.
    pub const fn stx(size: Size, dst: Reg, off: i16, src: Reg) -> Insn {
        Insn::make(op::STX | op::MEM | size as u8, dst, src, off, 0)
    }

    /// Atomic operation on the 8 bytes at `dst + off`, which must be aligned.
    pub const fn atomic64(operation: Atomic, dst: Reg, off: i16, src: Reg) -> Insn {
        Insn::make(op::STX | op::ATOMIC | Size::B8 as u8, dst, src, off, operation.imm())
    }

    /// Atomic operation on the 4 bytes at `dst + off`, which must be aligned.
    pub const fn atomic32(operation: Atomic, dst: Reg, off: i16, src: Reg) -> Insn {
        Insn::make(op::STX | op::ATOMIC | Size::B4 as u8, dst, src, off, operation.imm())
    }

    // --- control ---

    /// `if (dst cond src) goto +off`, 64 bits.
    pub const fn jmp(cond: Jmp, dst: Reg, src: Reg, off: i16) -> Insn {
        Insn::make(op::JMP | op::X | cond as u8, dst, src, off, 0)
    }

    /// `if (dst cond imm) goto +off`, 64 bits, `imm` sign-extended.
    pub const fn jmp_imm(cond: Jmp, dst: Reg, imm: i32, off: i16) -> Insn {
        Insn::make(op::JMP | op::K | cond as u8, dst, NONE, off, imm)
    }

    /// `if ((u32)dst cond (u32)src) goto +off`.
    pub const fn jmp32(cond: Jmp, dst: Reg, src: Reg, off: i16) -> Insn {
        Insn::make(op::JMP32 | op::X | cond as u8, dst, src, off, 0)
    }

    /// `if ((u32)dst cond (u32)imm) goto +off`.
    pub const fn jmp32_imm(cond: Jmp, dst: Reg, imm: i32, off: i16) -> Insn {
        Insn::make(op::JMP32 | op::K | cond as u8, dst, NONE, off, imm)
    }

    /// `goto +off`.
    pub const fn ja(off: i16) -> Insn {
        Insn::make(op::JMP | op::JA, NONE, NONE, off, 0)
    }

    /// Calls a helper.
    pub const fn call(helper: Helper) -> Insn {
        Insn::make(op::JMP | op::CALL, NONE, NONE, 0, helper.0)
    }

    /// Calls a function of this program, `distance` slots from the next slot.
    pub const fn call_pseudo(distance: i32) -> Insn {
        Insn { code: op::JMP | op::CALL, regs: pack(0, op::PSEUDO_CALL), off: 0, imm: distance }
    }

    /// Calls a kernel function by BTF id; `btf_index` is 0 for vmlinux, else an index into the
    /// load's fd array.
    pub const fn call_kfunc(id: u32, btf_index: i16) -> Insn {
        Insn {
            code: op::JMP | op::CALL,
            regs: pack(0, op::PSEUDO_KFUNC_CALL),
            off: btf_index,
            imm: id as i32,
        }
    }

    /// Returns R0.
    pub const fn exit() -> Insn {
        Insn::make(op::JMP | op::EXIT, NONE, NONE, 0, 0)
    }
}

const fn pack(dst: u8, src: u8) -> u8 {
    if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src }
}

impl fmt::Debug for Insn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.to_u64().swap_bytes())
    }
}

pub use crate::helpers::Helper;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_those_of_the_kernel_documentation() {
        // From Documentation/bpf/standardization/instruction-set.rst and objdump of clang's output.
        assert_eq!(format!("{:?}", Insn::mov64_imm(Reg::R0, 1)), "b700000001000000");
        assert_eq!(format!("{:?}", Insn::exit()), "9500000000000000");
        assert_eq!(format!("{:?}", Insn::ldx(Size::B8, Reg::R6, Reg::R1, 16)), "7916100000000000");
        assert_eq!(format!("{:?}", Insn::stx(Size::B4, Reg::R10, -4, Reg::R2)), "632afcff00000000");
        assert_eq!(format!("{:?}", Insn::call(Helper::MAP_LOOKUP_ELEM)), "8500000001000000");
        assert_eq!(
            format!("{:?}", Insn::atomic64(Atomic::FetchAdd, Reg::R1, 0, Reg::R2)),
            "db21000001000000"
        );
        assert_eq!(format!("{:?}", Insn::ld_map_fd(Reg::R1, 3)[0]), "1811000003000000");
        assert_eq!(format!("{:?}", Insn::jmp_imm(Jmp::Ne, Reg::R0, -1, 2)), "55000200ffffffff");
        assert_eq!(format!("{:?}", Insn::to_be(Reg::R1, 16)), "dc01000010000000");
    }

    #[test]
    fn negation_is_its_own_inverse() {
        for c in
            [Jmp::Eq, Jmp::Gt, Jmp::Ge, Jmp::Sgt, Jmp::Sge, Jmp::Lt, Jmp::Le, Jmp::Slt, Jmp::Sle, Jmp::Ne]
        {
            assert_eq!(c.negate().and_then(Jmp::negate), Some(c));
            assert_eq!(c.swap().swap(), c);
        }
    }
}
