//! JavaScript that talks to Tollgate: the predictor under Node, and the playground in Chromium.
//!
//! The programs are installed by `scripts/clients` and `scripts/browser`.

#![cfg(all(feature = "memory", feature = "axum"))]

mod chromium;
mod node;
mod playground;
mod predictor;
mod stage;
