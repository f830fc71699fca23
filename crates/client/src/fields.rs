//! The header fields of a response, with a list of those that could not be read.

use http::header::AsHeaderName;
use http::{HeaderMap, HeaderName};

use super::reading::{Assumed, Unreadable};

#[derive(Debug)]
pub(super) struct Fields<'h> {
    pub(super) headers: &'h HeaderMap,
    unreadable: Vec<Unreadable>,
}

/// The field is there, and cannot be read. It is in the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread;

impl<'h> Fields<'h> {
    pub(super) const fn new(headers: &'h HeaderMap) -> Self {
        Self { headers, unreadable: Vec::new() }
    }

    /// Reads the lines of a field as one list; `None` if it is absent.
    pub(super) fn read<T>(
        &mut self,
        name: &str,
        assumed: Assumed,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Unread> {
        let Some(list) = self.list(name) else { return Ok(None) };
        match parsed(&list, parse) {
            Some(value) => Ok(Some(value)),
            None => {
                self.add(name, &list, assumed);
                Err(Unread)
            }
        }
    }

    /// The same, where it does not matter whether it can be read.
    pub(super) fn peek<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        parsed(&self.list(name)?, parse)
    }

    fn list(&self, name: &str) -> Option<Vec<u8>> {
        let mut lines = self.headers.get_all(name).iter();
        let mut list = lines.next()?.as_bytes().to_vec();
        for line in lines {
            // It cannot be read in any case.
            if list.len() > MAX_FIELD {
                break;
            }
            list.extend_from_slice(b", ");
            list.extend_from_slice(line.as_bytes());
        }
        Some(list)
    }

    /// The text of a field that occurs once, and is not too long for a name.
    pub(super) fn text(&self, name: impl AsHeaderName) -> Option<&'h str> {
        let mut lines = self.headers.get_all(name).iter();
        let text = lines.next()?.to_str().ok()?.trim_matches([' ', '\t']);
        (lines.next().is_none() && text.len() <= MAX_NAME).then_some(text)
    }

    fn add(&mut self, name: &str, value: &[u8], assumed: Assumed) {
        let Ok(field) = HeaderName::try_from(name) else { return };
        let shortened = value.get(..MAX_SHOWN).unwrap_or(value);
        let value = shortened.escape_ascii().to_string().into();
        let is_new = self.unreadable.iter().all(|other| other.field != field);
        if is_new && self.unreadable.len() < MAX_UNREADABLE {
            self.unreadable.push(Unreadable { field, value, assumed });
        }
    }

    pub(super) const fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    pub(super) fn into_unreadable(self) -> Vec<Unreadable> {
        self.unreadable
    }
}

fn parsed<T>(list: &[u8], parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let text = Some(list).filter(|list| list.len() <= MAX_FIELD).map(str::from_utf8)?.ok()?;
    parse(text.trim_matches([' ', '\t']))
}

/// In bytes; a limit with a longer name has that of its field.
pub(super) const MAX_NAME: usize = 128;
/// In bytes; a longer field cannot be read.
const MAX_FIELD: usize = 8_192;
/// In bytes; so much of a value is shown.
const MAX_SHOWN: usize = 64;
/// So many fields of a response are listed.
const MAX_UNREADABLE: usize = 8;
