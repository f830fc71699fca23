//! A bound on the bytes that a server may send: the answers that its calls can have, and a margin.
//!
//! # Design
//!
//! The client library keeps an answer in memory until it is complete, however long the server makes
//! it. So a hostile server could fill the memory. That is why bytes are counted below the library,
//! where they arrive.
//!
//! Each call that is under way adds the length of its longest answer to the bound. What a server
//! may send otherwise (its greeting, errors, messages that no call asked for) is within the margin.
//! Each complete answer sets the count of bytes to zero.
//!
//! For example, two calls with answers of at most 600 bytes are under way. The bound is 64 KiB +
//! 1,200 bytes. When the first answer is complete, the count starts over, and the bound is 64 KiB +
//! 600 bytes.
//!
//! A call may learn of its answer after the bytes behind the answer have arrived, so the count may
//! start over too late. That does no harm: each call that is still under way keeps its part of the
//! bound.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::silence::Silence;

/// The bytes that may arrive on a connection, and those that have arrived.
#[derive(Debug)]
pub(super) struct Allowance {
    /// The bytes that may arrive until the next answer is complete.
    most: AtomicUsize,
    /// The bytes that have arrived since the last complete answer.
    arrived: AtomicUsize,
}

impl Allowance {
    pub(super) const fn new() -> Self {
        Self { most: AtomicUsize::new(MARGIN), arrived: AtomicUsize::new(0) }
    }

    /// Adds the longest answer of a call, until the returned value is dropped.
    pub(super) fn extend(&self, longest: usize) -> ExpectedAnswer<'_> {
        // The call is sent after this, so its answer cannot arrive before: relaxed order suffices.
        self.most.fetch_add(longest, Ordering::Relaxed);
        ExpectedAnswer { allowance: self, longest }
    }

    /// Counts bytes that have arrived.
    ///
    /// # Errors
    ///
    /// If more bytes have arrived than may.
    fn count(&self, bytes: usize) -> io::Result<()> {
        // Relaxed as well: the numbers bound memory, and guard nothing else. One that is a little
        // late lets one answer more arrive, or one less.
        let arrived = self.arrived.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let most = self.most.load(Ordering::Relaxed);
        if arrived <= most {
            return Ok(());
        }
        Err(io::Error::other(format!("it sent more than {most} bytes without a complete answer")))
    }
}

/// The part of the bound that belongs to a call under way.
#[derive(Debug)]
pub(super) struct ExpectedAnswer<'a> {
    allowance: &'a Allowance,
    longest: usize,
}

impl ExpectedAnswer<'_> {
    /// Notes that the answer is complete.
    pub(super) fn complete(self) {
        self.allowance.arrived.store(0, Ordering::Relaxed);
    }
}

impl Drop for ExpectedAnswer<'_> {
    fn drop(&mut self) {
        self.allowance.most.fetch_sub(self.longest, Ordering::Relaxed);
    }
}

/// A stream that fails if more bytes arrive than may, and that notes when some do.
#[derive(Debug)]
pub(super) struct BoundedStream<S> {
    stream: S,
    allowance: Arc<Allowance>,
    silence: Arc<Silence>,
}

impl<S> BoundedStream<S> {
    pub(super) const fn new(stream: S, allowance: Arc<Allowance>, silence: Arc<Silence>) -> Self {
        Self { stream, allowance, silence }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let waker = self.silence.waker(cx.waker());
        ready!(Pin::new(&mut self.stream).poll_read(&mut Context::from_waker(&waker), buffer))?;
        self.silence.hear();
        Poll::Ready(self.allowance.count(buffer.filled().len().saturating_sub(before)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let now = self.silence.now();
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.silence.ask(now);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Far more than a greeting or an error needs. The client library takes up to 60 bytes of memory
/// for each byte that a hostile server sends, so this is 4 MB of memory.
const MARGIN: usize = 64 * 1024;
