//! What is counted, and that the guide and the dashboard know all of it.

#![cfg(feature = "memory")]

mod counts;
mod dashboard;
mod reentrant;
mod scrape;
mod table;
