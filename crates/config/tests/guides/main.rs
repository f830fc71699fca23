//! What the guide says of its code, tried: see `tests/guides` of the root.

#![allow(dead_code, reason = "a block of a guide has more than its tests use")]

mod configuration {
    mod app;
    mod plans;
}
