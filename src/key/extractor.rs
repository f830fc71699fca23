//! The trait of key extractors, and the adapters of its methods.

use std::sync::{Arc, OnceLock};

use super::head::Head;
use super::key_error::KeyError;
use super::setup_warning::SetupWarning;
use crate::backend::Key;

/// Takes the key of a request from its head.
///
/// A limit does not bound clients that can make up keys. Use keys that a client cannot choose, or
/// add a limit by such a key.
///
/// The [module docs](super) list the extractors of this crate. Implement the trait for your own, or
/// use [`from_fn`](super::from_fn()).
///
/// A `Box<dyn KeyExtractor>` and an `Arc<dyn KeyExtractor>` are extractors as well, for a key that
/// a configuration chooses.
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
///
/// The key that a configuration names:
///
/// ```
/// use tollgate::key::{ClientIp, KeyExtractor, global, header};
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const CALLS: Limit = Limit::new("calls", Quota::token_bucket(100, MINUTE));
///
/// fn extractor(configured: &str) -> Option<Box<dyn KeyExtractor>> {
///     Some(match configured {
///         "user" => Box::new(header("x-user").or(ClientIp::peer())),
///         "address" => Box::new(ClientIp::peer()),
///         "none" => Box::new(global()),
///         _ => return None,
///     })
/// }
///
/// let extractor = extractor("user").unwrap();
/// let layer = RateLimiter::in_memory().layer(&CALLS).key(extractor);
/// # drop(layer);
/// ```
///
/// # Async keys
///
/// An extractor cannot wait. Look up a key that needs an await, such as the tenant of a host name,
/// in a layer outside of the limit, which leaves it in the extensions of the request:
///
/// ```
/// use axum::extract::{Request, State};
/// use axum::middleware::{Next, from_fn_with_state};
/// use axum::response::Response;
/// use axum::{Router, http::StatusCode, routing::get};
/// use tollgate::key::extension;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const PER_TENANT: Limit = Limit::new("per-tenant", Quota::token_bucket(60, MINUTE));
///
/// #[derive(Clone)]
/// struct Tenants; // in production, a pool of connections
/// # impl Tenants {
/// #     async fn find(&self, host: &str) -> Option<u64> {
/// #         (host == "acme.example").then_some(7)
/// #     }
/// # }
///
/// #[derive(Clone)]
/// struct Tenant(u64);
///
/// async fn find_tenant(
///     State(tenants): State<Tenants>,
///     mut request: Request,
///     next: Next,
/// ) -> Result<Response, StatusCode> {
///     let host = request.headers().get("host").and_then(|host| host.to_str().ok());
///     let tenant = tenants.find(host.unwrap_or_default()).await.ok_or(StatusCode::NOT_FOUND)?;
///     request.extensions_mut().insert(Tenant(tenant));
///     Ok(next.run(request).await)
/// }
///
/// # use tower::ServiceExt;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let by_tenant = RateLimiter::in_memory().layer(&PER_TENANT).key(extension(|t: &Tenant| t.0));
/// let app: Router = Router::new()
///     .route("/", get(async || "hello"))
///     .layer(by_tenant)
///     .layer(from_fn_with_state(Tenants, find_tenant));
/// # for (host, status) in [("acme.example", 200), ("else.example", 404)] {
/// #     let request = Request::get("/").header("host", host);
/// #     let request = request.body(axum::body::Body::empty()).unwrap();
/// #     assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status);
/// # }
/// # }
/// ```
///
/// In axum, `tollgate::routes::extract` makes such a layer of any extractor, and
/// `tollgate::routes::extract_body` of those that read the body, such as `Json`. Without axum,
/// [`buffer_body`](crate::middleware::buffer_body()) reads the body.
#[doc(alias("keyGenerator"))]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key extractor",
    note = "use `tollgate::key::header(..)`, `ClientIp::peer()` and the like, or give a closure to \
            `key_with`: `.key_with(|head| ..)` (elsewhere, `tollgate::key::from_fn(..)` around it)"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Takes the key from the head of a request, or exempts the request.
    ///
    /// # Errors
    ///
    /// If the key [is missing](KeyError::missing), [cannot be used](KeyError::invalid), or is
    /// [empty](KeyError::empty). An empty key that it returns instead is refused by the layer.
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError>;

    /// Takes the key of `other` if this one is missing.
    ///
    /// If the key is present but cannot be used, the error remains. Otherwise, a client could
    /// change its bucket by sending a malformed key. The keys of `other` are [marked as
    /// fallbacks](Key::fallback), so they never equal a key of this extractor.
    #[doc(alias = "fallback")]
    fn or<E: KeyExtractor>(self, other: E) -> impl KeyExtractor + Clone
    where
        Self: Sized,
    {
        Arc::new(Or { first: self, second: other, first_error: OnceLock::new() })
    }

    /// Exempts the requests for which `is_exempt` returns true.
    ///
    /// Use it for health checks, for internal callers that your authentication has identified, or
    /// for networks ([`ClientIp::within`](super::ClientIp::within)).
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
    /// struct Internal; // inserted by the layer that verifies client certificates
    ///
    /// let is_internal = |head: &Head<'_>| head.extensions().get::<Internal>().is_some();
    /// let but_for_internal_calls = ClientIp::peer().unless(is_internal);
    /// # drop(but_for_internal_calls);
    /// ```
    #[doc(alias("skip", "exempt", "whitelist", "allowlist"))]
    fn unless<P>(self, is_exempt: P) -> impl KeyExtractor + Clone
    where
        Self: Sized,
        P: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
    {
        Arc::new(Unless { key: self, is_exempt })
    }

    /// Whether all requests get the same key, as with [`global`](super::global); false by default.
    ///
    /// A [`Queue`](crate::middleware::Queue) bounds the waiters of each key, but not those of a key
    /// that all requests share.
    fn is_global(&self) -> bool {
        false
    }

    /// Checks a request for a sign of a misconfiguration; returns `None` by default.
    ///
    /// A rule calls this for its first thousand requests with a key, or that miss the key and are
    /// not answered with an error of the server, and logs the warning once. The result has no
    /// influence on decisions.
    fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
        let _ = head;
        None
    }
}

