//! A configuration of any format as a tree of values, each with its place in the text.

use std::fmt;

use tollgate::kit::excerpt;

/// A value and where it begins, in bytes.
#[derive(Clone, Debug)]
pub(super) struct ConfigNode {
    pub(super) at: Option<usize>,
    pub(super) value: NodeValue,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum NodeValue {
    Nothing,
    Flag(bool),
    Number(Number),
    Text(String),
    /// A date or a time, which is no text in TOML.
    Date(String),
    List(Vec<ConfigNode>),
    Table(Vec<NodeField>),
}

/// A number as it is written, and its value if that is whole and not negative.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Number {
    pub(super) text: String,
    pub(super) whole: Option<u64>,
}

/// A named value of a table, and where its name begins.
#[derive(Clone, Debug)]
pub(super) struct NodeField {
    pub(super) at: Option<usize>,
    pub(super) name: String,
    pub(super) node: ConfigNode,
}

/// The same contents, wherever they are in a text.
impl PartialEq for ConfigNode {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// The same contents, wherever they are in a text.
impl PartialEq for NodeField {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.node == other.node
    }
}

/// Levels of lists and tables: a file has four, as in `limits`, `api`, `key`, a part of the key.
/// The bound keeps recursion over a hostile file short.
pub(super) const MAX_DEPTH: usize = 8;

/// Why a text is not a tree of values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TreeError {
    pub(super) at: Option<usize>,
    pub(super) text: String,
}

impl TreeError {
    pub(super) fn new(at: impl Into<Option<usize>>, text: impl Into<String>) -> Self {
        Self { at: at.into(), text: text.into() }
    }

    pub(super) fn too_deep(at: impl Into<Option<usize>>) -> Self {
        Self::new(
            at,
            format!(
                "lists and tables are nested too deep here (at most {MAX_DEPTH} levels are read)"
            ),
        )
    }
}

impl Number {
    /// A number of decimal digits, with a sign, a fraction or an exponent.
    pub(super) fn decimal(text: &str) -> Self {
        Self { text: text.to_owned(), whole: text.parse().ok() }
    }
}

impl ConfigNode {
    pub(super) const fn new(at: Option<usize>, value: NodeValue) -> Self {
        Self { at, value }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A value alone counts as a list of one.
    pub(super) fn items(&self) -> &[Self] {
        match &self.value {
            NodeValue::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }
}

/// What was given, as messages name it.
impl fmt::Display for ConfigNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            NodeValue::Nothing => f.write_str("nothing"),
            NodeValue::Flag(flag) => flag.fmt(f),
            NodeValue::Number(number) => write!(f, "the number {}", excerpt(&number.text)),
            NodeValue::Text(text) => write!(f, "the text \"{}\"", excerpt(text)),
            NodeValue::Date(date) => write!(f, "the time {date}"),
            NodeValue::List(_) => f.write_str("a list"),
            NodeValue::Table(_) => f.write_str("a table"),
        }
    }
}
