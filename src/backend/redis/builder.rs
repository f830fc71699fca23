//! How a store in Redis is set up.

use std::fmt;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::engine::{ColdStart, Redis, Settings};
use super::link::{Common, Link, Servers};
use super::names::{HashTag, Names};
use super::script;
use crate::backend::BackendError;

/// What is to be set up: the servers, how to connect to them, and how buckets are named.
///
/// Made by [`Redis::at`], [`Redis::cluster`] and [`Redis::sentinel`]. Whatever is wrong with it is
/// told by [`connect`](Self::connect) or [`connect_lazily`](Self::connect_lazily), without the
/// passwords.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use tollgate::RateLimiter;
/// use tollgate::backend::Redis;
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
#[must_use = "a builder does nothing until it is told to connect"]
pub struct RedisBuilder {
    place: Place,
    common: Common,
    login: Option<(String, String)>,
    prefix: String,
    hash_tag: HashTag,
    secret: Option<Vec<u8>>,
    settings: Settings,
}

#[derive(Clone)]
enum Place {
    Single(String),
    Cluster(Vec<String>),
    Sentinel(Vec<String>, String),
}

/// Ways to set a store up.
impl Redis {
    /// Connects to a single server.
    ///
    /// The URL is `redis://user:password@host:port/database`, of which all but the host may be left
    /// out; `rediss://` is TLS, with the feature `redis-tls`, and `unix:///path` is a socket.
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

    /// Sets up a cluster, by the URLs of some of its nodes, from which the others are learnt. The login of
    /// all nodes is that of the first URL.
    pub fn cluster<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> RedisBuilder {
        RedisBuilder::cluster(urls.into_iter().map(U::into).collect())
    }

