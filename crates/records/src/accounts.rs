//! Users, groups and their security identifiers.
//!
//! Owns the account records and every change of them. Promises: a SID is never given twice; a change is whole or not there, and
//! a deleted account is gone from every group and share in the same transaction. Never stores a password: only its NT hash,
//! sealed.

use crate::account_error::{check_name, folded, is_reserved};
use crate::names::{NameFault, NameRule, check_text};
use crate::seal::{SealError, SealKey};
use crate::settings::ServerSettings;
use crate::shares::Share;
use crate::{BlockingState, Record, Stored, Transaction, Typed};
use md4::{Digest, Md4};
use serde::{Deserialize, Serialize};
use types::Sid;
use zeroize::Zeroizing;

pub use crate::account_error::AccountError;

/// As refusals call it.
const FULL_NAME: &str = "full name";
/// Longest password, in characters (as Windows' own dialog has it).
pub const PASSWORD_CHARS_MAX: usize = 256;

/// Rules for a new password. It need not differ from earlier ones: only administrators set passwords
/// here, and the hashes of old ones are not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PasswordPolicy {
    pub characters_min: u32,
}

impl PasswordPolicy {
    /// Any password that is one.
    pub const ANY: Self = Self { characters_min: 1 };

    fn check(self, user: &str, password: &str) -> Result<(), AccountError> {
        let bad = |why: String| Err(AccountError::BadPassword(why));
        let characters = password.chars().count();
        if password.is_empty() {
            return bad("it is empty".into());
        }
        if characters > PASSWORD_CHARS_MAX {
            return bad(format!("it is longer than {PASSWORD_CHARS_MAX} characters"));
        }
        if characters < self.characters_min as usize {
            return bad(format!(
                "it has {characters} characters, and accounts.password_characters_min of the configuration asks for {}",
                self.characters_min
            ));
        }
        if folded(user) == folded(password) {
            return bad("it is the user's name".into());
        }
        Ok(())
    }
}

/// A user of the server's own account database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub name: String,
    pub sid: Sid,
    pub enabled: bool,
    /// For people; may be empty.
    #[serde(default)]
    pub full_name: String,
    pub password_set_unix_s: u64,
    /// The user came with an imported pool and without the key that opens the password: nobody can log on
    /// as this user until a password is set.
    #[serde(default)]
    pub password_lost: bool,
}

/// A user with the hash that a logon is checked against.
#[derive(Clone)]
pub struct UserSecret {
    pub user: User,
    /// MD4 of the UTF-16LE password (MS-NLMP 3.3.1 NTOWFv1).
    pub nt_hash: Zeroizing<[u8; 16]>,
}

/// A local group. Well-known ones (BUILTIN) have their own fixed SIDs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    pub sid: Sid,
    /// Users or groups, by SID.
    pub members: Vec<Sid>,
}

impl Group {
    /// One of Windows' own groups: cannot be deleted.
    pub fn is_builtin(&self) -> bool {
        matches!(self.sid.sub_authorities(), [32, _])
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct UserRecord {
    #[serde(flatten)]
    pub(crate) user: User,
    pub(crate) sealed_nt_hash: String,
}

impl Record for UserRecord {
    const PREFIX: &'static str = "user/";
    fn id(&self) -> String {
        folded(&self.user.name)
    }
}

impl Record for Group {
    const PREFIX: &'static str = "group/";
    fn id(&self) -> String {
        folded(&self.name)
    }
}

/// The account database: state and key together.
pub struct Accounts<'a, S> {
    state: &'a S,
    key: &'a SealKey,
    policy: PasswordPolicy,
}

impl<'a, S: BlockingState> Accounts<'a, S> {
    pub fn new(state: &'a S, key: &'a SealKey) -> Self {
        Self { state, key, policy: PasswordPolicy::ANY }
    }

    /// Judges new passwords by `policy`.
    #[must_use]
    pub fn with_policy(self, policy: PasswordPolicy) -> Self {
        Self { policy, ..self }
    }

