//! The limiter and what is below it do not know the features of higher rooms.
//!
//! Code that is there for a higher room only belongs to that room; gated in a lower one, it is an
//! arrow up in disguise.

use super::layer;
use super::read::{Token, room, sources, text, tokens};

/// The features that add to rooms above `limiter` only.
const FEATURES: [&str; 3] = ["middleware", "axum", "credentials"];

#[test]
fn rooms_do_not_know_the_features_of_higher_ones() {
    let found: Vec<_> = sources().iter().flat_map(|(file, source)| faults(file, source)).collect();
    assert!(found.is_empty(), "{} places\n{}", found.len(), found.join("\n"));
}

pub(crate) fn faults(file: &str, source: &str) -> Vec<String> {
    if layer(room(file)) > layer("limiter") {
        return Vec::new();
    }
    let known = features(&tokens(source));
    let higher = known.iter().filter(|(_, name)| FEATURES.contains(&&**name));
    higher
        .map(|(line, name)| {
            format!("src/{file}:{line}: the feature `{name}` belongs to rooms above `limiter`")
        })
        .collect()
}

/// The features that are asked for, with their lines.
fn features(tokens: &[Token]) -> Vec<(usize, String)> {
    let starts = tokens.windows(3).filter(|three| {
        text(three, 0) == "feature" && text(three, 1) == "=" && text(three, 2).starts_with('"')
    });
    starts.map(|three| (three[0].line, three[2].text.trim_matches('"').to_owned())).collect()
}

// The rule can fail.

#[test]
fn features_of_higher_rooms_are_reported() {
    for (file, source, feature) in [
        ("limiter/mod.rs", "#[cfg(feature = \"middleware\")]\nmod bill;", "middleware"),
        ("limiter/mod.rs", "fn f() { if cfg!(feature=\"axum\") {} }", "axum"),
        (
            "backend/key.rs",
            "impl K { #[cfg(not(feature = \"middleware\"))] fn f() {} }",
            "middleware",
        ),
        ("clock/mod.rs", "#![cfg_attr(feature = \"credentials\", warn(x))]", "credentials"),
        ("quota/mod.rs", "#[cfg(any(test, feature = \"axum\"))] mod m;", "axum"),
        ("algebra/mod.rs", "#[cfg(all(unix, feature = \"axum\"))] mod m;", "axum"),
    ] {
        let fault =
            format!("src/{file}:1: the feature `{feature}` belongs to rooms above `limiter`");
        assert_eq!(faults(file, source), [fault], "{source}");
    }
}

#[test]
fn other_features_are_not_reported() {
    for (file, source) in [
        ("limiter/mod.rs", "#[cfg(feature = \"memory\")] fn f() {}"),
        ("backend/mod.rs", "#[cfg(any(feature = \"redis\", feature = \"tracing\"))] mod m;"),
        ("key/mod.rs", "#[cfg(feature = \"axum\")] mod m; #[cfg(feature = \"middleware\")] mod n;"),
        ("key/mod.rs", "#[cfg(feature = \"throttle\")] mod m;"),
        ("middleware/mod.rs", "#[cfg(feature = \"credentials\")] mod m;"),
        ("limiter/mod.rs", "#[cfg(test)]\n#[cfg(feature = \"middleware\")]\nmod tests;"),
        (
            "limiter/mod.rs",
            "// #[cfg(feature = \"middleware\")]\nconst T: &str = \"feature = \\\"axum\\\"\";",
        ),
        ("limiter/mod.rs", "const FEATURE: &str = \"middleware\";"),
        ("limiter/mod.rs", "fn f() { let feature = middleware; }"),
    ] {
        assert_eq!(faults(file, source), Vec::<String>::new(), "{source}");
    }
}
