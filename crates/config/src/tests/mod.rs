//! The names of fields, in the reader, the reference and the schema.

mod reference;
mod suggestions;
