//! Formats network and link-layer addresses as text.

use std::net::Ipv4Addr;

use plane::address::EmbeddedIpv4;

use super::call::{Call, Fault};
use crate::interp::Val;
use crate::ir::{FaultKind, Space};

const AF_INET: i64 = 2;
const AF_INET6: i64 = 10;
const ARPHRD_ETHER: i64 = 1;
const ARPHRD_INFINIBAND: i64 = 32;

/// Reads `N` bytes at the address in the `n`th argument.
fn bytes<const N: usize>(call: &mut Call<'_>, n: usize) -> Result<[u8; N], Fault> {
    let (at, space) = (call.int(n) as u64, call.spaces.get(n).copied().unwrap_or(Space::Unknown));
    let mut bytes = [0; N];
    if call.world.read(space, at, &mut bytes) { Ok(bytes) } else { Err((FaultKind::BadAddr, at)) }
}

fn text(call: &Call<'_>, text: String) -> Result<Val, Fault> {
    let mut text = text.into_bytes();
    text.truncate(call.strsize.saturating_sub(1));
    Ok(Val::Str(text))
}

pub(super) fn inet_ntoa(call: &mut Call<'_>) -> Result<Val, Fault> {
    let address = bytes::<4>(call, 0)?;
    text(call, Ipv4Addr::from(address).to_string())
}

/// IPv6 groups.
fn groups(address: [u8; 16]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = plane::address::groups(address, &mut out);
    out
}

pub(super) fn inet_ntoa6(call: &mut Call<'_>) -> Result<Val, Fault> {
    let address = bytes::<16>(call, 0)?;
    let shown = match EmbeddedIpv4::of(address) {
        EmbeddedIpv4::Mapped(v4) | EmbeddedIpv4::Compatible(v4) => v4.to_string(),
        EmbeddedIpv4::None => groups(address),
    };
    text(call, shown)
}

pub(super) fn inet_ntop(call: &mut Call<'_>) -> Result<Val, Fault> {
    match call.int(0) {
        AF_INET => {
            let address = bytes::<4>(call, 1)?;
            text(call, Ipv4Addr::from(address).to_string())
        }
        AF_INET6 => {
            let address = bytes::<16>(call, 1)?;
            let shown = match EmbeddedIpv4::of(address) {
                EmbeddedIpv4::Mapped(v4) => format!("::ffff:{v4}"),
                EmbeddedIpv4::Compatible(v4) => format!("::{v4}"),
                EmbeddedIpv4::None => groups(address),
            };
            text(call, shown)
        }
        _ => Err((FaultKind::IllegalOp, 0)),
    }
}

pub(super) fn link_ntop(call: &mut Call<'_>) -> Result<Val, Fault> {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
    let shown = match call.int(0) {
        ARPHRD_ETHER => hex(&bytes::<6>(call, 1)?),
        ARPHRD_INFINIBAND => hex(&bytes::<20>(call, 1)?),
        _ => return Err((FaultKind::IllegalOp, 0)),
    };
    text(call, shown)
}
