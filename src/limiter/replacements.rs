//! The numbers that limits have in place of their own.
//!
//! # Design
//!
//! A call borrows its limit, so a limit that takes the place of another one has to stay where it is
//! for as long as the limiter lives. So nothing here is moved or dropped: each set of numbers that a
//! limit has had is a *version*, and an index says which of them is in force. A limit that returns to
//! numbers that it has had gets the version of then.
//!
//! A decision reads without a lock: the chain of the limit's name, and the index. While no limiter of
//! the process has replaced anything, a decision only sees that.
//!
//! ```text
//! chains       of: login, 5 per hour
//! │   │ ──>    in force: 2 ───────────────┐
//! │   │        versions: 10 per hour, 20 per hour
//! │   │        next ──> of: login, 100 per hour
//! ```

use std::fmt;
use std::iter::successors;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::Limit;
use super::lock::lock;

/// Whether a limiter of this process has replaced numbers.
///
/// To read it costs a decision two instructions; to read the limiter's own table costs twelve, 3 % of
/// a decision. Relaxed: it says where to look, and what is found there is ordered by itself. A call
/// that is made after `replace` has returned sees it, since a later read of one atomic never sees an
/// earlier value.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether a limiter of this process has replaced numbers, so that limits have to be looked up.
#[inline(always)]
pub(super) fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// The numbers in force, for all handles of a limiter.
pub(crate) struct Replacements {
    /// By their names.
    chains: [Link; CHAINS],
    /// The versions that are kept. Held while an entry or a version is added, so that both are
    /// added once.
    kept: Mutex<usize>,
    /// How many replacements were made. It is raised after the new numbers are in force, so a layer
    /// that reads a count, and then the numbers, gets those of that count or newer ones.
    count: AtomicUsize,
}

type Link = OnceLock<Box<ReplacedLimit>>;

/// Few programs replace more limits. As many as six bits of a hash tell apart.
const CHAINS: usize = 1 << 6;

/// A limit whose numbers were replaced.
struct ReplacedLimit {
    of: Limit,
    /// Which version is in force, counted from one; zero is `of` itself.
    in_force: AtomicUsize,
    /// What it has been replaced by, in chunks that double in size. So an index finds its place in a
    /// few steps, and nothing moves when another version is added.
    versions: [OnceLock<Box<[VersionSlot]>>; CHUNKS],
    next: Link,
}

/// A place for a version.
type VersionSlot = OnceLock<Arc<Limit>>;

/// Chunks of 1, 2, 4, .. versions: enough for [`MAX_VERSIONS`].
const CHUNKS: usize = 17;

/// How many versions a limiter keeps: some 20 MB.
pub(super) const MAX_VERSIONS: usize = 1 << 16;

const _: () = assert!((1 << CHUNKS) > MAX_VERSIONS, "a limit may have had all versions");

impl Replacements {
    /// What stands in place of a limit; `None` if nothing does.
    #[inline(always)]
    pub(crate) fn get(&self, limit: &Limit) -> Option<&Arc<Limit>> {
        if any() { self.find(limit) } else { None }
    }

    /// A shared limit with the numbers in force.
    #[inline(always)]
    pub(crate) fn shared<'l>(&'l self, limit: &'l Arc<Limit>) -> &'l Arc<Limit> {
        self.get(limit).unwrap_or(limit)
    }

