//! TREE_CONNECT (MS-SMB2 3.3.5.7).

use crate::directory::{Directory, Share};
use crate::exchange::{Context, Element, Step};
use crate::state::State;
use crate::state::keys::VolumeSlot;
use crate::state::policy::{self, Logon};
use crate::state::share_figures::FiguresSlot;
use crate::state::tree::{Target, Tree};
use smb::wire::{
    Dialect, Put, SHARE_TYPE_DISK, SHARE_TYPE_PIPE, SessionFlags, ShareCapabilities, ShareFlags,
    TreeConnectRequest, TreeConnectResponseBody,
};
use std::sync::Arc;
use types::NtStatus;
use volume::backend::{Backend, Operation, Reply, ShareOptions};

/// Access of all users to IPC$.
const PIPE_ACCESS: u32 = 0x001F_01FF;

/// A share that a session may use.
struct Admission {
    volume: VolumeSlot,
    share: Arc<Share>,
    logon: Logon,
}

/// A TREE_CONNECT that waits for the volume to find the share's root.
pub(crate) struct TreeConnectWork {
    volume: VolumeSlot,
    share: Arc<Share>,
}

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    element: Element<'_>,
) -> Result<Step<Box<TreeConnectWork>>, NtStatus> {
    // A man in the middle could lead a session to another share (MS-SMB2 3.3.5.7).
    let is_nobody =
        context.session(&state.sessions)?.flags.intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL);
    let is_protected = context.proof.is_some() || context.sealed_by.is_some();
    if context.dialect(&state.connections) == Dialect::Smb311 && !is_nobody && !is_protected {
        return Ok(Step::Disconnect);
    }
    let request = TreeConnectRequest::parse(element.bytes())?;
    let path = String::from_utf16(&request.path()?).map_err(|_| NtStatus::BAD_NETWORK_NAME)?;
    let share = path
        .strip_prefix(r"\\")
        .and_then(|rest| rest.split_once('\\'))
        .map(|(_, share)| share)
        .ok_or(NtStatus::BAD_NETWORK_NAME)?;
    if share.is_empty() || share.contains('\\') {
        return Err(NtStatus::BAD_NETWORK_NAME);
    }
    if share.eq_ignore_ascii_case("IPC$") {
        // A node of the cluster needs one share only; pipes expose accounts and shares, which it does not
        // need.
        if context.session(&state.sessions)?.is_node() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let tree = Tree {
            target: Target::Pipe,
            access: PIPE_ACCESS,
            encrypt: false,
            figures: FiguresSlot::default(),
        };
        return connect(state, context, tree);
    }
    let Admission { volume, share, .. } = admit(state, context, share)?;
    let operation = Operation::OpenRoot { path: share.path.encode_utf16().collect() };
    let work = Box::new(TreeConnectWork { volume, share });
    Ok(Step::Submit { volume, operation, work })
}

/// Whether the session may use the share of that name, as accounts and shares are now.
fn admit<B: Backend, D: Directory>(
    state: &State<B, D>,
    context: &Context,
    name: &str,
) -> Result<Admission, NtStatus> {
    let share = state.directory.share(name).ok_or(NtStatus::BAD_NETWORK_NAME)?;
    let volume = state.volumes.slot_of(share.volume).ok_or(NtStatus::BAD_NETWORK_NAME)?;
    let session = context.session(&state.sessions)?;
    let logon = Logon::of(session);
    if policy::access_of(&share, &session.token) == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // A client that cannot encrypt must not reach shares for encrypted requests only (MS-SMB2 3.3.5.7).
    if share.encrypt && session.opening.is_none() {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(Admission { volume, share, logon })
}

/// The volume has found the directory that is the share's root, or has not.
pub(crate) fn resume<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    work: &TreeConnectWork,
    result: Result<Reply, NtStatus>,
) -> Result<Step<Box<TreeConnectWork>>, NtStatus> {
    let TreeConnectWork { volume, share: asked } = work;
    let root = match result {
        Ok(Reply::Root(root)) => root,
        Err(NtStatus::CANCELLED) => return Err(NtStatus::CANCELLED),
        other => {
            let status = other.err().unwrap_or(NtStatus::IO_REPARSE_TAG_NOT_HANDLED);
            if is_about_the_path(status) {
                tracing::warn!(
                    share = asked.name,
                    path = asked.path,
                    %status,
                    "a client is refused: the share's path is no directory of its volume"
                );
            } else {
                tracing::info!(
                    share = asked.name,
                    %status,
                    "a client is refused: this server does not serve the share's volume at the moment"
                );
            }
            return Err(NtStatus::BAD_NETWORK_NAME);
        }
    };
    // Nobody could use or end a tree connect of a lost connection.
    if !state.connections.contains(context.connection) {
        return Err(NtStatus::CONNECTION_DISCONNECTED);
    }
    // The share may have been changed meanwhile: then the directory is not its root any more.
    let Admission { volume: now_on, share, logon } = admit(state, context, &asked.name)?;
    if now_on != *volume || share.path != asked.path {
        return Err(NtStatus::BAD_NETWORK_NAME);
    }
    connect(state, context, policy::tree_of(*volume, root, share, logon))
}

