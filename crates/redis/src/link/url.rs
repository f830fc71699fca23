//! The servers of a store, from the URLs that the user gave.
//!
//! No error quotes a URL that cannot be read: wherever a separator is missing or too much, a
//! password may stand in any part of it.

use std::error::Error;
use std::sync::Arc;

use ::redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};

use super::address::Address;
use super::address_map::AddressMap;
use super::dial::Dial;
use super::sentinel::Sentinels;
use super::server::Server;
use super::tls::TlsSettings;
use tollgate::backend::BackendError;

/// The servers of one store.
#[derive(Clone, Debug)]
pub(crate) struct Servers(pub(super) Topology);

#[derive(Clone, Debug)]
pub(super) enum Topology {
    /// One connection: to a server, or to the master that sentinels name.
    One(Dial),
    /// The known nodes of a cluster, and where those are reached that they name.
    Cluster(Vec<Server>, AddressMap),
}

/// The settings that all connections share, besides their URL.
#[derive(Clone, Default)]
pub(crate) struct ConnectOptions {
    /// The certificates to trust, in PEM.
    #[cfg(feature = "tls")]
    pub(crate) root: Option<Vec<u8>>,
    /// The client certificate and its key, in PEM.
    #[cfg(feature = "tls")]
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
    /// Where the servers are reached that others name.
    pub(crate) map: AddressMap,
}

impl Servers {
    /// A single server.
    pub(crate) fn single(url: &str, common: &ConnectOptions) -> Result<Self, BackendError> {
        let server = parse(url, UrlPosition::TheOnly, common)?;
        Ok(Self(Topology::One(Dial::Server(Arc::new(server)))))
    }

    /// A cluster, with the URLs of some nodes. The first URL has the login of all nodes.
    pub(crate) fn cluster(urls: &[String], common: &ConnectOptions) -> Result<Self, BackendError> {
        let (first, servers) = parse_all(urls, common)?;
        if first.database() != 0 {
            return Err(misconfigured(format!(
                "a cluster has no database {} (leave it out of the URL)",
                first.database()
            )));
        }
        let seeds = servers.into_iter().map(|server| server.with_login_of(&first));
        Ok(Self(Topology::Cluster(seeds.collect(), common.map.clone())))
    }

    /// The master that these sentinels name. The first URL has the login of the data nodes.
    pub(crate) fn sentinel(
        urls: &[String],
        master: &str,
        own: Option<(&str, &str)>,
        common: &ConnectOptions,
    ) -> Result<Self, BackendError> {
        let (first, servers) = parse_all(urls, common)?;
        let login = match own {
            Some((user, password)) => default_login().set_username(user).set_password(password),
            None => default_login(),
        };
        let sentinels = servers.into_iter().map(|server| server.with_login(login.clone()));
        let (sentinels, map) = (sentinels.collect(), common.map.clone());
        let sentinels = Sentinels::new(sentinels, master.to_owned(), first, map);
        Ok(Self(Topology::One(Dial::Master(Arc::new(sentinels)))))
    }
}

/// The first and all of them, the first included.
fn parse_all(
    urls: &[String],
    common: &ConnectOptions,
) -> Result<(Server, Vec<Server>), BackendError> {
    let count = urls.len();
    let servers =
        urls.iter().zip(1..).map(|(url, nth)| parse(url, UrlPosition::Nth(nth, count), common));
    let servers = servers.collect::<Result<Vec<_>, _>>()?;
    match servers.first() {
        Some(first) => Ok((first.clone(), servers)),
        None => {
            Err(misconfigured("no URL was given (at least one is needed, like redis://host:6379)"))
        }
    }
}

fn misconfigured(cause: impl Into<Box<dyn Error + Send + Sync>>) -> BackendError {
    BackendError::misconfigured("redis", cause)
}

/// A login without user and database. RESP3 reports at once when a server hangs up.
fn default_login() -> RedisConnectionInfo {
    RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3)
}

/// Which URL of the list this is, for messages.
#[derive(Clone, Copy)]
enum UrlPosition {
    TheOnly,
    Nth(usize, usize),
}

impl UrlPosition {
    /// The error about this URL.
    fn error(self, problem: &str) -> BackendError {
        let which = match self {
            Self::TheOnly | Self::Nth(_, 1) => "the URL of the server".to_owned(),
            Self::Nth(nth, count) => format!("URL {nth} of {count}"),
        };
        misconfigured(format!("{which} cannot be used: {problem} ({FORM})"))
    }
}

/// The way out of an error in a URL.
const FORM: &str = "write redis://user:password@host:port/db, rediss:// for TLS or unix:///path for a \
                    socket, and in a password %40 for `@`, %2F for `/` and so on";

