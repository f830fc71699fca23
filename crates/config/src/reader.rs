//! Reads values of the tree, and notes each mistake with its place.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::field_names::FieldName;
use super::problem::Mistakes;
use super::suggestion::{Quote, way_out};
use super::tree::{ConfigNode, NodeField, NodeValue};
use tollgate::kit::{excerpt, parse_period};

/// Reads the values of one table.
///
/// A value that is wrong is noted and read as `None`, so that one pass finds all mistakes.
#[derive(Debug)]
pub(super) struct Reader<'m> {
    mistakes: &'m mut Mistakes,
    /// What each message begins with: empty, or `limit "api": `.
    subject: String,
    /// What stands before the name of each field: empty, or `queue.`.
    table: &'static str,
}

/// A field that the configuration has; its value is `None` if that is wrong.
#[derive(Clone, Debug)]
pub(super) struct Given<T> {
    pub(super) at: Option<usize>,
    pub(super) value: Option<T>,
}

/// A field that may be absent.
pub(super) trait Setting<T> {
    /// The value, if the field is there and right.
    fn good(self) -> Option<T>;
}

impl<T> Setting<T> for Option<Given<T>> {
    fn good(self) -> Option<T> {
        self.and_then(|given| given.value)
    }
}

impl<'m> Reader<'m> {
    pub(super) const fn new(mistakes: &'m mut Mistakes, subject: String) -> Self {
        Self { mistakes, subject, table: "" }
    }

    /// The reader of a table within this one; its name ends in a dot.
    pub(super) fn inner(&mut self, table: &'static str) -> Reader<'_> {
        Reader { mistakes: self.mistakes, subject: self.subject.clone(), table }
    }

    /// The reader of one limit.
    pub(super) fn of_limit(&mut self, name: &str) -> Reader<'_> {
        let subject = format!("limit \"{}\": ", excerpt(name));
        Reader { mistakes: self.mistakes, subject, table: "" }
    }

    pub(super) fn mistake(&mut self, at: Option<usize>, text: impl AsRef<str>) {
        self.mistakes.add(at, format!("{}{}", self.subject, text.as_ref()));
    }

    /// The mistake of a value, with the way out.
    fn wrong(&mut self, field: impl FieldName, node: &ConfigNode, way_out: &str) {
        let name = self.name(field);
        self.mistake(node.at, format!("{name} is {node} ({way_out})"));
    }

    /// The field as messages name it.
    pub(super) fn name(&self, field: impl FieldName) -> String {
        format!("`{}{}`", self.table, field.name())
    }

    /// Calls `read` for each field that there is once.
    pub(super) fn fields<'n, F: FieldName>(
        &mut self,
        fields: &'n [NodeField],
        mut read: impl FnMut(&mut Self, F, &'n NodeField),
    ) {
        let mut seen = Vec::new();
        for given in fields {
            let Some(field) = F::ALL.iter().copied().find(|field| field.name() == given.name)
            else {
                if self.mistakes.is_full() {
                    self.mistakes.add(given.at, String::new());
                    continue;
                }
                let names: Vec<_> = F::ALL.iter().map(|field| field.name()).collect();
                let (way_out, table) = (way_out(&given.name, &names, Quote::Code), self.table);
                let name = excerpt(&given.name);
                self.mistake(given.at, format!("there is no field `{table}{name}` ({way_out})"));
                continue;
            };
            if seen.contains(&field) {
                let name = self.name(field);
                self.mistake(given.at, format!("{name} is given twice (leave one out)"));
                continue;
            }
            seen.push(field);
            read(self, field, given);
        }
    }

    /// A value that `read` understands, or else says what is right.
    pub(super) fn read<T>(
        &mut self,
        field: impl FieldName,
        node: &ConfigNode,
        read: impl FnOnce(&ConfigNode) -> Result<T, String>,
    ) -> Option<Given<T>> {
        let value = match read(node) {
            Ok(value) => Some(value),
            Err(way_out) => {
                self.wrong(field, node, &way_out);
                None
            }
        };
        Some(Given { at: node.at, value })
    }

    /// A text that `read` understands, or else says what is wrong with it in its own words.
    pub(super) fn parse<T>(
        &mut self,
        field: impl FieldName,
        node: &ConfigNode,
        example: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Given<T>> {
        let value = match node.text().map(parse) {
            Some(Ok(value)) => Some(value),
            Some(Err(text)) => {
                self.mistake(node.at, text);
                None
            }
            None => {
                self.wrong(field, node, &format!("write text, such as \"{example}\""));
                None
            }
        };
        Some(Given { at: node.at, value })
    }

    pub(super) fn flag(&mut self, field: impl FieldName, node: &ConfigNode) -> Option<Given<bool>> {
        self.read(field, node, |node| match node.value {
            NodeValue::Flag(flag) => Ok(flag),
            _ => Err("write true or false".to_owned()),
        })
    }

    /// A whole number in this range.
    pub(super) fn whole(
        &mut self,
        field: impl FieldName,
        node: &ConfigNode,
        range: RangeInclusive<u64>,
    ) -> Option<Given<u64>> {
        self.read(field, node, |node| {
            let NodeValue::Number(number) = &node.value else {
                return Err("write a whole number, such as 10".to_owned());
            };
            let (least, most) = (range.start(), range.end());
            let value = number.whole.filter(|whole| range.contains(whole));
            value.ok_or_else(|| format!("write a whole number from {least} to {most}"))
        })
    }

    /// One of several words.
    pub(super) fn word<T: Clone>(
        &mut self,
        field: impl FieldName,
        node: &ConfigNode,
        words: &[(&str, T)],
    ) -> Option<Given<T>> {
        self.read(field, node, |node| word(node, words))
    }

    /// A time, in the words of a quota's period.
    pub(super) fn time(
        &mut self,
        field: impl FieldName,
        node: &ConfigNode,
    ) -> Option<Given<Duration>> {
        self.read(field, node, |node| {
            let time = node.text().and_then(parse_period);
            time.ok_or_else(|| {
                "write a time with its unit, such as \"30s\" or \"1h 30m\"".to_owned()
            })
        })
    }

    /// A list, or one item alone. `read` reads an item, and says how to write one that is wrong.
    pub(super) fn list<T>(
        &mut self,
        field: impl FieldName,
        node: &ConfigNode,
        mut read: impl FnMut(&ConfigNode) -> Result<T, String>,
    ) -> Option<Given<Vec<T>>> {
        let (mut values, mut is_right) = (Vec::new(), true);
        for item in node.items() {
            match read(item) {
                Ok(value) => values.push(value),
                Err(way_out) => {
                    let name = self.name(field);
                    let has = if std::ptr::eq(item, node) { "is" } else { "has" };
                    self.mistake(item.at, format!("{name} {has} {item} ({way_out})"));
                    is_right = false;
                }
            }
        }
        if node.items().is_empty() {
            let name = self.name(field);
            self.mistake(node.at, format!("{name} is an empty list (leave the field out)"));
            is_right = false;
        }
        Some(Given { at: node.at, value: is_right.then_some(values) })
    }
}

/// One of several words, or what they are.
pub(super) fn word<T: Clone>(node: &ConfigNode, words: &[(&str, T)]) -> Result<T, String> {
    let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
    let given = node.text().unwrap_or_default();
    let found = words.iter().find(|(name, _)| *name == given);
    found.map(|(_, value)| value.clone()).ok_or_else(|| way_out(given, &names, Quote::Text))
}
