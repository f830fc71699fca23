//! TOML as a tree with places.

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::origin::ConfigOrigin;
use super::tree::{ConfigNode, MAX_DEPTH, NodeField, NodeValue, Number, TreeError};

pub(super) fn read(origin: &ConfigOrigin) -> Result<ConfigNode, TreeError> {
    let table = DeTable::parse(&origin.text).map_err(|error| {
        let text = match error.message() {
            "duplicate key" => "this name is given twice (leave one out)".to_owned(),
            message => format!("this is not TOML: {message}"),
        };
        TreeError::new(error.span().map(|span| span.start), text)
    })?;
    Ok(ConfigNode::new(Some(0), fields(table.get_ref(), 1)?))
}

/// In the order of the text, as the table is sorted by names.
fn fields(table: &DeTable<'_>, depth: usize) -> Result<NodeValue, TreeError> {
    let field = |(name, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
        let (at, name) = (Some(name.span().start), name.get_ref().clone().into_owned());
        Ok(NodeField { at, name, node: node(value, depth)? })
    };
    let mut fields = table.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    fields.sort_by_key(|field| field.at);
    Ok(NodeValue::Table(fields))
}

fn node(value: &Spanned<DeValue<'_>>, depth: usize) -> Result<ConfigNode, TreeError> {
    let at = value.span().start;
    let value = match value.get_ref() {
        DeValue::Table(_) | DeValue::Array(_) if depth >= MAX_DEPTH => {
            return Err(TreeError::too_deep(at));
        }
        DeValue::String(text) => NodeValue::Text(text.clone().into_owned()),
        DeValue::Integer(number) => NodeValue::Number(Number {
            text: number.to_string(),
            whole: u64::from_str_radix(number.as_str(), number.radix()).ok(),
        }),
        DeValue::Float(number) => {
            NodeValue::Number(Number { text: number.to_string(), whole: None })
        }
        DeValue::Boolean(flag) => NodeValue::Flag(*flag),
        DeValue::Datetime(date) => NodeValue::Date(date.to_string()),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| node(item, depth.saturating_add(1)));
            NodeValue::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => fields(table, depth.saturating_add(1))?,
    };
    Ok(ConfigNode::new(Some(at), value))
}
