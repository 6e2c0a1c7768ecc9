//! A connection that is not waited for longer than until a time.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How often it is looked whether the time has come.
const STEP: Duration = Duration::from_millis(200);

/// A server takes too long.
fn unanswered() -> io::Error {
    io::Error::new(TimedOut, "the server has not answered")
}

/// What a connection must be able to.
pub(super) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A connection of which each call ends in time. Until when may change meanwhile.
pub(super) struct Timed<'a> {
    stream: &'a TcpStream,
    end: &'a dyn Fn() -> Instant,
}

impl<'a> Timed<'a> {
    pub(super) fn new(stream: &'a TcpStream, end: &'a dyn Fn() -> Instant) -> Timed<'a> {
        Timed { stream, end }
    }

    /// Calls again until it is done. A server that reads or answers little by little has as long
    /// as any other.
    fn call<T>(&self, mut call: impl FnMut(&TcpStream) -> io::Result<T>) -> io::Result<T> {
        loop {
            let left = (self.end)().saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(unanswered());
            }
            self.stream.set_read_timeout(Some(left.min(STEP)))?;
            self.stream.set_write_timeout(Some(left.min(STEP)))?;
            match call(self.stream) {
                Err(e) if matches!(e.kind(), TimedOut | WouldBlock | Interrupted) => {}
                done => return done,
            }
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.call(|mut stream| stream.read(bytes))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.call(|mut stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
