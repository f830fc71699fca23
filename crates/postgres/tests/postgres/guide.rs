//! The statements that `docs/postgres.md` gives to operators do what it says.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tollgate::{DAY, Limit, Quota, RateLimiter};
use tollgate_postgres::Postgres;
use tollgate_testing::postgres::Server;

static PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(20, DAY));
const CLIENT: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 0, 2, 1);

/// The block of SQL in the guide that contains this text.
#[track_caller]
fn block(text: &str) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/postgres.md");
    let guide = fs::read_to_string(guide).unwrap();
    let mut blocks = guide.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
    let found = blocks.find(|block| block.contains(text));
    found.unwrap_or_else(|| panic!("no block has {text}")).to_owned()
}

#[tokio::test]
async fn the_rights_that_are_named_suffice_and_the_bucket_is_found() {
    let server = Server::start();
    let at = |settings: String| Postgres::at(settings).deadline(Duration::from_secs(60));
    at(server.settings()).connect().await.unwrap();
    let role = server.unused_name();
    server.query(&format!("CREATE ROLE {role} LOGIN"));
    server.query(&block("GRANT USAGE").replace("TO app", &format!("TO {role}")));
    let settings = server.settings().replace("user=app", &format!("user={role}"));
    let limiter = RateLimiter::new(at(settings).connect().await.unwrap());
    for left in [19, 18, 17] {
        assert_eq!(limiter.limit(&PER_CLIENT).key(CLIENT).await.unwrap().remaining(), left);
    }
    let shown = server.query(&block("to_timestamp"));
    assert!(shown.starts_with("tollgate:per-client:ip=192.0.2.1|17|20|20"), "{shown}");
}

#[tokio::test]
async fn a_migration_of_ones_own_is_what_the_store_connects_to() {
    let server = Server::start();
    let text = Postgres::at("").migration().unwrap();
    let run = server.psql().arg("-1").arg("-c").arg(&text).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let store = Postgres::at(server.settings()).migrate(false).deadline(Duration::from_secs(60));
    let limiter = RateLimiter::new(store.connect().await.unwrap());
    assert_eq!(limiter.limit(&PER_CLIENT).key(CLIENT).await.unwrap().remaining(), 19);
    // Of an earlier version, nothing is left.
    server.query(
        "CREATE FUNCTION tollgate.decide(integer) RETURNS integer LANGUAGE sql RETURN 1; \
         INSERT INTO tollgate.versions VALUES (3)",
    );
    server.query(&server.query(&block("DROP FUNCTION IF EXISTS")));
    let left = "SELECT string_agg(DISTINCT right(proname, 2), '') FROM pg_proc \
                WHERE pronamespace = 'tollgate'::regnamespace";
    assert_eq!(server.query(left), "_4");
    assert_eq!(server.query("SELECT version FROM tollgate.versions"), "4");
    assert_eq!(limiter.limit(&PER_CLIENT).key(CLIENT).await.unwrap().remaining(), 18);
}
