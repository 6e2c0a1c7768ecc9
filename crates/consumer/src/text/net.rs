//! `%I` and `%P`: addresses and ports by name.
//!
//! The system's resolver may query the network, so its answers are cached.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;

/// The maximum number of cached names. The cache is cleared when it is full.
const MOST: usize = 4096;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Lookup {
    Host(IpAddr),
    Port(u16),
}

thread_local! {
    static KNOWN: RefCell<HashMap<Lookup, Option<String>>> = RefCell::default();
}

/// The name of the host with this address.
pub(super) fn host(text: &[u8]) -> Option<String> {
    let address = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
    address.and_then(|a| cached(Lookup::Host(a)))
}

/// The name of a service; the number if there is none.
pub(super) fn port(number: u16) -> String {
    cached(Lookup::Port(number)).unwrap_or_else(|| number.to_string())
}

fn cached(asked: Lookup) -> Option<String> {
    KNOWN.with_borrow_mut(|known| {
        if known.len() >= MOST {
            known.clear();
        }
        known.entry(asked.clone()).or_insert_with(|| resolve(&asked)).clone()
    })
}

/// Calls the resolver of the C library.
fn resolve(asked: &Lookup) -> Option<String> {
    let (ip, port) = match asked {
        Lookup::Host(ip) => (*ip, 0),
        Lookup::Port(port) => (IpAddr::from([0, 0, 0, 0]), *port),
    };
    // SAFETY: all-zero is a valid `sockaddr_storage` (integers only).
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let length = match ip {
        IpAddr::V4(ip) => {
            let v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: port.to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage is large enough and aligned for every sockaddr.
            unsafe { (&raw mut address).cast::<libc::sockaddr_in>().write(v4) };
            size_of::<libc::sockaddr_in>()
        }
        IpAddr::V6(ip) => {
            let v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: port.to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: 0,
            };
            // SAFETY: as above.
            unsafe { (&raw mut address).cast::<libc::sockaddr_in6>().write(v6) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    let mut text = [0u8; 1025];
    let (start, size) = (text.as_mut_ptr().cast::<libc::c_char>(), text.len() as libc::socklen_t);
    let none = std::ptr::null_mut();
    let (host, host_size, service, service_size, flags) = match asked {
        Lookup::Host(_) => (start, size, none, 0, libc::NI_NAMEREQD),
        Lookup::Port(_) => (none, 0, start, size, 0),
    };
    // SAFETY: an address of `length` bytes; buffers with their sizes, or none with 0; the text ends
    // with a NUL.
    let failed = unsafe {
        let address = (&raw const address).cast::<libc::sockaddr>();
        libc::getnameinfo(address, length as libc::socklen_t, host, host_size, service, service_size, flags)
    };
    let text = crate::raw::text(&text);
    (failed == 0 && !text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_named_where_the_system_has_a_name() {
        // Every system with a list of services has this one.
        let has =
            std::fs::read_to_string("/etc/services").is_ok_and(|t| t.lines().any(|l| l.starts_with("ssh\t")));
        assert_eq!(port(22), if has { "ssh" } else { "22" });
        assert_eq!(port(0), "0");
        assert_eq!(port(65_533), "65533");
    }

    #[test]
    fn hosts_are_named_where_the_system_has_a_name() {
        let has = std::fs::read_to_string("/etc/hosts")
            .is_ok_and(|t| t.lines().any(|l| l.split_whitespace().take(2).eq(["127.0.0.1", "localhost"])));
        if has {
            assert_eq!(host(b"127.0.0.1").as_deref(), Some("localhost"));
        }
        assert_eq!(host(b"no address"), None);
        assert_eq!(host(b""), None);
    }
}
