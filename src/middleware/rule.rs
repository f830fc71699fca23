//! A rule of a layer: a limit with its key, its cost, its conditions and its effects.
//!
//! `plan` prepares it for requests, and `decide` applies it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};

use super::portion::Portion;
use super::response_head::ResponseHead;
use crate::backend::{BucketId, Key};
use crate::key::{FromFn, Head, IntoExtracted, KeyExtractor, global};
use crate::limiter::{BlockAfter, Kept, Limit};
use crate::quota::tokens_of;

/// A limit with its key, its cost, its conditions, and the effect of responses on its tokens.
///
/// A [`RateLimitLayer`](crate::RateLimitLayer) takes one rule or several. Where a rule is expected,
/// a [`Limit`] will do: it takes one token for each request, from a bucket that all requests share.
///
/// # Examples
///
/// ```
/// use http::{Method, StatusCode};
/// use tollgate::key::header;
/// use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter, Rule};
///
/// const FAILURES: Limit = Limit::new("failed-logins", Quota::token_bucket(5, HOUR));
/// const PLANNED: Limit = Limit::new("logins", Quota::token_bucket(10, MINUTE));
///
/// // Counts failures only: other requests get their tokens back.
/// let failures = Rule::new(&FAILURES)
///     .key(header("x-user"))
///     .only_methods([Method::POST])
///     .refund_if(|response| response.status() != StatusCode::UNAUTHORIZED);
/// // Decides and logs, but refuses nothing.
/// let planned = Rule::new(&PLANNED).key(header("x-user")).shadow();
///
/// let layer = RateLimiter::in_memory().layer(failures).and(planned);
/// # drop(layer);
/// ```
#[doc(alias("GovernorConfig", "GovernorConfigBuilder"))]
#[derive(Clone)]
#[must_use = "a rule does nothing until a layer takes it: `limiter.layer(rule)`"]
pub struct Rule {
    pub(super) limit: Arc<Limit>,
    pub(super) chooser: Option<Chooser>,
    pub(super) key: Arc<dyn KeyExtractor>,
    /// Whether the key was chosen, and is not that of all requests for want of another.
    pub(super) is_key_set: bool,
    /// Whether it has taken the place of another one that was chosen.
    pub(super) is_key_replaced: bool,
    /// What each request costs, if that was set; otherwise one token.
    pub(super) cost: Option<u64>,
    /// Computes what a request costs instead.
    pub(super) cost_with: Option<RequestCost>,
    /// `None`: as the error of the key says.
    pub(super) missing_key: Option<MissingKey>,
    /// The rule applies to requests for which all of these return true.
    pub(super) only: Vec<RequestPredicate>,
    pub(super) sample: Portion,
    /// The portion of the keys that the rule is enforced on; for the others, it is a shadow.
    pub(super) enforced: Portion,
    pub(super) refund_if: Option<ResponsePredicate>,
    pub(super) reset_if: Option<ResponsePredicate>,
    /// Boxed, since it is large and most rules have none.
    pub(super) block_after: Option<Box<BlockAfter>>,
}

/// What a request pays: the limit, the key and the cost.
impl Rule {
    /// Makes a rule that takes one token for each request, from a bucket that all requests share.
    ///
    /// If no rule of a layer is given a [key](Self::key), the log warns once when the layer first
    /// refuses a request. Say `.key(global())` if one bucket for all is meant
    /// ([`global`](crate::key::global)).
    pub fn new(limit: impl Into<Limit>) -> Self {
        Self::with_limit(Arc::new(limit.into()))
    }

