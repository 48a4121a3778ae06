//! Accounts, groups, shares and tokens of the API in RAM, shared by control plane and data plane.
//!
//! Promises: a reader sees one whole version and never waits for a disk. Never writes: the cluster state is the truth, and
//! [`SharedDirectory::replace`] is called after every committed change.

use api::Freshness;
use records::accounts::{Group, User, UserSecret};
use records::api_tokens::{ApiToken, TokenHash};
use records::shares::Share;
use smb::rpc::{AccountEntry, AccountKind};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use types::{Sid, VolumeId};
use volume::backend::{AccessToken, Privileges};

/// One version of the directory.
pub struct Directory {
    /// By lower-cased name.
    users: BTreeMap<String, UserSecret>,
    groups: Vec<Group>,
    /// Names and kinds of accounts and groups: clients ask for a thousand at a time.
    by_sid: HashMap<Sid, (String, AccountKind)>,
    /// By lower-cased name.
    group_sids: BTreeMap<String, Sid>,
    /// By lower-cased name.
    shares: BTreeMap<String, Arc<Share>>,
    volumes: HashMap<VolumeId, String>,
    /// Named tokens of the API.
    tokens: HashMap<TokenHash, ApiToken>,
    /// The SID that this server's accounts are relative to.
    domain: Sid,
}

impl Directory {
    /// `domain`: the SID that this server's accounts are relative to.
    pub fn new(domain: Sid, users: Vec<UserSecret>, groups: Vec<Group>, shares: Vec<Share>) -> Self {
        // A user goes before a group, and an earlier record before a later one.
        let names = groups.iter().rev().map(|group| (&group.sid, &group.name, AccountKind::Alias));
        let names = names
            .chain(users.iter().rev().map(|secret| (&secret.user.sid, &secret.user.name, AccountKind::User)));
        let by_sid = names.map(|(sid, name, kind)| (sid.clone(), (name.clone(), kind))).collect();
        let group_sids = groups.iter().rev().map(|group| (fold(&group.name), group.sid.clone())).collect();
        Self {
            by_sid,
            group_sids,
            users: users.into_iter().map(|secret| (fold(&secret.user.name), secret)).collect(),
            groups,
            shares: shares.into_iter().map(|share| (fold(&share.name), Arc::new(share))).collect(),
            volumes: HashMap::new(),
            tokens: HashMap::new(),
            domain,
        }
    }

    /// Knows the names of volumes as well.
    #[must_use]
    pub fn with_volumes(self, volumes: impl IntoIterator<Item = (VolumeId, String)>) -> Self {
        Self { volumes: volumes.into_iter().collect(), ..self }
    }

    /// Knows the named tokens of the API as well.
    #[must_use]
    pub fn with_tokens(self, tokens: Vec<ApiToken>) -> Self {
        let by_hash = tokens.into_iter().filter_map(|token| Some((token.hash()?, token)));
        Self { tokens: by_hash.collect(), ..self }
    }

    /// The token of which this is the hash, expired or not.
    pub fn token_of(&self, hash: TokenHash) -> Option<&ApiToken> {
        self.tokens.get(&hash)
    }

