//! Sessions, their channels and their tree connects (MS-SMB2 3.3.1.8, 3.3.1.9, 3.3.1.13).

use super::bindings::Bindings;
use super::budget::Budget;
use super::client_figures::{AllClientFigures, ClientSlot};
use super::connections::ConnectionId;
use super::keys::{OpenKey, SessionKey};
use super::session_shares::{Holder, SessionShares};
use super::share_uses::ShareUses;
use super::tree::Tree;
use crate::directory::{Credential, Subject};
use smallvec::SmallVec;
use smb::crypto::{OpeningKey, SealingKey, SigningKey};
use smb::wire::{Dialect, Guid, SessionFlags};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use types::{Monotonic, NtStatus, PeerHost, Sid};
use volume::backend::{AccessToken, Caller, ShareRoot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionState {
    Valid,
    /// Logged off; gone once that is answered.
    Ended,
}

/// Memory in bytes that a session takes, with its keys and its places in indexes.
const SESSION_BYTES: usize = 4096;
/// Memory in bytes that a tree connect takes: 458 were measured.
const TREE_BYTES: usize = 512;
/// Memory in bytes that a channel takes, with its key.
pub(crate) const CHANNEL_BYTES: usize = 512;
/// Memory in bytes that a binding's request takes in [`Bindings`], at most twice its size while their list grows.
pub(super) const BINDING_BYTES: usize = 96;

/// One connection that carries the session, with its own key.
pub(crate) struct Channel {
    pub connection: ConnectionId,
    pub signing: Rc<SigningKey>,
}

/// A session with an authenticated user. Before that there is only a [`super::setups::Setup`].
pub(crate) struct Session {
    pub state: SessionState,
    holder: Holder,
    /// Bytes that are counted against its user.
    counted_bytes: usize,
    client: ClientSlot,
    pub dialect: Dialect,
    pub client_guid: Guid,
    pub account: String,
    pub credential: Credential,
    pub token: Arc<AccessToken>,
    pub flags: SessionFlags,
    pub signing_required: bool,
    /// Requests that are not encrypted are refused.
    pub encrypt: bool,
    pub channels: SmallVec<[Channel; 1]>,
    /// Session.SigningKey, of the first logon: it proves further channels, even after the first one has
    /// ended. A node's session has one for proofs only.
    pub signing: Option<Rc<SigningKey>>,
    pub bindings: Bindings,
    pub sealing: Option<SealingKey>,
    pub opening: Option<OpeningKey>,
    /// By rising identifier.
    pub trees: Vec<(u32, Tree)>,
    next_tree: u32,
    pub opens: SessionOpens,
    /// Bytes of requests that got STATUS_PENDING.
    pub parked_bytes: usize,
    pub created_at: Monotonic,
    pub last_request_at: Monotonic,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Session {
    /// Makes a session of `subject`, logged on from `host`.
    pub fn new(
        dialect: Dialect,
        client_guid: Guid,
        subject: Subject,
        host: PeerHost,
        now: Monotonic,
    ) -> Self {
        Self {
            state: SessionState::Valid,
            holder: Holder { user: subject.token.user.clone(), host },
            counted_bytes: 0,
            client: ClientSlot::default(),
            dialect,
            client_guid,
            // The server's own demand, for any settings of the nodes: a man in the middle of two nodes
            // changes nothing.
            signing_required: subject.is_node(),
            credential: subject.credential,
            account: subject.name,
            token: subject.token,
            flags: SessionFlags::empty(),
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
            reads: 0,
            writes: 0,
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    /// Whether a node of the cluster logged on, by its certificate.
    pub fn is_node(&self) -> bool {
        matches!(self.credential, Credential::Certificate(_))
    }

    /// Place of the figures of its client's requests.
    pub fn client(&self) -> ClientSlot {
        self.client
    }

    #[inline]
    pub fn channel(&self, connection: ConnectionId) -> Option<&Channel> {
        self.channels.iter().find(|channel| channel.connection == connection)
    }

    #[inline]
    pub fn tree(&self, id: u32) -> Option<&Tree> {
        let at = self.trees.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&self.trees[at].1)
    }

    /// Whether requests through this tree connect are encrypted.
    pub fn encrypts(&self, tree: u32) -> bool {
        self.encrypt || self.tree(tree).is_some_and(|tree| tree.encrypt)
    }

    fn remove_tree(&mut self, id: u32) -> Option<Tree> {
        let at = self.trees.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        let tree = self.trees.remove(at).1;
        // Memory that counts as returned to the budget is returned.
        if self.trees.len() < self.trees.capacity() / 4 {
            self.trees.shrink_to(2 * self.trees.len());
        }
        Some(tree)
    }

    /// Memory of the session in bytes, with everything that only it has.
    fn len_bytes(&self) -> usize {
        SESSION_BYTES
            + self.trees.len() * TREE_BYTES
            + self.channels.len() * CHANNEL_BYTES
            + self.bindings.len() * BINDING_BYTES
    }

    fn add_tree(&mut self, tree: Tree) -> Result<u32, NtStatus> {
        let id = self.next_tree;
        self.next_tree = id.checked_add(1).ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
        self.trees.push((id, tree));
        Ok(id)
    }

    /// Returns the caller that acts through `tree`, whose root is `root`, in this session, named `key`.
    pub fn caller(&self, key: SessionKey, tree: &Tree, root: ShareRoot) -> Caller {
        Caller {
            session: key.into(),
            client: self.client_guid,
            token: self.token.clone(),
            root,
            share_access: tree.access,
            share: tree.options(),
            standing: tree.standing(),
        }
    }
}

/// The opens of a session, by tree connect: the end of one does not examine the opens of others.
#[derive(Default)]
pub(crate) struct SessionOpens {
    by_tree: BTreeSet<(u32, OpenKey)>,
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

    pub fn insert(&mut self, tree_id: u32, key: OpenKey, is_pipe: bool) {
        self.by_tree.insert((tree_id, key));
        self.pipes += usize::from(is_pipe);
    }

    pub fn remove(&mut self, tree_id: u32, key: OpenKey, is_pipe: bool) {
        if self.by_tree.remove(&(tree_id, key)) {
            self.pipes -= usize::from(is_pipe);
        }
    }

    pub fn keys(&self) -> impl Iterator<Item = OpenKey> {
        self.by_tree.iter().map(|(_, key)| *key)
    }

    pub fn of_tree(&self, tree_id: u32) -> impl Iterator<Item = OpenKey> {
        self.by_tree.range((tree_id, OpenKey::FIRST)..=(tree_id, OpenKey::LAST)).map(|(_, key)| *key)
    }
}

/// Number of ended sessions whose names are not reused yet.
const NAMES_KEPT: usize = 4096;

/// Sessions by their wire name: 32 bits, as some clients keep no more; unguessable, and not reused
/// soon. Invariants: the sessions of a user, and of a host, are counted in `shares`; their memory, in
/// `memory`, so that no two limits multiply; the tree connects of all sessions are counted in `uses`.
pub(crate) struct Sessions {
    table: HashMap<SessionKey, Session, BuildHasherDefault<IdHasher>>,
    shares: SessionShares,
    /// Bytes of the sessions of each user.
    memory: Budget<Sid>,
    /// Figures in which each session is counted, in its own place.
    pub clients: AllClientFigures,
    uses: ShareUses,
    /// Names of those that ended last, at most [`NAMES_KEPT`].
    ended: VecDeque<SessionKey>,
}

/// Spreads identifiers of the server's own choice: clients cannot choose colliding ones.
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

impl Sessions {
    /// Holds `most` sessions of at most `bytes` in all.
    pub fn new(most: usize, bytes: usize) -> Self {
        Self {
            table: HashMap::default(),
            shares: SessionShares::new(most),
            memory: Budget::new(bytes),
            clients: AllClientFigures::default(),
            uses: ShareUses::default(),
            ended: VecDeque::new(),
        }
    }

    /// Chooses a name by `random` that no session has and for which `is_used` is false.
    pub fn unused_name(
        &self,
        random: &mut dyn FnMut(&mut [u8]),
        is_used: impl Fn(SessionKey) -> bool,
    ) -> SessionKey {
        loop {
            let mut name = [0; 4];
            random(&mut name);
            // Zero and all ones mean something else on the wire.
            let Some(key) = SessionKey::from_number(u32::from_le_bytes(name).into()) else { continue };
            let is_free = key.get() != u64::from(u32::MAX)
                && !self.table.contains_key(&key)
                && !self.ended.contains(&key)
                && !is_used(key);
            if is_free {
                return key;
            }
        }
    }

    /// Whether the user of a session may make the server hold this many bytes more for it.
    pub fn has_room(&self, key: SessionKey, bytes: usize) -> bool {
        self.table.get(&key).is_some_and(|session| self.memory.may_take(&session.holder.user, bytes))
    }

    /// Recounts the memory of a session after it got or lost something.
    pub fn recount(&mut self, key: SessionKey) {
        if let Some(session) = self.table.get_mut(&key) {
            let bytes = session.len_bytes();
            let before = std::mem::replace(&mut session.counted_bytes, bytes);
            let holder = self.memory.enter(&session.holder.user);
            self.memory.take(holder, session.counted_bytes);
            self.memory.release(holder, before);
            self.memory.leave(holder);
        }
    }

    /// Takes in a session under a name from [`Self::unused_name`]; refused when its user or host holds its share.
    pub fn insert(&mut self, key: SessionKey, mut session: Session) -> Result<(), NtStatus> {
        if !self.memory.may_take(&session.holder.user, session.len_bytes())
            || !self.shares.take(&session.holder)
        {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        session.client = match session.is_node() {
            true => self.clients.enter_server(),
            false => self.clients.enter(session.holder.host),
        };
        let replaced = self.table.insert(key, session);
        assert!(replaced.is_none(), "a session's name is its own");
        self.recount(key);
        Ok(())
    }

    #[inline]
    /// Whether the user's client has sessions of another dialect of SMB 3 than this one.
    pub fn has_other_dialect(&self, dialect: Dialect, client: Guid, user: &Sid) -> bool {
        let is_smb3 = |dialect: Dialect| dialect >= Dialect::Smb300;
        is_smb3(dialect)
            && self.iter().any(|(_, session)| {
                session.client_guid == client
                    && session.dialect != dialect
                    && is_smb3(session.dialect)
                    && session.state == SessionState::Valid
                    && session.token.user == *user
            })
    }

    pub fn get(&self, key: SessionKey) -> Option<&Session> {
        self.table.get(&key)
    }

    #[inline]
    pub fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.table.get_mut(&key)
    }

    pub fn remove(&mut self, key: SessionKey) -> Option<Session> {
        let session = self.table.remove(&key)?;
        if self.ended.len() >= NAMES_KEPT {
            self.ended.pop_front();
        }
        self.ended.push_back(key);
        self.shares.give_back(&session.holder);
        let holder = self.memory.enter(&session.holder.user);
        self.memory.release(holder, session.counted_bytes);
        self.memory.leave(holder);
        self.clients.leave(session.client);
        for (_, tree) in &session.trees {
            self.uses.remove(tree.name());
        }
        Some(session)
    }

    /// Adds a tree connect to a session and answers its identifier.
    pub fn connect_tree(&mut self, key: SessionKey, tree: Tree, trees_max: usize) -> Result<u32, NtStatus> {
        let has_room = self.has_room(key, TREE_BYTES);
        let session = self.table.get_mut(&key).ok_or(NtStatus::USER_SESSION_DELETED)?;
        if session.trees.len() >= trees_max || !has_room {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let name = tree.name().to_owned();
        let id = session.add_tree(tree)?;
        self.uses.add(&name);
        self.recount(key);
        Ok(id)
    }

    /// Removes a tree connect. Returns its opens.
    pub fn disconnect_tree(&mut self, key: SessionKey, id: u32) -> Vec<OpenKey> {
        let Some(session) = self.table.get_mut(&key) else { return Vec::new() };
        let Some(tree) = session.remove_tree(id) else { return Vec::new() };
        self.uses.remove(tree.name());
        let opens = session.opens.of_tree(id).collect();
        self.recount(key);
        opens
    }

    /// The number of tree connects to a share.
    pub fn uses_of(&self, share: &str) -> u32 {
        self.uses.of(share)
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SessionKey, &mut Session)> {
        self.table.iter_mut().map(|(key, session)| (*key, session))
    }

    pub fn iter(&self) -> impl Iterator<Item = (SessionKey, &Session)> {
        self.table.iter().map(|(key, session)| (*key, session))
    }
}
