//! A gRPC server whose methods have different costs: a `Check` takes one token, a `Watch`, which
//! keeps a stream open, ten.
//!
//! Run it with `cargo run -p tollgate-compat --example rpc_costs`.

use std::net::SocketAddr;

use tollgate::key::header;
use tollgate::{Head, Limit, MINUTE, Quota, RateLimiter, Rule};
use tonic::metadata::MetadataValue;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::health_reporter;

const PER_TENANT: Limit = Limit::new("rpc-per-tenant", Quota::token_bucket(12, MINUTE));

/// The path of a gRPC request is `/package.Service/Method`.
fn cost(head: &Head<'_>) -> u64 {
    match head.uri().path() {
        "/grpc.health.v1.Health/Watch" => 10,
        _ => 1,
    }
}

/// Serves until the process ends, and returns the address.
pub(crate) async fn serve(limiter: &RateLimiter) -> std::io::Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // In production, the tenant of a verified token. All calls without one share a bucket.
    let tenant = Rule::new(&PER_TENANT).key(header("x-tenant"));
    let rule = tenant.missing_key_shared().cost_with(cost);
    let (_reporter, health) = health_reporter();
    let server = Server::builder().layer(limiter.layer(rule)).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    Ok(address)
}

/// Asks `Check` and `Watch` by turns until one is refused, and returns how often each was admitted.
pub(crate) async fn ask(server: SocketAddr, tenant: &str) -> Result<(u32, u32, Status), Status> {
    let unavailable = |_| Status::unavailable("no server");
    let channel = Channel::from_shared(format!("http://{server}")).map_err(unavailable)?;
    let channel = channel.connect().await.map_err(|_| Status::unavailable("no server"))?;
    let tenant = MetadataValue::try_from(tenant).map_err(|_| Status::invalid_argument("tenant"))?;
    let named = move |mut request: Request<()>| {
        request.metadata_mut().insert("x-tenant", tenant.clone());
        Ok(request)
    };
    let mut client = HealthClient::with_interceptor(channel, named);
    let (mut checks, mut watches) = (0, 0);
    loop {
        match client.check(HealthCheckRequest::default()).await {
            Ok(_) => checks += 1,
            Err(refused) => return Ok((checks, watches, refused)),
        }
        match client.watch(HealthCheckRequest::default()).await {
            Ok(_) => watches += 1,
            Err(refused) => return Ok((checks, watches, refused)),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = serve(&RateLimiter::in_memory()).await?;
    let (checks, watches, refused) = ask(server, "acme").await?;
    println!("{checks} checks and {watches} watches, then {:?}", refused.code());
    Ok(())
}
