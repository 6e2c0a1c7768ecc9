//! Byte order and chance.

use super::{Call, Fault};
use crate::interp::Val;

pub(super) fn htons(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Int(i64::from((call.int(0) as u16).to_be())))
}

pub(super) fn htonl(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Int(i64::from((call.int(0) as u32).to_be())))
}

pub(super) fn htonll(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Int((call.int(0) as u64).to_be() as i64))
}

/// 31 bits, so that D's `int` is never negative.
pub(super) fn rand(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Int(i64::from(call.world.random() & 0x7fff_ffff)))
}