    /// Makes Windows' own groups if they are missing.
    ///
    /// # Errors
    /// [`AccountError::State`].
    pub fn create_builtin_groups(&self) -> Result<(), AccountError> {
        let builtin = |id| Sid::new(5, &[32, id]).map_err(|error| AccountError::Invalid(error.to_string()));
        for (name, sid) in [
            ("Administrators", Sid::administrators()),
            ("Users", Sid::users()),
            ("Guests", Sid::guests()),
            ("Backup Operators", builtin(551)?),
        ] {
            if self.state.read::<Group>(&folded(name))?.is_none() {
                self.state.write(&Group { name: name.into(), sid, members: Vec::new() }, 0)?;
            }
        }
        Ok(())
    }

    /// # Errors
    /// [`AccountError::State`], or [`AccountError::Seal`] if a hash does not open with this key.
    pub fn users(&self) -> Result<Vec<UserSecret>, AccountError> {
        let records: Vec<Stored<UserRecord>> = self.state.list()?;
        records.into_iter().map(|found| self.open(found.value)).collect()
    }

    fn open(&self, record: UserRecord) -> Result<UserSecret, AccountError> {
        if record.user.password_lost {
            // No password has a hash that nobody knows.
            let mut nt_hash = Zeroizing::new([0; 16]);
            getrandom::fill(nt_hash.as_mut_slice()).map_err(|_| SealError::Random)?;
            return Ok(UserSecret { user: record.user, nt_hash });
        }
        let of = seal_label(&record.user);
        let secret = self.key.open(&of, &record.sealed_nt_hash)?;
        let nt_hash = secret.as_slice().try_into().map_err(|_| SealError::DoesNotOpen { of })?;
        Ok(UserSecret { user: record.user, nt_hash: Zeroizing::new(nt_hash) })
    }

    /// # Errors
    /// [`AccountError::State`].
    pub fn groups(&self) -> Result<Vec<Group>, AccountError> {
        Ok(self.state.list()?.into_iter().map(|found| found.value).collect())
    }

    /// Adds a user with the next free SID, enabled, and a member of the named groups.
    ///
    /// # Errors
    /// `Exists`, `BadName`, `BadPassword`, `NotFound` (a group), or the state's.
    pub fn add_user(
        &self,
        name: &str,
        full_name: &str,
        password: &str,
        groups: &[String],
        now_unix_s: u64,
    ) -> Result<User, AccountError> {
        check_name(NameRule::USER, name)?;
        check_text(FULL_NAME, full_name)?;
        self.policy.check(name, password)?;
        let nt_hash = nt_hash(password);
        self.check_free(NameRule::USER, name)?;
        let (sid, transaction) = self.next_sid()?;
        let user = User {
            name: name.into(),
            sid: sid.clone(),
            enabled: true,
            full_name: full_name.into(),
            password_set_unix_s: now_unix_s,
            password_lost: false,
        };
        let sealed_nt_hash = self.key.seal(&seal_label(&user), nt_hash.as_slice())?;
        let record = UserRecord { user: user.clone(), sealed_nt_hash };
        let mut transaction = transaction.when(record.key(), 0).put(record.key(), record.encode());
        for group in groups {
            let mut found = self.group(group)?;
            found.value.members.push(sid.clone());
            transaction = replace(transaction, &found);
        }
        self.state.commit(transaction)?;
        Ok(user)
    }

    /// # Errors
    /// `NotFound`, `BadPassword`, or the state's.
    pub fn set_password(&self, name: &str, password: &str, now_unix_s: u64) -> Result<(), AccountError> {
        let mut found = self.user(name)?;
        self.policy.check(name, password)?;
        let nt_hash = nt_hash(password);
        found.value.sealed_nt_hash = self.key.seal(&seal_label(&found.value.user), nt_hash.as_slice())?;
        found.value.user.password_set_unix_s = now_unix_s;
        found.value.user.password_lost = false;
        self.state.write(&found.value, found.revision)?;
        Ok(())
    }

    /// # Errors
    /// `NotFound`, `BadText`, or the state's.
    pub fn set_user(
        &self,
        name: &str,
        enabled: Option<bool>,
        full_name: Option<&str>,
    ) -> Result<User, AccountError> {
        let mut found = self.user(name)?;
        let user = &mut found.value.user;
        user.enabled = enabled.unwrap_or(user.enabled);
        if let Some(full_name) = full_name {
            check_text(FULL_NAME, full_name)?;
            user.full_name = full_name.into();
        }
        self.state.write(&found.value, found.revision)?;
        Ok(found.value.user)
    }

