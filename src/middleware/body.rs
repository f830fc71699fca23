//! The body of a response: that of the inner service, or that of a refusal.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

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
        Inner { #[pin] body: B },
        Refusal { text: RefusalText },
    }
}

/// The text of a refusal, if any. It has the size of one pointer, since every response has room for
/// it.
pub(super) type RefusalText = Option<Arc<Bytes>>;

/// Boxes a text, so that a body has the size of one pointer.
pub(super) fn to_refusal_text(text: Bytes) -> RefusalText {
    // An empty text becomes no text, and so no empty frame: a gRPC client reads the head as
    // trailers only if the stream ends with it.
    (!text.is_empty()).then(|| Arc::new(text))
}

impl<B> ResponseBody<B> {
    pub(super) const fn inner(body: B) -> Self {
        Self { kind: BodyKind::Inner { body } }
    }

    pub(super) const fn refusal(text: RefusalText) -> Self {
        Self { kind: BodyKind::Refusal { text } }
    }

    /// Returns the body of the inner service; `None` if the request did not run.
    #[must_use]
    pub fn into_inner(self) -> Option<B> {
        match self.kind {
            BodyKind::Inner { body } => Some(body),
            BodyKind::Refusal { .. } => None,
        }
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
            BodyKindProjection::Inner { body } => body.poll_frame(cx),
            BodyKindProjection::Refusal { text } => Poll::Ready(
                text.take().map(|text| Ok(Frame::data(Arc::unwrap_or_clone(text).into()))),
            ),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Inner { body } => body.is_end_stream(),
            BodyKind::Refusal { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Inner { body } => body.size_hint(),
            BodyKind::Refusal { text } => {
                let len = text.as_ref().map_or(0, |text| text.len());
                SizeHint::with_exact(u64::try_from(len).unwrap_or(u64::MAX))
            }
        }
    }
}
