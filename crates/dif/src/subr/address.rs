//! Addresses of networks and links, as text.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Call, Fault};
use crate::interp::Val;
use crate::ir::{FaultKind, Space};

const AF_INET: i64 = 2;
const AF_INET6: i64 = 10;
const ARPHRD_ETHER: i64 = 1;
const ARPHRD_INFINIBAND: i64 = 32;

/// Bytes at the `n`th argument.
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

/// What an IPv6 address has of an IPv4 one: mapped or compatible.
enum Within {
    Mapped(Ipv4Addr),
    Compatible(Ipv4Addr),
    Nothing,
}

fn within(address: [u8; 16]) -> Within {
    let [.., a, b, c, d] = address;
    let v4 = Ipv4Addr::new(a, b, c, d);
    match (&address[..10], &address[10..12]) {
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0xff, 0xff]) => Within::Mapped(v4),
        // `::` and `::1` are addresses of their own.
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0]) if u32::from(v4) > 1 => Within::Compatible(v4),
        _ => Within::Nothing,
    }
}

/// Groups without leading zeros; the first of the longest runs of zero groups, if two or more, is `::`.
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
    let shown = match within(address) {
        Within::Mapped(v4) | Within::Compatible(v4) => v4.to_string(),
        Within::Nothing => groups(address),
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
            let shown = match within(address) {
                Within::Mapped(v4) => format!("::ffff:{v4}"),
                Within::Compatible(v4) => format!("::{v4}"),
                Within::Nothing => groups(address),
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
