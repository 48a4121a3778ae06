//! The server as the RPC interfaces see it.

use crate::directory::{Directory, Share};
use crate::state::RandomSource;
use crate::state::connections::Connections;
use crate::state::keys::{SessionKey, VolumeSlot};
use crate::state::opens::{Open, Opens};
use crate::state::sessions::{Session, SessionState, Sessions};
use crate::state::tree::Target;
use smb::rpc::{
    AccountEntry, ConnectionEntry, FileEntry, Files, GroupEntry, ServerEntry, SessionEntry, ShareEntry,
    ShareKind, UserEntry,
};
use smb::wire::ShareFlags;
use std::cell::RefCell;
use types::{FileTime, Monotonic, Sid};
use volume::backend::OpenId;
use volume::security::{Ace, AceFlags, Acl, Control, SecurityDescriptor, rights};

/// Slots of opens examined for one list: fewer than a message may cost.
const FILES_MAX: usize = 4096;
/// Slots of opens with a name of 32 bits; also the mask of the slot in that name.
const NAMED_SLOTS: usize = 0xF_FFFF;

/// The server's state for the RPC interfaces: read when a call asks, and only for this call.
pub(crate) struct View<'a, D> {
    pub directory: &'a D,
    pub server_name: &'a str,
    pub sessions: &'a Sessions,
    pub connections: &'a Connections,
    pub opens: &'a Opens,
    /// Counts the byte-range locks of an open of a volume.
    pub lock_count: &'a dyn Fn(VolumeSlot, OpenId) -> usize,
    pub random: RefCell<&'a mut RandomSource>,
    pub now: Monotonic,
    pub wall: FileTime,
}

impl<D: Directory> smb::rpc::Directory for View<'_, D> {
    fn server(&self) -> ServerEntry {
        ServerEntry {
            name: self.server_name.to_owned(),
            comment: "Cenote".to_owned(),
            domain: "WORKGROUP".to_owned(),
            // Today's clients expect this version of a server of SMB 3.1.1.
            version_major: 10,
            version_minor: 0,
        }
    }

    fn shares(&self) -> Vec<ShareEntry> {
        let disk = self.directory.shares().into_iter().map(|share| ShareEntry {
            name: share.name.clone(),
            kind: ShareKind::Disk,
            is_special: false,
            comment: share.comment.clone(),
            path: self.path_of(&share),
            current_uses: self.sessions.uses_of(&share.name),
            flags: flags_of(&share),
            security_descriptor: descriptor_of(&share),
        });
        let ipc = ShareEntry {
            name: "IPC$".to_owned(),
            kind: ShareKind::Pipe,
            is_special: true,
            comment: "IPC".to_owned(),
            path: String::new(),
            current_uses: 0,
            flags: 0,
            security_descriptor: None,
        };
        disk.chain([ipc]).collect()
    }

    fn sessions(&self) -> Vec<SessionEntry> {
        self.people()
            .map(|(key, session)| SessionEntry {
                id: key.get(),
                client: self.client_of(session),
                user: session.account.clone(),
                open_files: session.opens.len() as u32,
                active_s: self.now.since(session.created_at).as_secs() as u32,
                idle_s: self.now.since(session.last_request_at).as_secs() as u32,
                is_guest: false,
            })
            .collect()
    }

    fn connections(&self) -> Vec<ConnectionEntry> {
        let trees =
            self.people().flat_map(|(_, session)| session.trees.iter().map(move |tree| (session, tree)));
        trees
            .zip(1..)
            .map(|((session, (_, tree)), id)| ConnectionEntry {
                id,
                share: tree.name().to_owned(),
                is_pipe: !matches!(tree.target, Target::Disk { .. }),
                client: self.client_of(session),
                user: session.account.clone(),
                open_files: session.opens.len() as u32,
                // The age of the tree connect is not kept: the session is older.
                active_s: self.now.since(session.created_at).as_secs() as u32,
            })
            .collect()
    }

    fn files(&self, from: u32) -> Files {
        let (from, slots) = (from as usize, self.opens.slots().min(NAMED_SLOTS));
        let end = slots.min(from.saturating_add(FILES_MAX));
        Files {
            list: (from..end).filter_map(|index| self.file_at(index)).collect(),
            more_at: (end < slots).then_some(end as u32),
        }
    }

    fn file(&self, id: u32) -> Option<FileEntry> {
        let index = (id as usize & NAMED_SLOTS).checked_sub(1)?;
        self.file_at(index).filter(|file| file.id == id)
    }

    fn users(&self) -> Vec<UserEntry> {
        self.directory.users()
    }

    fn groups(&self) -> Vec<GroupEntry> {
        self.directory.groups()
    }

    fn random(&self, bytes: &mut [u8]) {
        (self.random.borrow_mut())(bytes);
    }

    fn domain_sid(&self) -> Sid {
        self.directory.domain_sid()
    }

    fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry> {
        self.directory.account_by_sid(sid)
    }

    fn account_by_name(&self, name: &str) -> Option<AccountEntry> {
        self.directory.account_by_name(name)
    }

    fn now(&self) -> FileTime {
        self.wall
    }
}

