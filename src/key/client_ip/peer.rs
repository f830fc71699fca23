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
    if let Some(axum::extract::ConnectInfo(peer)) = head.extensions().get() {
        return Some(peer);
    }
    other_address(head)
}

/// Not inlined, as nearly all servers that know the address provide it as axum does.
#[cfg_attr(feature = "axum", cold)]
#[inline(never)]
fn other_address<'a>(head: &Head<'a>) -> Option<&'a SocketAddr> {
    // Like axum's own extractor: the mock of a test counts only if there is no real address.
    #[cfg(feature = "axum")]
    if let Some(axum::extract::connect_info::MockConnectInfo(peer)) = head.extensions().get() {
        return Some(peer);
    }
    head.extensions().get()
}
