//! A decision about one limit of a request.

use std::time::Duration;

use crate::limiter::Limit;

/// What a limit decided about a request; told to [`Observer::on_decision`](super::Observer).
///
/// A request over several limits has a decision for each of them. It has no key: keys are personal
/// data, and there are too many of them for a label.
///
/// # Examples
///
/// ```
/// use std::sync::Mutex;
/// use tollgate::limiter::{Decision, Outcome};
/// use tollgate::{HOUR, Limit, Observer, Quota, RateLimiter};
///
/// const REQUESTS: Limit = Limit::new("requests", Quota::token_bucket(9, HOUR));
/// const EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(1, HOUR));
///
/// #[derive(Default)]
/// struct Seen(Mutex<Vec<(String, Outcome, bool)>>);
///
/// impl Observer for Seen {
///     fn on_decision(&self, decision: &Decision<'_>) {
///         assert_eq!(decision.source(), "handler");
///         let name = decision.limit().name().to_owned();
///         self.0.lock().unwrap().push((name, decision.outcome(), decision.is_main()));
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let seen = std::sync::Arc::new(Seen::default());
/// let limiter = RateLimiter::in_memory().observe(seen.clone());
/// assert!(limiter.limit(&REQUESTS).and(&EXPORTS).await.is_ok());
/// assert!(limiter.limit(&REQUESTS).and(&EXPORTS).await.is_err());
/// assert_eq!(
///     *seen.0.lock().unwrap(),
///     [
///         ("requests".to_owned(), Outcome::Admitted, true),
///         ("exports".to_owned(), Outcome::Admitted, false),
///         ("requests".to_owned(), Outcome::NotTaken, false), // it has the tokens
///         ("exports".to_owned(), Outcome::Refused, true),
///     ],
/// );
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Decision<'a> {
    pub(super) limit: &'a Limit,
    pub(super) outcome: Outcome,
    pub(super) source: DecisionSource,
    pub(super) cost: u64,
    pub(super) wait: Option<Duration>,
    pub(super) is_main: bool,
}

impl<'a> Decision<'a> {
    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// What became of the request, as far as this limit is concerned.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Which part of the program asked, by its name in metrics, spans and logs: `"layer"` for a rule
    /// that is enforced for the request, `"shadow"` for one that only watches, and `"handler"` for a
    /// call, in a handler, a job or a client, or by a throttled stream.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        self.source.name()
    }

    /// Whether a layer has asked by a rule that only watches. The request passes whatever the outcome
    /// is.
    #[must_use]
    pub const fn is_shadow(&self) -> bool {
        matches!(self.source, DecisionSource::Shadow)
    }

    /// How many sources there are.
    #[doc(hidden)]
    pub const SOURCES: usize = 3;

    /// The place of the source in a table of all.
    #[doc(hidden)]
    #[must_use]
    #[expect(clippy::as_conversions, reason = "the variants are numbered from 0 on")]
    pub const fn source_index(&self) -> usize {
        self.source as usize
    }

    /// The tokens that the request asked this limit for; zero if it did not get so far
    /// ([`NoKey`](Outcome::NoKey), [`Exempt`](Outcome::Exempt)).
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The tokens that this limit gave: the cost if it was taken, or else zero.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        if self.outcome.is_taken() { self.cost } else { 0 }
    }

    /// The time until this limit has the tokens, without jitter: of a refusal, the wait that helps;
    /// of a reservation, the wait until the work may run. Zero if the limit had them, and `None` if
    /// it did not say, never will have them, or nobody knows, as for requests [in
    /// flight](crate::Quota::in_flight).
    #[must_use]
    pub const fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// Whether this decision stands for the whole request. Each request has exactly one of these:
    /// the decision that kept it from running at once, the longest wait of several, or else that of
    /// its first limit.
    ///
    /// A [shadow](Self::is_shadow) is decided on its own, so its decision stands for itself.
    #[must_use]
    pub const fn is_main(&self) -> bool {
        self.is_main
    }
}

/// What became of a request at one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The tokens were taken, and the work may run now.
    Admitted,
    /// The tokens were taken, and the work may run later: at a known instant, or when requests in
    /// flight have ended.
    Reserved,
    /// The limit is short of tokens. Nothing was taken.
    Refused,
    /// Nothing was taken from this limit because of another limit of the same request. This one
    /// refused nothing.
    NotTaken,
    /// The cost is more than the limit could ever grant. Nothing was taken.
    TooLarge,
    /// The request could have waited for this limit, but the queue of its layer had no place for
    /// it. Nothing was taken.
    QueueFull,
    /// The store did not decide, and the request passed:
    /// [`OnFailure::Admit`](crate::OnFailure::Admit), or a shadow.
    Uncounted,
    /// The store did not decide, and the request did not pass.
    Unavailable,
    /// The request has no key for this limit, and was answered for that.
    NoKey,
    /// The request is exempt from this limit, by its key or by what the layer makes of a missing
    /// one, or because no limit was chosen for it.
    Exempt,
}

impl Outcome {
    /// How many there are.
    #[doc(hidden)]
    pub const COUNT: usize = 10;

    /// Its place in a table of all.
    #[doc(hidden)]
    #[must_use]
    #[expect(clippy::as_conversions, reason = "the variants are numbered from 0 on")]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics, spans and logs, such as `"not_taken"`.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(tollgate::limiter::Outcome::NotTaken.name(), "not_taken");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Reserved => "reserved",
            Self::Refused => "refused",
            Self::NotTaken => "not_taken",
            Self::TooLarge => "too_large",
            Self::QueueFull => "queue_full",
            Self::Uncounted => "uncounted",
            Self::Unavailable => "unavailable",
            Self::NoKey => "no_key",
            Self::Exempt => "exempt",
        }
    }

    /// Whether the tokens were taken.
    #[must_use]
    pub const fn is_taken(self) -> bool {
        matches!(self, Self::Admitted | Self::Reserved)
    }

    /// How much it weighs when one decision has to stand for a request: whether it keeps the
    /// request from running, or makes it wait.
    pub(super) const fn weight(self) -> u8 {
        match self {
            Self::Admitted | Self::NotTaken | Self::Exempt => 0,
            Self::Uncounted | Self::Reserved => 1,
            Self::Refused | Self::TooLarge | Self::QueueFull | Self::Unavailable | Self::NoKey => 2,
        }
    }
}

/// Which part of the program asked a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionSource {
    /// A call: in a handler, a job or a client, or by a throttled stream.
    Handler,
    /// A layer, by a rule that is enforced for the request.
    Layer,
    /// A layer, by a rule that only watches. The request passes whatever the outcome is.
    Shadow,
}

impl DecisionSource {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Handler => "handler",
            Self::Layer => "layer",
            Self::Shadow => "shadow",
        }
    }
}
