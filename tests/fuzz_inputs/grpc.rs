//! How a gRPC request is recognised, and a gRPC call that has failed. `crates/compat` asks `tonic` about
//! the latter.

use std::convert::Infallible;

use http::{HeaderMap, Method, Request, Response, Version};
use proptest::prelude::*;
use proptest::sample::select;
use tollgate::clock::ManualClock;
use tollgate::middleware::ResponseHead;
use tollgate::{HOUR, Limit, Quota, RateLimiter};
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, ServiceExt, service_fn};

use tollgate_testing::fuzz::bytes::{blanks, draws_each, fields};
use tollgate_testing::fuzz::field::Field;
use tollgate_testing::fuzz::seeds::{Seed, seeds};

const WORDS: [&str; 20] = [
    "application/grpc",
    "application/",
    "grpc",
    "GRPC",
    "+proto",
    "+json",
    "+",
    "-web",
    "; charset=utf-8",
    ";",
    "text/plain",
    "\\napplication/grpc",
    "\\ntext/plain",
    "\\t;",
    " ;",
    "0",
    "1",
    "16",
    "00",
    "\\n0",
];

fn type_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/grpc.txt"))
}

fn status_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/grpc_status.txt"))
}

/// Whether a refusal of this request is one in gRPC. It is complete in either way.
fn is_refused_in_grpc(method: Method, version: Version, headers: HeaderMap) -> bool {
    // Time stands still, so the first request takes the only token.
    static ONE: Limit = Limit::new("one", Quota::token_bucket(1, HOUR));
    thread_local! {
        static LIMITER: RateLimiter = limiter(&ManualClock::new(START));
    }
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let service = LIMITER.with(|limiter| limiter.layer(&ONE)).layer(inner);
    let send = |method, headers| {
        let mut request = Request::new(());
        (*request.method_mut(), *request.version_mut(), *request.headers_mut()) =
            (method, version, headers);
        at_once(service.clone().oneshot(request)).unwrap()
    };
    drop(send(Method::GET, HeaderMap::new()));
    let refusal = send(method, headers);
    assert_eq!(refusal.headers()["cache-control"], "no-store");
    assert_eq!(refusal.headers()["retry-after"], "3600");
    let refused = match refusal.headers().get("grpc-status") {
        Some(status) => status == "8" && refusal.status() == 200,
        None => refusal.status() != 429,
    };
    let media_type = if refused { "application/grpc" } else { "application/problem+json" };
    assert_eq!(refusal.headers()["content-type"], media_type);
    assert_eq!(ResponseHead::new(&refusal).status(), 429, "whatever the wire says");
    refused
}

fn headers(name: &str, field: &Field) -> HeaderMap {
    field.request(name).headers().clone()
}

/// A second reading, of the first line: the type, and then a codec or parameters.
fn reference(field: &Field) -> bool {
    let Some(line) = field.0.first() else { return false };
    let text: String = line.iter().map(|&byte| char::from(byte).to_ascii_lowercase()).collect();
    let media_type = text.split(';').next().unwrap().trim_matches([' ', '\t']);
    media_type == "application/grpc" || {
        // What is behind the plus sign is the codec, whatever it is.
        let text = text.trim_matches([' ', '\t']);
        text.starts_with("application/grpc+")
    }
}

fn has_worked(headers: &HeaderMap) -> bool {
    let mut response = Response::new(());
    *response.headers_mut() = headers.clone();
    ResponseHead::new(&response).is_success()
}

#[test]
fn seeds_of_grpc_are_read_as_recorded() {
    for Seed { field, wanted } in type_seeds() {
        assert_eq!(reference(&field), wanted == "grpc", "{field:?}");
        let headers = headers("content-type", &field);
        let found = is_refused_in_grpc(Method::POST, Version::HTTP_2, headers);
        assert_eq!(found, wanted == "grpc", "{field:?}");
    }
    for Seed { field, wanted } in status_seeds() {
        let found = has_worked(&headers("grpc-status", &field));
        assert_eq!(found, wanted == "worked", "{field:?}");
    }
}

#[test]
fn content_types_of_grpc_and_others_are_drawn() {
    draws_each(&fields(&type_seeds(), &WORDS), 2, |field| reference(&field));
    draws_each(&fields(&status_seeds(), &WORDS), 2, |field| {
        has_worked(&headers("grpc-status", &field))
    });
}

proptest! {
    #[test]
    fn a_grpc_request_is_recognised_by_method_version_and_content_type(
        field in fields(&type_seeds(), &WORDS),
        method in select(vec!["POST", "POST", "POST", "GET", "HEAD", "PUT", "post"]),
        version in select(vec![Version::HTTP_2, Version::HTTP_2, Version::HTTP_11, Version::HTTP_3]),
        (before, after) in blanks(),
    ) {
        let method: Method = method.parse().unwrap();
        let wanted = method == Method::POST && version == Version::HTTP_2 && reference(&field);
        for field in [field.padded(before, after), field] {
            let headers = headers("content-type", &field);
            prop_assert_eq!(is_refused_in_grpc(method.clone(), version, headers), wanted);
        }
    }
}
