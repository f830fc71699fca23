//! Setting up a store in PostgreSQL.

use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Pool, Runtime};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::SqlState;

use super::aside::Aside;
use super::carrier::{PostgresCarrier, common_lock_patience, patience};
use super::engine::Postgres;
use super::lent::Lent;
use super::migrate::{is_installed, migrate, statements};
use super::schema::{Schema, millis};
use super::schema_name::SchemaName;
use super::statement_error::{StatementError, no_schema};
use super::store_name::STORE;
use super::sweep::Sweeper;
use super::tls::{Canceller, Certificates, manager};
use tollgate::backend::BackendError;
use tollgate_kit::batch::{Batcher, Bounds};
use tollgate_kit::key_name::KeyNames;
use tollgate_kit::overdue::Overdue;
use tollgate_kit::pages::PageTurns;
use tollgate_kit::store_time::StoreTime;

/// The settings of a [`Postgres`] store: the server, the connections, the schema, and the names of
/// buckets.
///
/// [`Postgres::at`] and [`Postgres::with_pool`] make one. [`connect`](Self::connect) and
/// [`connect_lazily`](Self::connect_lazily) report wrong settings, without the passwords.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use tollgate::RateLimiter;
/// use tollgate_postgres::Postgres;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let postgres = Postgres::at("postgres://app@127.0.0.1/app")
///     .prefix("shop")
///     .deadline(Duration::from_millis(20))
///     .connect()
///     .await?;
/// let limiter = RateLimiter::new(postgres);
/// # drop(limiter);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `connect` is called"]
pub struct PostgresBuilder {
    source: Source,
    certificates: Certificates,
    connections: NonZeroUsize,
    is_pooled_elsewhere: bool,
    schema: String,
    prefix: String,
    secret: Option<Vec<u8>>,
    deadline: Duration,
    max_keys: usize,
    is_logged: bool,
    migrates: bool,
    #[cfg(test)]
    clock: Arc<dyn tollgate::clock::Clock>,
}

/// Where connections come from.
#[derive(Clone)]
enum Source {
    Url(String),
    Pool(Pool),
}

/// Ways to set a store up.
impl Postgres {
    /// Connects to a server, and makes the schema of the store if it is missing.
    ///
    /// The URL is `postgres://user:password@host:port/database`; it may name several hosts and
    /// settings such as `sslmode=require`, as the crate `tokio-postgres` documents.
    ///
    /// # Errors
    ///
    /// As [`PostgresBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`PostgresBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, BackendError> {
        Self::at(url).connect().await
    }

    /// Sets up a server, by its URL; see [`connect`](Self::connect).
    pub fn at(url: impl Into<String>) -> PostgresBuilder {
        PostgresBuilder::new(Source::Url(url.into()))
    }

    /// Sets up the server of a pool that the application has already.
    ///
    /// The store then makes no connections of its own, and waits for one of the pool's when all are
    /// in use, until the deadline. A pool of its own is better where the application holds
    /// connections for long.
    pub fn with_pool(pool: Pool) -> PostgresBuilder {
        PostgresBuilder::new(Source::Pool(pool))
    }
}

impl PostgresBuilder {
    fn new(source: Source) -> Self {
        Self {
            source,
            certificates: Certificates::default(),
            connections: CONNECTIONS,
            is_pooled_elsewhere: false,
            schema: SchemaName::DEFAULT.to_owned(),
            prefix: "tollgate".to_owned(),
            secret: None,
            deadline: DEFAULT_DEADLINE,
            max_keys: MAX_KEYS,
            is_logged: false,
            migrates: true,
            #[cfg(test)]
            clock: Arc::new(tollgate::clock::SystemClock::new()),
        }
    }

