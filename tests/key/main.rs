//! What becomes a key: addresses of clients, credentials, cookies, sessions, extractors.

#![cfg(all(feature = "memory", feature = "middleware"))]

mod client_address;
#[cfg(feature = "credentials")]
mod credentials;
#[cfg(all(feature = "axum", feature = "credentials"))]
mod extractors;
mod pointers;
mod proxies;
#[cfg(all(unix, feature = "axum"))]
mod unix_socket;
