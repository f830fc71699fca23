//! What takes a key from a request, and how two of them are combined.

use std::fmt;
use std::sync::OnceLock;

use super::head::Head;
use super::key_error::KeyError;
use super::setup_warning::SetupWarning;
use crate::backend::Key;

/// Takes the key of a request from its head.
///
/// Keys that can be had for nothing make a limit worth nothing: see that a client cannot invent
/// them, or limit by something that it cannot invent as well.
///
/// # Examples
///
/// ```
/// use tollgate::key::{Extracted, Head, Key, KeyError, KeyExtractor};
///
/// /// The first segment of the path: `/acme/orders` belongs to `acme`.
/// struct Tenant;
///
/// impl KeyExtractor for Tenant {
///     fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
///         match head.uri().path().split('/').nth(1) {
///             Some("") | None => Err(KeyError::missing("no tenant in the path")),
///             Some("health") => Ok(Extracted::Exempt),
///             Some(tenant) => Ok(Extracted::Key(Key::from(tenant))),
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how to take a key from a request",
    note = "use `tollgate::key::header(..)`, `ClientIp::peer()` and the like, or \
            `tollgate::key::from_fn(..)` around a closure"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of the request, or that it needs none.
    ///
    /// # Errors
    ///
    /// If the key [is missing](KeyError::missing) or [cannot be used](KeyError::invalid), as if it is
    /// [empty](KeyError::empty).
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError>;

    /// This key, or the other one where this one is missing.
    ///
    /// A key that is there and cannot be used stays an error, so that nobody changes buckets by
    /// sending nonsense. The other one's keys are [set apart](Key::fallback).
    fn or<E: KeyExtractor>(self, other: E) -> Or<Self, E>
    where
        Self: Sized,
    {
        Or::new(self, other)
    }

    /// This key, but for requests that the predicate holds for: those are exempt.
    ///
    /// Health checks, callers of the house (by what an authentication has found out about them), or networks
    /// that are let through ([`ClientIp::within`]).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{ClientIp, Extracted, Head, KeyExtractor};
    ///
    /// let but_for_health_checks = ClientIp::peer().unless(|head| head.uri().path() == "/health");
    ///
    /// let check = http::Request::builder().uri("/health").body(()).unwrap();
    /// assert_eq!(but_for_health_checks.extract(&Head::new(&check)), Ok(Extracted::Exempt));
    ///
    /// #[derive(Clone)]
    /// struct Internal; // inserted by the layer that verifies the callers' certificates
    ///
    /// let but_for_us = ClientIp::peer().unless(|head| head.extensions().get::<Internal>().is_some());
    /// # drop(but_for_us);
    /// ```
    fn unless<P>(self, is_exempt: P) -> Unless<Self, P>
    where
        Self: Sized,
        P: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
    {
        Unless::new(self, is_exempt)
    }

    /// What makes this request look as if something was wrong with the set-up; nothing, for most
    /// extractors.
    ///
    /// A rule asks it for its first thousand requests that have a key, and tells it to the log once.
    /// It decides nothing.
    fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
        let _ = head;
        None
    }
}

/// What an extractor found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extracted {
    /// The bucket of this key pays.
    Key(Key),
    /// The request is not limited here.
    Exempt,
}

impl<K: Into<Key>> From<K> for Extracted {
    fn from(key: K) -> Self {
        Self::Key(key.into())
    }
}

/// Takes the second key where the first is missing; made by [`KeyExtractor::or`].
#[derive(Clone, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
    /// Why the first key can never be there, which nobody misses as the second one is.
    passed_over: OnceLock<KeyError>,
}

impl<A, B> Or<A, B> {
    pub(super) const fn new(first: A, second: B) -> Self {
        Self { first, second, passed_over: OnceLock::new() }
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match self.first.extract(head) {
            Err(error) if error.is_missing() => {
                if error.is_misconfigured() {
                    self.passed_over.get_or_init(|| error);
                }
                Ok(match self.second.extract(head)? {
                    Extracted::Key(key) => Extracted::Key(key.fallback()),
                    Extracted::Exempt => Extracted::Exempt,
                })
            }
            first => first,
        }
    }

    fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
        let set_up = self.passed_over.get().map(|error| SetupWarning::new(error.message()));
        set_up
            .or_else(|| self.first.setup_warning(head))
            .or_else(|| self.second.setup_warning(head))
    }
}

/// Exempts requests that a predicate holds for; made by [`KeyExtractor::unless`].
#[derive(Clone)]
pub struct Unless<E, P> {
    key: E,
    is_exempt: P,
}

impl<E, P> Unless<E, P> {
    pub(super) const fn new(key: E, is_exempt: P) -> Self {
        Self { key, is_exempt }
    }
}

impl<E, P> KeyExtractor for Unless<E, P>
where
    E: KeyExtractor,
    P: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
{
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match (self.is_exempt)(head) {
            true => Ok(Extracted::Exempt),
            false => self.key.extract(head),
        }
    }

    fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
        self.key.setup_warning(head)
    }
}

impl<E: fmt::Debug, P> fmt::Debug for Unless<E, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unless").field("key", &self.key).finish_non_exhaustive()
    }
}
