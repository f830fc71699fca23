//! A real server on a free port, and a real client.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::serve::ListenerExt;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Serves `app` until the runtime ends, and says where.
pub async fn serve(app: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Small answers are sent before the previous one is acknowledged (no Nagle delay).
    let listener = listener.tap_io(|connection| connection.set_nodelay(true).unwrap());
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// What came back over the wire.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its body, which has to be text.
    pub body: String,
}

impl Reply {
    /// The one value of a field, if it is there; a second one would be a mistake.
    #[track_caller]
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().map(|value| value.to_str().unwrap());
        assert!(values.next().is_none(), "{name} is there twice");
        value
    }

    /// Reads a whole response.
    pub async fn read<B>(response: Response<B>) -> Self
    where
        B: http_body::Body,
        B::Error: std::fmt::Debug,
    {
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Self { status: head.status, headers: head.headers, body }
    }
}

/// Sends one request, with these header fields, and reads the whole response.
pub async fn send(to: SocketAddr, method: Method, path: &str, fields: &[(&str, &str)]) -> Reply {
    send_over(Version::HTTP_11, to, method, path, fields).await
}

/// The same over this version of HTTP: 1.1 or 2.
pub async fn send_over(
    version: Version,
    to: SocketAddr,
    method: Method,
    path: &str,
    fields: &[(&str, &str)],
) -> Reply {
    let uri = format!("http://{to}{path}");
    let mut request = Request::builder().version(version).method(method).uri(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    send_request(request.body(Body::empty()).unwrap()).await
}

/// Sends a request with a whole URI over its version of HTTP, and reads the whole response.
pub async fn send_request(request: Request<Body>) -> Reply {
    let mut client = Client::builder(TokioExecutor::new());
    let client = client.http2_only(request.version() == Version::HTTP_2).build_http();
    Reply::read(client.request(request).await.unwrap()).await
}

/// A client that keeps its connection, for many requests one after the other.
#[derive(Debug)]
pub struct Browser(Client<HttpConnector, Body>);

impl Browser {
    /// A client that has not connected yet.
    pub fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    /// Sends one request, with these header fields, and reads the whole response.
    pub async fn get(&self, to: SocketAddr, path: &str, fields: &[(&str, &str)]) -> Reply {
        let mut request = Request::get(format!("http://{to}{path}"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        Reply::read(self.0.request(request.body(Body::empty()).unwrap()).await.unwrap()).await
    }
}

/// A call of gRPC, as a server of HTTP/2 hands it to its services.
pub fn grpc_call<B>(content_type: &str, body: B) -> Request<B> {
    let request = Request::post("/").version(Version::HTTP_2);
    request.header("content-type", content_type).body(body).unwrap()
}

/// Reads from a connection until this has come.
pub async fn read_to(connection: &mut TcpStream, text: &str) -> String {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(text) {
        assert!(connection.read_buf(&mut read).await.unwrap() > 0, "{text} does not come");
    }
    String::from_utf8(read).unwrap()
}

/// Sends one request without header fields of its own, and reads the whole response.
pub async fn get(to: SocketAddr, path: &str) -> Reply {
    send(to, Method::GET, path, &[]).await
}