    /// Sets the extractor of the key: each key has a bucket of its own.
    ///
    /// A second key takes the place of the first, and the log warns once. For a bucket of each
    /// combination, give both as a tuple.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{ClientIp, header};
    /// use tollgate::{HOUR, Limit, Quota, Rule};
    ///
    /// const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(100, HOUR));
    ///
    /// let rule = Rule::new(&EXPORTS).key((header("x-tenant"), ClientIp::peer()));
    /// # drop(rule);
    /// ```
    #[doc(alias("key_extractor", "keyGenerator", "with_extractor"))]
    pub fn key(mut self, extractor: impl KeyExtractor) -> Self {
        self.key = Arc::new(extractor);
        self.is_key_replaced = self.is_key_set;
        self.is_key_set = true;
        self
    }

    /// Sets a function that computes the key from the head of a request: a key, or an `Option` or a
    /// `Result` of one.
    ///
    /// The key cannot borrow from the head: make it owned, by `to_owned()` or by `Key::from(..)`,
    /// which does not allocate for up to 38 bytes. A closure that is stored in a variable first
    /// needs the type of its parameter, `|head: &Head<'_>|`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::Head;
    /// use tollgate::{Limit, MINUTE, Quota, Rule};
    ///
    /// const CALLS: Limit = Limit::new("calls", Quota::token_bucket(100, MINUTE));
    ///
    /// let key = |head: &Head<'_>| if head.method().is_safe() { "reads" } else { "writes" };
    /// let rule = Rule::new(&CALLS).key_with(key);
    /// # drop(rule);
    /// ```
    pub fn key_with<K: IntoExtracted + 'static>(
        self,
        key: impl Fn(&Head<'_>) -> K + Send + Sync + 'static,
    ) -> Self {
        self.key(FromFn(key))
    }

    /// Sets the tokens that each request takes; 1 by default.
    ///
    /// It takes integers of all types, as [`LimitCall::cost`](crate::limiter::LimitCall::cost).
    pub fn cost(mut self, tokens: impl IntoCost) -> Self {
        (self.cost, self.cost_with) = (Some(tokens.into_cost()), None);
        self
    }

    /// Sets a function that computes the cost of a request, in tokens, from its head.
    ///
    /// A request that costs more than the limit can ever grant is answered with
    /// [413](crate::RateLimitLayer::too_large), as no wait would help. A closure that is stored in a
    /// variable first needs the type of its parameter, `|head: &Head<'_>|`.
    ///
    /// The function returns a `u64`: of a length, `u64::try_from(length).unwrap_or(u64::MAX)`.
    ///
    /// A request that costs 0 is free. So the default of a `map_or` or an `unwrap_or` is what a client
    /// pays that leaves the field out, or sends one that cannot be read, such as a body without a
    /// `Content-Length`: make it the price of the largest request.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Limit, Quota, Rule};
    ///
    /// const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(100, HOUR));
    ///
    /// let by_format = Rule::new(&EXPORTS)
    ///     .cost_with(|head| if head.uri().path().ends_with(".zip") { 10 } else { 1 });
    /// # drop(by_format);
    /// ```
    #[doc(alias("weight", "check_n"))]
    pub fn cost_with(mut self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.cost_with = Some(Arc::new(cost));
        self
    }

