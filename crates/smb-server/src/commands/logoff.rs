//! LOGOFF (MS-SMB2 3.3.5.6).

use crate::exchange::{Context, Element, Step};
use crate::state::sessions::{SessionState, Sessions};
use smb::wire::Empty;
use std::convert::Infallible;
use types::NtStatus;

/// Marks the session as ended. The answer still needs its keys: the session is removed once that is
/// queued.
pub(crate) fn start(
    sessions: &mut Sessions,
    context: &Context,
    element: Element<'_>,
) -> Result<Step<Infallible>, NtStatus> {
    Empty::parse(element.bytes())?;
    context.session_mut(sessions)?.state = SessionState::Ended;
    Ok(Step::empty())
}
