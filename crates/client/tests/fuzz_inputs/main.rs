//! What clients read of responses, compared with a second reader that is slow and simple; as the tests of
//! this name in the root.

mod responses;
mod retry_after;
