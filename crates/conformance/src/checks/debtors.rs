//! The list of buckets that are in debt or blocked.

use std::collections::{BTreeMap, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::quotas::bucket;
use super::super::subject::Subject;
use super::super::trial::Trial;
use tollgate::algebra::{Bucket, State};
use tollgate::backend::{Adjustment, BucketId, Debtor, DebtorQuery, DebtorReport, Key};
use tollgate::clock::Timestamp;
use tollgate::quota::{DAY, HOUR, MINUTE, Quota};

/// Of many buckets, those in debt and those that are blocked are listed, each once, whatever their
/// keys and shards. No other is: one that owes nothing, was reset, or belongs to a limit with a name
/// that is alike. A store that only counts has to count right, and one that cannot list has to say so.
pub(crate) async fn each_debtor_is_listed_once_and_nothing_else_is(subject: Subject) {
    let mut trial = Trial::new(&subject);
    let now = subject.now().await;
    for (limit, quota) in [
        ("conformance-list", Quota::token_bucket(7, HOUR * 13)),
        ("conformance list:#1%", Quota::fixed_window(11, DAY * 3).start(now)),
        ("conformance-list-late", Quota::token_bucket(7, HOUR * 11).initial(3)),
    ] {
        let bucket = bucket(quota);
        let keys = keys();
        let others = [
            format!("{limit}-"),
            format!("{limit}#1"),
            format!("{limit}:"),
            format!("{limit}:s"),
            limit.to_uppercase(),
            limit.split_at(limit.len() - 1).0.to_owned(),
            format!("0{limit}"),
            format!("~{limit}"),
        ];
        let mut own: Vec<_> = keys.iter().map(|key| BucketId::new(limit, key)).collect();
        own.extend([1, 2, 11, u32::MAX].map(|shard| BucketId::new(limit, &keys[0]).shard(shard)));
        let foreign: Vec<_> = others.iter().map(|name| BucketId::new(name, &keys[0])).collect();
        for (nth, &id) in own.iter().chain(&foreign).enumerate() {
            prepare(&mut trial, id, &bucket, nth).await;
        }
        let listed = DebtorTrial { own: &own, foreign: &foreign };
        listed.check(&mut trial, &bucket).await;
        // The blocks are over, and some debts are paid.
        trial.pass(DAY * 2);
        listed.check(&mut trial, &bucket).await;
        let changed = bucket.part_of(2).unwrap();
        if !listed.is_counted(&trial, &changed).await {
            listed.check(&mut trial, &changed).await;
        }
        for &id in own.iter().chain(&foreign) {
            trial.look(id, &bucket).await;
        }
    }
}

/// Keys of all types, and one that is too long for a name.
fn keys() -> Vec<Key> {
    let texts = ["alice", "Alice", "", " ", "a|b=c:d%", "Zoë", "*", "n=7", "{a}", "a#1", "7"];
    let mut keys: Vec<_> = texts.map(Key::from).to_vec();
    keys.extend([
        Key::from(7),
        Key::from(-7),
        Key::from(u128::MAX),
        Key::from(true),
        Key::GLOBAL,
        Key::from([0_u8, 0xff]),
        Key::from(Ipv4Addr::new(192, 0, 2, 1)),
        Key::from(Ipv6Addr::LOCALHOST),
        Key::network(Ipv6Addr::LOCALHOST, 64),
        Key::from(("acme", "alice", 7)),
        Key::from("alice").fallback(),
        Key::from("x".repeat(500)),
    ]);
    // So many that each of the five things happens to most of the types.
    keys.extend((100_u32..130).map(Key::from));
    keys
}

/// Puts a bucket into debt, blocks it, uses it, leaves it alone, or resets it: in turns. Each has
/// another value, so that the digest of a key can be told by the state.
async fn prepare(trial: &mut Trial, id: BucketId<'_>, bucket: &Bucket, nth: usize) {
    let token = bucket.units(1).unwrap();
    let owed = bucket.units(u64::try_from(nth).unwrap() + 1).unwrap();
    let penalty = Adjustment::refund(id, bucket, -bucket.capacity() - owed);
    match nth % 5 {
        0 => drop(trial.adjust(&[penalty]).await),
        1 => {
            let block = Adjustment::block(id, bucket, DAY + MINUTE * u32::try_from(nth).unwrap());
            trial.adjust(&[penalty, block]).await;
        }
        2 => drop(trial.take(id, bucket, token).await),
        3 => drop(trial.look(id, bucket).await),
        _ => {
            trial.adjust(&[penalty]).await;
            trial.reset(&[id]).await;
        }
    }
}

/// The buckets of a limit, and those of others.
struct DebtorTrial<'a> {
    own: &'a [BucketId<'a>],
    foreign: &'a [BucketId<'a>],
}

/// How often a list is read that has a bucket twice.
const ATTEMPTS: u32 = 10;

/// A bucket on a page: the time of the page, the text of the key or of its digest, whether it is the
/// key, the shard and the state.
type ListedBucket = (Timestamp, String, bool, u32, i64, Timestamp);

/// What a store lists of a bucket: the key if it knows it, the shard, and the state.
type ShownDebtor = (Option<String>, u32, i64, Timestamp);