    /// Sets how long a decision may take, 50 ms by default.
    ///
    /// After that, the decision fails with a [timeout](BackendError::is_timeout). The server may
    /// still carry it out, once.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the largest number of connections, 4 by default: as many statements run at a time. While
    /// rows are locked, up to as many more wait for these.
    ///
    /// Decisions that wait travel together, so more connections make a process faster only while
    /// the server has idle processors. A [pool](Postgres::with_pool) has its own number; this is
    /// then how many of its connections are used at a time.
    pub fn connections(mut self, connections: NonZeroUsize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets how many buckets the table may have, ten million by default: 2.6 GB, with names of 33
    /// letters. Processes with different numbers hold the smallest.
    ///
    /// Beyond that, those go that have used the smallest shares of their capacity, so made-up keys go
    /// first. The client of such a bucket starts over with a full one. Buckets in debt go after those
    /// that are not, and blocked ones last. The table is looked at in parts, for each 1,500 buckets that
    /// a process names, so it has up to a third more while a flood of new keys lasts. The statistics of
    /// the server count the buckets, so the setting `track_counts` has to be on, as it is by default.
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys.max(1);
        self
    }

    /// Sets the schema of the table and the functions, `tollgate` by default: lower case letters,
    /// digits and `_`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets the start of all keys in the table, `tollgate` by default: 1 to 64 letters, digits and
    /// `-_.~@+/:`.
    ///
    /// Limiters with the same prefix and schema in the same database share their buckets. Others
    /// never do, even if one prefix starts with the other.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Stores hashes in place of keys, so that the table does not reveal the clients. The hash is
    /// HMAC-SHA-256 with this secret.
    ///
    /// The secret must have at least 16 bytes, drawn at random. All processes that share buckets
    /// need the same one. Another secret means other buckets, which start full.
    pub fn hash_keys(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// Writes the table to the log of the server when the schema is made, so that buckets survive
    /// a crash and reach the standbys. Not by default: then each decision waits for the disk.
    ///
    /// It has no effect on a table that is there already; `ALTER TABLE .. SET LOGGED` changes that.
    pub fn logged(mut self, logged: bool) -> Self {
        self.is_logged = logged;
        self
    }

    /// Sets whether [`connect`](Self::connect) makes the schema if it is missing or older, as it
    /// does by default. The role needs no right to do so if the schema is there already.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrates = migrate;
        self
    }

    /// Allows for a pooler between this process and the server that gives each transaction another
    /// connection, such as PgBouncer in transaction mode.
    ///
    /// The store then prepares no statements, and leaves out the settings of a connection: the
    /// server's own limits on the time of a statement hold, and the default isolation of the role
    /// should be `read committed`.
    pub fn through_pooler(mut self, through_pooler: bool) -> Self {
        self.is_pooled_elsewhere = through_pooler;
        self
    }