    /// Sets a function that chooses the limit of a request from its head, such as that of its
    /// tenant's plan.
    ///
    /// It returns a [`Limit`], a `&'static Limit`, an `Arc<Limit>`, or an `Option` of one, but no
    /// borrow of the request. With `None`, this rule does not limit the request; others still do.
    ///
    /// **A `?` in it returns `None`**: each request for which it finds nothing, such as one without the
    /// field that names its plan, is then not limited. Name the limit that such requests get, as
    /// `_ => Some(&FREE)` does below.
    ///
    /// Limits with the same name share their buckets: after a change of plan, the tokens that the
    /// tenant has used stay used. Where no request is at hand, as in some lines of the log, the
    /// limit of [`new`](Self::new) is named.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{Head, header};
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule};
    ///
    /// static FREE: Limit = Limit::new("per-tenant", Quota::token_bucket(60, MINUTE));
    /// static PRO: Limit = Limit::new("per-tenant", Quota::token_bucket(6_000, MINUTE));
    ///
    /// fn plan(head: &Head<'_>) -> Option<&'static Limit> {
    ///     // In production, from what the authentication has put into the request's extensions.
    ///     match head.headers().get("x-plan").map(|plan| plan.as_bytes()) {
    ///         Some(b"internal") => None, // not limited
    ///         Some(b"pro") => Some(&PRO),
    ///         _ => Some(&FREE), // also without a plan
    ///     }
    /// }
    ///
    /// let rule = Rule::new(&FREE).limit_with(plan).key(header("x-tenant"));
    /// let layer = RateLimiter::in_memory().layer(rule);
    /// # drop(layer);
    /// ```
    ///
    /// By method or path:
    ///
    /// ```
    /// use tollgate::key::ClientIp;
    /// use tollgate::{Limit, MINUTE, Quota, Rule};
    ///
    /// static READS: Limit = Limit::new("reads", Quota::token_bucket(600, MINUTE));
    /// static WRITES: Limit = Limit::new("writes", Quota::token_bucket(60, MINUTE));
    /// static EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(6, MINUTE));
    ///
    /// let rule = Rule::new(&READS).key(ClientIp::peer()).limit_with(|head| {
    ///     match head.uri().path().starts_with("/export") {
    ///         true => &EXPORTS,
    ///         false if head.method().is_safe() => &READS,
    ///         false => &WRITES,
    ///     }
    /// });
    /// # drop(rule);
    /// ```
    #[doc(alias("tier", "plan"))]
    pub fn limit_with<L: IntoChosenLimit>(
        mut self,
        choose: impl Fn(&Head<'_>) -> L + Send + Sync + 'static,
    ) -> Self {
        self.chooser = Some(Arc::new(move |head| choose(head).into_chosen_limit()));
        self
    }

    /// Sets the status of the answer to a request whose key [is
    /// missing](crate::key::KeyError::missing).
    ///
    /// If nothing is set, the key chooses the status. It is 400 for a header field or cookie that the
    /// client has not sent, and 401 if that carries credentials. It is 500 for what the server has to
    /// know, such as the address of the peer or an extension of the request. An extractor of your own
    /// sets it by [`KeyError::with_status`](crate::key::KeyError::with_status).
    ///
    /// A key that is present but cannot be used is a mistake of the client. Such a request is answered
    /// with 400, whatever is set here.
    ///
    /// With debug assertions (`cargo run`, `cargo test`), the body of a 500 says which key is missing
    /// and the way out, as the log does, and so does each answer if nothing is set. In release builds
    /// the body tells the client nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate::key::header;
    /// use tollgate::{HOUR, Limit, Quota, Rule};
    ///
    /// const EXPORTS: Limit = Limit::new("exports", Quota::fixed_window(100, HOUR));
    ///
    /// let tenant = || Rule::new(&EXPORTS).key(header("x-tenant"));
    /// let rules = [
    ///     tenant().missing_key(StatusCode::UNAUTHORIZED),
    ///     tenant().missing_key_exempt(), // passes without being charged
    ///     tenant().missing_key_shared(), // pays from one bucket for all without a key
    /// ];
    /// # drop(rules);
    /// ```
    #[doc(alias("UnableToExtractKey", "anonymous"))]
    pub fn missing_key(mut self, status: StatusCode) -> Self {
        self.missing_key = Some(MissingKey::Reject(status));
        self
    }

    /// Lets a request without a key pass without being charged to this limit; see
    /// [`missing_key`](Self::missing_key).
    pub fn missing_key_exempt(mut self) -> Self {
        self.missing_key = Some(MissingKey::Exempt);
        self
    }

    /// Takes the tokens of requests without a key from one bucket that they share; see
    /// [`missing_key`](Self::missing_key).
    pub fn missing_key_shared(mut self) -> Self {
        self.missing_key = Some(MissingKey::Shared);
        self
    }
}

