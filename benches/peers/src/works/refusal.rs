//! A refused request, whole: asked, answered, and the body read to its end.

use std::net::Ipv4Addr;

use http::StatusCode;
use tollgate::fields::Dialect;

use super::layer::answer;
use super::{name, nanos_each};
use crate::peers::layers::{self, Layered, Requests, connect_info};
use crate::peers::{Allowance, name as peer};
use crate::rounds::{Contest, Figures, Plan};

const ROUNDS: usize = 15;
const REQUESTS: usize = 20_000;
const CLIENT: [Ipv4Addr; 1] = [Ipv4Addr::new(203, 0, 113, 7)];

pub fn run(plan: &Plan) -> Vec<Figures> {
    let size = plan.size(REQUESTS);
    let mut contest = Contest::new(name::REFUSAL, "ns per request");
    let spent = Allowance::SPENT;
    enter(&mut contest, size, peer::OURS, layers::ours(spent, Dialect::default(), 1));
    enter(&mut contest, size, peer::OURS_NO_FIELDS, layers::ours(spent, Dialect::None, 1));
    enter(&mut contest, size, peer::TOWER_GOVERNOR, layers::tower_governor(spent));
    enter(&mut contest, size, peer::TOWER_GOVERNOR_HEADERS, layers::tower_governor_headers(spent));
    enter(&mut contest, size, peer::THROTTLE_KIT, layers::throttle_kit(spent));
    contest.run(plan.rounds(ROUNDS))
}

fn enter<'a>(
    contest: &mut Contest<'a>,
    size: usize,
    name: &'static str,
    mut service: impl Layered + 'a,
) {
    let mut requests = Requests::from(&CLIENT, connect_info);
    // What is saved up is spent before the first round.
    layers::drive(&mut service, requests.take(2), StatusCode::OK);
    contest.enter(name, move || {
        let wanted = StatusCode::TOO_MANY_REQUESTS;
        nanos_each(answer(&mut service, &mut requests, size, wanted), size)
    });
}
