//! Keys from request extensions, which other layers insert.

use std::any::type_name;
use std::marker::PhantomData;
use std::sync::Arc;

use http::StatusCode;

use super::extractor::{Extracted, KeyExtractor};
use super::from_fn::IntoExtracted;
use super::head::Head;
use super::key_error::KeyError;
use super::setup_warning::SetupWarning;

/// Takes the key from a request extension of type `T`, which an outer layer inserts.
///
/// Use it for the user that your authentication established, for the claims of a token that it has
/// verified, or for anything else that an outer layer knows about the request. The closure returns a
/// key, or what that of [`from_fn`](super::from_fn()) may: an `Option` if not every extension has a
/// key, or an [`Extracted`] if some exempt the request. An empty text is an error. The key cannot
/// borrow from the extension: write `user.name.clone()`, not `&user.name`.
///
/// # Examples
///
/// ```
/// use tollgate::key::{Extracted, Head, Key, KeyExtractor, extension};
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(User { id: 7 });
/// let extracted = extension(|user: &User| user.id).extract(&Head::new(&request));
/// assert_eq!(extracted, Ok(Extracted::Key(Key::from(7_u64))));
/// ```
///
/// The tenant in the claims of a token, which some tokens do not name:
///
/// ```
/// use tollgate::key::{Extracted, Head, KeyExtractor, extension};
///
/// #[derive(Clone)]
/// struct Claims {
///     tenant: Option<String>,
///     is_internal: bool,
/// }
///
/// let tenant = extension(|claims: &Claims| match (&claims.tenant, claims.is_internal) {
///     (_, true) => Some(Extracted::Exempt),
///     (tenant, false) => tenant.as_deref().map(Extracted::from),
/// });
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Claims { tenant: None, is_internal: false });
/// assert!(tenant.extract(&Head::new(&request)).unwrap_err().is_missing());
/// ```
#[doc(alias("jwt", "claim", "session"))]
pub fn extension<T, F, R>(read: F) -> impl KeyExtractor + Clone
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
    R: IntoExtracted,
{
    Arc::new(Extension { read, source: PhantomData })
}

/// Takes the key from a request extension. It is not cloned, as the closure may not be.
struct Extension<T, F> {
    read: F,
    source: PhantomData<fn(&T)>,
}

impl<T, F, R> KeyExtractor for Extension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
    R: IntoExtracted,
{
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match head.extensions().get::<T>() {
            Some(found) => match (self.read)(found).into_extracted() {
                Ok(Extracted::Key(key)) if key.is_empty() => Err(KeyError::empty(format!(
                    "no key: the key from the extension of type `{}` is empty (have the layer that \
                     inserts it always set one, or the closure return `None`)",
                    type_name::<T>()
                ))),
                extracted => extracted,
            },
            None => Err(KeyError::missing_named(type_name::<T>(), |name| {
                format!(
                    "no key: the request has no extension of type `{name}` (add the layer that \
                     inserts it outside of this one; in axum, by a `.layer(..)` after this one's)"
                )
            })
            .with_status(StatusCode::INTERNAL_SERVER_ERROR)),
        }
    }

    fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
        missing_extension::<T>(head)
    }
}

/// The warning that no request has the extension: the layer that inserts it may stand inside of the
/// limit.
///
/// If a request without a key is answered with an error of the server, the log has that at once.
/// This is for those that pass, or have another key.
fn missing_extension<T: Send + Sync + 'static>(head: &Head<'_>) -> Option<SetupWarning> {
    head.extensions().get::<T>().is_none().then(|| {
        SetupWarning::in_each_request(format!(
            "no request so far had an extension of type `{}`, so this limit took no key from it \
             (the layer that inserts it has to run first: add it outside of the limit, which in \
             axum is by a `.layer(..)` after the limit's; if these requests were not meant to have \
             one, nothing is wrong)",
            type_name::<T>()
        ))
    })
}
