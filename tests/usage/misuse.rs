//! The lines that people write first, with the habits of other crates, and how each of them ends.
//!
//! A line limits as intended, or does not compile, or causes a warning. The lines that do none of
//! these are listed as lax: no check in Rust can tell them from intended code. The compiler judges
//! the lines of [`EXPLAINED`], [`ERRORS`], [`WARNINGS`] and [`FINE`] when the test runs; the others
//! run.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use serde_json::Value;
use tollgate::clock::ManualClock;
use tollgate::key::ClientIp;
use tollgate::limiter::LimitError;
use tollgate::{HOUR, Limit, Permit, Quota, RateLimitExt, RateLimited, RateLimiter};
use tollgate_testing::{START, limiter};
use tower::{Layer, ServiceExt, service_fn};

/// A line does not compile, and the error says what to write: where the habit comes from, the line,
/// the error, and what of our own words it tells.
const EXPLAINED: &[[&str; 4]] = &[
    ["new(quota)", "RateLimiter::new(QUOTA);", "E0277", "`RateLimiter::in_memory()`"],
    [
        "an address of a server, or a builder that has not connected",
        "RateLimiter::new(\"redis://127.0.0.1\");",
        "E0277",
        "makes a store by `.connect().await?`",
    ],
    [
        "a key after and()",
        "let layer = limiter.layer(&L).and(&L).key(header(\"x-user\"));",
        "E0277",
        "set it on the rule: `limiter.layer(Rule::new(&A).key(..)).and(Rule::new(&B).cost(..))`",
    ],
    [
        "a cost after and()",
        "let layer = limiter.layer(&L).and(&L).cost(5);",
        "E0277",
        "this layer has several rules, so it is not clear which of them this is for",
    ],
    [
        "refund_if of several rules",
        "let layer = limiter.layer(&L).and(&L).refund_if(|_| true);",
        "E0277",
        "set it on the rule",
    ],
    [
        "a function that returns a layer, with one more rule",
        "fn limits(limiter: &RateLimiter) -> RateLimitLayer { limiter.layer(&L).and(&L) }",
        "E0308",
        "RateLimitLayer<Vec<Rule>>",
    ],
    ["a text as a key", "limiter.layer(&L).key(\"x-user\");", "E0277", "`key::header(..)`"],
    ["several limits at once", "limiter.layer((&L, &L));", "E0277", "`limiter.layer(&A).and("],
    ["a list of limits", "limiter.layer([&L]);", "E0277", "`limiter.layer(&A).and("],
    [
        "a bare limit on a route",
        "route.rate_limit(&L);",
        "E0277",
        "`.rate_limit(limiter.layer(rule))`",
    ],
    [
        "a rule on a route",
        "route.rate_limit(Rule::new(&L));",
        "E0277",
        "`.rate_limit(limiter.layer(",
    ],
    ["a call on a route", "route.rate_limit(limiter.limit(&L));", "E0277", "`.rate_limit(limiter."],
    ["an address with its port", "limiter.limit(&L).key(peer).await?;", "E0277", "`address.ip()`"],
    [
        "a key that may be missing",
        "limiter.limit(&L).key(Some(user)).await?;",
        "E0277",
        "an `Option`",
    ],
    [
        "a quota as a plan",
        "limiter.layer(&L).limit_with(|_| Some(QUOTA));",
        "E0277",
        "a clone of a `ConfiguredLimit`",
    ],
    [
        "a closure as a cost",
        "limiter.layer(&L).cost(|head: &Head<'_>| 5_u64);",
        "E0277",
        "`.cost_with(|head| ..)`",
    ],
    [
        "a closure as a key",
        "limiter.layer(&L).key(|head: &Head<'_>| head.uri().path().to_owned());",
        "E0277",
        "give a closure to `key_with`",
    ],
    [
        "a rate of zero",
        "const _: Quota = Quota::token_bucket(0, SECOND);",
        "E0080",
        "a rate and a period above zero",
    ],
    ["no name", "const _: Limit = Limit::new(\"\", QUOTA);", "E0080", "1 to 64 printable"],
];

