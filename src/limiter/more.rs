//! More tokens for a request that runs already.

use super::ask::{Ask, ask_again};
use super::share::{complete, said};
use super::{Error, Limit, RateLimited, RateLimiter, Refusal, Standing};
use crate::algebra::Verdict;
use crate::backend::Applied;

/// Takes from the very shards that have paid before: from all of them or from none.
pub(crate) async fn take_more(
    limiter: &RateLimiter,
    asks: &[Ask<Limit>],
) -> Result<Option<Applied>, RateLimited> {
    let Some(first) = asks.first() else { return Ok(None) };
    let answer = ask_again(limiter, asks)?.wait().await;
    let applied = answer
        .and_then(|applied| complete(asks, applied))
        .map_err(|error| Error::backend(first.limit(), error))?;
    if applied.verdict() == Verdict::Admitted {
        return Ok(Some(applied));
    }
    let standings = said(asks, &applied)
        .map(|(ask, readings)| Standing::of(ask.limit(), readings, applied.now()).into_owned());
    let refused = standings.filter(|standing| standing.verdict() != Verdict::Admitted).collect();
    Err(Refusal::new(refused, applied.wait(), std::time::Duration::ZERO).into())
}
