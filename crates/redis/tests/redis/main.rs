//! The store in Redis: on real servers, through proxies that fail, and beside hostile servers. What
//! has deadlines in real time is in `slow`.

mod address_map;
mod ahead;
mod callers;
mod clones;
mod cluster;
mod debtors;
mod errors;
mod examples;
mod flood;
mod guide;
mod hostile;
mod in_flight;
mod leavers;
mod losses;
mod observing;
mod proxy;
mod replacing;
mod servers;
mod streams;
#[cfg(feature = "tls")]
mod tls;
mod undecidable;
