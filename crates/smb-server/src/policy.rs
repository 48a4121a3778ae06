//! What accounts and shares allow, and what a change of them does to those who are connected.
//!
//! **The rule.** What a change takes away is gone with the next request; what it gives is there with the next request.
//! - A session ends, with all its trees, when its account is disabled, deleted or has another password, or when its user is in fewer
//!   groups or has fewer privileges.
//! - A tree ends when its share is deleted, leads elsewhere, demands encryption, stops granting caches, or lets the session's user do
//!   less: by its grants, or as it became read-only.
//! - With a tree ends everything that was opened through it: opens, durable opens whose clients are away, and what waits in the
//!   volume. A write that the file layer has already begun is finished.
//! - Everything else changes in place: new groups, wider grants, durability, access-based enumeration, continuous availability.
//!   The access that a handle was granted stays, as it does when the file's descriptor changes.
//!
//! Each tree connect stands on its [`Grounds`]: the logon and the share as they were. The volumes keep them with what was opened, so
//! that one comparison, [`Review`], judges trees, opens and waiting creates alike. The functions here take the compared types apart
//! field by field, so that a new field cannot be forgotten.

use crate::directory::{Account, Directory, Share};
use crate::server::Server;
use crate::session::{Session, Target, Tree};
use std::collections::HashMap;
use std::sync::Arc;
use types::Monotonic;
use volume::backend::{AccessToken, Backend, Ruling, ShareOptions, ShareRoot, Standing, Terms};

/// What a read-only share grants at most.
const READ_ONLY_ACCESS: u32 = 0x0012_00A9;

/// The password by which somebody logged on: its NT hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credential([u8; 16]);

/// Who logged on.
#[derive(Clone)]
pub(crate) struct Logon {
    /// The account's name.
    account: String,
    credential: Credential,
    token: Arc<AccessToken>,
}

/// On what a tree connect stands.
struct Grounds {
    logon: Logon,
    share: Arc<Share>,
}

impl Credential {
    pub fn of(account: &Account) -> Self {
        Self(account.nt_hash)
    }
}

impl Logon {
    /// Who is logged on in a session.
    pub fn of(session: &Session) -> Self {
        let Session { account, credential, token, .. } = session;
        Self { account: account.clone(), credential: *credential, token: token.clone() }
    }

    /// Whom the user acts as today; `None`: the logon is not good any more.
    fn today(&self, account: Option<&Account>) -> Option<Arc<AccessToken>> {
        let Account { name: _, nt_hash, enabled, token } = account?;
        let stands = *enabled && self.credential == Credential(*nt_hash) && token.has_all_of(&self.token);
        stands.then(|| if *token == self.token { self.token.clone() } else { token.clone() })
    }
}

/// What a share lets this user do at most; 0: nothing.
pub(crate) fn access_of(share: &Share, token: &AccessToken) -> u32 {
    let granted = share.access_of(token);
    if share.options.read_only { granted & READ_ONLY_ACCESS } else { granted }
}

/// A tree connect of this logon to the share, whose path leads to `root` on the volume.
pub(crate) fn tree_of(volume: usize, root: ShareRoot, share: Arc<Share>, logon: Logon) -> Tree {
    let terms = terms(share.clone(), logon);
    let Terms { token: _, share_access, share: _, standing } = terms;
    let encrypt = share.encrypt;
    Tree { target: Target::Disk { volume, share, root, standing }, access: share_access, encrypt }
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

/// Whether a share takes away from everybody something that its clients had or were told.
fn narrows(old: &Share, new: &Share) -> bool {
    // Who may do what is compared for each user: see `Review::rule`.
    let Share { name: _, comment: _, volume, path, options, encrypt, access: _ } = old;
    let ShareOptions {
        // These bind the server, and hold from the next request on.
        durability: _,
        continuously_available: _,
        access_based_enumeration: _,
        // Ends the trees of those who could do more than read: see `access_of`.
        read_only: _,
        no_caching,
    } = options;
    new.volume != *volume
        || new.path != *path
        || new.encrypt && !encrypt
        // What clients were granted to cache they would go on caching.
        || new.options.no_caching && !no_caching
}

/// One comparison of what there is with the directory of today.
pub(crate) struct Review<'a, D> {
    directory: &'a D,
    accounts: HashMap<String, Option<Account>>,
    shares: HashMap<String, Option<Arc<Share>>>,
    /// By the address of the standing, which is kept beside its ruling so that the address stays its own.
    rulings: HashMap<usize, (Standing, Ruling)>,
}

