//! Several extractors as one.

use super::{Doubt, Extracted, Head, Key, KeyError, KeyExtractor};

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

    fn doubt(&self, head: &Head<'_>) -> Option<Doubt> {
        // A first key that no request could have is missed by nobody: the second one is there.
        let set_up = self.first.extract(head).err().filter(KeyError::is_set_up);
        set_up
            .map(|error| Doubt::now(error.message))
            .or_else(|| self.first.doubt(head))
            .or_else(|| self.second.doubt(head))
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