/// Which requests the rule applies to.
impl Rule {
    /// Applies this limit only to requests with one of these methods; the others pass.
    ///
    /// GET includes HEAD, for which servers do the work of GET: axum runs the handler of GET.
    ///
    /// If several conditions are set, the limit applies to requests that meet all of them. The key
    /// of any other request is not extracted, so it cannot be missing.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Method;
    /// use tollgate::{Limit, MINUTE, Quota, Rule};
    ///
    /// const WRITES: Limit = Limit::new("writes", Quota::token_bucket(10, MINUTE));
    ///
    /// let rule = Rule::new(&WRITES).only_methods([Method::POST, Method::PUT]);
    /// # drop(rule);
    /// ```
    #[doc(alias = "methods")]
    pub fn only_methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let mut methods: Vec<_> = methods.into_iter().collect();
        let head = methods.contains(&Method::GET).then_some(Method::HEAD);
        methods.extend(head);
        self.only_if(move |head| methods.contains(head.method()))
    }

    /// Applies this limit only to requests for which `predicate` returns true; the others pass.
    ///
    /// See [`only_methods`](Self::only_methods). A predicate that names GET has to name HEAD as
    /// well.
    #[doc(alias("skip", "filter", "exempt"))]
    pub fn only_if(
        mut self,
        predicate: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.only.push(Arc::new(predicate));
        self
    }

    /// Applies this limit to a random sample of the requests; the others pass.
    ///
    /// The layer draws one number for each request that meets all other conditions.
    /// [`seed`](crate::RateLimiter::seed) makes the numbers the same in each run.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::middleware::Portion;
    /// use tollgate::{Limit, MINUTE, Quota, Rule};
    ///
    /// const TRACED: Limit = Limit::new("traced", Quota::token_bucket(10, MINUTE));
    ///
    /// let rule = Rule::new(&TRACED).sample(Portion::one_in(100));
    /// # drop(rule);
    /// ```
    pub fn sample(mut self, portion: Portion) -> Self {
        self.sample = portion;
        self
    }
}

/// Shadow and roll-out.
impl Rule {
    /// Decides and logs, but refuses nothing: shows what a limit would do before it is enforced.
    ///
    /// The log has the requests that would be refused. Handlers see how the limit stands if the
    /// layer [exposes](crate::RateLimitLayer::expose) it; clients do not. Tokens are taken and
    /// returned as if the limit were enforced.
    ///
    /// Give the limit a name of its own: limits with the same name share their buckets.
    ///
    /// A shadow rule is charged on its own, after the enforced rules have admitted the request, so
    /// it never changes what those decide. It does not wait in a
    /// [queue](crate::RateLimitLayer::queue). If its key is missing, its cost is too large or the
    /// store fails, the log says so and the request passes. In a store outside of the process, each
    /// shadow rule costs one more round trip.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::ClientIp;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule};
    ///
    /// const NOW: Limit = Limit::new("per-client", Quota::token_bucket(100, MINUTE));
    /// const PLANNED: Limit = Limit::new("stricter", Quota::token_bucket(20, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory()
    ///     .layer(Rule::new(&NOW).key(ClientIp::peer()))
    ///     .and(Rule::new(&PLANNED).key(ClientIp::peer()).shadow());
    /// # drop(layer);
    /// ```
    #[doc(alias("dry run", "dry_run", "report only"))]
    pub fn shadow(self) -> Self {
        self.enforce(Portion::NONE)
    }

