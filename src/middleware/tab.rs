//! What a request has taken, until somebody settles it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Request, Response};
use smallvec::SmallVec;

use super::rule::{ByRule, Rule};
use super::rules::Rules;
use super::special::Ending;
use super::{ActualCost, Admission, ResponseHead};
use crate::algebra::Verdict;
use crate::backend::Applied;
use crate::limiter::{
    Ask, Bill, Limit, Permit, RateLimited, Share, Shares, Standing, Unstoppable, said, take_more,
};

/// Kept for a request whose response, or whose handler, may have something to say about its tokens.
pub(super) struct Tab {
    rules: Arc<Rules>,
    entries: Mutex<Entries>,
}

type Entries = SmallVec<[Entry; 1]>;

/// What was taken by one rule.
struct Entry {
    share: Share,
    rule: usize,
    /// Whether the rule was a shadow to the request.
    is_shadow: bool,
    /// Whether nobody has settled it. Whoever does closes it first, so that nobody does it twice.
    is_open: bool,
}

impl Tab {
    /// Of a request that has been asked for nothing.
    pub(super) fn empty(rules: &Arc<Rules>) -> Self {
        Self { rules: Arc::clone(rules), entries: Mutex::default() }
    }

    /// What was taken, by a complete answer.
    pub(super) fn of<L: ByRule>(rules: &Arc<Rules>, asks: &[Ask<L>], applied: &Applied) -> Self {
        let tab = Self::empty(rules);
        tab.add(asks, applied, false);
        tab
    }

    /// What a shadow rule has taken as well.
    pub(super) fn add_shadow<L: ByRule>(&self, asks: &[Ask<L>], applied: &Applied) {
        self.add(asks, applied, true);
    }

    fn add<L: ByRule>(&self, asks: &[Ask<L>], applied: &Applied, is_shadow: bool) {
        let is_open = applied.verdict() != Verdict::Refused;
        let shares = Shares::of(asks, applied).into_iter().flat_map(Shares::into_iter);
        let entries = shares.zip(asks).map(|(share, ask)| Entry {
            share,
            rule: ask.limit.rule(),
            is_shadow,
            is_open,
        });
        self.entries().extend(entries);
    }

    /// Does what the rules say about such a response.
    pub(super) fn finish<R>(&self, response: &Response<R>) {
        let actual = response.extensions().get::<ActualCost>().filter(|_| self.rules.settles);
        // The rules ask code that is not ours, which must not find the tab locked.
        let by: SmallVec<[(usize, bool); 4]> = {
            let entries = self.entries();
            let is_billed = |entry: &Entry| actual.is_some() && entry.is_priced(&entries);
            entries.iter().map(|entry| (entry.rule, is_billed(entry))).collect()
        };
        let head = ResponseHead::of(response);
        let endings = by.into_iter().map(|(rule, billed)| (self.rules.ending(rule, &head), billed));
        let endings: SmallVec<[(Ending, bool); 4]> = endings.collect();

        let (mut refunds, mut resets, mut settled) =
            (Entries::new(), Entries::new(), Entries::new());
        let mut entries = self.entries();
        for (entry, ending) in entries.iter_mut().zip(endings).filter(|(entry, _)| entry.is_open) {
            match ending {
                (Ending::Refund, _) => refunds.push(entry.close()),
                (Ending::Reset, _) => resets.push(entry.close()),
                (Ending::Stay, true) => settled.push(entry.close()),
                (Ending::Stay, false) => {}
            }
        }
        drop(entries);
        if let Some(bill) = self.bill(refunds) {
            bill.refund();
        }
        if let Some(bill) = self.bill(resets) {
            // Nobody waits for it; it goes on by itself.
            drop(bill.reset());
        }
        if let (Some(actual), Some(bill)) = (actual, self.bill(settled)) {
            actual.settle(bill);
        }
    }

    /// Shows it to the handler of the request, where the layer does.
    pub(super) fn expose<B>(self: &Arc<Self>, request: &mut Request<B>) {
        if self.rules.exposes {
            Admission::put(self, request);
        }
    }

