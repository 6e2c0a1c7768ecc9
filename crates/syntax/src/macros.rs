//! Macro variables: `$1`, `$$1`, `$target`.
//!
//! They are expanded by the lexer, once, into one token each; so their text can never change how the program around
//! them is read (an operand `1; } BEGIN {` is a string, not three tokens).

/// What the macro variables stand for, and how strict to be about operands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MacroEnv {
    /// `$0`: the script's name, or `dtrace`.
    pub name: String,
    /// `$1`, `$2`, …
    pub args: Vec<String>,
    /// `$pid`: the consumer's process id.
    pub pid: u64,
    /// `$ppid`
    pub ppid: u64,
    /// `$uid`
    pub uid: u64,
    /// `$euid`
    pub euid: u64,
    /// `$gid`
    pub gid: u64,
    /// `$egid`
    pub egid: u64,
    /// `$pgid`
    pub pgid: u64,
    /// `$sid`
    pub sid: u64,
    /// `$target`: process id of the first `-c` or `-p` process, 0 without.
    pub target: u64,
    /// Option `defaultargs`: a missing operand is 0, or the empty string.
    pub default_args: bool,
    /// Option `argref`: operands need not be referenced.
    pub arg_ref: bool,
    /// Option `pspec`: at file scope `a*b` starts a probe description even if `a` is a type.
    pub probe_spec_first: bool,
}