    /// Sets the root certificates, in PEM, for connections with TLS, in place of those of the
    /// well-known authorities. Then all connections need TLS.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.root = Some(pem.into());
        self
    }

    /// Sets the client certificate, in PEM, and its private key for connections with TLS. Then all
    /// connections need TLS.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        cert_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.certificates.client = Some((cert_pem.into(), key_pem.into()));
        self
    }

    /// The statements that make the schema, for teams that run their own migrations: one text, for one
    /// transaction. Only the settings of the schema matter to it.
    ///
    /// # Errors
    ///
    /// If the name of the schema cannot be used.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_postgres::Postgres;
    ///
    /// let text = Postgres::at("").schema("limits").migration()?;
    /// assert!(text.contains("CREATE SCHEMA \"limits\""));
    /// # Ok::<(), tollgate::backend::BackendError>(())
    /// ```
    pub fn migration(&self) -> Result<String, BackendError> {
        let schema = SchemaName::new(&self.schema);
        let schema = schema.map_err(|wrong| BackendError::misconfigured(STORE, wrong))?;
        Ok(statements(&schema, self.is_logged))
    }

    /// Connects, and makes the schema if it is missing, for at most 5 seconds, or the deadline if that
    /// is longer.
    ///
    /// # Errors
    ///
    /// If a setting is wrong, the server cannot be reached or refuses the login, or the schema is
    /// missing and the role must not make it. A service that may start without its store uses
    /// [`connect_lazily`](Self::connect_lazily).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection. The schema is made in one transaction, or not at
    /// all.
    pub async fn connect(self) -> Result<Postgres, BackendError> {
        let (migrates, is_logged) = (self.migrates, self.is_logged);
        let patience = CONNECT_TIMEOUT.max(self.deadline);
        let postgres = self.connect_lazily()?;
        match timeout(patience, postgres.prepare(migrates, is_logged)).await {
            Ok(ready) => ready?,
            Err(_) => return Err(BackendError::timeout(STORE, patience)),
        }
        Ok(postgres)
    }

    /// Makes the store without connecting: the first decision does. The schema has to be there.
    ///
    /// # Errors
    ///
    /// If a setting is wrong, or there is no tokio runtime here.
    pub fn connect_lazily(self) -> Result<Postgres, BackendError> {
        let wrong = |wrong: String| BackendError::misconfigured(STORE, wrong);
        let runtime = Handle::try_current().map_err(|_| {
            wrong("there is no tokio runtime here (connect inside `#[tokio::main]`)".to_owned())
        })?;
        if self.deadline.is_zero() {
            let zero =
                "a deadline of 0 leaves no time to decide (use more than 0; the default is 50 ms)";
            return Err(wrong(zero.to_owned()));
        }
        let schema = Schema::new(&self.schema).map_err(wrong)?;
        let names =
            KeyNames::untagged(self.prefix.clone(), self.secret.as_deref()).map_err(wrong)?;
        let ((pool, canceller, overdue), connections) = (self.pool()?, self.connections.get());
        // Not all connections of a pool, so that decisions about other buckets have some.
        let aside = pool.status().max_size.saturating_sub(connections).clamp(1, connections);
        let common_patience = millis(common_lock_patience(self.deadline)).to_string();
        let (common_call, patient_call) = match self.has_own_limits() {
            true => (schema.call().to_owned(), schema.call_within("$3")),
            false => (schema.call_within_both(&common_patience), schema.call_within_both("$3")),
        };
        let bounds = Bounds {
            calls_per_slot: connections,
            calls_per_group: connections,
            buckets_per_call: BUCKETS_PER_CALL,
        };
        let carrier = PostgresCarrier {
            time: StoreTime::default(),
            pool,
            canceller,
            overdue,
            schema,
            common_call,
            patient_call,
            aside: Aside::new(patience(self.deadline)),
            aside_bounds: Bounds {
                calls_per_slot: 1,
                calls_per_group: aside,
                buckets_per_call: BUCKETS_PER_CALL,
            },
            prepares: !self.is_pooled_elsewhere,
            deadline: self.deadline,
            sweeper: Arc::new(Sweeper::new(self.max_keys)),
            #[cfg(test)]
            clock: self.clock,
        };
        let batcher = Batcher::new(carrier, runtime, self.deadline, bounds);
        let (names, turns) = (Arc::new(names), PageTurns::default());
        Ok(Postgres { batcher, names, turns })
    }

    /// Sets the clock that the function sees.
    #[cfg(test)]
    pub(super) fn clock(mut self, clock: impl tollgate::clock::Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Whether connections have the limits of this store, and none of the user's.
    fn has_own_limits(&self) -> bool {
        let has_theirs = |url: &str| url.contains("lock_timeout");
        matches!(&self.source, Source::Url(url) if !self.is_pooled_elsewhere && !has_theirs(url))
    }

    fn pool(&self) -> Result<(Pool, Canceller, Overdue), BackendError> {
        let url = match &self.source {
            Source::Pool(pool) => {
                return Ok((pool.clone(), Canceller::Plain, Overdue::from(self.deadline / 8)));
            }
            Source::Url(url) => url,
        };
        let wrong = |text: String| BackendError::misconfigured(STORE, text);
        let mut config =
            Config::from_str(url).map_err(|error| wrong(unreadable_url(error.source())))?;
        // A standby decides nothing: with several hosts, the primary is looked for.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let patience = patience(self.deadline);
        config.connect_timeout(patience);
        if config.get_application_name().is_none() {
            config.application_name("tollgate");
        }
        if !self.is_pooled_elsewhere {
            let (lock, patience) = (common_lock_patience(self.deadline), millis(patience));
            let lock = millis(lock);
            let options = config.get_options().unwrap_or_default();
            config.options(format!(
                "-c default_transaction_isolation=read\\ committed -c statement_timeout={patience} \
                 -c lock_timeout={lock} {options}"
            ));
        }
        let overdue = Overdue::from(self.deadline / 8);
        let (manager, canceller) =
            manager(config, &self.certificates, &overdue).map_err(|text| wrong(text.to_owned()))?;
        let pool = Pool::builder(manager)
            .max_size(self.connections.get().saturating_mul(2))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(patience))
            .create_timeout(Some(patience))
            .recycle_timeout(Some(patience));
        let pool = pool.build().map_err(|error| wrong(error.to_string()))?;
        Ok((pool, canceller, overdue))
    }
}

