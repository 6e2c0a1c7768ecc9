//! x86-64.

/// The machine of a file of 64 bits: `EM_X86_64`.
pub(crate) const EM: u64 = text::EM as u64;
/// The same, of 32 bits: `EM_386`.
pub(crate) const EM_32: u64 = 3;
/// The relocation that names the slot and the resolver of an indirect function:
/// `R_X86_64_IRELATIVE`.
pub(crate) const IRELATIVE: u64 = 37;
/// How the kernel's names of calls of 32-bit programs begin, which may be other names of those of
/// 64-bit programs.
pub(crate) const NARROW_CALLS: [&[u8]; 2] = [b"__ia32_sys_", b"__pfx___ia32_sys_"];
