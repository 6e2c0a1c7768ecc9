//! The values of machines that no other has, a file each. Those of arm64 are not known yet.

mod x86_64;

pub(crate) use x86_64::extended;
