//! The statements that `docs/postgres.md` gives to operators do what it says.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tollgate::backend::Postgres;
use tollgate::{DAY, Limit, Quota, RateLimiter};
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

#[test]
fn the_files_are_named_in_the_order_in_which_they_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = fs::read_to_string(root.join("docs/postgres.md")).unwrap();
    let (_, rest) = guide.split_once("in this order:").unwrap();
    let (list, _) = rest.split_once(". Then").unwrap();
    let server = Server::start();
    let mut files: Vec<_> = list.split('`').skip(1).step_by(2).collect();
    for file in &files {
        let path = root.join(format!("src/backend/postgres/sql/{file}.sql"));
        let run = server.psql().arg("-f").arg(&path).output().unwrap();
        assert!(run.status.success(), "{file}: {}", String::from_utf8_lossy(&run.stderr));
    }
    files.sort_unstable();
    let there = fs::read_dir(root.join("src/backend/postgres/sql")).unwrap();
    let mut there: Vec<_> =
        there.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    there.sort_unstable();
    assert_eq!(there, files.iter().map(|file| format!("{file}.sql")).collect::<Vec<_>>());
    assert_eq!(server.query("SELECT now > 0 FROM tollgate.decide('{}', '{0, 0}')"), "t");
}
