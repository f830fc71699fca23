//! The other end of the connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::Extensions;

use crate::key::head::Head;

/// Further extensions in which servers leave the peer's address.
#[derive(Clone, Default)]
pub(super) struct PeerPlaces(Vec<Arc<PeerPlace>>);

type PeerPlace = dyn Fn(&Extensions) -> Option<SocketAddr> + Send + Sync;

impl PeerPlaces {
    pub(super) const NONE: Self = Self(Vec::new());

    pub(super) fn push(
        &mut self,
        place: impl Fn(&Extensions) -> Option<SocketAddr> + Send + Sync + 'static,
    ) {
        self.0.push(Arc::new(place));
    }
}

impl fmt::Debug for PeerPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.len())
    }
}

/// The address of the peer, if the server provides it.
#[inline]
pub(super) fn peer(head: &Head<'_>, others: &PeerPlaces) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(peer)) = head.extensions().get::<ConnectInfo>() {
        return Some(SocketAddr::ip(peer));
    }
    other_address(head, others)
}

#[cfg(feature = "axum")]
type ConnectInfo = axum::extract::ConnectInfo<SocketAddr>;

/// Not inlined, as nearly all servers that know the address provide it as axum does.
#[cfg_attr(feature = "axum", cold)]
#[inline(never)]
fn other_address(head: &Head<'_>, others: &PeerPlaces) -> Option<IpAddr> {
    let extensions = head.extensions();
    // Like axum's own extractor: the mock of a test counts only if there is no real address.
    #[cfg(feature = "axum")]
    if let Some(axum::extract::connect_info::MockConnectInfo(peer)) = extensions.get() {
        return Some(SocketAddr::ip(peer));
    }
    let other = || others.0.iter().find_map(|place| place(extensions));
    extensions.get().copied().or_else(other).map(|peer: SocketAddr| peer.ip())
}
