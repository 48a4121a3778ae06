//! Accounts, groups and shares in RAM, shared by control plane and data plane.
//!
//! Promises: a reader sees one whole version and never waits for a disk. Never writes: the cluster state is the truth, and
//! [`SharedDirectory::replace`] is called after every committed change.

use cluster::accounts::{Group, UserSecret};
use cluster::shares::Share;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};
use types::Sid;

/// One version of the directory.
#[derive(Default)]
pub struct Directory {
    /// By lower-cased name.
    users: BTreeMap<String, UserSecret>,
    groups: Vec<Group>,
    /// By lower-cased name.
    shares: BTreeMap<String, Share>,
}

impl Directory {
    pub fn new(users: Vec<UserSecret>, groups: Vec<Group>, shares: Vec<Share>) -> Self {
        Self {
            users: users.into_iter().map(|secret| (fold(&secret.user.name), secret)).collect(),
            groups,
            shares: shares.into_iter().map(|share| (fold(&share.name), share)).collect(),
        }
    }

    /// A user by name, whatever its case; disabled ones too.
    pub fn user(&self, name: &str) -> Option<&UserSecret> {
        self.users.get(&fold(name))
    }
    pub fn users(&self) -> impl Iterator<Item = &UserSecret> {
        self.users.values()
    }
    pub fn user_of(&self, sid: &Sid) -> Option<&UserSecret> {
        self.users.values().find(|secret| secret.user.sid == *sid)
    }
    pub fn share(&self, name: &str) -> Option<&Share> {
        self.shares.get(&fold(name))
    }
    pub fn shares(&self) -> impl Iterator<Item = &Share> {
        self.shares.values()
    }
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Every group that `member` is in, directly or through groups, and the well-known ones of whoever logs on by network.
    pub fn groups_of(&self, member: &Sid) -> Vec<Sid> {
        let mut found = BTreeSet::new();
        let mut search = vec![member.clone()];
        while let Some(sid) = search.pop() {
            for group in self.groups.iter().filter(|group| group.members.contains(&sid)) {
                if found.insert(group.sid.clone()) {
                    search.push(group.sid.clone());
                }
            }
        }
        found.extend([Sid::everyone(), Sid::authenticated_users(), Sid::network(), Sid::users()]);
        found.into_iter().collect()
    }
}

fn fold(name: &str) -> String {
    name.to_lowercase()
}

/// The current version, for any thread.
#[derive(Clone, Default)]
pub struct SharedDirectory(Arc<RwLock<Arc<Directory>>>);

impl SharedDirectory {
    pub fn current(&self) -> Arc<Directory> {
        // A writer only stores a pointer: a poisoned lock still guards a whole version.
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub fn replace(&self, directory: Directory) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(directory);
    }
}
