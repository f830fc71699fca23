//! Arrows between the rooms of `src` run one way, downwards, and files stay small.
//!
//! The sources are read as tokens: comments, documentation and what is there for `#[cfg(test)]`
//! only do not count. Paths that begin with `crate`, `self` or `super` are followed to the room
//! they lead to, also within groups. The tests in the middle show that the checker can fail.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, lowest first; those of one layer do not know each other.
const LAYERS: [&[&str]; 8] = [
    &["clock"],
    &["quota"],
    &["algebra"],
    &["backend"],
    &["limiter"],
    &["key", "fields"],
    &["middleware", "retry"],
    &["routes"],
];

/// Other people's crates, and the rooms and files that may name them.
const CRATES: [(&str, &[&str]); 12] = [
    ("http", &["key/", "fields/", "middleware/", "retry/", "routes/"]),
    ("http_body", &["key/", "fields/", "middleware/", "routes/"]),
    ("httpdate", &["fields/retry_after.rs"]),
    ("ipnet", &["key/client_ip/networks.rs"]),
    (
        "tokio",
        &[
            "backend/redis/",
            "clock/",
            "limiter/queue/",
            "limiter/unstoppable.rs",
            "middleware/queued.rs",
            "retry/",
        ],
    ),
    ("redis", &["backend/redis/"]),
    ("hmac", &["backend/redis/names/"]),
    ("sha2", &["backend/redis/names/", "key/digest.rs"]),
    ("tower_sessions_core", &["key/session.rs"]),
    ("tower_layer", &["middleware/", "retry/", "routes/"]),
    ("tower_service", &["middleware/", "retry/", "routes/"]),
    ("axum", &["routes/", "key/client_ip/peer.rs", "key/matched_path.rs"]),
];

const MAX_LINES: usize = 400;

#[test]
fn arrows_run_downwards() {
    let faults: Vec<_> = sources().iter().flat_map(|(file, source)| faults(file, source)).collect();
    let layers = LAYERS.map(|rooms| rooms.join(" and ")).join(", ");
    assert!(faults.is_empty(), "{}\n(layers, lowest first: {layers})", faults.join("\n"));
}

#[test]
fn every_room_has_a_layer() {
    let rooms: BTreeSet<_> = sources().iter().map(|(file, _)| room(file).to_owned()).collect();
    let layered: BTreeSet<_> = LAYERS.concat().into_iter().map(str::to_owned).collect();
    assert_eq!(rooms, layered, "left: what is in src, right: what has a layer");
}

#[test]
fn no_file_is_longer_than_400_lines_without_its_tests() {
    let too_long: Vec<_> = sources()
        .iter()
        .map(|(file, source)| (lines_without_tests(source), file.clone()))
        .filter(|&(lines, _)| lines > MAX_LINES)
        .collect();
    assert!(too_long.is_empty(), "split by role: {too_long:?}");
}

#[test]
fn lib_rs_only_declares_and_re_exports() {
    let lib = fs::read_to_string(src().join("lib.rs")).unwrap();
    assert_eq!(logic(&lib), Vec::<String>::new(), "in src/lib.rs");
}

// That the checker sees what is there.

#[test]
fn the_arrows_that_there_are_are_found() {
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
        ("retry", "key"),
        ("routes", "middleware"),
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
            "retry/service.rs",
            "use crate::middleware::RateLimit;",
            "src/retry/service.rs:1: `crate::middleware::RateLimit` points sideways, from `retry` \
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
        "src/utils.rs: `utils` has no layer (say in tests/layers.rs which)"
    );
}

#[test]
fn crates_are_reported_where_they_may_not_be_named() {
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
        ("backend/error.rs", "use ::redis::RedisError;", "redis"),
        ("backend/redis/order.rs", "use sha2::Sha256;", "sha2"),
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
        ("retry/future.rs", "use tokio::time::Sleep; use tower_service::Service;"),
        ("routes/mod.rs", "use axum::Router; use crate::middleware::RateLimit;"),
        ("backend/redis/link/mod.rs", "use ::redis::Cmd; use tokio::time::Instant;"),
        ("backend/mod.rs", "mod redis; pub use self::redis::Redis;"),
        // Names, but of no crate.
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
        // What comes after it is seen.
        let fault = "`crate::routes` points up, from `quota` to `routes`";
        let faults = faults("quota/mod.rs", &format!("{source}\nuse crate::routes;"));
        assert!(matches!(&*faults, [one] if one.ends_with(fault)), "{source}: {faults:?}");
    }
}

