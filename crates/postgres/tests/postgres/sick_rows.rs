//! Rows that cannot be decided, and the requests that do not name them.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, NoTls, Transaction};
use tollgate::{DAY, Limit, MINUTE, OnFailure, Quota, RateLimited, RateLimiter};
use tollgate_postgres::Postgres;
use tollgate_testing::postgres::Server;
use tollgate_testing::traffic::wait_until;

/// They gain nothing while a test runs.
static CLIENTS: Limit = Limit::new("clients", Quota::token_bucket(1_000, DAY.saturating_mul(300)));
static ALL: Limit = Limit::new("all", Quota::token_bucket(10_000, DAY.saturating_mul(300)));

/// Requests for the row that is locked wait as long.
const DEADLINE: Duration = Duration::from_secs(5);

/// A role of its own, which is no superuser, and its schema.
struct Place {
    settings: String,
    schema: String,
    store: Postgres,
    limiter: RateLimiter,
}

impl Place {
    async fn set_up() -> Self {
        Self::with_deadline(DEADLINE).await
    }

    async fn with_deadline(deadline: Duration) -> Self {
        let server = Server::shared();
        let (role, schema) = (server.new_role(), server.unused_name());
        let settings = server.settings().replace("user=app", &format!("user={role}"));
        let store = Postgres::at(&settings).schema(&schema);
        // Beside other tests, the table and its functions may take longer than a request has.
        drop(store.clone().deadline(MINUTE).connect().await.unwrap());
        let store = store.deadline(deadline).connect().await.unwrap();
        Self { settings, schema, limiter: RateLimiter::new(store.clone()), store }
    }

    /// The row of the sick key has numbers that no bucket has.
    async fn with_foreign_numbers() -> Self {
        let place = Self::set_up().await;
        let row = "ALTER TABLE tollgate.buckets ALTER gain TYPE bigint; \
                   INSERT INTO tollgate.buckets \
                   VALUES ('tollgate:clients:sick', 5, 0, 0, 1, 10, 1)";
        place.run(row).await;
        place
    }

    async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.settings, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Runs statements in which `tollgate.` stands for the schema.
    async fn run(&self, text: &str) {
        let text = text.replace("tollgate.", &format!("{}.", self.schema));
        self.client().await.batch_execute(&text).await.unwrap();
    }

    /// Asks for many keys, each time beside requests for the sick one. Each third request names a
    /// limit that all share as well. Returns what the requests for the sick one were told.
    async fn ask_beside_the_sick_one(&self) -> Vec<RateLimited> {
        let ask = |key: String, nth: usize, limiter: RateLimiter| async move {
            let call = limiter.limit(&CLIENTS).key(key);
            match nth % 3 {
                0 => call.and(&ALL).await.map(drop),
                _ => call.await.map(drop),
            }
        };
        let (mut sick, mut asked) = (JoinSet::new(), 0);
        let open = self.limiter.clone().on_failure(OnFailure::Admit);
        for _ in 0..ROUNDS {
            let mut healthy = JoinSet::new();
            for nth in 0..KEYS {
                if nth % 20 == 0 {
                    asked += 1;
                    let limiter = if asked % 2 == 0 { &self.limiter } else { &open };
                    sick.spawn(ask("sick".to_owned(), asked, limiter.clone()));
                }
                healthy.spawn(ask(format!("k{nth}"), nth, self.limiter.clone()));
            }
            while let Some(outcome) = healthy.join_next().await {
                outcome.unwrap().unwrap();
            }
        }
        let told = sick.join_all().await.into_iter().map(|outcome| outcome.unwrap_err()).collect();
        // What was not answered in time may still wait in the server.
        wait_until("no call waits", async || self.waiting() == 0).await;
        told
    }

