//! The commands of `docs/looking-in.md` answer what the guide shows.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use http::StatusCode;
use http::header::AUTHORIZATION;
use serde_json::Value;
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter};
use tollgate_admin::admin;
use tollgate_redis::Redis;
use tollgate_testing::redis::Server;
use tollgate_testing::web::serve;

/// As in the guide.
static LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
static API: Limit = Limit::new("api", Quota::fixed_window(600, MINUTE));

/// Fields that depend on the time: only their types are compared.
const TIMED: [&str; 8] =
    ["at", "ts", "full_at", "resets_at", "blocked_until", "value", "tokens", "wait_ms"];

async fn operators_only(request: Request, next: Next) -> Result<Response, StatusCode> {
    match request.headers().get(AUTHORIZATION) {
        Some(given) if given == "Bearer of-this-test" => Ok(next.run(request).await),
        _ => Err(StatusCode::UNAUTHORIZED),
    }
}

/// The commands of the guide, each with what it shows of the answer.
fn commands() -> Vec<(String, String)> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/looking-in.md");
    let guide = fs::read_to_string(guide).unwrap();
    let mut blocks = Vec::new();
    let mut rest = guide.as_str();
    while let Some((_, after)) = rest.split_once("\n```") {
        let (language, after) = after.split_once('\n').unwrap();
        let (block, after) = after.split_once("\n```").unwrap();
        blocks.push((language, block));
        rest = after;
    }
    let pairs = blocks.windows(2).filter(|pair| pair[0].0 == "sh");
    pairs
        .map(|pair| {
            assert!(["json", "text"].contains(&pair[1].0), "{pair:?}");
            (pair[0].1.to_owned(), pair[1].1.to_owned())
        })
        .collect()
}

/// Whether an answer has all that the guide shows of it.
fn has(found: &Value, shown: &Value, field: &str) -> bool {
    match (found, shown) {
        (Value::Object(found), Value::Object(shown)) => {
            shown.iter().all(|(name, shown)| found.get(name).is_some_and(|it| has(it, shown, name)))
        }
        (Value::Array(found), Value::Array(shown)) => {
            found.len() == shown.len()
                && found.iter().zip(shown).all(|(found, shown)| has(found, shown, field))
        }
        (Value::String(_), Value::String(_)) | (Value::Number(_), Value::Number(_))
            if TIMED.contains(&field) =>
        {
            true
        }
        (found, shown) => found == shown,
    }
}

#[tokio::test]
async fn each_command_answers_what_the_guide_shows() {
    let server = Server::start();
    let redis = Redis::at(server.url()).deadline(HOUR).connect().await.unwrap();
    let limiter = RateLimiter::new(redis);
    let limits = admin(&limiter, [&LOGIN, &API]).guard(from_fn(operators_only));
    let address = serve(Router::new().nest("/admin/limits", limits)).await;
    limiter.limit(&LOGIN).key("mallory").cost(5).await.unwrap();
    let commands = commands();
    assert!(commands.len() >= 7, "{commands:?}");
    for (command, shown) in commands {
        assert!(command.starts_with("curl -s -H \"$AUTH\" ") && command.contains("127.0.0.1:3000"));
        let line = command.replace("127.0.0.1:3000", &address.to_string());
        let run = tokio::task::spawn_blocking(move || {
            let mut shell = Command::new("sh");
            shell.args(["-c", &line]).env("AUTH", "Authorization: Bearer of-this-test");
            shell.stdin(Stdio::null()).output().unwrap()
        });
        let said = run.await.unwrap();
        assert!(said.status.success(), "{command}: {said:?}");
        let said = String::from_utf8(said.stdout).unwrap();
        let Ok(shown_json) = serde_json::from_str::<Value>(&shown) else {
            panic!("{command} shows {shown}");
        };
        let found: Value = serde_json::from_str(&said).unwrap();
        assert!(has(&found, &shown_json, ""), "{command}\nanswers {said}and not {shown}");
    }
}
