//! Setting up a store in Redis.

use std::fmt;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::engine::{ColdStart, Redis, Settings};
use super::link::{AddressMap, ConnectOptions, Link, Servers};
use super::script;
use tollgate::backend::BackendError;
use tollgate_kit::key_name::{HashTag, KeyNames};

/// The settings of a [`Redis`] store: the servers, the connections, and the names of buckets.
///
/// [`Redis::at`], [`Redis::cluster`] and [`Redis::sentinel`] make one. [`connect`](Self::connect)
/// and [`connect_lazily`](Self::connect_lazily) report wrong settings, without the passwords.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use tollgate::RateLimiter;
/// use tollgate_redis::Redis;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::at("redis://127.0.0.1:6379")
///     .prefix("shop")
///     .deadline(Duration::from_millis(20))
///     .connect()
///     .await?;
/// let limiter = RateLimiter::new(redis);
/// # drop(limiter);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `connect` is called"]
pub struct RedisBuilder {
    urls: ServerUrls,
    options: ConnectOptions,
    login: Option<(String, String)>,
    prefix: String,
    hash_tag: HashTag,
    secret: Option<Vec<u8>>,
    settings: Settings,
}

#[derive(Clone)]
enum ServerUrls {
    Single(String),
    Cluster(Vec<String>),
    Sentinel(Vec<String>, String),
}

/// Ways to set a store up.
impl Redis {
    /// Connects to a single server.
    ///
    /// The URL is `redis://user:password@host:port/database`, where all but the host is optional;
    /// `rediss://` is TLS, with the feature `tls`, and `unix:///path` is a socket.
    ///
    /// # Errors
    ///
    /// As [`RedisBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`RedisBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, BackendError> {
        Self::at(url).connect().await
    }

    /// Sets up a single server, by its URL; see [`connect`](Self::connect).
    pub fn at(url: impl Into<String>) -> RedisBuilder {
        RedisBuilder::at(url.into())
    }

    /// Sets up a cluster, by the URLs of some of its nodes. These name the other nodes, and all
    /// nodes use the login of the first URL.
    pub fn cluster<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> RedisBuilder {
        RedisBuilder::cluster(urls.into_iter().map(U::into).collect())
    }

    /// Sets up the master of this name, by the URLs of all its sentinels, each of which has a vote. The
    /// login of the master, and the number of its database, are those of the first URL.
    pub fn sentinel<U: Into<String>>(
        urls: impl IntoIterator<Item = U>,
        master: impl Into<String>,
    ) -> RedisBuilder {
        RedisBuilder::sentinel(urls.into_iter().map(U::into).collect(), master.into())
    }
}

impl RedisBuilder {
    pub(super) fn at(url: String) -> Self {
        Self::new(ServerUrls::Single(url))
    }

    pub(super) fn cluster(urls: Vec<String>) -> Self {
        Self::new(ServerUrls::Cluster(urls))
    }

    pub(super) fn sentinel(urls: Vec<String>, master: String) -> Self {
        Self::new(ServerUrls::Sentinel(urls, master))
    }

    fn new(urls: ServerUrls) -> Self {
        Self {
            urls,
            options: ConnectOptions::default(),
            login: None,
            prefix: "tollgate".to_owned(),
            hash_tag: HashTag::default(),
            secret: None,
            settings: Settings {
                deadline: DEFAULT_DEADLINE,
                cold_start: ColdStart::default(),
                #[cfg(test)]
                clock: None,
            },
        }
    }

    /// Sets how long a decision may take, 50 ms by default.
    ///
    /// After that, the decision fails with a [timeout](BackendError::is_timeout). The server may
    /// still carry it out, once.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// Sets the start of all keys in the store, `tollgate` by default: 1 to 64 letters, digits and
    /// `-_.~@+/:`.
    ///
    /// Limiters with the same prefix on the same servers, and in the same database, share their
    /// buckets. Others never do, even if one prefix starts with the other.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets which buckets share a slot of a cluster, and so can be charged together.
    pub fn hash_tag(mut self, hash_tag: HashTag) -> Self {
        self.hash_tag = hash_tag;
        self
    }

    /// Stores hashes in place of keys, so that the store does not reveal the clients. The hash is
    /// HMAC-SHA-256 with this secret.
    ///
    /// The secret must have at least 16 bytes, drawn at random. All processes that share buckets
    /// need the same one. Another secret means other buckets, which start full.
    pub fn hash_keys(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// Sets what buckets hold after the store has lost its data, [`ColdStart::Full`] by default.
    pub fn cold_start(mut self, cold_start: ColdStart) -> Self {
        self.settings.cold_start = cold_start;
        self
    }

    /// Sets the login of the sentinels themselves, none by default. The login of the master and the
    /// number of its database are those of the first URL.
    pub fn sentinel_login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some((user.into(), password.into()));
        self
    }

