//! TREE_DISCONNECT (MS-SMB2 3.3.5.8).

use crate::directory::Directory;
use crate::exchange::{Context, Step};
use crate::state::State;
use std::convert::Infallible;
use types::{Monotonic, NtStatus};
use volume::backend::Backend;

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    now: Monotonic,
) -> Result<Step<Infallible>, NtStatus> {
    state.end_tree(context.session_key()?, context.tree_id, now);
    Ok(Step::empty())
}
