//! The numbers of a leased limit, which follow from its quota alone, so all nodes agree on them.

use std::fmt;
use std::time::Duration;

use tollgate::algebra::{Bucket, Tokens, Units};
use tollgate::kit::Kind;

/// What a node has to know to lease a bucket. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseTerms {
    /// The bucket as the limit has it.
    limit: Bucket,
    /// The bucket of the store, which saves less by the gain of one [life](Self::life).
    store: Bucket,
    life: u64,
    longest_wait: u64,
    floor: Units,
    level: Units,
    large: Units,
}

/// The longest life of a lot.
pub(super) const MAX_LIFE: u64 = 5_000_000;

/// The shortest life of a lot. One that lives for less would not outlive its own trips.
const MIN_LIFE: u64 = 20_000;

/// How often lots are looked at that may go back: some times in their life.
const LOOKS_IN_LIFE: u64 = 50;

/// The bounds of that.
const SHORTEST_LOOK: u64 = 2_000;
const LONGEST_LOOK: u64 = 20_000;

/// The shortest window that is leased.
const MIN_WINDOW: u64 = 100_000;

/// Costs of up to so many tokens come from lots, if the limit is large enough for that.
const SMALL_COST: u64 = 50;

impl LeaseTerms {
    /// The terms of a bucket.
    ///
    /// # Errors
    ///
    /// If leasing it would not work.
    pub(super) fn new(limit: &Bucket) -> Result<Self, Unleasable> {
        if limit.capacity() <= 0 {
            return Err(Unleasable::Empty);
        }
        let life = match limit.kind() {
            Kind::FixedWindow if limit.step() < MIN_WINDOW => {
                return Err(Unleasable::ShortWindow { window: limit.step() });
            }
            Kind::FixedWindow => limit.step().min(MAX_LIFE),
            Kind::TokenBucket => {
                let half = limit.capacity().unsigned_abs() / 2;
                let steps = half.checked_div(limit.gain()).unwrap_or(0);
                match steps.saturating_mul(limit.step()).min(MAX_LIFE) {
                    life @ ..MIN_LIFE => return Err(Unleasable::ShortLife { life }),
                    life => life,
                }
            }
        };
        let terms = Self::with_life(limit, life);
        if terms.store.capacity() < terms.token() {
            let held = limit.tokens(terms.store.capacity());
            return Err(Unleasable::FewTokens { capacity: limit.tokens(limit.capacity()), held });
        }
        Ok(terms)
    }

    /// The terms with lots of this life.
    pub(super) fn with_life(limit: &Bucket, life: u64) -> Self {
        let is_window = limit.kind() == Kind::FixedWindow;
        let gain = |micros| if is_window { 0 } else { most_gained(limit, micros) };
        let longest_wait = if is_window { 0 } else { life.saturating_mul(4) / 15 };
        let store = limit.with_capacity(limit.capacity().saturating_sub(gain(life)));
        let floor = if is_window { 0 } else { limit.capacity() / 16 };
        let room = store.capacity().saturating_sub(floor);
        let small = units(limit.token()).saturating_mul(units(SMALL_COST)).min(room / 4);
        Self {
            limit: *limit,
            store,
            life,
            longest_wait,
            floor,
            level: floor.saturating_add(gain(longest_wait)),
            large: small.max(store.capacity() / 64),
        }
    }

    /// The bucket as the limit has it.
    pub(super) const fn limit(&self) -> &Bucket {
        &self.limit
    }

    /// The bucket of the store.
    pub(super) const fn store(&self) -> &Bucket {
        &self.store
    }

    pub(super) fn is_window(&self) -> bool {
        self.limit.kind() == Kind::FixedWindow
    }

    /// How long a lot lives, from the instant at which its node has sent the question.
    pub(super) const fn life(&self) -> u64 {
        self.life
    }

