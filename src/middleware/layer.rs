//! The layer: holds the rules and the settings, and makes services.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use tower_layer::Layer;

use super::call_response::ResponseStyle;
use super::on_refusal::OnRefusal;
use super::plan::Plan;
use super::queue::Queue;
use super::rule::Rule;
use super::service::RateLimit;
use super::settings::{LayerSettings, ReadOn, Rules};
use super::{IntoChosenLimit, IntoCost, IntoRule, Portion, ResponseHead};
use crate::backend::Key;
use crate::fields::{Dialect, Dialects, ForeignFields, PartitionKey, RetryAfter};
use crate::key::{Head, IntoExtracted, KeyExtractor};
use crate::limiter::OnFailure;
use crate::limiter::RateLimiter;

/// Limits the requests to a service by one rule or by several; made by [`RateLimiter::layer`].
///
/// What concerns one limit is set on its [`Rule`], and what concerns all of them on the layer.
/// While the layer has one rule, it has the methods of the rule as well. With several, its type is
/// `RateLimitLayer<Vec<Rule>>`.
///
/// See the [module docs](super) for examples.
#[doc(alias("GovernorLayer", "GovernorConfig", "GovernorConfigBuilder", "Governor"))]
#[doc(alias("throttle", "rateLimit", "429"))]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct RateLimitLayer<R = Rule> {
    plan: Arc<Plan>,
    rules: PhantomData<fn() -> R>,
}

// Written by hand: a derived `Clone` would require `R: Clone`.
impl<R> Clone for RateLimitLayer<R> {
    fn clone(&self) -> Self {
        Self { plan: Arc::clone(&self.plan), rules: PhantomData }
    }
}

/// Marks a [`RateLimitLayer`] that has one rule, so that `key`, `cost` and the like can only mean that
/// rule's.
#[diagnostic::on_unimplemented(
    message = "this layer has several rules, so it is not clear which of them this is for",
    note = "set it on the rule: `limiter.layer(Rule::new(&A).key(..)).and(Rule::new(&B).cost(..))`"
)]
pub trait IsOne {}

impl IsOne for Rule {}

impl RateLimiter {
    /// Makes a tower layer of a rule or of a limit.
    ///
    /// A limit without further settings takes one token for each request, from one bucket that all
    /// requests share ([`global`](crate::key::global)).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::ClientIp;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory().layer(&PER_CLIENT).key(ClientIp::peer());
    /// # drop(layer);
    /// ```
    pub fn layer(&self, rule: impl IntoRule) -> RateLimitLayer {
        let settings = LayerSettings {
            style: ResponseStyle::of(&self.state.speech),
            on_failure: self.state.on_failure,
            ..LayerSettings::default()
        };
        let rules = Rules { first: rule.into_rule(), rest: Vec::new(), settings };
        RateLimitLayer::new(self.clone(), &rules)
    }
}

