//! Floods of one client that make this process late with all answers, under `OnFailure::Admit`: how much
//! passes uncounted, and what another client gets.
//!
//! `floods [seconds] [part of a name]`; five by default.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode, Version};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::key::header;
use tollgate::{OnFailure, RateLimiter};
use tollgate_embedded::Embedded;
use tollgate_leasing::Leasing;
use tollgate_postgres::Postgres;
use tollgate_redis::Redis;
use tollgate_testing::traffic::{FLOODED, Flood, flood};
use tollgate_testing::web::{Browser, serve};
use tollgate_testing::{postgres, redis};

/// Of the flood over HTTP/2. A server takes 200 requests of a connection at once.
const CONNECTIONS: u64 = 30;
const REQUESTS: u64 = 200;

/// Prints a row for each flood whose name has this part.
pub(crate) async fn floods(args: &[&str]) {
    let lasts = Duration::from_secs(args.first().map_or(5, |seconds| seconds.parse().unwrap()));
    let part = args.get(1).copied().unwrap_or_default();
    println!(
        "| flood | asked | admitted | of them uncounted | refused | 503 | another client asked | 503 for it |\n\
         |---|---|---|---|---|---|---|---|"
    );
    for name in FLOODS.into_iter().filter(|name| name.contains(part)) {
        let Flood { asked, admitted, refused, uncharged, others, others_failed } =
            play(name, lasts).await;
        let failed = asked - admitted - refused;
        println!(
            "| {name} | {asked} | {admitted} | {uncharged} | {refused} | {failed} | {others} | {others_failed} |"
        );
    }
}

const FLOODS: [&str; 6] = [ONE_KEY, OVER_HTTP, LEASED, CLUSTER, POSTGRES, FILE];
const ONE_KEY: &str = "one key on redis";
const OVER_HTTP: &str = "one key on redis, over HTTP/2";
const LEASED: &str = "one leased key on redis";
const CLUSTER: &str = "new keys on all slots of a redis cluster";
const POSTGRES: &str = "one key on postgres";
const FILE: &str = "new keys in a file, with a deadline of 20 ms";

/// Plays a flood against a store of its own.
async fn play(name: &str, lasts: Duration) -> Flood {
    match name {
        CLUSTER => {
            let cluster = redis::Cluster::start(3);
            let store = Redis::cluster(cluster.urls()).connect().await.unwrap();
            flood(RateLimiter::new(store), lasts, |nth| nth).await
        }
        POSTGRES => {
            let server = postgres::Server::start();
            let store = Postgres::at(server.settings()).connect().await.unwrap();
            flood(RateLimiter::new(store), lasts, |_| 0).await
        }
        FILE => {
            let path =
                std::env::temp_dir().join(format!("tollgate-floods-{}.db", std::process::id()));
            // A disk is as slow as the deadline is short.
            let store = Embedded::at(&path).deadline(Duration::from_millis(20)).open().unwrap();
            let told = flood(RateLimiter::new(store), lasts, |nth| nth).await;
            std::fs::remove_file(&path).unwrap();
            told
        }
        _ => {
            let server = redis::Server::start();
            let store = Redis::at(server.url()).connect().await.unwrap();
            match name {
                OVER_HTTP => over_http(store, lasts).await,
                LEASED => {
                    let leasing = Leasing::new(store).lease(&FLOODED);
                    flood(RateLimiter::new(leasing), lasts, |_| 0).await
                }
                _ => flood(RateLimiter::new(store), lasts, |_| 0).await,
            }
        }
    }
}

/// The flood comes from another process, and the other client is in this one.
async fn over_http(store: Redis, lasts: Duration) -> Flood {
    let limiter = RateLimiter::new(store);
    let layer = limiter.layer(&FLOODED).key(header("x-user")).on_failure(OnFailure::Admit);
    let to = serve(Router::new().route("/", get(async || "hello")).layer(layer)).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let other = tokio::spawn({
        let is_over = Arc::clone(&is_over);
        async move {
            let (browser, mut told) = (Browser::new(), Flood::default());
            while !is_over.load(Ordering::SeqCst) {
                let user = format!("other {}", told.others);
                let reply = browser.get(to, "/", &[("x-user", &user)]).await;
                told.others += 1;
                told.others_failed += u64::from(reply.status != StatusCode::OK);
                sleep(Duration::from_millis(5)).await;
            }
            told
        }
    });
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["flooder", &to.to_string(), &lasts.as_secs().to_string()]);
    let command = command.stderr(Stdio::inherit());
    let flooder = tokio::task::block_in_place(|| command.output().unwrap());
    is_over.store(true, Ordering::SeqCst);
    let counts = String::from_utf8(flooder.stdout).unwrap();
    let counts: Vec<u64> = counts.split_whitespace().map(|one| one.parse().unwrap()).collect();
    let &[asked, admitted, refused] = counts.as_slice() else { panic!("{counts:?}") };
    let uncharged = limiter.passed_uncounted();
    Flood { asked, admitted, refused, uncharged, ..other.await.unwrap() }
}

/// The other process: sends 6,000 requests at once, and each again when it is answered.
pub(crate) async fn flooder(args: &[&str]) {
    let [to, seconds] = args else { panic!("{args:?}") };
    let (uri, seconds) = (format!("http://{to}/"), seconds.parse().unwrap());
    let ends = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        for _ in 0..REQUESTS {
            let (client, uri) = (client.clone(), uri.clone());
            tasks.spawn(async move {
                let mut counts = [0_u64; 3];
                while Instant::now() < ends {
                    let request = Request::get(&uri).version(Version::HTTP_2);
                    let request = request.header("x-user", "attacker").body(Body::empty());
                    let status = client.request(request.unwrap()).await.unwrap().status();
                    counts[0] += 1;
                    counts[1] += u64::from(status == StatusCode::OK);
                    counts[2] += u64::from(status == StatusCode::TOO_MANY_REQUESTS);
                }
                counts
            });
        }
    }
    let all = tasks.join_all().await;
    for nth in 0..3 {
        print!("{} ", all.iter().map(|counts| counts[nth]).sum::<u64>());
    }
}
