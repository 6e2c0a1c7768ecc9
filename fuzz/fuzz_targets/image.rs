//! A process at the end of its exec, whose memory, `auxv` and program are of any bytes: a place or
//! none.
#![no_main]

use std::io::Write;
use std::os::fd::FromRawFd;

/// Words of `auxv`: the dynamic linker's address, and the program's entry.
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;

libfuzzer_sys::fuzz_target!(|input: (&[u8], &[u8], bool, u8)| {
    let (linker, auxv, is_made, entry) = input;
    // The memory of this process stands for that of the other one.
    let at = linker.as_ptr() as u64;
    let entry = at + u64::from(entry);
    let made = [AT_BASE, at, AT_ENTRY, entry, 0, 0].map(u64::to_ne_bytes).concat();
    proc::places_of(std::process::id(), if is_made { &made } else { auxv });
    // SAFETY: a name that outlives the call; the kernel returns a descriptor that nobody else has.
    let mut file = unsafe {
        match libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return,
            fd => std::fs::File::from_raw_fd(fd),
        }
    };
    if file.write_all(linker).is_ok() && file.set_len(linker.len() as u64 + (1 << 30)).is_ok() {
        proc::main_in(&file);
    }
});
