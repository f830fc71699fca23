//! The formula, the text form of quotas, and recorded decisions of another implementation.

mod any_numbers;
#[cfg(feature = "calendar")]
mod calendars;
#[cfg(feature = "memory")]
mod edges;
mod first_use;
mod pairs;
#[cfg(feature = "memory")]
mod plans;
mod text_form;
#[cfg(feature = "memory")]
mod vectors;
