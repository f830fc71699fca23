//! What a layer adds to a request that it lets through.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::StatusCode;
use tollgate::fields::Dialect;

use super::{name, nanos_each};
use crate::cold::Elsewhere;
use crate::keys;
use crate::peers::layers::{self, Extend, Inner, Layered, Requests, connect_info, connect_info_07};
use crate::peers::{Allowance, name as peer};
use crate::rounds::{Contest, Figures, Plan};

const ROUNDS: usize = 15;
const REQUESTS: usize = 200_000;
const MANY: usize = 100_000;
/// So few at once that they stay in the cache, as a request does that was just read.
const BATCH: usize = 128;
/// Fewer, as the caches are emptied before each.
const COLD_REQUESTS: usize = 2_000;

pub fn run(plan: &Plan) -> Vec<Figures> {
    // Some of them start a task or make a timer.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime of one thread");
    let _within = runtime.enter();
    let mut figures = Vec::new();
    let one = [Ipv4Addr::new(203, 0, 113, 7)];
    let known = plan.keys(MANY);
    let many = keys::at_random(known, 10 * known);
    if plan.wants(name::LAYER) {
        let mut contest = Layers::new(name::LAYER, plan, &one);
        contest.plain(1);
        contest.enter(peer::TOWER, layers::tower_rate_limit(Allowance::OPEN));
        figures.extend(contest.run(plan));
    }
    if plan.wants(name::LAYER_MANY) {
        let mut contest = Layers::new(name::LAYER_MANY, plan, &many);
        contest.plain(known);
        figures.extend(contest.run(plan));
    }
    if plan.wants(name::LAYER_FIELDS) {
        let mut contest = Layers::new(name::LAYER_FIELDS, plan, &one);
        contest.enter(peer::BARE, Inner);
        contest.enter(peer::OURS, layers::ours(Allowance::OPEN, Dialect::default(), 1));
        for (name, dialect) in [
            (peer::OURS_DRAFT7, Dialect::Draft7),
            (peer::OURS_DRAFT6, Dialect::Draft6),
            (peer::OURS_X_RATE_LIMIT, Dialect::XRateLimit),
            (peer::OURS_NO_FIELDS, Dialect::None),
        ] {
            contest.enter(name, layers::ours(Allowance::OPEN, dialect, 1));
        }
        contest
            .enter(peer::TOWER_GOVERNOR_HEADERS, layers::tower_governor_headers(Allowance::OPEN));
        contest.enter(peer::AXUM_GOVERNOR, layers::axum_governor(Allowance::OPEN));
        contest.enter(peer::THROTTLE_KIT, layers::throttle_kit(Allowance::OPEN));
        figures.extend(contest.run(plan));
    }
    let elsewhere = Elsewhere::new();
    if plan.wants(name::LAYER_COLD) {
        let mut contest = Layers::cold(name::LAYER_COLD, plan, &one, &elsewhere);
        contest.enter(peer::BARE, Inner);
        contest.enter(peer::OURS, layers::ours(Allowance::OPEN, Dialect::None, 1));
        contest.enter(peer::TOWER_GOVERNOR, layers::tower_governor(Allowance::OPEN));
        figures.extend(contest.run(plan));
    }
    if plan.wants(name::LAYER_FIELDS_COLD) {
        let mut contest = Layers::cold(name::LAYER_FIELDS_COLD, plan, &one, &elsewhere);
        contest.enter(peer::BARE, Inner);
        contest.enter(peer::OURS, layers::ours(Allowance::OPEN, Dialect::default(), 1));
        contest
            .enter(peer::TOWER_GOVERNOR_HEADERS, layers::tower_governor_headers(Allowance::OPEN));
        figures.extend(contest.run(plan));
    }
    figures
}

struct Layers<'a> {
    contest: Contest<'a>,
    clients: &'a [Ipv4Addr],
    size: usize,
    /// Visited before each request, if that is to be cold.
    elsewhere: Option<&'a Elsewhere>,
}

impl<'a> Layers<'a> {
    fn new(work: &str, plan: &Plan, clients: &'a [Ipv4Addr]) -> Self {
        let contest = Contest::new(work, "ns per request");
        Self { contest, clients, size: plan.size(REQUESTS), elsewhere: None }
    }

    fn cold(work: &str, plan: &Plan, clients: &'a [Ipv4Addr], elsewhere: &'a Elsewhere) -> Self {
        let size = plan.size(COLD_REQUESTS);
        Self { size, elsewhere: Some(elsewhere), ..Self::new(work, plan, clients) }
    }

    /// Those that add no fields, and, at what they cost, those that always do.
    fn plain(&mut self, keys: usize) {
        self.enter(peer::BARE, Inner);
        self.enter(peer::OURS, layers::ours(Allowance::OPEN, Dialect::None, keys));
        self.enter(peer::TOWER_GOVERNOR, layers::tower_governor(Allowance::OPEN));
        self.enter_from(connect_info_07, peer::AXUM_GCRA, layers::axum_gcra(Allowance::OPEN));
        self.enter(peer::AXUM_GOVERNOR, layers::axum_governor(Allowance::OPEN));
        self.enter(peer::THROTTLE_KIT, layers::throttle_kit(Allowance::OPEN));
    }

    fn enter(&mut self, name: &'static str, service: impl Layered + 'a) {
        self.enter_from(connect_info, name, service);
    }

    fn enter_from(&mut self, extend: Extend, name: &'static str, mut service: impl Layered + 'a) {
        let mut requests = Requests::from(self.clients, extend);
        let (size, elsewhere) = (self.size, self.elsewhere);
        if self.clients.len() > 1 {
            // Every key is known before the first round.
            answer(&mut service, &mut requests, self.clients.len(), StatusCode::OK);
        }
        self.contest.enter(name, move || {
            let time = match elsewhere {
                None => answer(&mut service, &mut requests, size, StatusCode::OK),
                Some(elsewhere) => answer_cold(&mut service, &mut requests, size, elsewhere),
            };
            nanos_each(time, size)
        });
    }

    fn run(self, plan: &Plan) -> Vec<Figures> {
        self.contest.run(plan.rounds(ROUNDS))
    }
}

/// The time of so many requests, without that of making them.
pub(crate) fn answer(
    service: &mut impl Layered,
    requests: &mut Requests<'_>,
    count: usize,
    wanted: StatusCode,
) -> Duration {
    let sizes = (0..count).step_by(BATCH).map(|done| BATCH.min(count - done));
    sizes.map(|size| layers::drive(service, requests.take(size), wanted)).sum()
}

/// The time of so many requests, each after work elsewhere.
fn answer_cold(
    service: &mut impl Layered,
    requests: &mut Requests<'_>,
    count: usize,
    elsewhere: &Elsewhere,
) -> Duration {
    let requests = (0..count).map(|_| requests.take(1)).collect::<Vec<_>>();
    requests
        .into_iter()
        .map(|request| {
            elsewhere.visit();
            layers::drive(service, request, StatusCode::OK)
        })
        .sum()
}
