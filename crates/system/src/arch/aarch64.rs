//! arm64.

/// The types of the floating-point unit (`cpuinfo_t` of the original).
pub const FPU_TYPES: &str = "";
/// The macro that the preprocessor predefines.
pub const MACRO: &str = "__aarch64";
