//! x86-64.

/// The types of the floating-point unit (`cpuinfo_t` of the original).
pub const FPU_TYPES: &str = "i387 compatible";
/// The macro that the preprocessor predefines.
pub const MACRO: &str = "__amd64";
