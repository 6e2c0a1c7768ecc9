//! arm64.

/// The kernel replaces no nops here.
pub(crate) const NOP5: &[u8] = &[];
/// The same.
pub(crate) const NOP10: &[u8] = &[];

/// The code of a function that counts what a probe at a nop changes. `None`: this machine has no
/// such nops.
pub(crate) fn red_zone(_nop: &[u8]) -> Option<(Vec<u8>, u64)> {
    None
}

/// A system call without `errno`: its result, or the negated error.
///
/// # Safety
/// As the system call.
pub(crate) unsafe fn raw(number: libc::c_long, a: i64, b: i64, c: i64) -> i64 {
    let result;
    // SAFETY: the caller vouches for the arguments.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") 0, in("x4") 0, in("x5") 0,
            options(nostack),
        );
    }
    result
}
