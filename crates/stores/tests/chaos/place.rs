//! Stores and wrappers, and what makes one thing in them sick.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::{Client, NoTls};
use tollgate::backend::{Backend, BackendError, CircuitBreaker, DenyCache, Fallback, Memory};
use tollgate::clock::{Clock, SystemClock};
use tollgate::{RateLimiter, Timestamp};
use tollgate_embedded::Embedded;
use tollgate_leasing::Leasing;
use tollgate_optimistic::{Optimistic, Swap, SwapStore};
use tollgate_postgres::Postgres;
use tollgate_redis::Redis;
use tollgate_testing::clock::ServerClock;
use tollgate_testing::traffic::wait_until;
use tollgate_testing::{postgres, redis};

use super::case::SICK;

/// Longer than a busy machine makes anyone wait.
const DEADLINE: Duration = Duration::from_secs(10);

/// What buckets are kept in, and the wrapper around that.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Store {
    engine: Engine,
    wrapper: Wrapper,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Engine {
    Memory,
    Embedded,
    Optimistic,
    Redis,
    Cluster,
    Sentinels,
    Postgres,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wrapper {
    None,
    Fallback,
    CircuitBreaker,
    DenyCache,
    Leasing,
}

/// The one thing that is not healthy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sick {
    FloodOfOneKey,
    FloodOfNewKeys,
    ForeignValue,
    LockedRow,
    DeadNode,
    Clock,
    Full,
}

impl Sick {
    pub(crate) const ALL: [Self; 7] = [
        Self::FloodOfOneKey,
        Self::FloodOfNewKeys,
        Self::ForeignValue,
        Self::LockedRow,
        Self::DeadNode,
        Self::Clock,
        Self::Full,
    ];

    pub(crate) const fn is_flood(self) -> bool {
        matches!(self, Self::FloodOfOneKey | Self::FloodOfNewKeys)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FloodOfOneKey => "a flood of one key",
            Self::FloodOfNewKeys => "a flood of new keys",
            Self::ForeignValue => "a foreign value",
            Self::LockedRow => "a locked row",
            Self::DeadNode => "a dead node",
            Self::Clock => "a clock that jumps an hour",
            Self::Full => "a full disk or memory",
        }
    }
}

impl Store {
    /// Each engine, and then each wrapper around a server.
    pub(crate) fn all() -> Vec<Self> {
        use Engine::{Cluster, Embedded, Memory, Optimistic, Postgres, Redis, Sentinels};
        use Wrapper::{CircuitBreaker, DenyCache, Fallback, Leasing, None};
        let bare = [Memory, Embedded, Optimistic, Redis, Cluster, Sentinels, Postgres];
        let bare = bare.map(|engine| Self { engine, wrapper: None });
        let wrapped = [Redis, Postgres].map(|engine| {
            [Fallback, CircuitBreaker, DenyCache, Leasing].map(|wrapper| Self { engine, wrapper })
        });
        [&bare, wrapped.as_flattened()].concat()
    }

    pub(crate) fn is_bare(self) -> bool {
        self.wrapper == Wrapper::None
    }

    pub(crate) fn name(self) -> String {
        let engine = match self.engine {
            Engine::Memory => "memory",
            Engine::Embedded => "embedded",
            Engine::Optimistic => "optimistic on a map",
            Engine::Redis => "redis",
            Engine::Cluster => "redis cluster",
            Engine::Sentinels => "redis by sentinels",
            Engine::Postgres => "postgres",
        };
        let wrapper = match self.wrapper {
            Wrapper::None => return engine.to_owned(),
            Wrapper::Fallback => "fallback",
            Wrapper::CircuitBreaker => "circuit breaker",
            Wrapper::DenyCache => "deny cache",
            Wrapper::Leasing => "leasing",
        };
        format!("{wrapper} on {engine}")
    }

    /// Whether the files of all that this process and those that it starts write are limited.
    pub(crate) fn limits_this_process(self, sick: Sick) -> bool {
        self.engine == Engine::Embedded && sick == Sick::Full
    }

