//! Clients that send arbitrary bytes over a real connection, and a service that reports what it
//! sees of them.
//!
//! Each client has an address of its own in the loopback network, as clients of the Internet have.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use http::{HeaderMap, Method, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::web::{Reply, serve};

/// The address of a client, by its number.
pub fn address(client: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, client)
}

/// A connection of this client.
pub async fn connect(client: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::V4(address(client)), 0)).unwrap();
    let connection = socket.connect(to).await.unwrap();
    connection.set_nodelay(true).unwrap();
    connection
}

/// A well-behaved client of HTTP/1.1.
#[derive(Debug)]
pub struct Guest(Client<HttpConnector, Body>, SocketAddr);

impl Guest {
    /// A client by its number, which has not connected yet.
    pub fn new(client: u8, to: SocketAddr) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_local_address(Some(IpAddr::V4(address(client))));
        Self(Client::builder(TokioExecutor::new()).build(connector), to)
    }

    /// Sends a request, and reads the whole response.
    pub async fn get(&self) -> Reply {
        self.get_path("/").await
    }

    /// The same for another path than `/`.
    pub async fn get_path(&self, path: &str) -> Reply {
        let uri = format!("http://{}{path}", self.1);
        let request = Request::builder().method(Method::GET).uri(uri);
        let response = self.0.request(request.body(Body::empty()).unwrap()).await;
        Reply::read(response.unwrap()).await
    }
}

/// What a service sees of the requests to it.
#[derive(Clone, Debug)]
enum Seen {
    Arrived,
    Answered(StatusCode, HeaderMap),
    /// The server has dropped the request before its answer.
    Gone,
}

/// Serves an app, and reports how each request ends.
///
/// On a runtime of one thread, a request has been decided once its arrival is reported.
#[derive(Debug)]
pub struct Watched {
    /// Where it is served.
    pub address: SocketAddr,
    seen: UnboundedReceiver<(Ipv4Addr, Seen)>,
    /// The events that were received but not asked for yet.
    kept: Vec<(Ipv4Addr, Seen)>,
}

impl Watched {
    /// Serves the app until the runtime ends.
    pub async fn serve(app: Router) -> Self {
        let (tell, seen) = unbounded_channel();
        let watch = from_fn(
            move |ConnectInfo(peer): ConnectInfo<SocketAddr>, request: Request, next: Next| {
                let IpAddr::V4(client) = peer.ip() else { panic!("an address of version 4") };
                let _ = tell.send((client, Seen::Arrived));
                let unanswered = Unanswered(Some((client, tell.clone())));
                async move {
                    let response = next.run(request).await;
                    unanswered.answer(&response);
                    response
                }
            },
        );
        Self { address: serve(app.layer(watch)).await, seen, kept: Vec::new() }
    }

    /// Waits until so many requests of a client have arrived.
    pub async fn arrived(&mut self, client: u8, requests: usize) {
        self.wait_for(client, requests, |seen| matches!(seen, Seen::Arrived)).await;
    }

    /// Waits until so many requests of a client were answered.
    pub async fn answered(&mut self, client: u8, requests: usize) {
        self.wait_for(client, requests, |seen| matches!(seen, Seen::Answered(..))).await;
    }

    /// Waits until the server has dropped so many requests of a client.
    pub async fn gone(&mut self, client: u8, requests: usize) {
        self.wait_for(client, requests, |seen| matches!(seen, Seen::Gone)).await;
    }

    async fn wait_for(&mut self, client: u8, mut requests: usize, is_it: impl Fn(&Seen) -> bool) {
        let is_it = |(from, seen): &(Ipv4Addr, Seen)| *from == address(client) && is_it(seen);
        self.kept.retain(|seen| {
            let is_counted = requests > 0 && is_it(seen);
            requests -= usize::from(is_counted);
            !is_counted
        });
        while requests > 0 {
            let seen = self.seen.recv().await.unwrap();
            match is_it(&seen) {
                true => requests -= 1,
                false => self.kept.push(seen),
            }
        }
    }

    /// How the requests of a client were answered so far, by status.
    pub fn answers(&mut self, client: u8) -> BTreeMap<u16, Vec<HeaderMap>> {
        while let Ok(seen) = self.seen.try_recv() {
            self.kept.push(seen);
        }
        let mut answers = BTreeMap::<_, Vec<_>>::new();
        self.kept.retain(|(from, seen)| match seen {
            Seen::Answered(status, headers) if *from == address(client) => {
                answers.entry(status.as_u16()).or_default().push(headers.clone());
                false
            }
            _ => true,
        });
        answers
    }
}

/// A request that was not answered yet.
struct Unanswered(Option<(Ipv4Addr, UnboundedSender<(Ipv4Addr, Seen)>)>);

