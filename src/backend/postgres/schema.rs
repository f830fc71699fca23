//! The statements that name the schema of the table and the functions.

use std::time::Duration;

use super::schema_name::SchemaName;

/// A schema, and the statements with its name.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    name: SchemaName,
    call: String,
    sick: String,
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
            call: name.statements("SELECT now, stored FROM tollgate.decide($1, $2)"),
            sick: name.statements("SELECT tollgate.sick($1, $2)"),
            sweep: name.statements("SELECT table_pages FROM tollgate.sweep($1, $2)"),
            debtors: name
                .statements("SELECT now, last, keys, stored FROM tollgate.debtors($1, $2, $3, $4)"),
            name,
        })
    }

    pub(super) const fn name(&self) -> &SchemaName {
        &self.name
    }

    /// The statement that decides, and waits for locks as long as the connection says.
    pub(super) fn call(&self) -> &str {
        &self.call
    }

    /// A statement that decides, and waits no longer than this for a lock.
    pub(super) fn call_within(&self, patience: Duration) -> String {
        self.decide_within(&format!("'{}'", millis(patience)))
    }

    /// As [`call_within`](Self::call_within), where the connection says nothing.
    pub(super) fn call_within_unless_set(&self, patience: Duration) -> String {
        let (set, patience) = ("pg_catalog.current_setting('lock_timeout')", millis(patience));
        self.decide_within(&format!("CASE {set} WHEN '0' THEN '{patience}' ELSE {set} END"))
    }

    fn decide_within(&self, patience: &str) -> String {
        let text = "SELECT now, stored FROM tollgate.decide_within($1, $2, ";
        format!("{}{patience})", self.name.statements(text))
    }

    /// The statement that names the rows that fail a call.
    pub(super) fn sick(&self) -> &str {
        &self.sick
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

/// A time as settings have it: whole milliseconds, and at least one, as 0 is no limit.
pub(super) fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1)
}
