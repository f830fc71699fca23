//! The line of one bucket: the requests that wait for it, first in, first out.
//!
//! # Design
//!
//! The value of a bucket counts the waiters' costs as taken. So a request that does not wait is
//! decided by the same formula with and without a line, and need not look at the line. What the
//! bucket holds apart from its waiters is
//!
//! ```text
//! free = value + the costs of all waiters
//! ```
//!
//! The head of the line is granted once `free` covers its cost. A grant changes no value: the cost
//! leaves both sides of the equation. So grants can be made late, at the next change of the bucket
//! at the latest, and each still has its exact instant.
//!
//! For example, a bucket of 5 tokens gains one a second:
//!
//! | at 0 s | value | free | promised instants |
//! |---|---|---|---|
//! | A takes 5 | 0 | 0 | |
//! | B reserves 3 | -3 | 0 | B: 3 s |
//! | C reserves 2 | -5 | 0 | B: 3 s, C: 5 s |
//! | A gives 4 back | -1 | 4 | B is due now, C in 1 s |
//! | B is granted | -1 | 1 | C: 1 s |
//!
//! A waiter keeps the instant that it was *promised* on arrival, as its latest one. Charges that
//! come later cannot delay it. Only a block and a change of the quota could, so before either all
//! waiters are [promised](Line::keep_promises) the instants at which they are due by then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::waiter::{LineTimer, LineWaiter, Wakeups};
use crate::algebra::{Bucket, State, Units};
use crate::clock::Timestamp;

/// The line of one bucket.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// By their tickets. A map, so that removing any entry takes a few steps: a buffer would have
    /// to be compacted now and then, under the lock of the shard.
    entries: BTreeMap<u64, LineEntry>,
    /// The sum of the costs of all entries.
    units: Units,
    /// The sum of the costs of all entries with a promised instant after this one: the end of a
    /// block, while there is one. Kept, so that waiters that leave a blocked bucket need not sum it
    /// up each.
    promised_after: Option<(Timestamp, Units)>,
    /// How many entries have a waiter.
    requests: usize,
    left: u64,
    /// When tokens last came back: what they pay for is granted no earlier.
    changed_at: Option<Timestamp>,
    /// The latest instant of which it is known that no block lasts beyond it; `None` after a block.
    /// See [`is_blocked`](Self::is_blocked).
    open_until: Option<Timestamp>,
    /// Whether the line needs a timer besides those of its waiters: several wait, or they have
    /// moved forward, or they wait in other lines as well.
    needs_timer: bool,
    timer: Option<Arc<dyn LineTimer>>,
}

#[derive(Debug)]
struct LineEntry {
    units: Units,
    /// The instant that it was promised: its latest one.
    promised: Timestamp,
    /// `None` if no request waits for these tokens: those of a penalty, of a settlement above what
    /// was paid, or of a reservation that was kept.
    waiter: Option<Arc<LineWaiter>>,
}