impl<'a, D: Directory> Review<'a, D> {
    pub fn new(directory: &'a D) -> Self {
        Self { directory, accounts: HashMap::new(), shares: HashMap::new(), rulings: HashMap::new() }
    }

    /// Whom a session's user acts as today; `None`: the session ends.
    pub fn token(&mut self, logon: &Logon) -> Option<Arc<AccessToken>> {
        if !self.accounts.contains_key(&logon.account) {
            let found = self.directory.account("", &logon.account);
            self.accounts.insert(logon.account.clone(), found);
        }
        logon.today(self.accounts.get(&logon.account)?.as_ref())
    }

    fn share(&mut self, name: &str) -> Option<Arc<Share>> {
        if !self.shares.contains_key(name) {
            self.shares.insert(name.to_owned(), self.directory.share(name));
        }
        self.shares.get(name)?.clone()
    }

    /// What becomes of what stands on this.
    pub fn judge(&mut self, standing: &Standing) -> Ruling {
        if let Some((_, ruling)) = self.rulings.get(&standing.address()) {
            return ruling.clone();
        }
        // The daemon's own opens stand on nothing.
        let Some(grounds) = standing.grounds::<Grounds>() else { return Ruling::Keep };
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

impl Tree {
    fn amend(&mut self, terms: Terms) {
        let Some(grounds) = terms.standing.grounds::<Grounds>() else { return };
        let Target::Disk { share, standing, .. } = &mut self.target else { return };
        *share = grounds.share.clone();
        *standing = terms.standing.clone();
        self.access = terms.share_access;
        self.encrypt = share.encrypt;
    }
}

impl<B: Backend, D: Directory> Server<B, D> {
    /// Accounts or shares have changed: what they took away is gone at the return, what they gave is there. See the module's rule.
    pub fn directory_changed(&mut self, now: Monotonic) {
        let mut review = Review::new(&self.directory);
        let (mut sessions, mut trees) = (Vec::new(), Vec::new());
        for (key, session) in self.sessions.iter_mut() {
            let logon = Logon::of(session);
            match review.token(&logon) {
                None => sessions.push(key),
                Some(token) => session.token = token,
            }
            for (id, tree) in &mut session.trees {
                let Target::Disk { standing, .. } = &tree.target else { continue };
                match review.judge(standing) {
                    Ruling::Keep => {}
                    Ruling::Amend(terms) => tree.amend(terms),
                    Ruling::Close => trees.push((key, *id)),
                }
            }
        }
        for volume in &mut self.volumes {
            if let Some(backend) = &mut volume.backend {
                backend.review(&mut |standing| review.judge(standing), now);
            }
        }
        drop(review);
        for (session, tree) in trees {
            self.end_tree(session, tree, now);
        }
        for session in sessions {
            self.close_session(session);
        }
    }

    /// A session's user has logged on anew: its trees stand on that logon. Those that give the new one less end.
    pub(crate) fn logged_on_anew(&mut self, key: u64, now: Monotonic) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let logon = Logon::of(session);
        let mut narrowed = Vec::new();
        for (id, tree) in &mut session.trees {
            let Target::Disk { share, .. } = &tree.target else { continue };
            let terms = terms(share.clone(), logon.clone());
            if tree.access & !terms.share_access != 0 {
                narrowed.push(*id);
            } else {
                tree.amend(terms);
            }
        }
        for tree in narrowed {
            self.end_tree(key, tree, now);
        }
    }
}
