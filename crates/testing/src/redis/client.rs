//! A blocking client, by which tests query the state of their servers.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longer than any server takes that is not frozen.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server said.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// A number.
    Int(i64),
    /// A status, or a text of any bytes.
    Text(Vec<u8>),
    /// No value.
    Nil,
    /// Replies in a list.
    List(Vec<Reply>),
    /// An error, from its code on.
    Error(String),
}

impl Reply {
    /// The text of this reply, whatever it is made of.
    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            other => panic!("{other:?} is no text"),
        }
    }

    /// The text of this reply.
    #[track_caller]
    pub fn text(&self) -> &str {
        str::from_utf8(self.bytes()).unwrap()
    }

    /// The number that this reply is, or that its text is.
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(int) => *int,
            other => other.text().parse().unwrap(),
        }
    }

    /// The parts of this reply.
    #[track_caller]
    pub fn list(&self) -> &[Reply] {
        match self {
            Self::List(list) => list,
            other => panic!("{other:?} is no list"),
        }
    }

    /// Asserts that this reply is `OK`.
    #[track_caller]
    pub fn ok(&self) {
        assert_eq!(*self, Self::Text(b"OK".to_vec()));
    }
}

/// One connection.
pub struct Client {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Box<dyn Write + Send>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// A connection to a port of 127.0.0.1, with this timeout for answers.
    pub fn tcp(port: u16, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let reader = BufReader::new(Box::new(stream.try_clone()?) as Box<_>);
        Ok(Self { reader, writer: Box::new(stream) })
    }

    /// A connection to a socket in the file system.
    pub(super) fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let reader = BufReader::new(Box::new(stream.try_clone()?) as Box<_>);
        Ok(Self { reader, writer: Box::new(stream) })
    }

    /// Sends a command, and waits for its reply.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Sends a command.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<()> {
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            let word = word.as_ref();
            command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            command.extend_from_slice(word);
            command.extend_from_slice(b"\r\n");
        }
        self.writer.write_all(&command)
    }

    /// Waits for a reply.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let Some(line) = line.strip_suffix("\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().map_err(io::Error::other);
        Ok(match kind {
            "+" => Reply::Text(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => {
                    let mut text = vec![0; length + 2];
                    self.reader.read_exact(&mut text)?;
                    text.truncate(length);
                    Reply::Text(text)
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => {
                    Reply::List((0..length).map(|_| self.receive()).collect::<Result<_, _>>()?)
                }
            },
            _ => return Err(io::Error::other(format!("{line:?} is no reply"))),
        })
    }
}
