//! A server, a schema and a table in which others have written.

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use tollgate_testing::cases::times;
use tollgate_testing::postgres::Server;

use super::{Database, connect_with};
use crate::Postgres;
use crate::migrate::{LOCK, SCHEMA, migrate};
use crate::schema_name::SchemaName;
use tollgate::clock::SystemClock;
use tollgate::{DAY, Limit, Quota, RateLimiter};

static DAILY: Limit = Limit::new("daily", Quota::token_bucket(10, DAY).max_reserved(10));
static WINDOW: Limit = Limit::new("window", Quota::fixed_window(10, DAY));

async fn limiter(schema: &str) -> RateLimiter {
    let store = Postgres::at(Server::shared().settings()).schema(schema).clock(SystemClock::new());
    let store = store.deadline(std::time::Duration::from_secs(60)).connect().await;
    RateLimiter::new(store.unwrap())
}

fn unused_schema() -> SchemaName {
    SchemaName::new(&Server::shared().unused_name()).unwrap()
}

/// What an error says, with its sources.
fn told(error: &dyn std::error::Error) -> String {
    let source = error.source().map(told);
    format!("{error}: {}", source.unwrap_or_default())
}

/// A server that cannot read the functions answered with a syntax error.
#[tokio::test]
async fn a_server_that_is_too_old_says_which_version_it_takes() {
    let text = SCHEMA.replace("140000", "990000");
    assert_ne!(text, SCHEMA);
    let error = connect_with("").await.batch_execute(&text).await.unwrap_err();
    let told = error.as_db_error().unwrap();
    assert_eq!(told.code().code(), "0A000");
    let (start, end) = told.message().split_once(" is too old, ").unwrap();
    assert!(start.starts_with("PostgreSQL 1"), "{start}");
    assert_eq!(end, "as the store needs version 14 or a newer one");
}

