//! TREE_CONNECT and TREE_DISCONNECT (MS-SMB2 3.3.5.7, 3.3.5.8).

use crate::directory::{Directory, Share};
use crate::dispatch::Element;
use crate::policy::{self, Logon};
use crate::request::{Context, Step, Work};
use crate::server::{Server, UNATTENDED};
use crate::session::{Target, Tree};
use smb::wire::{
    Dialect, Empty, EmptyBody, Put, SHARE_TYPE_DISK, SHARE_TYPE_PIPE, SessionFlags, ShareCapabilities,
    ShareFlags, TreeConnectRequest, TreeConnectResponseBody,
};
use std::sync::Arc;
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, Operation, Reply};

/// What anybody who logged on may do on IPC$.
const PIPE_ACCESS: u32 = 0x001F_01FF;

/// A share that a session may use.
struct Admission {
    volume: usize,
    share: Arc<Share>,
    logon: Logon,
}

/// A TREE_CONNECT whose share's root the volume is looking up.
pub(crate) struct TreeConnectWork {
    volume: usize,
    share: Arc<Share>,
}

impl<B: Backend, D: Directory> Server<B, D> {
    pub(crate) fn handle_tree_connect(
        &mut self,
        context: &mut Context,
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
        if share.eq_ignore_ascii_case("IPC$") {
            let tree = Tree { target: Target::Pipe, access: PIPE_ACCESS, encrypt: false };
            return self.connect_tree(context, tree);
        }
        let Admission { volume, share, .. } = self.admit(context, share)?;
        let operation = Operation::OpenRoot { path: share.path.encode_utf16().collect() };
        let work = Work::TreeConnect(Box::new(TreeConnectWork { volume, share }));
        Ok(Step::Submit { volume, operation, work })
    }

    /// Whether the session may use the share of that name, as accounts and shares are now.
    fn admit(&self, context: &Context, name: &str) -> Result<Admission, NtStatus> {
        let share = self.directory.share(name).ok_or(NtStatus::BAD_NETWORK_NAME)?;
        let volume = self
            .volumes
            .iter()
            .position(|volume| volume.id == share.volume && volume.backend.is_some())
            .ok_or(NtStatus::BAD_NETWORK_NAME)?;
        let session = self.session_of(context)?;
        let logon = Logon::of(session);
        if policy::access_of(&share, &session.token) == 0 {
            return Err(NtStatus::ACCESS_DENIED);
        }
        // A client that cannot encrypt must not reach what only encrypted requests may (MS-SMB2 3.3.5.7).
        if share.encrypt && session.opening.is_none() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(Admission { volume, share, logon })
    }

    /// The volume has found the directory that is the share's root, or has not.
    pub(crate) fn root_opened(
        &mut self,
        context: &mut Context,
        work: &TreeConnectWork,
        result: Result<Reply, NtStatus>,
    ) -> Result<Step, NtStatus> {
        let TreeConnectWork { volume, share: asked } = work;
        let root = match result {
            Ok(Reply::Root(root)) => root,
            Err(NtStatus::CANCELLED) => return Err(NtStatus::CANCELLED),
            other => {
                let status = other.err().unwrap_or(NtStatus::IO_REPARSE_TAG_NOT_HANDLED);
                tracing::warn!(
                    share = asked.name,
                    path = asked.path,
                    %status,
                    "a client is refused: the share's path is no directory of its volume"
                );
                return Err(NtStatus::BAD_NETWORK_NAME);
            }
        };
        // Nobody would ever use, or end, the tree connect of a connection that is gone.
        if self.connections.get(context.connection).is_none() {
            return Err(NtStatus::CONNECTION_DISCONNECTED);
        }
        // The share may have been changed meanwhile: then the directory is not its root any more.
        let Admission { volume: now_on, share, logon } = self.admit(context, &asked.name)?;
        if now_on != *volume || share.path != asked.path {
            return Err(NtStatus::BAD_NETWORK_NAME);
        }
        self.connect_tree(context, policy::tree_of(*volume, root, share, logon))
    }

    fn connect_tree(&mut self, context: &mut Context, tree: Tree) -> Result<Step, NtStatus> {
        let is_smb3 = self.dialect_of(context) >= Dialect::Smb300;
        let mut flags = ShareFlags::empty();
        let mut capabilities = ShareCapabilities::empty();
        let share_type = match &tree.target {
            Target::Pipe => {
                flags |= ShareFlags::NO_CACHING;
                SHARE_TYPE_PIPE
            }
            Target::Disk { share, .. } => {
                flags.set(ShareFlags::NO_CACHING, share.options.no_caching);
                flags.set(ShareFlags::ACCESS_BASED_DIRECTORY_ENUM, share.options.access_based_enumeration);
                flags.set(ShareFlags::ENCRYPT_DATA, share.encrypt && is_smb3);
                let continuous = share.options.continuously_available && is_smb3;
                capabilities.set(ShareCapabilities::CONTINUOUS_AVAILABILITY, continuous);
                SHARE_TYPE_DISK
            }
        };
        let limit = self.config.limits.trees_per_session;
        let session = self.sessions.get_mut(context.session).ok_or(NtStatus::USER_SESSION_DELETED)?;
        if session.trees.len() >= limit {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let maximal_access = tree.access;
        let name = tree.name().to_owned();
        let id = session.add_tree(tree)?;
        self.share_uses.add(&name);
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
        let Some(tree) = found.remove_tree(tree_id) else { return };
        self.share_uses.remove(tree.name());
        let opens: Vec<u64> = found.opens.of_tree(tree_id).collect();
        for key in opens {
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
