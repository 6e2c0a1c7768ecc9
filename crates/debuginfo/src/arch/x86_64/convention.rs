//! Where the parameters of a function are when it is entered.
//!
//! The calling convention of System V.
//!
//! D's `arg0` to `arg5` are the registers of integers and pointers, and `arg6` and so on the words
//! on the stack behind the return address. Parameters of other classes take no such register:
//! floating-point numbers have registers of their own, and an object is in registers, on the stack
//! or at an address, depending on its size and members.
//!
//! Functions of Rust have rules of their own, which follow how the compiler sees a value
//! ([`crate::rust_layout`]). Where that is not in the debug information, the parameter and all
//! behind it are refused: a refused argument is better than a wrong one.

use crate::query::{Error, Place};
use crate::rust_layout::{Layout, Scalar, Seen, see};
use crate::shapes::{MAX_MEMBERS, Shape, Shapes};

/// Registers of integers and pointers.
const INTEGERS: u64 = 6;
/// Registers of floating-point numbers.
const FLOATS: u64 = 8;
/// Bytes of a register.
const WORD: u64 = 8;
/// The most bytes of an object that is passed in registers.
const IN_REGISTERS: u64 = 2 * WORD;

/// How a value is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// In a register of integers, or a word of the stack.
    Integer,
    /// In as many registers of floating-point numbers.
    Float(u64),
    /// A value in registers: how many of each, and where it is if not all of them are free.
    Registers { integers: u64, floats: u64, otherwise: Otherwise },
    /// On the stack, this many words.
    Stack(u64),
    /// The same, behind an even number of words: `long double`.
    Wide(u64),
    /// At an address that is passed.
    Address,
    /// It has no size: nothing is passed.
    Nothing,
    /// It is only declared: it may be in registers, on the stack or at an address.
    Unknown,
    /// An object of Rust that may be passed in several ways.
    Unsure,
}

/// Where a value is if there are not as many registers as it has words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Otherwise {
    /// All of it is on the stack.
    Stack,
    /// Each of its words is in the next register, or else on the stack.
    Each,
    /// That depends on the version of the compiler.
    Unsure,
}

/// Whose rules a function has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Those of System V.
    C,
    /// Those of Rust for its own functions.
    Rust,
    /// A function of Rust with a plain name may be `extern "C"`: debug information does not say it.
    RustOrC,
}

/// Bytes of the largest pair of numbers in Rust.
const LARGEST_PAIR: u64 = 4 * WORD;

const BEHIND_UNKNOWN: &str = "it is behind an object whose members are not known";
const UNSURE: &str = "the debug information does not say how Rust passes an object like this";
const BEHIND_UNSURE: &str =
    "it is behind an object of Rust, and the debug information does not say how that is passed";
const UNSURE_RESULT: &str = "the debug information does not say how Rust returns a value like that of this function: \
     the first register may have the address for it";

/// The convention of a function.
pub(crate) struct Convention<'t, T> {
    types: &'t T,
    rules: Rules,
    integers: u64,
    floats: u64,
    stack: u64,
    /// What is behind may be anywhere, and why.
    lost: Option<&'static str>,
}

impl<'t, T: Shapes> Convention<'t, T> {
    /// For a function whose result has this type.
    pub(crate) fn new(types: &'t T, rules: Rules, result: Option<u64>) -> Result<Self, Error> {
        let mut convention = Convention { types, rules, integers: 0, floats: 0, stack: 0, lost: None };
        let Some(result) = result else { return Ok(convention) };
        // An object that is returned in memory: the caller passes its address before all
        // parameters.
        let c = match types.shape(result)? {
            Shape::Object { .. } if rules != Rules::Rust => match convention.class_of_c(result)? {
                Class::Stack(_) | Class::Address => Returned::InMemory,
                Class::Unknown => Returned::Unsure(BEHIND_UNKNOWN),
                _ => Returned::InRegisters,
            },
            _ => Returned::InRegisters,
        };
        let rust = match rules {
            Rules::C => c,
            Rules::Rust | Rules::RustOrC => returned_by_rust(&see(types, result)?),
        };
        let returned = match rules {
            Rules::RustOrC if rust != c => Returned::Unsure(UNSURE_RESULT),
            _ => rust,
        };
        match returned {
            Returned::InRegisters => {}
            Returned::InMemory => convention.integers = 1,
            Returned::Unsure(why) => convention.lost = Some(why),
        }
        Ok(convention)
    }

