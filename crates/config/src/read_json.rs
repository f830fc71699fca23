//! JSON as a tree with places.
//!
//! `serde_json` tells no places, but a raw value borrows its part of the text: its distance from
//! the start is its place. Each level is read once more than the one around it, [`MAX_DEPTH`] times
//! at most.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::origin::ConfigOrigin;
use super::tree::{ConfigNode, MAX_DEPTH, NodeField, NodeValue, Number, TreeError};

pub(super) fn read(origin: &ConfigOrigin) -> Result<ConfigNode, TreeError> {
    let reader = JsonReader { origin };
    match serde_json::from_str(&origin.text) {
        Ok(root) => reader.node(root, 0),
        Err(error) => {
            Err(TreeError::new(origin.offset(error.line(), error.column()), not_json(&error)))
        }
    }
}

fn not_json(error: &serde_json::Error) -> String {
    // The library shows a place of its own after the message.
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message);
    format!("this is not JSON: {message}")
}

struct JsonReader<'t> {
    origin: &'t ConfigOrigin,
}

impl<'t> JsonReader<'t> {
    fn at(&self, raw: &RawValue) -> Option<usize> {
        raw.get().as_ptr().addr().checked_sub(self.origin.text.as_ptr().addr())
    }

    fn node(&self, raw: &'t RawValue, depth: usize) -> Result<ConfigNode, TreeError> {
        let (at, text) = (self.at(raw), raw.get());
        // A raw value is not checked in each detail, such as whether escapes are characters.
        let wrong = |error: serde_json::Error| TreeError::new(at, not_json(&error));
        let inner = depth.saturating_add(1);
        let value = match text.as_bytes().first() {
            Some(b'[' | b'{') if depth >= MAX_DEPTH => return Err(TreeError::too_deep(at)),
            Some(b'{') => {
                let fields = serde_json::Deserializer::from_str(text).deserialize_map(RawFields);
                let fields = fields.map_err(wrong)?.into_iter().map(|(name, value)| {
                    let (at, text) = (self.at(name), serde_json::from_str(name.get()));
                    let name = text.map_err(|error| TreeError::new(at, not_json(&error)))?;
                    Ok(NodeField { at, name, node: self.node(value, inner)? })
                });
                NodeValue::Table(fields.collect::<Result<_, _>>()?)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text).map_err(wrong)?;
                let items = items.into_iter().map(|item| self.node(item, inner));
                NodeValue::List(items.collect::<Result<_, _>>()?)
            }
            Some(b'"') => NodeValue::Text(serde_json::from_str(text).map_err(wrong)?),
            Some(b't') => NodeValue::Flag(true),
            Some(b'f') => NodeValue::Flag(false),
            Some(b'n') => NodeValue::Nothing,
            _ => NodeValue::Number(Number::decimal(text)),
        };
        Ok(ConfigNode::new(at, value))
    }
}

/// Reads the fields of an object, also those of the same name.
struct RawFields;

impl<'t> Visitor<'t> for RawFields {
    type Value = Vec<(&'t RawValue, &'t RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(fields)
    }
}