/// Migrations gave up after the time in which a decision has to be made.
#[tokio::test]
async fn a_migration_waits_for_another_one_longer_than_decisions_may() {
    let (schema, holder) = (unused_schema(), connect_with("").await);
    holder.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})")).await.unwrap();
    let client = connect_with("options='-c lock_timeout=1ms'").await;
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let migration = tokio::spawn({
        let schema = schema.clone();
        async move { migrate(&client, &schema, false).await }
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                 AND pid = $1";
    let mut seen = 0;
    while seen < 100 {
        seen += holder.query_one(waits, &[&pid]).await.unwrap().get::<_, i64>(0);
        assert!(!migration.is_finished(), "{:?}", migration.await);
    }
    holder.batch_execute("COMMIT").await.unwrap();
    migration.await.unwrap().unwrap();
}

/// Files that a team ran one by one, and not to their end.
#[tokio::test]
async fn a_schema_that_is_there_in_part_is_completed() {
    let (schema, client) = (unused_schema(), connect_with("").await);
    client.batch_execute(&schema.statements(SCHEMA)).await.unwrap();
    migrate(&client, &schema, false).await.unwrap();
    let limiter = limiter(schema.to_string().trim_matches('"')).await;
    assert_eq!(limiter.limit(&DAILY).await.unwrap().remaining(), 9);
}

#[tokio::test]
async fn a_schema_of_another_program_is_left_alone_and_named() {
    for (objects, says) in [
        ("CREATE TABLE s.versions (id integer)", "column \"version\" does not exist"),
        // Versions word it differently.
        ("CREATE TYPE s.buckets AS (x integer)", "\"buckets\""),
        (
            "CREATE FUNCTION s.clock_4(bigint[]) RETURNS text LANGUAGE sql RETURN 'noon'",
            "cannot change return type of existing function",
        ),
    ] {
        let (schema, client) = (Server::shared().unused_name(), connect_with("").await);
        let text =
            format!("CREATE SCHEMA {schema}; {}", objects.replace("s.", &format!("{schema}.")));
        client.batch_execute(&text).await.unwrap();
        let store = Postgres::at(Server::shared().settings()).schema(&schema);
        let error = store.connect().await.unwrap_err();
        let told = error.to_string();
        assert!(error.is_misconfigured() && told.contains(says), "{told}");
        assert!(told.contains("the schema has objects of another program or role"), "{told}");
    }
}

/// A role that may create schemas could leave a table with a trigger, which then ran as the role that
/// migrated.
#[tokio::test]
async fn a_table_of_another_role_is_not_taken_over() {
    let admin = connect_with("").await;
    let [schema, mine] = [(); 2].map(|()| Server::shared().unused_name());
    let role = Server::shared().new_role();
    let objects = [
        String::new(),
        format!("CREATE TABLE {schema}.versions (version integer PRIMARY KEY)"),
        format!("CREATE DOMAIN {schema}.number AS bigint"),
        format!("CREATE FUNCTION {schema}.clock(bigint[]) RETURNS bigint LANGUAGE sql RETURN 0"),
    ];
    for (nth, object) in objects.iter().enumerate() {
        // The schema is that role's, or the administrator's who lets it create there.
        for owner in [role.as_str(), "app"] {
            let text = format!(
                "CREATE SCHEMA {schema} AUTHORIZATION {owner}; \
                 GRANT ALL ON SCHEMA {schema} TO {role}; SET ROLE {role}; {object}; RESET ROLE"
            );
            admin.batch_execute(&text).await.unwrap();
            let name = SchemaName::new(&schema).unwrap();
            let outcome = migrate(&admin, &name, false).await;
            if owner == "app" && nth == 0 {
                outcome.unwrap();
            } else {
                let error = outcome.unwrap_err();
                let said = error.as_db_error().unwrap().message();
                let wanted = format!("the schema, or an object in it, belongs to the role {role}");
                assert_eq!(said, wanted, "{object}");
            }
            admin.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
        }
    }
    // The role itself may use what it has made.
    let text = format!("SET ROLE {role}; CREATE SCHEMA {mine}");
    admin.batch_execute(&text).await.unwrap();
    migrate(&admin, &SchemaName::new(&mine).unwrap(), false).await.unwrap();
}

/// The numbers at the edges of a column that the table allows, or of any.
fn edge(rng: &mut TestRng, allowed: bool) -> i64 {
    let most = 1_i64 << 53;
    let edges = [0, 1, -1, 10, 86_400_000_000, most, -most, most - 1, 1 - most];
    let wild = [i64::MAX, i64::MIN, i64::MAX - 1, most + 1, -most - 1, 1 << 62];
    let below = edges.len() + if allowed { 0 } else { wild.len() };
    let place = usize::try_from(rng.next_u32()).unwrap() % below;
    edges.iter().chain(&wild).copied().nth(place).unwrap()
}

/// A row that others have written is read as a bucket, or is an error that says so. It never makes
/// a client panic, admits more than a full bucket, or keeps others from deciding.
#[tokio::test]
async fn a_row_that_others_have_written_never_admits_more_than_a_full_bucket() {
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for allowed in [true, false] {
        let database = Database::with_server_clock().await;
        if !allowed {
            let columns = ["value", "ts", "gain", "token", "capacity", "step"];
            let free = columns.map(|name| format!("ALTER {name} TYPE bigint"));
            database
                .run(&format!("ALTER TABLE tollgate.buckets {}", free.join(", ")))
                .await
                .unwrap();
        }
        let limiter = limiter(database.schema.to_string().trim_matches('"')).await;
        let mut outcomes = [0; 3];
        for nth in 0..times(300, 60) {
            let (limit, name) = if nth % 2 == 0 { (&DAILY, "daily") } else { (&WINDOW, "window") };
            let key = format!("k{nth}");
            // The numbers of the limit itself, some of them replaced.
            let bucket = limit.bucket();
            let mut numbers = [
                bucket.capacity(),
                1_700_000_000_000_000,
                bucket.gain().try_into().unwrap(),
                bucket.token().try_into().unwrap(),
                bucket.capacity(),
                bucket.step().try_into().unwrap(),
            ];
            for number in &mut numbers {
                if rng.next_u32().is_multiple_of(2) {
                    *number = edge(&mut rng, allowed);
                }
            }
            let list: Vec<_> = numbers.iter().map(i64::to_string).collect();
            let row = format!(
                "INSERT INTO tollgate.buckets VALUES ('tollgate:{name}:{key}', {})",
                list.join(", ")
            );
            if let Err(refused) = database.run(&row).await {
                assert!(allowed, "{refused}");
                continue;
            }
            let mut admitted = 0;
            for _ in 0..12 {
                match limiter.limit(limit).key(key.as_str()).await {
                    Ok(_) => admitted += 1,
                    Err(error) if error.is_refused() => outcomes[1] += 1,
                    Err(error) => {
                        assert!(error.is_unavailable() && !error.is_outage(), "{error:?}");
                        let told = told(&error);
                        assert!(told.contains("numbers that are not those of a bucket"), "{told}");
                        outcomes[2] += 1;
                    }
                }
            }
            assert!(admitted <= 11, "{numbers:?} admitted {admitted}");
            outcomes[0] += admitted;
            // Other buckets are as ever, and this one is once it is reset.
            let other = limiter.limit(limit).key(format!("o{nth}")).await.unwrap();
            assert_eq!(other.remaining(), 9);
            limiter.reset(limit).key(key.as_str()).await.unwrap();
            assert_eq!(limiter.limit(limit).key(key.as_str()).await.unwrap().remaining(), 9);
        }
        assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
    }
}

/// A clock that is wrong by any measure is an error, or a time like any other. Nothing is left of
/// it once it is right again.
#[tokio::test]
async fn a_clock_that_is_wrong_refills_no_bucket_for_good() {
    let database = Database::with_live_clock().await;
    let limiter = limiter(database.schema.to_string().trim_matches('"')).await;
    let start = tollgate_conformance::history::START;
    database.set_time(start).await;
    for left in [9, 8, 7] {
        assert_eq!(limiter.limit(&DAILY).key("alice").await.unwrap().remaining(), left);
    }
    let set = async |now: i64| {
        let text = format!(
            "CREATE OR REPLACE FUNCTION tollgate.clock(numbers bigint[]) RETURNS bigint \
             LANGUAGE sql VOLATILE RETURN ({now}::bigint)"
        );
        database.run(&text.replace("(-9223372036854775808::", "('-9223372036854775808'::")).await
    };
    for wrong in [0, -1, i64::MIN, i64::MIN + 1] {
        set(wrong).await.unwrap();
        // Time that goes back takes nothing and brings nothing.
        assert_eq!(limiter.peek(&DAILY).key("alice").await.unwrap().remaining(), 7, "{wrong}");
        for key in ["bob", "eve"] {
            match limiter.limit(&WINDOW).key(key).await {
                Ok(permit) => assert_eq!(permit.remaining(), 9),
                Err(error) => assert!(!error.is_outage() && error.is_unavailable(), "{error:?}"),
            }
            limiter.reset(&WINDOW).key(key).await.unwrap();
        }
    }
    for wrong in [(1 << 53) + 1, i64::MAX - 1, i64::MAX] {
        set(wrong).await.unwrap();
        let error = limiter.limit(&DAILY).key("alice").await.unwrap_err();
        assert!(!error.is_outage() && error.is_unavailable(), "{error:?}");
        let told = told(&error);
        assert!(told.contains("the clock of the server is wrong"), "{wrong}: {told}");
    }
    set(start.as_micros()).await.unwrap();
    assert_eq!(limiter.limit(&DAILY).key("alice").await.unwrap().remaining(), 6);
}
