//! The tests of `usdt-writer` from outside, in one program: each further one would be linked with all that is below it.

mod compile;
mod golden;
