//! Who is asking: keys, and how they are taken from requests.
//!
//! A [`KeyExtractor`] reads the [`Head`] of a request and names the bucket that pays for it. The
//! functions here make the usual ones; tuples combine them, and [`from_fn`] takes any closure.
//!
//! ```
//! use tollgate::key::{self, ClientIp, KeyExtractor, Networks};
//! # fn takes(_: impl KeyExtractor) {}
//! # #[derive(Clone)] struct Tenant { id: u64 }
//!
//! # takes(
//! ClientIp::peer()                                       // the address of the peer
//! # ); takes(
//! ClientIp::x_forwarded_for(Networks::new(["10.0.0.0/8"])) // what these proxies say of theirs
//! # ); takes(
//! key::header("x-user")                                  // a header field
//! # ); takes(
//! key::extension(|tenant: &Tenant| tenant.id)            // what another layer has found out
//! # ); takes(
//! key::from_fn(|head| head.method().as_str().to_owned()) // anything
//! # ); takes(
//! (key::header("x-tenant"), ClientIp::peer())            // both: each address of each tenant
//! # ); takes(
//! key::header("x-user").or(ClientIp::peer())             // the second where the first is missing
//! # ); takes(
//! ClientIp::peer().unless(|head| head.uri().path() == "/health") // but for health checks
//! # );
//! ```
//!
//! With the feature `credentials` there are `bearer`, `api_key` and `cookie` too, which keep no more than a
//! digest of what they find, and with `tower-sessions` there is `session`. What has to wait, such as a
//! query for the user, runs in a layer outside of the limit, which leaves what it found as a request
//! extension: `tollgate::routes::extract` makes one of any extractor of axum.
//!
//! One request can also be held to another limit than the next, by its plan, method or path: see
//! [`limit_with`](crate::RateLimitLayer::limit_with).

#[cfg(feature = "credentials")]
mod api_key;
#[cfg(feature = "credentials")]
mod bearer;
mod claim;
mod client_ip;
mod combine;
#[cfg(feature = "credentials")]
mod cookie;
#[cfg(feature = "credentials")]
mod digest;
mod doubt;
mod extension;
mod from_fn;
mod global;
mod head;
mod header;
#[cfg(feature = "axum")]
mod matched_path;
#[cfg(feature = "tower-sessions")]
mod session;
mod unless;

use std::borrow::Cow;
use std::fmt;

#[cfg(feature = "credentials")]
pub use self::api_key::{ApiKey, api_key};
#[cfg(feature = "credentials")]
pub use self::bearer::{Bearer, bearer};
pub use self::claim::{Claim, claim};
pub use self::client_ip::{ClientIp, NetworkError, Networks, Proxies};
pub use self::combine::Or;
#[cfg(feature = "credentials")]
pub use self::cookie::{Cookie, cookie};
#[cfg(feature = "credentials")]
pub use self::digest::digest;
pub use self::doubt::Doubt;
pub use self::extension::{Extension, extension};
pub use self::from_fn::{FromFn, IntoExtracted, from_fn};
pub use self::global::{Global, global};
pub use self::head::Head;
pub use self::header::{Header, header};
#[cfg(feature = "axum")]
pub use self::matched_path::{MatchedPath, matched_path};
#[cfg(feature = "tower-sessions")]
pub use self::session::{Session, session};
pub use self::unless::Unless;
pub use crate::backend::Key;

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
    /// assert_eq!(but_for_health_checks.extract(&Head::of(&check)), Ok(Extracted::Exempt));
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
    fn doubt(&self, head: &Head<'_>) -> Option<Doubt> {
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

/// A request without a key that can be used; the message says how to come by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    message: Cow<'static, str>,
    kind: Kind,
}

/// The later, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Missing,
    SetUp,
    Empty,
    Invalid,
}

impl KeyError {
    /// The key is not there: perhaps the request's fault, perhaps the set-up's.
    ///
    /// The message goes to the log, not to the client: it should say how to mend the set-up.
    pub fn missing(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: Kind::Missing }
    }

    /// The key is not there, and surely the set-up's fault: no request could have it.
    ///
    /// It is [missing](Self::is_missing), and the log tells it once as an error, whatever becomes of
    /// requests without a key; and as a warning where [another key](KeyExtractor::or) takes its place.
    pub fn set_up(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: Kind::SetUp }
    }

    /// The key is there but no key: surely the request's fault.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: Kind::Invalid }
    }

    /// The key is there but empty, which would be one bucket for all who have none: as
    /// [`invalid`](Self::invalid), and the log warns of it once.
    pub fn empty(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), kind: Kind::Empty }
    }

    /// Whether the key is not there at all.
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        matches!(self.kind, Kind::Missing | Kind::SetUp)
    }

    /// Whether the key is not there, and no request could have it.
    #[must_use]
    pub const fn is_set_up(&self) -> bool {
        matches!(self.kind, Kind::SetUp)
    }

    /// Whether the key is there, and empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self.kind, Kind::Empty)
    }

    /// Of two mistakes in one request, the client's own counts, or else the one that is sure.
    fn is_worse_than(&self, other: &Self) -> bool {
        self.kind > other.kind
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KeyError {}
