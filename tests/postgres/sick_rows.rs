//! Rows that cannot be decided, and the requests that do not name them.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};
use tollgate::backend::Postgres;
use tollgate::{DAY, Limit, OnFailure, Quota, RateLimited, RateLimiter};
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
        let server = Server::shared();
        let (role, schema) = (server.unused_name(), server.unused_name());
        server.query(&format!(
            "CREATE ROLE {role} LOGIN; GRANT CREATE ON DATABASE postgres TO {role}"
        ));
        let settings = server.settings().replace("user=app", &format!("user={role}"));
        let store = Postgres::at(&settings).schema(&schema).deadline(DEADLINE);
        let store = store.connect().await.unwrap();
        Self { settings, schema, limiter: RateLimiter::new(store.clone()), store }
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
        let waits = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE \
             '%{}%'",
            self.schema
        );
        wait_until("no call waits", async || Server::shared().query(&waits) == "0").await;
        told
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
        let decides = async |store| {
            let limiter = place.limiter.with_backend(store);
            limiter.limit(&CLIENTS).key("sick").cost(5).await.map(drop)
        };
        place.store.in_transaction(&transaction, decides).await.unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn a_row_with_foreign_numbers_fails_only_the_requests_that_name_it() {
    let place = Place::set_up().await;
    let row = "ALTER TABLE tollgate.buckets ALTER gain TYPE bigint; \
               INSERT INTO tollgate.buckets VALUES ('tollgate:clients:sick', 5, 0, 0, 1, 10, 1)";
    place.run(row).await;
    for told in place.ask_beside_the_sick_one().await {
        assert!(told.is_unavailable() && !told.is_outage(), "{told:?}");
        let told = format!("{told:?}");
        assert!(told.contains("numbers that are not those of a bucket"), "{told}");
    }
    place.only_the_healthy_are_charged().await;
    place.limiter.reset(&CLIENTS).key("sick").await.unwrap();
    place.limiter.limit(&CLIENTS).key("sick").await.unwrap();
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
