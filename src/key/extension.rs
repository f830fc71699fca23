//! Keys from request extensions, which other layers insert.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use super::extractor::{Extracted, KeyExtractor};
use super::head::Head;
use super::key_error::KeyError;
use super::setup_warning::SetupWarning;
use crate::backend::Key;

/// Takes the key from a request extension; made by [`extension`].
pub struct Extension<T, F> {
    read: F,
    source: PhantomData<fn(&T)>,
}

/// Takes the key from a request extension of type `T`, which an outer layer inserts.
///
/// Use it for the user that your authentication established, or for anything else that an outer
/// layer knows about the request. An empty text is an error. The key cannot borrow from the
/// extension: write `user.name.clone()`, not `&user.name`.
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
pub const fn extension<T, F, K>(read: F) -> Extension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    K: Into<Key>,
{
    Extension { read, source: PhantomData }
}

impl<T, F, K> KeyExtractor for Extension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    K: Into<Key>,
{
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match head.extensions().get::<T>() {
            Some(found) => match (self.read)(found).into() {
                key if key.is_empty() => Err(KeyError::empty(format!(
                    "no key: the key from the extension of type `{}` is empty (have the layer that \
                     inserts it always set one)",
                    type_name::<T>()
                ))),
                key => Ok(Extracted::Key(key)),
            },
            None => Err(KeyError::missing(format!(
                "no key: the request has no extension of type `{}` (add the layer that inserts it \
                 outside of this one; in axum, by a `.layer(..)` after this one's)",
                type_name::<T>()
            ))),
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
pub(super) fn missing_extension<T: Send + Sync + 'static>(head: &Head<'_>) -> Option<SetupWarning> {
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

impl<T, F: Clone> Clone for Extension<T, F> {
    fn clone(&self) -> Self {
        Self { read: self.read.clone(), source: PhantomData }
    }
}

impl<T, F> fmt::Debug for Extension<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension<{}>", type_name::<T>())
    }
}
