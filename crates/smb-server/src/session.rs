//! Sessions, their channels and their tree connects (MS-SMB2 3.3.1.8, 3.3.1.9, 3.3.1.13).

use crate::directory::{Account, Share};
use crate::policy::Credential;
use crate::proof::Bindings;
use crate::session_shares::{Holder, SessionShares};
use smallvec::SmallVec;
use smb::crypto::{OpeningKey, SealingKey, SigningKey};
use smb::wire::{Dialect, Guid, SessionFlags};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use types::{Monotonic, NtStatus, PeerHost};
use volume::backend::{AccessToken, Caller, SessionId, ShareOptions, ShareRoot, Standing};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionState {
    Valid,
    /// Logged off; gone once that is answered.
    Ended,
}

/// One connection that carries the session, with its own key.
pub(crate) struct Channel {
    pub connection: u64,
    pub signing: Rc<SigningKey>,
}

/// A session whose user has proved who it is. Before that there is only a [`crate::setups::Setup`].
pub(crate) struct Session {
    pub state: SessionState,
    holder: Holder,
    pub dialect: Dialect,
    pub client_guid: Guid,
    pub account: String,
    /// `None` before the first logon.
    pub credential: Credential,
    pub token: Arc<AccessToken>,
    pub flags: SessionFlags,
    pub signing_required: bool,
    /// Requests that are not encrypted are refused.
    pub encrypt: bool,
    pub channels: SmallVec<[Channel; 1]>,
    /// Session.SigningKey, of the first logon: it proves further channels, also when the first one is gone.
    pub signing: Option<Rc<SigningKey>>,
    pub bindings: Bindings,
    pub sealing: Option<SealingKey>,
    pub opening: Option<OpeningKey>,
    /// By rising identifier.
    pub trees: Vec<(u32, Tree)>,
    pub next_tree: u32,
    pub opens: SessionOpens,
    /// Of requests that were told STATUS_PENDING.
    pub parked_bytes: usize,
    pub created_at: Monotonic,
    pub last_request_at: Monotonic,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Session {
    /// A session of `account`, which has logged on from `host`.
    pub fn new(
        dialect: Dialect,
        client_guid: Guid,
        account: Account,
        host: PeerHost,
        now: Monotonic,
    ) -> Self {
        Self {
            state: SessionState::Valid,
            holder: Holder { user: account.token.user.clone(), host },
            dialect,
            client_guid,
            credential: Credential::of(&account),
            account: account.name,
            token: account.token,
            flags: SessionFlags::empty(),
            signing_required: false,
            encrypt: false,
            channels: SmallVec::new(),
            signing: None,
            bindings: Bindings::default(),
            sealing: None,
            opening: None,
            trees: Vec::new(),
            next_tree: 1,
            opens: SessionOpens::default(),
            parked_bytes: 0,
            created_at: now,
            last_request_at: now,
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    pub fn channel(&self, connection: u64) -> Option<&Channel> {
        self.channels.iter().find(|channel| channel.connection == connection)
    }

    pub fn tree(&self, id: u32) -> Option<&Tree> {
        let at = self.trees.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&self.trees[at].1)
    }

    /// Whether what goes through this tree connect is encrypted.
    pub fn encrypts(&self, tree: u32) -> bool {
        self.encrypt || self.tree(tree).is_some_and(|tree| tree.encrypt)
    }

    pub fn remove_tree(&mut self, id: u32) -> Option<Tree> {
        let at = self.trees.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.trees.remove(at).1)
    }

    pub fn add_tree(&mut self, tree: Tree) -> Result<u32, NtStatus> {
        let id = self.next_tree;
        self.next_tree = id.checked_add(1).ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
        self.trees.push((id, tree));
        Ok(id)
    }

    /// Who acts through `tree`, whose root is `root`, in this session, named `key`.
    pub fn caller(&self, key: u64, tree: &Tree, root: ShareRoot) -> Caller {
        Caller {
            session: SessionId(key),
            client: self.client_guid,
            token: self.token.clone(),
            root,
            share_access: tree.access,
            share: tree.options(),
            standing: tree.standing(),
        }
    }
}

/// The opens of a session, by tree connect: the end of one does not look at the opens of others.
#[derive(Default)]
pub(crate) struct SessionOpens {
    by_tree: BTreeSet<(u32, u64)>,
    pipes: usize,
}

impl SessionOpens {
    pub fn len(&self) -> usize {
        self.by_tree.len()
    }

    /// How many of them are of pipes.
    pub fn pipes(&self) -> usize {
        self.pipes
    }