    /// Sets where servers are reached that other servers name by addresses that lead nowhere from
    /// here, as behind NAT or in containers.
    ///
    /// The map takes the host and the port that were named, and returns others, or `None` to leave
    /// them as they are. It is asked for the master that sentinels name, for the nodes that a cluster
    /// names, and for the node that a redirection names; the URLs are used as they are. A node that
    /// leaves its own host out is reached at the host that this process has for it, and the map is
    /// asked for that host with the port of the node.
    ///
    /// With TLS, the certificate has to be for the host that the map returns.
    ///
    /// The map is called whenever addresses are read, at times during a decision, so it should look
    /// them up and not wait. If it panics, the address is not used: a node that has named it counts as
    /// not answered, a master that sentinels name as not reached, and the next attempt asks the map
    /// again.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::collections::HashMap;
    ///
    /// use tollgate_redis::Redis;
    ///
    /// // A cluster in containers, whose ports are published on this machine.
    /// let published = HashMap::from([
    ///     (("172.17.0.2".to_owned(), 6379), 7001),
    ///     (("172.17.0.3".to_owned(), 6379), 7002),
    /// ]);
    /// let cluster = Redis::cluster(["redis://127.0.0.1:7001"]).address_map(move |host, port| {
    ///     let port = published.get(&(host.to_owned(), port))?;
    ///     Some(("127.0.0.1".to_owned(), *port))
    /// });
    /// # drop(cluster);
    /// ```
    pub fn address_map(
        mut self,
        map: impl Fn(&str, u16) -> Option<(String, u16)> + Send + Sync + 'static,
    ) -> Self {
        self.options.map = AddressMap::new(map);
        self
    }

    /// Sets the root certificates, in PEM, for servers at `rediss://` URLs, in place of those of
    /// the well-known authorities.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.options.root = Some(pem.into());
        self
    }

    /// Sets the client certificate, in PEM, and its private key for servers at `rediss://` URLs.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        cert_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.options.client = Some((cert_pem.into(), key_pem.into()));
        self
    }

    /// Connects, and waits for the connection for at most 5 seconds, or the deadline if that is longer.
    ///
    /// Afterwards, a connection that breaks is replaced in the background.
    ///
    /// # Errors
    ///
    /// If a setting is wrong, the servers cannot be reached, or they refuse the login. A service
    /// that may start without its store uses [`connect_lazily`](Self::connect_lazily).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection.
    pub async fn connect(self) -> Result<Redis, BackendError> {
        let (runtime, patience) = (runtime()?, CONNECT_TIMEOUT.max(self.settings.deadline));
        let (link, names, settings) = self.open()?;
        match timeout(patience, link.ready()).await {
            Ok(ready) => ready?,
            Err(_) => return Err(BackendError::timeout("redis", patience)),
        }
        Ok(Redis::over(link, names, runtime, settings))
    }

    /// Starts to connect in the background, and does not wait. Until there is a connection,
    /// decisions fail with the reason why there is none.
    ///
    /// # Errors
    ///
    /// If a setting is wrong, or there is no tokio runtime here.
    pub fn connect_lazily(self) -> Result<Redis, BackendError> {
        let runtime = runtime()?;
        let (link, names, settings) = self.open()?;
        Ok(Redis::over(link, names, runtime, settings))
    }

    /// Sets the clock that the script sees.
    #[cfg(test)]
    pub(super) fn clock(mut self, clock: impl tollgate::clock::Clock) -> Self {
        self.settings.clock = Some(std::sync::Arc::new(clock));
        self
    }

    fn open(self) -> Result<(Link, KeyNames, Settings), BackendError> {
        let Self { urls, options, login, prefix, hash_tag, secret, settings } = self;
        if settings.deadline.is_zero() {
            return Err(BackendError::misconfigured(
                "redis",
                "a deadline of 0 leaves no time to decide (use more than 0; the default is 50 ms)",
            ));
        }
        let names = KeyNames::new(prefix, hash_tag, secret.as_deref())
            .map_err(|wrong| BackendError::misconfigured("redis", wrong))?;
        let servers = match &urls {
            ServerUrls::Single(url) => Servers::single(url, &options)?,
            ServerUrls::Cluster(urls) => Servers::cluster(urls, &options)?,
            ServerUrls::Sentinel(urls, master) => {
                let login = login.as_ref().map(|(user, password)| (&**user, &**password));
                Servers::sentinel(urls, master, login, &options)?
            }
        };
        Ok((Link::open(servers, script::TEXT, settings.deadline)?, names, settings))
    }
}

/// The tokio runtime of the caller, on which all tasks run.
fn runtime() -> Result<Handle, BackendError> {
    Handle::try_current().map_err(|_| {
        let wrong = "there is no tokio runtime here (connect inside `#[tokio::main]`)";
        BackendError::misconfigured("redis", wrong)
    })
}

/// Shows no passwords and secrets, nor the URLs, which may contain some.
impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls = match &self.urls {
            ServerUrls::Single(_) => "single server".to_owned(),
            ServerUrls::Cluster(urls) => format!("cluster, by {} of its nodes", urls.len()),
            ServerUrls::Sentinel(urls, master) => {
                format!("`{master}`, by {} sentinels", urls.len())
            }
        };
        f.debug_struct("RedisBuilder")
            .field("place", &urls)
            .field("prefix", &self.prefix)
            .field("hash_tag", &self.hash_tag)
            .field("hashed", &self.secret.is_some())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// In a data centre a decision takes less than a millisecond, and a user does not notice 50.
const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// Longer than any attempt to connect takes, through sentinels and to all seeds of a cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
