//! The suite of all stores, on limits that are not leased: they pass straight through.

use crate::Leasing;
use tollgate::backend::Memory;

use super::driver::HOT;

tollgate_conformance::conformance!(
    |clock| Leasing::new(Memory::new().clock(clock)).lease(&HOT.limit())
);