/// A line does not compile, by the types of ours: the habit, the line, the error.
const ERRORS: &[[&str; 3]] = &[
    ["a plain number", "limiter.limit(5);", "E0308"],
    ["a name", "limiter.limit(\"login\").await?;", "E0308"],
    ["milliseconds", "Quota::fixed_window(100, 60_000);", "E0308"],
    // Calls.
    ["a limit by value", "limiter.limit(L).await?;", "E0308"],
    ["no await, is_ok()", "if limiter.limit(&L).is_ok() {}", "E0599"],
    ["no await, ?", "limiter.limit(&L)?;", "E0277"],
    ["no await, if", "if limiter.limit(&L) {}", "E0308"],
    ["an answer as a bool", "if limiter.limit(&L).await {}", "E0308"],
    ["an answer that is not looked at", "limiter.limit(&L).await.remaining();", "E0599"],
    // A look takes nothing, so it has nothing to give back.
    ["peek as if it took", "limiter.peek(&L).await?.settle(3).await?;", "E0599"],
    ["peek().refund()", "limiter.peek(&L).await?.refund().await?;", "E0599"],
    [
        "settled twice",
        "let permit = limiter.limit(&L).await?; permit.settle(1).await?; permit.refund().await?;",
        "E0382",
    ],
    // The reference of `limit` names `into_owned`.
    [
        "a permit in a thread",
        "let permit = limiter.limit(&L).await?; std::thread::spawn(move || drop(permit));",
        "E0521",
    ],
    ["a reservation as a permit", "limiter.limit(&L).reserve().await?.settle(1).await?;", "E0599"],
    // Layers.
    // The words are the compiler's. With the type that it asks for, ours name `key_with`.
    [
        "a closure as a key, untyped",
        "limiter.layer(&L).key(|head| head.uri().to_string());",
        "E0282",
    ],
    ["a reservation without `limit`", "limiter.reserve(&L);", "E0599"],
    ["a number below zero of proxies", "ClientIp::x_forwarded_for(-1);", "E0277"],
    ["a quota as a rule", "let layer = limiter.layer(QUOTA);", "E0277"],
];

/// A line does nothing, or not all that it says, and a warning says so: the habit, the line, the
/// words.
const WARNINGS: &[[&str; 3]] = &[
    // Answers that are not read.
    ["limit().await", "limiter.limit(&L).await;", "`Result` that must be used"],
    ["peek().await", "limiter.peek(&L).await;", "`Result` that must be used"],
    ["reset().await", "limiter.reset(&L).await;", "`Result` that must be used"],
    ["now()", "limiter.limit(&L).now();", "`Result` that must be used"],
    ["settle().await", "limiter.limit(&L).await?.settle(1).await;", "`Result` that must be used"],
    // Calls that are not awaited.
    ["limit()", "limiter.limit(&L);", "nothing is asked until it is awaited"],
    ["key()", "limiter.limit(&L).key(user).cost(5);", "nothing is asked until it is awaited"],
    ["and()", "limiter.limit(&L).and(&L).key(user);", "nothing is asked until it is awaited"],
    ["a lost key", "let call = limiter.limit(&L); call.key(user);", "nothing is asked"],
    ["peek()", "limiter.peek(&L);", "nothing is asked until it is awaited"],
    ["reset()", "limiter.reset(&L).key(user);", "nothing is done until it is awaited"],
    ["penalize()", "limiter.penalize(&L, 5);", "nothing is done until it is awaited"],
    ["block()", "limiter.block(&L, SECOND).key(user);", "nothing is done until it is awaited"],
    ["settle()", "limiter.limit(&L).await?.settle(3);", "whether it worked is known only"],
    ["refund()", "limiter.limit(&L).await?.refund();", "whether it worked is known only"],
    // Reservations.
    ["reserve()", "limiter.limit(&L).reserve();", "nothing is asked until it is awaited"],
    ["reserve().await?", "limiter.limit(&L).reserve().await?;", "cancels it"],
    ["ready()", "limiter.limit(&L).reserve().await?.ready();", "cancels the reservation"],
    // Layers, rules and numbers.
    ["layer()", "limiter.layer(&L).key(header(\"x-user\"));", "around a service"],
    ["and() of a layer", "limiter.layer(&L).and(&L);", "around a service"],
    ["Rule::new()", "Rule::new(&L).shadow();", "`limiter.layer(rule)`"],
    ["a lost option", "let rule = Rule::new(&L); rule.shadow();", "`limiter.layer(rule)`"],
    ["token_bucket()", "Quota::token_bucket(5, SECOND);", "`Quota::token_bucket`"],
    ["capacity()", "QUOTA.capacity(10);", "`Quota::capacity`"],
    ["Limit::new()", "Limit::new(\"l\", QUOTA);", "`Limit::new`"],
    ["header()", "header(\"x-user\");", "`key::header`"],
    ["seed()", "limiter.clone().seed(7);", "`RateLimiter::seed`"],
];

