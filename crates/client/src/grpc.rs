//! Refusals in gRPC: a status of its own, and the wait in details that are protocol buffers.

use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::ASSUMED_WAIT;
use super::fields::Fields;
use super::reading::Assumed;
use super::times;

#[derive(Clone, Copy, Debug)]
pub(super) struct GrpcRefusal {
    pub(super) wait: Option<Duration>,
    /// `UNAVAILABLE`, which is like a 503.
    pub(super) is_unavailable: bool,
    pub(super) is_final: bool,
}

/// The refusal, if the head of the response has a status that is one: `RESOURCE_EXHAUSTED` or
/// `UNAVAILABLE`. A status in the trailers is not known yet.
pub(super) fn refusal(fields: &mut Fields<'_>) -> Option<GrpcRefusal> {
    let status = fields.text("grpc-status").filter(|status| matches!(*status, "8" | "14"))?;
    let is_unavailable = status == "14";
    // A pushback that is negative, or no number, asks not to send the request again.
    let mut pushbacks = fields.headers.get_all("grpc-retry-pushback-ms").iter().peekable();
    if pushbacks.peek().is_some() {
        let wait = pushbacks.try_fold(Duration::ZERO, |longest, value| {
            let text = value.to_str().ok()?;
            Some(longest.max(times::millis(text.trim_matches([' ', '\t']))?))
        });
        return Some(GrpcRefusal { wait, is_unavailable, is_final: wait.is_none() });
    }
    let details = fields.read("grpc-status-details-bin", Assumed::Wait, |text| {
        retry_delay(&BASE64.decode(text).ok()?)
    });
    // Details without a `RetryInfo` name no wait.
    let wait = details.unwrap_or(Some(Some(ASSUMED_WAIT))).flatten();
    Some(GrpcRefusal { wait, is_unavailable, is_final: false })
}

/// The delay of the `google.rpc.RetryInfo` in a `google.rpc.Status`; the outer `None` if the bytes
/// are no such message.
///
/// Five fields of the wire format do not justify a dependency.
fn retry_delay(status: &[u8]) -> Option<Option<Duration>> {
    for detail in fields_of(status)?.into_iter().filter_map(|field| field.bytes(3)) {
        let any = fields_of(detail)?;
        let url = any.iter().find_map(|field| field.bytes(1)).unwrap_or_default();
        if !url.ends_with(b"/google.rpc.RetryInfo") {
            continue;
        }
        let info = fields_of(any.iter().find_map(|field| field.bytes(2)).unwrap_or_default())?;
        let delay = fields_of(info.iter().find_map(|field| field.bytes(1)).unwrap_or_default())?;
        let number = |field| delay.iter().find_map(|one| one.number(field)).unwrap_or(0);
        // Both numbers are signed; below zero, the delay has passed.
        let [seconds, nanos] = [number(1), number(2)].map(u64::cast_signed);
        let nanos = u32::try_from(nanos).unwrap_or(0).min(999_999_999);
        return Some(Some(Duration::new(u64::try_from(seconds).unwrap_or(0), nanos)));
    }
    Some(None)
}

struct WireField<'b> {
    number: u64,
    value: WireValue<'b>,
}

enum WireValue<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

impl<'b> WireField<'b> {
    fn bytes(&self, number: u64) -> Option<&'b [u8]> {
        match self.value {
            WireValue::Bytes(bytes) if self.number == number => Some(bytes),
            _ => None,
        }
    }

    fn number(&self, number: u64) -> Option<u64> {
        match self.value {
            WireValue::Number(value) if self.number == number => Some(value),
            _ => None,
        }
    }
}

/// The fields of a message; those of fixed lengths are left out.
fn fields_of(mut message: &[u8]) -> Option<Vec<WireField<'_>>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let number = tag >> 3;
        let value = match tag & 7 {
            0 => WireValue::Number(varint(&mut message)?),
            1 => WireValue::Bytes(message.split_off(..8)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                WireValue::Bytes(message.split_off(..length)?)
            }
            5 => WireValue::Bytes(message.split_off(..4)?),
            _ => return None,
        };
        if tag & 7 <= 2 && tag & 7 != 1 {
            fields.push(WireField { number, value });
        }
    }
    Some(fields)
}

/// Seven bits in each byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7f).wrapping_shl(shift);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// gRPC leaves out the padding, and accepts it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
