//! Instants in the text form, for formats that people read.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use super::timestamp::Timestamp;

/// Writes the text form, such as `2026-01-31T12:00:00Z`.
impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads the text form.
impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TimestampVisitor)
    }
}

struct TimestampVisitor;

impl Visitor<'_> for TimestampVisitor {
    type Value = Timestamp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time in UTC like \"2026-01-31T12:00:00Z\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Timestamp, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_its_text_form() {
        let time = Timestamp::from_micros(1_769_860_800_500_000);
        let json = serde_json::to_string(&time).unwrap();
        assert_eq!(json, "\"2026-01-31T12:00:00.500000Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), time);
        let wrong_type = serde_json::from_str::<Timestamp>("5").unwrap_err().to_string();
        assert!(wrong_type.contains("expected a time in UTC like"), "{wrong_type}");
        let wrong_text = serde_json::from_str::<Timestamp>("\"5\"").unwrap_err().to_string();
        assert!(wrong_text.starts_with("`5` is not a time in UTC"), "{wrong_text}");
    }
}
