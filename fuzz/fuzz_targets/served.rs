//! Answers of a server of debug files, of any bytes, headers and all: the file is kept if it has
//! the build id, and nothing remains of any other.
#![no_main]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::OnceLock;

const BUILD_ID: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8];

/// The server, whose address and directory are the same in all runs of a process.
fn listener() -> Option<&'static (TcpListener, PathBuf)> {
    static LISTENER: OnceLock<Option<(TcpListener, PathBuf)>> = OnceLock::new();
    let begin = || {
        let dir = std::env::temp_dir().join(format!("fuzz-served-{}", std::process::id()));
        Some((TcpListener::bind("127.0.0.1:0").ok()?, dir))
    };
    LISTENER.get_or_init(begin).as_ref()
}

/// Answers one request, without waiting for more of it than its first part.
fn answer(mut stream: TcpStream, bytes: &[u8]) {
    // The client may have gone away at any time.
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(bytes);
}

libfuzzer_sys::fuzz_target!(|input: (bool, &[u8], &[u8])| {
    let (is_whole, head, body) = input;
    let Some((listener, dir)) = listener() else { return };
    let Ok(address) = listener.local_addr() else { return };
    let bytes = match is_whole {
        true => head.to_vec(),
        false => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            [head.as_bytes(), body].concat()
        }
    };
    // Elsewhere nobody is asked.
    if bytes.to_ascii_lowercase().windows(9).any(|part| part == b"location:") {
        return;
    }
    let place = dir.join("debuginfo");
    let result = std::thread::scope(|scope| {
        scope.spawn(|| listener.accept().map(|(stream, _)| answer(stream, &bytes)));
        symbols::fetched(&format!("http://{address}"), BUILD_ID, &place)
    });
    let left: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().collect();
    assert_eq!(left.len(), usize::from(result.is_ok()), "{result:?}");
    let _ = std::fs::remove_dir_all(dir);
});
