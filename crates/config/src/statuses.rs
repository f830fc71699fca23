//! Statuses of responses: `401`, `4xx`, `success`.

use http::StatusCode;

use super::tree::{ConfigNode, NodeValue};
use tollgate::middleware::ResponseHead;

/// Some statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusPattern {
    Exact(StatusCode),
    /// All statuses with this first digit.
    Class(u16),
    /// As [`ResponseHead::is_success`] says, which knows gRPC.
    Success,
}

impl StatusPattern {
    /// One of them, or the way out.
    pub(super) fn read(node: &ConfigNode) -> Result<Self, String> {
        let status = match &node.value {
            NodeValue::Number(number) => number.whole.and_then(|code| u16::try_from(code).ok()),
            _ => None,
        };
        match node.text() {
            Some("success") => return Ok(Self::Success),
            Some("1xx") => return Ok(Self::Class(1)),
            Some("2xx") => return Ok(Self::Class(2)),
            Some("3xx") => return Ok(Self::Class(3)),
            Some("4xx") => return Ok(Self::Class(4)),
            Some("5xx") => return Ok(Self::Class(5)),
            _ => {}
        }
        let status = status.filter(|code| (100..=599).contains(code));
        let status = status.and_then(|code| StatusCode::from_u16(code).ok());
        status.map(Self::Exact).ok_or_else(|| {
            "write a status from 100 to 599, a class such as \"4xx\", or \"success\"".to_owned()
        })
    }

    pub(super) fn has(self, response: &ResponseHead<'_>) -> bool {
        match self {
            Self::Exact(status) => response.status() == status,
            Self::Class(first) => response.status().as_u16().checked_div(100) == Some(first),
            Self::Success => response.is_success(),
        }
    }
}
