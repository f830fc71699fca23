//! The statements that name the schema of the table and the functions.

use super::schema_name::SchemaName;

/// A schema, and the statements with its name.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    name: SchemaName,
    call: String,
    sweep: String,
    debtors: String,
}

impl Schema {
    /// # Errors
    ///
    /// As [`SchemaName::new`].
    pub(super) fn new(name: &str) -> Result<Self, String> {
        let name = SchemaName::new(name)?;
        Ok(Self {
            call: format!("SELECT now, stored FROM {name}.decide($1, $2)"),
            sweep: format!("SELECT table_pages FROM {name}.sweep($1, $2)"),
            debtors: format!("SELECT now, last, keys, stored FROM {name}.debtors($1, $2, $3, $4)"),
            name,
        })
    }

    pub(super) const fn name(&self) -> &SchemaName {
        &self.name
    }

    /// The statement that decides.
    pub(super) fn call(&self) -> &str {
        &self.call
    }

    /// The statement that lists what may be in debt.
    pub(super) fn debtors(&self) -> &str {
        &self.debtors
    }

    /// The statement that removes what is full again.
    pub(super) fn sweep(&self) -> &str {
        &self.sweep
    }
}
