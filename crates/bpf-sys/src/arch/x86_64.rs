//! x86-64.

/// The nops that kernels replace.
pub(crate) const NOP5: &[u8] = &[0x0f, 0x1f, 0x44, 0, 0];
/// The same.
pub(crate) const NOP10: &[u8] = &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

/// The code of a function that fills its red zone, comes to a nop and counts the words that are not
/// as they were, and where the nop is in it. `None`: this machine has no such nops.
pub(crate) fn red_zone(nop: &[u8]) -> Option<(Vec<u8>, u64)> {
    const FILL: [u8; 26] = [
        0x48, 0xb8, 0x5a, 0x5a, 0x96, 0x69, 0xc3, 0x3c, 0xa5, 0xa5, // mov $pattern,%rax
        0x48, 0xc7, 0xc1, 0xf0, 0xff, 0xff, 0xff, // mov $-16,%rcx
        0x48, 0x89, 0x04, 0xcc, // again: mov %rax,(%rsp,%rcx,8)
        0x48, 0xff, 0xc1, // inc %rcx
        0x75, 0xf7, // jne again
    ];
    const COUNT: [u8; 25] = [
        0x48, 0xc7, 0xc1, 0xf0, 0xff, 0xff, 0xff, // mov $-16,%rcx
        0x31, 0xd2, // xor %edx,%edx
        0x48, 0x39, 0x04, 0xcc, // again: cmp %rax,(%rsp,%rcx,8)
        0x74, 0x02, // je same
        0xff, 0xc2, // inc %edx
        0x48, 0xff, 0xc1, // same: inc %rcx
        0x75, 0xf3, // jne again
        0x89, 0xd0, // mov %edx,%eax
        0xc3, // ret
    ];
    Some(([&FILL, nop, &COUNT].concat(), FILL.len() as u64))
}

/// A system call without `errno`: its result, or the negated error.
///
/// # Safety
/// As the system call.
pub(crate) unsafe fn raw(number: libc::c_long, a: i64, b: i64, c: i64) -> i64 {
    let result;
    // SAFETY: the caller vouches for the arguments; the instruction changes rcx and r11 besides.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") 0, in("r8") 0, in("r9") 0,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}
