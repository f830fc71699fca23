//! The other end of the connection.

use std::net::{IpAddr, SocketAddr};

use crate::key::head::Head;

/// The address of the peer, if the server provides it.
#[inline]
pub(super) fn peer(head: &Head<'_>) -> Option<IpAddr> {
    socket_address(head).map(SocketAddr::ip)
}

#[inline]
fn socket_address<'a>(head: &Head<'a>) -> Option<&'a SocketAddr> {
    #[cfg(feature = "axum")]
    {
        use axum::extract::ConnectInfo;
        use axum::extract::connect_info::MockConnectInfo;
        let extensions = head.extensions();
        let real = extensions.get().map(|ConnectInfo(peer)| peer);
        // Like axum's own extractor: the mock of a test counts only if there is no real address.
        if let Some(peer) = real.or_else(|| extensions.get().map(|MockConnectInfo(peer)| peer)) {
            return Some(peer);
        }
    }
    head.extensions().get()
}
