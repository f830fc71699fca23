//! TLS: which certificates to trust, and which to show.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Settings that trust these authorities, or those that are well known, and show this certificate.
/// All are in PEM.
///
/// # Errors
///
/// What is wrong with them, without quoting them: an error of the parser quotes a key whose line
/// breaks are lost.
pub fn client_config(
    root: Option<&[u8]>,
    own: Option<(&[u8], &[u8])>,
) -> Result<ClientConfig, &'static str> {
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
    Ok(config)
}

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

fn certificates(
    pem: &[u8],
    wrong: &'static str,
) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| wrong)
}