impl DebtorTrial<'_> {
    async fn check(&self, trial: &mut Trial, bucket: &Bucket) {
        let all = DebtorQuery::new(self.own[0].limit(), bucket);
        let [in_debt, blocked] = [all.clone().only_in_debt(), all.clone().only_blocked()];
        for (query, max) in
            [(&all, 1), (&all, 1_000), (&in_debt, 3), (&in_debt, 1_000), (&blocked, 3)]
        {
            self.check_list(trial, &query.clone().max(max)).await;
        }
    }

    /// Whether the store only counts.
    async fn is_counted(&self, trial: &Trial, bucket: &Bucket) -> bool {
        let query = DebtorQuery::new(self.own[0].limit(), bucket);
        matches!(trial.debtors(&query).await, DebtorReport::Count { .. })
    }

    async fn check_list(&self, trial: &mut Trial, query: &DebtorQuery) {
        for attempt in 1.. {
            match read_list(trial, query).await {
                WholeList::Unsupported => return,
                WholeList::Count(at, found) => return self.check_count(trial, query, at, found),
                // While other tests use the store, it may list a bucket twice, but not each time.
                WholeList::Buckets(found) if attempt < ATTEMPTS && has_repeats(&found) => {}
                WholeList::Buckets(found) => return self.check_found(trial, query, found),
            }
        }
    }

    /// Each bucket has to be there that the model has, and no other. A real clock runs on between
    /// pages, so each is compared at the time of its page.
    fn check_found(&self, trial: &Trial, query: &DebtorQuery, found: Vec<ListedBucket>) {
        let mut missing: BTreeMap<(String, u32), BucketId<'_>> = self
            .own
            .iter()
            .filter(|id| debtor(trial, query, **id, trial.time()).is_some())
            .map(|id| ((id.key().to_text(), id.shard_index()), *id))
            .collect();
        for (at, key, is_key, shard, value, ts) in found {
            let is_here = |id: &BucketId<'_>| {
                let due = debtor(trial, query, *id, at).map(|due| due.state());
                due == Some(State { value, ts })
            };
            let place = match is_key {
                true => Some((key.clone(), shard)),
                false => {
                    let mut same =
                        missing.iter().filter(|((_, other), id)| *other == shard && is_here(id));
                    same.next().map(|(place, _)| place.clone())
                }
            };
            let id = place.as_ref().and_then(|place| missing.remove(place));
            if !id.as_ref().is_some_and(is_here) {
                let entry: ShownDebtor = (Some(key), shard, value, ts);
                let due =
                    "each bucket that is in debt or blocked, once, as it stands, and no other";
                trial.fail_list(query, due, &entry);
            }
        }
        if !missing.is_empty() {
            trial.fail_list(query, &format!("also {missing:?}"), &"a list without them");
        }
    }

    fn check_count(&self, trial: &Trial, query: &DebtorQuery, at: Timestamp, found: [u64; 2]) {
        // A store without names knows a bucket by its numbers.
        let ids = self.own.iter().chain(self.foreign);
        let listed: Vec<_> = ids.filter_map(|id| debtor(trial, query, *id, at)).collect();
        let due = |blocked| listed.iter().filter(|one| one.is_blocked() == blocked).count();
        let due = [false, true].map(due);
        let found = found.map(|found| usize::try_from(found).unwrap());
        if found != due {
            trial.fail_list(query, &format!("{due:?} in debt and blocked"), &found);
        }
    }
}

/// All pages of a list.
enum WholeList {
    Buckets(Vec<ListedBucket>),
    /// How many are in debt, and blocked, at the time of the last part.
    Count(Timestamp, [u64; 2]),
    Unsupported,
}

async fn read_list(trial: &mut Trial, query: &DebtorQuery) -> WholeList {
    let (mut found, mut counted, mut cursor) = (Vec::new(), None, None);
    for _ in 0..100_000 {
        let query = query.clone().after(cursor);
        cursor = match trial.debtors(&query).await {
            DebtorReport::Count { at, in_debt, blocked, next } => {
                let (_, [in_debt_before, blocked_before]) = counted.unwrap_or((at, [0; 2]));
                counted = Some((at, [in_debt_before + in_debt, blocked_before + blocked]));
                next
            }
            DebtorReport::Page { at, debtors, next } => {
                trial.check_time(&query, at);
                if debtors.len() > query.get_max() {
                    let max = format!("at most {} in a page", query.get_max());
                    trial.fail_list(&query, &max, &debtors);
                }
                found.extend(debtors.into_iter().map(|one| {
                    let (shard, state) = (one.shard_index(), one.state());
                    (at, one.key_text(), one.key().is_some(), shard, state.value, state.ts)
                }));
                next
            }
            _ => return WholeList::Unsupported,
        };
        if cursor.is_none() {
            return match counted {
                None => WholeList::Buckets(found),
                Some((at, counted)) => WholeList::Count(at, counted),
            };
        }
    }
    trial.fail_list(query, "a list that ends", &"100,000 pages with a cursor each")
}

fn has_repeats(found: &[ListedBucket]) -> bool {
    let places: HashSet<_> = found.iter().map(|(_, key, _, shard, ..)| (key, shard)).collect();
    places.len() < found.len()
}

/// What is due in the list for this bucket.
fn debtor(trial: &Trial, query: &DebtorQuery, id: BucketId<'_>, at: Timestamp) -> Option<Debtor> {
    let record = trial.record(id)?;
    query.debtor(id.key().clone(), id.shard_index(), &record, at)
}
