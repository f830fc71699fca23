//! Stores and wrappers, and what makes one thing in them sick.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use tollgate::backend::{
    BackendError, CircuitBreaker, DenyCache, Embedded, Fallback, Leasing, Memory, Optimistic,
    Postgres, Redis, Swap, SwapStore,
};
use tollgate::clock::{Clock, SystemClock};
use tollgate::{RateLimiter, Timestamp};
use tollgate_testing::{postgres, redis};

use super::case::SICK;

/// Longer than a busy machine makes anyone wait.
const DEADLINE: Duration = Duration::from_secs(10);

/// What buckets are kept in, by which wrapper.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Store {
    Memory,
    Embedded,
    Optimistic,
    Redis,
    Cluster,
    Sentinels,
    Postgres,
    Fallback,
    CircuitBreaker,
    DenyCache,
    Leasing,
    FallbackOnPostgres,
}

pub(crate) const STORES: [Store; 12] = [
    Store::Memory,
    Store::Embedded,
    Store::Optimistic,
    Store::Redis,
    Store::Cluster,
    Store::Sentinels,
    Store::Postgres,
    Store::Fallback,
    Store::CircuitBreaker,
    Store::DenyCache,
    Store::Leasing,
    Store::FallbackOnPostgres,
];

/// The one thing that is not healthy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sick {
    FloodOfOneKey,
    FloodOfNewKeys,
    ForeignValue,
    LockedRow,
    DeadNode,
    Clock,
    FullDisk,
}

impl Sick {
    pub(crate) const ALL: [Self; 7] = [
        Self::FloodOfOneKey,
        Self::FloodOfNewKeys,
        Self::ForeignValue,
        Self::LockedRow,
        Self::DeadNode,
        Self::Clock,
        Self::FullDisk,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FloodOfOneKey => "a flood of one key",
            Self::FloodOfNewKeys => "a flood of new keys",
            Self::ForeignValue => "a foreign value",
            Self::LockedRow => "a locked row",
            Self::DeadNode => "a dead node",
            Self::Clock => "a clock that jumps an hour",
            Self::FullDisk => "a full disk",
        }
    }
}

