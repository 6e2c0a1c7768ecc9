//! Subroutines: operations that are calls.
//!
//! One table says of each what it takes and gives, what it may do besides, and how the interpreter does it. Everything
//! that walks operations (verifier, optimizer, text form, back end) asks the table, so that a new subroutine is a row
//! here, its function beside it, and its code in the back end. The alternative, an [`Op`](crate::ir::Op) of its own for
//! each, would make every pass name all of them to say the same of each.

mod action;
mod address;
mod args;
mod file;
mod json;
mod number;
mod path;
mod text;

pub use file::PathOf;

use crate::interp::{Val, World};
use crate::ir::{FaultKind, Space, Ty};

/// A subroutine. D's names for the same thing share one (`ntohs` is `htons`).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subr {
    Args,
    Basename,
    Chill,
    Cleanpath,
    DPath,
    Dirname,
    First,
    Fullpath,
    Getmajor,
    Getminor,
    Htonl,
    Htonll,
    Htons,
    Index,
    InetNtoa,
    InetNtoa6,
    InetNtop,
    Json,
    LinkNtop,
    Lltostr,
    Memstr,
    Mountpoint,
    Progenyof,
    Raise,
    Return,
    Rand,
    Rindex,
    SetChar,
    Strchr,
    Strjoin,
    Strrchr,
    Strstr,
    Strtok,
    StrtokNext,
    Strtoll,
    Substr,
    Tail,
    Tolower,
    Toupper,
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// An integer or pointer, taken as a number.
    Int,
    /// A string.
    Str,
    /// An address that is read.
    Ptr,
}

/// What a call does besides giving a value, a fault aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing, and the same arguments give the same value: equal calls are one, one with constants is a constant.
    None,
    /// Nothing, but the value depends on more than the arguments: only dropped when nobody uses it.
    Reads,
    /// It changes the system, or what a later call gives: never dropped.
    Changes,
}

/// A call as the interpreter makes it.
pub struct Call<'a> {
    /// The arguments.
    pub args: &'a [Val],
    /// Where pointers among them point.
    pub spaces: &'a [Space],
    /// Bytes of a string with its NUL.
    pub strsize: usize,
    /// What the firing sees.
    pub world: &'a mut dyn World,
    /// What `strtok()` has left of its string; the clauses of a firing share it.
    pub rest: &'a mut Option<Vec<u8>>,
}

