//! TREE_DISCONNECT (MS-SMB2 3.3.5.8).

use crate::directory::Directory;
use crate::exchange::{Context, Element, Step};
use crate::state::State;
use smb::wire::Empty;
use std::convert::Infallible;
use types::{Monotonic, NtStatus};
use volume::backend::Backend;

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    element: Element<'_>,
    now: Monotonic,
) -> Result<Step<Infallible>, NtStatus> {
    Empty::parse(element.bytes())?;
    state.end_tree(context.session_key()?, context.tree_id, now);
    Ok(Step::empty())
}
