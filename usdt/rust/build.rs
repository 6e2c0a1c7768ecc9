//! Compiles the C library, which is the one implementation of the file that tracers read.

fn main() {
    println!("cargo::rerun-if-changed=c/dtrace_usdt.c");
    println!("cargo::rerun-if-changed=c/dtrace_usdt.h");
    cc::Build::new().file("c/dtrace_usdt.c").compile("dtrace_usdt");
}