    /// Whether a store can have it.
    pub(crate) fn has(self, sick: Sick) -> bool {
        use Engine::{Cluster, Embedded, Memory, Postgres, Redis, Sentinels};
        match sick {
            Sick::FloodOfOneKey | Sick::FloodOfNewKeys => true,
            Sick::ForeignValue => !matches!(self.engine, Memory | Embedded),
            Sick::LockedRow => self.engine == Postgres,
            Sick::DeadNode => matches!(self.engine, Cluster | Sentinels),
            // Servers decide by their own clocks, and these wrappers by that of this process.
            Sick::Clock => {
                !matches!(self.engine, Cluster | Sentinels) && self.wrapper == Wrapper::None
                    || matches!(self.wrapper, Wrapper::DenyCache | Wrapper::Leasing)
            }
            Sick::Full => {
                matches!(self.engine, Embedded | Redis | Postgres) && self.wrapper == Wrapper::None
            }
        }
    }
}

/// A limiter on a store, and the servers of the store.
pub(crate) struct Place {
    pub(crate) limiter: RateLimiter,
    clock: Jumping,
    servers: Servers,
    /// Holds the row that is locked.
    locking: Option<Client>,
}

#[expect(clippy::large_enum_variant, reason = "there are two at a time")]
enum Servers {
    None,
    Map(Map),
    /// A file, removed with this.
    File(PathBuf),
    Redis(redis::Server),
    Cluster(redis::Cluster),
    Sentinels(redis::Sentinels),
    Postgres(postgres::Server),
}

impl Place {
    pub(crate) async fn set_up(store: Store, sick: Sick) -> Self {
        let clock = Jumping::default();
        let server_clock = (sick == Sick::Clock).then(ServerClock::new);
        let servers = match store.engine {
            Engine::Memory => Servers::None,
            Engine::Optimistic => Servers::Map(Map::default()),
            Engine::Embedded => {
                static NEXT: AtomicU32 = AtomicU32::new(0);
                let nth = NEXT.fetch_add(1, Ordering::Relaxed);
                let name = format!("tollgate-chaos-{}-{nth}.redb", std::process::id());
                let file = std::env::temp_dir().join(name);
                drop(std::fs::remove_file(&file));
                Servers::File(file)
            }
            Engine::Cluster => Servers::Cluster(redis::Cluster::start(3)),
            Engine::Sentinels => Servers::Sentinels(redis::Sentinels::start()),
            Engine::Postgres => Servers::Postgres(match server_clock {
                Some(clock) => postgres::Server::with_clock(clock),
                None => postgres::Server::start(),
            }),
            Engine::Redis => Servers::Redis(redis::Server::with_clock(&[], server_clock)),
        };
        let limiter = servers.limiter(store.wrapper, &clock).await;
        Self { limiter, clock, servers, locking: None }
    }

    /// Whether a key has nothing to do with what is sick.
    pub(crate) fn is_healthy(&self, sick: Sick, key: &str) -> bool {
        match &self.servers {
            Servers::Cluster(cluster) if sick == Sick::DeadNode => {
                cluster.node_of_slot(cluster.slot_of(format!("tollgate:healthy:{key}"))) != 0
            }
            _ => true,
        }
    }

