//! Imports and paths lead to lower rooms only, and each external crate is named only in the rooms
//! that may use it.
//!
//! Paths that begin with `crate`, `self` or `super` are followed to the room they lead to, also
//! within groups.

use std::collections::BTreeSet;

use super::read::{Token, is_exported_macro, is_word, module_of, room, sources, text, tokens};
use super::{CRATES, LAYERS, layer};

#[test]
fn arrows_run_downwards() {
    let faults: Vec<_> = sources().iter().flat_map(|(file, source)| faults(file, source)).collect();
    let layers = LAYERS.map(|rooms| rooms.join(" and ")).join(", ");
    assert!(faults.is_empty(), "{}\n(layers, lowest first: {layers})", faults.join("\n"));
}

/// What is wrong with a file, given by its path in `src`.
fn faults(file: &str, source: &str) -> Vec<String> {
    let from = room(file);
    let Some(layer) = layer(from) else {
        return vec![format!(
            "src/{file}: `{from}` has no layer (add it to LAYERS in tests/layers/main.rs)"
        )];
    };
    let tokens = tokens(source);
    let mut faults = Vec::new();
    for Arrow { line, path } in arrows(file, &tokens) {
        let shown: String = path.iter().map(|segment| format!("::{segment}")).collect();
        let shown = format!("src/{file}:{line}: `crate{shown}`");
        let to = path.first().map_or("", String::as_str);
        match self::layer(to) {
            None => {
                faults.push(format!("{shown} is not in a room (name it by the room it lives in)"))
            }
            Some(other) if other > layer => {
                faults.push(format!("{shown} points up, from `{from}` to `{to}`"));
            }
            Some(other) if other == layer && to != from => {
                faults.push(format!("{shown} points sideways, from `{from}` to `{to}`"));
            }
            Some(_) => {}
        }
    }
    for (line, name) in crates(&tokens) {
        let (_, allowed) = CRATES.iter().find(|(known, _)| *known == name).unwrap();
        if !allowed.iter().any(|place| file.starts_with(place)) {
            faults.push(format!("src/{file}:{line}: the crate `{name}` is not to be named here"));
        }
    }
    faults
}

/// A path that leads somewhere in the crate, from its root.
#[derive(Debug)]
struct Arrow {
    line: usize,
    path: Vec<String>,
}

/// Every path that begins with `crate`, `self` or `super`, with a path for each member of a group.
fn arrows(file: &str, tokens: &[Token]) -> Vec<Arrow> {
    let mut found = Vec::new();
    // The module that the next token is in; inline ones with the depth of their braces.
    let mut modules = module_of(file);
    let mut inline = Vec::new();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let next = text(tokens, at + 1);
        match &*token.text {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if inline.last() == Some(&depth) {
                    inline.pop();
                    modules.pop();
                }
            }
            "mod" if text(tokens, at + 2) == "{" => {
                modules.push(next.to_owned());
                inline.push(depth);
            }
            "crate" if is_exported_macro(tokens, at) => {}
            "crate" if next == "as" => found.push(Arrow { line: token.line, path: Vec::new() }),
            start @ ("crate" | "self" | "super") if next == "::" => {
                let mut base = if start == "crate" { Vec::new() } else { modules.clone() };
                if start == "super" {
                    base.pop();
                }
                at = follow(tokens, at + 2, base, &mut found);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Follows a path, or a group of them, and returns where it ends.
fn follow(tokens: &[Token], mut at: usize, mut path: Vec<String>, found: &mut Vec<Arrow>) -> usize {
    while let Some(Token { text: segment, line, .. }) = tokens.get(at) {
        match &**segment {
            "{" => {
                at += 1;
                while !matches!(text(tokens, at), "}" | "") {
                    at = follow(tokens, at, path.clone(), found);
                    // Past the comma, and past a new name.
                    while !matches!(text(tokens, at), "," | "}" | "") {
                        at += 1;
                    }
                    at += usize::from(text(tokens, at) == ",");
                }
                return at + 1;
            }
            "super" => drop(path.pop()),
            "self" => {}
            segment => path.push(segment.to_owned()),
        }
        let goes_on = text(tokens, at + 1) == "::" && text(tokens, at + 2) != "<";
        if !goes_on {
            found.push(Arrow { line: *line, path });
            return at + 1;
        }
        at += 2;
    }
    at
}

/// The places that name a crate of [`CRATES`]: as the start of a path, or alone.
fn crates(tokens: &[Token]) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Some((name, _)) = CRATES.iter().find(|(name, _)| *name == token.text) else { continue };
        let before = |back| at.checked_sub(back).map_or("", |at| text(tokens, at));
        let starts = match before(1) {
            // In `crate::http` the two are written together, in `use ::http` they are not.
            "::" => tokens[at - 1].spaced || !is_word(before(2)),
            _ => true,
        };
        let names = text(tokens, at + 1) == "::" || matches!(before(1), "use" | "crate");
        if starts && names {
            found.push((token.line, *name));
        }
    }
    found
}

