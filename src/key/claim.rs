//! Keys from the claims of a verified token.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use super::extension::missing_extension;
use super::extractor::{Extracted, KeyExtractor};
use super::from_fn::IntoExtracted;
use super::head::Head;
use super::key_error::KeyError;
use super::setup_warning::SetupWarning;

/// Takes the key from the claims of a verified token; made by [`claim`].
pub struct Claim<T, F> {
    read: F,
    source: PhantomData<fn(&T)>,
}

/// Takes the key from the claims of a verified token.
///
/// The layer that verifies the token has to insert the claims, of type `T`, as a request extension.
///
/// Unlike for [`extension`](super::extension()), the closure may return what that of
/// [`from_fn`](super::from_fn()) may: an `Option` if not every token has the claim, or an
/// [`Extracted`] if a claim exempts the request.
///
/// # Examples
///
/// ```
/// use tollgate::key::{Extracted, Head, Key, KeyExtractor, claim};
///
/// #[derive(Clone)]
/// struct Claims {
///     tenant: Option<String>,
///     is_internal: bool,
/// }
///
/// let tenant = claim(|claims: &Claims| match (&claims.tenant, claims.is_internal) {
///     (_, true) => Some(Extracted::Exempt),
///     (tenant, false) => tenant.as_deref().map(Extracted::from),
/// });
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Claims { tenant: Some("acme".into()), is_internal: false });
/// assert_eq!(tenant.extract(&Head::new(&request)), Ok(Extracted::Key(Key::from("acme"))));
///
/// request.extensions_mut().insert(Claims { tenant: None, is_internal: false });
/// assert!(tenant.extract(&Head::new(&request)).unwrap_err().is_missing());
/// ```
#[doc(alias = "jwt")]
pub const fn claim<T, F, R>(read: F) -> Claim<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
    R: IntoExtracted,
{
    Claim { read, source: PhantomData }
}

impl<T, F, R> KeyExtractor for Claim<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
    R: IntoExtracted,
{
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        let claims = type_name::<T>();
        let Some(found) = head.extensions().get::<T>() else {
            return Err(KeyError::missing(format!(
                "no key: the request has no claims of type `{claims}` (add the layer that verifies \
                 the token outside of this one; in axum, by a `.layer(..)` after this one's)"
            )));
        };
        match (self.read)(found).into_extracted() {
            Ok(Extracted::Key(key)) if key.is_empty() => Err(KeyError::empty(format!(
                "no key: the claim in `{claims}` is empty (have the closure return `None` if there \
                 is none)"
            ))),
            extracted => extracted,
        }
    }

    fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
        missing_extension::<T>(head)
    }
}

impl<T, F: Clone> Clone for Claim<T, F> {
    fn clone(&self) -> Self {
        Self { read: self.read.clone(), source: PhantomData }
    }
}

impl<T, F> fmt::Debug for Claim<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim<{}>", type_name::<T>())
    }
}
