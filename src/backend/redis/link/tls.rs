//! TLS: which certificates to trust, and which to show.

use std::fmt;
use std::io;

use tokio::net::TcpStream;
#[cfg(feature = "redis-tls")]
use {
    rustls::crypto::{CryptoProvider, ring},
    rustls::pki_types::pem::PemObject as _,
    rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    rustls::{ClientConfig, RootCertStore},
    std::sync::Arc,
    tokio_rustls::TlsConnector,
    tokio_rustls::client::TlsStream,
};

/// The settings of TLS. Without the feature `redis-tls` there is no value of this type.
#[derive(Clone)]
pub(super) struct TlsSettings(
    #[cfg(feature = "redis-tls")] Arc<ClientConfig>,
    #[cfg(not(feature = "redis-tls"))] std::convert::Infallible,
);

impl TlsSettings {
    /// Settings that trust these authorities, or those that are well known, and show this
    /// certificate. All are in PEM.
    ///
    /// # Errors
    ///
    /// What is wrong with them, without quoting them: an error of the parser quotes a key whose
    /// line breaks are lost.
    #[cfg(feature = "redis-tls")]
    pub(super) fn new(
        root: Option<&[u8]>,
        own: Option<(&[u8], &[u8])>,
    ) -> Result<Self, &'static str> {
        // The one that the process has installed, if any.
        let cryptography = CryptoProvider::get_default().cloned();
        let cryptography = cryptography.unwrap_or_else(|| Arc::new(ring::default_provider()));
        let config = ClientConfig::builder_with_provider(cryptography)
            .with_safe_default_protocol_versions()
            .map_err(|_| "the cryptography of this process supports no version of TLS")?
            .with_root_certificates(roots(root)?);
        let config = match own {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = certificates(chain, "the client certificate is not PEM")?;
                if chain.is_empty() {
                    return Err("there is no client certificate in the PEM");
                }
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| "there is no private key in the PEM")?;
                config
                    .with_client_auth_cert(chain, key)
                    .map_err(|_| "the private key does not fit the client certificate")?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// Makes the TLS handshake, and checks that the server is this host.
    #[cfg(feature = "redis-tls")]
    pub(super) async fn greet(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.0)).connect(host, stream).await
    }

    #[cfg(not(feature = "redis-tls"))]
    pub(super) async fn greet(&self, _: &str, _: TcpStream) -> io::Result<TcpStream> {
        match self.0 {}
    }
}

#[cfg(feature = "redis-tls")]
fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, &'static str> {
    let mut roots = RootCertStore::empty();
    match pem {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for root in certificates(pem, "the root certificate is not PEM")? {
                roots.add(root).map_err(|_| "the root certificate is invalid")?;
            }
        }
    }
    if roots.is_empty() {
        return Err("there is no root certificate in the PEM");
    }
    Ok(roots)
}

#[cfg(feature = "redis-tls")]
fn certificates(
    pem: &[u8],
    wrong: &'static str,
) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| wrong)
}

/// Shows no keys.
impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsSettings")
    }
}
