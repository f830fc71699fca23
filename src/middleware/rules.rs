//! The rules of a layer: a request is held to all of them at once.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use super::after::After;
use super::log::Log;
use super::on_refusal::OnRefusal;
use super::queue::{Queue, Seats};
use super::reserve::Booked;
use super::rule::{ByRule, Choice, Rule, own};
use super::special::Special;
use super::tab::Tab;
use super::tell;
use super::watch::Watch;
use crate::algebra::Verdict;
#[cfg(feature = "memory")]
use crate::backend::Reading;
use crate::backend::{Answer, Applied, BackendError};
use crate::fields::{Dialects, FieldTemplate, PartitionKey, PolicyText, RetryAfter};
use crate::key::{Head, Key};
use crate::limiter::{Ask, Limit, RateLimiter, Wish, ask, complete};

/// What becomes of requests while the store cannot answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// They are answered with 503: nothing gets through unseen.
    #[default]
    Close,
    /// They go on, held to no limit.
    Open,
}

#[derive(Clone)]
pub(super) struct Rules {
    pub(super) limiter: RateLimiter,
    first: Rule,
    rest: Vec<Rule>,
    pub(super) telling: Telling,
    pub(super) on_failure: OnFailure,
    pub(super) queue: Option<Queue>,
    pub(super) seats: Seats,
    pub(super) jitter: Duration,
    pub(super) settles: bool,
    /// Whether handlers see what was decided.
    pub(super) exposes: bool,
    /// Whether there is one rule of which nothing special is said.
    is_plain: bool,
    /// Whether it matters after the decision what a request has taken.
    pub(super) keeps_tabs: bool,
    pub(super) log: Log,
    /// What is told in the same way to every request.
    ready: Option<Arc<FieldTemplate>>,
    /// How many rules that is of.
    tells_of: usize,
}

/// How clients are told.
#[derive(Clone, Default)]
pub(super) struct Telling {
    pub(super) dialects: Dialects,
    pub(super) retry_after: RetryAfter,
    pub(super) partition_key: Option<PartitionKey>,
    pub(super) on_refusal: OnRefusal,
}

/// What the rules say before the store has answered, or when it has.
pub(super) enum Asked {
    /// The store has answered, or did not have to be asked.
    Ruled(Ruling),
    /// It will answer.
    Later(Later),
}

pub(super) type Later = Pin<Box<dyn Future<Output = Ruling> + Send>>;

/// What becomes of a request.
pub(super) enum Ruling {
    /// It goes on.
    Run(After),
    /// It waits for its turn, and goes on then.
    Wait(Box<Booked>),
    /// It is answered.
    Stop(Response<Bytes>),
    /// It is answered by whoever has its head.
    Untold(Untold),
}

pub(super) type Untold = Box<dyn FnOnce(&Head<'_>) -> Response<Bytes> + Send>;

impl Ruling {
    /// What is kept of a request that goes on.
    pub(super) fn tab(&self) -> Option<&Tab> {
        match self {
            Self::Run(after) => after.tab(),
            Self::Wait(booked) => booked.tab.as_deref(),
            Self::Stop(_) | Self::Untold(_) => None,
        }
    }
}

/// How a refusal is told.
#[derive(Clone, Copy)]
pub(super) struct Manner<'h> {
    pub(super) status: StatusCode,
    /// What makes the wait longer.
    pub(super) jitter: Duration,
    /// The head of the request; none if it is elsewhere by then.
    pub(super) head: Option<&'h Head<'h>>,
}

impl Manner<'_> {
    /// For answers that come later.
    pub(super) const fn without_head(self) -> Manner<'static> {
        Manner { status: self.status, jitter: self.jitter, head: None }
    }
}

impl Rules {
    pub(super) fn new(limiter: RateLimiter, limit: Limit) -> Self {
        let mut rules = Self {
            limiter,
            first: Rule::new(limit),
            rest: Vec::new(),
            telling: Telling::default(),
            on_failure: OnFailure::default(),
            queue: None,
            seats: Seats::default(),
            jitter: Duration::ZERO,
            settles: false,
            exposes: false,
            is_plain: true,
            keeps_tabs: false,
            log: Log::default(),
            ready: None,
            tells_of: 1,
        };
        rules.changed();
        rules
    }

    pub(super) fn and(&mut self, limit: Limit) {
        self.rest.push(Rule::new(limit));
    }

