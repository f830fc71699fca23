#![doc = include_str!("links.md")]
//! The guides: what a service needs, one page for each need.
//!
//! * [Choosing a kind and its numbers][choosing]: token bucket or fixed window, and how many.
//! * [Keys and proxies][keys-and-proxies]: which bucket pays for a request.
//! * [Layers and routes][layers]: which layer runs first, and what the log tells about mistakes.
//! * [Several limits][several-limits]: all or nothing; plans; a new limit, step by step.
//! * [Queueing][queueing]: requests and jobs that wait for their turn.
//! * [Streams][streams]: WebSocket messages, uploads and downloads at an even pace.
//! * [By the response][by-response]: failures only, real costs, streams, penalties.
//! * [Header fields and refusals][headers]: what clients are told, and in which words.
//! * [Clients][clients], in the crate `tollgate-client`: calls to others that are not refused, or come back in time.
//! * [Predicting][predicting]: what a client has left, and what its next requests will get.
//! * [Redis][redis], in the crate `tollgate-redis`: limits that several processes share, and the day on which Redis fails.
//! * [PostgreSQL][postgres], in the crate `tollgate-postgres`: the same in a database, and decisions inside your own transaction.
//! * [When the store fails][when-the-store-fails]: what clients get then, and three wrappers that change it.
//! * [Restarts][restarts]: limits in memory that a deployment does not refill.
//! * [A file][embedded], in the crate `tollgate-embedded`: limits that survive a restart.
//! * [Compare and swap][optimistic], in the crate `tollgate-optimistic`: any store that can.
//! * [Shards][shards]: one bucket that is too hot for its store.
//! * [Leasing][leasing], in the crate `tollgate-leasing`: a limit that is hotter than its store, served from the memory of each node.
//! * [Looking in][looking-in], in the crate `tollgate-admin`: routes for operators: how a key stands, which keys are blocked, and
//!   setting one free.
//! * [Observing][observing]: metrics, traces, and what limits do.
//! * [Performance][performance]: what a limit costs.
//! * [Security][security]: what an attacker can do, and which keys are safe for what.
//! * [Limits from a file][configuration], in the crate `tollgate-config`: numbers, keys and queues that
//!   an operator sets, and changes.
//! * [Testing][testing]: clocks, addresses and real servers in tests.
//! * [Write your own backend][write-your-own-backend]: buckets in another database, and its tests.
//! * [Recipes][recipes]: a dozen lines each, from a key in the body to a daily quota.
//! * [Migrating][migrating]: the words of other limiters, and what differs in meaning.
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
    #[cfg(any(not(doctest), feature = "credentials"))]
    keys_and_proxies: "keys-and-proxies.md",
    layers: "layers.md",
    several_limits: "several-limits.md",
    queueing: "queueing.md",
    #[cfg(feature = "throttle")]
    streams: "streams.md",
    by_response: "by-response.md",
    headers: "headers.md",
    predicting: "predicting.md",
    restarts: "restarts.md",
    #[cfg(feature = "memory")]
    when_the_store_fails: "when-the-store-fails.md",
    shards: "shards.md",
    #[cfg(feature = "tracing")]
    observing: "observing.md",
    performance: "performance.md",
    security: "security.md",
    testing: "testing.md",
    write_your_own_backend: "write-your-own-backend.md",
    #[cfg(any(not(doctest), feature = "credentials"))]
    recipes: "recipes.md",
    migrating: "migrating.md",
}

/// The code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