/// Hands the options of the only rule of a layer on to it: the name of each, what it takes, and what
/// it sets.
macro_rules! options_of_one_rule {
    ($($name:ident$(<$generic:ident: $bound:path>)?($($value:ident: $type:ty),*), $does:literal;)*) => {
        /// For a layer of one rule: short forms of the methods of [`Rule`].
        impl<R> RateLimitLayer<R> {$(
            #[doc = concat!($does, ", like [`Rule::", stringify!($name), "`].")]
            pub fn $name$(<$generic: $bound + 'static>)?(self $(, $value: $type)*) -> Self
            where
                R: IsOne,
            {
                self.with_rules(|rules| rules.first = rules.first.clone().$name($($value),*))
            }
        )*}
    };
}

options_of_one_rule! {
    key(extractor: impl KeyExtractor), "Sets the extractor of the key";
    key_with<K: IntoExtracted>(key: impl Fn(&Head<'_>) -> K + Send + Sync + 'static),
        "Sets a function that computes the key from the head of a request";
    cost(tokens: impl IntoCost), "Sets the tokens that each request takes, 1 by default";
    cost_with(cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static),
        "Sets a function that computes the cost from the head of a request";
    limit_with<L: IntoChosenLimit>(choose: impl Fn(&Head<'_>) -> L + Send + Sync + 'static),
        "Sets a function that chooses the limit of a request";
    missing_key(status: StatusCode), "Sets the status of the answer to a request without a key";
    missing_key_exempt(), "Lets a request without a key pass without being charged";
    missing_key_shared(), "Takes the tokens of requests without a key from one bucket";
    only_methods(methods: impl IntoIterator<Item = Method>),
        "Limits only requests with one of these methods";
    only_if(predicate: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static),
        "Limits only requests for which `predicate` returns true";
    sample(portion: Portion), "Limits a random sample of the requests";
    shadow(), "Decides and logs, but refuses nothing";
    enforce(portion: Portion), "Enforces the limit on a portion of the keys";
    refund_if(predicate: impl Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static),
        "Returns the tokens of a request by its response";
    reset_if(predicate: impl Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static),
        "Resets the bucket by the response";
    block_after(refusals: u64, within: Duration, time: Duration),
        "Blocks a key for a time after some refusals";
    block_up_to(longest: Duration), "Makes each block that follows on another twice as long";
}

/// More rules.
impl<R> RateLimitLayer<R> {
    /// Adds a rule: each request takes its tokens from all limits or from none.
    ///
    /// The store decides about all of them in one step and one round trip.
    ///
    /// A request that is exempt from some of the rules is limited by the others. If one rule
    /// rejects the request because its key is missing, the request takes no tokens from any limit;
    /// [`missing_key`](Rule::missing_key) sets what such a rule does. The refusal names each limit
    /// that refused, and `Retry-After` is the longest of their waits.
    ///
    /// # Panics
    ///
    /// If the store cannot [take from several limits](crate::backend::Backend::charges_several) in
    /// one step: each request would fail. Put a layer for each limit around the service instead.
    /// A request then pays the outer limits even if an inner one refuses it. Rules that are
    /// [shadows](Rule::shadow) for all requests do not count, as they are charged by themselves.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{ClientIp, header};
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule, SECOND};
    ///
    /// const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, SECOND));
    /// const PER_TENANT: Limit = Limit::new("per-tenant", Quota::token_bucket(1_000, MINUTE));
    /// const OVERALL: Limit = Limit::new("overall", Quota::token_bucket(50_000, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory()
    ///     .layer(Rule::new(&PER_CLIENT).key(ClientIp::peer()))
    ///     .and(Rule::new(&PER_TENANT).key(header("x-tenant")))
    ///     .and(&OVERALL);
    /// # drop(layer);
    /// ```
    ///
    /// A function that returns such a layer says `-> RateLimitLayer<Vec<Rule>>`. It has no `key`, as that
    /// could mean any of its rules. This does not compile:
    ///
    /// ```compile_fail,E0277
    /// # use tollgate::key::{ClientIp, header};
    /// # use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    /// # const A: Limit = Limit::new("a", Quota::token_bucket(10, MINUTE));
    /// # const B: Limit = Limit::new("b", Quota::token_bucket(10, MINUTE));
    /// let layer = RateLimiter::in_memory().layer(&A).and(&B).key(ClientIp::peer());
    /// ```
    #[track_caller]
    pub fn and(self, rule: impl IntoRule) -> RateLimitLayer<Vec<Rule>> {
        let (limiter, mut rules) = (self.plan.limiter.clone(), self.plan.rules());
        rules.rest.push(rule.into_rule());
        if let Some(problem) = one_at_a_time(&limiter, &rules) {
            panic!("{problem}");
        }
        RateLimitLayer::new(limiter, &rules)
    }
}

/// Waiting instead of refusals.
impl<R> RateLimitLayer<R> {
    /// Lets requests that are short of tokens wait for their turn, first in, first out.
    ///
    /// A request waits in its own future, without a task or a thread. When its turn comes, the
    /// layer makes the inner service ready and calls it. `Server-Timing` in the response shows how
    /// long the request waited. If the client disconnects, its slot goes to the next waiter.
    ///
    /// A request is refused at once if the queue is full, or if it would have to wait longer than the
    /// queue allows. If the layer can give tokens back, that wait is an estimate, and a request
    /// [stays](Queue::stay) in line for the longest wait before it is refused. Its `Retry-After` is the
    /// time after which it would not have to wait at all.
    ///
    /// The quota's [`max_reserved`](crate::Quota::max_reserved) bounds the tokens that waiters may
    /// have reserved. Call [`drain`](RateLimiter::drain) when the server shuts down.
    ///
    /// # Panics
    ///
    /// The future of the response panics if it has to wait outside of a tokio runtime, or in a
    /// runtime without a timer.
    #[doc(alias("delay", "wait", "until_ready", "slowDown"))]
    pub fn queue(self, queue: impl Into<Queue>) -> Self {
        let queue = queue.into();
        self.with(|settings| settings.queue = Some(queue))
    }

    /// Adds a random time of at most `spread` to each wait in the queue and to each `Retry-After`.
    ///
    /// Clients that were refused at the same time then do not come back at the same time. See
    /// [`LimitCall::jitter`](crate::limiter::LimitCall::jitter) for the waits in the queue.
    pub fn jitter(self, spread: Duration) -> Self {
        self.with(|settings| settings.jitter = spread)
    }
}

/// What responses show, and what happens while the store fails.
impl<R> RateLimitLayer<R> {
    /// Sets the header fields that show clients how their limits stand; draft 11 by default.
    ///
    /// The argument is one [`Dialect`](crate::fields::Dialect), or several in an array. The page of
    /// `Dialect` shows what each sends.
    ///
    /// # Panics
    ///
    /// If both draft 11 and draft 7 are given: their fields have the same names and different
    /// contents.
    #[doc(alias("headers", "use_headers", "standardHeaders", "legacyHeaders", "x-ratelimit"))]
    #[track_caller]
    pub fn dialects(self, dialects: impl IntoIterator<Item = Dialect>) -> Self {
        let dialects = Dialects::new(dialects);
        self.with_style(|style| style.dialects = dialects)
    }

    /// Lets the fields of this layer replace those of the same names that the inner service sends; by
    /// default, both are sent.
    ///
    /// The upstream of a gateway may send limits of its own, which are not those of its clients. By
    /// default, the limits of this layer come first in lists, and those of others follow, each name
    /// once. What is not a list of the same draft is dropped, as no parser reads both. In a field with
    /// room for one limit, and of two limits of one name, that of this layer stands, except in a
    /// refusal of the inner service.
    ///
    /// Nested layers of this crate show all of their limits, whatever the upstream sends, if only the
    /// innermost one replaces or [removes](Self::remove_foreign_fields): it alone sees nothing but
    /// fields of others. Fields that a handler sends by a [`Snapshot`](crate::Snapshot) are in the
    /// response already, too.
    pub fn replace_foreign_fields(self) -> Self {
        self.with(|settings| settings.foreign_fields = ForeignFields::Replace)
    }

    /// Removes all fields about limits that the inner service sends, of whatever dialect: `RateLimit`,
    /// and all whose names begin with `RateLimit-`, `X-RateLimit-` or `X-Rate-Limit-`. `Retry-After`
    /// stays. See [`replace_foreign_fields`](Self::replace_foreign_fields).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
    ///
    /// let layer = RateLimiter::in_memory().layer(&API).remove_foreign_fields();
    /// # drop(layer);
    /// ```
    pub fn remove_foreign_fields(self) -> Self {
        self.with(|settings| settings.foreign_fields = ForeignFields::Remove)
    }

    /// Sends `Retry-After` (RFC 9110, section 10.2.3) as a date, such as `Tue, 14 Nov 2023 22:15:24
    /// GMT`, rounded up to the second; by default, it is whole seconds, which all clients can read.
    ///
    /// Use it for clients that compare it with the `Date` of the response, or that have the right
    /// time. The date is computed from the clock of the store, which has to show the time of day.
    #[doc(alias("retry_after", "retry-after", "Retry-After"))]
    pub fn retry_after_date(self) -> Self {
        self.with_style(|style| style.retry_after = RetryAfter::Date)
    }

    /// Adds the parameter `pk` of draft 11 (section 4.1.3), which shows the partition of a quota; not
    /// sent by default.
    ///
    /// A client that acts for several users, or requests several resources, can tell their quotas
    /// apart by it.
    ///
    /// The value is not the [`Key`] itself, which may be an address or the name of a user. It is the
    /// first 12 bytes of a hash of the key with this secret (SipHash-2-4, 128 bits), so without the
    /// secret, the key cannot be found by trying all candidates. Processes with the same secret show
    /// the same partitions. A limit with one bucket for all requests has no `pk`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter, key};
    ///
    /// const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(10, MINUTE));
    ///
    /// // In production, from the configuration, the same for all processes.
    /// let secret = [7; 16];
    /// let layer = RateLimiter::in_memory()
    ///     .layer(&PER_USER)
    ///     .key(key::header("x-user"))
    ///     .partition_key(secret);
    /// # drop(layer);
    /// ```
    pub fn partition_key(self, secret: [u8; 16]) -> Self {
        self.with(|settings| settings.partition_key = Some(PartitionKey::keyed(secret)))
    }

    /// Adds the parameter `pk` as [`partition_key`](Self::partition_key) does, with a random secret of
    /// this process.
    ///
    /// After a restart, or in another process behind the same address, the same key has another
    /// `pk`. To a client that remembers partitions it then looks like a new one; nothing else
    /// depends on it.
    pub fn random_partition_key(self) -> Self {
        self.with(|settings| settings.partition_key = Some(PartitionKey::random()))
    }

    /// Adds the parameter `pk` as [`partition_key`](Self::partition_key) does, with the bytes that
    /// this function computes from a key; if they are empty, the limit has no `pk`.
    ///
    /// The draft advises to document how they are computed, so that clients can compute them as
    /// well, and to put nothing sensitive into them, since the response shows them.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    /// # const API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
    /// // The last part of keys such as `("tenant", 17)`, which is not secret.
    /// let layer = RateLimiter::in_memory().layer(&API).partition_key_with(|key| {
    ///     key.to_string().rsplit('|').next().unwrap_or_default().into()
    /// });
    /// # drop(layer);
    /// ```
    pub fn partition_key_with(
        self,
        encode: impl Fn(&Key) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.partition_key = Some(PartitionKey::from_fn(encode)))
    }

    /// Sets the response to requests that do not run; problem details by default.
    ///
    /// It words the refusals of this layer. The error of a call that a handler returns is worded by
    /// the limiter of the call: set [`RateLimiter::on_refusal`] for both.
    #[doc(alias("error_handler", "handler", "message", "statusCode"))]
    pub fn on_refusal(self, on_refusal: OnRefusal) -> Self {
        self.with_style(|style| style.on_refusal = on_refusal)
    }

    /// Sets the status of requests that cost more than a limit can ever grant; 413 by default.
    ///
    /// See [`RateLimiter::too_large`], which is for handlers as well.
    pub fn too_large(self, status: StatusCode) -> Self {
        self.with_style(|style| style.too_large = Some(status))
    }

    /// Sets what happens to requests while the store fails; they are answered with 503 by default. A
    /// [limit](crate::Limit::on_failure) may say otherwise for itself.
    #[doc(alias("fail_open", "passOnStoreError"))]
    pub fn on_failure(self, on_failure: OnFailure) -> Self {
        self.with(|settings| settings.on_failure = on_failure)
    }
}

/// Uploads that are answered early.
impl<R> RateLimitLayer<R> {
    /// Sets how far the server reads on what a client still sends after an early answer: so many bytes
    /// of a request, for so long, and of so many requests at once. By default, 16 MiB, 10 seconds and
    /// 100 requests of each layer; a zero switches it off.
    ///
    /// Most clients write their whole request before they read. If nobody reads it, a server of HTTP/1.1
    /// closes the connection, and such a client sees a broken pipe in place of its 429. The response does
    /// not wait for the rest, and what is read is thrown away at once.
    ///
    /// Beyond these bounds, the connection is closed. A request that announces more bytes is not read
    /// on at all, nor one over HTTP/2, with `Expect: 100-continue`, or to HEAD. It concerns the bodies
    /// of axum: with another server, put the layer around a service of `Request<axum::body::Body>`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const UPLOADS: Limit = Limit::new("uploads", Quota::token_bucket(10, MINUTE));
    ///
    /// // Videos of up to 1 GB, of at most 20 clients at once.
    /// let layer = RateLimiter::in_memory()
    ///     .layer(&UPLOADS)
    ///     .read_on(1 << 30, Duration::from_secs(60), 20);
    /// # drop(layer);
    /// ```
    #[doc(alias("lingering_close", "broken pipe", "connection reset"))]
    pub fn read_on(self, bytes: u64, time: Duration, at_once: usize) -> Self {
        self.with(|settings| settings.read_on = ReadOn { bytes, time, at_once })
    }
}

/// Switching off.
impl<R> RateLimitLayer<R> {
    /// Switches the layer off if `enabled` is false: it lets all requests through, counts nothing
    /// and adds no header fields.
    ///
    /// Its services have the same types either way, so a configuration can decide. See
    /// [`RateLimiter::enabled`] for a whole limiter.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
    ///
    /// let is_limited = false; // from the configuration
    /// let layer = RateLimiter::in_memory().layer(&API).enabled(is_limited);
    /// # drop(layer);
    /// ```
    #[doc(alias("disable", "skip", "option_layer"))]
    pub fn enabled(self, enabled: bool) -> Self {
        Self::new(self.plan.limiter.clone().enabled(enabled), &self.plan.rules())
    }
}

/// Settling, clients that disconnect, and what handlers can see.
impl<R> RateLimitLayer<R> {
    /// Settles each request at its actual cost, when its work is done.
    ///
    /// The actual cost is what the handler counted with the [`Meter`](super::Meter) of the request,
    /// or the [`ActualCost`](super::ActualCost) in the extensions of the response. Tokens that the
    /// request took in excess are returned. Tokens that it is short of are taken, into debt if need
    /// be.
    ///
    /// With several rules, only those with an explicit [`cost`](crate::Rule::cost) are settled; if none
    /// has one, all are. So set a cost on the limit that counts tokens, and none on a limit that
    /// counts requests.
    ///
    /// In stores that other processes use as well, returned tokens may serve a new request before
    /// requests that wait, as those hold slots at fixed instants. The header fields show how the
    /// limit stands after the settlement, if the cost is known when the response is sent.
    ///
    /// If the client disconnects before there is a response, or the service fails or panics, the
    /// request is settled at what its handler has counted so far. If the handler has not taken the
    /// meter, the tokens stay taken, unless the response has an `ActualCost`. Once there is a
    /// response, the settlement completes even if the client disconnects.
    ///
    /// Every request gets a meter, at the price of a few small allocations.
    pub fn settle(self) -> Self {
        self.with(|settings| settings.settles = true)
    }

    /// Returns all tokens of a request if its future is dropped before there is a response.
    ///
    /// That happens if the client disconnects, or if a timeout outside of this layer expires.
    ///
    /// The request then costs nothing, in all rules and whatever its [`Meter`](super::Meter) has
    /// counted. Without this method, its tokens stay taken, or are [settled](Self::settle) at what
    /// was counted. Tokens that have refilled in the meantime are not returned a second time, as in
    /// [`Rule::refund_if`](crate::Rule::refund_if). A request does not count as dropped if its
    /// service fails or panics, or if its client disconnects in the middle of the response.
    ///
    /// **Clients can use this to get work done for free**: a client that always disconnects shortly
    /// before the response is only limited in how many requests it runs at the same time. Use it if
    /// dropped work costs next to nothing, or if clients are trusted.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::future::pending;
    ///
    /// use http::{Request, Response};
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    /// use tower::{Layer, Service, service_fn};
    ///
    /// const CALLS: Limit = Limit::new("calls", Quota::token_bucket(10, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// let slow = service_fn(|_: Request<()>| pending::<Result<Response<()>, Infallible>>());
    /// let mut service = limiter.layer(&CALLS).refund_dropped().layer(slow);
    /// let response = service.call(Request::new(()));
    /// assert_eq!(limiter.peek(&CALLS).await?.remaining(), 9);
    /// drop(response);
    /// assert_eq!(limiter.peek(&CALLS).await?.remaining(), 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn refund_dropped(self) -> Self {
        self.with(|settings| settings.refunds_dropped = true)
    }

    /// Puts an [`Admission`](super::Admission) into the extensions of each request, for its
    /// handler.
    ///
    /// It shows how the limits stand. In axum, it is an extractor.
    ///
    /// Only the layers that call this method pay for it. If several nested layers do, the handler
    /// sees the limits of all of them.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tollgate::middleware::Admission;
    /// use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimiter};
    ///
    /// const CALLS: Limit = Limit::new("calls", Quota::token_bucket(10, MINUTE));
    ///
    /// async fn left(admission: Admission) -> String {
    ///     format!("{:?} calls left", admission.remaining())
    /// }
    ///
    /// let layer = RateLimiter::in_memory().layer(&CALLS).expose();
    /// let app: Router = Router::new().route("/", get(left).rate_limit(layer));
    /// # drop(app);
    /// ```
    pub fn expose(self) -> Self {
        self.with(|settings| settings.exposes = true)
    }
}

