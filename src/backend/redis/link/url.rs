//! The servers of a store, from the URLs that the user gave.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "redis-tls")]
use ::redis::ConnectionAddr;
use ::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use ::redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::dial::Dial;
use super::error::LinkError;
use super::sentinel::Sentinels;
use super::server::Server;
use crate::backend::BackendError;

/// The servers of one store.
#[derive(Clone, Debug)]
pub(in crate::backend::redis) struct Servers(pub(super) Topology);

#[derive(Clone, Debug)]
pub(super) enum Topology {
    /// One connection: to a server, or to the master that sentinels name.
    One(Dial),
    /// The known nodes of a cluster.
    Cluster(Vec<Server>),
}

/// What all connections share, beside their URL.
#[derive(Clone, Default)]
pub(in crate::backend::redis) struct ConnectOptions {
    /// The certificates to trust, in PEM.
    #[cfg(feature = "redis-tls")]
    pub(in crate::backend::redis) root: Option<Vec<u8>>,
    /// The own certificate and its key, in PEM.
    #[cfg(feature = "redis-tls")]
    pub(in crate::backend::redis) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Servers {
    /// A single server.
    pub(in crate::backend::redis) fn single(
        url: &str,
        common: &ConnectOptions,
    ) -> Result<Self, BackendError> {
        let server = Server::new(parse(url, common)?);
        Ok(Self(Topology::One(Dial::Server(Arc::new(server)))))
    }

    /// A cluster, of which some nodes are known; the first URL has the login of all.
    pub(in crate::backend::redis) fn cluster(
        urls: &[String],
        common: &ConnectOptions,
    ) -> Result<Self, BackendError> {
        let (first, infos) = parse_all(urls, common)?;
        let settings = first.redis_settings();
        if settings.db() != 0 {
            return Err(wrong(format!(
                "a cluster has no database {} (leave it out of the URL)",
                settings.db()
            )));
        }
        let seeds = infos.into_iter().map(|info| info.set_redis_settings(settings.clone()));
        Ok(Self(Topology::Cluster(seeds.map(Server::new).collect())))
    }

    /// The master that these sentinels name; the first URL has the login of the data nodes.
    pub(in crate::backend::redis) fn sentinel(
        urls: &[String],
        master: &str,
        own: Option<(&str, &str)>,
        common: &ConnectOptions,
    ) -> Result<Self, BackendError> {
        let (first, infos) = parse_all(urls, common)?;
        let settings = match own {
            Some((user, password)) => bare().set_username(user).set_password(password),
            None => bare(),
        };
        let sentinels = infos.into_iter().map(|info| info.set_redis_settings(settings.clone()));
        let sentinels = sentinels.map(Server::new).collect();
        let sentinels = Sentinels::new(sentinels, master.to_owned(), Server::new(first));
        Ok(Self(Topology::One(Dial::Master(Arc::new(sentinels)))))
    }
}

/// The first and all of them, the first included.
fn parse_all(
    urls: &[String],
    common: &ConnectOptions,
) -> Result<(ConnectionInfo, Vec<ConnectionInfo>), BackendError> {
    let infos = urls.iter().map(|url| parse(url, common));
    let infos = infos.collect::<Result<Vec<_>, _>>()?;
    match infos.first() {
        Some(first) => Ok((first.clone(), infos)),
        None => Err(wrong("no URL was given (at least one is needed, like redis://host:6379)")),
    }
}

fn wrong(cause: impl Into<Box<dyn Error + Send + Sync>>) -> BackendError {
    BackendError::misconfigured("redis", cause)
}

/// A login without user and database. RESP3 reports at once when a server hangs up.
fn bare() -> RedisConnectionInfo {
    RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3)
}

fn parse(url: &str, common: &ConnectOptions) -> Result<ConnectionInfo, BackendError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if cfg!(not(feature = "redis-tls")) && matches!(scheme, "rediss" | "valkeys") {
        return Err(wrong(format!(
            "`{}` asks for TLS, which needs the feature `redis-tls` of tollgate",
            without_secrets(url)
        )));
    }
    let info = url.into_connection_info().map_err(|cause| {
        let text = format!(
            "`{}` is not the URL of a server (redis://user:password@host:port/db, rediss:// for \
             TLS, unix:///path for a socket)",
            without_secrets(url)
        );
        wrong(LinkError::with_cause(text, cause))
    })?;
    #[cfg(feature = "redis-tls")]
    if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        choose_cryptography();
    }
    let info = certified(info, common)?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    // Finds out that an idle connection is dead before a call uses it.
    let keepalive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE_AGAIN);
    #[cfg(unix)]
    let keepalive = keepalive.with_retries(KEEP_ALIVE_TRIES);
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

#[cfg(not(feature = "redis-tls"))]
fn certified(info: ConnectionInfo, _: &ConnectOptions) -> Result<ConnectionInfo, BackendError> {
    Ok(info)
}

/// Installs a cryptography provider: the client panics if the process has none, or several.
#[cfg(feature = "redis-tls")]
fn choose_cryptography() {
    use rustls::crypto::{CryptoProvider, ring};

    if CryptoProvider::get_default().is_none() {
        // An error means that another thread installed one meanwhile.
        drop(ring::default_provider().install_default());
    }
}

/// The same server, reached with the certificates that were given.
#[cfg(feature = "redis-tls")]
fn certified(
    info: ConnectionInfo,
    common: &ConnectOptions,
) -> Result<ConnectionInfo, BackendError> {
    use ::redis::{Client, ClientTlsConfig, TlsCertificates};

    if common.root.is_none() && common.client.is_none() {
        return Ok(info);
    }
    let address = info.addr().to_string();
    let client_tls = common.client.clone();
    let client_tls =
        client_tls.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let certificates = TlsCertificates { client_tls, root_cert: common.root.clone() };
    match Client::build_with_tls(info, certificates) {
        Ok(client) => Ok(client.get_connection_info().clone()),
        Err(cause) => {
            let text = format!(
                "the certificates cannot be used for {address} (they are PEM, for a rediss:// URL)"
            );
            Err(wrong(LinkError::with_cause(text, cause)))
        }
    }
}

/// A URL that may be shown: without user, password and query, and without anything that might be
/// meant as one of them.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    let (secret, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => ("..@", rest),
        None => ("", rest),
    };
    let (rest, query) = match rest.find(['?', '#']) {
        Some(at) => (rest.get(..at).unwrap_or_default(), ".."),
        None => (rest, ""),
    };
    // Without a host, a password stands where the port would be.
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let rest = match rest.rsplit_once(':') {
        Some((host, port)) if !digits(port.split('/').next().unwrap_or_default()) => {
            format!("{host}:..")
        }
        _ => rest.to_owned(),
    };
    format!("{scheme}{secret}{rest}{query}")
}

/// TCP probes an idle connection after 15 seconds, then every 5, and gives it up after half a minute.
/// The defaults of most systems keep probing for ten minutes and more.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(5);
#[cfg(unix)]
const KEEP_ALIVE_TRIES: u32 = 3;