    /// How often this limiter has replaced something: what was looked up at this count still holds.
    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        if any() { self.count.load(Ordering::Acquire) } else { 0 }
    }

    #[inline(never)]
    fn find(&self, limit: &Limit) -> Option<&Arc<Limit>> {
        self.existing(limit)?.current()
    }

    /// A limit with the numbers in force. If it has the place of another one, as in a call that starts
    /// again, these are the numbers of that one.
    #[inline]
    pub(super) fn current<'l>(&'l self, limit: &'l Limit) -> &'l Limit {
        // A copy of a version is a limit of its own, like any that a program makes.
        let replaced = limit.is_version().then(|| self.replaced_by(limit)).flatten();
        let current = replaced.map_or_else(|| self.find(limit), ReplacedLimit::current);
        match (current, replaced) {
            (Some(current), _) => current,
            (None, Some(entry)) => &entry.of,
            (None, None) => limit,
        }
    }

    /// All numbers that a limit has had, if they were ever replaced.
    pub(super) fn versions(&self, of: &Limit) -> impl Iterator<Item = &Limit> {
        self.existing(of).into_iter().flat_map(ReplacedLimit::all)
    }

    /// Puts `new` in the place of `of`, and returns what was in force before; `None` if the limiter
    /// keeps as many versions as it can.
    pub(super) fn replace(&self, of: &Limit, new: Limit) -> Option<Limit> {
        let is_own = new == *of;
        let mut kept = lock(&self.kept);
        // An entry stays, so one is added only for other numbers, and only if these can be kept.
        let entry = match self.existing(of) {
            Some(entry) => entry,
            None if is_own => return Some(of.clone()),
            None if *kept >= MAX_VERSIONS => return None,
            None => self.add(of),
        };
        let before = entry.current().map_or_else(|| of.clone(), |before| Limit::clone(before));
        let index = entry.version(new, &mut kept)?;
        // A decision that sees the index sees the version, too.
        entry.in_force.store(index, Ordering::Release);
        self.count.fetch_add(1, Ordering::Release);
        ANY.store(true, Ordering::Relaxed);
        Some(before)
    }

    /// The entry that has this very limit among its versions.
    ///
    /// Its numbers may be those of another plan, but it is not that plan. So it is found by its place,
    /// which takes a look at each version. Only calls that start again get here.
    fn replaced_by(&self, version: &Limit) -> Option<&ReplacedLimit> {
        let mut entries = entries(self.chain(version));
        entries.find(|entry| entry.all().any(|known| std::ptr::eq(known, version)))
    }

    /// The entry of a limit, if there is one.
    #[inline]
    fn existing(&self, of: &Limit) -> Option<&ReplacedLimit> {
        let mut named = entries(self.chain(of)).filter(|entry| entry.of.is_named_like(of));
        named.find(|entry| entry.is_of(of))
    }

    /// Adds the entry of a limit that has none. The caller holds the lock.
    fn add(&self, of: &Limit) -> &ReplacedLimit {
        let chain = self.chain(of);
        let end = entries(chain).last().map_or(chain, |last| &last.next);
        end.get_or_init(|| Box::new(ReplacedLimit::new(of)))
    }

    #[inline]
    fn chain(&self, limit: &Limit) -> &Link {
        let [first, ..] = &self.chains;
        // The upper bits depend on all of the name.
        let place = usize::try_from(limit.name_hash() >> 58).unwrap_or(0);
        self.chains.get(place).unwrap_or(first)
    }
}

#[inline]
fn entries(chain: &Link) -> impl Iterator<Item = &ReplacedLimit> {
    successors(chain.get(), |entry| entry.next.get()).map(|entry| &**entry)
}

impl Default for Replacements {
    fn default() -> Self {
        let chains = [const { Link::new() }; CHAINS];
        Self { chains, kept: Mutex::default(), count: AtomicUsize::new(0) }
    }
}

/// One after the other, as plans of one name can be many: an entry that drops the next from its own
/// destructor would need a frame of the stack for each.
impl Drop for Replacements {
    fn drop(&mut self) {
        for chain in &mut self.chains {
            let mut next = chain.take();
            while let Some(mut entry) = next {
                next = entry.next.take();
            }
        }
    }
}

impl ReplacedLimit {
    fn new(of: &Limit) -> Self {
        Self {
            of: of.clone(),
            in_force: AtomicUsize::new(0),
            versions: [const { OnceLock::new() }; CHUNKS],
            next: OnceLock::new(),
        }
    }

    /// Whether it is that of this limit, which has its name.
    ///
    /// Limits that count alike and say different things about outages are different here: each goes on
    /// to say what it says.
    // Not inlined: all numbers would be loaded before the first name is compared.
    #[inline(never)]
    fn is_of(&self, limit: &Limit) -> bool {
        self.of.counts_like(limit) && self.of.get_on_failure() == limit.get_on_failure()
    }

    fn current(&self) -> Option<&Arc<Limit>> {
        self.slot(self.in_force.load(Ordering::Acquire))?.get()
    }

    /// The limit itself, and all its versions.
    fn all(&self) -> impl Iterator<Item = &Limit> {
        let versions = (1..).map_while(|index| self.slot(index)?.get());
        std::iter::once(&self.of).chain(versions.map(|version| &**version))
    }

    /// The index of a version in [`all`](Self::all). It is added if there is none.
    fn version(&self, new: Limit, kept: &mut usize) -> Option<usize> {
        if let Some(known) = self.all().position(|known| *known == new) {
            return Some(known);
        }
        if *kept >= MAX_VERSIONS {
            return None;
        }
        let index = self.all().count();
        self.slot_or_new(index)?.get_or_init(|| Arc::new(new.into_version()));
        *kept = kept.saturating_add(1);
        Some(index)
    }

    /// The slot of a version, if its chunk is there.
    fn slot(&self, index: usize) -> Option<&VersionSlot> {
        let (chunk, place) = place(index)?;
        self.versions.get(chunk)?.get()?.get(place)
    }

    fn slot_or_new(&self, index: usize) -> Option<&VersionSlot> {
        let (chunk, place) = place(index)?;
        let size = 1_usize.checked_shl(u32::try_from(chunk).ok()?)?;
        let slots = || (0..size).map(|_| VersionSlot::new()).collect();
        self.versions.get(chunk)?.get_or_init(slots).get(place)
    }
}

