//! TREE_CONNECT and TREE_DISCONNECT (MS-SMB2 3.3.5.7, 3.3.5.8).

use crate::directory::Directory;
use crate::dispatch::Element;
use crate::policy::{self, Logon};
use crate::request::{Chain, Context, Step};
use crate::server::{Server, UNATTENDED};
use crate::session::{Target, Tree};
use smb::wire::{
    Dialect, Empty, EmptyBody, Put, SHARE_TYPE_DISK, SHARE_TYPE_PIPE, SessionFlags, ShareCapabilities,
    ShareFlags, TreeConnectRequest, TreeConnectResponseBody,
};
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, Operation};

/// What anybody who logged on may do on IPC$.
const PIPE_ACCESS: u32 = 0x001F_01FF;

impl<B: Backend, D: Directory> Server<B, D> {
    pub(crate) fn handle_tree_connect(
        &mut self,
        context: &mut Context,
        chain: &mut Chain,
        element: Element<'_>,
    ) -> Result<Step, NtStatus> {
        // Whoever stands between could lead a session to another share (MS-SMB2 3.3.5.7).
        let is_nobody =
            self.session_of(context)?.flags.intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL);
        let is_protected = context.proof.is_some() || context.sealed_by != 0;
        if self.dialect_of(context) == Dialect::Smb311 && !is_nobody && !is_protected {
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
        let dialect = self.dialect_of(context);
        let mut flags = ShareFlags::empty();
        let mut capabilities = ShareCapabilities::empty();
        let (tree, share_type) = if share.eq_ignore_ascii_case("IPC$") {
            flags |= ShareFlags::NO_CACHING;
            (Tree { target: Target::Pipe, access: PIPE_ACCESS, encrypt: false }, SHARE_TYPE_PIPE)
        } else {
            let share = self.directory.share(share).ok_or(NtStatus::BAD_NETWORK_NAME)?;
            let volume = self
                .volumes
                .iter()
                .position(|volume| volume.id == share.volume && volume.backend.is_some())
                .ok_or(NtStatus::BAD_NETWORK_NAME)?;
            let session = self.session_of(context)?;
            let logon = Logon::of(session).ok_or(NtStatus::USER_SESSION_DELETED)?;
            let tree = policy::tree_of(volume, share.clone(), logon);
            if tree.access == 0 {
                return Err(NtStatus::ACCESS_DENIED);
            }
            // A client that cannot encrypt must not reach what only encrypted requests may (MS-SMB2 3.3.5.7).
            if share.encrypt && session.opening.is_none() {
                return Err(NtStatus::ACCESS_DENIED);
            }
            if share.options.no_caching {
                flags |= ShareFlags::NO_CACHING;
            }
            if share.options.access_based_enumeration {
                flags |= ShareFlags::ACCESS_BASED_DIRECTORY_ENUM;
            }
            if share.encrypt && dialect >= Dialect::Smb300 {
                flags |= ShareFlags::ENCRYPT_DATA;
            }
            if share.options.continuously_available && dialect >= Dialect::Smb300 {
                capabilities |= ShareCapabilities::CONTINUOUS_AVAILABILITY;
            }
            (tree, SHARE_TYPE_DISK)
        };
        let limit = self.config.limits.trees_per_session;
        let session = self.sessions.get_mut(context.session).ok_or(NtStatus::USER_SESSION_DELETED)?;
        if session.trees.len() >= limit {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let maximal_access = tree.access;
        let id = session.add_tree(tree)?;
        context.tree_id = id;
        context.to.tree_id = id;
        chain.tree_id = id;
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

    pub(crate) fn handle_tree_disconnect(
        &mut self,
        context: &mut Context,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        self.end_tree(context.session, context.tree_id, now);
        let mut body = Vec::new();
        body.put(&EmptyBody::default());
        Ok(Step::ok(body))
    }

    /// Removes a tree connect and closes what was opened through it.
    pub(crate) fn end_tree(&mut self, session: u64, tree_id: u32, now: Monotonic) {
        let Some(found) = self.sessions.get_mut(session) else { return };
        if found.remove_tree(tree_id).is_none() {
            return;
        }
        let opens: Vec<u64> = found.opens.iter().copied().collect();
        for key in opens {
            if self.opens.get(key).is_none_or(|open| open.tree_id != tree_id) {
                continue;
            }
            let Some(open) = self.forget_open(key) else { continue };
            if let Some((volume, name)) = open.volume_open()
                && let Some(backend) = self.backend(volume)
            {
                backend.submit(UNATTENDED, Operation::Close { open: name, query: false }, now);
            }
        }
    }

    pub(crate) fn handle_echo(&mut self, element: Element<'_>) -> Result<Step, NtStatus> {
        Empty::parse(element.bytes())?;
        let mut body = Vec::new();
        body.put(&EmptyBody::default());
        Ok(Step::ok(body))
    }
}
