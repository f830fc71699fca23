//! Our layer.

use tollgate::RateLimitLayer;
use tollgate::fields::Fields;
use tollgate::key::ClientIp;
use tower::Layer;

use super::super::{Allowance, limit, limiter};
use super::{Inner, Layered};

/// Keyed by the client's address, as the layers that are keyed by it if nothing else is said.
pub fn ours_layer(allowance: Allowance, fields: Fields, keys: usize) -> RateLimitLayer {
    limiter(keys).layer(limit(allowance).clone()).key(ClientIp::peer()).fields(fields)
}

pub fn ours(allowance: Allowance, fields: Fields, keys: usize) -> impl Layered {
    ours_layer(allowance, fields, keys).layer(Inner)
}
