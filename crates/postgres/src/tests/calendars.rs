//! Windows of a calendar on a real server.

use super::engine::with_clock;
use crate::Postgres;
use tollgate::clock::ManualClock;
use tollgate_kit::store_time::StoreTime;
use tollgate_testing::calendars;

fn time_of(store: &Postgres) -> &StoreTime {
    &store.batcher.carrier().time
}

async fn connect(clock: &ManualClock, prefix: String) -> Postgres {
    with_clock(clock).prefix(prefix).connect().await.unwrap()
}

#[tokio::test]
async fn a_node_whose_clock_is_days_off_is_answered_alike() {
    calendars::a_clock_that_is_days_off_changes_no_answer(connect, time_of).await;
}

#[tokio::test]
async fn a_month_ends_when_it_does_for_a_node_that_still_believes_in_it() {
    calendars::a_month_ends_although_a_node_still_believes_in_it(connect, time_of).await;
}