    /// What is behind may be anywhere. The first reason is kept.
    fn lose(&mut self, why: &'static str) {
        self.lost.get_or_insert(why);
    }

    /// The place of the next parameter.
    pub(crate) fn next(&mut self, ty: Option<u64>) -> Result<Place, Error> {
        let refused = |why: &str| Ok(Place::Unreadable(why.into()));
        let Some(ty) = ty else {
            self.lose("it is behind one whose type is not known");
            return refused("its type is not known");
        };
        match self.class(ty)? {
            Class::Nothing => refused("it has no size, so nothing is passed"),
            Class::Unknown => {
                self.lose(BEHIND_UNKNOWN);
                refused("its members are not known")
            }
            Class::Integer | Class::Address if self.lost.is_some() => {
                refused(self.lost.unwrap_or(BEHIND_UNKNOWN))
            }
            Class::Unsure => {
                let why = self.lost.unwrap_or(UNSURE);
                self.lose(BEHIND_UNSURE);
                refused(why)
            }
            Class::Integer => Ok(self.integer().map_or_else(beyond, Place::Argument)),
            Class::Address => Ok(self.integer().map_or_else(beyond, Place::Object)),
            Class::Float(count) => {
                match self.floats + count <= FLOATS {
                    true => self.floats += count,
                    false => self.stack = self.stack.saturating_add(count),
                }
                refused(
                    "a floating-point number is passed in a register that programs in the kernel do not see",
                )
            }
            Class::Registers { integers, floats, otherwise } => {
                let fits = self.integers + integers <= INTEGERS && self.floats + floats <= FLOATS;
                match otherwise {
                    _ if fits => {
                        (self.integers, self.floats) = (self.integers + integers, self.floats + floats)
                    }
                    Otherwise::Stack => self.stack = self.stack.saturating_add(integers + floats),
                    Otherwise::Each => {
                        let (integers, floats) = (self.integers + integers, self.floats + floats);
                        (self.integers, self.floats) = (integers.min(INTEGERS), floats.min(FLOATS));
                        let left = (integers - self.integers) + (floats - self.floats);
                        self.stack = self.stack.saturating_add(left);
                    }
                    Otherwise::Unsure => self.lose(BEHIND_UNSURE),
                }
                refused(
                    "an object of at most 16 bytes is passed by value, in registers: its words are among arg0 to arg5",
                )
            }
            Class::Stack(words) => {
                self.stack = self.stack.saturating_add(words);
                refused("it is passed by value, on the stack")
            }
            Class::Wide(words) => {
                self.stack = self.stack.saturating_add(self.stack % 2).saturating_add(words);
                refused("it is passed by value, on the stack")
            }
        }
    }

    /// The argument that has the next integer.
    fn integer(&mut self) -> Option<u8> {
        if self.integers < INTEGERS {
            self.integers += 1;
            return Some((self.integers - 1) as u8);
        }
        self.stack = self.stack.saturating_add(1);
        u8::try_from(INTEGERS.saturating_add(self.stack - 1)).ok().filter(|n| *n < 32)
    }

    fn class(&self, ty: u64) -> Result<Class, Error> {
        match self.rules {
            Rules::C => self.class_of_c(ty),
            Rules::Rust => self.class_of_rust(ty),
            Rules::RustOrC => Ok(match (self.class_of_rust(ty)?, self.class_of_c(ty)?) {
                (rust, c) if rust == c => rust,
                (
                    Class::Registers { integers, floats, .. },
                    Class::Registers { integers: integers_of_c, floats: floats_of_c, .. },
                ) if integers == integers_of_c && floats == floats_of_c => {
                    Class::Registers { integers, floats, otherwise: Otherwise::Unsure }
                }
                _ => Class::Unsure,
            }),
        }
    }

