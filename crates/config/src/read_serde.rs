//! A part of another configuration as a tree, through serde; without places.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::tree::{ConfigNode, MAX_DEPTH, NodeField, NodeValue, Number, TreeError};

/// Reads a value of any type at this depth.
#[derive(Clone, Copy)]
pub(super) struct NodeReader {
    depth: usize,
}

impl NodeReader {
    pub(super) const fn root() -> Self {
        Self { depth: 0 }
    }

    fn inner<E: Error>(self) -> Result<Self, E> {
        match self.depth < MAX_DEPTH {
            true => Ok(Self { depth: self.depth.saturating_add(1) }),
            false => Err(E::custom(TreeError::too_deep(None).text)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for NodeReader {
    type Value = ConfigNode;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ConfigNode, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeReader {
    type Value = ConfigNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fields of a configuration, such as `limits`")
    }

    fn visit_unit<E: Error>(self) -> Result<ConfigNode, E> {
        Ok(ConfigNode::new(None, NodeValue::Nothing))
    }

    fn visit_none<E: Error>(self) -> Result<ConfigNode, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<ConfigNode, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<ConfigNode, E> {
        Ok(ConfigNode::new(None, NodeValue::Flag(flag)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<ConfigNode, E> {
        let number = Number { text: number.to_string(), whole: Some(number) };
        Ok(ConfigNode::new(None, NodeValue::Number(number)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<ConfigNode, E> {
        let number = Number { text: number.to_string(), whole: u64::try_from(number).ok() };
        Ok(ConfigNode::new(None, NodeValue::Number(number)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<ConfigNode, E> {
        let number = Number { text: number.to_string(), whole: None };
        Ok(ConfigNode::new(None, NodeValue::Number(number)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ConfigNode, E> {
        Ok(ConfigNode::new(None, NodeValue::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ConfigNode, A::Error> {
        let (inner, mut items) = (self.inner()?, Vec::new());
        while let Some(item) = list.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(ConfigNode::new(None, NodeValue::List(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ConfigNode, A::Error> {
        let (inner, mut fields) = (self.inner()?, Vec::new());
        while let Some(name) = map.next_key()? {
            fields.push(NodeField { at: None, name, node: map.next_value_seed(inner)? });
        }
        // A date of TOML comes as a table with one field of this name.
        let value = match &*fields {
            [NodeField { name, node, .. }] if name == "$__toml_private_datetime" => {
                NodeValue::Date(node.text().unwrap_or_default().to_owned())
            }
            _ => NodeValue::Table(fields),
        };
        Ok(ConfigNode::new(None, value))
    }
}