    /// Gives the user another name. It stays the same one: SID, password, groups, grants and files are its own as before.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `BadName`, or the state's.
    pub fn rename_user(&self, name: &str, new_name: &str) -> Result<User, AccountError> {
        let mut found = self.user(name)?;
        check_name(NameRule::USER, new_name)?;
        if folded(name) != folded(new_name) {
            self.check_free(NameRule::USER, new_name)?;
        }
        let old_key = found.value.key();
        found.value.user.name = new_name.into();
        let mut transaction = Transaction::default().when(old_key.clone(), found.revision);
        let key = found.value.key();
        if key != old_key {
            transaction = transaction.delete(old_key).when(key.clone(), 0);
        }
        self.state.commit(transaction.put(key, found.value.encode()))?;
        Ok(found.value.user)
    }

    /// Deletes the user, and takes it out of all groups and shares. Its SID is not given again.
    ///
    /// # Errors
    /// `NotFound`, or the state's.
    pub fn delete_user(&self, name: &str) -> Result<(), AccountError> {
        let found = self.user(name)?;
        let key = found.value.key();
        let transaction = Transaction::default().when(key.clone(), found.revision).delete(key);
        self.state.commit(self.forget(transaction, &found.value.user.sid)?)?;
        Ok(())
    }

    /// # Errors
    /// `Exists`, `BadName`, or the state's.
    pub fn add_group(&self, name: &str) -> Result<Group, AccountError> {
        check_name(NameRule::GROUP, name)?;
        self.check_free(NameRule::GROUP, name)?;
        let (sid, transaction) = self.next_sid()?;
        let group = Group { name: name.into(), sid, members: Vec::new() };
        self.state.commit(transaction.when(group.key(), 0).put(group.key(), group.encode()))?;
        Ok(group)
    }

    /// Adds and removes members, given by name.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` if a group would come to hold itself, or the state's.
    pub fn set_members(&self, name: &str, add: &[String], remove: &[String]) -> Result<Group, AccountError> {
        let mut found = self.group(name)?;
        for member in add {
            let sid = self.sid_of(member)?;
            if self.holds(&sid, &found.value.sid)? {
                return Err(AccountError::Invalid(format!(
                    "'{member}' cannot become a member of '{name}': it would hold itself; remove '{name}' from it first"
                )));
            }
            if !found.value.members.contains(&sid) {
                found.value.members.push(sid);
            }
        }
        for member in remove {
            let sid = self.sid_of(member)?;
            found.value.members.retain(|other| *other != sid);
        }
        self.state.write(&found.value, found.revision)?;
        Ok(found.value)
    }

    /// # Errors
    /// `NotFound`, `Builtin`, or the state's.
    pub fn delete_group(&self, name: &str) -> Result<(), AccountError> {
        let found = self.group(name)?;
        if found.value.is_builtin() {
            return Err(AccountError::Builtin(found.value.name));
        }
        let key = found.value.key();
        let transaction = Transaction::default().when(key.clone(), found.revision).delete(key);
        self.state.commit(self.forget(transaction, &found.value.sid)?)?;
        Ok(())
    }

    /// The SID of a user, a group, `Everyone`, `Authenticated Users`, or a SID's own text.
    ///
    /// # Errors
    /// `NotFound`, or the state's.
    pub fn sid_of(&self, name: &str) -> Result<Sid, AccountError> {
        if let Ok(sid) = name.parse() {
            return Ok(sid);
        }
        match folded(name).as_str() {
            "everyone" => return Ok(Sid::everyone()),
            "authenticated users" => return Ok(Sid::authenticated_users()),
            "system" => return Ok(Sid::local_system()),
            "creator owner" => return Ok(Sid::creator_owner()),
            _ => {}
        }
        match self.user(name) {
            Ok(found) => Ok(found.value.user.sid),
            Err(AccountError::NotFound { .. }) => match self.group(name) {
                Err(AccountError::NotFound { .. }) => Err(AccountError::NoAccount(name.into())),
                found => found.map(|found| found.value.sid),
            },
            Err(error) => Err(error),
        }
    }

