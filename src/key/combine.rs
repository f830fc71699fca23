//! Several extractors as one.

use std::sync::OnceLock;

use super::{Doubt, Extracted, Head, Key, KeyError, KeyExtractor};

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
                if error.is_set_up() {
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

    fn doubt(&self, head: &Head<'_>) -> Option<Doubt> {
        let set_up = self.passed_over.get().map(|error| Doubt::now(error.message.clone()));
        set_up.or_else(|| self.first.doubt(head)).or_else(|| self.second.doubt(head))
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
                    Err(error) => match &key {
                        Err(worse) if !error.is_worse_than(worse) => {}
                        _ => key = Err(error),
                    },
                })*
                key.map(Extracted::Key)
            }

            #[expect(non_snake_case, reason = "the types and the values have one name")]
            fn doubt(&self, head: &Head<'_>) -> Option<Doubt> {
                let ($($name,)*) = self;
                let mut doubt = None;
                $(doubt = doubt.or_else(|| $name.doubt(head));)*
                doubt
            }
        }
    };
}

tuples!(A, B);
tuples!(A, B, C);
tuples!(A, B, C, D);
