//! Limits that are leased, as callers see them.

mod calls;
