//! Our layer.

use tollgate::RateLimitLayer;
use tollgate::fields::Dialect;
use tollgate::key::ClientIp;
use tower::Layer;

use super::super::{Allowance, limit, limiter};
use super::{Inner, Layered};

/// Keyed by the client's address, as the layers that are keyed by it if nothing else is said.
pub fn ours_layer(allowance: Allowance, dialect: Dialect, keys: usize) -> RateLimitLayer {
    limiter(keys).layer(limit(allowance)).key(ClientIp::peer()).dialects(dialect)
}

pub fn ours(allowance: Allowance, dialect: Dialect, keys: usize) -> impl Layered {
    ours_layer(allowance, dialect, keys).layer(Inner)
}
