//! JavaScript that talks to Tollgate: the predictor under Node, and the playground in Chromium.
//!
//! The programs are installed by `scripts/programs`.

mod chromium;
mod node;
mod playground;
mod predictor;
mod stage;