    /// Enforces this limit on a portion of the keys, and is a [shadow](Self::shadow) for the
    /// others.
    ///
    /// Use it to roll a limit out step by step.
    ///
    /// A hash of the key decides ([`BucketId::sample_hash`]), so a key gets the same decision on
    /// every node and at any time, and raising the percentage only adds keys. As soon as the
    /// portion is above zero, all requests without a usable key are answered with 400, or as
    /// [`missing_key`](Self::missing_key) says. For a shadow they pass, and the log says how they
    /// would be answered.
    ///
    /// [`BucketId::sample_hash`]: crate::backend::BucketId::sample_hash
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::header;
    /// use tollgate::middleware::Portion;
    /// use tollgate::{Limit, MINUTE, Quota, Rule};
    ///
    /// const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(100, MINUTE));
    ///
    /// let rule = Rule::new(&PER_USER).key(header("x-user")).enforce(Portion::percent(10));
    /// # drop(rule);
    /// ```
    #[doc(alias = "rollout")]
    pub fn enforce(mut self, portion: Portion) -> Self {
        self.enforced = portion;
        self
    }
}

/// What the response does to the tokens.
impl Rule {
    /// Returns the tokens of a request if `predicate` returns true for its response.
    ///
    /// Use it to count failures only, or only work that was really done.
    ///
    /// All requests pay up front, so requests at the same time get no more than the limit: of 1,000
    /// wrong passwords at once, 5 are checked if the limit is 5. In exchange, a request may be
    /// refused although tokens of running requests will come back. Tokens that have refilled while
    /// the request ran are not returned a second time.
    ///
    /// The tokens come back once the inner service has responded. They stay taken if the service
    /// fails or panics, as the outcome is unknown then, or if the client disconnects before the
    /// response ([`refund_dropped`](crate::RateLimitLayer::refund_dropped) is for that). The header
    /// fields show how the limit stood when the request was admitted. A limit that is refunded is
    /// not [settled](crate::RateLimitLayer::settle) as well.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use http::{Request, Response, StatusCode};
    /// use tollgate::{HOUR, Limit, Quota, RateLimiter, Rule};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// const FAILURES: Limit = Limit::new("failures", Quota::token_bucket(5, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::in_memory();
    /// let failures = Rule::new(&FAILURES).refund_if(|response| response.is_success());
    /// let layer = limiter.layer(failures);
    /// let answer = service_fn(async |request: Request<StatusCode>| {
    ///     Ok::<_, Infallible>(Response::builder().status(request.into_body()).body(()).unwrap())
    /// });
    /// for (status, left) in [(200, 5), (404, 4), (204, 4)] {
    ///     let request = Request::new(StatusCode::from_u16(status)?);
    ///     layer.layer(answer).oneshot(request).await?;
    ///     assert_eq!(limiter.peek(&FAILURES).await?.remaining(), left);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("skipSuccessfulRequests", "skipFailedRequests", "requestWasSuccessful"))]
    pub fn refund_if(
        mut self,
        predicate: impl Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.refund_if = Some(Arc::new(predicate));
        self
    }

    /// Resets the bucket if `predicate` returns true for the response, as after a log-in that
    /// succeeds.
    ///
    /// The bucket is then as if it had never been used. Requests of this process that still run
    /// return nothing to it afterwards; in a store that other processes use, theirs may. Do not let
    /// a client choose when that happens, or use [`refund_if`](Self::refund_if). If both return
    /// true, the bucket is reset.
    pub fn reset_if(
        mut self,
        predicate: impl Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.reset_if = Some(Arc::new(predicate));
        self
    }
}

