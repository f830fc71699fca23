//! What a request really cost, told by its handler.

/// What a request really cost: put it into the extensions of the response, under a layer that
/// [settles](super::RateLimitLayer::settle).
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
///
/// use http::{Request, Response};
/// use tollgate::middleware::ActualCost;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// static LLM: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let answer = service_fn(async |_: Request<()>| {
///     let mut response = Response::new("forty-two");
///     response.extensions_mut().insert(ActualCost::of(300));
///     Ok::<_, Infallible>(response)
/// });
/// let limiter = RateLimiter::in_memory();
/// let service = limiter.layer(&LLM).cost(1_000).settle().layer(answer);
/// service.oneshot(Request::new(())).await?;
/// assert_eq!(limiter.value(&LLM).await?.remaining(), 39_700);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActualCost {
    tokens: u64,
}

impl ActualCost {
    /// The request cost this many tokens.
    #[must_use]
    pub const fn of(tokens: u64) -> Self {
        Self { tokens }
    }

    /// The tokens.
    #[must_use]
    pub const fn tokens(self) -> u64 {
        self.tokens
    }
}