    fn class_of_rust(&self, ty: u64) -> Result<Class, Error> {
        let shape = self.types.shape(ty)?;
        if matches!(shape, Shape::Object { size: None, .. }) {
            return Ok(Class::Unknown);
        }
        let seen = see(self.types, ty)?;
        let floats = |all: &[Scalar]| all.iter().filter(|one| one.is_float).count() as u64;
        Ok(match seen.layout {
            Layout::Nothing => Class::Nothing,
            Layout::Scalar(_) if matches!(shape, Shape::Integer(..=WORD)) => Class::Integer,
            Layout::Scalar(_) if matches!(shape, Shape::Float(_)) => Class::Float(1),
            // In a struct that may be `repr(C)`, a floating-point number may be in a register of
            // integers, and a number of 16 bytes in memory.
            Layout::Scalar(only) if !only.is_sure && (only.is_float || only.size > WORD) => Class::Unsure,
            Layout::Scalar(only) if only.size > WORD => {
                Class::Registers { integers: 2, floats: 0, otherwise: Otherwise::Unsure }
            }
            Layout::Scalar(only) => {
                let floats = floats(&[only]);
                Class::Registers { integers: 1 - floats, floats, otherwise: Otherwise::Stack }
            }
            Layout::Pair(first, second) => {
                let floats = floats(&[first, second]);
                Class::Registers { integers: 2 - floats, floats, otherwise: Otherwise::Each }
            }
            Layout::Memory if seen.size <= WORD => {
                Class::Registers { integers: 1, floats: 0, otherwise: Otherwise::Stack }
            }
            // The parameter is declared as an array: it is a pointer to the first element.
            Layout::Memory if matches!(shape, Shape::Array { .. }) => Class::Integer,
            Layout::Memory => Class::Address,
            Layout::Unsure if is_no_pair(&seen) => Class::Address,
            Layout::Unsure => Class::Unsure,
        })
    }

    fn class_of_c(&self, ty: u64) -> Result<Class, Error> {
        let registers = |integers, floats| Class::Registers { integers, floats, otherwise: Otherwise::Stack };
        Ok(match self.types.shape(ty)? {
            Shape::Integer(0) => Class::Nothing,
            Shape::Integer(size) if size <= WORD => Class::Integer,
            Shape::Integer(_) => registers(2, 0),
            Shape::Float(size) if size <= WORD => Class::Float(1),
            Shape::Complex(size) if size <= WORD => Class::Float(1),
            Shape::Complex(size) if size == 2 * WORD => Class::Float(2),
            Shape::Float(size) | Shape::Complex(size) => Class::Wide(size.div_ceil(WORD).min(8)),
            // A parameter of an array is a pointer.
            Shape::Array { .. } => Class::Integer,
            Shape::Object { is_by_address: true, .. } => Class::Address,
            Shape::Object { size: None, .. } => Class::Unknown,
            Shape::Object { size: Some(0), .. } => Class::Nothing,
            Shape::Object { size: Some(size), .. } if size > IN_REGISTERS => {
                Class::Stack(size.div_ceil(WORD))
            }
            Shape::Object { size: Some(size), .. } => {
                let mut found = Words::default();
                self.look(ty, 0, &mut found, &mut MAX_MEMBERS.clone())?;
                let words = size.div_ceil(WORD);
                let integers = found.integers.iter().take(words as usize).filter(|i| **i).count() as u64;
                match found {
                    Words { has_wide: true, .. } => Class::Wide(words),
                    Words { is_packed: true, .. } => Class::Stack(words),
                    _ => registers(integers, words - integers),
                }
            }
        })
    }

