//! The layer, keys and examples beside real servers and clients of other crates.

mod cookies;
mod examples;
mod grpc;
mod sessions;
mod tower_http;

// In the folder in which `tests/layers` compares them with their guide.
#[path = "../guides/recipes/grpc_client.rs"]
mod grpc_client;
#[path = "../guides/recipes/reqwest_middleware_turns.rs"]
mod reqwest_middleware_turns;
#[path = "../guides/recipes/reqwest_turns.rs"]
mod reqwest_turns;
