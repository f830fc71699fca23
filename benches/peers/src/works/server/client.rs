//! The load: connections that stay, on all of which the client asks before it reads an answer.
//!
//! So the server always finds as many requests as in any other round, and what it takes for one does
//! not depend on how quick the client is.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
const BEGIN: &[u8] = b"HTTP/1.1 200 OK\r\n";
const END: &[u8] = b"\r\n\r\nhello";
/// More than a head and a body need.
const ANSWER: usize = 2_048;
/// Thousands of times as long as an answer takes.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Connections {
    streams: Vec<TcpStream>,
}

impl Connections {
    pub(super) fn open(server: SocketAddr, count: usize) -> io::Result<Self> {
        let open = |_| {
            let stream = TcpStream::connect(server)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        Ok(Self { streams: (0..count).map(open).collect::<io::Result<_>>()? })
    }

    /// So many waves of one request on each connection.
    pub(super) fn ask(&mut self, waves: usize) -> io::Result<()> {
        for _ in 0..waves {
            for stream in &mut self.streams {
                stream.write_all(REQUEST)?;
            }
            for stream in &mut self.streams {
                read(stream)?;
            }
        }
        Ok(())
    }
}

fn read(stream: &mut TcpStream) -> io::Result<()> {
    let mut answer = [0; ANSWER];
    let mut length = 0;
    while !answer[..length].ends_with(END) {
        match stream.read(&mut answer[length..])? {
            0 => return Err(unexpected(&answer[..length])),
            read => length += read,
        }
    }
    if answer.starts_with(BEGIN) { Ok(()) } else { Err(unexpected(&answer[..length])) }
}

fn unexpected(answer: &[u8]) -> io::Error {
    let answer = String::from_utf8_lossy(answer);
    io::Error::other(format!("the server says `{}`", answer.escape_debug()))
}
