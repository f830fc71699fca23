//! The suite of all stores, on limits that are not leased: they pass straight through.

use crate::backend::{Leasing, Memory};

use super::driver::HOT;

crate::conformance!(|clock| Leasing::new(Memory::new().clock(clock)).lease(&HOT));
