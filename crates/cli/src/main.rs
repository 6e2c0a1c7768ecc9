//! The `dtrace` command: options, messages, exit codes. It knows nothing under `dtrace`, the library.
fn main() {}
