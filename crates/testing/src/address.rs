//! Requests that came from somewhere, by way of some proxies.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue, Request};
use tollgate::key::{ClientIp, Extracted, Head, Key, KeyExtractor, Networks, Proxies};

/// The fields that are walked from proxy to proxy.
pub const FIELDS: [&str; 2] = ["x-forwarded-for", "forwarded"];

/// The networks of the trusted proxies of these tests.
pub fn ours() -> Networks {
    Networks::new(["10.0.0.0/8", "fd00::/8"])
}

/// The client by one of the two fields.
pub fn by(field: &str, trusted: impl Into<Proxies>) -> ClientIp {
    match field {
        "forwarded" => ClientIp::forwarded(trusted),
        _ => ClientIp::x_forwarded_for(trusted),
    }
}

/// A request from this peer, with these lines of one field.
pub fn request<L: AsRef<[u8]>>(peer: &str, field: &str, lines: &[L]) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(SocketAddr::new(ip(peer), 5123));
    *request.headers_mut() = headers(field, lines);
    request
}

/// These lines of one field, and nothing else.
pub fn headers<L: AsRef<[u8]>>(field: &str, lines: &[L]) -> HeaderMap {
    let name: HeaderName = field.parse().unwrap();
    let value = |line: &L| HeaderValue::from_bytes(line.as_ref()).unwrap();
    lines.iter().map(|line| (name.clone(), value(line))).collect()
}

/// The address in a text.
#[track_caller]
pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The address that is found for a request.
#[track_caller]
pub fn found(client: &ClientIp, request: &Request<()>) -> IpAddr {
    client.address(&Head::new(request)).unwrap()
}

/// The key of a request.
#[track_caller]
pub fn key(extractor: &impl KeyExtractor, request: &Request<()>) -> Key {
    match extractor.extract(&Head::new(request)) {
        Ok(Extracted::Key(key)) => key,
        other => panic!("no key: {other:?}"),
    }
}
