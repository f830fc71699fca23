//! The routes for operators over a real server: an operator follows the links of the pages.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use axum::Router;
use http::Method;
use serde_json::Value;
use tollgate::{DAY, HOUR, Key, Limit, Quota, RateLimiter};
use tollgate_admin::admin;
use tollgate_redis::Redis;
use tollgate_testing::redis::Server;
use tollgate_testing::web::{Reply, get, send, serve};

static LOGIN: Limit = Limit::new("log in", Quota::token_bucket(10, DAY));
static SHARDS: Limit = Limit::new("shards", Quota::token_bucket(100, DAY).shards(10));

async fn begin(server: &Server) -> (RateLimiter, SocketAddr) {
    let redis = Redis::at(server.url()).deadline(HOUR).connect().await.unwrap();
    let limiter = RateLimiter::new(redis);
    let routes = admin(&limiter, [&LOGIN, &SHARDS]).without_authentication();
    let address = serve(Router::new().nest("/ops/limits", routes)).await;
    (limiter, address)
}

#[track_caller]
fn read(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{reply:?}");
    serde_json::from_str(&reply.body).unwrap()
}

/// What a relative link leads to from the page at a path (RFC 3986, as far as these links go).
fn follow(path: &str, link: &str) -> String {
    let page = path.split('?').next().unwrap();
    match link.starts_with('?') {
        true => format!("{page}{link}"),
        false => format!("{}/{link}", page.rsplit_once('/').unwrap().0),
    }
}

#[tokio::test]
async fn each_link_of_a_list_leads_to_its_key() {
    let server = Server::start();
    let (limiter, address) = begin(&server).await;
    let long = "x".repeat(300);
    let keys = [
        Key::from("alice"),
        Key::from("a/b c|d%"),
        Key::from(7),
        Key::GLOBAL,
        Key::from(std::net::Ipv6Addr::LOCALHOST),
        Key::from(("acme", true)),
        Key::from("Zoë"),
        Key::from(""),
        Key::from(long),
    ];
    for key in &keys {
        limiter.block(&LOGIN, HOUR).key(key).await.unwrap();
    }
    let limits = read(&get(address, "/ops/limits").await);
    let mut path = follow("/ops/limits", limits["limits"][0]["href"].as_str().unwrap());
    assert_eq!(path, "/ops/limits/log%20in");
    path += "?max=2&state=blocked";
    // A table that shrinks meanwhile may return a name twice.
    let (mut found, mut pages, mut digests) = (BTreeSet::new(), 0, BTreeSet::new());
    loop {
        let page = read(&get(address, &path).await);
        for debtor in page["debtors"].as_array().unwrap() {
            let Some(href) = debtor["href"].as_str() else {
                digests.insert(debtor["key"].as_str().unwrap().to_owned());
                continue;
            };
            let shown = read(&get(address, &follow(&path, href)).await);
            for field in ["key", "blocked_until", "tokens", "remaining", "capacity"] {
                assert_eq!(shown[field], debtor[field], "{field} of {debtor}");
            }
            assert_eq!(debtor["state"], "blocked");
            assert!(found.insert(shown["key"].as_str().unwrap().to_owned()), "{debtor} twice");
            let reply = send(address, Method::DELETE, &follow(&path, href), &[]).await;
            assert_eq!(reply.status, 204);
        }
        pages += 1;
        match page["next"].as_str() {
            Some(next) => path = follow(&path, next),
            None => break,
        }
    }
    let due: BTreeSet<_> = keys.iter().take(8).map(Key::to_text).collect();
    assert_eq!(found, due);
    assert!(digests.len() == 1 && digests.iter().all(|key| key.starts_with("sha256=")));
    assert!(pages >= 5, "{pages}");
    for key in keys.iter().take(8) {
        assert_eq!(limiter.peek(&LOGIN).key(key).await.unwrap().remaining(), 10, "{key}");
    }
}

#[tokio::test]
async fn the_shards_of_a_key_are_listed_with_their_own_numbers() {
    let server = Server::start();
    let (limiter, address) = begin(&server).await;
    limiter.penalize(&SHARDS, 150).key("acme").await.unwrap();
    let page = read(&get(address, "/ops/limits/shards?state=debt").await);
    let debtors = page["debtors"].as_array().unwrap();
    let shards: BTreeSet<_> = debtors.iter().map(|one| one["shard"].as_u64().unwrap()).collect();
    assert_eq!(shards, (0..10).collect());
    for debtor in debtors {
        // Each shard holds ten tokens, and has paid fifteen.
        let tokens: f64 = debtor["tokens"].as_str().unwrap().parse().unwrap();
        assert!((-5.0..-4.9).contains(&tokens), "{debtor}");
        assert_eq!(debtor["href"], "shards/acme");
    }
    let shown = read(&get(address, "/ops/limits/shards/acme").await);
    let tokens: f64 = shown["tokens"].as_str().unwrap().parse().unwrap();
    assert!((-50.0..-49.0).contains(&tokens), "{shown}");
}
