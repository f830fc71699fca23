//! The body of a response: that of the inner service, or that of a refusal.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::ledger::RunningLedger;

pin_project! {
    /// The body of a response: that of the inner service, or that of a refusal.
    ///
    /// It implements [`Body`] if the inner body does and its data can be made from [`Bytes`], as
    /// for all bodies of `Bytes`.
    #[derive(Clone, Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: BodyKind<B>,
    }
}

pin_project! {
    #[derive(Clone, Debug)]
    #[project = BodyKindProjection]
    enum BodyKind<B> {
        // `end`: of a request that is in flight until the body has ended.
        Inner { #[pin] body: B, end: Option<Arc<RunningLedger>> },
        Refusal { text: RefusalText },
    }
}

/// The text of a refusal.
#[derive(Clone, Debug)]
pub(super) enum RefusalText {
    /// None, also in place of an empty one, which would be an empty frame: a gRPC client reads the
    /// head as trailers only if the stream ends with it.
    None,
    /// That of the only limit of a layer.
    Kept(&'static Bytes),
    /// Boxed, since every response has room for it.
    Own(Box<Bytes>),
}

impl RefusalText {
    pub(super) fn new(text: Bytes) -> Self {
        if text.is_empty() { Self::None } else { Self::Own(Box::new(text)) }
    }

    pub(super) const fn take(&mut self) -> Self {
        std::mem::replace(self, Self::None)
    }

    pub(super) fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::None => None,
            Self::Kept(text) => Some(text),
            Self::Own(text) => Some(text),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes().map_or(0, Bytes::len)
    }
}

impl<B> ResponseBody<B> {
    /// The body of the inner service; with an `end`, of a request that is in flight until the body has
    /// ended, or is dropped.
    pub(super) const fn inner(body: B, end: Option<Arc<RunningLedger>>) -> Self {
        Self { kind: BodyKind::Inner { body, end } }
    }

    pub(super) const fn refusal(text: RefusalText) -> Self {
        Self { kind: BodyKind::Refusal { text } }
    }

    /// Returns the body of the inner service; `None` if the request did not run.
    ///
    /// A request that is counted while it is [in flight](crate::Quota::in_flight) ends here for its
    /// limit.
    #[must_use]
    pub fn into_inner(self) -> Option<B> {
        match self.kind {
            BodyKind::Inner { body, .. } => Some(body),
            BodyKind::Refusal { .. } => None,
        }
    }
}

/// That of an inner service that answers with an empty body, as layers that answer by themselves need
/// it: those of tower-http for CORS and timeouts, say.
impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::inner(B::default(), None)
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            // Returned as it is: a frame that is looked at first is copied.
            BodyKindProjection::Inner { body, end: None } => body.poll_frame(cx),
            BodyKindProjection::Inner { body, end } => {
                let polled = body.poll_frame(cx);
                if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
                    *end = None;
                }
                polled
            }
            BodyKindProjection::Refusal { text } => {
                let text = text.take().bytes().cloned();
                Poll::Ready(text.map(|text| Ok(Frame::data(text.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Inner { body, .. } => body.is_end_stream(),
            BodyKind::Refusal { text } => matches!(text, RefusalText::None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Inner { body, .. } => body.size_hint(),
            BodyKind::Refusal { text } => {
                SizeHint::with_exact(u64::try_from(text.len()).unwrap_or(u64::MAX))
            }
        }
    }
}
