//! Work in flight: a permit that is kept while the work runs.

use super::permit::{Permit, Settlement};

/// Keeps a [`Permit`] while its work runs; made by [`Permit::in_flight`].
///
/// Dropping it gives back the tokens of the limits that count requests [in
/// flight](crate::Quota::in_flight): at a `return` or a `?`, if the work panics, and if its future is
/// dropped. What other limits of the call took stays taken.
///
/// # Dropping
///
/// The store is asked at once. If it answers later, this completes in a task, on the tokio runtime in
/// which the guard is dropped. Outside of a runtime, the tokens are there again when they count as
/// [lost](crate::Quota::lost_after).
#[derive(Debug)]
#[must_use = "if it is dropped at once, the work is not counted while it runs"]
pub struct InFlight<'l>(Permit<'l>);

impl<'l> Permit<'l> {
    /// Keeps the permit until the guard is dropped, which gives back what counts work [in
    /// flight](crate::Quota::in_flight).
    ///
    /// A permit of such a limit that is dropped without a guard, and that is neither
    /// [settled](Self::settle) nor [refunded](Self::refund), keeps its token: in memory until the key
    /// is [reset](crate::RateLimiter::reset), elsewhere until it counts as lost. If no permit of a limit
    /// in memory was ever given back when it refuses, the log warns once.
    ///
    /// Call [`into_owned`](Self::into_owned) before, to move the guard into a task, a stream or a
    /// connection.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, Quota, RateLimited, RateLimiter};
    ///
    /// const REPORTS: Limit = Limit::new("reports", Quota::in_flight(2));
    ///
    /// async fn report(limiter: &RateLimiter, user: &str) -> Result<String, RateLimited> {
    ///     let _in_flight = limiter.limit(&REPORTS).key(user).await?.in_flight();
    ///     Ok(format!("what {user} has done")) // the long query
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// for _ in 0..10 {
    ///     report(&limiter, "alice").await?;
    /// }
    /// assert_eq!(limiter.peek(&REPORTS).key("alice").await?.remaining(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("guard", "release_on_drop"))]
    pub fn in_flight(self) -> InFlight<'l> {
        for snapshot in self.snapshots() {
            self.limiter().state.uses.note_end(snapshot.limit());
        }
        InFlight(self)
    }
}

impl<'l> InFlight<'l> {
    /// The permit.
    #[must_use]
    pub const fn permit(&self) -> &Permit<'l> {
        &self.0
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.0.is_in_flight() {
            // It completes by itself, also if its future is dropped.
            drop(self.0.settle_by(Settlement::Ended));
        }
    }
}