    /// Sets up the master of this name that sentinels look after, by the URLs of the sentinels. The
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
        Self::new(Place::Single(url))
    }

    pub(super) fn cluster(urls: Vec<String>) -> Self {
        Self::new(Place::Cluster(urls))
    }

    pub(super) fn sentinel(urls: Vec<String>, master: String) -> Self {
        Self::new(Place::Sentinel(urls, master))
    }

    fn new(place: Place) -> Self {
        Self {
            place,
            common: Common::default(),
            login: None,
            prefix: "tollgate".to_owned(),
            hash_tag: HashTag::default(),
            secret: None,
            settings: Settings {
                deadline: DEADLINE,
                cold_start: ColdStart::default(),
                #[cfg(test)]
                clock: None,
            },
        }
    }

    /// How long a decision may take before the limiter goes on without it, 50 ms unless set.
    ///
    /// What happens then is for the limiter and its layers to say: an
    /// [error](BackendError::is_timeout), or a request let through. The decision may still be taken
    /// by the server, once.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// What all keys in the store begin with, `tollgate` unless set: 1 to 64 letters, digits and
    /// `-_.~@+/:`.
    ///
    /// Limiters with the same prefix on the same servers, and in the same database, share their buckets.
    /// Others never meet them, also if one prefix begins with the other.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Which buckets share a slot of a cluster, and so can be charged together.
    pub fn hash_tag(mut self, hash_tag: HashTag) -> Self {
        self.hash_tag = hash_tag;
        self
    }

    /// Stores hashes in place of keys, by HMAC-SHA-256 with this secret, so that whoever reads the
    /// store does not learn who the clients are.
    ///
    /// The secret has at least 16 bytes, drawn at random. All processes that share buckets need the same
    /// one. Another secret means other buckets, which begin full.
    pub fn hash_keys(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// What buckets hold after the store has lost its memory, [`ColdStart::Full`] unless set.
    pub fn cold_start(mut self, cold_start: ColdStart) -> Self {
        self.settings.cold_start = cold_start;
        self
    }

    /// How to log in to the sentinels themselves, which need no login unless set. The login of the
    /// master and the number of its database are those of the first URL.
    pub fn sentinel_login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some((user.into(), password.into()));
        self
    }

    /// The certificates, in PEM, that servers at `rediss://` URLs must descend from, in place of
    /// those of the well-known authorities.
    #[cfg(feature = "redis-tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.common.root = Some(pem.into());
        self
    }

    /// The certificate, in PEM, that servers at `rediss://` URLs are shown, and its private key.
    #[cfg(feature = "redis-tls")]
    pub fn client_certificate(
        mut self,
        cert_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.common.client = Some((cert_pem.into(), key_pem.into()));
        self
    }

    /// Connects, and waits until there is a connection, for 5 seconds at most.
    ///
    /// From then on it is made anew in the background whenever it breaks.
    ///
    /// # Errors
    ///
    /// If something is wrong with what was set, or the servers cannot be reached or refuse the
    /// login. A service that is to start without its store takes
    /// [`connect_lazily`](Self::connect_lazily).
    ///
    /// # Cancel safety
    ///
    /// Nothing is left of it when the future is dropped.
    pub async fn connect(self) -> Result<Redis, BackendError> {
        let runtime = runtime()?;
        let (link, names, settings) = self.open()?;
        match timeout(CONNECT, link.ready()).await {
            Ok(ready) => ready?,
            Err(_) => return Err(BackendError::timeout("redis", CONNECT)),
        }
        Ok(Redis::new(link, names, runtime, settings))
    }

    /// Begins to connect in the background, and does not wait: until there is a connection,
    /// decisions fail with what is in the way of it.
    ///
    /// # Errors
    ///
    /// If something is wrong with what was set, or there is no tokio runtime here.
    pub fn connect_lazily(self) -> Result<Redis, BackendError> {
        let runtime = runtime()?;
        let (link, names, settings) = self.open()?;
        Ok(Redis::new(link, names, runtime, settings))
    }

    /// Decides by the time of this clock.
    #[cfg(all(test, feature = "memory"))]
    pub(super) fn clock(mut self, clock: impl crate::clock::Clock) -> Self {
        self.settings.clock = Some(std::sync::Arc::new(clock));
        self
    }

    fn open(self) -> Result<(Link, Names, Settings), BackendError> {
        let Self { place, common, login, prefix, hash_tag, secret, settings } = self;
        if settings.deadline.is_zero() {
            return Err(BackendError::misconfigured(
                "redis",
                "a deadline of 0 leaves no time to decide (it must be more, 50 ms unless set)",
            ));
        }
        let names = Names::new(prefix, hash_tag, secret.as_deref())
            .map_err(|wrong| BackendError::misconfigured("redis", wrong))?;
        let servers = match &place {
            Place::Single(url) => Servers::single(url, &common)?,
            Place::Cluster(urls) => Servers::cluster(urls, &common)?,
            Place::Sentinel(urls, master) => {
                let login = login.as_ref().map(|(user, password)| (&**user, &**password));
                Servers::sentinel(urls, master, login, &common)?
            }
        };
        Ok((Link::open(servers, script::TEXT, settings.deadline)?, names, settings))
    }
}

/// The runtime on which everything runs.
fn runtime() -> Result<Handle, BackendError> {
    Handle::try_current().map_err(|_| {
        let wrong = "there is no tokio runtime here (connect inside `#[tokio::main]`)";
        BackendError::misconfigured("redis", wrong)
    })
}

/// Passwords and secrets are not shown, nor the URLs that may contain some.
impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.place {
            Place::Single(_) => "single server".to_owned(),
            Place::Cluster(urls) => format!("cluster, by {} of its nodes", urls.len()),
            Place::Sentinel(urls, master) => format!("`{master}`, by {} sentinels", urls.len()),
        };
        f.debug_struct("RedisBuilder")
            .field("place", &place)
            .field("prefix", &self.prefix)
            .field("hash_tag", &self.hash_tag)
            .field("hashed", &self.secret.is_some())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// In a data centre a decision takes less than a millisecond; nobody waits visibly for 50.
const DEADLINE: Duration = Duration::from_millis(50);

/// Longer than any attempt to connect takes, through sentinels and to all seeds of a cluster.
const CONNECT: Duration = Duration::from_secs(5);