/// A fault: its kind and value.
pub type Fault = (FaultKind, u64);

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Row {
    /// Which.
    pub subr: Subr,
    /// Its name in the text form, and D's.
    pub name: &'static str,
    /// What it takes.
    pub params: &'static [Param],
    /// What the last parameters are when a script leaves them out.
    pub defaults: &'static [i64],
    /// What it gives: Int or Str.
    pub gives: Ty,
    /// What else it does.
    pub effect: Effect,
    /// True when it may fault, NULL among its strings aside.
    pub faults: bool,
    /// True when the string that it gives may be NULL: there is none.
    pub nothing: bool,
    /// How the interpreter does it.
    pub run: fn(&mut Call<'_>) -> Result<Val, Fault>,
}

impl Row {
    const fn int(subr: Subr, name: &'static str, params: &'static [Param], run: Run) -> Row {
        Row {
            subr,
            name,
            params,
            defaults: &[],
            gives: Ty::Int,
            effect: Effect::None,
            faults: false,
            nothing: false,
            run,
        }
    }

    const fn str(subr: Subr, name: &'static str, params: &'static [Param], run: Run) -> Row {
        Row { gives: Ty::Str, ..Row::int(subr, name, params, run) }
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

    const fn or_null(self) -> Row {
        Row { nothing: true, ..self }
    }

    const fn or(self, defaults: &'static [i64]) -> Row {
        Row { defaults, ..self }
    }
}

type Run = fn(&mut Call<'_>) -> Result<Val, Fault>;

use Param::{Int, Ptr, Str};

/// Every subroutine.
pub const TABLE: &[Row] = &[
    Row::str(Subr::Args, "_args", &[Int, Int], args::args).reads().faults(),
    Row::int(Subr::First, "_first", &[Str], text::first),
    Row::str(Subr::Fullpath, "_fullpath", &[Ptr], file::full_path).reads().faults(),
    Row::str(Subr::Mountpoint, "_mountpoint", &[Ptr], file::mountpoint).reads().faults(),
    Row::str(Subr::SetChar, "_setchar", &[Str, Int, Int], text::set_char).faults(),
    Row::str(Subr::Tail, "_tail", &[Str, Int], text::tail).faults(),
    Row::str(Subr::Basename, "basename", &[Str], path::basename),
    Row::int(Subr::Chill, "chill", &[Int], action::chill).faults().changes(),
    Row::str(Subr::Cleanpath, "cleanpath", &[Str], path::cleanpath),
    Row::str(Subr::DPath, "d_path", &[Ptr], file::d_path).reads().faults(),
    Row::str(Subr::Dirname, "dirname", &[Str], path::dirname),
    Row::int(Subr::Getmajor, "getmajor", &[Int], number::getmajor),
    Row::int(Subr::Getminor, "getminor", &[Int], number::getminor),
    Row::int(Subr::Htonl, "htonl", &[Int], number::htonl),
    Row::int(Subr::Htonll, "htonll", &[Int], number::htonll),
    Row::int(Subr::Htons, "htons", &[Int], number::htons),
    Row::int(Subr::Index, "index", &[Str, Str, Int], text::index).or(&[0]),
    Row::str(Subr::InetNtoa, "inet_ntoa", &[Ptr], address::inet_ntoa).reads().faults(),
    Row::str(Subr::InetNtoa6, "inet_ntoa6", &[Ptr], address::inet_ntoa6).reads().faults(),
    Row::str(Subr::InetNtop, "inet_ntop", &[Int, Ptr], address::inet_ntop).reads().faults(),
    Row::str(Subr::Json, "json", &[Str, Str], json::json).or_null(),
    Row::str(Subr::LinkNtop, "link_ntop", &[Int, Ptr], address::link_ntop).reads().faults(),
    Row::str(Subr::Lltostr, "lltostr", &[Int, Int], number::lltostr).or(&[10]).faults(),
    Row::str(Subr::Memstr, "memstr", &[Ptr, Int, Int], text::memstr).reads().faults(),
    Row::int(Subr::Progenyof, "progenyof", &[Int], number::progenyof).reads(),
    Row::int(Subr::Raise, "raise", &[Int], action::raise).faults().changes(),
    Row::int(Subr::Rand, "rand", &[], number::rand).reads(),
    Row::int(Subr::Return, "return", &[Int], action::give).changes(),
    Row::int(Subr::Rindex, "rindex", &[Str, Str, Int], text::rindex).or(&[i32::MAX as i64]),
    Row::str(Subr::Strchr, "strchr", &[Str, Int], text::strchr).or_null(),
    Row::str(Subr::Strjoin, "strjoin", &[Str, Str], text::strjoin).faults(),
    Row::str(Subr::Strrchr, "strrchr", &[Str, Int], text::strrchr).or_null(),
    Row::str(Subr::Strstr, "strstr", &[Str, Str], text::strstr).or_null(),
    Row::str(Subr::Strtok, "strtok", &[Str, Str], text::strtok).changes().or_null(),
    Row::str(Subr::StrtokNext, "strtok_next", &[Str], text::strtok_next).changes().or_null(),
    Row::int(Subr::Strtoll, "strtoll", &[Str, Int], number::strtoll).or(&[10]).faults(),
    Row::str(Subr::Substr, "substr", &[Str, Int, Int], text::substr).or(&[i32::MAX as i64]),
    Row::str(Subr::Tolower, "tolower", &[Str], text::tolower),
    Row::str(Subr::Toupper, "toupper", &[Str], text::toupper),
];

impl Subr {
    /// Its row.
    pub fn row(self) -> &'static Row {
        // Every subroutine has one: see the test.
        TABLE.iter().find(|r| r.subr == self).unwrap_or(&TABLE[0])
    }

    /// The subroutine of a name.
    pub fn by_name(name: &str) -> Option<Subr> {
        TABLE.iter().find(|r| r.name == name).map(|r| r.subr)
    }

    /// What it gives for constants; `None` when that is not known before it runs, or is a fault.
    pub fn of_constants(self, args: &[Val], strsize: u32) -> Option<Val> {
        let row = self.row();
        if row.effect != Effect::None {
            return None;
        }
        let (strsize, rest) = (strsize as usize, &mut None);
        let mut call = Call { args, spaces: &[], strsize, world: &mut Nothing, rest };
        (row.run)(&mut call).ok()
    }
}

/// The world of a call that needs none.
struct Nothing;

impl World for Nothing {}

impl Call<'_> {
    /// The `n`th argument, a string.
    fn text(&self, n: usize) -> &[u8] {
        match self.args.get(n) {
            Some(Val::Str(s)) => s,
            _ => b"",
        }
    }

    /// The `n`th argument, a number.
    fn int(&self, n: usize) -> i64 {
        match self.args.get(n) {
            Some(Val::Int(v)) => *v,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