    /// How many calls wait for a lock.
    fn waiting(&self) -> u32 {
        let waits = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE \
             '%{}%'",
            self.schema
        );
        Server::shared().query(&waits).parse().unwrap()
    }

    /// Decides about these keys in a transaction, which keeps their rows locked.
    async fn lock(&self, transaction: &Transaction<'_>, keys: impl IntoIterator<Item = String>) {
        for key in keys {
            let decides = async |store| {
                let limiter = self.limiter.with_backend(store);
                limiter.limit(&CLIENTS).key(key).cost(5).await.map(drop)
            };
            self.store.in_transaction(transaction, decides).await.unwrap();
        }
    }

    /// Holds that each healthy request was charged once, and none of the others.
    async fn only_the_healthy_are_charged(&self) {
        for nth in 0..KEYS {
            let left = self.limiter.peek(&CLIENTS).key(format!("k{nth}")).await.unwrap();
            assert_eq!(left.remaining(), 1_000 - ROUNDS, "k{nth}");
        }
        let shared = u64::try_from(KEYS.div_ceil(3)).unwrap() * ROUNDS;
        assert_eq!(self.limiter.peek(&ALL).await.unwrap().remaining(), 10_000 - shared);
    }
}

const ROUNDS: u64 = 8;
const KEYS: usize = 200;

/// A tenant that keeps a transaction open after a decision in it, and goes on asking, stood in every
/// statement: 391 of 400 requests for other keys failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_locked_fails_only_the_requests_that_name_it() {
    let with = async |is_new: bool| {
        let place = Place::set_up().await;
        let mut client = place.client().await;
        if !is_new {
            place.limiter.limit(&CLIENTS).key("sick").await.unwrap();
        }
        let transaction = client.transaction().await.unwrap();
        place.lock(&transaction, ["sick".to_owned()]).await;
        for told in place.ask_beside_the_sick_one().await {
            assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
        }
        transaction.rollback().await.unwrap();
        place.only_the_healthy_are_charged().await;
        let permit = place.limiter.limit(&CLIENTS).key("sick").await.unwrap();
        assert_eq!(permit.remaining(), if is_new { 999 } else { 998 });
    };
    tokio::join!(with(false), with(true));
}

/// Requests for a locked key and for all clients together held the row of all while they waited.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_a_locked_row_holds_no_other() {
    let place = Place::with_deadline(Duration::from_secs(1)).await;
    place.limiter.limit(&CLIENTS).key("sick").and(&ALL).await.unwrap();
    let (mut client, other) = (place.client().await, place.client().await);
    let transaction = client.transaction().await.unwrap();
    place.lock(&transaction, ["sick".to_owned()]).await;
    let limiter = place.limiter.clone();
    let asks = tokio::spawn(async move {
        for _ in 0..3 {
            let call = || limiter.limit(&CLIENTS).key("sick").and(&ALL).into_future();
            let (one, two) = tokio::join!(call(), call());
            for told in [one.unwrap_err(), two.unwrap_err()] {
                assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
            }
        }
    });
    let free = format!(
        "SELECT 1 FROM {}.buckets WHERE key <> 'tollgate:clients:sick' FOR UPDATE SKIP LOCKED",
        place.schema
    );
    let (mut asked, mut held) = (0, 0);
    while !asks.is_finished() {
        held += u32::from(other.query_opt(&free, &[]).await.unwrap().is_none());
        asked += 1;
        sleep(Duration::from_millis(2)).await;
    }
    asks.await.unwrap();
    // It was held nearly always. On a busy machine, calls that do not wait take their time as well.
    assert!(asked >= 20 && held <= asked / 3, "{held} of {asked}");
}

/// The second of two attempts could take the tokens of requests that were refused long ago.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_waits_for_a_lock_when_its_callers_have_left() {
    let place = Place::with_deadline(Duration::from_secs(1)).await;
    let mut client = place.client().await;
    let transaction = client.transaction().await.unwrap();
    place.lock(&transaction, ["sick".to_owned()]).await;
    for _ in 0..3 {
        let begun = Instant::now();
        place.limiter.limit(&CLIENTS).key("sick").await.unwrap_err();
        sleep(Duration::from_millis(1_200).saturating_sub(begun.elapsed())).await;
        assert_eq!(place.waiting(), 0);
    }
}

