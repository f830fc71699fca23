//! gRPC: a real tonic server behind the layer, and a real client that reads its answers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use proptest::prelude::*;
use tokio::net::TcpListener;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::{ClientIp, header};
use tollgate::middleware::{Queue, ResponseHead};
use tollgate::{Limit, MINUTE, OnRefusal, Quota, RateLimitLayer, Rule};
use tollgate_testing::fuzz::bytes::fields;
use tollgate_testing::fuzz::seeds::seeds;
use tollgate_testing::web::grpc_call;
use tollgate_testing::{START, at_once, limiter};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower::{Layer, ServiceExt, service_fn};

/// A name that cannot stand as it is in `grpc-message`.
static API: Limit = Limit::new("100% \"api\"", Quota::token_bucket(2, MINUTE));

/// A server on a free port behind this layer, and a client of it.
async fn served(layer: RateLimitLayer) -> HealthClient<Channel> {
    let (_, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(channel.connect().await.unwrap())
}

async fn ask(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client.check(HealthCheckRequest::default()).await.map(drop)
}

fn metadata<'a>(status: &'a Status, name: &str) -> Option<&'a str> {
    status.metadata().get(name).map(|value| value.to_str().unwrap())
}

/// Its layer makes gRPC of the requests of browsers, over HTTP/1.1 as well.
#[tokio::test]
async fn a_refusal_inside_of_the_layer_for_grpc_web_is_one_of_grpc() {
    let limit = limiter(&ManualClock::new(START)).layer(&API);
    let inner = limit.layer(service_fn(async |_: Request<tonic::body::Body>| {
        Ok::<_, Infallible>(Response::new(tonic::body::Body::empty()))
    }));
    let service = tonic_web::GrpcWebLayer::new().layer(inner);
    for refused in [None, None, Some("8")] {
        let request = Request::post("/a.B/C").header("content-type", "application/grpc-web+proto");
        let response = service.clone().oneshot(request.body(tonic::body::Body::empty()).unwrap());
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        let status = response.headers().get("grpc-status").map(|status| status.to_str().unwrap());
        assert_eq!(status, refused);
    }
}

#[tokio::test]
async fn a_refusal_is_resource_exhausted_with_the_time_to_come_back() {
    let clock = ManualClock::new(START);
    let layer = limiter(&clock).layer(&API).dialects([Dialect::Draft11, Dialect::XRateLimit]);
    let mut client = served(layer).await;
    ask(&mut client).await.unwrap();
    ask(&mut client).await.unwrap();
    clock.advance(Duration::from_micros(1_250_001));
    let status = ask(&mut client).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "refused by `100% \"api\"`, try again in 29 seconds");
    let details = status.check_error_details().unwrap();
    let exact = Duration::from_micros(28_749_999);
    assert_eq!(details.retry_info().unwrap().retry_delay, Some(exact));
    assert_eq!(metadata(&status, "retry-after"), Some("29"));
    assert_eq!(metadata(&status, "ratelimit"), Some("\"100% \\\"api\\\"\";r=0;t=29"));
    assert_eq!(metadata(&status, "x-ratelimit-remaining"), Some("0"));
    // At the instant of the retry time the request is admitted, and a microsecond earlier it is
    // not.
    clock.advance(exact - Duration::from_micros(1));
    assert_eq!(ask(&mut client).await.unwrap_err().code(), Code::ResourceExhausted);
    clock.advance(Duration::from_micros(1));
    ask(&mut client).await.unwrap();
}

#[tokio::test]
async fn a_cost_that_is_too_large_has_no_retry_time() {
    let mut client = served(limiter(&ManualClock::new(START)).layer(&API).cost(3)).await;
    let status = ask(&mut client).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    let why = "the request costs more than the limit can ever grant (`100% \"api\"`)";
    assert_eq!(status.message(), why);
    assert!(status.details().is_empty() && metadata(&status, "retry-after").is_none());
}

#[tokio::test]
async fn each_http_status_has_its_grpc_code() {
    let limiter = limiter(&ManualClock::new(START));
    let by_user = Rule::new(&API).key(header("x-user"));
    let answered = |status| by_user.clone().missing_key(status);
    for (rule, code) in [
        (by_user.clone(), Code::InvalidArgument),
        (answered(http::StatusCode::INTERNAL_SERVER_ERROR), Code::Internal),
        (answered(http::StatusCode::UNAUTHORIZED), Code::Unauthenticated),
        (answered(http::StatusCode::FORBIDDEN), Code::PermissionDenied),
        (answered(http::StatusCode::IM_A_TEAPOT), Code::Unknown),
    ] {
        let status = ask(&mut served(limiter.layer(rule)).await).await.unwrap_err();
        assert_eq!((status.code(), metadata(&status, "retry-after")), (code, None));
    }
    // A queue that is always full: 503.
    static NONE: Limit = Limit::new("none", Quota::token_bucket(1, MINUTE).capacity(0));
    let full = Queue::new(MINUTE).max_waiters(0);
    let status = ask(&mut served(limiter.layer(&NONE).queue(full)).await).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let delay = status.get_details_retry_info().unwrap().retry_delay;
    assert_eq!((delay, metadata(&status, "retry-after")), (Some(MINUTE), Some("60")));
}

