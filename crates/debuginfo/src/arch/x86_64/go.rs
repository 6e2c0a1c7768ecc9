//! Where the parameters and results of a function of Go are.
//!
//! The registers of Go (`abi-internal.md` of its compiler).
//!
//! A value is taken apart into its numbers and pointers, and each of them has the next register of
//! its kind, if there is one for all:
//!
//! ```text
//!  func (a *Acc) Add(n int64, s string) int64
//!        a ─ AX       n ─ BX   s.str ─ CX, s.len ─ DI     arg0 to arg3;   at the return the result is in AX: arg1
//! ```
//!
//! D's `arg0` to `arg8` of such a function are the nine registers of integers, and `arg9` and so on
//! the words on the stack behind the return address. At a return they begin with `arg1`. An array
//! of more than one element, and a value for which there are not as many registers as it has parts,
//! is on the stack.
//!
//! Parameters without a name (`_`) are in the debug information of later compilers alone (of 1.26,
//! as `~p0`, without a place), the dictionaries of generic functions in none. So the places of
//! parameters are those that it gives for the function's first instruction, and the rules tell only
//! what is not there: which part of a value is in which register, and the registers of results, of
//! which all are listed.

use crate::query::{Error, ObjectPart, Place};
use crate::shapes::{MAX_DEPTH, MAX_MEMBERS, Shape, Shapes};

/// Registers of integers and pointers.
const INTEGERS: usize = 9;
/// Registers of floating-point numbers.
const FLOATS: usize = 15;
/// Bytes of a register.
const WORD: u64 = 8;
/// D's arguments are fewer than this.
const ARGUMENTS: u64 = 32;

const FLOAT: &str = "a floating-point number is passed in a register that programs in the kernel do not see";
const HAS_FLOAT: &str =
    "a part of it is a floating-point number, in a register that programs in the kernel do not see";

const ON_STACK_FLOAT: &str = "it is a floating-point number";
const NOT_SAID: &str = "the debug information does not say where it is";
const ODD: &str = "its size is no multiple of what a program reads at a time";
const SHARES: &str = "it shares a word of the stack with another";

/// Where the debug information has a number or pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// The register of this number in the order of arguments.
    Integer(u8),
    /// A register of floating-point numbers.
    Float,
    /// So many bytes behind the return address.
    Stack(u64),
    /// Elsewhere.
    Other,
}

impl Spot {
    /// The register of a number in DWARF.
    pub(crate) fn register(number: u16) -> Spot {
        // AX, BX, CX, DI, SI, R8 to R11.
        const ORDER: [u16; INTEGERS] = [0, 3, 2, 5, 4, 8, 9, 10, 11];
        const XMM: std::ops::Range<u16> = 17..33;
        match ORDER.iter().position(|register| *register == number) {
            Some(n) => Spot::Integer(n as u8),
            None if XMM.contains(&number) => Spot::Float,
            None => Spot::Other,
        }
    }
}

/// The convention of a function.
pub(crate) struct GoConvention<'t, T> {
    types: &'t T,
    /// Registers that results have.
    integers: usize,
    floats: usize,
    /// A result of unknown size is before.
    is_lost: bool,
}

/// A number or pointer in a value.
struct Leaf {
    offset: u64,
    size: u64,
    is_float: bool,
}

impl<'t, T: Shapes> GoConvention<'t, T> {
    pub(crate) fn new(types: &'t T) -> Self {
        GoConvention { types, integers: 0, floats: 0, is_lost: false }
    }

    /// The place of a parameter, whose parts are at these spots when the function is entered.
    pub(crate) fn parameter(&self, ty: Option<u64>, spots: &[Spot]) -> Result<Place, Error> {
        let Some(ty) = ty else { return Ok(refused("its type is not known")) };
        let mut leaves = Vec::new();
        let fits = self.take_apart(ty, 0, &mut leaves, &mut MAX_MEMBERS.clone())?;
        Ok(match spots {
            _ if fits && leaves.is_empty() => refused("it has no size, so nothing is passed"),
            [] => refused(NOT_SAID),
            _ if fits && spots.len() == leaves.len() => self.at_spots(ty, &leaves, spots, 0)?,
            [Spot::Stack(offset)] => self.on_the_stack(ty, *offset, 0)?,
            _ => refused(NOT_SAID),
        })
    }

    /// The place of the next result. `spots` are where the debug information has it somewhere in
    /// the function.
    pub(crate) fn result(&mut self, ty: Option<u64>, spots: &[Spot]) -> Result<Place, Error> {
        let Some(ty) = ty.filter(|_| !self.is_lost) else {
            self.is_lost = true;
            return Ok(refused("its type, or that of one before it, is not known"));
        };
        let mut leaves = Vec::new();
        let fits = self.take_apart(ty, 0, &mut leaves, &mut MAX_MEMBERS.clone())?;
        let floats = leaves.iter().filter(|leaf| leaf.is_float).count();
        let integers = leaves.len() - floats;
        if leaves.is_empty() && fits {
            return Ok(refused("it has no size, so nothing is returned"));
        }
        // What follows D's argument for the place of the return.
        const FIRST: u64 = 1;
        if !fits || self.integers + integers > INTEGERS || self.floats + floats > FLOATS {
            return match spots {
                [Spot::Stack(offset)] => self.on_the_stack(ty, *offset, FIRST),
                _ => Ok(refused("it is on the stack, and the debug information does not say where")),
            };
        }
        let mut next = self.integers as u8;
        let of = |leaf: &Leaf| match leaf.is_float {
            true => Spot::Float,
            false => {
                next += 1;
                Spot::Integer(next - 1)
            }
        };
        let spots: Vec<Spot> = leaves.iter().map(of).collect();
        (self.integers, self.floats) = (self.integers + integers, self.floats + floats);
        self.at_spots(ty, &leaves, &spots, FIRST)
    }