/// What follows on refusals.
impl Rule {
    /// Blocks a key for `time` once the limit has refused it so often within `within`.
    ///
    /// A client that goes on after it was refused is locked out. The 429 that completes the count and
    /// all during the block have the time of the block in `Retry-After`, and [`peek`] shows it.
    /// [`reset`] lifts the block. It is that of [`RateLimiter::block`]: afterwards a token bucket is
    /// empty, and has its first token a little later; a fixed window is closed until the end of the
    /// window.
    ///
    /// * The refusals of a key are counted from the first of them on, for `within`. Then the count
    ///   begins again, as it does with a block.
    /// * **A refusal during a block does not count**, or a client that keeps asking would never get
    ///   in again.
    /// * Only refusals by this limit count. Those by other rules, by a queue that is full, and
    ///   requests that are [too large](crate::RateLimitLayer::too_large) do not. A
    ///   [shadow](Self::shadow) refuses nothing, so it blocks nothing.
    /// * All processes on a store count together, in a bucket of the limit `NAME/refused`, which
    ///   must not be the name of another limit. In a store outside of the process, a refusal costs one
    ///   more round trip. While the store fails, nothing is counted and nothing blocked.
    /// * Refusals of a fixed window do not count while it is in debt, as it is in the window in which
    ///   a block ends.
    /// * **With [`refund_if`](Self::refund_if), requests that succeed are refused while others hold the
    ///   tokens**, until their responses give these back. So `refusals` should be well above the number of
    ///   requests that one key sends at once.
    ///
    /// Anybody who knows the key of another client can get it blocked. So do not block by a user name
    /// alone: add the client's address to the key, or a second way to log in.
    ///
    /// [`peek`]: crate::RateLimiter::peek
    /// [`reset`]: crate::RateLimiter::reset
    /// [`RateLimiter::block`]: crate::RateLimiter::block
    ///
    /// # Panics
    ///
    /// If `refusals`, `within` or `time` is zero, or these do not fit a [`Quota`](crate::Quota).
    ///
    /// # Examples
    ///
    /// Of the log-ins of a user from one address, five may fail within ten minutes. Twenty more tries
    /// block it for an hour:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use http::StatusCode;
    /// use tollgate::key::{ClientIp, header};
    /// use tollgate::{HOUR, Limit, Quota, RateLimiter, Rule};
    ///
    /// const TEN_MINUTES: Duration = Duration::from_secs(600);
    /// const FAILURES: Limit = Limit::new("failed-logins", Quota::token_bucket(5, TEN_MINUTES));
    ///
    /// let failures = Rule::new(&FAILURES)
    ///     .key((header("x-user"), ClientIp::peer()))
    ///     .refund_if(|response| response.status() != StatusCode::UNAUTHORIZED)
    ///     .block_after(20, TEN_MINUTES, HOUR);
    /// let layer = RateLimiter::in_memory().layer(failures);
    /// # drop(layer);
    /// ```
    #[doc(alias("lockout", "lock_out", "ban", "fail2ban", "blockDuration"))]
    #[track_caller]
    pub fn block_after(mut self, refusals: u64, within: Duration, time: Duration) -> Self {
        self.block_after = Some(Box::new(BlockAfter::new(refusals, within, time)));
        self
    }

    /// Makes each block that follows on another twice as long, up to `longest`.
    ///
    /// The time of [`block_after`](Self::block_after) is that of the first block: with an hour and up to
    /// a day, the blocks of a key are of 1, 2, 4, 8, 16, 24 and again 24 hours.
    ///
    /// * In four times `longest` without a block, one doubling is forgotten. So a key that goes on as
    ///   soon as each block ends is blocked for `longest`, and for half of it one time in four.
    /// * The doublings are in a bucket of the limit `NAME/blocks`, in the same store. It is a bucket of
    ///   its own: a [`reset`](crate::RateLimiter::reset) of the limit lifts a block and does not forget
    ///   it.
    ///
    /// # Panics
    ///
    /// If `block_after` was not called before, `longest` is not longer than its time, or four times
    /// `longest` does not fit a [`Quota`](crate::Quota).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tollgate::{DAY, HOUR, Limit, Quota, Rule};
    ///
    /// const TEN_MINUTES: Duration = Duration::from_secs(600);
    /// const FAILURES: Limit = Limit::new("failed-logins", Quota::token_bucket(5, TEN_MINUTES));
    ///
    /// let failures = Rule::new(&FAILURES).block_after(20, TEN_MINUTES, HOUR).block_up_to(DAY);
    /// # drop(failures);
    /// ```
    #[doc(alias("bantime.increment", "backoff", "escalate"))]
    #[track_caller]
    pub fn block_up_to(mut self, longest: Duration) -> Self {
        let Some(after) = self.block_after.take() else {
            panic!(
                "`block_up_to` needs a `block_after` before it, with the time of the first block"
            );
        };
        self.block_after = Some(Box::new(after.up_to(longest)));
        self
    }
}

