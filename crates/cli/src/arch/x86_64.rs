//! `memcpy`, `memmove` and `memcmp` of the static program: those of musl cost more than half of its
//! processor time.
//!
//! musl copies with `rep movsq`, which needs some thirty cycles to begin, and compares byte by
//! byte. What flows here is short: a name, a number, a member of a row. So up to 128 bytes are
//! copied without a loop, by loads that overlap and then stores that overlap; more by 64 bytes at a
//! time, and long blocks as musl does. Nothing is used that not every x86-64 has.
//!
//! ```text
//!  n bytes, 16 < n <= 32      load a, load b; store a, store b        |a a a a a a|
//!                                                                        |b b b b b b|
//! ```
//!
//! It is assembly, because a compiler that finds a loop that copies calls `memcpy` instead. The
//! functions have names of their own, by which tests call them on any C library; where it is musl,
//! they are the C library's names too, and the linker takes them before those of its archive.
//! `memmove` is defined with `memcpy` because musl's is a part of musl's `memcpy`. The interface is
//! that of C and the System V ABI: rdi, rsi, rdx; the result in rax; rcx, rsi, rdi, r8 to r11 and
//! xmm are the caller's.

use std::arch::global_asm;

// Both copies: all that is stored was loaded before where blocks overlap.
global_asm!(
    ".text",
    ".p2align 4",
    ".globl dtrace_memmove",
    ".hidden dtrace_memmove",
    ".type dtrace_memmove, @function",
    "dtrace_memmove:",
    "mov rax, rdi",
    "cmp rdx, 16",
    "jb 20f",
    "cmp rdx, 32",
    "ja 30f",
    // 16 to 32 bytes.
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm1",
    "ret",
    // Less than 16 bytes.
    "20:",
    "cmp edx, 8",
    "jae 21f",
    "cmp edx, 4",
    "jae 22f",
    "test edx, edx",
    "jz 23f",
    // 1 to 3 bytes: the first, that in the middle, the last.
    "mov ecx, edx",
    "shr ecx",
    "movzx r8d, byte ptr [rsi]",
    "movzx r9d, byte ptr [rsi + rcx]",
    "movzx r10d, byte ptr [rsi + rdx - 1]",
    "mov byte ptr [rdi], r8b",
    "mov byte ptr [rdi + rcx], r9b",
    "mov byte ptr [rdi + rdx - 1], r10b",
    "23:",
    "ret",
    "21:",
    "mov rcx, [rsi]",
    "mov r8, [rsi + rdx - 8]",
    "mov [rdi], rcx",
    "mov [rdi + rdx - 8], r8",
    "ret",
    "22:",
    "mov ecx, [rsi]",
    "mov r8d, [rsi + rdx - 4]",
    "mov [rdi], ecx",
    "mov [rdi + rdx - 4], r8d",
    "ret",
    "30:",
    "cmp rdx, 64",
    "ja 40f",
    // 33 to 64 bytes.
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + rdx - 32]",
    "movups xmm3, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + rdx - 32], xmm2",
    "movups [rdi + rdx - 16], xmm3",
    "ret",
    "40:",
    // The last 64 bytes, which 65 bytes and more have in common.
    "movups xmm4, [rsi + rdx - 64]",
    "movups xmm5, [rsi + rdx - 48]",
    "movups xmm6, [rsi + rdx - 32]",
    "movups xmm7, [rsi + rdx - 16]",
    "lea r8, [rdi + rdx - 64]",
    "cmp rdx, 128",
    "ja 50f",
    // 65 to 128 bytes.
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "jmp 59f",
    "50:",
    // Where the destination begins inside of the source, from the end.
    "mov rcx, rdi",
    "sub rcx, rsi",
    "cmp rcx, rdx",
    "jb 60f",
    "cmp rdx, 2048",
    "jae 70f",
    // From the beginning, until the last 64 bytes are reached.
    "51:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "cmp rdi, r8",
    "jb 51b",
    "59:",
    "movups [r8], xmm4",
    "movups [r8 + 16], xmm5",
    "movups [r8 + 32], xmm6",
    "movups [r8 + 48], xmm7",
    "ret",
    "60:",
    // From the end, until the first 64 bytes are reached, which are loaded before.
    "movups xmm8, [rsi]",
    "movups xmm9, [rsi + 16]",
    "movups xmm10, [rsi + 32]",
    "movups xmm11, [rsi + 48]",
    "lea r9, [rdi + 64]",
    "lea r10, [rsi + rdx]",
    "lea r11, [rdi + rdx]",
    "61:",
    "sub r10, 64",
    "sub r11, 64",
    "movups xmm0, [r10]",
    "movups xmm1, [r10 + 16]",
    "movups xmm2, [r10 + 32]",
    "movups xmm3, [r10 + 48]",
    "movups [r11], xmm0",
    "movups [r11 + 16], xmm1",
    "movups [r11 + 32], xmm2",
    "movups [r11 + 48], xmm3",
    "cmp r11, r9",
    "ja 61b",
    "movups [rdi], xmm8",
    "movups [rdi + 16], xmm9",
    "movups [rdi + 32], xmm10",
    "movups [rdi + 48], xmm11",
    "ret",
    "70:",
    "mov rcx, rdx",
    "shr rcx, 3",
    "rep movsq",
    "jmp 59b",
    ".size dtrace_memmove, . - dtrace_memmove",
    // The first byte that differs decides, as a number without a sign.
    ".p2align 4",
    ".globl dtrace_memcmp",
    ".hidden dtrace_memcmp",
    ".type dtrace_memcmp, @function",
    "dtrace_memcmp:",
    "cmp rdx, 16",
    "jb 20f",
    "lea r8, [rdx - 16]",
    "xor ecx, ecx",
    // 16 bytes at a time; the last 16 overlap.
    "10:",
    "cmp rcx, r8",
    "cmova rcx, r8",
    "movups xmm0, [rdi + rcx]",
    "movups xmm1, [rsi + rcx]",
    "pcmpeqb xmm0, xmm1",
    "pmovmskb eax, xmm0",
    "xor eax, 0xffff",
    "jnz 11f",
    "add rcx, 16",
    "cmp rcx, rdx",
    "jb 10b",
    "ret",
    "11:",
    "bsf eax, eax",
    "add rcx, rax",
    "movzx eax, byte ptr [rdi + rcx]",
    "movzx ecx, byte ptr [rsi + rcx]",
    "sub eax, ecx",
    "ret",
    "20:",
    "cmp edx, 8",
    "jb 30f",
    // 8 to 15 bytes, as numbers of which the first byte is the highest.
    "mov rax, [rdi]",
    "mov rcx, [rsi]",
    "cmp rax, rcx",
    "jne 21f",
    "mov rax, [rdi + rdx - 8]",
    "mov rcx, [rsi + rdx - 8]",
    "cmp rax, rcx",
    "je 22f",
    "21:",
    "bswap rax",
    "bswap rcx",
    "cmp rax, rcx",
    "sbb eax, eax",
    "or eax, 1",
    "ret",
    "22:",
    "xor eax, eax",
    "ret",
    "30:",
    "cmp edx, 4",
    "jb 40f",
    "mov eax, [rdi]",
    "mov ecx, [rsi]",
    "cmp eax, ecx",
    "jne 31f",
    "mov eax, [rdi + rdx - 4]",
    "mov ecx, [rsi + rdx - 4]",
    "cmp eax, ecx",
    "je 22b",
    "31:",
    "bswap eax",
    "bswap ecx",
    "cmp eax, ecx",
    "sbb eax, eax",
    "or eax, 1",
    "ret",
    // Up to 3 bytes.
    "40:",
    "xor r8d, r8d",
    "41:",
    "cmp r8, rdx",
    "je 22b",
    "movzx eax, byte ptr [rdi + r8]",
    "movzx ecx, byte ptr [rsi + r8]",
    "inc r8",
    "sub eax, ecx",
    "jz 41b",
    "ret",
    ".size dtrace_memcmp, . - dtrace_memcmp",
);

