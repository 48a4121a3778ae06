//! LOGOFF (MS-SMB2 3.3.5.6).

use crate::exchange::{Context, Step};
use crate::state::sessions::{SessionState, Sessions};
use std::convert::Infallible;
use types::NtStatus;

/// Marks the session as ended. It goes when the answer, which still needs its keys, is on its way.
pub(crate) fn start(sessions: &mut Sessions, context: &Context) -> Result<Step<Infallible>, NtStatus> {
    context.session_mut(sessions)?.state = SessionState::Ended;
    Ok(Step::empty())
}
