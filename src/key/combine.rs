//! Several extractors as one.

use super::{Extracted, Head, Key, KeyError, KeyExtractor};

/// Takes the second key where the first is missing; made by [`KeyExtractor::or`].
#[derive(Clone, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A, B> Or<A, B> {
    pub(super) const fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match self.first.extract(head) {
            Err(error) if error.is_missing() => Ok(match self.second.extract(head)? {
                Extracted::Key(key) => Extracted::Key(key.fallback()),
                Extracted::Exempt => Extracted::Exempt,
            }),
            first => first,
        }
    }
}

/// All keys together: a bucket for each combination. Exempt if one of them says so.
macro_rules! tuples {
    ($($name:ident),*) => {
        impl<$($name: KeyExtractor),*> KeyExtractor for ($($name,)*) {
            #[expect(non_snake_case, reason = "the types and the values have one name")]
            fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
                let ($($name,)*) = self;
                let mut key = Ok(Key::GLOBAL);
                $(match $name.extract(head) {
                    Ok(Extracted::Key(part)) => key = key.map(|key| key.and(part)),
                    Ok(Extracted::Exempt) => return Ok(Extracted::Exempt),
                    // Of two mistakes, the client's own is the one that counts.
                    Err(error) if key.is_ok() || !error.is_missing() => key = Err(error),
                    Err(_) => {}
                })*
                key.map(Extracted::Key)
            }
        }
    };
}

tuples!(A, B);
tuples!(A, B, C);
tuples!(A, B, C, D);
