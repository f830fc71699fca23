//! The blocks that follow on refusals: a table.

use std::time::Duration;

use super::field_names::{BlockField, FieldName, LimitField};
use super::reader::{Given, Reader, Setting};
use super::tree::{ConfigNode, NodeValue};
use tollgate::Quota;
use tollgate::algebra::Bucket;
use tollgate::middleware::Rule;
use tollgate::quota::QuotaError;

/// When a key is blocked, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockSetting {
    refusals: u64,
    within: Duration,
    time: Duration,
    longest: Option<Duration>,
}

impl BlockSetting {
    pub(super) fn set(self, rule: Rule) -> Rule {
        let rule = rule.block_after(self.refusals, self.within, self.time);
        match self.longest {
            Some(longest) => rule.block_up_to(longest),
            None => rule,
        }
    }
}

pub(super) fn read(reader: &mut Reader<'_>, node: &ConfigNode) -> Option<Given<BlockSetting>> {
    let at = node.at;
    let NodeValue::Table(fields) = &node.value else {
        let example = "write a table: refusals = 5, within = \"10m\", time = \"1h\"";
        return reader.read(LimitField::BlockAfter, node, |_| Err(example.to_owned()));
    };
    let (mut refusals, mut within, mut time, mut longest) = (None, None, None, None);
    let mut reader = reader.inner("block_after.");
    reader.fields(fields, |reader, field: BlockField, given| {
        let node = &given.node;
        match field {
            BlockField::Refusals => refusals = reader.whole(field, node, 1..=u64::MAX),
            BlockField::Within => within = reader.time(field, node),
            BlockField::Time => time = reader.time(field, node),
            BlockField::Longest => longest = reader.time(field, node),
        }
    });
    let is_given = [refusals.is_some(), within.is_some(), time.is_some()];
    let needed = [BlockField::Refusals, BlockField::Within, BlockField::Time];
    for (field, _) in needed.into_iter().zip(is_given).filter(|(_, is_given)| !is_given) {
        let name = field.name();
        reader.mistake(
            at,
            format!("`block_after` has no `{name}` (it needs three: refusals, within, time)"),
        );
    }
    let has_longest = longest.is_some();
    let (refusals, within, time, longest) =
        (refusals.good(), within.good(), time.good(), longest.good());
    let (Some(refusals), Some(within), Some(time)) = (refusals, within, time) else {
        return Some(Given { at, value: None });
    };
    if has_longest && longest.is_none() {
        return Some(Given { at, value: None });
    }
    let setting = BlockSetting { refusals, within, time, longest };
    let value = match check(setting) {
        Ok(()) => Some(setting),
        Err(text) => {
            reader.mistake(at, text);
            None
        }
    };
    Some(Given { at, value })
}

/// Says what a rule would panic about.
fn check(BlockSetting { refusals, within, time, longest }: BlockSetting) -> Result<(), String> {
    if within.is_zero() || time.is_zero() {
        return Err("`block_after` has a time of zero (write a longer one)".to_owned());
    }
    let fits = |quota: Result<Quota, QuotaError>, text: &str| {
        let bucket = quota.and_then(|quota| Bucket::new(&quota));
        bucket.map(|_| ()).map_err(|error| format!("{text}: {error}"))
    };
    let count = Quota::try_fixed_window(refusals, within).map(Quota::from_first_use);
    fits(count, "`block_after` cannot count so many refusals in that time")?;
    let Some(longest) = longest else { return Ok(()) };
    if longest <= time {
        let text = "is not longer than `time` (write a longer time, or leave it out)";
        return Err(format!("`block_after.longest` {text}"));
    }
    fits(
        Quota::try_token_bucket(1, longest.saturating_mul(4)),
        "four times `block_after.longest` is too long",
    )
}