    pub fn insert(&mut self, tree_id: u32, key: u64, is_pipe: bool) {
        self.by_tree.insert((tree_id, key));
        self.pipes += usize::from(is_pipe);
    }

    pub fn remove(&mut self, tree_id: u32, key: u64, is_pipe: bool) {
        if self.by_tree.remove(&(tree_id, key)) {
            self.pipes -= usize::from(is_pipe);
        }
    }

    pub fn keys(&self) -> impl Iterator<Item = u64> {
        self.by_tree.iter().map(|(_, key)| *key)
    }

    pub fn of_tree(&self, tree_id: u32) -> impl Iterator<Item = u64> {
        self.by_tree.range((tree_id, 0)..=(tree_id, u64::MAX)).map(|(_, key)| *key)
    }
}

/// What a tree connect leads to.
#[derive(Clone)]
pub(crate) enum Target {
    /// Index of the volume, the share, the directory that its path led to when the client connected, and what the tree connect
    /// stands on.
    Disk { volume: usize, share: Arc<Share>, root: ShareRoot, standing: Standing },
    /// IPC$.
    Pipe,
}

#[derive(Clone)]
pub(crate) struct Tree {
    pub target: Target,
    /// Access that the share grants this user at most.
    pub access: u32,
    /// Requests that are not encrypted are refused.
    pub encrypt: bool,
}

impl Tree {
    pub fn options(&self) -> ShareOptions {
        match &self.target {
            Target::Disk { share, .. } => share.options,
            Target::Pipe => ShareOptions::default(),
        }
    }

    fn standing(&self) -> Standing {
        match &self.target {
            Target::Disk { standing, .. } => standing.clone(),
            Target::Pipe => Standing::none(),
        }
    }

    pub fn name(&self) -> &str {
        match &self.target {
            Target::Disk { share, .. } => &share.name,
            Target::Pipe => "IPC$",
        }
    }
}

/// Sessions that ended and whose names are not given out yet again.
const NAMES_KEPT: usize = 4096;

/// Sessions by their wire name: 32 bits, as some clients keep no more; such that nobody can guess another's, and not the same one
/// soon again.
pub(crate) struct SessionTable {
    sessions: HashMap<u64, Session, BuildHasherDefault<IdHasher>>,
    shares: SessionShares,
    /// Names of those that ended last, at most [`NAMES_KEPT`].
    ended: VecDeque<u64>,
}

/// Spreads identifiers that the server itself gives out: nobody can choose colliding ones.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        self.0 = (self.0 ^ id).wrapping_mul(SPREAD).rotate_left(29);
    }
}

impl SessionTable {
    /// Holds `most` sessions.
    pub fn new(most: usize) -> Self {
        Self { sessions: HashMap::default(), shares: SessionShares::new(most), ended: VecDeque::new() }
    }

    /// A name that `random` chooses and no session has, nor anything else that `is_used` knows of.
    pub fn unused_name(&self, random: &mut dyn FnMut(&mut [u8]), is_used: impl Fn(u64) -> bool) -> u64 {
        loop {
            let mut name = [0; 4];
            random(&mut name);
            let key = u64::from(u32::from_le_bytes(name));
            // Zero and all ones mean something else on the wire.
            let is_free = key != 0
                && key != u64::from(u32::MAX)
                && !self.sessions.contains_key(&key)
                && !self.ended.contains(&key)
                && !is_used(key);
            if is_free {
                return key;
            }
        }
    }

    /// Takes in a session under a name from [`Self::unused_name`]; refused when its user or host holds its share.
    pub fn insert(&mut self, key: u64, session: Session) -> Result<(), NtStatus> {
        if !self.shares.take(&session.holder) {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let replaced = self.sessions.insert(key, session);
        assert!(replaced.is_none(), "a session's name is its own");
        Ok(())
    }

    pub fn get(&self, key: u64) -> Option<&Session> {
        self.sessions.get(&key)
    }

    pub fn get_mut(&mut self, key: u64) -> Option<&mut Session> {
        self.sessions.get_mut(&key)
    }

    pub fn remove(&mut self, key: u64) -> Option<Session> {
        let session = self.sessions.remove(&key)?;
        if self.ended.len() >= NAMES_KEPT {
            self.ended.pop_front();
        }
        self.ended.push_back(key);
        self.shares.give_back(&session.holder);
        Some(session)
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Session)> {
        self.sessions.iter_mut().map(|(key, session)| (*key, session))
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Session)> {
        self.sessions.iter().map(|(key, session)| (*key, session))
    }
}