// The rule sees the arrows of a source, and can fail.

#[test]
fn existing_arrows_are_found() {
    let sources = sources();
    let arrows: BTreeSet<_> = sources
        .iter()
        .flat_map(|(file, source)| {
            let from = room(file).to_owned();
            arrows(file, &tokens(source)).into_iter().map(move |arrow| (from.clone(), arrow.path))
        })
        .filter_map(|(from, path)| Some((from, path.first()?.clone())))
        .collect();
    for (from, to) in [
        ("quota", "clock"),
        ("algebra", "quota"),
        ("backend", "algebra"),
        ("limiter", "backend"),
        ("key", "backend"),
        ("fields", "limiter"),
        ("middleware", "key"),
        ("middleware", "fields"),
        ("throttle", "limiter"),
        ("routes", "middleware"),
        ("kit", "limiter"),
    ] {
        assert!(arrows.contains(&(from.to_owned(), to.to_owned())), "{from} to {to}: {arrows:?}");
    }
}

#[test]
fn arrows_that_point_up_or_sideways_are_reported() {
    for (file, source, fault) in [
        (
            "quota/mod.rs",
            "use crate::limiter::Limit;",
            "src/quota/mod.rs:1: `crate::limiter::Limit` points up, from `quota` to `limiter`",
        ),
        (
            "clock.rs",
            "\n\nfn f() -> crate::quota::Kind { loop {} }",
            "src/clock.rs:3: `crate::quota::Kind` points up, from `clock` to `quota`",
        ),
        (
            "limiter/call.rs",
            "use crate::{\n    backend::{Answer, Key},\n    middleware::{\n        RateLimit,\n    },\n};",
            "src/limiter/call.rs:4: `crate::middleware::RateLimit` points up, from `limiter` to \
             `middleware`",
        ),
        (
            "key/head.rs",
            "use crate::fields::{self, FieldSet};",
            "src/key/head.rs:1: `crate::fields` points sideways, from `key` to `fields`\n\
             src/key/head.rs:1: `crate::fields::FieldSet` points sideways, from `key` to `fields`",
        ),
        (
            "fields/dialect.rs",
            "fn f() { let x = g(crate::key::global()); }",
            "src/fields/dialect.rs:1: `crate::key::global` points sideways, from `fields` to `key`",
        ),
        (
            "throttle/mod.rs",
            "use crate::middleware::RateLimit;",
            "src/throttle/mod.rs:1: `crate::middleware::RateLimit` points sideways, from `throttle` \
             to `middleware`",
        ),
        (
            "backend/memory/mod.rs",
            "pub(in crate::limiter) struct S;",
            "src/backend/memory/mod.rs:1: `crate::limiter` points up, from `backend` to `limiter`",
        ),
        (
            "algebra/mod.rs",
            "macro_rules! m { () => { $crate::backend::Key::GLOBAL } }",
            "src/algebra/mod.rs:1: `crate::backend::Key::GLOBAL` points up, from `algebra` to \
             `backend`",
        ),
        (
            "algebra/mod.rs",
            "#[cfg(not(test))]\nuse crate::backend::Key;",
            "src/algebra/mod.rs:2: `crate::backend::Key` points up, from `algebra` to `backend`",
        ),
    ] {
        assert_eq!(faults(file, source).join("\n"), fault);
    }
}

