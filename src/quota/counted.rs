//! What the tokens of a quota stand for.

/// What the tokens of a quota stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Counted {
    /// Requests in a time.
    Rate,
    /// Requests that run.
    InFlight,
    /// Requests in a time, with a `lost_after` that makes no sense for them.
    RateLostAfter,
}