    /// A value each of whose parts has a spot. `first` is the argument that the first register is.
    fn at_spots(&self, ty: u64, leaves: &[Leaf], spots: &[Spot], first: u64) -> Result<Place, Error> {
        let is_scalar = self.is_scalar(ty)?;
        let mut parts = Vec::new();
        for (leaf, spot) in leaves.iter().zip(spots) {
            let argument = match spot {
                Spot::Integer(n) => first + u64::from(*n),
                Spot::Float if is_scalar => return Ok(refused(FLOAT)),
                Spot::Float => return Ok(refused(HAS_FLOAT)),
                // As an integer, it would be another number.
                Spot::Stack(_) if leaf.is_float && is_scalar => return Ok(refused(ON_STACK_FLOAT)),
                Spot::Stack(offset) if !offset.is_multiple_of(WORD) => return Ok(refused(SHARES)),
                Spot::Stack(offset) => first + INTEGERS as u64 + offset / WORD,
                Spot::Other => return Ok(refused(NOT_SAID)),
            };
            match part(leaf.offset, leaf.size, argument) {
                Some(part) => parts.push(part),
                None => return Ok(beyond()),
            }
        }
        Ok(match &parts[..] {
            [only] if is_scalar => Place::Argument(only.argument),
            _ => Place::Parts(parts),
        })
    }

    fn is_scalar(&self, ty: u64) -> Result<bool, Error> {
        Ok(matches!(self.types.shape(ty)?, Shape::Integer(_) | Shape::Float(_)))
    }

    /// A value as a whole on the stack.
    fn on_the_stack(&self, ty: u64, offset: u64, first: u64) -> Result<Place, Error> {
        let size = self.size(ty, 0)?;
        if !offset.is_multiple_of(WORD) {
            return Ok(refused(SHARES));
        }
        let first = first + INTEGERS as u64 + offset / WORD;
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < size {
            // Of the last word not more is stored than the value has.
            let bytes = 1 << (size - at).min(WORD).ilog2();
            match part(at, bytes, first + at / WORD) {
                Some(_) if !at.is_multiple_of(WORD) => return Ok(refused(ODD)),
                Some(part) => parts.push(part),
                None => return Ok(beyond()),
            }
            at += bytes;
        }
        Ok(Place::Parts(parts))
    }

    /// Adds the numbers and pointers of a value. False if it has an array that has no registers.
    fn take_apart(
        &self,
        ty: u64,
        base: u64,
        leaves: &mut Vec<Leaf>,
        left: &mut usize,
    ) -> Result<bool, Error> {
        *left = left.checked_sub(1).ok_or(Error::Large)?;
        let mut leaf = |offset, size, is_float| leaves.push(Leaf { offset, size, is_float });
        match self.types.shape(ty)? {
            Shape::Integer(0) => {}
            Shape::Integer(size) => leaf(base, size, false),
            Shape::Float(size) => leaf(base, size, true),
            Shape::Complex(size) => {
                leaf(base, size / 2, true);
                leaf(base.saturating_add(size / 2), size / 2, true);
            }
            Shape::Array { count: 0, .. } => {}
            Shape::Array { elem: Some(elem), count: 1 } => return self.take_apart(elem, base, leaves, left),
            Shape::Array { .. } => return Ok(false),
            Shape::Object { .. } => {
                for member in self.types.members(ty)? {
                    let Some(of) = member.ty else { return Ok(false) };
                    if !self.take_apart(of, base.saturating_add(member.offset), leaves, left)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    fn size(&self, ty: u64, depth: u32) -> Result<u64, Error> {
        if depth > MAX_DEPTH {
            return Err(Error::Large);
        }
        Ok(match self.types.shape(ty)? {
            Shape::Integer(size) | Shape::Float(size) | Shape::Complex(size) => size,
            Shape::Array { elem, count } => {
                elem.map_or(Ok(0), |elem| self.size(elem, depth + 1))?.saturating_mul(count)
            }
            Shape::Object { size, .. } => size.unwrap_or(0),
        })
    }
}

fn part(offset: u64, size: u64, argument: u64) -> Option<ObjectPart> {
    let argument = u8::try_from(argument).ok().filter(|n| u64::from(*n) < ARGUMENTS)?;
    let size = u8::try_from(size).ok().filter(|size| matches!(size, 1 | 2 | 4 | 8))?;
    Some(ObjectPart { offset: u32::try_from(offset).ok()?, size, argument })
}

fn refused(why: &str) -> Place {
    Place::Unreadable(why.into())
}

fn beyond() -> Place {
    refused("it is too far behind on the stack")
}

#[cfg(test)]
mod tests;