#[test]
fn arrows_by_way_of_super_are_reported() {
    for (file, source, fault) in [
        (
            "clock.rs",
            "use super::quota::Quota;",
            "src/clock.rs:1: `crate::quota::Quota` points up, from `clock` to `quota`",
        ),
        (
            "key/mod.rs",
            "use super::fields::Dialect;",
            "src/key/mod.rs:1: `crate::fields::Dialect` points sideways, from `key` to `fields`",
        ),
        (
            "key/header.rs",
            "use self::super::super::routes;",
            "src/key/header.rs:1: `crate::routes` points up, from `key` to `routes`",
        ),
        (
            "key/mod.rs",
            "mod inner { fn f() {} mod most { use super::super::super::middleware; } }",
            "src/key/mod.rs:1: `crate::middleware` points up, from `key` to `middleware`",
        ),
        (
            "key/mod.rs",
            "mod inner { }\nuse super::middleware;",
            "src/key/mod.rs:2: `crate::middleware` points up, from `key` to `middleware`",
        ),
    ] {
        assert_eq!(faults(file, source).join("\n"), fault);
    }
}

#[test]
fn paths_through_the_root_are_reported() {
    for (source, path) in [
        ("use crate::Limit;", "crate::Limit"),
        ("use crate::{Quota, clock::Clock};", "crate::Quota"),
        ("use crate::*;", "crate::*"),
        ("use crate::{self as root};", "crate"),
        ("use crate as root;", "crate"),
        ("fn f(_: &super::super::Quota) {}", "crate::Quota"),
    ] {
        let fault = format!(
            "src/limiter/call.rs:1: `{path}` is not in a room (name it by the room it lives in)"
        );
        assert_eq!(faults("limiter/call.rs", source).join("\n"), fault, "{source}");
    }
}

#[test]
fn a_file_in_no_room_is_reported() {
    assert_eq!(
        faults("utils.rs", "use crate::clock::Clock;").join("\n"),
        "src/utils.rs: `utils` has no layer (add it to LAYERS in tests/layers/main.rs)"
    );
}

#[test]
fn crates_that_a_room_may_not_name_are_reported() {
    for (file, source, name) in [
        ("limiter/mod.rs", "use ::http::StatusCode;", "http"),
        ("limiter/mod.rs", "use http::{HeaderMap, StatusCode};", "http"),
        ("limiter/mod.rs", "use http as h;", "http"),
        ("limiter/mod.rs", "extern crate http;", "http"),
        ("limiter/mod.rs", "fn f(_: &::http::Uri) {}", "http"),
        ("limiter/mod.rs", "fn f() -> http::Uri { loop {} }", "http"),
        ("limiter/mod.rs", "use {http::Uri, std::fmt};", "http"),
        ("backend/mod.rs", "use http_body::Body;", "http_body"),
        ("key/mod.rs", "use tower_layer::Layer;", "tower_layer"),
        ("fields/mod.rs", "impl<S> tower_service::Service<()> for S {}", "tower_service"),
        ("backend/memory/mod.rs", "use tokio::time::Sleep;", "tokio"),
        ("backend/key.rs", "use sha2::Sha256;", "sha2"),
        ("middleware/future.rs", "fn f(_: tokio::time::Sleep) {}", "tokio"),
        ("fields/dialect.rs", "fn f() { httpdate::fmt_http_date(now) }", "httpdate"),
        ("middleware/layer.rs", "use axum::Router;", "axum"),
        ("key/header.rs", "fn f(_: axum::extract::MatchedPath) {}", "axum"),
    ] {
        let fault = format!("src/{file}:1: the crate `{name}` is not to be named here");
        assert_eq!(faults(file, source), [fault], "{source}");
    }
}

