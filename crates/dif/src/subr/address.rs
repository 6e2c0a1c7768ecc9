//! Formats network and link-layer addresses as text.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Call, Fault};
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

/// The IPv4 address embedded in an IPv6 address, if any.
enum EmbeddedIpv4 {
    Mapped(Ipv4Addr),
    Compatible(Ipv4Addr),
    None,
}

fn embedded_ipv4(address: [u8; 16]) -> EmbeddedIpv4 {
    let [.., a, b, c, d] = address;
    let v4 = Ipv4Addr::new(a, b, c, d);
    match (&address[..10], &address[10..12]) {
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0xff, 0xff]) => EmbeddedIpv4::Mapped(v4),
        // `::` and `::1` are addresses of their own.
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0]) if u32::from(v4) > 1 => EmbeddedIpv4::Compatible(v4),
        _ => EmbeddedIpv4::None,
    }
}

/// IPv6 groups without leading zeros. The first longest run of two or more zero groups becomes
/// `::`.
fn groups(address: [u8; 16]) -> String {
    let groups = Ipv6Addr::from(address).segments();
    let (mut start, mut count) = (0, 0);
    for i in 0..8 {
        let run = groups[i..].iter().take_while(|g| **g == 0).count();
        if run > count {
            (start, count) = (i, run);
        }
    }
    let hex = |groups: &[u16]| groups.iter().map(|g| format!("{g:x}")).collect::<Vec<_>>().join(":");
    if count < 2 {
        return hex(&groups);
    }
    format!("{}::{}", hex(&groups[..start]), hex(&groups[start + count..]))
}

pub(super) fn inet_ntoa6(call: &mut Call<'_>) -> Result<Val, Fault> {
    let address = bytes::<16>(call, 0)?;
    let shown = match embedded_ipv4(address) {
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
            let shown = match embedded_ipv4(address) {
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