impl Store {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Embedded => "embedded",
            Self::Optimistic => "optimistic on a map",
            Self::Redis => "redis",
            Self::Cluster => "redis cluster",
            Self::Sentinels => "redis by sentinels",
            Self::Postgres => "postgres",
            Self::Fallback => "fallback on redis",
            Self::CircuitBreaker => "circuit breaker on redis",
            Self::DenyCache => "deny cache on redis",
            Self::Leasing => "leasing on redis",
            Self::FallbackOnPostgres => "fallback on postgres",
        }
    }

    /// Whether a store can have it.
    pub(crate) fn has(self, sick: Sick) -> bool {
        let is_local = matches!(self, Self::Memory | Self::Embedded | Self::Optimistic);
        match sick {
            Sick::FloodOfOneKey | Sick::FloodOfNewKeys => true,
            Sick::ForeignValue => !is_local,
            Sick::LockedRow => matches!(self, Self::Postgres | Self::FallbackOnPostgres),
            Sick::DeadNode => matches!(self, Self::Cluster | Self::Sentinels),
            Sick::Clock => is_local || self == Self::DenyCache,
            Sick::FullDisk => self == Self::Postgres,
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

#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Servers {
    None,
    /// A file, removed with this.
    File(PathBuf),
    Redis(redis::Server),
    Cluster(redis::Cluster),
    Sentinels(redis::Sentinels),
    Postgres(postgres::Server),
}

impl Place {
    pub(crate) async fn set_up(store: Store) -> Self {
        let clock = Jumping::default();
        let servers = match store {
            Store::Memory | Store::Optimistic => Servers::None,
            Store::Embedded => {
                let name = format!("tollgate-chaos-{}.redb", std::process::id());
                let file = std::env::temp_dir().join(name);
                drop(std::fs::remove_file(&file));
                Servers::File(file)
            }
            Store::Cluster => Servers::Cluster(redis::Cluster::start(3)),
            Store::Sentinels => Servers::Sentinels(redis::Sentinels::start()),
            Store::Postgres | Store::FallbackOnPostgres => {
                Servers::Postgres(postgres::Server::start())
            }
            _ => Servers::Redis(redis::Server::start()),
        };
        let limiter = servers.limiter(store, &clock).await;
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
            // It does not take such numbers by itself.
            (Servers::Postgres(server), Sick::ForeignValue) => {
                drop(server.query("ALTER TABLE tollgate.buckets ALTER gain TYPE bigint"));
            }
            // More than 18 MB: the log of the server keeps to files of 16 MB.
            (Servers::Postgres(server), Sick::FullDisk) => drop(server.query(
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
            (_, Sick::Clock) => self.clock.jump(3_600),
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
            (Servers::Postgres(server), Sick::FullDisk) => server.limit_files(Some(18 << 20)),
            _ => {}
        }
    }

    /// Halfway, what can get worse does.
    pub(crate) fn get_worse(&self, sick: Sick) {
        if sick == Sick::Clock {
            self.clock.jump(-7_200);
        }
    }

    pub(crate) async fn recover(&mut self, sick: Sick) {
        match (&self.servers, sick) {
            (_, Sick::Clock) => self.clock.jump(3_600),
            (Servers::Cluster(cluster), Sick::DeadNode) => {
                cluster.node(0).resume();
                cluster.until_complete();
            }
            (Servers::Postgres(server), Sick::FullDisk) => server.limit_files(None),
            _ => {}
        }
        self.locking = None;
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
    async fn limiter(&self, wrapper: Store, clock: &Jumping) -> RateLimiter {
        let redis = match self {
            Self::None if wrapper == Store::Memory => {
                return RateLimiter::new(Memory::new().clock(clock.clone()));
            }
            Self::None => {
                let store = Optimistic::new(Map::default()).clock(clock.clone()).tries(u32::MAX);
                return RateLimiter::new(store.deadline(DEADLINE));
            }
            Self::File(file) => {
                let store = Embedded::at(file).clock(clock.clone()).deadline(DEADLINE);
                return RateLimiter::new(store.open().unwrap());
            }
            Self::Postgres(server) => {
                let store = Postgres::at(server.settings()).deadline(DEADLINE);
                let store = store.connect().await.unwrap();
                return match wrapper {
                    Store::FallbackOnPostgres => {
                        RateLimiter::new(Fallback::new(store, Memory::new()))
                    }
                    _ => RateLimiter::new(store),
                };
            }
            Self::Redis(server) => Redis::at(server.url()),
            Self::Cluster(cluster) => Redis::cluster(cluster.urls()),
            Self::Sentinels(all) => Redis::sentinel(all.urls(), all.master_name()),
        };
        let redis = redis.deadline(DEADLINE).connect().await.unwrap();
        match wrapper {
            Store::Fallback => RateLimiter::new(Fallback::new(redis, Memory::new())),
            Store::CircuitBreaker => RateLimiter::new(CircuitBreaker::new(redis)),
            Store::DenyCache => RateLimiter::new(DenyCache::new(redis).clock(clock.clone())),
            Store::Leasing => RateLimiter::new(Leasing::new(redis).lease(&SICK)),
            _ => RateLimiter::new(redis),
        }
    }
}

/// The time of the system, and jumps.
#[derive(Clone, Debug, Default)]
struct Jumping {
    system: SystemClock,
    seconds: Arc<AtomicI64>,
}

impl Jumping {
    fn jump(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        let jumped = self.seconds.load(Ordering::SeqCst) * 1_000_000;
        Timestamp::from_micros(self.system.now().as_micros() + jumped)
    }
}

/// A store that can compare and swap.
#[derive(Debug, Default)]
struct Map(Mutex<HashMap<String, Vec<u8>>>);

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
