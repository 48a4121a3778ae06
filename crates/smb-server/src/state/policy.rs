//! The rights from accounts and shares, and the effect of their changes on connected clients.
//!
//! **The rule.** Removed rights are gone, and new ones in force, with the next request.
//! - A session ends, with all its trees, when its account is disabled, deleted or has another password, or when its user is in fewer
//!   groups or has fewer privileges.
//! - A tree ends when its share is deleted, has another directory, demands encryption, grants fewer
//!   caches, or lets the session's user do less: by its grants, or as it became read-only.
//! - All opens through a tree end with it: connected ones, durable ones of disconnected clients, and
//!   requests waiting in the volume. A write that the file layer has already begun is finished.
//! - Everything else changes in place: new groups, wider grants, durability, access-based enumeration, continuous availability.
//!   The access that a handle was granted stays, as it does when the file's descriptor changes.
//!
//! Each tree connect depends on its [`Grounds`]: the logon and the share as they were. The volumes keep
//! them with each open, so that one comparison, [`Review`], judges trees, opens and waiting creates
//! alike. The functions here take the compared types apart field by field, so that a new field cannot
//! be forgotten.

use super::keys::{SessionKey, VolumeSlot};
use super::sessions::{Session, Sessions};
use super::share_figures::FiguresSlot;
use super::tree::{Target, Tree};
use super::volumes::Volumes;
use crate::directory::{Credential, Directory, Share, Subject};
use std::collections::HashMap;
use std::sync::Arc;
use types::Monotonic;
use volume::backend::{AccessToken, Backend, Ruling, ShareOptions, ShareRoot, Standing, Terms};

/// The most that a read-only share grants.
const READ_ONLY_ACCESS: u32 = 0x0012_00A9;

/// The account, the password and the token of a past logon.
#[derive(Clone)]
pub(crate) struct Logon {
    /// The account's name.
    account: String,
    credential: Credential,
    token: Arc<AccessToken>,
}

/// The logon and the share that a tree connect depends on.
struct Grounds {
    logon: Logon,
    share: Arc<Share>,
}

impl Logon {
    /// Reads the logon of a session.
    pub fn of(session: &Session) -> Self {
        let Session { account, credential, token, .. } = session;
        Self { account: account.clone(), credential: *credential, token: token.clone() }
    }

    /// Finds the logon's present subject in the directory, by name or certificate.
    fn find(&self, directory: &impl Directory) -> Option<Subject> {
        match self.credential {
            Credential::Password(_) => Subject::user(directory.account("", &self.account)?),
            Credential::Certificate(node) => Some(Subject::node(node, directory.node(node)?)),
        }
    }

    /// Returns the user's present token; `None`: the logon is no longer valid.
    fn today(&self, subject: Option<&Subject>) -> Option<Arc<AccessToken>> {
        let Subject { name: _, credential, token } = subject?;
        let stands = self.credential == *credential && token.has_all_of(&self.token);
        stands.then(|| if *token == self.token { self.token.clone() } else { token.clone() })
    }
}

/// Returns this user's greatest access through a share; 0 means nothing.
pub(crate) fn access_of(share: &Share, token: &AccessToken) -> u32 {
    let granted = share.access_of(token);
    if share.options.read_only { granted & READ_ONLY_ACCESS } else { granted }
}

/// A tree connect of this logon to the share, whose path leads to `root` on the volume.
pub(crate) fn tree_of(volume: VolumeSlot, root: ShareRoot, share: Arc<Share>, logon: Logon) -> Tree {
    let terms = terms(share.clone(), logon);
    let Terms { token: _, share_access, share: _, standing } = terms;
    let encrypt = share.encrypt;
    Tree {
        target: Target::Disk { volume, share, root, standing },
        access: share_access,
        encrypt,
        figures: FiguresSlot::default(),
    }
}

fn terms(share: Arc<Share>, logon: Logon) -> Terms {
    let name: Arc<str> = share.name.as_str().into();
    Terms {
        token: logon.token.clone(),
        share_access: access_of(&share, &logon.token),
        share: share.options,
        standing: Standing::new(name, Grounds { logon, share }),
    }
}

/// Whether a share takes away from everybody something that its clients had or knew.
fn narrows(old: &Share, new: &Share) -> bool {
    // Access is compared for each user: see `Review::rule`.
    let Share { name: _, comment: _, volume, path, options, encrypt, access: _ } = old;
    let ShareOptions {
        // These bind the server, and hold from the next request on.
        durability: _,
        continuously_available: _,
        access_based_enumeration: _,
        // Ends the trees of users with more than read access: see `access_of`.
        read_only: _,
        no_caching,
        scale_out,
    } = options;
    new.volume != *volume
        || new.path != *path
        || new.encrypt && !encrypt
        // Clients would keep the caching that they were granted.
        || new.options.no_caching && !no_caching
        || new.options.scale_out && !scale_out
}