impl<R> RateLimitLayer<R> {
    fn new(limiter: RateLimiter, rules: &Rules) -> Self {
        Self { plan: Arc::new(Plan::new(limiter, rules)), rules: PhantomData }
    }

    #[cfg(feature = "axum")]
    pub(crate) const fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    pub(super) fn with(self, change: impl FnOnce(&mut LayerSettings)) -> Self {
        self.with_rules(|rules| change(&mut rules.settings))
    }

    fn with_style(self, change: impl FnOnce(&mut ResponseStyle)) -> Self {
        self.with(|settings| change(&mut settings.style))
    }

    fn with_rules(self, change: impl FnOnce(&mut Rules)) -> Self {
        let mut rules = self.plan.rules();
        change(&mut rules);
        Self::new(self.plan.limiter.clone(), &rules)
    }
}

/// What is wrong with several rules for a store that charges one limit at a time, and the way out.
fn one_at_a_time(limiter: &RateLimiter, rules: &Rules) -> Option<String> {
    if limiter.state.backend.charges_several() {
        return None;
    }
    let enforced = rules.iter().filter(|rule| rule.is_enforced_on_some());
    let names: Vec<_> = enforced.map(|rule| format!("`{}`", rule.limit.name())).collect();
    let several = names.len() > 1;
    several.then(|| {
        format!(
            "the store of this limiter cannot charge {} in one step, so each request would fail (use a \
             layer for each limit, or a store that can; `Optimistic` needs `SwapStore::swap_all` and \
             `SWAPS_SEVERAL`)",
            names.join(" and ")
        )
    })
}

/// A layer of one rule can be used where a layer of several rules is expected.
impl From<RateLimitLayer> for RateLimitLayer<Vec<Rule>> {
    fn from(layer: RateLimitLayer) -> Self {
        Self { plan: layer.plan, rules: PhantomData }
    }
}

/// A [`RateLimitLayer`] of one rule or of several.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layer of limits",
    note = "make one of a limit or a rule, by value: `.rate_limit(limiter.layer(rule))`"
)]
pub trait IntoLayer {
    /// Converts the value into a layer of any number of rules.
    fn into_layer(self) -> RateLimitLayer<Vec<Rule>>;
}

#[diagnostic::do_not_recommend]
impl<T: Into<RateLimitLayer<Vec<Rule>>>> IntoLayer for T {
    fn into_layer(self) -> RateLimitLayer<Vec<Rule>> {
        self.into()
    }
}

impl<S, R> Layer<S> for RateLimitLayer<R> {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        self.plan.check_setup();
        RateLimit::new(inner, Arc::clone(&self.plan))
    }
}

impl<R> fmt::Debug for RateLimitLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimitLayer").field(&self.plan.rules()).finish()
    }
}
