//! Functions for which the static program has code of its own, a file for each machine. Another
//! machine has those of its C library.

#[cfg(target_arch = "x86_64")]
mod x86_64;
