//! A limit in two shards, which looks at two buckets, beside the same limit in one.

use super::limits::enter;
use super::name;
use crate::peers::{self, Allowance, name as peer};
use crate::rounds::{Contest, Figures, Plan};

const ROUNDS: usize = 11;
const DECISIONS: usize = 200_000;

pub fn run(plan: &Plan) -> Vec<Figures> {
    let size = plan.size(DECISIONS);
    let mut contest = Contest::new(name::SHARDS, "ns per decision");
    enter(&mut contest, size, peer::OURS_TWO_SHARDS, peers::ours_in_shards(Allowance::OPEN, 2));
    enter(&mut contest, size, peer::OURS, peers::ours(Allowance::OPEN, 1));
    contest.run(plan.rounds(ROUNDS))
}