    fn user(&self, name: &str) -> Result<Stored<UserRecord>, AccountError> {
        self.state
            .read(&folded(name))?
            .ok_or_else(|| AccountError::NotFound { kind: "user", name: name.into() })
    }

    fn group(&self, name: &str) -> Result<Stored<Group>, AccountError> {
        self.state
            .read(&folded(name))?
            .ok_or_else(|| AccountError::NotFound { kind: "group", name: name.into() })
    }

    /// Users and groups share one space of names, since a SID is looked up by name alone.
    fn check_free(&self, rule: NameRule, name: &str) -> Result<(), AccountError> {
        let id = folded(name);
        if self.state.read::<UserRecord>(&id)?.is_some() {
            return Err(AccountError::Exists { kind: "user", name: name.into() });
        }
        if self.state.read::<Group>(&id)?.is_some() {
            return Err(AccountError::Exists { kind: "group", name: name.into() });
        }
        if is_reserved(&id) {
            return Err(rule.refuse(name, NameFault::Reserved).into());
        }
        Ok(())
    }

    /// The next account's SID, and the transaction that takes it.
    fn next_sid(&self) -> Result<(Sid, Transaction), AccountError> {
        let mut settings = ServerSettings::open_or_create(self.state)?;
        let relative_id = settings.value.next_relative_id;
        let full = || AccountError::Invalid("all relative identifiers have been given".into());
        let sid = settings.value.domain_sid.child(relative_id).ok_or_else(full)?;
        settings.value.next_relative_id = relative_id.checked_add(1).ok_or_else(full)?;
        Ok((sid, replace(Transaction::default(), &settings)))
    }

    /// `outer` is `inner`, or holds it through groups.
    fn holds(&self, inner: &Sid, outer: &Sid) -> Result<bool, AccountError> {
        let groups = self.groups()?;
        let mut search = vec![inner.clone()];
        let mut seen = Vec::new();
        while let Some(sid) = search.pop() {
            if sid == *outer {
                return Ok(true);
            }
            if let Some(group) = groups.iter().find(|group| group.sid == sid)
                && !seen.contains(&sid)
            {
                search.extend(group.members.iter().cloned());
                seen.push(sid);
            }
        }
        Ok(false)
    }

    /// Takes `sid` out of all groups and shares.
    fn forget(&self, mut transaction: Transaction, sid: &Sid) -> Result<Transaction, AccountError> {
        for mut group in self.state.list::<Group>()? {
            if group.value.members.contains(sid) && group.value.sid != *sid {
                group.value.members.retain(|member| member != sid);
                transaction = replace(transaction, &group);
            }
        }
        for mut share in self.state.list::<Share>()? {
            if share.value.access.iter().any(|(who, _)| who == sid) {
                share.value.access.retain(|(who, _)| who != sid);
                transaction = replace(transaction, &share);
            }
        }
        Ok(transaction)
    }
}

fn replace<R: Record>(transaction: Transaction, record: &Stored<R>) -> Transaction {
    let key = record.value.key();
    transaction.when(key.clone(), record.revision).put(key, record.value.encode())
}

/// Binds a sealed hash to its account.
pub(crate) fn seal_label(user: &User) -> String {
    format!("user {}", user.sid)
}

/// NTOWFv1 of MS-NLMP 3.3.1.
fn nt_hash(password: &str) -> Zeroizing<[u8; 16]> {
    let wide: Zeroizing<Vec<u8>> =
        Zeroizing::new(password.encode_utf16().flat_map(u16::to_le_bytes).collect());
    Zeroizing::new(Md4::digest(wide.as_slice()).into())
}

/// Length of a password that is generated, five bits each.
pub const GENERATED_PASSWORD_CHARS: usize = 16;

/// 80 random bits in letters and digits that are not mistaken for one another.
///
/// # Errors
/// If the system has no random numbers.
pub fn generated_password() -> std::io::Result<String> {
    const LETTERS: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz23456789A";
    let mut bytes = [0; GENERATED_PASSWORD_CHARS];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}
