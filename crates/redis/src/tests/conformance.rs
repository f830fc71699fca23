//! The conformance suite on a real server, with a clock that the suite sets.

use std::sync::OnceLock;

use super::{Server, on};

/// The tests of the suite share a server, as they share a database.
static SERVER: OnceLock<Server> = OnceLock::new();

tollgate_conformance::conformance!(|clock| async move {
    on(SERVER.get_or_init(Server::start), &clock).connect().await.unwrap()
});
