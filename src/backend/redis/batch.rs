//! What the script is told: several orders as one list of numbers.

use std::collections::HashMap;

use super::names::Name;
use super::number::{MOST, double, double_of};
use super::order::{Order, OwnAdjustment, OwnCharge, Whose};
use super::script::code;
use crate::algebra::{Bucket, State, Units};
use crate::backend::Change;
use crate::backend::adjustment::micros;
use crate::backend::record::has_same_numbers;
use crate::quota::Kind;

/// The buckets of several orders, each once, and what is asked of them.
pub(super) struct Batch<'o> {
    keys: Vec<&'o Name>,
    /// Of each order, and each bucket that it names, which of the keys it is.
    places: Vec<usize>,
    argument: Vec<u8>,
}

impl<'o> Batch<'o> {
    /// `births_count` if absent buckets were empty when the store was born.
    pub(super) fn of(orders: impl Iterator<Item = &'o Order> + Clone, births_count: bool) -> Self {
        let (keys, places) = number(orders.clone());
        let mut writer = Writer { limits: Vec::new(), asked: Vec::new(), plain: true };
        let (mut rest, mut count) = (places.as_slice(), 0_i64);
        for order in orders {
            let (own, others) = rest.split_at_checked(order.buckets()).unwrap_or((rest, &[]));
            rest = others;
            writer.order(order, own);
            count = count.saturating_add(1);
        }
        let argument = writer.argument(count, births_count);
        Self { keys, places, argument }
    }

    /// The names of its buckets.
    pub(super) fn keys(&self) -> &[&'o Name] {
        &self.keys
    }

    /// The numbers, as the script reads them.
    pub(super) fn argument(&self) -> &[u8] {
        &self.argument
    }

    /// The same at a time that a test has chosen.
    #[cfg(test)]
    pub(super) fn at(mut self, now: crate::clock::Timestamp) -> Self {
        push(&mut self.argument, double(now.as_micros()));
        self
    }

    /// Which of the keys the buckets are that the orders name, one after the other.
    pub(super) fn into_places(self) -> Vec<usize> {
        self.places
    }
}

/// Gives each bucket one number, however often it is named.
fn number<'o>(orders: impl Iterator<Item = &'o Order>) -> (Vec<&'o Name>, Vec<usize>) {
    let (mut keys, mut places) = (Vec::new(), Vec::new());
    let mut known: Option<HashMap<&Name, usize>> = None;
    for order in orders {
        for name in order.names() {
            let next = keys.len();
            // One that is alone needs no table.
            let place = match &mut known {
                Some(known) => *known.entry(name).or_insert(next),
                None if keys.first() == Some(&name) => 0,
                None if keys.is_empty() => 0,
                None => {
                    let first = keys.first().map(|first| (*first, 0));
                    known = Some(first.into_iter().chain([(name, next)]).collect());
                    next
                }
            };
            if place == next {
                keys.push(name);
            }
            places.push(place);
        }
    }
    (keys, places)
}

/// The numbers of limits, and those of what is asked.
struct Writer<'o> {
    limits: Vec<&'o Bucket>,
    asked: Vec<u8>,
    /// Whether all of it is of the commonest kind.
    plain: bool,
}

