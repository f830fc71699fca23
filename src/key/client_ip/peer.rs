//! Who is at the other end of the connection.

use std::net::{IpAddr, SocketAddr};

use crate::key::head::Head;

/// The peer's address, if the server has told it.
#[inline]
pub(super) fn peer(head: &Head<'_>) -> Option<IpAddr> {
    connected(head).map(|peer| peer.ip())
}

fn connected(head: &Head<'_>) -> Option<SocketAddr> {
    #[cfg(feature = "axum")]
    {
        use axum::extract::ConnectInfo;
        use axum::extract::connect_info::MockConnectInfo;
        let extensions = head.extensions();
        let real = extensions.get().map(|&ConnectInfo(peer)| peer);
        // As axum's own extractor does: what a test pretends counts where nothing is real.
        if let Some(peer) = real.or_else(|| extensions.get().map(|&MockConnectInfo(peer)| peer)) {
            return Some(peer);
        }
    }
    head.extensions().get().copied()
}