/// The chunk of the version with this index, and the place in it: 1 is in the first chunk, 2 and 3 in
/// the second, 4 to 7 in the third. 0 is the limit itself.
fn place(index: usize) -> Option<(usize, usize)> {
    let chunk = index.checked_ilog2()?;
    let first = 1_usize.checked_shl(chunk)?;
    Some((usize::try_from(chunk).ok()?, index.checked_sub(first)?))
}

impl fmt::Debug for Replacements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for entry in self.chains.iter().flat_map(entries) {
            if let Some(current) = entry.current() {
                map.entry(&entry.of.name(), &format_args!("{}", current.quota()));
            }
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{HOUR, Quota};

    fn limit(name: &'static str, rate: u64) -> Limit {
        Limit::try_new(name, Quota::try_token_bucket(rate, HOUR).unwrap()).unwrap()
    }

    fn in_force(replacements: &Replacements, of: &Limit) -> Limit {
        replacements.get(of).map_or_else(|| of.clone(), |limit| Limit::clone(limit))
    }

    #[test]
    fn indices_fill_chunks_that_double() {
        let mut expected = (0, 0);
        for index in 1..(1 << 12) {
            assert_eq!(place(index), Some(expected), "{index}");
            let (chunk, place) = expected;
            expected = if place + 1 == 1 << chunk { (chunk + 1, 0) } else { (chunk, place + 1) };
        }
        assert_eq!(place(0), None);
    }

    #[test]
    fn each_limit_has_its_own_numbers_also_where_chains_are_shared() {
        let replacements = Replacements::default();
        let names: Vec<&'static str> =
            (0..1_000).map(|nth| &*Box::leak(format!("limit {nth}").into_boxed_str())).collect();
        for (nth, name) in (1..).zip(&names) {
            assert_eq!(replacements.get(&limit(name, 1)).map(|limit| limit.quota().rate()), None);
            replacements.replace(&limit(name, 1), limit(name, nth + 1)).unwrap();
        }
        for (nth, name) in (1..).zip(&names) {
            assert_eq!(in_force(&replacements, &limit(name, 1)), limit(name, nth + 1));
            // A plan of the same name.
            assert_eq!(in_force(&replacements, &limit(name, 5_000)), limit(name, 5_000));
        }
    }

    #[test]
    fn a_limit_that_switches_to_and_fro_keeps_two_versions() {
        let (replacements, api) = (Replacements::default(), limit("api", 1));
        for _ in 0..1_000 {
            for rate in [2, 3, 1] {
                replacements.replace(&api, limit("api", rate)).unwrap();
                assert_eq!(in_force(&replacements, &api), limit("api", rate));
            }
        }
        assert_eq!(*lock(&replacements.kept), 2);
    }

    /// A controller may set the numbers of each tenant again and again, though few differ.
    #[test]
    fn a_limit_whose_numbers_stay_takes_no_place() {
        let (replacements, api) = (Replacements::default(), limit("api", 1));
        assert_eq!(replacements.replace(&api, limit("api", 1)).unwrap(), api);
        assert_eq!(replacements.chains.iter().flat_map(entries).count(), 0);
        replacements.replace(&api, limit("api", 2)).unwrap();
        replacements.replace(&limit("other", 1), limit("other", 1)).unwrap();
        *lock(&replacements.kept) = MAX_VERSIONS;
        assert!(replacements.replace(&limit("third", 1), limit("third", 2)).is_none());
        let has_entry = |name| replacements.existing(&limit(name, 1)).is_some();
        assert_eq!(["api", "other", "third"].map(has_entry), [true, false, false]);
    }

    #[test]
    fn many_plans_of_one_name_are_dropped_on_a_small_stack() {
        let fill = || {
            let replacements = Replacements::default();
            for rate in 1..3_000 {
                replacements.replace(&limit("plan", rate), limit("plan", rate + 1)).unwrap();
            }
            drop(replacements);
        };
        std::thread::Builder::new().stack_size(64 * 1024).spawn(fill).unwrap().join().unwrap();
    }

    #[test]
    fn a_limiter_keeps_a_bounded_number_of_versions() {
        let (replacements, api) = (Replacements::default(), limit("api", 1));
        // Entries are counted together: half of the versions belong to another limit.
        let other = limit("other", 1);
        replacements.replace(&other, limit("other", 2)).unwrap();
        *lock(&replacements.kept) = MAX_VERSIONS - 10;
        for rate in 2..12 {
            replacements.replace(&api, limit("api", rate)).unwrap();
        }
        assert!(replacements.replace(&api, limit("api", 100)).is_none(), "no place is left");
        assert_eq!(in_force(&replacements, &api), limit("api", 11), "the numbers in force stay");
        replacements.replace(&api, limit("api", 5)).unwrap();
        assert_eq!(in_force(&replacements, &api), limit("api", 5), "a version of before is there");
    }
}
