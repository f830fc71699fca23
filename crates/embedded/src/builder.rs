//! Setting up a store in a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::NAME;
use super::decider::Durability;
use super::file::BucketFile;
use super::store::{Embedded, EmbeddedSettings};
use super::sweep::Sweep;
use tollgate::backend::BackendError;
use tollgate::clock::{Clock, SystemClock};

/// The settings of an [`Embedded`] store.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use tollgate::RateLimiter;
/// use tollgate_embedded::Embedded;
///
/// let store =
///     Embedded::at("limits.db").max_keys(50_000).deadline(Duration::from_millis(200)).open()?;
/// let limiter = RateLimiter::new(store);
/// # drop(limiter);
/// # Ok::<(), tollgate::backend::BackendError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `open` is called"]
pub struct EmbeddedBuilder {
    path: PathBuf,
    max_keys: u64,
    settings: EmbeddedSettings,
    #[cfg(test)]
    keep_full: bool,
}

/// Ways to set a store up.
impl Embedded {
    /// Opens the file with the usual settings, or creates it.
    ///
    /// # Errors
    ///
    /// As [`EmbeddedBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BackendError> {
        Self::at(path).open()
    }

    /// Sets up a store in this file.
    pub fn at(path: impl AsRef<Path>) -> EmbeddedBuilder {
        EmbeddedBuilder {
            path: path.as_ref().to_owned(),
            max_keys: MAX_KEYS,
            settings: EmbeddedSettings {
                deadline: DEADLINE,
                durability: Durability::default(),
                clock: Arc::new(SystemClock::new()),
            },
            #[cfg(test)]
            keep_full: false,
        }
    }
}

impl EmbeddedBuilder {
    /// Sets how long a decision may take, a second by default. Disks take some milliseconds for a
    /// commit, and a busy one a hundred times as long.
    ///
    /// After that, the decision fails with a [timeout](BackendError::is_timeout). The store may
    /// still carry it out, once.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// Sets when a decision is answered, [`Durability::Durable`] by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.settings.durability = durability;
        self
    }

    /// Sets how many buckets the file holds, a million by default; at least one.
    ///
    /// Above that, each commit evicts from a sample of the file the buckets that have used the
    /// smallest shares of their capacity, as many as there are too many. The client of an evicted
    /// bucket starts over with a full one. Buckets in debt go after those that are not, and blocked
    /// ones last. A file that holds many more, as after this was lowered, shrinks over several
    /// commits.
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = u64::try_from(max_keys.max(1)).unwrap_or(u64::MAX);
        self
    }

    /// Sets the clock, for instance a [`ManualClock`](tollgate::clock::ManualClock) in tests;
    /// [`SystemClock`] by default.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// Keeps buckets in the file that are full again.
    #[cfg(test)]
    pub(super) fn keep_full(mut self) -> Self {
        self.keep_full = true;
        self
    }

    /// Opens the file, or creates it, and starts the threads of the store. This blocks while the
    /// file is checked: it reads all of it, which takes some milliseconds for each 10 MB.
    ///
    /// # Errors
    ///
    /// If the file is open elsewhere, is no file of this store, is damaged, or cannot be created or
    /// written to, or if the deadline is zero.
    pub fn open(self) -> Result<Embedded, BackendError> {
        if self.settings.deadline.is_zero() {
            return Err(BackendError::misconfigured(
                NAME,
                "a deadline of 0 leaves no time to decide (use more than 0; the default is 1 s)",
            ));
        }
        let file = BucketFile::open(&self.path)?;
        #[cfg_attr(not(test), allow(unused_mut))]
        let mut sweep = Sweep::new(self.max_keys);
        #[cfg(test)]
        {
            sweep.keep_full = self.keep_full;
        }
        Embedded::over(self.path, file, sweep, self.settings)
    }
}

/// The bound unless another is set, as in memory.
const MAX_KEYS: u64 = 1_000_000;

/// Longer than a commit takes on a disk that is busy.
const DEADLINE: Duration = Duration::from_secs(1);