    /// Prepares what has to be there before something falls sick.
    pub(crate) async fn prepare(&self, sick: Sick) {
        match (&self.servers, sick) {
            (Servers::Postgres(server), Sick::LockedRow) => {
                self.limiter.limit(&SICK).key("sick").await.unwrap();
                assert_eq!(server.query("SELECT count(*) FROM tollgate.buckets"), "1");
            }
            (Servers::Map(_), Sick::ForeignValue) => {
                self.limiter.limit(&SICK).key("sick").await.unwrap();
            }
            // It does not take such numbers by itself.
            (Servers::Postgres(server), Sick::ForeignValue) => {
                drop(server.query("ALTER TABLE tollgate.buckets ALTER gain TYPE bigint"));
            }
            // More than 18 MB: the log of the server keeps to files of 16 MB.
            (Servers::Postgres(server), Sick::Full) => drop(server.query(
                "INSERT INTO tollgate.buckets SELECT int8send(i), 0, 4e15::bigint, 1, 1, \
                 4e15::bigint, 1 FROM generate_series(1, 140000) i",
            )),
            (Servers::Cluster(cluster), Sick::DeadNode) => {
                for node in cluster.nodes() {
                    node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).ok();
                }
            }
            _ => {}
        }
    }

    pub(crate) async fn fall_sick(&mut self, sick: Sick) {
        const NAME: &str = "tollgate:sick:sick";
        let foreign = |server: &redis::Server| server.command(&["SET", NAME, "foreign"]).ok();
        match (&self.servers, sick) {
            (_, Sick::Clock) => self.set_clocks(3_600),
            (Servers::Map(map), Sick::ForeignValue) => {
                let mut map = map.0.lock().unwrap();
                let sick = map.iter_mut().find(|(name, _)| name.starts_with("sick")).unwrap();
                *sick.1 = b"foreign".to_vec();
            }
            (Servers::Redis(server), Sick::ForeignValue) => foreign(server),
            (Servers::Sentinels(all), Sick::ForeignValue) => foreign(all.master_server()),
            (Servers::Cluster(cluster), Sick::ForeignValue) => {
                foreign(cluster.node(cluster.node_of_slot(cluster.slot_of(NAME))));
            }
            (Servers::Cluster(cluster), Sick::DeadNode) => cluster.node(0).stop(),
            (Servers::Sentinels(all), Sick::DeadNode) => {
                all.other_server().kill();
                all.sentinel(0).kill();
            }
            (Servers::Postgres(server), Sick::ForeignValue) => drop(server.query(
                "INSERT INTO tollgate.buckets VALUES ('tollgate:sick:sick', 5, 0, 0, 1, 10, 1)",
            )),
            (Servers::Postgres(server), Sick::LockedRow) => {
                let (client, connection) =
                    tokio_postgres::connect(&server.settings(), NoTls).await.unwrap();
                tokio::spawn(connection);
                let lock = "BEGIN; SELECT key FROM tollgate.buckets WHERE key = \
                            'tollgate:sick:sick' FOR UPDATE";
                client.batch_execute(lock).await.unwrap();
                self.locking = Some(client);
            }
            (Servers::Postgres(server), Sick::Full) => server.limit_files(Some(18 << 20)),
            (Servers::Redis(server), Sick::Full) => limit_memory(server, 1),
            (Servers::File(file), Sick::Full) => {
                // With a handler, a write that goes too far is an error.
                drop(signal(SignalKind::from_raw(SIGXFSZ)).unwrap());
                limit_own_files(&std::fs::metadata(file).unwrap().len().to_string());
            }
            _ => {}
        }
    }

    /// Sets all clocks so many seconds ahead.
    fn set_clocks(&self, seconds: i64) {
        self.clock.seconds.store(seconds, Ordering::SeqCst);
        match &self.servers {
            Servers::Redis(server) => server.set_clock(seconds),
            Servers::Postgres(server) => server.set_clock(seconds),
            _ => {}
        }
    }

    /// Halfway, what can get worse does.
    pub(crate) fn get_worse(&self, sick: Sick) {
        if sick == Sick::Clock {
            self.set_clocks(-3_600);
        }
    }

    pub(crate) async fn recover(&mut self, sick: Sick) {
        match (&self.servers, sick) {
            (_, Sick::Clock) => self.set_clocks(0),
            (Servers::Cluster(cluster), Sick::DeadNode) => {
                cluster.node(0).resume();
                cluster.until_complete();
            }
            (Servers::Postgres(server), Sick::Full) => server.limit_files(None),
            (Servers::Redis(server), Sick::Full) => limit_memory(server, 0),
            (Servers::File(_), Sick::Full) => limit_own_files("unlimited"),
            _ => {}
        }
        self.locking = None;
        let asks = async || self.limiter.limit(&SICK).key("after").await.is_ok();
        wait_until("it decides again", asks).await;
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Self::File(file) = self {
            drop(std::fs::remove_file(file));
        }
    }
}