const UNUSED: &str = "unused_must_use";

/// Lines that are right compile without a word.
const FINE: &[&str] = &[
    "limiter.limit(&L).await?;",
    "limiter.limit(&L).key(user).cost(5).await?;",
    "limiter.limit(&L).cost(user.len()).await?;",
    "limiter.limit(&L).cost(5_u32).and(&L).cost(5_u64).await?;",
    "if limiter.peek(&L).cost(user.len()).await?.fits() { return Ok(()); }",
    "drop(limiter.layer(Rule::new(&L).cost(user.len())).and(&L));",
    "const A: Quota = Quota::fixed_window(5, WEEK); drop(limiter.layer(Limit::new(\"a\", A)));",
    "const B: Quota = Quota::token_bucket(5, days(30)); drop(limiter.layer(Limit::new(\"b\", B)));",
    "limiter.limit(&L).key(peer.ip()).await?;",
    "if limiter.limit(&L).await.is_ok() {}",
    "if let Err(refused) = limiter.limit(&L).await { return Err(refused); }",
    "let permit = limiter.limit(&L).key(user).cost(2).now()?; drop(permit);",
    "let _permit = limiter.limit(&L).key((user, 7)).and(&L).await?;",
    "limiter.limit(&L).cost(5).await?.settle(3).await?;",
    "limiter.limit(&L).await?.refund().await?;",
    "limiter.limit(&L).reserve_within(SECOND).await?.ready().await;",
    "let keep = limiter.limit(&L).reserve().await?.keep(); drop(keep);",
    "limiter.reset(&L).key(user).await?;",
    "limiter.block(&L, SECOND).key(user).await?;",
    "limiter.penalize(&L, 5).key(user).await?;",
    "if limiter.peek(&L).await?.fits() { return Ok(()); }",
    "drop(limiter.layer(Rule::new(&L).key(header(\"x-user\")).refund_if(|_| true)).and(&L));",
    "drop(route.rate_limit(limiter.layer(&L).cost(2)));",
    "limiter.drain(SECOND);",
    "let permit = limiter.limit(&L).await?.into_owned(); std::thread::spawn(move || drop(permit));",
    // Each option of a rule, on a layer of one.
    "drop(limiter.layer(&L).key_with(|head| head.uri().path().to_owned()).cost_with(|_| 2));",
    "drop(limiter.layer(&L).key_with(|head| head.headers()[\"x-user\"].as_bytes().to_vec()));",
    "limiter.limit(&L).key(user.as_bytes().to_vec()).await?;",
    "drop(limiter.layer(&L).only_methods([]).only_if(|head| head.uri().path() != \"/\"));",
    "drop(limiter.layer(&L).missing_key_exempt().limit_with(|_| Some(L)));",
    "drop(limiter.layer(&L).refund_if(|response| response.is_success()).reset_if(|_| false));",
    "let half = middleware::Portion::percent(50); drop(limiter.layer(&L).sample(half).enforce(half));",
    "drop(limiter.layer(&L).shadow().expose());",
    "drop(ClientIp::x_forwarded_for(\"10.0.0.0/8\"));",
    "drop(ClientIp::x_forwarded_for([\"10.0.0.0/8\", \"fd00::/8\"]));",
    "drop(ClientIp::forwarded(1));",
    "drop(ClientIp::header(\"x-real-ip\", [\"10.0.0.1\"]));",
    "if let Err(error) = limiter.limit(&L).await && matches!(error.kind(), limiter::Outcome::Refused) {}",
];

