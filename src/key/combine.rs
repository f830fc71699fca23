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
        // The two kinds of key are told apart, so that a user named like an address is not one.
        let (which, extracted) = match self.first.extract(head) {
            Err(error) if error.is_missing() => (1_u32, self.second.extract(head)?),
            first => (0, first?),
        };
        Ok(match extracted {
            Extracted::Key(key) => Extracted::Key(Key::from(which).and(key)),
            Extracted::Exempt => Extracted::Exempt,
        })
    }
}

/// All keys together: a bucket for each combination. Exempt if one of them says so.
macro_rules! tuples {
    ($($name:ident),*) => {
        impl<$($name: KeyExtractor),*> KeyExtractor for ($($name,)*) {
            #[expect(non_snake_case, reason = "the types and the values have one name")]
            fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
                let ($($name,)*) = self;
                let key = Key::GLOBAL;
                $(let key = match $name.extract(head)? {
                    Extracted::Key(part) => key.and(part),
                    Extracted::Exempt => return Ok(Extracted::Exempt),
                };)*
                Ok(Extracted::Key(key))
            }
        }
    };
}

tuples!(A, B);
tuples!(A, B, C);
tuples!(A, B, C, D);
