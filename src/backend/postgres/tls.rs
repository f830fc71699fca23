//! How connections are made, with TLS or without.

use deadpool_postgres::{Manager, ManagerConfig, RecyclingMethod};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Config, NoTls};

#[cfg(feature = "postgres-tls")]
use crate::backend::remote::tls::client_config;

/// The certificates for TLS, in PEM.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    #[cfg(feature = "postgres-tls")]
    pub(super) root: Option<Vec<u8>>,
    #[cfg(feature = "postgres-tls")]
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// Makes connections by these settings.
///
/// # Errors
///
/// A sentence about settings that do not fit.
pub(super) fn manager(
    config: Config,
    certificates: &Certificates,
) -> Result<Manager, &'static str> {
    // A closed connection is noticed without a question to the server.
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    #[cfg(feature = "postgres-tls")]
    if config.get_ssl_mode() != SslMode::Disable {
        let own = certificates.client.as_ref().map(|(chain, key)| (&**chain, &**key));
        let tls = client_config(certificates.root.as_deref(), own)?;
        let tls = tokio_postgres_rustls::MakeRustlsConnect::new(tls);
        return Ok(Manager::from_config(config, tls, recycling));
    }
    let Certificates { .. } = certificates;
    if config.get_ssl_mode() == SslMode::Require && !cfg!(feature = "postgres-tls") {
        return Err("`sslmode=require` needs the feature `postgres-tls`");
    }
    Ok(Manager::from_config(config, NoTls, recycling))
}