    /// How those limits stood that are a shadow to the request, or those that are not.
    pub(super) fn standings(&self, which: Which<'_>, in_shadow: bool) -> Vec<Standing<'static>> {
        let entries = self.entries();
        let of = |entry: &&Entry| entry.is_shadow == in_shadow && which.is(entry, &entries);
        entries.iter().filter(of).map(|entry| entry.share.standing().clone()).collect()
    }

    /// Takes so many tokens more of those limits that are enforced.
    pub(super) async fn charge(&self, which: Which<'_>, tokens: u64) -> Result<(), RateLimited> {
        let (positions, asks) = {
            let entries = self.entries();
            let of = |&(_, entry): &(usize, &Entry)| !entry.is_shadow && which.is(entry, &entries);
            let asked = entries.iter().enumerate().filter(of);
            let asked = asked.map(|(position, entry)| (position, entry.share.ask(tokens)));
            asked.unzip::<_, _, Vec<_>, Vec<_>>()
        };
        let Some(applied) = take_more(&self.rules.limiter, &asks).await? else { return Ok(()) };
        let mut entries = self.entries();
        for (position, (_, readings)) in positions.into_iter().zip(said(&asks, &applied)) {
            if let Some(entry) = entries.get_mut(position) {
                entry.share.add(readings, applied.now());
            }
        }
        Ok(())
    }

    /// Hands over what nobody has settled.
    pub(super) fn close(&self, which: Which<'_>) -> Option<Bill> {
        self.take(which, |entry| entry.is_open)
    }

    /// The same of what is not in shadow, as a permit.
    pub(super) fn permit(&self, which: Which<'_>) -> Option<Permit<'static>> {
        self.take(which, |entry| entry.is_open && !entry.is_shadow).map(Bill::into_permit)
    }

    /// Makes a fresh start; with it comes the limit to name if that fails.
    pub(super) fn reset(&self, which: Which<'_>) -> Option<(Limit, Unstoppable<()>)> {
        let bill = self.take(which, |_| true)?;
        Some((bill.limit().clone(), bill.reset()))
    }

    fn take(&self, which: Which<'_>, is_taken: impl Fn(&Entry) -> bool) -> Option<Bill> {
        let mut entries = self.entries();
        let of = |entry: &Entry| is_taken(entry) && which.is(entry, &entries);
        let positions: SmallVec<[bool; 4]> = entries.iter().map(of).collect();
        let taken = entries.iter_mut().zip(positions).filter(|&(_, taken)| taken);
        let taken = taken.map(|(entry, _)| entry.close()).collect();
        drop(entries);
        self.bill(taken)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // Nothing is half done where somebody panics.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bill(&self, entries: Entries) -> Option<Bill> {
        let shares = Shares::gathered(entries.into_iter().map(|entry| entry.share))?;
        Some(Bill::new(self.rules.limiter.clone(), shares))
    }
}

impl Rules {
    /// What the request has taken, where anybody may have something to say about it.
    pub(super) fn tab<L: ByRule>(
        self: &Arc<Self>,
        asks: &[Ask<L>],
        applied: &Applied,
    ) -> Option<Arc<Tab>> {
        self.keeps_tabs.then(|| Arc::new(Tab::of(self, asks, applied)))
    }

    /// What becomes of the tokens that this rule has taken, by the response.
    fn ending(&self, rule: usize, response: &ResponseHead<'_>) -> Ending {
        let special = self.rule_at(rule).and_then(Rule::special);
        special.map_or(Ending::Stay, |special| special.ending(response))
    }
}

/// Those limits of a request that something is about: all of them, or that of one name.
#[derive(Clone, Copy)]
pub(super) enum Which<'n> {
    All(Option<&'n str>),
    /// Of all of them, those that a [cost](Entry::is_priced) is about.
    Priced(Option<&'n str>),
}

impl Which<'_> {
    fn is(self, entry: &Entry, entries: &Entries) -> bool {
        match self {
            Self::All(None) => true,
            Self::All(Some(name)) | Self::Priced(Some(name)) => entry.share.limit().name() == name,
            Self::Priced(None) => entry.is_priced(entries),
        }
    }
}

impl Entry {
    /// Whether a cost is about it: where one was said for some limit, what only counts requests is left
    /// alone. A shadow changes nothing for those that are none.
    fn is_priced(&self, entries: &Entries) -> bool {
        let mut others = entries.iter().filter(|other| self.is_shadow || !other.is_shadow);
        self.share.is_priced() || !others.any(|other| other.share.is_priced())
    }

    /// Hands it to whoever settles it.
    fn close(&mut self) -> Self {
        self.is_open = false;
        Self { share: self.share.clone(), ..*self }
    }
}

impl fmt::Debug for Tab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries();
        let mut map = f.debug_map();
        for Entry { share, is_shadow, is_open, .. } in entries.iter() {
            map.entry(&share.limit().name(), &format_args!("shadow {is_shadow}, open {is_open}"));
        }
        map.finish()
    }
}
