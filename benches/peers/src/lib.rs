//! What the program and its counting twin share.

pub mod cold;
pub mod keys;
pub mod machine;
pub mod peers;
pub mod plot;
pub mod report;
pub mod rounds;
pub mod smoke;
pub mod works;