    /// The rule that was named last.
    pub(super) fn last(&mut self) -> &mut Rule {
        self.rest.last_mut().unwrap_or(&mut self.first)
    }

    /// Other rules than those they were made from have mistakes and waiters of their own.
    pub(super) fn changed(&mut self) {
        self.log = Log::default();
        self.seats = Seats::default();
        for rule in self.rest.iter_mut().chain([&mut self.first]) {
            rule.log = Log::default();
            rule.watch = Watch::default();
        }
        let waits = |rule: &Rule| rule.special().is_some_and(Special::waits);
        let is_special = self.first.special().is_some() || self.exposes;
        self.is_plain = self.rest.is_empty() && !is_special;
        self.keeps_tabs = self.settles || self.exposes || self.iter().any(waits);
        let differs =
            self.iter().any(|rule| rule.choose.is_some()) || self.telling.partition_key.is_some();
        let labels = self.told().map(|rule| &rule.label);
        let ready = (!differs).then(|| Arc::new(FieldTemplate::new(self.dialects(), labels)));
        self.tells_of = self.told().count();
        self.ready = ready;
    }

    /// The first rule that clients may be told of; mostly the only one.
    #[inline]
    pub(super) fn first_told(&self) -> &Rule {
        self.told().next().unwrap_or(&self.first)
    }

    /// The limit of that rule, which stands for all where one has to be named.
    pub(super) fn limit(&self) -> &Limit {
        self.first_told().limit()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Rule> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    pub(super) fn rule_at(&self, position: usize) -> Option<&Rule> {
        match position.checked_sub(1) {
            None => Some(&self.first),
            Some(rest) => self.rest.get(rest),
        }
    }

    /// Those rules that clients may be told of.
    fn told(&self) -> impl Iterator<Item = &Rule> {
        self.iter().filter(|rule| rule.is_enforced_on_some())
    }

    /// Asks the store about a request.
    #[inline]
    pub(super) fn ask(self: &Arc<Self>, head: &Head<'_>) -> Asked {
        if !self.is_plain {
            return self.ask_all(head);
        }
        // Most layers have one rule, and need no list of what is asked.
        match self.first.ask(head, 0) {
            Ok(Some(ask)) => self.put(head, &mut [ask]),
            Ok(None) => Asked::Ruled(Ruling::Run(After::default())),
            Err(status) => Asked::Ruled(Ruling::Stop(self.failure(status, head))),
        }
    }

    #[inline]
    pub(super) fn put(self: &Arc<Self>, head: &Head<'_>, asks: &mut [Ask<Choice<'_>>]) -> Asked {
        match &self.queue {
            None => self.take(head, asks),
            Some(queue) => self.reserve(head, queue, asks),
        }
    }

