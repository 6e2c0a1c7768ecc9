//! Subroutines: operations that are calls.
//!
//! One table describes each subroutine: its parameters, its result, its effects, and the
//! interpreter's implementation. Every pass over operations (verifier, optimizer, text form, back
//! end) queries the table. So a new subroutine needs a row here, its function beside the table, and
//! its code in the back end. With an [`Op`](crate::ir::Op) for each subroutine instead, every pass
//! would have to list all of them.

mod action;
mod address;
mod args;
mod call;
mod file;
mod json;
mod name;
mod number;
mod path;
mod text;

pub use call::{Call, Fault};
pub use name::{NameOf, PathOf, Subr};

use crate::interp::{Val, World};
use crate::ir::Ty;

/// The kind of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// An integer, or a pointer used as a number.
    Int,
    /// A string.
    Str,
    /// An address from which the subroutine reads.
    Ptr,
}

/// The effect of a call, other than its result and a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No effect, and the same arguments give the same result. Equal calls are merged, and a call
    /// with constant arguments is folded.
    None,
    /// No effect, but the result depends on more than the arguments. A call is only removed when
    /// its result is unused.
    Reads,
    /// The call changes the system or the result of a later call. It is never removed.
    Changes,
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Row {
    /// The subroutine.
    pub subr: Subr,
    /// Its name in the text form and in D.
    pub name: &'static str,
    /// The parameters.
    pub params: &'static [Param],
    /// Values of the last parameters when a script omits them.
    pub defaults: &'static [i64],
    /// Type of the result: Int or Str.
    pub result: Ty,
    /// The effect.
    pub effect: Effect,
    /// True when the call may fault, other than by a NULL string.
    pub faults: bool,
    /// True when the resulting string may be NULL.
    pub may_be_null: bool,
    /// The interpreter's implementation.
    pub run: fn(&mut Call<'_>) -> Result<Val, Fault>,
}

impl Row {
    const fn int(subr: Subr, name: &'static str, params: &'static [Param], run: Run) -> Row {
        Row {
            subr,
            name,
            params,
            defaults: &[],
            result: Ty::Int,
            effect: Effect::None,
            faults: false,
            may_be_null: false,
            run,
        }
    }

    const fn str(subr: Subr, name: &'static str, params: &'static [Param], run: Run) -> Row {
        Row { result: Ty::Str, ..Row::int(subr, name, params, run) }
    }

    const fn reads(self) -> Row {
        Row { effect: Effect::Reads, ..self }
    }

    const fn changes(self) -> Row {
        Row { effect: Effect::Changes, ..self }
    }

    const fn faults(self) -> Row {
        Row { faults: true, ..self }
    }

    const fn may_return_null(self) -> Row {
        Row { may_be_null: true, ..self }
    }

    const fn with_defaults(self, defaults: &'static [i64]) -> Row {
        Row { defaults, ..self }
    }
}

type Run = fn(&mut Call<'_>) -> Result<Val, Fault>;

use Param::{Int, Ptr, Str};

/// Every subroutine.
pub const TABLE: &[Row] = &[
    Row::str(Subr::Args, "_args", &[Int, Int], args::args).reads().faults(),
    Row::str(Subr::Container, "_container", &[Ptr], file::container).reads().faults(),
    Row::str(Subr::DentryPath, "_dentrypath", &[Ptr, Int], file::dentry_path).reads().faults(),
    Row::int(Subr::First, "_first", &[Str], text::first),
    Row::str(Subr::Fullpath, "_fullpath", &[Ptr], file::full_path).reads().faults(),
    Row::str(Subr::Mountpoint, "_mountpoint", &[Ptr], file::mountpoint).reads().faults(),
    Row::str(Subr::Pod, "_pod", &[Ptr], file::pod).reads().faults(),
    Row::str(Subr::SetChar, "_setchar", &[Str, Int, Int], text::set_char).faults(),
    Row::str(Subr::Tail, "_tail", &[Str, Int], text::tail).faults(),
    Row::str(Subr::Basename, "basename", &[Str], path::basename),
    Row::int(Subr::Chill, "chill", &[Int], action::chill).faults().changes(),
    Row::str(Subr::Cleanpath, "cleanpath", &[Str], path::cleanpath),
    Row::int(Subr::Commit, "commit", &[Int], action::commit).faults().changes(),
    Row::str(Subr::DPath, "d_path", &[Ptr], file::d_path).reads().faults(),
    Row::str(Subr::Dirname, "dirname", &[Str], path::dirname),
    Row::int(Subr::Discard, "discard", &[Int], action::discard).faults().changes(),
    Row::int(Subr::Getmajor, "getmajor", &[Int], number::getmajor),
    Row::int(Subr::Getminor, "getminor", &[Int], number::getminor),
    Row::int(Subr::Htonl, "htonl", &[Int], number::htonl),
    Row::int(Subr::Htonll, "htonll", &[Int], number::htonll),
    Row::int(Subr::Htons, "htons", &[Int], number::htons),
    Row::int(Subr::Index, "index", &[Str, Str, Int], text::index).with_defaults(&[0]),
    Row::str(Subr::InetNtoa, "inet_ntoa", &[Ptr], address::inet_ntoa).reads().faults(),
    Row::str(Subr::InetNtoa6, "inet_ntoa6", &[Ptr], address::inet_ntoa6).reads().faults(),
    Row::str(Subr::InetNtop, "inet_ntop", &[Int, Ptr], address::inet_ntop).reads().faults(),
    Row::str(Subr::Json, "json", &[Str, Str], json::json).may_return_null(),
    Row::str(Subr::LinkNtop, "link_ntop", &[Int, Ptr], address::link_ntop).reads().faults(),
    Row::str(Subr::Lltostr, "lltostr", &[Int, Int], number::lltostr).with_defaults(&[10]).faults(),
    Row::str(Subr::Memstr, "memstr", &[Ptr, Int, Int], text::memstr).reads().faults(),
    Row::int(Subr::Progenyof, "progenyof", &[Int], number::progenyof).reads(),
    Row::int(Subr::Raise, "raise", &[Int], action::raise).faults().changes(),
    Row::int(Subr::Rand, "rand", &[], number::rand).reads(),
    Row::int(Subr::Return, "return", &[Int], action::override_return).changes(),
    Row::int(Subr::Rindex, "rindex", &[Str, Str, Int], text::rindex).with_defaults(&[i32::MAX as i64]),
    Row::int(Subr::Speculation, "speculation", &[], action::speculation).changes(),
    Row::str(Subr::Strchr, "strchr", &[Str, Int], text::strchr).may_return_null(),
    Row::str(Subr::Strjoin, "strjoin", &[Str, Str], text::strjoin).faults(),
    Row::str(Subr::Strrchr, "strrchr", &[Str, Int], text::strrchr).may_return_null(),
    Row::str(Subr::Strstr, "strstr", &[Str, Str], text::strstr).may_return_null(),
    Row::str(Subr::Strtok, "strtok", &[Str, Str], text::strtok).changes().may_return_null(),
    Row::str(Subr::StrtokNext, "strtok_next", &[Str], text::strtok_next).changes().may_return_null(),
    Row::int(Subr::Strtoll, "strtoll", &[Str, Int], number::strtoll).with_defaults(&[10]).faults(),
    Row::str(Subr::Substr, "substr", &[Str, Int, Int], text::substr).with_defaults(&[i32::MAX as i64]),
    Row::str(Subr::Tolower, "tolower", &[Str], text::tolower),
    Row::str(Subr::Toupper, "toupper", &[Str], text::toupper),
];

impl Subr {
    /// The subroutine's row.
    pub fn row(self) -> &'static Row {
        // Every subroutine has a row; a test checks this.
        TABLE.iter().find(|r| r.subr == self).unwrap_or(&TABLE[0])
    }

    /// The subroutine with this name.
    pub fn by_name(name: &str) -> Option<Subr> {
        TABLE.iter().find(|r| r.name == name).map(|r| r.subr)
    }

    /// True for a subroutine whose result is a path that it makes of directories and mounts.
    pub fn makes_path(self) -> bool {
        matches!(self, Subr::DPath | Subr::DentryPath | Subr::Fullpath | Subr::Mountpoint)
    }

    /// True for a subroutine whose result is in the names of a control group and of those above.
    pub fn names_group(self) -> bool {
        matches!(self, Subr::Container | Subr::Pod)
    }

    /// The result for constant arguments; `None` when it is known only at run time, or is a fault.
    pub fn fold(self, args: &[Val], strsize: u32) -> Option<Val> {
        let row = self.row();
        if row.effect != Effect::None {
            return None;
        }
        let (strsize, rest) = (strsize as usize, &mut None);
        let mut call = Call { args, spaces: &[], strsize, world: &mut EmptyWorld, rest };
        (row.run)(&mut call).ok()
    }
}

/// An empty world, for calls that read nothing from it.
struct EmptyWorld;

impl World for EmptyWorld {}

#[cfg(test)]
mod tests;