macro_rules! pointers {
    ($($pointer:ident),*) => {$(
        impl<E: KeyExtractor + ?Sized> KeyExtractor for $pointer<E> {
            fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
                (**self).extract(head)
            }

            fn is_global(&self) -> bool {
                (**self).is_global()
            }

            fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
                (**self).setup_warning(head)
            }
        }
    )*};
}

pointers!(Arc, Box);

/// The result of an extractor: a key, or an exemption.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extracted {
    /// The request takes tokens from the bucket of this key.
    Key(Key),
    /// The request is exempt from this limit.
    Exempt,
}

impl<K: Into<Key>> From<K> for Extracted {
    fn from(key: K) -> Self {
        Self::Key(key.into())
    }
}

/// Takes a key for a part of another one. The layer refuses one that is empty as a whole.
pub(super) fn extract_part(
    extractor: &impl KeyExtractor,
    head: &Head<'_>,
) -> Result<Extracted, KeyError> {
    match extractor.extract(head) {
        Ok(Extracted::Key(key)) if key.is_empty() => Err(empty_key()),
        extracted => extracted,
    }
}

/// Clients without a name would share one bucket.
#[cold]
pub(crate) fn empty_key() -> KeyError {
    KeyError::empty(
        "no key: the extractor returned an empty one (have it return `KeyError::missing` if there \
         is none)",
    )
}

/// Takes the second key if the first is missing.
struct Or<A, B> {
    first: A,
    second: B,
    /// The error of a misconfigured first key. It causes no refusal, since the second key takes its
    /// place, so it is only reported as a warning.
    first_error: OnceLock<KeyError>,
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match self.first.extract(head) {
            Err(error) if error.is_missing() => {
                if error.is_misconfigured() {
                    self.first_error.get_or_init(|| error);
                }
                Ok(match extract_part(&self.second, head)? {
                    Extracted::Key(key) => Extracted::Key(key.fallback()),
                    Extracted::Exempt => Extracted::Exempt,
                })
            }
            first => first,
        }
    }

    fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
        let warning = self.first_error.get().map(|error| SetupWarning::new(error.message()));
        warning.or_else(|| {
            let first = self.first.setup_warning(head);
            if first.as_ref().is_some_and(SetupWarning::is_certain) {
                return first;
            }
            // What is certain must not wait for what is not.
            match self.second.setup_warning(head) {
                Some(second) if second.is_certain() => Some(second),
                second => first.or(second),
            }
        })
    }
}

/// Exempts the requests for which a predicate returns true.
struct Unless<E, P> {
    key: E,
    is_exempt: P,
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

    fn is_global(&self) -> bool {
        self.key.is_global()
    }

    fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
        self.key.setup_warning(head)
    }
}
