//! ECHO (MS-SMB2 3.3.5.17).

use crate::exchange::{Element, Step};
use smb::wire::Empty;
use std::convert::Infallible;
use types::NtStatus;

pub(crate) fn start(element: Element<'_>) -> Result<Step<Infallible>, NtStatus> {
    Empty::parse(element.bytes())?;
    Ok(Step::empty())
}
