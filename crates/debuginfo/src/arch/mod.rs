//! Where machines pass the parameters of functions, a folder for each.

mod x86_64;

pub(crate) use x86_64::convention::{Convention, Rules};
pub(crate) use x86_64::go::{GoConvention, Spot};