    #[inline]
    fn take(self: &Arc<Self>, head: &Head<'_>, asks: &mut [Ask<Choice<'_>>]) -> Asked {
        let jitter = self.limiter.random().up_to(self.jitter);
        let manner = Manner { status: StatusCode::TOO_MANY_REQUESTS, jitter, head: Some(head) };
        // Mostly one bucket of this process answers, and nothing is to be told or done afterwards.
        #[cfg(feature = "memory")]
        if let [ask] = &*asks
            && let Some(memory) = self.limiter.memory()
            && !ask.limit().is_in_shards()
        {
            let charge = match ask.charge(Wish::Take, Wish::Take) {
                Ok(charge) => charge,
                Err(error) => return Asked::Ruled(Ruling::Stop(self.too_large(&error, head))),
            };
            let (now, reading) = memory.charge(&charge);
            if self.passes(&reading) {
                return Asked::Ruled(Ruling::Run(After::default()));
            }
            // Nobody has to hear that this store answers again: it always does.
            return Asked::Ruled(match self.rule(asks, &Applied::one(now, reading), manner) {
                Ok(ruling) => ruling,
                Err(error) => self.blind(ask.limit(), &error),
            });
        }
        match ask(&self.limiter, asks, Wish::Take, Wish::Take) {
            Ok(Answer::Ready(answer)) => {
                let answer = answer.and_then(|applied| complete(asks, applied));
                let ruling = answer.and_then(|applied| self.rule(asks, &applied, manner));
                Asked::Ruled(self.or_blind(asks.first(), ruling))
            }
            Ok(Answer::Pending(answer)) => {
                let (rules, manner) = (Arc::clone(self), manner.without_head());
                let asks: Vec<_> = asks.iter().map(own).collect();
                Asked::Later(Box::pin(async move {
                    let answer = answer.await.and_then(|applied| complete(&asks, applied));
                    let ruling = answer.and_then(|applied| rules.rule(&asks, &applied, manner));
                    rules.or_blind(asks.first(), ruling)
                }))
            }
            Err(error) => Asked::Ruled(Ruling::Stop(self.too_large(&error, head))),
        }
    }

    /// Whether a request goes on and that is all.
    #[cfg(feature = "memory")]
    #[inline]
    fn passes(&self, reading: &Reading) -> bool {
        reading.verdict() == Verdict::Admitted && !self.tells() && !self.keeps_tabs
    }

    /// Reads the store's answer.
    #[inline]
    pub(super) fn rule<L: ByRule>(
        self: &Arc<Self>,
        asks: &[Ask<L>],
        applied: &Applied,
        manner: Manner<'_>,
    ) -> Result<Ruling, BackendError> {
        match applied.verdict() {
            Verdict::Refused => Ok(self.refuse(asks, applied, manner)),
            Verdict::Admitted => {
                let told = self.tells().then(|| tell::told(self, asks, applied));
                Ok(Ruling::Run(After::new(told, None, self.tab(asks, applied))))
            }
            // Not asked for, or not said where: not for now in any case.
            Verdict::Reserved => Err(BackendError::incomplete()),
        }
    }

    pub(super) const fn dialects(&self) -> Dialects {
        self.telling.dialects
    }

    /// Whether any field tells clients about their limits.
    #[inline]
    pub(super) fn tells(&self) -> bool {
        !self.dialects().is_none()
    }

    /// What is ready, for requests that are exempt from nothing.
    #[inline]
    pub(super) fn ready_for<L>(&self, asks: &[Ask<L>]) -> Option<&Arc<FieldTemplate>> {
        let all = asks.len() == self.tells_of;
        self.ready.as_ref().filter(|_| all)
    }

    /// Which partition of a quota a key stands for, where that is told.
    pub(super) fn partition_of(&self, key: &Key) -> Option<String> {
        self.telling.partition_key.as_ref()?.encode(key)
    }

    /// What is told of a limit whoever asks; made now if no rule is of just this one.
    pub(super) fn label(&self, limit: &Limit) -> Cow<'_, PolicyText> {
        let is_it = |rule: &&Rule| std::ptr::eq(rule.limit(), limit) || rule.limit() == limit;
        let known = self.iter().find(is_it);
        known.map_or_else(|| Cow::Owned(PolicyText::new(limit)), |rule| Cow::Borrowed(&rule.label))
    }

    /// Which rule, counted from the first, holds requests to a limit of this name.
    pub(super) fn position(&self, name: &str) -> usize {
        self.iter().take_while(|rule| rule.limit().name() != name).count()
    }

    /// The ruling, or what becomes of requests while there is none.
    #[inline]
    pub(super) fn or_blind<L: Borrow<Limit>>(
        self: &Arc<Self>,
        first: Option<&Ask<L>>,
        ruling: Result<Ruling, BackendError>,
    ) -> Ruling {
        let limit = first.map_or_else(|| self.limit(), Ask::limit);
        match ruling {
            Ok(ruling) => {
                self.log.sees(limit);
                ruling
            }
            Err(error) => self.blind(limit, &error),
        }
    }

    #[cold]
    fn blind(self: &Arc<Self>, limit: &Limit, error: &BackendError) -> Ruling {
        self.log.blind(limit, error, self.on_failure);
        match self.on_failure {
            OnFailure::Close => {
                let rules = Arc::clone(self);
                Ruling::Untold(Box::new(move |head| {
                    rules.failure(StatusCode::SERVICE_UNAVAILABLE, head)
                }))
            }
            OnFailure::Open => self.unasked(),
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("rules", &self.iter().collect::<Vec<_>>())
            .field("fields", &self.telling.dialects)
            .field("retry_after", &self.telling.retry_after)
            .field("partition_key", &self.telling.partition_key)
            .field("on_refusal", &self.telling.on_refusal)
            .field("on_failure", &self.on_failure)
            .field("queue", &self.queue)
            .field("jitter", &self.jitter)
            .field("settles", &self.settles)
            .finish_non_exhaustive()
    }
}