/// Computes what a request costs.
pub(super) type RequestCost = Arc<dyn Fn(&Head<'_>) -> u64 + Send + Sync>;

/// Chooses the limit of a request; with `None`, the request is not limited.
pub(super) type Chooser = Arc<dyn Fn(&Head<'_>) -> Option<Arc<Limit>> + Send + Sync>;

impl Rule {
    pub(super) fn with_limit(limit: Arc<Limit>) -> Self {
        Self {
            limit,
            chooser: None,
            key: Arc::new(global()),
            is_key_set: false,
            is_key_replaced: false,
            cost: None,
            cost_with: None,
            missing_key: None,
            only: Vec::new(),
            sample: Portion::ALL,
            enforced: Portion::ALL,
            refund_if: None,
            reset_if: None,
            block_after: None,
        }
    }

    /// Whether it applies to all requests, is enforced on all keys, and does nothing after the decision.
    pub(super) const fn is_plain(&self) -> bool {
        let applies_to_all = self.only.is_empty() && self.sample.is_all();
        let is_done = !self.depends_on_response() && self.block_after.is_none();
        applies_to_all && self.enforced.is_all() && is_done
    }

    /// What each request costs; `None` if that depends on the request.
    pub(super) fn fixed_cost(&self) -> Option<u64> {
        self.cost_with.is_none().then(|| self.cost.unwrap_or(1))
    }

    pub(super) const fn is_enforced_on_some(&self) -> bool {
        !self.enforced.is_none()
    }

    /// Whether it may count a request while it is in flight, as a shadow for it. Of an enforced rule,
    /// that is known when the request is decided.
    pub(super) fn may_shadow_in_flight(&self) -> bool {
        let may = self.chooser.is_some() || self.limit.quota().is_in_flight();
        may && !self.enforced.is_all()
    }

    /// Whether the rule applies to this request. `draw` is called only if the rule samples
    /// requests.
    pub(super) fn applies_to(&self, head: &Head<'_>, draw: impl FnOnce() -> u64) -> bool {
        let all = self.sample.is_all();
        self.only.iter().all(|only| only(head)) && (all || self.sample.contains(draw()))
    }

    /// Whether the rule is enforced on this key. The answer is the same on every node and at any
    /// time.
    pub(super) fn enforces(&self, limit: &str, key: &Key) -> bool {
        self.enforced.is_all() || self.enforced.contains(BucketId::new(limit, key).sample_hash())
    }

    /// Whether the response can have an effect on the tokens.
    pub(super) const fn depends_on_response(&self) -> bool {
        self.refund_if.is_some() || self.reset_if.is_some()
    }

    /// What a request keeps by its response: nothing with a refund, and all tokens if neither predicate
    /// is true, unless the layer settles them.
    pub(super) fn effect(&self, response: &ResponseHead<'_>) -> Kept {
        let says =
            |predicate: &Option<ResponsePredicate>| predicate.as_ref().is_some_and(|p| p(response));
        if says(&self.reset_if) {
            return Kept::Reset;
        }
        if says(&self.refund_if) { Kept::Tokens(0) } else { Kept::Unknown }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rule = f.debug_struct("Rule");
        rule.field("limit", &self.limit.name())
            .field("quota", &format_args!("{}", self.limit.quota()))
            .field("chosen", &self.chooser.is_some())
            .field("missing_key", &self.missing_key);
        if !self.is_plain() {
            rule.field("only", &self.only.len())
                .field("sample", &format_args!("{}", self.sample))
                .field("enforced", &format_args!("{}", self.enforced))
                .field("refund_if", &self.refund_if.is_some())
                .field("reset_if", &self.reset_if.is_some())
                .field("block_after", &self.block_after);
        }
        rule.finish_non_exhaustive()
    }
}

pub(super) type RequestPredicate = Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>;

pub(super) type ResponsePredicate = Arc<dyn Fn(&ResponseHead<'_>) -> bool + Send + Sync>;

/// What happens to a request if its key [is missing](crate::key::KeyError::missing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingKey {
    /// The request is answered with this status.
    Reject(StatusCode),
    /// The request passes without being charged to this limit.
    Exempt,
    /// The request takes its tokens from one bucket for all requests without a key.
    Shared,
}

/// A limit that the function of [`Rule::limit_with`] returns, or an `Option` of one.
#[diagnostic::on_unimplemented(
    message = "`limit_with` cannot choose `{Self}`",
    note = "the closure returns a `Limit`, a `&'static Limit`, an `Arc<Limit>`, a clone of a \
            `ConfiguredLimit`, or an `Option` of one"
)]
pub trait IntoChosenLimit {
    /// Converts the value into a limit, or none.
    fn into_chosen_limit(self) -> Option<Arc<Limit>>;
}