    /// The life less a thousandth and a tick, since clocks run at different speeds.
    pub(super) const fn safe_life(&self) -> u64 {
        shortened(self.life)
    }

    /// The longest time that a lot waits for its start.
    pub(super) const fn longest_wait(&self) -> u64 {
        self.longest_wait
    }

    /// What lots leave in the bucket for single requests.
    pub(super) const fn floor(&self) -> Units {
        self.floor
    }

    /// Below this, a lot waits until the bucket would be at it again.
    pub(super) const fn level(&self) -> Units {
        self.level
    }

    /// The largest lot: more never fits above the floor.
    pub(super) const fn largest_lot(&self) -> Units {
        self.store.capacity().saturating_sub(self.floor)
    }

    /// A cost above this is charged by itself if the lots do not cover it.
    pub(super) const fn large(&self) -> Units {
        self.large
    }

    pub(super) const fn token(&self) -> Units {
        units(self.limit.token())
    }

    /// How long after one look at lots that may go back the next one comes, while they are in use.
    pub(super) fn look_every(&self) -> u64 {
        (self.life / LOOKS_IN_LIFE).clamp(SHORTEST_LOOK, LONGEST_LOOK)
    }

    /// The time between two looks without a request, after one of this length.
    pub(super) fn next_pause(&self, pause: u64) -> u64 {
        pause.saturating_mul(2).min(self.life / 8).max(self.look_every())
    }

    /// What the bucket gains at most in so many microseconds. A window gains nothing while it lasts.
    pub(super) fn gain_in(&self, micros: u64) -> Units {
        if self.is_window() { 0 } else { most_gained(&self.limit, micros) }
    }

    /// How long it takes to gain so many units, rounded up. A window does not gain while it lasts.
    pub(super) fn time_to_gain(&self, units: Units) -> u64 {
        if self.is_window() {
            return 0;
        }
        let steps = units.max(0).unsigned_abs().div_ceil(self.limit.gain());
        steps.saturating_mul(self.limit.step())
    }

    /// The longest deadline that a question may have.
    pub(super) const fn longest_deadline(&self) -> Duration {
        Duration::from_micros(self.life / 4)
    }
}

/// What a token bucket gains in so many microseconds, a step that has begun before included.
fn most_gained(limit: &Bucket, micros: u64) -> Units {
    units(micros.div_ceil(limit.step()).saturating_mul(limit.gain()))
}

/// A time less a thousandth and a tick.
pub(super) const fn shortened(micros: u64) -> u64 {
    micros.saturating_sub(micros / 1_000).saturating_sub(1)
}

/// An unsigned number as units.
pub(super) const fn units(number: u64) -> Units {
    if number > Units::MAX.cast_unsigned() { Units::MAX } else { number.cast_signed() }
}

/// Why a bucket cannot be leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unleasable {
    Empty,
    ShortLife { life: u64 },
    ShortWindow { window: u64 },
    FewTokens { capacity: Tokens, held: Tokens },
}

impl fmt::Display for Unleasable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = Duration::from_micros;
        match self {
            Self::Empty => f.write_str(
                "its capacity is 0, so there is nothing to take in advance (raise the capacity)",
            ),
            Self::ShortLife { life } => write!(
                f,
                "a lot would live for {:?}, half of the time in which the bucket fills, and trips \
                 to the store need {:?} (raise the capacity to what is gained in {:?})",
                time(*life),
                time(MIN_LIFE),
                time(MIN_LIFE.saturating_mul(2)),
            ),
            Self::ShortWindow { window } => write!(
                f,
                "its window of {:?} is too short for trips to the store (use a window of {:?} or \
                 more, or a token bucket)",
                time(*window),
                time(MIN_WINDOW),
            ),
            Self::FewTokens { capacity, held } => write!(
                f,
                "of its capacity of {capacity} tokens, the store would hold {held}, less than one \
                 request takes (raise the capacity)"
            ),
        }
    }
}
