//! What a service tells its manager (sd_notify(3)): that it is ready, once everything is traced.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells the manager, if there is one, a state: `READY=1`. It waits for nobody, and whoever does
/// not listen misses nothing.
pub(crate) fn manager(state: &str) {
    if let Some(name) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = tell(name.as_bytes(), state);
    }
}

fn tell(name: &[u8], state: &str) -> io::Result<()> {
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        name => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_a_datagram_at_a_path_or_an_abstract_name() {
        let name = format!("dtrace-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let sockets = [
            (path.as_os_str().as_bytes().to_vec(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{name}").into_bytes(), UnixDatagram::bind_addr(&abstract_name).unwrap()),
        ];
        for (name, socket) in sockets {
            tell(&name, "READY=1").unwrap();
            let mut bytes = [0; 16];
            assert_eq!(socket.recv(&mut bytes).unwrap(), 7);
            assert_eq!(&bytes[..7], b"READY=1");
        }
        std::fs::remove_file(path).unwrap();
    }
}
