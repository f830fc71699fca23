//! How many requests come to each node, and what goes wrong with the nodes.

use super::{Pattern, Simulation};
use crate::node::LeaseNode;

impl Simulation {
    pub(super) fn set_demand(&mut self, at: i64) {
        let count = self.hosts.len();
        let rate = self.fleet.rate as f64 / 1e6;
        let mut total = rate * self.fleet.load as f64 / 100.0;
        let mut weights: Vec<f64> = match self.fleet.pattern {
            Pattern::Even | Pattern::Pulse => vec![1.0; count],
            Pattern::Zipf | Pattern::Jumps => {
                (0..count).map(|nth| 1.0 / (nth + 1) as f64).collect()
            }
            Pattern::Hog => {
                let mut weights = vec![1.0 / (count - 1).max(1) as f64; count];
                weights[0] = 3.0;
                weights
            }
        };
        if self.fleet.pattern == Pattern::Jumps {
            for nth in (1..count).rev() {
                weights.swap(nth, self.dice.below(nth as u64 + 1) as usize);
            }
            for weight in &mut weights {
                if count > 2 && self.dice.below(5) == 0 {
                    *weight = 0.0;
                }
            }
        }
        if self.fleet.pattern == Pattern::Pulse {
            total = rate * [0.3, 0.0, 6.0, 0.9][(at / 250_000 % 4) as usize];
        }
        let sum: f64 = weights.iter().sum::<f64>().max(1e-9);
        for (host, weight) in self.hosts.iter_mut().zip(weights) {
            host.demand = total * weight / sum;
        }
        let mut demands: Vec<f64> = self.hosts.iter().map(|host| host.demand).collect();
        demands.sort_by(f64::total_cmp);
        let mut left = rate;
        self.level = f64::INFINITY;
        for (nth, demand) in demands.iter().enumerate() {
            let others = (count - nth) as f64;
            if demand * others >= left {
                self.level = left / others;
                break;
            }
            left -= demand;
        }
    }

    pub(super) fn disturb(&mut self, at: i64) {
        let faults = self.fleet.faults;
        let every = match self.fleet.pattern {
            Pattern::Jumps => 500_000,
            Pattern::Pulse => 250_000,
            Pattern::Even | Pattern::Zipf | Pattern::Hog => i64::MAX,
        };
        if at > 0 && at % every == 0 {
            self.set_demand(at);
        }
        if faults.crashes && at > 0 && at % 100_000 == 0 {
            for host in &mut self.hosts {
                if self.dice.below(100) == 0 {
                    // After a reboot, even the clock is another one.
                    host.offset = self.dice.below(1_000_000_000) as i64;
                    host.node =
                        LeaseNode::new(&self.terms, host.clock(at), self.dice.below(1 << 60));
                    host.life += 1;
                    host.down_until = at + 200_000;
                    host.waiting.clear();
                }
            }
        }
        if faults.partitions && at % 500_000 == 0 {
            let dice = &mut self.dice;
            self.cut_off.iter_mut().for_each(|cut_off| *cut_off = dice.below(10) == 0);
        }
    }
}
