//! How much a server may send: the answers that its calls can have, and a margin.
//!
//! # Design
//!
//! The client of Redis keeps an answer in memory until it is complete, however long the server
//! makes it. So the bytes are counted below that client, where they arrive. Each call that is under
//! way adds the length of its longest answer to what may arrive until the next answer is complete.
//! All that a server may send besides (its greeting, errors, messages that no call asked for) has
//! the margin.
//!
//! Calls may be told of their answers later than the bytes behind these arrive. So each answer sets
//! the count of bytes to zero, and each call that is still under way keeps its part of the bound.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes that may arrive on a connection, and those that did.
#[derive(Debug)]
pub(super) struct Allowance {
    /// What may arrive until the next answer is complete.
    most: AtomicUsize,
    /// What arrived since the last one.
    arrived: AtomicUsize,
}

impl Allowance {
    pub(super) const fn new() -> Self {
        Self { most: AtomicUsize::new(MARGIN), arrived: AtomicUsize::new(0) }
    }

    /// Adds the longest answer of a call, until the returned value is dropped.
    pub(super) fn extend(&self, longest: usize) -> ExpectedAnswer<'_> {
        // A call whose bytes are read was sent after this, so no order is needed.
        self.most.fetch_add(longest, Ordering::Relaxed);
        ExpectedAnswer { allowance: self, longest }
    }

    /// Counts what has arrived.
    ///
    /// # Errors
    ///
    /// If that is more than may arrive.
    fn count(&self, bytes: usize) -> io::Result<()> {
        let arrived = self.arrived.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let most = self.most.load(Ordering::Relaxed);
        if arrived <= most {
            return Ok(());
        }
        Err(io::Error::other(format!("it sent more than {most} bytes without a complete answer")))
    }
}

/// The part of a call that is under way.
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

/// A stream that fails when more arrives than may.
#[derive(Debug)]
pub(super) struct BoundedStream<S> {
    stream: S,
    allowance: Arc<Allowance>,
}

impl<S> BoundedStream<S> {
    pub(super) const fn new(stream: S, allowance: Arc<Allowance>) -> Self {
        Self { stream, allowance }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        Poll::Ready(self.allowance.count(buffer.filled().len().saturating_sub(before)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Far more than a greeting or an error has. The client makes up to 60 bytes of each byte that a
/// hostile server sends, so this is 4 MB of memory.
const MARGIN: usize = 64 * 1024;