impl Postgres {
    /// Waits for a connection and for the schema, and tries a call that names no bucket.
    async fn prepare(&self, migrates: bool, is_logged: bool) -> Result<(), BackendError> {
        let carrier = self.batcher.carrier();
        let failed = |error| StatementError::of(error, carrier.deadline).into_error();
        let mut lent = Lent::none(&carrier.canceller);
        let connection = carrier.pool.get().await;
        let connection = lent.keep(
            connection
                .map_err(|error| StatementError::of_pool(error, carrier.deadline).into_error())?,
        );
        if migrates {
            let migrated = migrate(connection, carrier.schema.name(), is_logged).await;
            migrated.map_err(|error| match error.code() {
                // The server is too old.
                Some(&SqlState::FEATURE_NOT_SUPPORTED) => BackendError::misconfigured(STORE, error),
                _ => failed(error),
            })?;
        } else if !is_installed(connection, carrier.schema.name()).await.map_err(failed)? {
            return Err(no_schema());
        }
        carrier.try_out(connection).await.map_err(failed)?;
        lent.give_back();
        Ok(())
    }
}

/// What is wrong with a URL. It quotes no part of it but the name of an option that is known: any
/// other may be a part of a password.
fn unreadable_url(cause: Option<&(dyn Error + 'static)>) -> String {
    let cause = cause.map(ToString::to_string).unwrap_or_default();
    let (what, way_out) = if cause == "invalid value for option `sslmode`" {
        let known =
            "`disable`, `prefer`, or `require`, which checks the certificate and its host name";
        (cause, known)
    } else if cause.starts_with("invalid value for option") {
        (cause, "see `tokio_postgres::Config`")
    } else if cause.starts_with("unknown option") {
        ("it has an option that is not known".to_owned(), "see `tokio_postgres::Config`")
    } else {
        ("invalid connection string".to_owned(), "postgres://user:password@host/database")
    };
    format!("the URL cannot be read: {what} ({way_out})")
}

/// Shows no passwords and secrets, nor the URL, which may contain some.
impl fmt::Debug for PostgresBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBuilder")
            .field("schema", &self.schema)
            .field("prefix", &self.prefix)
            .field("hashed", &self.secret.is_some())
            .field("connections", &self.connections)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// In a data centre a decision takes a millisecond or two, and a user does not notice 50.
const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// The bound unless another is set.
const MAX_KEYS: usize = 10_000_000;

/// Longer than any attempt to connect takes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Two keep a processor of the server at work, and two more do not wait behind a row that is
/// locked.
const CONNECTIONS: NonZeroUsize = match NonZeroUsize::new(4) {
    Some(four) => four,
    None => NonZeroUsize::MIN,
};

/// The largest number of buckets in a call. The server needs some milliseconds for them, and keeps
/// their rows locked meanwhile.
const BUCKETS_PER_CALL: usize = 64;
