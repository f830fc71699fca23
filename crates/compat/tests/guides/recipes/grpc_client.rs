use tollgate::fields::Dialect;
use tollgate::key::global;
use tollgate::middleware::{RateLimit, ResponseBody};
use tollgate::{Limit, MINUTE, Quota, RateLimiter};
use tonic::transport::Channel;
use tonic_health::pb::health_client::HealthClient;
use tower::Layer;

const THEIRS: Limit = Limit::new("their-grpc", Quota::token_bucket(1, MINUTE));

fn client(limiter: &RateLimiter, channel: Channel) -> HealthClient<RateLimit<Channel>> {
    // Add `.queue(MINUTE)` to wait instead.
    let layer = limiter.layer(&THEIRS).key(global()).dialects(Dialect::None);
    HealthClient::new(layer.layer(channel))
}

mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refused_call_is_a_status_and_is_not_sent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let (_, health) = tonic_health::server::health_reporter();
        let server = tonic::transport::Server::builder().add_service(health);
        tokio::spawn(server.serve_with_incoming(incoming));
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        let mut client = client(&RateLimiter::in_memory(), channel);
        let ask = tonic_health::pb::HealthCheckRequest::default;
        client.check(ask()).await.unwrap();
        assert_eq!(client.check(ask()).await.unwrap_err().code(), tonic::Code::ResourceExhausted);
        fn _body(_: ResponseBody<tonic::body::Body>) {}
    }
}
