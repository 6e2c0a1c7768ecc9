//! The kernel's list of symbols, of any text: every address has a name or none.
#![no_main]

use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};

libfuzzer_sys::fuzz_target!(|input: (&[u8], u64)| {
    let (text, addr) = input;
    // SAFETY: a name that outlives the call; the kernel returns a descriptor that nobody else has.
    let mut file = unsafe {
        match libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return,
            fd => std::fs::File::from_raw_fd(fd),
        }
    };
    if file.write_all(text).is_err() || file.rewind().is_err() {
        return;
    }
    let mut kernel = symbols::Kernel::at(format!("/proc/self/fd/{}", file.as_raw_fd()));
    kernel.load();
    let found: Vec<(u64, String)> = kernel.symbols().take(20).map(|s| (s.addr, s.name.to_owned())).collect();
    for (addr, name) in found.into_iter().chain([(addr, String::new())]) {
        kernel.name(addr);
        assert!(kernel.func_start(addr) <= addr);
        kernel.module_start(addr);
        kernel.find(None, &name);
        kernel.names_like(&name);
    }
    kernel.ranges(|_| true);
});