/// The state of a line, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineLevel {
    pub(crate) waiting: usize,
    /// The time until the last waiter is due; zero if it is unknown.
    pub(crate) longest: Duration,
    pub(crate) left: u64,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry at the end. `state` counts its cost as taken already, and its ticket is larger
    /// than all before it.
    pub(super) fn enter(
        &mut self,
        ticket: u64,
        units: Units,
        waiter: Option<&Arc<LineWaiter>>,
        bucket: &Bucket,
        state: State,
        now: Timestamp,
    ) {
        // The value counts all costs up to this one. So the waiter is due when the bucket has
        // gained back what its value is below zero: `free` covers the costs before it, and its own.
        let promised =
            bucket.gained_at(state, 0_i64.saturating_sub(state.value).max(0).unsigned_abs());
        self.note_clock(now);
        if waiter.is_some() && state.value.saturating_add(units) >= 0 {
            // It was not in debt before this charge, so it was not blocked.
            self.note_clock(state.ts);
        }
        // A waiter that is alone wakes by its own timer.
        self.needs_timer |= !self.is_empty();
        if let Some(waiter) = waiter {
            waiter.enter(now);
            self.requests = self.requests.saturating_add(1);
        }
        if let Some((end, after)) = &mut self.promised_after
            && promised > *end
        {
            *after = after.saturating_add(units);
        }
        let waiter = waiter.cloned();
        self.entries.insert(ticket, LineEntry { units, promised, waiter });
        self.units = self.units.saturating_add(units);
    }

    /// Grants what is due at `until`. With a ticket `through` whose promised instant has come,
    /// grants all entries up to that.
    pub(super) fn grant(
        &mut self,
        bucket: &Bucket,
        state: State,
        through: Option<u64>,
        [now, until]: [Timestamp; 2],
        wakeups: &mut Wakeups,
    ) {
        self.note_clock(now);
        while let Some((units, promised)) = self.head() {
            // A waiter that comes later lowers the value by as much as it raises the sum, so `due`
            // of the head stays where it is.
            let at = self.due(units, bucket, state, now).min(promised);
            // Tokens that came back cannot have paid for the head before they came.
            let at = self.changed_at.map_or(at, |changed_at| at.max(changed_at));
            let is_promised = through.is_some_and(|ticket| self.is_promised(ticket, until));
            // The timer of the waiter `through` has fired. All that stand before it are granted
            // with it, whatever they were promised: none may be overtaken.
            if at > until && !is_promised {
                break;
            }
            let Some((_, entry)) = self.entries.pop_first() else { break };
            self.discount(&entry);
            if let Some(waiter) = entry.waiter {
                self.requests = self.requests.saturating_sub(1);
                wakeups.wake(waiter.grant(at));
            }
        }
    }

    /// Arms the timer for the head, if the timers of the waiters do not suffice.
    pub(super) fn arm(
        &mut self,
        bucket: &Bucket,
        state: State,
        now: Timestamp,
        wakeups: &mut Wakeups,
    ) {
        if let Some((units, promised)) = self.head()
            && self.needs_timer
            && let Some(timer) = &self.timer
        {
            wakeups.arm(timer, self.due(units, bucket, state, now).min(promised), now);
        }
    }

    /// Removes a waiter that has not been granted. Returns the new state of the bucket, or `None`
    /// if the waiter was granted before.
    ///
    /// `state` is refreshed to `now`. The caller grants what is due then.
    pub(super) fn leave(
        &mut self,
        ticket: u64,
        bucket: &Bucket,
        State { value, ts }: State,
        now: Timestamp,
    ) -> Option<State> {
        let is_head = self.entries.first_key_value().is_some_and(|(first, _)| *first == ticket);
        let entry = self.entries.remove(&ticket)?;
        // `self.units` still has this entry: what it has taken from `value` becomes free.
        let free = value.saturating_add(self.units);
        self.discount(&entry);
        self.requests = self.requests.saturating_sub(1);
        self.left = self.left.saturating_add(1);
        self.change(now);
        // `free` may exceed the capacity while it is saved up for a large head. Without that head,
        // the bound of the next one holds.
        let free = if is_head { free.min(self.free_cap(bucket)) } else { free };
        let left = State { value: free.saturating_sub(self.units), ts };
        Some(self.cap(bucket, left, value, now))
    }

    /// Notes that tokens come back now, which may move the waiters forward.
    pub(super) const fn change(&mut self, now: Timestamp) {
        self.changed_at = Some(now);
        self.needs_timer = true;
    }

    /// Notes that a waiter stands in other lines as well, which may grant sooner or later than this
    /// one.
    pub(super) const fn need_timer(&mut self) {
        self.needs_timer = true;
    }

    /// Whether there is one waiter alone.
    pub(super) fn is_alone(&self) -> bool {
        self.entries.len() == 1 && !self.needs_timer
    }

    /// Keeps an entry in line without its waiter.
    pub(super) fn keep(&mut self, ticket: u64) {
        if let Some(entry) = self.entries.get_mut(&ticket) {
            entry.waiter = None;
            self.requests = self.requests.saturating_sub(1);
        }
    }

    /// The state of the bucket after tokens came back, cut to what the line allows. It held the
    /// value `before` that.
    ///
    /// Without a block, all that is due has been granted, so `free` may be at most the bound for
    /// the head. A blocked bucket grants nothing, and at the end of the block it must be empty for
    /// all waiters that were not promised an instant within the block. So more of the tokens is
    /// lost there.
    pub(super) fn cap(
        &mut self,
        bucket: &Bucket,
        State { value, ts }: State,
        before: Units,
        now: Timestamp,
    ) -> State {
        let cap = if self.is_blocked(State { value: before, ts }, now) {
            0_i64.saturating_sub(self.units_promised_after(ts)).saturating_sub(1)
        } else {
            self.free_cap(bucket).saturating_sub(self.units)
        };
        State { value: value.min(cap.max(before)), ts }
    }

    /// Notes an instant that the clock has shown, or beyond which the bucket is not blocked.
    fn note_clock(&mut self, at: Timestamp) {
        self.open_until = self.open_until.max(Some(at));
    }

    /// Notes that the bucket is about to be blocked.
    pub(super) const fn note_block(&mut self) {
        self.open_until = None;
    }

    /// Whether the bucket is blocked, as far as this line knows.
    ///
    /// A state in debt at a time in the future is that of a block, or the clock was set back. In
    /// the second case, the clock has shown that time before.
    pub(super) fn is_blocked(&self, State { value, ts }: State, now: Timestamp) -> bool {
        ts > now && value < 0 && self.open_until.is_none_or(|open_until| ts > open_until)
    }

    /// Promises all waiters the instants at which they are due now, before the bucket is blocked or
    /// its quota changes.
    pub(super) fn keep_promises(&mut self, bucket: &Bucket, state: State, now: Timestamp) {
        let mut ahead: Units = 0;
        let (all, is_blocked) = (self.units, self.is_blocked(state, now));
        // The instants change below, so the sum no longer holds. `rescale` and `forget_unattended`
        // drop it as well; what adds or removes one entry adjusts it.
        self.promised_after = None;
        for entry in self.entries.values_mut() {
            ahead = ahead.saturating_add(entry.units);
            let short = ahead.saturating_sub(all).saturating_sub(state.value);
            entry.promised = entry.promised.min(due(short, bucket, state, now, is_blocked));
        }
    }

    /// Converts the costs to a new quota, under which the bucket holds `new_value` in place of
    /// `old_value`.
    pub(super) fn rescale(&mut self, [old, new]: [&Bucket; 2], old_value: Units, new_value: Units) {
        let ratio = [new, old].map(|bucket| i128::from(bucket.token()));
        let scale = |units: i128| {
            let [new, old] = ratio;
            units.saturating_mul(new).checked_div_euclid(old).unwrap_or(0)
        };
        // `free` under the new quota, computed from what is used without the waiters. If the new
        // value was cut, because it cannot be counted, the costs are cut as well, the last ones
        // first. Otherwise the difference would be free tokens for the head.
        let all = i128::from(self.units);
        let used =
            i128::from(old.capacity()).saturating_sub(i128::from(old_value)).saturating_sub(all);
        // Rounded up, against the key: the division rounds down, so the sign changes twice.
        let used = 0_i128.saturating_sub(scale(0_i128.saturating_sub(used)));
        let free = i128::from(new.capacity()).saturating_sub(used);
        let most = free.saturating_sub(i128::from(new_value)).max(0);
        let mut most = Units::try_from(most).unwrap_or(Units::MAX);
        (self.units, self.promised_after) = (0, None);
        for entry in self.entries.values_mut() {
            // Costs are whole tokens nearly always, and these are converted exactly.
            let units = Units::try_from(scale(i128::from(entry.units))).unwrap_or(Units::MAX);
            entry.units = units.min(most);
            most = most.saturating_sub(entry.units);
            self.units = self.units.saturating_add(entry.units);
        }
    }

    /// Removes the entries without a waiter.
    pub(super) fn forget_unattended(&mut self) {
        self.entries.retain(|_, entry| entry.waiter.is_some());
        self.promised_after = None;
        self.units = self.entries.values().fold(0, |all, entry| all.saturating_add(entry.units));
    }

    /// Whether any entry has a waiter.
    pub(super) const fn has_requests(&self) -> bool {
        self.requests > 0
    }

    /// The sum of the costs of all entries.
    pub(super) const fn units(&self) -> Units {
        self.units
    }

    pub(super) const fn has_timer(&self) -> bool {
        self.timer.is_some()
    }

    /// Ends the line, and returns its timer to be disarmed.
    pub(super) fn into_timer(self) -> Option<Arc<dyn LineTimer>> {
        self.timer
    }

    /// Sets the timer of the line; `None` if the runtime of the timer has shut down.
    pub(super) fn set_timer(&mut self, timer: Option<Arc<dyn LineTimer>>) {
        self.timer = timer;
    }

    /// The waiters in order, with the instants at which they are due.
    pub(super) fn requests(
        &self,
        bucket: &Bucket,
        state: State,
        now: Timestamp,
    ) -> impl Iterator<Item = (&Arc<LineWaiter>, Timestamp)> {
        let (mut ahead, all): (Units, _) = (0, self.units);
        let is_blocked = self.is_blocked(state, now);
        self.entries.values().filter_map(move |entry| {
            ahead = ahead.saturating_add(entry.units);
            let short = ahead.saturating_sub(all).saturating_sub(state.value);
            let at = due(short, bucket, state, now, is_blocked).min(entry.promised);
            entry.waiter.as_ref().map(|waiter| (waiter, at))
        })
    }

    /// The waiters in order.
    pub(super) fn waiters(&self) -> impl Iterator<Item = &Arc<LineWaiter>> {
        self.entries.values().filter_map(|entry| entry.waiter.as_ref())
    }

    pub(super) fn level(&self, bucket: &Bucket, state: State, now: Timestamp) -> LineLevel {
        let mut behind: Units = 0;
        let is_last = |entry: &&LineEntry| {
            let is_request = entry.waiter.is_some();
            if !is_request {
                behind = behind.saturating_add(entry.units);
            }
            is_request
        };
        let last = self.entries.values().rev().find(is_last);
        // The ends of requests in flight are unknown.
        let longest = last.filter(|_| !bucket.never_gains()).map_or(Duration::ZERO, |last| {
            let short = 0_i64.saturating_sub(behind).saturating_sub(state.value);
            let is_blocked = self.is_blocked(state, now);
            due(short, bucket, state, now, is_blocked).min(last.promised).since(now)
        });
        LineLevel { waiting: self.requests, longest, left: self.left }
    }

    /// The cost and the promised instant of the head.
    fn head(&self) -> Option<(Units, Timestamp)> {
        self.entries.first_key_value().map(|(_, entry)| (entry.units, entry.promised))
    }

    /// The instant at which `free` covers the cost of the head.
    fn due(&self, units: Units, bucket: &Bucket, state: State, now: Timestamp) -> Timestamp {
        let short = units.saturating_sub(self.units).saturating_sub(state.value);
        due(short, bucket, state, now, self.is_blocked(state, now))
    }

    /// The sum of the costs of all entries with a promised instant after `end`.
    fn units_promised_after(&mut self, end: Timestamp) -> Units {
        if let Some((known, after)) = self.promised_after
            && known == end
        {
            return after;
        }
        let later = self.entries.values().filter(|entry| entry.promised > end);
        let after = later.fold(0, |units: Units, entry| units.saturating_add(entry.units));
        self.promised_after = Some((end, after));
        after
    }

    /// Subtracts an entry that was removed from the sums.
    fn discount(&mut self, entry: &LineEntry) {
        self.units = self.units.saturating_sub(entry.units);
        if let Some((end, after)) = &mut self.promised_after
            && entry.promised > *end
        {
            *after = after.saturating_sub(entry.units);
        }
    }

    /// Whether the promised instant of this ticket has come.
    fn is_promised(&self, ticket: u64, until: Timestamp) -> bool {
        self.entries.get(&ticket).is_some_and(|entry| entry.promised <= until)
    }

    /// The bound of `free`: the capacity, or the cost of the head if that is more.
    pub(super) fn free_cap(&self, bucket: &Bucket) -> Units {
        self.head().map_or(bucket.capacity(), |(units, _)| units.max(bucket.capacity()))
    }
}

