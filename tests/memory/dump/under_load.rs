//! Stores that are saved while threads decide.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tollgate_testing::dice::Dice;
use tollgate_testing::{START, admitted, at_once, is_admitted, remaining, store};

use super::{HOARD, dump_of, taken};
use tollgate::algebra::check_history;
use tollgate::backend::Memory;
use tollgate::clock::{Clock, ManualClock};
use tollgate::{HOUR, Limit, Quota, RateLimiter, SECOND, Timestamp};

const THREADS: u64 = 4;
const KEYS: u64 = 48;

/// Seven shards, which are locked one after another.
const BOUND: usize = 7_000;

static FAST: Limit = Limit::new("fast", Quota::token_bucket(200, SECOND).capacity(40));
static STEPS: Limit = Limit::new("steps", Quota::fixed_window(20, SECOND).capacity(40));

/// What ran: the limit, the key, the instant and the cost.
type Ran = (usize, u64, Timestamp, u64);

fn limits() -> [&'static Limit; 2] {
    [&FAST, &STEPS]
}

/// How many calls the threads may make, so that a test is as long on any machine.
#[derive(Default)]
struct Pace {
    allowed: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
}

/// The last call has been made.
const OVER: u64 = u64::MAX;

impl Pace {
    /// Makes calls as far as they are allowed, until the test is over.
    fn make(&self, mut call: impl FnMut()) {
        loop {
            match self.allowed.load(Ordering::SeqCst) {
                OVER => return,
                allowed if self.begun.load(Ordering::SeqCst) < allowed => {
                    self.begun.fetch_add(1, Ordering::SeqCst);
                    call();
                    self.ended.fetch_add(1, Ordering::SeqCst);
                }
                _ => thread::yield_now(),
            }
        }
    }

    /// Allows so many more calls, and waits until half of them have ended. The others run beside
    /// what comes next.
    fn go_on(&self, calls: u64) {
        let before = self.ended.load(Ordering::SeqCst);
        self.allowed.fetch_add(calls, Ordering::SeqCst);
        while self.ended.load(Ordering::SeqCst) < before + calls / 2 {
            thread::yield_now();
        }
    }
}

/// Ends the calls, also when a test fails: it would wait for its threads otherwise.
struct PaceEnd<'p>(&'p Pace);

impl Drop for PaceEnd<'_> {
    fn drop(&mut self) {
        self.0.allowed.store(OVER, Ordering::SeqCst);
    }
}

/// A stream that is written to while calls are made.
struct BusyStream<'p>(Vec<u8>, &'p Pace);

impl Write for BusyStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.go_on(60);
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A dump that is written while calls are made between its blocks, and beside them.
fn busy_dump(memory: &Memory, pace: &Pace) -> Vec<u8> {
    let mut stream = BusyStream(Vec::new(), pace);
    memory.save(&mut stream).unwrap();
    stream.0
}

/// A store that is larger than some blocks.
fn filled(clock: &ManualClock) -> (std::sync::Arc<Memory>, RateLimiter) {
    let (memory, limiter) = store(Memory::new().max_keys(BOUND), clock);
    (1_000..6_000).for_each(|key| assert!(admitted(&limiter, &HOARD, key, 1)));
    (memory, limiter)
}

/// Makes a random request, and notes what runs.
fn ask(limiter: &RateLimiter, dice: &mut Dice, ran: &mut Vec<Ran>) {
    let (nth, key, cost) = (dice.nth(&limits()), dice.below(KEYS), 1 + dice.below(6));
    if let Ok(permit) = at_once(limiter.limit(limits()[nth]).key(key).cost(cost)) {
        ran.push((nth, key, permit.snapshot().at(), cost));
    }
}

/// No key of a limit had more than the bound.
#[track_caller]
fn is_within_bounds<'r>(ran: impl Iterator<Item = &'r Ran>, what: &str) {
    let mut of_keys = BTreeMap::<_, Vec<_>>::new();
    for &(nth, key, at, cost) in ran {
        of_keys.entry((nth, key)).or_default().push((at, cost));
    }
    for ((nth, key), ran) in of_keys {
        let violation = check_history(limits()[nth].quota(), &ran).unwrap();
        assert_eq!(violation, None, "{what}: {nth}, {key}");
    }
}

