//! A proxy that imitates what can go wrong between a client and a server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What becomes of bytes, from now on.
///
/// A connection on which bytes were lost is of no use any more, and is closed when the mode changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// All arrive.
    Pass,
    /// Connections are accepted, but nothing arrives in either direction.
    Silent,
    /// Requests arrive. The next answer on each connection breaks off in its middle, and then the
    /// connection is closed.
    Cut,
    /// Each answer comes later than the server gave it, by a time between these two, in order.
    Delay(Duration, Duration),
    /// Connections are closed, those that there are too.
    Refuse,
    /// Requests arrive, answers do not.
    LoseAnswers,
}

/// A port of 127.0.0.1 that leads to a server's, closed when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    server: u16,
    over: AtomicBool,
    accepted: AtomicUsize,
    // Locked in this order where both are.
    open: Mutex<Vec<Arc<Connection>>>,
    mode: Mutex<Mode>,
}

#[derive(Debug)]
struct Connection {
    nth: usize,
    client: TcpStream,
    /// `None` if the proxy was silent from the start.
    server: Option<TcpStream>,
    has_lost: AtomicBool,
}

impl Proxy {
    /// A proxy that passes all to this port.
    pub fn before(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server,
            over: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            open: Mutex::default(),
            mode: Mutex::new(Mode::Pass),
        });
        let of_thread = Arc::clone(&shared);
        let accepting = Some(thread::spawn(move || accept(&listener, &of_thread)));
        Self { port, shared, accepting }
    }

    /// Changes what becomes of bytes.
    pub fn set(&self, mode: Mode) {
        let open = self.shared.open.lock().unwrap();
        if std::mem::replace(&mut *self.shared.mode.lock().unwrap(), mode) == mode {
            return;
        }
        for connection in &*open {
            if mode == Mode::Refuse || connection.has_lost.load(Ordering::Acquire) {
                connection.close();
            }
        }
    }

    /// Where the proxy is: `redis://127.0.0.1:40000`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port of 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of connections so far, including those that were closed at once.
    pub fn connections(&self) -> usize {
        self.shared.accepted.load(Ordering::Acquire)
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.shared.open.lock().unwrap().len()
    }

    /// How many connections are open on which bytes were lost.
    pub fn lossy(&self) -> usize {
        let open = self.shared.open.lock().unwrap();
        open.iter().filter(|connection| connection.has_lost.load(Ordering::Acquire)).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        self.set(Mode::Refuse);
        // Wakes the thread, which then sees that it is over.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
    }
}

impl Mode {
    fn loses_answers(self) -> bool {
        matches!(self, Self::Silent | Self::LoseAnswers)
    }
}

impl Shared {
    fn mode(&self) -> Mode {
        *self.mode.lock().unwrap()
    }

    /// Notes that bytes were lost, and closes the connection when the mode has changed meanwhile.
    fn lose_on(&self, connection: &Connection) {
        let _open = self.open.lock().unwrap();
        connection.has_lost.store(true, Ordering::Release);
        if !self.mode().loses_answers() {
            connection.close();
        }
    }
}

impl Connection {
    /// Ends both halves; the threads that read from them see it.
    fn close(&self) {
        for stream in [Some(&self.client), self.server.as_ref()].into_iter().flatten() {
            // It may be closed already.
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.over.load(Ordering::Acquire) {
            return;
        }
        let Ok(client) = client else { continue };
        let nth = shared.accepted.fetch_add(1, Ordering::AcqRel);
        let mut open = shared.open.lock().unwrap();
        let server = match shared.mode() {
            Mode::Refuse => continue,
            Mode::Silent => None,
            _ => match TcpStream::connect(("127.0.0.1", shared.server)) {
                Ok(server) => Some(server),
                // As if the client had been refused by the server.
                Err(_) => continue,
            },
        };
        for stream in [Some(&client), server.as_ref()].into_iter().flatten() {
            stream.set_nodelay(true).unwrap();
        }
        // Without a server, all bytes are lost, including the greeting.
        let has_lost = AtomicBool::new(server.is_none());
        let connection = Arc::new(Connection { nth, client, server, has_lost });
        open.push(Arc::clone(&connection));
        drop(open);
        let of_thread = Arc::clone(shared);
        thread::spawn(move || {
            thread::scope(|scope| {
                scope.spawn(|| requests(&connection, &of_thread));
                let (to, answers) = mpsc::channel();
                scope.spawn(|| write_answers(&connection, &of_thread, answers));
                read_answers(&connection, &of_thread, to);
            });
            of_thread.open.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &connection));
        });
    }
}

/// Passes what a client sends, until it sends no more.
fn requests(connection: &Connection, shared: &Shared) {
    let mut chunk = [0; 16_384];
    while let Ok(length @ 1..) = (&connection.client).read(&mut chunk) {
        let mode = shared.mode();
        if mode.loses_answers() {
            // Its answer is lost even if it comes after a change of the mode.
            shared.lose_on(connection);
        }
        let arrives = match connection.server.as_ref() {
            Some(mut server) if mode != Mode::Silent => server.write_all(&chunk[..length]).is_ok(),
            _ => false,
        };
        if !arrives && !mode.loses_answers() {
            break;
        }
    }
    connection.close();
}

/// What a server has sent, or that it has closed the connection, and when the client is to see it.
type Answer = (Instant, Option<Vec<u8>>);

/// Reads what the server sends, until it sends no more.
fn read_answers(connection: &Connection, shared: &Shared, to: Sender<Answer>) {
    let Some(mut server) = connection.server.as_ref() else { return };
    let mut chunk = [0; 16_384];
    let mut due = Instant::now();
    for nth in 0.. {
        let length = server.read(&mut chunk).unwrap_or(0);
        let delay = match shared.mode() {
            Mode::Delay(min, max) => min + (max - min).mul_f64(share(connection.nth, nth)),
            _ => Duration::ZERO,
        };
        due = due.max(Instant::now() + delay);
        let answer = (length > 0).then(|| chunk[..length].to_vec());
        if to.send((due, answer)).is_err() || length == 0 {
            break;
        }
    }
}

/// Passes what the server has sent, when its time has come.
fn write_answers(connection: &Connection, shared: &Shared, answers: Receiver<Answer>) {
    for (due, answer) in answers {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mode = shared.mode();
        if mode.loses_answers() {
            shared.lose_on(connection);
            continue;
        }
        let Some(answer) = answer else { break };
        let passed = if mode == Mode::Cut { &answer[..answer.len() / 2] } else { &*answer };
        if (&connection.client).write_all(passed).is_err() || mode == Mode::Cut {
            break;
        }
    }
    // A connection that has lost bytes stays open until its client or the proxy closes it.
    if !connection.has_lost.load(Ordering::Acquire) {
        connection.close();
    }
}

/// A number from 0 to 1 that looks random, and is the same in each run.
fn share(connection: usize, chunk: u32) -> f64 {
    let mut mixed = (u32::try_from(connection).unwrap() << 16) ^ chunk;
    for factor in [0x7feb_352d_u32, 0x846c_a68b] {
        mixed = (mixed ^ (mixed >> 16)).wrapping_mul(factor);
    }
    f64::from(mixed) / f64::from(u32::MAX)
}
