//! A body whose bytes wait for their tokens.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::error::ThrottleError;
use super::gate::Gate;
use crate::limiter::Limit;

pin_project! {
    /// A body whose bytes wait for their tokens, one for each; made by [`Throttle::body`](super::Throttle::body).
    ///
    /// A frame of data that is larger than a piece is split, and each piece waits by itself. A piece
    /// has what the limit gains in 50 ms, and at most its capacity; so the bytes come evenly, and
    /// frames of any size fit the limit. Nor has it more than fits in
    /// [`max_reserved`](crate::Quota::max_reserved), or comes within
    /// [`max_wait`](super::Throttle::max_wait). A limit that saves up far more, such as that of a day, has
    /// pieces of a 2,048th of its capacity, as far as it gains that in 10 s. While a piece waits,
    /// the inner body is not polled, so at most one frame is held. Trailers pass at once. No byte
    /// is copied if the data of the inner body is [`Bytes`].
    ///
    /// # Errors
    ///
    /// [`ThrottleError::Inner`] for the errors of the inner body. If the limit does not let a piece
    /// pass, the body yields [`ThrottleError::RateLimited`] and ends. See the
    /// [module docs](super#when-an-item-cannot-pass).
    ///
    /// # Panics
    ///
    /// Polling it panics if a piece has to wait outside of a tokio runtime, or in one without a
    /// timer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future of a frame loses no byte. Dropping the body, as a server does when its
    /// client goes away, cancels what it has reserved.
    #[derive(Debug)]
    #[must_use = "bodies do nothing unless polled"]
    pub struct ThrottledBody<B> {
        #[pin]
        inner: B,
        gate: Gate<Bytes>,
        // What is left of the last frame, behind the piece in the gate.
        rest: Bytes,
    }
}

impl<B> ThrottledBody<B> {
    pub(super) const fn new(inner: B, gate: Gate<Bytes>) -> Self {
        Self { inner, gate, rest: Bytes::new() }
    }

    /// The body inside.
    #[must_use]
    pub const fn get_ref(&self) -> &B {
        &self.inner
    }

    /// The body inside. What is read from it here is not counted.
    pub const fn get_mut(&mut self) -> &mut B {
        &mut self.inner
    }

    /// The bytes of the last frame that have not passed yet.
    fn held(&self) -> u64 {
        let waiting = self.gate.item().map_or(0, Bytes::len);
        len(waiting).saturating_add(len(self.rest.len()))
    }
}

/// How many bytes wait together: what the limit gains in [`PIECE_SPAN`], and no more than it can hold,
/// than it can reserve, or than it gains in the longest wait.
///
/// Each piece is a call to the store. A limit that gains little and holds a lot, such as that of a
/// day, has larger pieces, so that what it has saved up comes in [`MOST_PIECES`] of them or so.
fn piece_of(limit: &Limit, max_wait: Duration) -> u64 {
    let quota = limit.quota();
    let gain = |span: Duration| {
        let gain = u128::from(quota.rate()).saturating_mul(span.as_nanos());
        let gain = gain.checked_div(quota.period().as_nanos()).unwrap_or(0);
        u64::try_from(gain).unwrap_or(u64::MAX)
    };
    let saved = quota.get_capacity().checked_div(MOST_PIECES).unwrap_or(0);
    // With no debt at all, nothing can wait, and a piece has to fit what is there.
    let reserved = quota.get_max_reserved().filter(|&most| most > 0).unwrap_or(u64::MAX);
    let most = match (quota.get_capacity(), quota.get_max_reserved()) {
        (0, Some(0)) => 1,
        (0, _) => reserved,
        (capacity, _) => capacity.min(reserved),
    };
    // Each shard has its part.
    let most = most.checked_div(u64::from(quota.get_shards())).unwrap_or(most);
    let piece = gain(PIECE_SPAN).max(saved.min(gain(LONGEST_SPAN)));
    piece.min(most).min(gain(max_wait)).max(1)
}

