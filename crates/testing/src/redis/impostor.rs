//! A fake server that sends what the test says.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// A port of 127.0.0.1 at which a test answers, closed when this is dropped.
#[derive(Debug)]
pub struct Impostor {
    port: u16,
    shared: Arc<ImpostorShared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct ImpostorShared {
    over: AtomicBool,
    accepted: AtomicUsize,
    open: Mutex<Vec<(usize, TcpStream)>>,
}

/// The words of a request.
pub type Words = [Vec<u8>];

impl Impostor {
    /// A server that is asked what to write for each request. An error ends the connection.
    pub fn answering(
        answer: impl Fn(&Words, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::accepting(move |stream| Self::serve(stream, &answer))
    }

    /// Asks what to write for each request of a connection.
    pub fn serve(
        stream: &mut TcpStream,
        answer: impl Fn(&Words, &mut TcpStream) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(words) = request(&mut reader)? {
            answer(&words, stream)?;
        }
        Ok(())
    }

    /// A server that calls a function for each connection, in a thread of its own.
    pub fn accepting(
        serve: impl Fn(&mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(ImpostorShared {
            over: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            open: Mutex::default(),
        });
        let of_thread = Arc::clone(&shared);
        let accepting = thread::spawn(move || accept(&listener, &of_thread, Arc::new(serve)));
        Self { port, shared, accepting: Some(accepting) }
    }

    /// Its port of 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it is: `redis://127.0.0.1:40000`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.shared.accepted.load(Ordering::Acquire)
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.shared.open.lock().unwrap().len()
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        // Wakes the thread, which then sees that it is over.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        for (_, stream) in &*self.shared.open.lock().unwrap() {
            // It may be closed already.
            drop(stream.shutdown(Shutdown::Both));
        }
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
    }
}

fn accept<S>(listener: &TcpListener, shared: &Arc<ImpostorShared>, serve: Arc<S>)
where
    S: Fn(&mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
{
    for stream in listener.incoming() {
        let mut open = shared.open.lock().unwrap();
        if shared.over.load(Ordering::Acquire) {
            return;
        }
        let Ok(mut stream) = stream else { continue };
        let nth = shared.accepted.fetch_add(1, Ordering::AcqRel);
        open.push((nth, stream.try_clone().unwrap()));
        drop(open);
        let (shared, serve) = (Arc::clone(shared), Arc::clone(&serve));
        thread::spawn(move || {
            // The client has closed it, mostly.
            drop(serve(&mut stream));
            drop(stream.shutdown(Shutdown::Both));
            shared.open.lock().unwrap().retain(|(other, _)| *other != nth);
        });
    }
}

/// Reads a request; none if there are no more.
fn request(reader: &mut impl BufRead) -> io::Result<Option<Vec<Vec<u8>>>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = Vec::new();
    for _ in 0..number(&line, '*')? {
        line.clear();
        reader.read_line(&mut line)?;
        let mut word = vec![0; number(&line, '$')? + 2];
        reader.read_exact(&mut word)?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Ok(Some(words))
}

fn number(line: &str, kind: char) -> io::Result<usize> {
    let number = line.strip_prefix(kind).and_then(|number| number.trim_end().parse().ok());
    number.ok_or_else(|| io::Error::other(format!("{line:?} is no part of a request")))
}

/// Answers all that a client asks before it decides; false for any other request.
pub fn greet(words: &Words, stream: &mut TcpStream) -> io::Result<bool> {
    let first = words.first().map_or(&[][..], Vec::as_slice);
    let answer: &[u8] = match first.to_ascii_uppercase().as_slice() {
        b"HELLO" => b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n",
        b"CLIENT" | b"SELECT" | b"ASKING" => b"+OK\r\n",
        b"PING" => b"+PONG\r\n",
        b"ROLE" => b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n",
        _ => return Ok(false),
    };
    stream.write_all(answer)?;
    Ok(true)
}

/// Writes this again and again, until the client closes the connection.
pub fn endlessly(stream: &mut TcpStream, some: &[u8]) -> io::Result<()> {
    let chunk = some.repeat((64 * 1024_usize).div_ceil(some.len()));
    loop {
        stream.write_all(&chunk)?;
    }
}

/// Passes all that a client says to the server at this port, and back.
pub fn pass(client: &mut TcpStream, port: u16) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port))?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            // The end of either direction ends both.
            drop(io::copy(&mut &server, &mut &*client));
            drop(client.shutdown(Shutdown::Both));
        });
        drop(io::copy(&mut &*client, &mut &server));
        drop(server.shutdown(Shutdown::Both));
    });
    Ok(())
}