/// The instant at which a bucket has gained `short` more units. It gains, and grants, nothing
/// before a block ends.
fn due(short: Units, bucket: &Bucket, state: State, now: Timestamp, is_blocked: bool) -> Timestamp {
    match short {
        ..=0 if !is_blocked => state.ts.min(now),
        short => bucket.gained_at(state, short.max(i64::from(is_blocked)).unsigned_abs()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Quota, SECOND};

    const START: i64 = 1_700_000_000_000_000;

    /// What changes a line, and what reads its sums.
    #[derive(Clone, Debug)]
    enum Step {
        Enter { units: Units, value: Units, waits: bool },
        Grant { value: Units },
        Leave { nth: usize, value: Units },
        Keep { nth: usize },
        KeepPromises { value: Units },
        Rescale { value: Units },
        ForgetUnattended,
        Ask { end: i64 },
        Cap { value: Units },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let (nth, value, end) = (0_usize..8, -400_i64..20, 0_i64..500);
        let step = prop_oneof![
            6 => (0_i64..40, value.clone(), any::<bool>())
                .prop_map(|(units, value, waits)| Step::Enter { units, value, waits }),
            2 => value.clone().prop_map(|value| Step::Grant { value }),
            4 => (nth.clone(), value.clone()).prop_map(|(nth, value)| Step::Leave { nth, value }),
            1 => nth.prop_map(|nth| Step::Keep { nth }),
            1 => value.clone().prop_map(|value| Step::KeepPromises { value }),
            1 => value.clone().prop_map(|value| Step::Rescale { value }),
            1 => Just(Step::ForgetUnattended),
            3 => end.prop_map(|end| Step::Ask { end }),
            3 => value.prop_map(|value| Step::Cap { value }),
        ];
        prop::collection::vec(step, 1..80)
    }

    /// The sum as it is without the cache.
    fn slow_sum(line: &Line, after: Timestamp) -> Units {
        line.entries.values().filter(|entry| entry.promised > after).map(|entry| entry.units).sum()
    }

    proptest! {
        /// After any sequence of changes, the cached sum is the one that is computed from all
        /// entries.
        #[test]
        fn the_sum_of_costs_promised_after_an_instant_is_exact(steps in steps(), block in 1_i64..400) {
            let numbers = [2_u64, 3].map(|rate| Quota::token_bucket(rate, SECOND).capacity(5));
            let mut numbers = numbers.map(|quota| Bucket::new(&quota).unwrap());
            let token = Units::try_from(numbers[0].token()).unwrap();
            let [now, end] = [0, block].map(|s| Timestamp::from_micros(START + s * 1_000_000));
            // The bucket is blocked, so waiters that leave read the sum.
            let state = |value| State { value: value * token, ts: end };
            let (mut line, mut next) = (Line::default(), 0);
            for step in steps {
                let bucket = numbers[0];
                let ticket = |line: &Line, nth| line.entries.keys().nth(nth).copied();
                match step {
                    Step::Enter { units, value, waits } => {
                        next += 1;
                        let waiter = waits.then(|| LineWaiter::new(None));
                        // Some were promised an instant before the end of the block.
                        let ts = if value % 2 == 0 { end } else { now };
                        let state = State { ts, ..state(value) };
                        line.enter(next, units * token, waiter.as_ref(), &bucket, state, now);
                    }
                    Step::Grant { value } => {
                        let wakeups = &mut Wakeups::default();
                        line.grant(&bucket, state(value), None, [now, end], wakeups);
                    }
                    Step::Leave { nth, value } => {
                        if let Some(ticket) = ticket(&line, nth) {
                            line.leave(ticket, &bucket, state(value), now);
                        }
                    }
                    Step::Keep { nth } => {
                        ticket(&line, nth).into_iter().for_each(|ticket| line.keep(ticket));
                    }
                    Step::KeepPromises { value } => line.keep_promises(&bucket, state(value), now),
                    Step::Rescale { value } => {
                        let values = [state(value), state(value - 1)].map(|state| state.value);
                        line.rescale([&numbers[0], &numbers[1]], values[0], values[1]);
                        numbers.reverse();
                    }
                    Step::ForgetUnattended => line.forget_unattended(),
                    Step::Ask { end } => {
                        let end = Timestamp::from_micros(START + end * 1_000_000);
                        prop_assert_eq!(line.units_promised_after(end), slow_sum(&line, end));
                    }
                    Step::Cap { value } => {
                        line.cap(&bucket, state(value), value.min(-1), now);
                    }
                }
                let all: Units = line.entries.values().map(|entry| entry.units).sum();
                prop_assert_eq!(line.units, all);
                if let Some((end, after)) = line.promised_after {
                    prop_assert_eq!(after, slow_sum(&line, end));
                }
            }
        }
    }
}