/// Short enough for an even flow, and long enough that a piece costs little beside its bytes.
const PIECE_SPAN: Duration = Duration::from_millis(50);
/// Short enough that no proxy takes the connection of a slow body for an idle one.
const LONGEST_SPAN: Duration = Duration::from_secs(10);
/// So many calls to a store take about a second. With the default capacity, which is what a quota
/// gains in its period, only quotas with a period above 100 s have larger pieces for it.
const MOST_PIECES: u64 = 2_048;

fn len(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

impl<B> Body for ThrottledBody<B>
where
    B: Body,
    B::Data: Buf,
{
    type Data = Bytes;
    type Error = ThrottleError<B::Error>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.project();
        if this.gate.failure().is_some() {
            return Poll::Ready(None);
        }
        if this.gate.item().is_none() {
            if this.rest.is_empty() {
                let frame = match ready!(this.inner.poll_frame(cx)) {
                    Some(Ok(frame)) => frame,
                    Some(Err(error)) => return Poll::Ready(Some(Err(ThrottleError::Inner(error)))),
                    None => return Poll::Ready(None),
                };
                match frame.map_data(|mut data| data.copy_to_bytes(data.remaining())).into_data() {
                    Ok(data) => *this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                }
            }
            // By the numbers in force: a piece for others might never fit.
            let piece = usize::try_from(piece_of(this.gate.limit(), this.gate.max_wait()))
                .unwrap_or(usize::MAX);
            let piece = piece.min(this.rest.len());
            let piece = this.rest.split_to(piece);
            let cost = len(piece.len());
            this.gate.hold(piece, cost);
        }
        let turn = ready!(this.gate.poll_turn(cx));
        Poll::Ready(match turn {
            Ok(()) => this.gate.take().map(|piece| Ok(Frame::data(piece))),
            Err(error) => Some(Err(ThrottleError::RateLimited(error))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.gate.failure().is_some() || (self.held() == 0 && self.inner.is_end_stream())
    }

    /// That of the inner body, and what is held: every byte that comes in goes out, unless the body
    /// ends with an error. After that, there are none.
    fn size_hint(&self) -> SizeHint {
        if self.gate.failure().is_some() {
            return SizeHint::with_exact(0);
        }
        let (inner, held) = (self.inner.size_hint(), self.held());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper().and_then(|upper| upper.checked_add(held)) {
            hint.set_upper(upper);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{DAY, MINUTE, Quota, SECOND};

    #[test]
    fn a_piece_is_what_comes_in_50_ms_and_fits_the_limit() {
        let bytes = Quota::token_bucket(1_000_000, SECOND);
        for (quota, piece) in [
            (bytes, 50_000),
            (bytes.capacity(4_096), 4_096),
            (bytes.capacity(0), 50_000),
            (bytes.capacity(0).max_reserved(10_000), 10_000),
            (bytes.capacity(0).max_reserved(0), 1),
            (bytes.capacity(10_000).max_reserved(1), 1),
            (bytes.capacity(10_000).max_reserved(0), 10_000),
            (bytes.max_reserved(10_000), 10_000),
            (bytes.capacity(40_000).shards(4), 10_000),
            (Quota::token_bucket(60_000, MINUTE), 50),
            (Quota::token_bucket(10, DAY), 1),
            (Quota::token_bucket(100_000_000, DAY), 11_574),
            (Quota::token_bucket(100_000_000, DAY).capacity(8_192_000), 4_000),
            (Quota::token_bucket(100_000_000, DAY).capacity(0), 57),
            (Quota::fixed_window(60_000, MINUTE), 50),
        ] {
            assert_eq!(piece_of(&Limit::new("bytes", quota), Duration::MAX), piece, "{quota}");
        }
        let daily = Limit::new("bytes", Quota::token_bucket(100_000_000, DAY));
        for (max_wait, piece) in [(20, 11_574), (5, 5_787), (0, 1)] {
            assert_eq!(piece_of(&daily, Duration::from_secs(max_wait)), piece);
        }
    }
}