/// A process that crashes loses what was taken since its last save was begun, and nothing else: the
/// work before that and the work of the next process are within the bound together.
#[test]
fn what_ran_before_a_save_and_after_its_load_is_within_the_bound() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = filled(&clock);
    let pace = Pace::default();
    let (ran, saved) = thread::scope(|scope| {
        let work = |thread| {
            let (mut dice, mut ran) = (Dice(thread), Vec::new());
            pace.make(|| {
                ask(&limiter, &mut dice, &mut ran);
                clock.advance(Duration::from_micros(dice.below(600)));
            });
            ran
        };
        let threads = (0..THREADS).map(|thread| scope.spawn(move || work(thread)));
        let threads: Vec<_> = threads.collect();
        let (mut saved, end) = (Vec::new(), PaceEnd(&pace));
        while saved.len() < 8 {
            // Enough to change all buckets.
            pace.go_on(800);
            let from = clock.now();
            let dump = busy_dump(&memory, &pace);
            saved.push((from, dump, clock.now()));
        }
        drop(end);
        let ran: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (ran, saved)
    });
    is_within_bounds(ran.iter(), "the first process");
    for (nth, (from, dump, to)) in saved.iter().enumerate() {
        assert!(ran.iter().any(|(_, _, at, _)| from < at && at < to), "work ran during the save");
        let before = ran.iter().filter(|(_, _, at, _)| at < from);
        // The process crashes when the dump is written, and the next one starts at once.
        let clock = ManualClock::new(*to);
        let memory = Memory::new().max_keys(BOUND).clock(clock.clone());
        let limiter = RateLimiter::new(memory.load(dump.as_slice()).unwrap());
        let (mut dice, mut after) = (Dice(nth as u64), Vec::new());
        for _ in 0..3_000 {
            ask(&limiter, &mut dice, &mut after);
            clock.advance(Duration::from_micros(dice.below(300)));
        }
        assert!(after.len() > 500, "{}", after.len());
        is_within_bounds(before.chain(&after), "two processes");
    }
}

/// Nothing refills here, so the tokens in a dump can be counted: each bucket is that of an instant
/// between the begin and the end of the save.
#[test]
fn each_bucket_is_saved_as_it_was_at_one_instant_of_the_save() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = filled(&clock);
    let counts: Vec<_> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let pace = Pace::default();
    // A call counts when it is answered. A call under way may be in the dump, or not.
    let count = |under_way: u64| -> Vec<u64> {
        counts.iter().map(|count| count.load(Ordering::SeqCst) + under_way).collect()
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (counts, limiter, pace) = (&counts, &limiter, &pace);
            scope.spawn(move || {
                let mut dice = Dice(thread);
                pace.make(|| {
                    let key = dice.below(KEYS);
                    assert!(is_admitted(limiter.limit(&HOARD).key(key)));
                    counts[usize::try_from(key).unwrap()].fetch_add(1, Ordering::SeqCst);
                });
            });
        }
        let (mut early, mut late, end) = (0, 0, PaceEnd(&pace));
        for _ in 0..10 {
            let before = count(0);
            let dump = busy_dump(&memory, &pace);
            let after = count(THREADS);
            let (_, loaded) = store(Memory::new().load(dump.as_slice()).unwrap(), &clock);
            for (key, (least, most)) in (0..).zip(before.into_iter().zip(after)) {
                let taken = taken(&loaded, key);
                assert!((least..=most).contains(&taken), "{key}: {least} {taken} {most}");
                early += u64::from(taken + THREADS < most);
                late += u64::from(taken > least);
            }
        }
        drop(end);
        assert!(early > 10 && late > 10, "{early} buckets before the end, {late} after the begin");
    });
    // At rest, a dump is exact.
    let (_, loaded) = store(Memory::new().load(dump_of(&memory).as_slice()).unwrap(), &clock);
    for (key, count) in (0..).zip(&counts) {
        assert_eq!(taken(&loaded, key), count.load(Ordering::SeqCst));
    }
}

/// Two limits in one request, which a save may find in one shard and not yet in the other: each
/// limit by itself is within its bounds, and neither is ever refilled.
#[test]
fn each_limit_of_a_request_is_saved_by_itself() {
    static OTHER: Limit = Limit::new("other", Quota::token_bucket(1_000_000, HOUR));
    let clock = ManualClock::new(START);
    let (memory, limiter) = filled(&clock);
    let (answered, pace) = (AtomicU64::new(0), Pace::default());
    let dumps: Vec<_> = thread::scope(|scope| {
        scope.spawn(|| {
            pace.make(|| {
                assert!(is_admitted(limiter.limit(&HOARD).key(1_u64).and(&OTHER).key(1_u64)));
                answered.fetch_add(1, Ordering::SeqCst);
            });
        });
        let end = PaceEnd(&pace);
        let dumps = (0..20)
            .map(|_| {
                let before = answered.load(Ordering::SeqCst);
                let dump = busy_dump(&memory, &pace);
                (before, dump, answered.load(Ordering::SeqCst) + 1)
            })
            .collect();
        drop(end);
        dumps
    });
    for (before, dump, after) in dumps {
        let (_, loaded) = store(Memory::new().load(dump.as_slice()).unwrap(), &clock);
        let taken = [taken(&loaded, 1), 1_000_000 - remaining(&loaded, &OTHER, 1)];
        assert!(taken.iter().all(|taken| (before..=after).contains(taken)), "{taken:?}");
    }
}

/// A stream that asks the store whenever it is written to.
struct CuriousStream<'s>(&'s RateLimiter, u64);

impl Write for CuriousStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1 += 1;
        // Each shard has some of these keys. A lock that is held here would stop the test.
        (1_000..1_500).for_each(|key| assert!(admitted(self.0, &HOARD, key, 1)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn no_lock_is_held_while_bytes_are_written() {
    let (memory, limiter) = filled(&ManualClock::new(START));
    let mut stream = CuriousStream(&limiter, 0);
    memory.save(&mut stream).unwrap();
    assert!(stream.1 >= 8, "the head, the store, five blocks and the end: {}", stream.1);
}