impl<'o> Writer<'o> {
    /// All of it, with the count of orders.
    fn argument(self, count: i64, births_count: bool) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.asked.len().saturating_add(64));
        let kind = match (births_count, self.plain) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => 0,
        };
        push(&mut all, double(kind));
        push(&mut all, length(self.limits.len()));
        for limit in self.limits {
            push(&mut all, double_of(limit.gain()));
            push(&mut all, double_of(limit.token()));
            push(&mut all, double(limit.capacity()));
            push(&mut all, double_of(limit.step()));
            push(&mut all, double(limit.initial()));
        }
        push(&mut all, double(count));
        all.extend_from_slice(&self.asked);
        all
    }

    fn order(&mut self, order: &'o Order, places: &[usize]) {
        if let Order::Charges(charges) = order
            && let [one] = charges.as_slice()
            && is_plain(one)
        {
            self.say(code::TAKE);
            self.bucket(places.first(), &one.bucket, &one.whose);
            return self.say(one.units.max(0));
        }
        self.plain = false;
        match order {
            Order::Charges(charges) => {
                self.say(code::CHARGES);
                self.put(length(charges.len()));
                let mut places = places.iter();
                charges.iter().for_each(|charge| self.charge(charge, &mut places));
            }
            Order::Adjustments(all) => {
                self.say(code::REFUNDS);
                self.put(length(all.len()));
                all.iter().zip(places).for_each(|(one, place)| self.adjustment(one, place));
            }
            Order::Resets(names) => {
                self.say(code::RESETS);
                self.put(length(names.len()));
                places.iter().for_each(|place| self.put(key(Some(place))));
            }
        }
    }

    fn charge<'p>(&mut self, charge: &'o OwnCharge, places: &mut impl Iterator<Item = &'p usize>) {
        let bucket = &charge.bucket;
        self.put(key(places.next()));
        self.put(if charge.other.is_some() { key(places.next()) } else { 0.0 });
        self.limit(bucket, &charge.whose);
        self.say(charge.units.max(0));
        self.say(charge.terms.floor());
        self.put(double_of(charge.terms.max_wait()));
        self.say(i64::from(charge.takes));
    }

    fn adjustment(&mut self, own: &'o OwnAdjustment, place: &usize) {
        self.bucket(Some(place), &own.bucket, &own.whose);
        match own.change {
            Change::Refund { units } => self.refund(units, None, None),
            Change::RefundSince { units, since } => self.refund(units, None, Some(since)),
            Change::Undo { units, left } => self.refund(units, Some(left), None),
            Change::Block { time } => {
                self.say(1);
                self.put(double_of(micros(time)));
                self.state(None);
                self.state(None);
            }
        }
    }

    fn refund(&mut self, units: Units, left: Option<State>, since: Option<State>) {
        self.say(0);
        // More than that empties or fills any bucket as well.
        self.say(units.clamp(-MOST, MOST));
        self.state(left);
        self.state(since);
    }

    /// Which bucket, of which limit.
    fn bucket(&mut self, place: Option<&usize>, bucket: &'o Bucket, whose: &Whose) {
        self.put(key(place));
        self.limit(bucket, whose);
    }

    /// Which limit, and where its windows begin.
    fn limit(&mut self, bucket: &'o Bucket, whose: &Whose) {
        let same = |known: &&Bucket| {
            has_same_numbers(known, bucket) && known.initial() == bucket.initial()
        };
        let place = self.limits.iter().position(same).unwrap_or_else(|| {
            self.limits.push(bucket);
            self.limits.len().saturating_sub(1)
        });
        self.put(key(Some(&place)));
        self.say(phase(bucket, whose));
    }

    fn state(&mut self, state: Option<State>) {
        self.say(i64::from(state.is_some()));
        self.say(state.map_or(0, |state| state.value));
        self.say(state.map_or(0, |state| state.ts.as_micros()));
    }

    fn say(&mut self, number: i64) {
        self.put(double(number));
    }

    fn put(&mut self, number: f64) {
        push(&mut self.asked, number);
    }
}

/// Whether a charge is the commonest of all.
fn is_plain(charge: &OwnCharge) -> bool {
    charge.takes
        && charge.other.is_none()
        && charge.terms.floor() == 0
        && charge.terms.max_wait() == 0
}

/// An instant at which a window begins: within the first period after the epoch, as that is exact.
pub(super) fn phase(bucket: &Bucket, whose: &Whose) -> i64 {
    match bucket.kind() {
        Kind::TokenBucket => 0,
        Kind::FixedWindow => {
            let start = bucket.start().unwrap_or_else(|| whose.id().phase(bucket));
            let step = i64::try_from(bucket.step()).unwrap_or(i64::MAX);
            start.as_micros().checked_rem_euclid(step).unwrap_or(0)
        }
    }
}

/// Lists begin at 1 there.
fn key(place: Option<&usize>) -> f64 {
    place.map_or(0.0, |place| length(place.saturating_add(1)))
}

fn length(length: usize) -> f64 {
    u64::try_from(length).map_or(f64::INFINITY, double_of)
}

fn push(bytes: &mut Vec<u8>, number: f64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}