#[tokio::test]
async fn a_handler_for_refusals_is_not_asked_about_grpc() {
    let handler = OnRefusal::handler(|_| Response::new("not for you"));
    let rule = Rule::new(&API).cost(2).key(ClientIp::peer()).missing_key_shared();
    let layer = limiter(&ManualClock::new(START)).layer(rule).on_refusal(handler);
    let mut client = served(layer).await;
    ask(&mut client).await.unwrap();
    assert_eq!(ask(&mut client).await.unwrap_err().code(), Code::ResourceExhausted);
}

/// "Trailers-Only": the stream ends with the head, which has status 200 and no body.
#[test]
fn a_refusal_is_header_fields_only() {
    let layer = limiter(&ManualClock::new(START)).layer(&API).cost(2);
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(http_body_util::Empty::<bytes::Bytes>::new()))
    });
    let service = layer.layer(inner);
    let ask =
        |content_type: &str| at_once(service.clone().oneshot(grpc_call(content_type, ()))).unwrap();
    assert_eq!(ask("application/grpc").status(), 200);
    for content_type in ["application/grpc", "application/grpc+proto"] {
        let response = ask(content_type);
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        assert_eq!(response.headers()["grpc-status"], "8");
        let message = "refused by `100%25 \"api\"`, try again in 60 seconds";
        assert_eq!(response.headers()["grpc-message"], message);
        let details = response.headers()["grpc-status-details-bin"].to_str().unwrap();
        assert!(!details.contains('='), "without padding: {details}");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert!(response.body().is_end_stream());
    }
    for content_type in ["application/grpc-web", "application/grpc-web+proto", "application/json"] {
        let response = ask(content_type);
        assert_eq!((response.status().as_u16(), response.body().is_end_stream()), (429, false));
        assert!(!response.headers().contains_key("grpc-status"));
    }
}

/// `INTERNAL`, as tonic leaves the address in a type of its own.
#[tokio::test]
async fn a_client_has_one_budget_over_http_and_grpc() {
    use axum::routing::get;
    use tonic::transport::server::TcpConnectInfo;
    let limiter = limiter(&ManualClock::new(START));
    let client = || ClientIp::peer().peer_from(|info: &TcpConnectInfo| info.remote_addr());
    let layer = || limiter.layer(&API).key(client());
    let app = axum::Router::new().route("/", get(async || "hello")).layer(layer());
    let http = tollgate_testing::web::serve(app).await;
    let mut grpc = served(layer()).await;
    assert_eq!(tollgate_testing::web::get(http, "/").await.status, 200);
    ask(&mut grpc).await.unwrap();
    assert_eq!(ask(&mut grpc).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(tollgate_testing::web::get(http, "/").await.status, 429);
}

/// Whatever the wait and the name.
#[test]
fn tonic_decodes_the_details() {
    let waits = [
        Duration::from_micros(1),
        Duration::from_micros(4_500_001),
        Duration::from_secs(127),
        Duration::from_secs(128),
        Duration::from_secs(86_400 * 400),
    ];
    let names = ["a", "100 % of `a\"b\\c`", &*"m".repeat(64).leak()];
    for (wait, name) in waits.into_iter().flat_map(|wait| names.map(|name| (wait, name))) {
        let limit = Limit::new(name, Quota::token_bucket(1, wait));
        let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
        let service = limiter(&ManualClock::new(START)).layer(limit).layer(inner);
        let ask = || at_once(service.clone().oneshot(grpc_call("application/grpc", ()))).unwrap();
        assert!(Status::from_header_map(ask().headers()).is_none());
        let refused = Status::from_header_map(ask().headers()).unwrap();
        assert_eq!(refused.get_details_retry_info().unwrap().retry_delay, Some(wait), "{name}");
    }
}

proptest! {
    /// A call counts as a success exactly if the client of `tonic` takes it for one.
    #[test]
    fn a_call_succeeds_exactly_if_tonic_says_so(field in fields(&seeds(STATUSES), &WORDS)) {
        let mut response = Response::new(());
        *response.headers_mut() = field.request("grpc-status").headers().clone();
        let told = Status::from_header_map(response.headers()).map(|status| status.code());
        let has_worked = matches!(told, None | Some(Code::Ok));
        prop_assert_eq!(ResponseHead::new(&response).is_success(), has_worked);
    }
}

const STATUSES: &str = include_str!("../../../../tests/data/fuzz/grpc_status.txt");
const WORDS: [&str; 8] = [";", "\\t;", " ;", "0", "1", "16", "00", "\\n0"];
