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
            sick: name.statements("SELECT tollgate.sick($1, $2, $3)"),
            sweep: name.statements("SELECT table_pages FROM tollgate.sweep($1, $2, $3)"),
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

    /// A statement that decides, and waits no longer than so many milliseconds for a lock: a number, or
    /// a parameter.
    pub(super) fn call_within(&self, patience: &str) -> String {
        let text = format!("SELECT now, stored FROM tollgate.decide_within($1, $2, {patience})");
        self.name.statements(&text)
    }

    /// As [`call_within`](Self::call_within), and no longer than the connection says. The operators
    /// have the very types of those of the system: it runs with the search path of the caller.
    pub(super) fn call_within_both(&self, patience: &str) -> String {
        self.call_within(&format!(
            "least({patience}, nullif(pg_catalog.date_part('epoch', \
             pg_catalog.current_setting('lock_timeout')::pg_catalog.interval) \
             * 1000::pg_catalog.float8, 0::pg_catalog.float8)::pg_catalog.int4)"
        ))
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
