//! Other numbers while the program runs: all of a file's, or none.

use std::sync::{MutexGuard, PoisonError};

use super::changes::{ConfigChanges, QuotaChange};
use super::lookup::Config;
use super::problem::{ConfigError, Mistakes};
use tollgate::limiter::RateLimiter;

/// Numbers that change while a program runs.
impl Config {
    /// Reads the file again, and gives the limits of the limiter their numbers of now.
    ///
    /// What each key has used stays used, nothing waits, and no request is lost:
    /// [`RateLimiter::replace`] has the promises. The numbers are in force when this function
    /// returns, in all layers and calls of the limiter and its clones. Several limiters that share
    /// the file are reloaded one by one. It blocks for as long as it takes to read the file.
    ///
    /// Everything else in the file needs a restart. It is in the answer, with its lines, so that an
    /// operator sees that it has no effect yet.
    ///
    /// Call it on the configuration that the program started with, each time.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or has a mistake, as for [`from_file`](Self::from_file), if a
    /// limit could not grant the cost that the program runs with, or if this configuration is from
    /// no file. Then all numbers stay as they are.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::RateLimiter;
    /// use tollgate_config::Config;
    ///
    /// # fn main() -> Result<(), tollgate_config::ConfigError> {
    /// let config = Config::from_file("limits.toml")?;
    /// let limiter = RateLimiter::in_memory();
    /// // .. later, when the file has changed:
    /// match config.reload(&limiter) {
    ///     Ok(changes) => println!("{changes}"),
    ///     Err(error) => eprintln!("the limits stay as they are:\n{error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("SIGHUP", "hot reload", "watch"))]
    pub fn reload(&self, limiter: &RateLimiter) -> Result<ConfigChanges, ConfigError> {
        // Before the file is read: of two reloads at once, the one that has read an older file would
        // otherwise undo the other.
        let turn = self.take_turn();
        match &self.content.path {
            Some(path) => self.apply_in_turn(&turn, &Self::from_file(path)?, limiter),
            None => {
                let name = self.content.file.origin.name.as_deref();
                Err(ConfigError::whole(name, NO_FILE.to_owned(), None))
            }
        }
    }

    /// Waits until no other change is under way: two at once would mix, and the one that fails would
    /// undo what the other one has done. A poisoned lock is harmless, as it protects no data.
    fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.content.applying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the limits of the limiter the numbers of another configuration, as
    /// [`reload`](Self::reload) does with those of the file.
    ///
    /// Use it where the configuration is no file, or is a part of the application's own. It waits for a
    /// reload of this configuration that is under way. The answer has each limit whose numbers change
    /// for this limiter, also one that no layer and no call of it uses.
    ///
    /// # Errors
    ///
    /// If a limit could not grant the cost that the program runs with, or if the limiter refuses
    /// numbers. Then all numbers stay as they are.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimiter;
    /// use tollgate_config::Config;
    ///
    /// let limiter = RateLimiter::in_memory();
    /// let config = Config::from_text("limits.toml", "limits.api = '10 per second'")?;
    /// let api = config.limit("api")?;
    ///
    /// let next = Config::from_text("limits.toml", "limits.api = '20 per second'")?;
    /// let changes = config.apply(&next, &limiter)?;
    /// assert_eq!(changes.to_string(), "limit \"api\": 20 per second (it was 10 per second)");
    /// assert_eq!(limiter.quota(&api).rate(), 20);
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    pub fn apply(&self, next: &Self, limiter: &RateLimiter) -> Result<ConfigChanges, ConfigError> {
        self.apply_in_turn(&self.take_turn(), next, limiter)
    }

    fn apply_in_turn(
        &self,
        _turn: &MutexGuard<'_, ()>,
        next: &Self,
        limiter: &RateLimiter,
    ) -> Result<ConfigChanges, ConfigError> {
        let changes = self.compare(next, limiter);
        let origin = &next.content.file.origin;
        let mut mistakes = Mistakes::default();
        for change in changes.quotas() {
            if let Some(text) = change.entry.refuses(change.to) {
                let at = next.content.find(change.name()).and_then(|entry| entry.at);
                let (name, cost) =
                    (change.name(), "the cost of the program changes at a restart only");
                mistakes.add(at, format!("limit \"{name}\": {text}; {cost}"));
            }
        }
        mistakes.into_result(origin)?;
        for (done, change) in changes.quotas().enumerate() {
            if let Err(error) = limiter.replace(&change.entry.limit, change.to) {
                let before: Vec<_> = changes.quotas().take(done).collect();
                before.into_iter().for_each(|change| undo(limiter, change));
                return Err(ConfigError::whole(origin.name.as_deref(), error.to_string(), None));
            }
        }
        Ok(changes)
    }
}

/// Numbers that a limiter has had, it can have again.
fn undo(limiter: &RateLimiter, change: &QuotaChange) {
    drop(limiter.replace(&change.entry.limit, change.from));
}

const NO_FILE: &str = "the configuration was read from no file, so there is none to read again \
                       (call `Config::apply` with another configuration)";
