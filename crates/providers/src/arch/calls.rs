//! What is known of the system calls of a machine.

/// The system calls of a machine.
pub(crate) struct Calls {
    /// Numbers and names of those of 64-bit programs.
    pub(crate) wide: &'static [(u16, &'static str)],
    /// The same of 32-bit programs.
    pub(crate) narrow: &'static [(u16, &'static str)],
    /// How the name of a function that implements a call begins: one whose argument is the address
    /// of the registers.
    pub(crate) prefix: &'static str,
    /// The same, of a call without arguments.
    pub(crate) bare_prefix: &'static str,
    /// The same, for 32-bit programs.
    pub(crate) narrow_prefixes: [&'static str; 2],
    /// Calls whose function has another name.
    pub(crate) entries: &'static [(&'static str, &'static str)],
    /// Calls whose function for 32-bit programs has another name than the call. By function they
    /// would be missed or confused with another.
    pub(crate) other_in_narrow: &'static [&'static str],
}