/// More than the server is asked about at once. The last of them were told of an outage.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_of_many_that_are_locked_is_let_through() {
    const LOCKED: usize = 60;
    let place = Place::with_deadline(Duration::from_secs(2)).await;
    let mut client = place.client().await;
    let transaction = client.transaction().await.unwrap();
    let key = |nth: usize| format!("sick{nth}");
    place.lock(&transaction, (0..LOCKED).map(key)).await;
    let limiter = place.limiter.clone().on_failure(OnFailure::Admit);
    let mut asks = JoinSet::new();
    for nth in 0..LOCKED {
        let limiter = limiter.clone();
        asks.spawn(async move {
            for _ in 0..3 {
                let told = limiter.limit(&CLIENTS).key(key(nth)).await.unwrap_err();
                assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
            }
        });
    }
    // Others do not see them.
    for nth in 0..200 {
        place.limiter.limit(&CLIENTS).key(format!("k{nth}")).await.unwrap();
    }
    while let Some(outcome) = asks.join_next().await {
        outcome.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_with_foreign_numbers_fails_only_the_requests_that_name_it() {
    let place = Place::with_foreign_numbers().await;
    for told in place.ask_beside_the_sick_one().await {
        assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
        let told = format!("{told:?}");
        assert!(told.contains("numbers that are not those of a bucket"), "{told}");
    }
    place.only_the_healthy_are_charged().await;
    place.limiter.reset(&CLIENTS).key("sick").await.unwrap();
    place.limiter.limit(&CLIENTS).key("sick").await.unwrap();
}

/// Others have a check that no charge of the row passes. The row itself is sound, so the server names
/// none: all requests of a call failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_a_check_of_others_holds_as_it_is_fails_only_the_requests_that_name_it() {
    let place = Place::set_up().await;
    place.limiter.limit(&CLIENTS).key("sick").await.unwrap();
    let check = "DO $$ BEGIN EXECUTE (SELECT 'ALTER TABLE tollgate.buckets ADD CHECK \
                 (key <> ''tollgate:clients:sick'' OR value = ' || value || ')' \
                 FROM tollgate.buckets WHERE key = 'tollgate:clients:sick'); END $$";
    place.run(check).await;
    for told in place.ask_beside_the_sick_one().await {
        assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
        assert!(format!("{told:?}").contains("violates check constraint"), "{told:?}");
    }
    place.only_the_healthy_are_charged().await;
}

/// The function found such a row locked by another call, and did not report it: all requests failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_with_foreign_numbers_is_found_while_it_goes_from_hand_to_hand() {
    let place = Place::with_foreign_numbers().await;
    // Without the name of the schema, so that they are none of the calls that wait.
    let path = format!("SET search_path = {}", place.schema);
    let hold = "BEGIN; SELECT FROM buckets WHERE key = 'tollgate:clients:sick' FOR UPDATE; \
                SELECT pg_sleep(0.002); COMMIT";
    let mut hands = JoinSet::new();
    for _ in 0..4 {
        let client = place.client().await;
        client.batch_execute(&path).await.unwrap();
        hands.spawn(async move {
            loop {
                client.batch_execute(hold).await.unwrap();
            }
        });
    }
    let wants = "SELECT count(*) > 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                 AND query LIKE '%FROM buckets %'";
    wait_until("many want the row", async || Server::shared().query(wants) == "t").await;
    for told in place.ask_beside_the_sick_one().await {
        assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
    }
    hands.shutdown().await;
    place.only_the_healthy_are_charged().await;
}

/// The function looked for such a row again and again, until the server ended it.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_a_policy_hides_fails_only_the_requests_that_name_it() {
    let place = Place::set_up().await;
    place.limiter.limit(&CLIENTS).key("sick").await.unwrap();
    let policy = "ALTER TABLE tollgate.buckets ENABLE ROW LEVEL SECURITY; \
                  ALTER TABLE tollgate.buckets FORCE ROW LEVEL SECURITY; \
                  CREATE POLICY hides ON tollgate.buckets \
                  USING (key <> 'tollgate:clients:sick') WITH CHECK (true)";
    place.run(policy).await;
    for told in place.ask_beside_the_sick_one().await {
        assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
        let told = format!("{told:?}");
        assert!(told.contains("a policy of the table hides the row of a bucket"), "{told}");
    }
    place.only_the_healthy_are_charged().await;
}
