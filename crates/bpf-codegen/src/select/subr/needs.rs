//! What subroutines need in the scratch slot.

use dif::ir::{Op, Subr};

/// Bytes of the work area.
pub(crate) const WORK: u32 = 256;

/// Bytes of the state of `strtok()` before the string.
pub(crate) const TOKEN_HEAD: u32 = 8;

/// What an operation needs in the scratch slot beside its strings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// The work area.
    pub(crate) work: bool,
    /// The state of `strtok()`.
    pub(crate) token: bool,
    /// The result of `return()`.
    pub(crate) result: bool,
    /// Space for a string behind everything else: see `strjoin()`.
    pub(crate) behind: bool,
}

/// What an operation needs.
pub(crate) fn needs(op: &Op) -> Needs {
    let Op::Call(subr, _) = op else { return Needs::default() };
    let work = Needs { work: true, ..Needs::default() };
    match subr {
        Subr::Args
        | Subr::Chill
        | Subr::Commit
        | Subr::DPath
        | Subr::DentryPath
        | Subr::Discard
        | Subr::First
        | Subr::Fullpath
        | Subr::Getmajor
        | Subr::Getminor
        | Subr::Htonl
        | Subr::Htonll
        | Subr::Htons
        | Subr::Mountpoint
        | Subr::Raise
        | Subr::Rand
        | Subr::SetChar
        | Subr::Speculation
        | Subr::Strchr
        | Subr::Strrchr
        | Subr::Substr
        | Subr::Tail
        | Subr::Tolower
        | Subr::Toupper => Needs::default(),
        Subr::Return => Needs { result: true, ..Needs::default() },
        Subr::Strjoin => Needs { behind: true, ..Needs::default() },
        Subr::Strtok | Subr::StrtokNext => Needs { token: true, ..work },
        Subr::Basename
        | Subr::Progenyof
        | Subr::Memstr
        | Subr::Cleanpath
        | Subr::Container
        | Subr::Dirname
        | Subr::Index
        | Subr::InetNtoa
        | Subr::InetNtoa6
        | Subr::InetNtop
        | Subr::Json
        | Subr::LinkNtop
        | Subr::Lltostr
        | Subr::Pod
        | Subr::Rindex
        | Subr::Strstr
        | Subr::Strtoll => work,
    }
}
