//! Messages between the nodes and the store: their delays, their losses, and what they do.

use std::cmp::Reverse;

use super::{DEADLINE, EPOCH, Simulation};
use crate::node::{LotAnswer, LotQuestion, LotReturn};
use tollgate::algebra::{Units, Verdict};
use tollgate::backend::{Adjustment, BucketId, Charge};
use tollgate::clock::Timestamp;

pub(super) enum Message {
    Question {
        node: usize,
        life: u32,
        question: LotQuestion,
        back: i64,
        is_lost: bool,
    },
    Single {
        node: usize,
        life: u32,
        units: Units,
        sent: Timestamp,
        back: i64,
        is_lost: bool,
    },
    Return(LotReturn),
    Answer {
        node: usize,
        life: u32,
        question: LotQuestion,
        answer: LotAnswer,
    },
    SingleAnswer {
        node: usize,
        life: u32,
        units: Units,
        sent: Timestamp,
        wait: Option<u64>,
        at: Timestamp,
    },
    Deadline {
        node: usize,
        life: u32,
        question: LotQuestion,
    },
}

impl Simulation {
    pub(super) fn delay(&mut self) -> i64 {
        250 + self.dice.below(750) as i64
    }

    /// Sends a message to the store, which may be lost on the way there or back.
    pub(super) fn send(&mut self, at: i64, mut message: Message, nth: usize) {
        self.trips += 1;
        let (mut there, mut lost_there, mut lost_back) = (self.delay(), false, false);
        if self.cut_off[nth] {
            lost_there = self.dice.below(10) < 7;
            lost_back = !lost_there;
        }
        if self.fleet.faults.losses && self.dice.below(100) == 0 {
            lost_there = self.dice.below(2) == 0;
            lost_back = !lost_there;
        }
        let mut late_back = 0;
        if self.fleet.faults.delays && self.dice.below(100) == 0 {
            let late = self.dice.below(800_000) as i64;
            if self.dice.below(2) == 0 {
                there += late;
            } else {
                late_back = late;
            }
        }
        match &mut message {
            Message::Question { back, is_lost, .. } | Message::Single { back, is_lost, .. } => {
                *back += late_back;
                *is_lost = lost_back;
            }
            _ => {}
        }
        if !lost_there {
            self.post(at + there, message);
        }
    }

    pub(super) fn post(&mut self, due: i64, message: Message) {
        self.sent += 1;
        self.letters.push(Some(message));
        self.messages.push(Reverse((due, self.sent, self.letters.len() - 1)));
    }

    pub(super) fn deliver(&mut self, message: Message, at: i64) {
        self.store.now = Timestamp::from_micros(EPOCH + at);
        let terms = self.terms;
        let (key, store) = (self.key.clone(), terms.store());
        let id = BucketId::new("hot", &key);
        match message {
            Message::Question { node, life, question, back, is_lost } => {
                let take = Charge::take(id, store, question.units);
                let floor = Charge::look(id, store, terms.floor());
                let applied = self.store.apply(&[take, floor]);
                let is_admitted = applied.verdict() == Verdict::Admitted;
                let (state, now) = (applied.readings()[0].state(), applied.now());
                let answer = LotAnswer { is_admitted, state, at: now, wait: None };
                if !is_lost {
                    self.post(at + back, Message::Answer { node, life, question, answer });
                }
            }
            Message::Single { node, life, units, sent, back, is_lost } => {
                let applied = self.store.apply(&[Charge::take(id, store, units)]);
                let reading = applied.readings()[0];
                let is_refused = reading.verdict() == Verdict::Refused;
                let wait = is_refused.then(|| reading.wait().as_micros() as u64);
                let now = applied.now();
                if !is_lost {
                    self.post(
                        at + back,
                        Message::SingleAnswer { node, life, units, sent, wait, at: now },
                    );
                }
            }
            Message::Return(back) => {
                self.store.adjust(&[Adjustment::refund_since(id, store, back.units, back.since)]);
            }
            Message::Answer { node, life, question, answer } => {
                let Some(now) = self.hears(node, life, at) else { return };
                self.hosts[node].node.answer(&terms, &question, &answer, now);
                self.wake(node, at);
            }
            Message::SingleAnswer { node, life, units, sent, wait, at: said } => {
                let Some(now) = self.hears(node, life, at) else { return };
                match wait {
                    Some(wait) => {
                        self.hosts[node].node.note_time(said, now);
                        self.hosts[node].node.deny(&terms, units, wait, now);
                    }
                    None if now.micros_since(sent) < terms.safe_life() => {
                        self.uses.push((at, node, units));
                    }
                    None => {}
                }
            }
            Message::Deadline { node, life, question } => {
                let Some(now) = self.hears(node, life, at) else { return };
                self.hosts[node].node.fail(&question, now);
                self.wake(node, at);
            }
        }
    }

    /// The time of a node, if it is still the one that has asked.
    fn hears(&self, node: usize, life: u32, at: i64) -> Option<Timestamp> {
        let host = &self.hosts[node];
        (host.life == life && host.down_until <= at).then(|| host.clock(at))
    }

    fn wake(&mut self, nth: usize, at: i64) {
        for (cost, since) in std::mem::take(&mut self.hosts[nth].waiting) {
            if at - since < DEADLINE {
                self.request(nth, cost, at, Some(since));
            }
        }
    }
}