/// What every snippet has at hand.
const PREAMBLE: &str = "#![allow(unused_imports)]
use tollgate::key::*;
use tollgate::*;
pub const QUOTA: Quota = Quota::token_bucket(5, SECOND);
pub const L: Limit = Limit::new(\"l\", QUOTA);
";

/// What the compiler says of a snippet.
#[derive(Debug)]
struct Diagnostic {
    level: String,
    code: String,
    text: String,
}

/// Compiles the snippets, each in a function of its own, and says what the compiler says of each.
fn compile(name: &str, snippets: &[&str]) -> Vec<Vec<Diagnostic>> {
    let head = "(limiter: &RateLimiter, user: &str, peer: std::net::SocketAddr, route: R) \
                -> Result<(), RateLimited>";
    let mut source = PREAMBLE.to_owned();
    let first = source.lines().count() + 1;
    for (index, snippet) in snippets.iter().enumerate() {
        // A line for each; what is at hand is used, so that only the snippet is warned of.
        let used = "let _ = (limiter, user, peer, &route);";
        let begin = format!("pub async fn f{index}<R: RateLimitExt>{head} {{ {used} ");
        source.push_str(&format!("{begin}{snippet} Ok(()) }}\n"));
    }
    let mut said: Vec<_> = snippets.iter().map(|_| Vec::new()).collect();
    for line in rustc(name, &source).lines() {
        let told: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        let Some(spans) = told["spans"].as_array().filter(|spans| !spans.is_empty()) else {
            // A count of the others. Any other error would leave them out.
            let is_count = told["message"].as_str().unwrap().starts_with("aborting due to");
            assert!(is_count || told["level"] != "error", "{told}");
            continue;
        };
        let primary = spans.iter().find(|span| span["is_primary"] == true).unwrap();
        let at = usize::try_from(primary["line_start"].as_u64().unwrap()).unwrap();
        let snippet = at.checked_sub(first).and_then(|index| said.get_mut(index));
        snippet.unwrap_or_else(|| panic!("not of a snippet: {told}")).push(Diagnostic {
            level: told["level"].as_str().unwrap().to_owned(),
            code: told["code"]["code"].as_str().unwrap_or_default().to_owned(),
            text: text(&told),
        });
    }
    said
}

/// The words of the compiler, without the code that it quotes.
fn text(told: &Value) -> String {
    let spans = told["spans"].as_array().into_iter().flatten();
    let labels = spans.flat_map(|span| [span["label"].as_str(), suggestion(span)]).flatten();
    let mut all: Vec<_> = told["message"].as_str().into_iter().chain(labels).collect();
    let children = told["children"].as_array().into_iter().flatten().map(text);
    let children: Vec<_> = children.collect();
    all.extend(children.iter().map(String::as_str));
    // Whether the compiler names the crate depends on what else has the same name.
    all.join(": ").replace("tollgate::", "")
}

fn suggestion(span: &Value) -> Option<&str> {
    span["suggested_replacement"].as_str()
}

/// Compiles against the library that this test is linked with, and returns the diagnostics.
fn rustc(name: &str, source: &str) -> String {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("misuse");
    fs::create_dir_all(&directory).unwrap();
    let test = env::current_exe().unwrap();
    // Each is built after the library that it is linked with.
    let admin = library("tollgate_admin", &test);
    let tollgate = library("tollgate", &admin.with_extension("rmeta"));
    let dependencies = test.parent().unwrap();
    let argument = |name: &str, path: &Path| {
        let mut argument = OsString::from(name);
        argument.push(path);
        argument
    };
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata"])
        .args(["--crate-name", name, "--error-format", "json", "--out-dir"])
        .arg(&directory)
        .arg("-L")
        .arg(argument("dependency=", dependencies))
        .arg("--extern")
        .arg(argument("tollgate=", &tollgate))
        .arg("--extern")
        .arg(argument("tollgate_admin=", &admin))
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rustc is there, or RUSTC names it");
    rustc.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    String::from_utf8(rustc.wait_with_output().unwrap().stderr).unwrap()
}

/// The newest library whose metadata are no newer than this file beside it.
///
/// Others may lie there, built with other features. Cargo builds on a library as soon as its metadata
/// are there, so its code may be newer than what is linked with it.
fn library(name: &str, linked: &Path) -> PathBuf {
    let built = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let linked_at = built(linked);
    let prefix = format!("lib{name}-");
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        let is_one = name.starts_with(&prefix) && name.ends_with(".rlib");
        is_one && built(&path.with_extension("rmeta")) <= linked_at
    };
    let files = fs::read_dir(linked.parent().unwrap()).unwrap();
    let library = files.map(|file| file.unwrap().path()).filter(is_library);
    let library = library.max_by_key(|path| built(&path.with_extension("rmeta")));
    library.expect("cargo builds the library next to its tests")
}