    /// Looks what an object has in its words. Of an array of objects, the first one is looked at
    /// for what is not aligned.
    fn look(&self, ty: u64, base: u64, found: &mut Words, left: &mut usize) -> Result<(), Error> {
        *left = left.checked_sub(1).ok_or(Error::Large)?;
        let (mut ty, mut count) = (ty, 1u64);
        let shape = loop {
            match self.types.shape(ty)? {
                Shape::Array { elem: Some(elem), count: of } => {
                    *left = left.checked_sub(1).ok_or(Error::Large)?;
                    (ty, count) = (elem, count.saturating_mul(of));
                }
                shape => break shape,
            }
        };
        let size = match shape {
            Shape::Float(size) => {
                found.real(base, size);
                return Ok(());
            }
            Shape::Complex(size) => {
                found.real(base, size / 2);
                return Ok(());
            }
            Shape::Object { .. } if count == 1 => {
                for part in self.types.members(ty)? {
                    let at = base.saturating_add(part.offset);
                    match part.ty {
                        // It is in the word where it begins: of its type's bytes, it has some.
                        Some(_) if part.is_bit_field => found.add(at, 1),
                        Some(member) => self.look(member, at, found, left)?,
                        None => found.integers = [true; 2],
                    }
                }
                return Ok(());
            }
            Shape::Integer(size) => {
                if count > 0 {
                    found.align(base, size.min(WORD));
                }
                size
            }
            // Arrays of objects with floating-point numbers are rare: they count as integers.
            Shape::Object { size: Some(size), .. } => {
                if count > 0 {
                    self.look(ty, base, found, left)?;
                }
                size
            }
            Shape::Object { size: None, .. } | Shape::Array { .. } => IN_REGISTERS,
        };
        found.add(base, size.saturating_mul(count));
        Ok(())
    }
}

/// How a function gives its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Returned {
    InRegisters,
    /// At an address that the caller passes before all parameters.
    InMemory,
    /// Either.
    Unsure(&'static str),
}

fn returned_by_rust(result: &Seen) -> Returned {
    match result.layout {
        _ if result.size <= WORD => Returned::InRegisters,
        Layout::Nothing | Layout::Pair(..) => Returned::InRegisters,
        Layout::Scalar(scalar) if scalar.is_sure => Returned::InRegisters,
        Layout::Memory if result.size > IN_REGISTERS => Returned::InMemory,
        Layout::Unsure if is_no_pair(result) => Returned::InMemory,
        // Versions of the compiler differ in this.
        Layout::Scalar(_) | Layout::Memory | Layout::Unsure => Returned::Unsure(UNSURE_RESULT),
    }
}

/// True if a value is too large to be in registers, whatever it has.
fn is_no_pair(seen: &Seen) -> bool {
    seen.size != u64::MAX && (seen.size > LARGEST_PAIR || seen.size > IN_REGISTERS && !seen.has_wide)
}

/// What an object of at most two words has in them.
#[derive(Default)]
struct Words {
    /// Words that have anything but floating-point numbers.
    integers: [bool; 2],
    /// It has a `long double`, which is passed on the stack.
    has_wide: bool,
    /// A number or pointer is not at a multiple of its size: the object is passed on the stack.
    is_packed: bool,
}

impl Words {
    fn real(&mut self, base: u64, size: u64) {
        self.has_wide |= size > WORD;
        self.align(base, size);
    }

    fn align(&mut self, base: u64, size: u64) {
        self.is_packed |= size > 0 && !base.is_multiple_of(size);
    }

    fn add(&mut self, base: u64, size: u64) {
        let end = base.saturating_add(size);
        for (n, word) in self.integers.iter_mut().enumerate() {
            let at = n as u64 * WORD;
            *word |= base < at + WORD && at < end;
        }
    }
}

fn beyond() -> Place {
    Place::Unreadable("it is too far behind on the stack".into())
}

#[cfg(test)]
mod tests;
