//! What the responses of a layer with one limit have in common.

use std::sync::Arc;

use super::call_response::ResponseStyle;
use crate::fields::LoneTemplate;

/// The fields and the refusals of a layer with one limit, as far as all requests share them.
pub(super) struct LoneResponse {
    pub(super) template: LoneTemplate,
    /// The style of the layer, if it words the errors that handlers return.
    pub(super) restyling: Option<Arc<ResponseStyle>>,
}
