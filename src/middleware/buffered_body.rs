//! A body that has been read into memory, up to a bound.

use std::convert::Infallible;
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// The body of a request that [`buffer_body`](super::buffer_body()) has read: the same bytes, in
/// one frame, and the same trailers.
///
/// The frames in which the client sent the bytes are lost. The length is known, also of a body that
/// came without `Content-Length`.
#[derive(Clone, Debug, Default)]
pub struct BufferedBody {
    data: Bytes,
    trailers: Option<HeaderMap>,
}

impl BufferedBody {
    /// The bytes of the body; empty once they were polled.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.data
    }

    /// Returns the bytes of the body, without its trailers.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.data
    }
}

impl Body for BufferedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match self.data.is_empty() {
            false => Some(Frame::data(mem::take(&mut self.data))),
            true => self.trailers.take().map(Frame::trailers),
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.data.len()).unwrap_or(u64::MAX))
    }
}

/// Why a body could not be read into memory.
#[derive(Debug)]
pub(crate) enum BufferError<E> {
    TooLarge,
    Broken(E),
}

/// Reads a body into memory. Reads nothing if its length is known to be above the bound, as it is
/// from `Content-Length`.
///
/// Dropping the future drops the body.
pub(crate) async fn buffer<B: Body>(
    body: B,
    max_bytes: usize,
) -> Result<BufferedBody, BufferError<B::Error>> {
    if usize::try_from(body.size_hint().lower()).map_or(true, |lower| lower > max_bytes) {
        return Err(BufferError::TooLarge);
    }
    let mut body = pin!(body);
    // Most bodies are one frame, which is kept as it is. Further ones are copied: a client that
    // sends single bytes would otherwise hold the server's read buffer for each of them. The memory
    // grows with what has come, and not with what `Content-Length` announces.
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    let mut room = max_bytes;
    let mut trailers: Option<HeaderMap> = None;
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        match frame.map_err(BufferError::Broken)?.into_data() {
            Ok(mut data) => {
                let len = data.remaining();
                room = room.checked_sub(len).ok_or(BufferError::TooLarge)?;
                if first.is_empty() && all.is_empty() {
                    first = data.copy_to_bytes(len);
                } else {
                    all.put(mem::take(&mut first));
                    all.put(data);
                }
            }
            Err(frame) => {
                if let Ok(more) = frame.into_trailers() {
                    trailers.get_or_insert_default().extend(more);
                }
            }
        }
    }
    let data = if all.is_empty() { first } else { all.freeze() };
    Ok(BufferedBody { data, trailers })
}