#[test]
fn arrows_that_point_down_are_not_reported() {
    for (file, source) in [
        ("quota/mod.rs", "use crate::clock::Timestamp;"),
        ("limiter/mod.rs", "use crate::{algebra::State, backend::{Answer, Key}, clock::Clock};"),
        (
            "limiter/mod.rs",
            "use crate::limiter::Limit; pub(crate) fn f() {} struct S(pub(crate) u8);",
        ),
        ("limiter/call.rs", "use super::{Decision, error::Error}; use self::inner::Inner;"),
        ("backend/memory/shard.rs", "use super::super::Charge; pub(in super::super) struct S;"),
        ("key/client_ip/peer.rs", "fn f() { use axum::extract::ConnectInfo; }"),
        ("key/head.rs", "use ::http::{HeaderMap, Method}; fn f(_: http::Uri) {}"),
        ("middleware/rule.rs", "use crate::fields::{self, FieldSet}; fn f() { fields::failure() }"),
        (
            "middleware/layer.rs",
            "use http_body::Body; use tower_layer::Layer; use tower_service::Service;",
        ),
        ("middleware/queued_call.rs", "use tokio::time::Sleep; use tower_service::Service;"),
        ("routes/mod.rs", "use axum::Router; use crate::middleware::RateLimit;"),
        ("clock/mod.rs", "use tokio::time::Instant;"),
        // Exported macros are at the root of the crate.
        ("backend/mod.rs", "macro_rules! m { () => { $crate::__tests! {} $crate::$then! {} } }"),
        // The same names, but of items that are no crates.
        ("limiter/mod.rs", "fn f(http: u8) -> u8 { let axum = http; axum }"),
        ("limiter/mod.rs", "struct S { http: u8 } fn f(s: S) -> u8 { other::http::f(); s.http }"),
    ] {
        assert_eq!(faults(file, source), Vec::<String>::new(), "{source}");
    }
}

#[test]
fn comments_texts_and_tests_are_not_reported() {
    for source in [
        "// use crate::routes::Router;",
        "//! See [`crate::routes`].\n/// And [`crate::Limit`].\nstruct S;",
        "/* use crate::routes; /* nested */ use crate::routes; */",
        r#"const T: &str = "use crate::routes; \" use http::Uri;";"#,
        r##"const T: &str = r#"" use crate::routes;"#;"##,
        "const T: &[u8] = b\"use crate::routes;\";",
        "const T: [char; 3] = ['\"', '\\'', '/']; // use crate::routes;",
        "fn f<'a>(_: &'a str) {} // use crate::routes;",
        "#[cfg(test)]\nmod tests { use crate::routes; mod more { use http::Uri; } }",
        "#[cfg(all(test, feature = \"axum\"))]\n#[allow(unused)]\nmod tests { use crate::routes; }",
        "#[cfg(test)]\nuse crate::{routes::Router, middleware::RateLimit};",
        "#[cfg(test)]\npub(super) fn f() -> [u8; 2] { crate::routes::f() }",
        "struct S {\n    #[cfg(test)]\n    seen: crate::routes::Seen,\n}",
    ] {
        assert_eq!(faults("quota/mod.rs", source), Vec::<String>::new(), "{source}");
        // The code after it is checked.
        let fault = "`crate::routes` points up, from `quota` to `routes`";
        let faults = faults("quota/mod.rs", &format!("{source}\nuse crate::routes;"));
        assert!(matches!(&*faults, [one] if one.ends_with(fault)), "{source}: {faults:?}");
    }
}
