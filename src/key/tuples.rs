//! Tuples of extractors: a bucket for each combination of their keys.

use super::extractor::{Extracted, KeyExtractor, extract_part};
use super::head::Head;
use super::key_error::KeyError;
use super::setup_warning::SetupWarning;
use crate::backend::Key;

// A request is exempt if one of the extractors exempts it. Of several errors, the worst is
// reported, and the first of several equally bad ones.
macro_rules! tuples {
    ($($name:ident),*) => {
        impl<$($name: KeyExtractor),*> KeyExtractor for ($($name,)*) {
            #[expect(non_snake_case, reason = "the types and the values have one name")]
            fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
                let ($($name,)*) = self;
                let mut key = Ok(Key::GLOBAL);
                $(match extract_part($name, head) {
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
            fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
                let ($($name,)*) = self;
                let mut warning = None;
                $(warning = warning.or_else(|| $name.setup_warning(head));)*
                warning
            }
        }
    };
}

tuples!(A, B);
tuples!(A, B, C);
tuples!(A, B, C, D);
