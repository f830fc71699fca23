//! Windows of a calendar on a real server.

use super::{Server, on};
use crate::Redis;
use tollgate::clock::ManualClock;
use tollgate_kit::store_time::StoreTime;
use tollgate_testing::calendars;

fn time_of(store: &Redis) -> &StoreTime {
    &store.batcher.carrier().time
}

#[tokio::test]
async fn a_node_whose_clock_is_days_off_is_answered_alike() {
    let server = Server::start();
    let connect = async |clock: &ManualClock, prefix: String| {
        on(&server, clock).prefix(prefix).connect().await.unwrap()
    };
    calendars::a_clock_that_is_days_off_changes_no_answer(connect, time_of).await;
}

#[tokio::test]
async fn a_month_ends_when_it_does_for_a_node_that_still_believes_in_it() {
    let server = Server::start();
    let connect = async |clock: &ManualClock, prefix: String| {
        on(&server, clock).prefix(prefix).connect().await.unwrap()
    };
    calendars::a_month_ends_although_a_node_still_believes_in_it(connect, time_of).await;
}