fn parse(url: &str, which: UrlPosition, common: &ConnectOptions) -> Result<Server, BackendError> {
    let unusable = |problem| which.error(problem);
    let (scheme, rest) = url.trim().split_once("://").unwrap_or(("", url.trim()));
    let scheme = scheme.to_ascii_lowercase();
    // The client library reads a URL with TLS only if it makes the connection itself.
    let (is_tls, plain) = match scheme.as_str() {
        "rediss" | "valkeys" => (true, format!("redis://{rest}")),
        _ => (false, format!("{scheme}://{rest}")),
    };
    if is_tls && cfg!(not(feature = "tls")) {
        return Err(unusable("it asks for TLS, which needs the feature `tls` of `tollgate-redis`"));
    }
    if let Some(problem) = problem(&scheme, rest, &plain) {
        return Err(unusable(problem));
    }
    let info =
        plain.into_connection_info().map_err(|_| unusable("it is not the URL of a server"))?;
    let address = match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let address = |tls| Address::Tcp { host: host.clone(), port: *port, tls };
            let tls = tls_settings(is_tls, &address(None), common)?;
            address(tls)
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let address = Address::Unix(path.clone());
            tls_settings(false, &address, common)?;
            address
        }
        _ => return Err(unusable("it is not the URL of a server")),
    };
    Ok(Server::new(address, login(&info)))
}

fn login(info: &ConnectionInfo) -> RedisConnectionInfo {
    info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3)
}

/// What is wrong with a URL, as far as that can be said without quoting it. `plain` is its form
/// without TLS.
fn problem(scheme: &str, rest: &str, plain: &str) -> Option<&'static str> {
    const SCHEMES: [&str; 7] =
        ["redis", "rediss", "valkey", "valkeys", "unix", "redis+unix", "valkey+unix"];

    if scheme.is_empty() {
        return Some("it has no `://`");
    }
    if !SCHEMES.contains(&scheme) {
        return Some("its scheme is not that of a server");
    }
    let is_socket = scheme.ends_with("unix");
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at_checked(end)?;
    let Some(url) = ::redis::parse_redis_url(plain) else {
        return Some(match authority.contains('@') {
            true => "its host or its port is missing or invalid",
            false => {
                "its host or its port is missing or invalid (is there an `@` before the host?)"
            }
        });
    };
    // The client library would take what stands before it for the host, and show it.
    if !is_socket && (behind.contains('@') || url.fragment().is_some()) {
        return Some("there is an `@` or a `#` after its host");
    }
    let protocol = url.query_pairs().find(|(name, _)| name == "protocol");
    if protocol.is_some_and(|(_, version)| !["2", "3", "resp2", "resp3"].contains(&&*version)) {
        return Some("its `protocol` is neither `resp2` nor `resp3`");
    }
    let database = match is_socket {
        true => url.query_pairs().find(|(name, _)| name == "db").map(|(_, db)| db.into_owned()),
        false => Some(url.path().trim_matches('/').to_owned()).filter(|db| !db.is_empty()),
    };
    if database.is_some_and(|database| database.parse::<i64>().is_err()) {
        return Some("its database is not a number");
    }
    match url.host_str() {
        _ if is_socket => None,
        None | Some("") => Some("it has no host"),
        Some("0.0.0.0" | "[::]") => Some("0.0.0.0 and [::] are not addresses to connect to"),
        Some(_) => None,
    }
}

/// The settings of TLS, if the URL asks for it.
///
/// # Errors
///
/// If there are certificates that cannot be used, or certificates but no TLS.
#[cfg(feature = "tls")]
fn tls_settings(
    is_tls: bool,
    address: &Address,
    common: &ConnectOptions,
) -> Result<Option<TlsSettings>, BackendError> {
    let unfit = |cause: &str| {
        let text = format!(
            "the certificates cannot be used for {address} (they are PEM, for a rediss:// URL)"
        );
        misconfigured(super::error::LinkError::with_text_cause(text, cause))
    };
    if !is_tls {
        let none = common.root.is_none() && common.client.is_none();
        return if none { Ok(None) } else { Err(unfit("its URL does not ask for TLS")) };
    }
    let own = common.client.as_ref().map(|(chain, key)| (&**chain, &**key));
    TlsSettings::new(common.root.as_deref(), own).map(Some).map_err(unfit)
}

#[cfg(not(feature = "tls"))]
fn tls_settings(
    _: bool,
    _: &Address,
    _: &ConnectOptions,
) -> Result<Option<TlsSettings>, BackendError> {
    Ok(None)
}
