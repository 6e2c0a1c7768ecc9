//! The targets under `fuzz/` as functions, so that they are built and run without libFuzzer, with a
//! stable compiler: by `cargo xtask fuzz`, and by an ordinary test.
//!
//! Who runs them names this crate `libfuzzer_sys`. Its [`fuzz_target!`](crate::fuzz_target) makes
//! of a target a function `run`, whose input is taken from a [`Source`]: a few strings of bytes,
//! which began as real files ([`change`] has changed them), and bytes that decide. Both together
//! are a [`Case`](case::Case), which can be stored, and repeats what it has found.

pub mod case;
pub mod change;

use crate::choices::Choices;

/// A target.
pub type Target = fn(&mut Source<'_>);

/// What inputs are taken from.
#[derive(Debug)]
pub struct Source<'a> {
    /// Decides.
    choices: Choices<'a>,
    /// Strings of bytes.
    pool: &'a [Vec<u8>],
    /// The one that is taken next.
    next: usize,
}

impl<'a> Source<'a> {
    /// Inputs from these strings, in this order for the most part.
    pub fn new(choices: Choices<'a>, pool: &'a [Vec<u8>]) -> Source<'a> {
        Source { choices, pool, next: 0 }
    }
}

/// Something that a target can have as its input.
pub trait Input<'a> {
    /// One of them.
    fn take(source: &mut Source<'a>) -> Self;
}

impl<'a> Input<'a> for &'a [u8] {
    fn take(source: &mut Source<'a>) -> Self {
        let pool = source.pool;
        // The strings of a file belong together in their order.
        let at = match source.choices.one_in(16) {
            true => source.choices.below(pool.len()),
            false => source.next.checked_rem(pool.len()).unwrap_or(0),
        };
        source.next += 1;
        pool.get(at).map_or(&[], Vec::as_slice)
    }
}

impl<'a> Input<'a> for &'a str {
    fn take(source: &mut Source<'a>) -> Self {
        let bytes: &[u8] = Input::take(source);
        bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }
}

impl Input<'_> for u64 {
    fn take(source: &mut Source<'_>) -> Self {
        // Small numbers, those near a power of two and any other.
        match source.choices.below(4) {
            0 => source.choices.below(256) as u64,
            1 => (1 << source.choices.below(64)) - 1,
            2 => u64::MAX - source.choices.below(2) as u64,
            _ => source.choices.bits(),
        }
    }
}

impl Input<'_> for u32 {
    fn take(source: &mut Source<'_>) -> Self {
        u64::take(source) as u32
    }
}

impl Input<'_> for u16 {
    fn take(source: &mut Source<'_>) -> Self {
        source.choices.bits() as u16 >> source.choices.below(16)
    }
}

impl Input<'_> for u8 {
    fn take(source: &mut Source<'_>) -> Self {
        source.choices.below(256) as u8
    }
}

impl Input<'_> for bool {
    fn take(source: &mut Source<'_>) -> Self {
        source.choices.one_in(2)
    }
}

impl<'a, T: Input<'a>> Input<'a> for Option<T> {
    fn take(source: &mut Source<'a>) -> Self {
        source.choices.one_in(2).then(|| T::take(source))
    }
}

impl<'a, T: Input<'a>> Input<'a> for Vec<T> {
    fn take(source: &mut Source<'a>) -> Self {
        (0..source.choices.below(8)).map(|_| T::take(source)).collect()
    }
}

impl<'a, T: Input<'a>, const N: usize> Input<'a> for [T; N] {
    fn take(source: &mut Source<'a>) -> Self {
        std::array::from_fn(|_| T::take(source))
    }
}

macro_rules! tuples {
    ($(($($name:ident)+))+) => { $(
        impl<'a, $($name: Input<'a>),+> Input<'a> for ($($name,)+) {
            fn take(source: &mut Source<'a>) -> Self {
                ($($name::take(source),)+)
            }
        }
    )+ };
}

tuples! { (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) }

/// Stands for the macro of libFuzzer's crate.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: $ty:ty| $body:expr) => {
        #[allow(clippy::type_complexity)]
        pub fn run(source: &mut $crate::fuzz::Source<'_>) {
            let $input: $ty = $crate::fuzz::Input::take(source);
            let () = $body;
        }
    };
}
