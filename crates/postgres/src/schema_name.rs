//! The name of the schema that holds the tables and the functions, and the names of these.

use std::fmt;

/// The version of the functions, with which their names end. So the functions of several versions are
/// there side by side, and processes of these as well. The table is that of all.
pub(super) const VERSION: i32 = 4;

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

    /// Statements of this schema. In `text`, as in the files, `tollgate` stands for its name, and the
    /// names of functions have no version.
    pub(super) fn statements(&self, text: &str) -> String {
        let text = text.replace("('tollgate')", &format!("('{self}')"));
        let text = text.replace("SCHEMA tollgate", &format!("SCHEMA {self}"));
        let (schema, version) = (self.to_string(), format!("_{VERSION}"));
        let mut parts = text.split("tollgate.");
        let mut statements = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let is_end = |byte: char| byte != '_' && !byte.is_ascii_alphanumeric();
            let end = part.find(is_end).unwrap_or(part.len());
            let (name, rest) = part.split_at_checked(end).unwrap_or((part, ""));
            let version = if rest.starts_with('(') { version.as_str() } else { "" };
            statements.extend([schema.as_str(), ".", name, version, rest]);
        }
        statements
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
    fn names_of_functions_end_with_their_version() {
        let schema = SchemaName::new("limits").unwrap();
        let text = "CREATE SCHEMA tollgate; SELECT tollgate.f(ts), 'tollgate.t' FROM tollgate.t (x) \
                    WHERE f(1) AND to_regnamespace('tollgate') IS NULL; SELECT tollgate.f";
        let named = "CREATE SCHEMA \"limits\"; SELECT \"limits\".f_4(ts), '\"limits\".t' FROM \
                     \"limits\".t (x) WHERE f(1) AND to_regnamespace('\"limits\"') IS NULL; SELECT \
                     \"limits\".f";
        assert_eq!(schema.statements(text), named);
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
