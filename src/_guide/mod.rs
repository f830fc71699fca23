#![doc = include_str!("links.md")]
#![doc = include_str!("../../docs/README.md")]
//!
//! This module has no code. Its pages are the files of `docs/` in the repository.

/// A page of its own for a file of `docs/`. The links come first: of two definitions of a link, the
/// first wins, so that the files may define them by their relative paths for readers elsewhere.
macro_rules! pages {
    ($($(#[$attribute:meta])* $page:ident: $file:literal,)*) => {$(
        $(#[$attribute])*
        #[doc = include_str!("links.md")]
        #[doc = include_str!("plots.md")]
        #[doc = include_str!(concat!("../../docs/", $file))]
        pub mod $page {}
    )*};
}

pages! {
    // A page that needs more than the default features in some examples is tested with those.
    #[cfg(any(not(doctest), feature = "calendar"))]
    choosing: "choosing.md",
    // Pages that need other crates in some examples are tested with those, in `crates/compat` and
    // `crates/stores`.
    #[cfg(not(doctest))]
    keys_and_proxies: "keys-and-proxies.md",
    layers: "layers.md",
    several_limits: "several-limits.md",
    queueing: "queueing.md",
    streams: "streams.md",
    by_response: "by-response.md",
    #[cfg(not(doctest))]
    graphql_and_rpc: "graphql-and-rpc.md",
    webhooks_and_jobs: "webhooks-and-jobs.md",
    headers: "headers.md",
    predicting: "predicting.md",
    restarts: "restarts.md",
    #[cfg(all(feature = "memory", not(doctest)))]
    when_the_store_fails: "when-the-store-fails.md",
    #[cfg(not(doctest))]
    shards: "shards.md",
    #[cfg(all(feature = "tracing", not(doctest)))]
    observing: "observing.md",
    performance: "performance.md",
    security: "security.md",
    #[cfg(not(doctest))]
    testing: "testing.md",
    #[cfg(not(doctest))]
    write_your_own_backend: "write-your-own-backend.md",
    #[cfg(not(doctest))]
    recipes: "recipes.md",
    migrating: "migrating.md",
}

/// The code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