impl Servers {
    async fn limiter(&self, wrapper: Wrapper, clock: &Jumping) -> RateLimiter {
        let redis = match self {
            Self::None => return wrapper.around(Memory::new().clock(clock.clone()), clock),
            Self::Map(map) => {
                let store = Optimistic::new(map.clone()).clock(clock.clone()).tries(u32::MAX);
                return wrapper.around(store.deadline(DEADLINE), clock);
            }
            Self::File(file) => {
                let store = Embedded::at(file).clock(clock.clone()).deadline(DEADLINE);
                return wrapper.around(store.open().unwrap(), clock);
            }
            Self::Postgres(server) => {
                let store = Postgres::at(server.settings()).deadline(DEADLINE);
                return wrapper.around(store.connect().await.unwrap(), clock);
            }
            Self::Redis(server) => Redis::at(server.url()),
            Self::Cluster(cluster) => Redis::cluster(cluster.urls()),
            Self::Sentinels(all) => Redis::sentinel(all.urls(), all.master_name()),
        };
        wrapper.around(redis.deadline(DEADLINE).connect().await.unwrap(), clock)
    }
}

impl Wrapper {
    fn around(self, store: impl Backend, clock: &Jumping) -> RateLimiter {
        match self {
            Self::None => RateLimiter::new(store),
            Self::Fallback => RateLimiter::new(Fallback::new(store, Memory::new())),
            Self::CircuitBreaker => RateLimiter::new(CircuitBreaker::new(store)),
            Self::DenyCache => RateLimiter::new(DenyCache::new(store).clock(clock.clone())),
            Self::Leasing => {
                RateLimiter::new(Leasing::new(store).clock(clock.clone()).lease(&SICK))
            }
        }
    }
}

/// Lets the server store nothing more, as with a full memory; 0 ends that.
fn limit_memory(server: &redis::Server, bytes: u64) {
    server.command(&["CONFIG", "SET", "maxmemory", &bytes.to_string()]).ok();
}

/// Lets no file of this process grow beyond so many bytes, as a full disk does.
fn limit_own_files(bytes: &str) {
    let (pid, size) = (std::process::id().to_string(), format!("--fsize={bytes}:unlimited"));
    let is_set = Command::new("prlimit").args(["--pid", &pid, &size]).status().unwrap();
    assert!(is_set.success());
}

/// What the system sends to a process that writes beyond that.
const SIGXFSZ: i32 = 25;

/// The time of the system, and jumps.
#[derive(Clone, Debug, Default)]
struct Jumping {
    system: SystemClock,
    seconds: Arc<AtomicI64>,
}

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        let jumped = self.seconds.load(Ordering::SeqCst) * 1_000_000;
        Timestamp::from_micros(self.system.now().as_micros() + jumped)
    }
}

/// A store that can compare and swap.
#[derive(Clone, Debug, Default)]
struct Map(Arc<Mutex<HashMap<String, Vec<u8>>>>);

impl SwapStore for Map {
    const NAME: &'static str = "map";

    async fn load(&self, key: &str) -> Result<Option<Vec<u8>>, BackendError> {
        Ok(self.0.lock().unwrap().get(key).cloned())
    }

    async fn swap(&self, swap: &Swap<'_>) -> Result<bool, BackendError> {
        let mut map = self.0.lock().unwrap();
        if map.get(swap.key()).map(Vec::as_slice) != swap.old() {
            return Ok(false);
        }
        match swap.new_value() {
            Some(value) => map.insert(swap.key().to_owned(), value.to_owned()),
            None => map.remove(swap.key()),
        };
        Ok(true)
    }
}
