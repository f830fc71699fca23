//! The store in Redis: on real servers, through proxies that fail, and beside hostile servers. What
//! has deadlines in real time is in `tests/slow`.

#![cfg(all(feature = "memory", feature = "redis"))]

mod address_map;
mod ahead;
mod callers;
mod clones;
mod cluster;
mod debtors;
mod errors;
mod flood;
mod guide;
mod hostile;
#[cfg(feature = "axum")]
mod leavers;
mod losses;
mod proxy;
mod replacing;
mod servers;
#[cfg(feature = "throttle")]
mod streams;
#[cfg(feature = "redis-tls")]
mod tls;
#[cfg(feature = "axum")]
mod undecidable;