/// Returns a share's options for administrators (MS-SRVS 2.2.4.29).
fn flags_of(share: &Share) -> u32 {
    let mut flags = ShareFlags::empty();
    flags.set(ShareFlags::NO_CACHING, share.options.no_caching);
    flags.set(ShareFlags::ACCESS_BASED_DIRECTORY_ENUM, share.options.access_based_enumeration);
    flags.set(ShareFlags::ENCRYPT_DATA, share.encrypt);
    flags.bits()
}

/// Makes a descriptor of a share's grants, and of nothing else.
fn descriptor_of(share: &Share) -> Option<Vec<u8>> {
    let aces = share.access.iter().map(|(sid, mask)| Ace::allow(sid.clone(), *mask, AceFlags::empty()));
    let descriptor = SecurityDescriptor {
        control: Control::DACL_PRESENT,
        owner: Some(Sid::administrators()),
        group: Some(Sid::administrators()),
        dacl: Some(Acl::new(aces.collect())),
        sacl: None,
    };
    descriptor.build().ok()
}

impl<D: Directory> View<'_, D> {
    /// The directory of a volume that a share is of, below the one drive that all volumes are on.
    fn path_of(&self, share: &Share) -> String {
        let volume = self.directory.volume_name(share.volume).unwrap_or_else(|| share.volume.to_string());
        let inner = if share.path.is_empty() { "" } else { "\\" };
        format!("C:\\{volume}{inner}{}", share.path)
    }

    /// Established sessions, except for those of the cluster's own nodes.
    fn people(&self) -> impl Iterator<Item = (SessionKey, &Session)> {
        let is_shown = |session: &Session| session.state == SessionState::Valid && !session.is_node();
        self.sessions.iter().filter(move |(_, session)| is_shown(session))
    }

    fn client_of(&self, session: &Session) -> String {
        let first = session.channels.first().and_then(|channel| self.connections.get(channel.connection));
        first.map(|connection| connection.info.peer.ip().to_string()).unwrap_or_default()
    }

    /// The open file in a slot; pipes are none.
    fn file_at(&self, index: usize) -> Option<FileEntry> {
        let (key, open) = self.opens.at(index)?;
        let (volume, name) = open.volume_open()?;
        let session = self.sessions.get(open.session);
        // Nodes open disks.
        if session.is_some_and(Session::is_node) {
            return None;
        }
        // As many bits of the generation as fit: an old name finds another file only after 4,096 uses of its
        // slot.
        let generation = (key.get() >> 32) as u32 & 0xFFF;
        Some(FileEntry {
            id: generation << 20 | (index as u32 + 1),
            open: key.get(),
            place: index as u32,
            path: self.path_of_open(open, session),
            user: session.map(|session| session.account.clone()).unwrap_or_default(),
            permissions: u32::from(open.granted_access & rights::READ_DATA != 0)
                | u32::from(open.granted_access & (rights::WRITE_DATA | rights::APPEND_DATA) != 0) << 1,
            locks: (self.lock_count)(volume, name) as u32,
        })
    }

    fn path_of_open(&self, open: &Open, session: Option<&Session>) -> String {
        let root = session.and_then(|session| session.tree(open.tree_id)).map(|tree| match &tree.target {
            Target::Disk { share, .. } => self.path_of(share),
            _ => String::new(),
        });
        let inner = String::from_utf16_lossy(&open.path);
        let between = if inner.is_empty() { "" } else { "\\" };
        format!("{}{between}{inner}", root.unwrap_or_else(|| "C:".to_owned()))
    }
}