/// Whether the volume searched for the share's directory and did not find it. Any other status means
/// that it could not search, as while it moves to another server.
fn is_about_the_path(status: NtStatus) -> bool {
    matches!(
        status,
        NtStatus::OBJECT_NAME_NOT_FOUND
            | NtStatus::OBJECT_PATH_NOT_FOUND
            | NtStatus::OBJECT_NAME_INVALID
            | NtStatus::NOT_A_DIRECTORY
            | NtStatus::STOPPED_ON_SYMLINK
            | NtStatus::IO_REPARSE_TAG_NOT_HANDLED
    )
}

/// Returns a share's capabilities for a client (MS-SMB2 3.3.5.7).
fn capabilities_of(options: ShareOptions, dialect: Dialect) -> ShareCapabilities {
    let mut capabilities = ShareCapabilities::empty();
    if options.continuously_available && dialect >= Dialect::Smb300 {
        capabilities |= ShareCapabilities::CONTINUOUS_AVAILABILITY | ShareCapabilities::CLUSTER;
        capabilities.set(ShareCapabilities::SCALEOUT, options.scale_out);
        capabilities.set(ShareCapabilities::ASYMMETRIC, options.scale_out && dialect >= Dialect::Smb302);
    }
    capabilities
}

fn connect<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    mut tree: Tree,
) -> Result<Step<Box<TreeConnectWork>>, NtStatus> {
    let dialect = context.dialect(&state.connections);
    let is_smb3 = dialect >= Dialect::Smb300;
    let mut flags = ShareFlags::empty();
    let capabilities = capabilities_of(tree.options(), dialect);
    let share_type = match &tree.target {
        Target::Pipe => {
            flags |= ShareFlags::NO_CACHING;
            SHARE_TYPE_PIPE
        }
        Target::Disk { share, .. } => {
            flags.set(ShareFlags::NO_CACHING, share.options.no_caching);
            flags.set(ShareFlags::ACCESS_BASED_DIRECTORY_ENUM, share.options.access_based_enumeration);
            flags.set(ShareFlags::ENCRYPT_DATA, share.encrypt && is_smb3);
            SHARE_TYPE_DISK
        }
    };
    if let Target::Disk { volume, share, .. } = &tree.target {
        tree.figures = state.share_figures.slot_of(&share.name, state.volumes.id_of(*volume));
    }
    let maximal_access = tree.access;
    let trees_max = state.config.limits.trees_per_session;
    let id = state.sessions.connect_tree(context.session_key()?, tree, trees_max)?;
    context.tree_id = id;
    context.to.tree_id = id;
    let mut body = Vec::new();
    body.put(&TreeConnectResponseBody {
        share_type,
        share_flags: flags.bits().into(),
        capabilities: capabilities.bits().into(),
        maximal_access: maximal_access.into(),
        ..Default::default()
    });
    Ok(Step::ok(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_on_its_way_to_another_server_is_not_said_to_lack_the_directory() {
        assert!(is_about_the_path(NtStatus::OBJECT_PATH_NOT_FOUND));
        for away in
            [NtStatus::BAD_NETWORK_NAME, NtStatus::CONNECTION_DISCONNECTED, NtStatus::DEVICE_NOT_READY]
        {
            assert!(!is_about_the_path(away), "{away}");
        }
    }
}
