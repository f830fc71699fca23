//! The name of the schema that holds the tables and the functions.

use std::fmt;

/// The name of a schema that can stand in statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SchemaName(String);

impl SchemaName {
    /// The schema that the files name.
    pub(super) const DEFAULT: &str = "tollgate";

    /// # Errors
    ///
    /// If the name is not one to 63 letters, digits and underscores of ASCII, begins with a digit, or
    /// begins with `pg_`, which PostgreSQL reserves. The error says so.
    pub(super) fn new(name: &str) -> Result<Self, String> {
        let is_plain = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
        let is_begun_well = name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        let is_reserved = name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("pg_"));
        if !is_begun_well || name.len() > 63 || is_reserved || !name.bytes().all(is_plain) {
            return Err(format!(
                "the schema {name:?} cannot be used (use 1 to 63 letters, digits and underscores of \
                 ASCII that begin neither with a digit nor with `pg_`)"
            ));
        }
        Ok(Self(name.to_owned()))
    }
}

/// Writes the name in quotes, as statements need it.
impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_need_no_escape_are_quoted() {
        for name in [SchemaName::DEFAULT, "_x9", "Limits", &"a".repeat(63)] {
            assert_eq!(SchemaName::new(name).unwrap().to_string(), format!("\"{name}\""));
        }
    }

    #[test]
    fn other_names_are_rejected_with_the_way_out() {
        for name in
            ["", "9x", "a b", "a\"b", "a'b", "a.b", "a$$b", "pg_x", "PG_x", "ä", &"a".repeat(64)]
        {
            let told = SchemaName::new(name).unwrap_err();
            assert!(told.contains(&format!("{name:?}")) && told.contains("use 1 to 63"), "{told}");
        }
    }
}