#[cfg(target_env = "musl")]
global_asm!(
    ".globl memcpy",
    ".globl memmove",
    ".globl memcmp",
    ".globl bcmp",
    ".set memcpy, dtrace_memmove",
    ".set memmove, dtrace_memmove",
    ".set memcmp, dtrace_memcmp",
    ".set bcmp, dtrace_memcmp",
);

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;
    use std::ffi::c_int;

    unsafe extern "C" {
        fn dtrace_memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8;
        fn dtrace_memcmp(one: *const u8, other: *const u8, count: usize) -> c_int;
    }

    /// Sizes of every way, and beside their limits.
    fn sizes() -> impl Iterator<Item = usize> {
        (0..=300).chain([511, 512, 513, 1000, 2047, 2048, 2049, 2055, 4096, 5001])
    }

    /// No two bytes near each other are equal.
    fn numbered(count: usize) -> Vec<u8> {
        (0..count).map(|n| (n % 251) as u8).collect()
    }

    #[test]
    fn every_size_is_copied_at_every_distance_and_nothing_beside_it() {
        for size in sizes() {
            let distances = [
                0,
                1,
                7,
                8,
                15,
                16,
                17,
                31,
                33,
                63,
                64,
                65,
                100,
                128,
                200,
                size.saturating_sub(1),
                size,
                size + 3,
            ];
            for distance in distances {
                for (from, to) in [(8, 8 + distance), (8 + distance, 8)] {
                    let mut found = numbered(16 + distance + size);
                    let mut expected = found.clone();
                    expected.copy_within(from..from + size, to);
                    let start = found.as_mut_ptr();
                    // SAFETY: both blocks are in the vector.
                    let result = unsafe { dtrace_memmove(start.add(to), start.add(from), size) };
                    // SAFETY: as above.
                    assert_eq!(result, unsafe { start.add(to) });
                    assert!(found == expected, "{size} bytes from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn the_first_byte_that_differs_decides() {
        // SAFETY: both slices have as many bytes.
        let compared =
            |one: &[u8], other: &[u8]| unsafe { dtrace_memcmp(one.as_ptr(), other.as_ptr(), one.len()) };
        for size in sizes() {
            let one = numbered(size);
            assert_eq!(compared(&one, &one.clone()), 0, "{size} bytes");
            for at in (0..size).filter(|at| *at < 70 || size - at < 70) {
                let mut other = one.clone();
                for value in
                    [one[at].wrapping_add(1), one[at].wrapping_sub(1), one[at] ^ 0x80, 0xff - one[at]]
                {
                    other[at] = value;
                    // What comes later does not matter.
                    if let Some(last) = other.last_mut().filter(|_| at + 1 < size) {
                        *last = !one[size - 1];
                    }
                    let expected = one[..=at].cmp(&other[..=at]);
                    assert_ne!(expected, Ordering::Equal);
                    assert_eq!(compared(&one, &other).cmp(&0), expected, "{size} bytes, the one at {at}");
                }
            }
        }
    }
}
