//! YAML as a tree with places.
//!
//! The tree is built from the events of a parser, which keeps its own nesting within a bound.
//! Aliases are an error: so a file has no more values than it has text for, and no entry depends on
//! another.

use granit_parser::{Event, Parser, ScalarStyle, Span, options};

use super::origin::ConfigOrigin;
use super::tree::{ConfigNode, MAX_DEPTH, NodeField, NodeValue, Number, TreeError};

pub(super) fn read(origin: &ConfigOrigin) -> Result<ConfigNode, TreeError> {
    let options = options! {
        disallow_directives: true,
        emit_comments: false,
        emit_unresolved_aliases: true,
        // One level more than is read, so that our own error says how many there may be.
        flow_nesting_limit: MAX_DEPTH.saturating_add(1),
        block_nesting_limit: MAX_DEPTH.saturating_add(1),
    };
    let mut builder = TreeBuilder::default();
    for event in Parser::new_from_str_with_options(&origin.text, options) {
        let (event, span) = event.map_err(|error| {
            TreeError::new(
                error.marker().byte_offset(),
                format!("this is not YAML: {}", error.info()),
            )
        })?;
        builder.take(event, span)?;
    }
    Ok(builder.root.unwrap_or(ConfigNode::new(Some(0), NodeValue::Nothing)))
}

#[derive(Default)]
struct TreeBuilder {
    root: Option<ConfigNode>,
    /// The lists and tables that are open, outermost first.
    open: Vec<OpenNode>,
    documents: usize,
}

struct OpenNode {
    at: Option<usize>,
    parts: OpenParts,
}

enum OpenParts {
    Items(Vec<ConfigNode>),
    /// The fields, and the name of the one whose value is next.
    Fields(Vec<NodeField>, Option<(Option<usize>, String)>),
}

impl TreeBuilder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), TreeError> {
        let at = span.start.byte_offset();
        if event.tag().is_some() {
            let at = span.tag_start().and_then(|tag| tag.byte_offset()).or(at);
            return Err(TreeError::new(at, "tags are not supported (leave it out)"));
        }
        match event {
            Event::DocumentStart(..) => {
                self.documents = self.documents.saturating_add(1);
                if self.documents > 1 {
                    let text = "a second document begins here (a file has one; remove the `---`)";
                    return Err(TreeError::new(at, text));
                }
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                return Err(TreeError::new(at, "aliases are not supported (write the value out)"));
            }
            Event::Scalar(text, style, ..) => {
                let value = match style {
                    ScalarStyle::Plain => plain(&text),
                    _ => NodeValue::Text(text.into_owned()),
                };
                self.put(ConfigNode::new(at, value), span.is_empty())?;
            }
            Event::SequenceStart(..) => self.open(at, OpenParts::Items(Vec::new()))?,
            Event::MappingStart(..) => self.open(at, OpenParts::Fields(Vec::new(), None))?,
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(OpenNode { at, parts }) = self.open.pop() {
                    let value = match parts {
                        OpenParts::Items(items) => NodeValue::List(items),
                        OpenParts::Fields(fields, _) => NodeValue::Table(fields),
                    };
                    self.put(ConfigNode::new(at, value), false)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, at: Option<usize>, parts: OpenParts) -> Result<(), TreeError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(TreeError::too_deep(at));
        }
        self.open.push(OpenNode { at, parts });
        Ok(())
    }

    /// Puts a value where the next one belongs. One that is not written stands where its name does.
    fn put(&mut self, node: ConfigNode, is_absent: bool) -> Result<(), TreeError> {
        match self.open.last_mut().map(|open| &mut open.parts) {
            None => self.root = Some(node),
            Some(OpenParts::Items(items)) => items.push(node),
            Some(OpenParts::Fields(fields, next)) => match next.take() {
                Some((at, name)) => {
                    let place = if is_absent { at } else { node.at };
                    let node = ConfigNode { at: place, ..node };
                    fields.push(NodeField { at, name, node });
                }
                None => {
                    let name = name(&node)?;
                    *next = Some((node.at, name));
                }
            },
        }
        Ok(())
    }
}

/// The name of a field, which may look like another value, such as `10`.
fn name(node: &ConfigNode) -> Result<String, TreeError> {
    match &node.value {
        NodeValue::Text(text) => Ok(text.clone()),
        NodeValue::Number(number) => Ok(number.text.clone()),
        NodeValue::Flag(flag) => Ok(flag.to_string()),
        _ => Err(TreeError::new(
            node.at,
            format!("a name is text here, and this is {node} (write text)"),
        )),
    }
}

/// A scalar without quotes, by the core schema of YAML 1.2. `no` and `off` are text there.
fn plain(text: &str) -> NodeValue {
    let whole = |digits: &str, radix| {
        let is_plain =
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
    };
    let number = |whole| NodeValue::Number(Number { text: text.to_owned(), whole });
    match text {
        "" | "~" | "null" | "Null" | "NULL" => NodeValue::Nothing,
        "true" | "True" | "TRUE" => NodeValue::Flag(true),
        "false" | "False" | "FALSE" => NodeValue::Flag(false),
        _ => match (text.strip_prefix("0o"), text.strip_prefix("0x")) {
            (Some(digits), _) if whole(digits, 8).is_some() => number(whole(digits, 8)),
            (_, Some(digits)) if whole(digits, 16).is_some() => number(whole(digits, 16)),
            _ if is_decimal(text) => number(text.trim_start_matches('+').parse().ok()),
            _ => NodeValue::Text(text.to_owned()),
        },
    }
}

/// Whether a text is a decimal number, with a sign, a fraction or an exponent. The parser of floats
/// also reads words, such as `inf`.
fn is_decimal(text: &str) -> bool {
    let part = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    text.bytes().all(part)
        && text.bytes().any(|byte| byte.is_ascii_digit())
        && text.parse::<f64>().is_ok()
}