impl IntoChosenLimit for Arc<Limit> {
    fn into_chosen_limit(self) -> Option<Self> {
        Some(self)
    }
}

impl IntoChosenLimit for &Arc<Limit> {
    fn into_chosen_limit(self) -> Option<Arc<Limit>> {
        Some(Arc::clone(self))
    }
}

impl IntoChosenLimit for Limit {
    fn into_chosen_limit(self) -> Option<Arc<Self>> {
        Some(Arc::new(self))
    }
}

impl IntoChosenLimit for &Limit {
    fn into_chosen_limit(self) -> Option<Arc<Limit>> {
        self.clone().into_chosen_limit()
    }
}

/// With `None`, the request is not limited.
impl<L: IntoChosenLimit> IntoChosenLimit for Option<L> {
    fn into_chosen_limit(self) -> Option<Arc<Limit>> {
        self?.into_chosen_limit()
    }
}

/// Like [`Rule::new`].
impl From<Limit> for Rule {
    fn from(limit: Limit) -> Self {
        Self::new(limit)
    }
}

/// Like [`Rule::new`].
impl From<&Limit> for Rule {
    fn from(limit: &Limit) -> Self {
        Self::new(limit)
    }
}

/// Like [`Rule::new`].
impl From<&Arc<Limit>> for Rule {
    fn from(limit: &Arc<Limit>) -> Self {
        Self::with_limit(Arc::clone(limit))
    }
}

/// A [`Rule`], or a [`Limit`](crate::Limit), which becomes a rule without further settings.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a rule of a layer",
    note = "a layer takes a `&Limit` or a `Rule`, and others by `and`: \
            `limiter.layer(&A).and(Rule::new(&B).key(..))`"
)]
pub trait IntoRule {
    /// Converts the value into a rule.
    fn into_rule(self) -> Rule;
}

#[diagnostic::do_not_recommend]
impl<T: Into<Rule>> IntoRule for T {
    fn into_rule(self) -> Rule {
        self.into()
    }
}

/// The tokens that each request takes: an integer of any type.
///
/// One below zero, or above what a `u64` holds, is more than any limit can grant.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a cost in tokens",
    note = "a cost is an integer; give a closure to `cost_with`: `.cost_with(|head| ..)`"
)]
pub trait IntoCost {
    /// Converts the value into tokens.
    fn into_cost(self) -> u64;
}

#[diagnostic::do_not_recommend]
impl<T: TryInto<u64>> IntoCost for T {
    fn into_cost(self) -> u64 {
        tokens_of(self)
    }
}
