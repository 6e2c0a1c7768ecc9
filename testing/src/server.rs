//! A server of files over HTTP.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

/// A server that answers each request by its path, and sends the path. It has an address of this
/// machine, which is returned as a URL, and ends with the process.
#[allow(clippy::unwrap_used)]
pub fn answering(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            let _ = stream.read_line(&mut line);
            let path = line.split(' ').nth(1).unwrap_or_default().to_string();
            let _ = sender.send(path.clone());
            while line.trim() != "" {
                line.clear();
                let _ = stream.read_line(&mut line);
            }
            let _ = stream.get_mut().write_all(&answer(&path));
        }
    });
    (url, asked)
}