#[test]
fn lines_are_counted_up_to_the_tests() {
    let code = "line\n".repeat(401);
    assert_eq!(lines_without_tests(&code), 401);
    assert_eq!(lines_without_tests(&format!("{code}\n#[cfg(test)]\nmod tests {{\n{code}}}")), 402);
    // An attribute on something small does not hide what comes after it.
    assert_eq!(lines_without_tests(&format!("#[cfg(test)]\nuse std::fmt;\n{code}")), 403);
}

#[test]
fn logic_is_told_from_documentation_and_re_exports() {
    let lib =
        "//! fn f() {}\npub mod quota;\n#[cfg(feature = \"axum\")]\npub use self::quota::Quota;";
    assert_eq!(logic(lib), Vec::<String>::new());
    assert_eq!(logic(&format!("{lib}\npub fn f() {{}}")), ["line 5: `fn`"]);
    assert_eq!(logic(&format!("{lib}\nimpl S {{}}")), ["line 5: `impl`"]);
}

// The checker.

/// What is wrong with a file, given by its path in `src`.
fn faults(file: &str, source: &str) -> Vec<String> {
    let from = room(file);
    let Some(layer) = layer(from) else {
        return vec![format!("src/{file}: `{from}` has no layer (say in tests/layers.rs which)")];
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

/// Where the crates of [`CRATES`] are named: as the start of a path, or whole.
fn crates(tokens: &[Token]) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Some((name, _)) = CRATES.iter().find(|(name, _)| *name == token.text) else { continue };
        let before = |back| at.checked_sub(back).map_or("", |at| text(tokens, at));
        let starts = match before(1) {
            // In `crate::fields` the two are written together, in `use ::http` they are not.
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

/// The items of a file that are more than declarations of modules and re-exports.
fn logic(source: &str) -> Vec<String> {
    const LOGIC: [&str; 4] = ["fn", "impl", "trait", "macro_rules"];
    tokens(source)
        .iter()
        .filter(|token| LOGIC.contains(&&*token.text))
        .map(|token| format!("line {}: `{}`", token.line, token.text))
        .collect()
}

fn lines_without_tests(source: &str) -> usize {
    let lines: Vec<_> = source.lines().collect();
    let tests = lines
        .windows(2)
        .position(|pair| pair[0].starts_with("#[cfg(test)]") && pair[1].starts_with("mod "));
    tests.unwrap_or(lines.len())
}

// Reading.

/// A word or a sign; literals are all one sign, and comments are none.
#[derive(Debug)]
struct Token {
    text: String,
    line: usize,
    /// Whether there is a space before it.
    spaced: bool,
}

/// The tokens of a source, without what is there for tests only.
fn tokens(source: &str) -> Vec<Token> {
    without_tests(lex(source))
}

fn lex(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = source;
    let (mut line, mut spaced) = (1, true);
    while let Some(first) = rest.chars().next() {
        let (len, shown) = if first.is_whitespace() {
            (first.len_utf8(), None)
        } else if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), None)
        } else if rest.starts_with("/*") {
            (comment(rest), None)
        } else if let Some(len) = literal(rest) {
            (len, Some("\""))
        } else if is_word(rest) {
            let len = rest.find(|c| !is_word_char(c)).unwrap_or(rest.len());
            (len, Some(&rest[..len]))
        } else if rest.starts_with("::") {
            (2, Some("::"))
        } else {
            (first.len_utf8(), Some(&rest[..first.len_utf8()]))
        };
        if let Some(shown) = shown {
            tokens.push(Token { text: shown.to_owned(), line, spaced });
        }
        spaced = shown.is_none();
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    tokens
}

/// The length of a block comment, which may hold others.
fn comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of the text, the bytes, the character or the lifetime that this begins with.
fn literal(text: &str) -> Option<usize> {
    let (prefix, rest) = ["br", "cr", "b", "c", "r", ""].into_iter().find_map(|prefix| {
        let rest = text.strip_prefix(prefix)?;
        let opens = match prefix {
            "br" | "cr" | "r" => rest.trim_start_matches('#').starts_with('"'),
            "c" => rest.starts_with('"'),
            _ => rest.starts_with(['"', '\'']),
        };
        opens.then_some((prefix, rest))
    })?;
    let length = if prefix.ends_with('r') {
        let hashes = rest.find('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let content = &rest[hashes + 1..];
        hashes + 1 + content.find(&end)? + end.len()
    } else if let Some(content) = rest.strip_prefix('"') {
        1 + escaped(content, '"')? + 1
    } else if let Some(content) = rest.strip_prefix('\'') {
        let is_char = content.starts_with('\\') || content.chars().nth(1) == Some('\'');
        let word = content.find(|c| !is_word_char(c)).unwrap_or(content.len());
        if is_char { 1 + escaped(content, '\'')? + 1 } else { 1 + word }
    } else {
        return None;
    };
    Some(prefix.len() + length)
}

/// Where the quote is that ends a text.
fn escaped(content: &str, quote: char) -> Option<usize> {
    let mut chars = content.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            c if c == quote => return Some(at),
            _ => {}
        }
    }
    None
}

fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if token.text != "#" || tokens.peek().is_none_or(|next| next.text != "[") {
            kept.push(token);
            continue;
        }
        let attribute: Vec<_> = std::iter::once(token).chain(group(&mut tokens)).collect();
        if !is_for_tests(&attribute) {
            kept.extend(attribute);
            continue;
        }
        // The item ends at its semicolon or behind its braces; other groups are a part of it.
        while let Some(next) = tokens.peek() {
            match &*next.text {
                "{" => {
                    group(&mut tokens);
                    break;
                }
                "(" | "[" => drop(group(&mut tokens)),
                ";" => {
                    tokens.next();
                    break;
                }
                // It was the last of what it stands in, which ends here too.
                "}" => break,
                _ => drop(tokens.next()),
            }
        }
    }
    kept
}

/// Whether an attribute is `#[cfg(test)]`, or that and more.
fn is_for_tests(attribute: &[Token]) -> bool {
    let has = |word| attribute.iter().any(|token| token.text == word);
    text(attribute, 2) == "cfg" && has("test") && !has("not") && !has("any")
}

/// Takes a group in brackets of any kind, which is next.
fn group(tokens: &mut impl Iterator<Item = Token>) -> Vec<Token> {
    let mut taken = Vec::new();
    let mut depth = 0_usize;
    for token in tokens {
        match &*token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        taken.push(token);
        if depth == 0 {
            break;
        }
    }
    taken
}

fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| &token.text)
}

fn is_word(text: &str) -> bool {
    text.starts_with(is_word_char)
}

fn is_word_char(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn layer(room: &str) -> Option<usize> {
    LAYERS.iter().position(|rooms| rooms.contains(&room))
}

/// The room that a file in `src` is in: `key` for `key/header.rs`, `clock` for `clock.rs`.
fn room(file: &str) -> &str {
    file.split('/').next().unwrap_or(file).trim_end_matches(".rs")
}

/// The modules that lead to a file: `key`, `header` for `key/header.rs`.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs");
    path.split('/').filter(|name| *name != "mod").map(str::to_owned).collect()
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The files of all rooms but those with nothing but tests, by their paths in `src`; `lib.rs` is in none.
fn sources() -> Vec<(String, String)> {
    let all = all_sources();
    for (file, _) in all.iter().filter(|(file, _)| is_tests(file)) {
        let (room, _) = file.split_once("/tests").unwrap();
        let parent = format!("{room}/mod.rs");
        let (_, parent) = all.iter().find(|(file, _)| *file == parent).unwrap();
        let (above, _) = parent.split_once("mod tests;").unwrap();
        let mut attributes = above.lines().rev().take_while(|line| line.starts_with("#["));
        assert!(attributes.any(|line| line == "#[cfg(test)]"), "{file} is not for tests only");
    }
    all.into_iter().filter(|(file, _)| !is_tests(file)).collect()
}

/// Whether a file is the tests of a room.
fn is_tests(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.contains("/tests/")
}

fn all_sources() -> Vec<(String, String)> {
    let mut sources = Vec::new();
    let mut directories = vec![src()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = path.strip_prefix(src()).unwrap().to_str().unwrap().replace('\\', "/");
                if file != "lib.rs" {
                    sources.push((file, fs::read_to_string(path).unwrap()));
                }
            }
        }
    }
    sources.sort();
    sources
}
