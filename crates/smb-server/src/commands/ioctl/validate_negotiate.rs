//! FSCTL_VALIDATE_NEGOTIATE_INFO (MS-SMB2 3.3.5.15.12).

use crate::directory::Directory;
use crate::exchange::Context;
use crate::state::State;
use smb::wire::{Dialect, Put, ValidateNegotiateRequest, ValidateNegotiateResponse};
use types::NtStatus;
use volume::backend::Backend;
use zerocopy::IntoBytes;

/// Answers the results of negotiation, signed, for the client to compare with those that it received.
/// `None`: the repeated request differs from the one received, so there is a man in the middle; or the
/// client has no space for the answer. Then the connection has to end.
pub(super) fn answer<B: Backend, D: Directory>(
    state: &State<B, D>,
    context: &Context,
    input: &[u8],
    output_max: usize,
) -> Result<Option<Vec<u8>>, NtStatus> {
    let found = state.connections.get(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
    let (request, dialects) = ValidateNegotiateRequest::parse(input)?;
    let dialect = found.dialect().ok_or(NtStatus::INVALID_PARAMETER)?;
    let config = &state.config;
    let chosen = dialects
        .filter_map(Dialect::from_wire)
        .filter(|dialect| (config.dialect_min..=config.dialect_max).contains(dialect))
        .max();
    if output_max < size_of::<ValidateNegotiateResponse>()
        || chosen != Some(dialect)
        || request.guid != found.client_guid
        || request.capabilities.get() != found.client_capabilities.bits()
        || request.security_mode.get() != found.client_security_mode.bits()
    {
        return Ok(None);
    }
    let answer = ValidateNegotiateResponse {
        capabilities: found.server_capabilities.bits().into(),
        guid: state.config.server_guid,
        security_mode: found.server_security_mode.bits().into(),
        dialect: (dialect as u16).into(),
    };
    let mut out = Vec::new();
    out.put(answer.as_bytes());
    Ok(Some(out))
}