/// The rows of which the compiler does not say what they expect.
fn wrong(name: &str, level: &str, rows: &[[&str; 4]]) -> Vec<String> {
    let snippets: Vec<_> = rows.iter().map(|[_, line, ..]| *line).collect();
    let said = compile(name, &snippets);
    let is_as_expected = |[_, _, code, fragment]: &[&str; 4], said: &[Diagnostic]| {
        let is_it = |one: &Diagnostic| {
            one.level == level && one.code == *code && one.text.contains(fragment)
        };
        said.iter().any(is_it) && said.iter().all(|one| one.level == level)
    };
    let wrong = rows.iter().zip(&said).filter(|(row, said)| !is_as_expected(row, said));
    wrong.map(|([habit, line, ..], said)| format!("{habit}: {line}\n    {said:#?}")).collect()
}

#[test]
fn lines_that_are_wrong_do_not_compile() {
    let any_words = ERRORS.iter().map(|&[habit, line, code]| [habit, line, code, ""]);
    let rows: Vec<_> = EXPLAINED.iter().copied().chain(any_words).collect();
    let wrong = wrong("misuse_errors", "error", &rows);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Routes for operators that are mounted without a guard.
#[test]
fn routes_for_operators_cannot_be_mounted_without_a_guard() {
    // The snippets do not know axum: a router that has said what it lacks stands for the application.
    let wrong_rows = wrong(
        "misuse_admin",
        "error",
        &[
            [
                "nested",
                "tollgate_admin::admin(limiter, [&L]).without_authentication::<()>().nest(\"/admin\", tollgate_admin::admin(limiter, [&L]));",
                "E0308",
                "`UnguardedRoutes`",
            ],
            [
                "merged",
                "tollgate_admin::admin(limiter, [&L]).without_authentication::<()>().merge(tollgate_admin::admin(limiter, [&L]));",
                "E0277",
                "`UnguardedRoutes`",
            ],
            [
                "as a service",
                "tollgate_admin::admin(limiter, [&L]).without_authentication::<()>().nest_service(\"/admin\", tollgate_admin::admin(limiter, [&L]));",
                "E0277",
                "`UnguardedRoutes`",
            ],
            [
                "a layer of the app in place of a guard",
                "drop(tollgate_admin::admin(limiter, [&L]).layer(()));",
                "E0599",
                "`UnguardedRoutes`",
            ],
        ],
    );
    assert!(wrong_rows.is_empty(), "{}", wrong_rows.join("\n"));
    let unused = "tollgate_admin::admin(limiter, [&L]);";
    let wrong_rows = wrong(
        "misuse_admin_unused",
        "warning",
        &[["unused", unused, UNUSED, "`.guard(layer)` makes the router"]],
    );
    assert!(wrong_rows.is_empty(), "{}", wrong_rows.join("\n"));
}

#[test]
fn lines_that_do_nothing_are_warned_of() {
    let rows: Vec<_> =
        WARNINGS.iter().map(|&[habit, line, words]| [habit, line, UNUSED, words]).collect();
    let wrong = wrong("misuse_warnings", "warning", &rows);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lines_that_are_right_compile_without_a_word() {
    for (line, said) in FINE.iter().zip(compile("misuse_fine", FINE)) {
        assert!(said.is_empty(), "{line}: {said:#?}");
    }
}

/// Without this test, a checker that accepts every row would hide mistakes in the tables.
#[test]
fn the_checker_notices_a_wrong_row() {
    let fine = ["no error", FINE[0], "E0599", "method"];
    let other_code = ["another error", "limiter.limit(5);", "E0599", ""];
    let other_words = ["other words", "limiter.limit(5);", "E0308", "use `limit`"];
    let so = ["as it is", "limiter.limit(5);", "E0308", ""];
    let wrong_rows = wrong("misuse_checked_errors", "error", &[fine, other_code, other_words, so]);
    let habits = |rows: &[String]| -> Vec<String> {
        rows.iter().map(|row| row.split(": ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(habits(&wrong_rows), ["no error", "another error", "other words"]);

    let quiet = ["no warning", FINE[0], UNUSED, "must be used"];
    let other_lint = ["another lint", "limiter.limit(&L);", "unused_variables", "awaited"];
    let so = ["as it is", "limiter.limit(&L);", UNUSED, "awaited"];
    let wrong_rows = wrong("misuse_checked_warnings", "warning", &[quiet, other_lint, so]);
    assert_eq!(habits(&wrong_rows), ["no warning", "another lint"]);
}

const FIVE: Limit = Limit::new("five", Quota::token_bucket(5, HOUR));
static EIGHT: Limit = Limit::new("eight", Quota::token_bucket(8, HOUR));

fn standing_still() -> RateLimiter {
    limiter(&ManualClock::new(START))
}

/// How many of eight requests run their work.
async fn of_eight(runs: impl AsyncFn(&RateLimiter) -> bool) -> u32 {
    let limiter = standing_still();
    let mut ran = 0;
    for _ in 0..8 {
        ran += u32::from(runs(&limiter).await);
    }
    ran
}

/// How many of eight requests run their work by each line: the habit, the line, the number.
macro_rules! limits {
    ($($habit:literal: |$limiter:ident| $runs:expr;)*) => {
        [$(($habit, stringify!($runs), of_eight(async |$limiter| $runs).await)),*]
    };
}

async fn by_question_mark(limiter: &RateLimiter) -> Result<(), RateLimited> {
    limiter.limit(&FIVE).await?;
    Ok(())
}

/// As `?` in an application with boxed errors.
async fn by_boxed_error(limiter: &RateLimiter) -> Result<(), Box<dyn std::error::Error>> {
    let _permit = limiter.limit(&FIVE).await?;
    Ok(())
}

async fn by_handle(limiter: RateLimiter, limit: &Limit) -> bool {
    limiter.limit(limit).await.is_ok()
}

/// A limit that each request makes for itself: its name is its bucket.
fn made_now() -> Result<Limit, LimitError> {
    Limit::try_new("five".to_owned(), *FIVE.quota())
}

async fn status(limiter: &RateLimiter) -> StatusCode {
    let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let service = limiter.layer(&FIVE).layer(hello);
    service.oneshot(Request::new(())).await.unwrap().status()
}

async fn route(app: &Router) -> bool {
    app.clone().oneshot(Request::new(Body::empty())).await.unwrap().status() == 200
}

#[tokio::test]
#[expect(
    clippy::nonminimal_bool,
    clippy::match_like_matches_macro,
    clippy::redundant_pattern_matching,
    reason = "the lines are as people write them"
)]
async fn lines_that_run_are_limited() {
    let rows = limits! {
        "bucket4j, and the first trap of the first version":
            |limiter| limiter.limit(&FIVE).await.is_ok();
        "?": |limiter| by_question_mark(limiter).await.is_ok();
        "? into a boxed error": |limiter| by_boxed_error(limiter).await.is_ok();
        "negated": |limiter| !limiter.limit(&FIVE).await.is_err();
        "if let": |limiter| if let Ok(_permit) = limiter.limit(&FIVE).await { true } else { false };
        "let else": |limiter| { let Ok(_) = limiter.limit(&FIVE).await else { return false }; true };
        "match": |limiter| match limiter.limit(&FIVE).await { Ok(_) => true, Err(_) => false };
        "only refusals are refused": |limiter| {
            !limiter.limit(&FIVE).await.is_err_and(|error| error.is_refused())
        };
        "an option": |limiter| limiter.limit(&FIVE).await.ok().is_some();
        "mapped": |limiter| limiter.limit(&FIVE).await.map(drop).is_ok();
        "unwrapped in a task": |limiter| {
            let limiter = limiter.clone();
            let task = tokio::spawn(async move { limiter.limit(&FIVE).await.map(Permit::into_owned) });
            task.await.unwrap().is_ok()
        };
        "a clone for each request": |limiter| by_handle(limiter.clone(), &FIVE).await;
        "a limit for each request": |limiter| by_handle(limiter.clone(), &made_now().unwrap()).await;
        "a layer for each request": |limiter| status(limiter).await == 200;
        "a key that is forgotten after `and` is shared by all": |limiter| {
            limiter.limit(&EIGHT).key("a").and(&FIVE).await.is_ok()
        };
        "settled without being awaited": |limiter| match limiter.limit(&FIVE).await {
            Ok(permit) => { drop(permit.settle(1)); true }
            Err(_) => false
        };
        "kept for later": |limiter| {
            let reserved = limiter.limit(&FIVE).reserve_within(std::time::Duration::ZERO).await;
            reserved.map(|reservation| reservation.keep()).is_ok()
        };
    };
    for (habit, line, ran) in rows {
        assert_eq!(ran, 5, "{habit}: {line}");
    }
}

#[tokio::test]
async fn layers_and_routes_that_run_are_limited() {
    let hello = || get(async || "hello");
    let limiter = standing_still();
    let layer = limiter.layer(&FIVE);
    let several = limiter.layer(&EIGHT).and(&FIVE);
    // A key that cannot be taken lets no request through.
    let without_key = limiter.layer(&FIVE).key(ClientIp::peer());
    let apps = [
        ("of a route", 5, Router::new().route("/", hello().rate_limit(layer.clone()))),
        ("of several rules", 5, Router::new().route("/", hello().rate_limit(several))),
        ("of a router", 5, Router::new().route("/", hello()).layer(layer.clone())),
        ("of its routes", 5, Router::new().route("/", hello()).route_layer(layer)),
        ("by value", 5, Router::new().route("/", hello()).layer(limiter.layer(FIVE))),
        ("without its key", 0, Router::new().route("/", hello()).layer(without_key)),
    ];
    for (what, wanted, app) in apps {
        limiter.reset(&FIVE).await.unwrap();
        limiter.reset(&EIGHT).await.unwrap();
        let mut ran = 0;
        for _ in 0..8 {
            ran += u32::from(route(&app).await);
        }
        assert_eq!(ran, wanted, "{what}");
    }
}

/// Lines with which all eight requests run. No check in Rust can tell them from intended code, but
/// the documentation of the methods warns of them.
#[tokio::test]
async fn lines_listed_as_lax_are_not_limited() {
    let rows = limits! {
        "the answer is thrown away": |limiter| { let _ = limiter.limit(&FIVE).await; true };
        "the answer is kept and not read": |limiter| { let _p = limiter.limit(&FIVE).await; true };
        "the error is thrown away": |limiter| { limiter.limit(&FIVE).await.ok(); true };
        "the call is thrown away": |limiter| {
            #[expect(clippy::let_underscore_future, reason = "clippy has to warn of it")]
            let _ = limiter.limit(&FIVE);
            true
        };
        "a timeout around it is `Ok` for a refusal as well": |limiter| {
            tokio::time::timeout(HOUR, limiter.limit(&FIVE)).await.is_ok()
        };
        "peek answers, whatever it sees": |limiter| limiter.peek(&FIVE).await.is_ok();
        "peek takes nothing": |limiter| limiter.peek(&FIVE).await.unwrap().fits();
        "a reservation that is dropped gives back": |limiter| {
            limiter.limit(&FIVE).reserve().await.is_ok()
        };
        "a limiter for each request": |_limiter| by_handle(standing_still(), &FIVE).await;
    };
    for (habit, line, ran) in rows {
        assert_eq!(ran, 8, "{habit}: {line}");
    }
    // Of axum: a layer is around the routes that are there already.
    let limiter = standing_still();
    let app = Router::new().layer(limiter.layer(&FIVE)).route("/", get(async || "hello"));
    for _ in 0..8 {
        assert!(route(&app).await);
    }
}

/// The words of other crates, and where the search of the reference leads: file, word, function.
const ALIASES: &[[&str; 3]] = &[
    ["limiter/calls.rs", "check", "limit"],
    ["limiter/calls.rs", "check_key", "limit"],
    ["limiter/calls.rs", "acquire", "limit"],
    ["limiter/calls.rs", "try_acquire", "limit"],
    ["limiter/calls.rs", "consume", "limit"],
    ["limiter/calls.rs", "try_consume", "limit"],
    ["limiter/calls.rs", "try_wait", "limit"],
    ["limiter/calls.rs", "throttle", "limit"],
    ["limiter/calls.rs", "acquire_one", "reserve"],
    ["limiter/reservation.rs", "until_ready", "ready"],
    ["limiter/peek.rs", "value", "peek"],
    ["limiter/peek.rs", "status", "peek"],
    ["limiter/permit.rs", "adjust", "settle"],
    ["limiter/penalty.rs", "ban", "block"],
    ["limiter/rate_limited.rs", "wait_time_from", "retry_after"],
    ["limiter/engine.rs", "direct", "in_memory"],
    ["quota/mod.rs", "per_second", "token_bucket"],
    ["quota/mod.rs", "leaky_bucket", "token_bucket"],
    ["quota/mod.rs", "gcra", "token_bucket"],
    ["quota/mod.rs", "windowMs", "fixed_window"],
    ["quota/mod.rs", "sliding window", "Quota"],
    ["quota/mod.rs", "burst", "capacity"],
    ["quota/mod.rs", "burst_size", "capacity"],
    ["middleware/layer.rs", "GovernorLayer", "RateLimitLayer"],
    ["middleware/layer.rs", "GovernorConfig", "RateLimitLayer"],
    ["middleware/layer.rs", "429", "RateLimitLayer"],
    ["middleware/layer.rs", "retry-after", "retry_after_date"],
    ["middleware/layer.rs", "standardHeaders", "dialects"],
    ["middleware/layer.rs", "handler", "on_refusal"],
    ["middleware/layer.rs", "passOnStoreError", "on_failure"],
    ["middleware/rule.rs", "keyGenerator", "key"],
    ["middleware/rule.rs", "skip", "only_if"],
    ["middleware/rule.rs", "weight", "cost_with"],
    ["middleware/rule.rs", "skipSuccessfulRequests", "refund_if"],
    ["middleware/rule.rs", "dry_run", "shadow"],
    ["middleware/rule.rs", "dry run", "shadow"],
    ["key/client_ip/mod.rs", "SmartIpKeyExtractor", "ClientIp"],
    ["key/client_ip/mod.rs", "PeerIpKeyExtractor", "peer"],
    ["key/client_ip/mod.rs", "x-forwarded-for", "x_forwarded_for"],
    ["key/client_ip/proxies.rs", "trust proxy", "Proxies"],
    ["key/global.rs", "GlobalKeyExtractor", "global"],
    ["key/extractor.rs", "allowlist", "unless"],
    ["../crates/client/src/retry/layer.rs", "backoff", "RetryLayer"],
];

/// The items of this file that have this alias: for each, the first item after the attribute.
fn item_of<'s>(source: &'s str, alias: &str) -> Vec<&'s str> {
    let alias = format!("\"{alias}\"");
    let attributes = source.match_indices("#[doc(alias").filter_map(|(start, _)| {
        let (attribute, rest) = source[start..].split_once(")]")?;
        attribute.contains(&alias).then_some(rest)
    });
    let name = |rest: &'s str| {
        let keywords = ["fn ", "struct ", "enum ", "trait "];
        let items = keywords.iter().filter_map(|keyword| rest.split_once(keyword));
        let (_, name) = items.min_by_key(|(before, _)| before.len()).unwrap();
        name.split(['(', '<', ' ', ':']).next().unwrap()
    };
    attributes.map(name).collect()
}

/// The alias `check` led to `peek`, which takes nothing: a user of governor who searched for it
/// ended up without a limit.
#[test]
fn the_words_of_other_crates_are_found() {
    for [file, alias, item] in ALIASES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
        let source = fs::read_to_string(&path).unwrap();
        assert_eq!(item_of(&source, alias), [*item], "{alias} in {file}");
    }
    let peek = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/limiter/peek.rs"));
    assert!(item_of(&peek.unwrap(), "check").is_empty());
}
