//! The suite over PostgreSQL, on a real server and by the server's clock. Unit tests of the engine
//! run it with a clock that is set.

use std::time::Duration;

use tollgate_postgres::Postgres;

use tollgate_testing::postgres::Server;

tollgate_conformance::conformance!(|| async {
    let server = Server::shared();
    let postgres = Postgres::at(server.settings()).schema(server.unused_name());
    postgres.deadline(Duration::from_secs(60)).connect().await.unwrap()
});