/// One comparison of trees, opens and waiting creates with the directory of today.
pub(crate) struct Review<'a, D> {
    directory: &'a D,
    /// By account, and whether it is a node's.
    subjects: HashMap<(String, bool), Option<Subject>>,
    shares: HashMap<String, Option<Arc<Share>>>,
    /// By the address of the standing, which is kept beside its ruling so that the address is not reused.
    rulings: HashMap<usize, (Standing, Ruling)>,
}

impl<'a, D: Directory> Review<'a, D> {
    pub fn new(directory: &'a D) -> Self {
        Self { directory, subjects: HashMap::new(), shares: HashMap::new(), rulings: HashMap::new() }
    }

    /// Returns the present token of a session's user; `None`: the session ends.
    pub fn token(&mut self, logon: &Logon) -> Option<Arc<AccessToken>> {
        let is_node = matches!(logon.credential, Credential::Certificate(_));
        let found = self.subjects.entry((logon.account.clone(), is_node));
        logon.today(found.or_insert_with(|| logon.find(self.directory)).as_ref())
    }

    fn share(&mut self, name: &str) -> Option<Arc<Share>> {
        if !self.shares.contains_key(name) {
            self.shares.insert(name.to_owned(), self.directory.share(name));
        }
        self.shares.get(name)?.clone()
    }

    /// Decides about opens and waiting creates of this standing.
    pub fn judge(&mut self, standing: &Standing) -> Ruling {
        if let Some((_, ruling)) = self.rulings.get(&standing.address()) {
            return ruling.clone();
        }
        let Some(grounds) = standing.grounds::<Grounds>() else {
            // The daemon's own opens depend on nothing; those that outlived a restart on their share's name,
            // until their clients return.
            let stands = standing.share().is_empty() || self.share(standing.share()).is_some();
            return if stands { Ruling::Keep } else { Ruling::Close };
        };
        let ruling = self.rule(grounds);
        self.rulings.insert(standing.address(), (standing.clone(), ruling.clone()));
        ruling
    }

    fn rule(&mut self, grounds: &Grounds) -> Ruling {
        let Grounds { logon, share: old } = grounds;
        let Some(token) = self.token(logon) else { return Ruling::Close };
        let Some(share) = self.share(&old.name) else { return Ruling::Close };
        let lost = access_of(old, &logon.token) & !access_of(&share, &token);
        if lost != 0 || narrows(old, &share) {
            return Ruling::Close;
        }
        if share == *old && token == logon.token {
            return Ruling::Keep;
        }
        Ruling::Amend(terms(share, Logon { token, ..logon.clone() }))
    }
}

/// Puts a tree connect on new terms.
fn amend(tree: &mut Tree, terms: Terms) {
    let Some(grounds) = terms.standing.grounds::<Grounds>() else { return };
    let Target::Disk { share, standing, .. } = &mut tree.target else { return };
    *share = grounds.share.clone();
    *standing = terms.standing.clone();
    tree.access = terms.share_access;
    tree.encrypt = share.encrypt;
}

/// Sessions and tree connects that a change of accounts or shares ends.
#[derive(Default)]
pub(crate) struct Ended {
    pub sessions: Vec<SessionKey>,
    pub trees: Vec<(SessionKey, u32)>,
}

/// Compares the present state with a changed directory: applies its grants, and returns the sessions
/// and trees to end. The volumes have closed their opens at the return.
pub(crate) fn review<B: Backend, D: Directory>(
    directory: &D,
    sessions: &mut Sessions,
    volumes: &mut Volumes<B>,
    now: Monotonic,
) -> Ended {
    let mut review = Review::new(directory);
    let mut ended = Ended::default();
    for (key, session) in sessions.iter_mut() {
        let logon = Logon::of(session);
        match review.token(&logon) {
            None => ended.sessions.push(key),
            Some(token) => session.token = token,
        }
        for (id, tree) in &mut session.trees {
            let Target::Disk { standing, .. } = &tree.target else { continue };
            match review.judge(standing) {
                Ruling::Keep => {}
                Ruling::Amend(terms) => amend(tree, terms),
                Ruling::Close => ended.trees.push((key, *id)),
            }
        }
    }
    for (_, backend) in volumes.iter_mut() {
        backend.review(&mut |standing| review.judge(standing), now);
    }
    ended
}

/// Moves the tree connects of a session to the repeated logon of its user. Returns those that have to
/// end, as the new logon gives them less.
pub(crate) fn stand_on_new_logon(session: &mut Session) -> Vec<u32> {
    let logon = Logon::of(session);
    let mut narrowed = Vec::new();
    for (id, tree) in &mut session.trees {
        let Target::Disk { share, .. } = &tree.target else { continue };
        let terms = terms(share.clone(), logon.clone());
        if tree.access & !terms.share_access != 0 {
            narrowed.push(*id);
        } else {
            amend(tree, terms);
        }
    }
    narrowed
}
