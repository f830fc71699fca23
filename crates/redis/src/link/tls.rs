//! TLS: which certificates to trust, and which to show.

use std::fmt;
use std::io;

use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use {
    rustls::ClientConfig, rustls::pki_types::ServerName, std::sync::Arc,
    tokio_rustls::TlsConnector, tokio_rustls::client::TlsStream, tollgate_kit::tls::client_config,
};

/// The settings of TLS. Without the feature `tls` there is no value of this type.
#[derive(Clone)]
pub(super) struct TlsSettings(
    #[cfg(feature = "tls")] Arc<ClientConfig>,
    #[cfg(not(feature = "tls"))] std::convert::Infallible,
);

impl TlsSettings {
    /// Settings that trust these authorities, or those that are well known, and show this
    /// certificate. All are in PEM.
    ///
    /// # Errors
    ///
    /// What is wrong with them, without quoting them: an error of the parser quotes a key whose
    /// line breaks are lost.
    #[cfg(feature = "tls")]
    pub(super) fn new(
        root: Option<&[u8]>,
        own: Option<(&[u8], &[u8])>,
    ) -> Result<Self, &'static str> {
        Ok(Self(Arc::new(client_config(root, own)?)))
    }

    /// Makes the TLS handshake, and checks that the server is this host.
    #[cfg(feature = "tls")]
    pub(super) async fn greet(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.0)).connect(host, stream).await
    }

    #[cfg(not(feature = "tls"))]
    pub(super) async fn greet(&self, _: &str, _: TcpStream) -> io::Result<TcpStream> {
        match self.0 {}
    }
}

/// Shows no keys.
impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsSettings")
    }
}
