//! Leasing.

mod node;
mod terms;
#[cfg(test)]
mod tests;
