//! The name by which programs find the library, which changes when they have to be built anew; and
//! that it stays: it has threads and handlers of `fork`.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdtrace_rs.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
