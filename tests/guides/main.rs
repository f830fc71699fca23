//! What the guides say of their code, tried. A file here begins with a block of its guide, to the
//! letter, and has the tests of that block below; `tests/layers` compares the two. So the blocks of
//! the guides have no lines that only tests need.

#![allow(dead_code, reason = "a block of a guide has more than its tests use")]

mod headers {
    mod export;
}
mod layers {
    mod order;
}
mod looking_in {
    mod report;
}
mod predicting {
    mod route;
}
mod recipes {
    mod cors;
    mod flag;
    mod left;
    mod nested;
    mod orders;
    mod orders_in_a_handler;
    mod plans;
    mod sse;
    mod switch;
    mod websocket;
}
mod several_limits {
    mod paused;
}
mod write_your_own_backend {
    mod list;
}