    /// Returns all users, disabled ones included.
    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.users.values().map(|secret| &secret.user)
    }

    /// Returns all groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the name of a volume, as of the last change of accounts or shares.
    pub fn volume_name(&self, volume: VolumeId) -> Option<&str> {
        self.volumes.get(&volume).map(String::as_str)
    }

    /// Finds a user by name, ignoring case; disabled ones too.
    pub fn user(&self, name: &str) -> Option<&UserSecret> {
        self.users.get(&fold(name))
    }
    /// Finds a share by name, ignoring case.
    pub fn share(&self, name: &str) -> Option<&Arc<Share>> {
        self.shares.get(&fold(name))
    }
    /// Returns all shares.
    pub fn shares(&self) -> impl Iterator<Item = &Arc<Share>> {
        self.shares.values()
    }
    /// Returns the SID of this server's own accounts' domain.
    pub fn domain_sid(&self) -> &Sid {
        &self.domain
    }

    /// An account or group of this server by its SID.
    pub fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry> {
        let found = self.by_sid.get(sid);
        if let Some((name, AccountKind::User)) = found {
            return Some(entry(sid, name, AccountKind::User));
        }
        if self.domain.child(DOMAIN_USERS).as_ref() == Some(sid) {
            return Some(entry(sid, "None", AccountKind::Group));
        }
        found.map(|(name, kind)| entry(sid, name, *kind))
    }

    /// Finds an account or group of this server by name, ignoring case.
    pub fn account_by_name(&self, name: &str) -> Option<AccountEntry> {
        if let Some(secret) = self.user(name) {
            return Some(entry(&secret.user.sid, &secret.user.name, AccountKind::User));
        }
        self.account_by_sid(self.group_sids.get(&fold(name))?)
    }

    /// Returns the name of an account, a group or a well-known SID; the text of an unknown SID.
    pub fn display_name(&self, sid: &Sid) -> String {
        let well_known =
            || well_known().into_iter().find(|(known, _)| known == sid).map(|(_, name)| name.to_owned());
        self.account_by_sid(sid)
            .map(|found| found.name)
            .or_else(well_known)
            .unwrap_or_else(|| sid.to_string())
    }

    /// Returns the SID of a name: an account's, a group's, a well-known one, or a SID's own text.
    pub fn sid_of(&self, name: &str) -> Option<Sid> {
        let well_known =
            || well_known().into_iter().find(|(_, known)| fold(known) == fold(name)).map(|(sid, _)| sid);
        name.parse().ok().or_else(|| self.account_by_name(name).map(|found| found.sid)).or_else(well_known)
    }

    /// Every group of `member`, direct or through groups, and the well-known ones of logons by network.
    pub fn groups_of(&self, member: &Sid) -> Vec<Sid> {
        let well_known = [Sid::everyone(), Sid::authenticated_users(), Sid::network(), Sid::users()];
        let mut found = BTreeSet::from(well_known.clone());
        let mut search = Vec::from(well_known);
        search.push(member.clone());
        while let Some(sid) = search.pop() {
            for group in self.groups.iter().filter(|group| group.members.contains(&sid)) {
                if found.insert(group.sid.clone()) {
                    search.push(group.sid.clone());
                }
            }
        }
        found.into_iter().collect()
    }

    /// Returns the token that a user acts with.
    pub fn token(&self, user: &Sid) -> AccessToken {
        let groups = self.groups_of(user);
        let backup_operators = Sid::new(5, &[32, 551]).ok();
        let mut privileges = Privileges::empty();
        if groups.contains(&Sid::administrators()) {
            privileges = Privileges::all();
        } else if backup_operators.is_some_and(|sid| groups.contains(&sid)) {
            privileges = Privileges::BACKUP | Privileges::RESTORE;
        }
        let primary_group = self.domain.child(DOMAIN_USERS).unwrap_or_else(Sid::users);
        AccessToken { user: user.clone(), primary_group, groups, privileges }
    }
}

/// S-1-5-21-X-Y-Z-513: the primary group that Windows gives every account, named `None` on a standalone
/// server.
const DOMAIN_USERS: u32 = 513;

fn entry(sid: &Sid, name: &str, kind: AccountKind) -> AccountEntry {
    AccountEntry { sid: sid.clone(), name: name.to_owned(), kind }
}

/// SIDs that Windows has everywhere (MS-DTYP 2.4.2.4), without the groups that are recorded.
fn well_known() -> [(Sid, &'static str); 8] {
    [
        (Sid::everyone(), "Everyone"),
        (Sid::creator_owner(), "CREATOR OWNER"),
        (Sid::creator_group(), "CREATOR GROUP"),
        (Sid::owner_rights(), "OWNER RIGHTS"),
        (Sid::network(), "NETWORK"),
        (Sid::anonymous(), "ANONYMOUS LOGON"),
        (Sid::authenticated_users(), "Authenticated Users"),
        (Sid::local_system(), "SYSTEM"),
    ]
}

fn fold(name: &str) -> String {
    name.to_lowercase()
}

/// The current version, for any thread.
#[derive(Clone)]
pub struct SharedDirectory(Arc<RwLock<Arc<Directory>>>, Arc<Freshness>);

impl SharedDirectory {
    /// Makes the first version.
    pub fn new(directory: Directory) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(directory))), Arc::default())
    }

    /// Returns the version in force, which does not change while it is held.
    pub fn current(&self) -> Arc<Directory> {
        // A writer only stores a pointer: a poisoned lock still guards a whole version.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the directory matches the records, by other servers' notifications.
    pub fn freshness(&self) -> &Freshness {
        &self.1
    }

    /// Puts another version in force, for all threads.
    pub fn replace(&self, directory: Directory) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(directory);
    }
}

#[cfg(test)]
mod tests;