impl Unanswered {
    fn answer<B>(mut self, response: &Response<B>) {
        if let Some((client, tell)) = self.0.take() {
            let seen = Seen::Answered(response.status(), response.headers().clone());
            let _ = tell.send((client, seen));
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some((client, tell)) = self.0.take() {
            let _ = tell.send((client, Seen::Gone));
        }
    }
}

/// An HTTP/2 client that writes any frames, and reads all that it receives.
#[derive(Debug)]
pub struct Http2 {
    write: OwnedWriteHalf,
    read: UnboundedReceiver<Frame>,
    next: u32,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// One of the kinds in [`frame`].
    pub kind: u8,
    flags: u8,
    /// The number of its stream, or 0 for the whole connection.
    pub stream: u32,
}

/// The kinds of frames, and flags of them (RFC 9113, section 6).
#[allow(missing_docs, reason = "the RFC says what they are")]
pub mod frame {
    pub const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const END_STREAM: u8 = 1;
    pub(super) const ACK: u8 = 1;
    pub(super) const END_HEADERS: u8 = 4;
}

/// Frames to be sent at once.
#[derive(Debug, Default)]
pub struct Frames(Vec<u8>);

impl Frames {
    /// Any frame.
    pub fn push(mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Self {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        self.0.extend_from_slice(&length[1..]);
        self.0.extend_from_slice(&[kind, flags]);
        self.0.extend_from_slice(&stream.to_be_bytes());
        self.0.extend_from_slice(payload);
        self
    }

    fn ping(self) -> Self {
        self.push(frame::PING, 0, 0, &[0; 8])
    }

    /// Settings that change nothing but have to be acknowledged.
    fn settings(self) -> Self {
        self.push(frame::SETTINGS, 0, 0, &[])
    }

    /// A request for `/`, by its method: GET ends the stream, POST has a body to come.
    pub fn request(self, stream: u32, method: &Method) -> Self {
        // Of the static table: the method, `:scheme: http` and `:path: /`; then the name of
        // `:authority` with a value (RFC 7541, appendix A and section 6.2.2).
        let is_get = method == Method::GET;
        let mut block = vec![if is_get { 0x82 } else { 0x83 }, 0x86, 0x84, 0x01, 4];
        block.extend_from_slice(b"test");
        let flags = frame::END_HEADERS | if is_get { frame::END_STREAM } else { 0 };
        self.push(frame::HEADERS, flags, stream, &block)
    }

    fn reset(self, stream: u32) -> Self {
        // CANCEL.
        self.push(frame::RST_STREAM, 0, stream, &8_u32.to_be_bytes())
    }
}

impl Http2 {
    /// Connects, and waits until the settings of both sides hold.
    pub async fn connect(client: u8, to: SocketAddr) -> Self {
        let (from_server, mut write) = connect(client, to).await.into_split();
        write.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let (tell, read) = unbounded_channel();
        tokio::spawn(read_frames(from_server, tell));
        let mut connection = Self { write, read, next: 1 };
        connection.send(Frames::default().settings()).await;
        connection.read_until(|frame| frame.kind == frame::SETTINGS && frame.flags == 0).await;
        // The server's settings hold from here on.
        connection.send(Frames::default().push(frame::SETTINGS, frame::ACK, 0, &[])).await;
        connection.sync().await;
        connection
    }

    /// Sends frames at once.
    pub async fn send(&mut self, frames: Frames) {
        self.write.write_all(&frames.0).await.unwrap();
    }

    /// Sends so many requests without a body, and returns their streams.
    pub async fn get(&mut self, requests: usize) -> Vec<u32> {
        let streams: Vec<_> = (0..requests).map(|_| self.stream()).collect();
        let frames = streams
            .iter()
            .fold(Frames::default(), |frames, &stream| frames.request(stream, &Method::GET));
        self.send(frames).await;
        streams
    }

    /// The number of a new stream.
    pub fn stream(&mut self) -> u32 {
        let stream = self.next;
        self.next += 2;
        stream
    }

    /// Gives up the requests of these streams.
    pub async fn reset(&mut self, streams: &[u32]) {
        let frames = streams.iter().fold(Frames::default(), |all, &stream| all.reset(stream));
        self.send(frames).await;
    }

    /// Waits until the server has answered a ping, and so has read all that came before it. Returns
    /// what else it has sent.
    pub async fn sync(&mut self) -> Vec<Frame> {
        self.send(Frames::default().ping()).await;
        self.read_until(|frame| frame.kind == frame::PING && frame.flags == frame::ACK).await
    }

    /// Reads frames until this one has come, and returns those before it. Panics if the server
    /// closes the connection.
    pub async fn read_until(&mut self, is_it: impl Fn(&Frame) -> bool) -> Vec<Frame> {
        let mut before = Vec::new();
        loop {
            let frame = self.read.recv().await.expect("the server has closed the connection");
            if is_it(&frame) {
                return before;
            }
            before.push(frame);
        }
    }
}

async fn read_frames(mut from: OwnedReadHalf, tell: UnboundedSender<Frame>) {
    let mut head = [0; 9];
    while from.read_exact(&mut head).await.is_ok() {
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
        if from.read_exact(&mut payload).await.is_err() {
            return;
        }
        let _ = tell.send(Frame { kind, flags, stream: u32::from_be_bytes(stream) });
    }
}
