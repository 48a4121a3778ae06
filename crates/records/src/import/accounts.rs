//! The accounts that come with an imported pool.
//!
//! Promises: nobody whom this server knew before gains anything. A user or group is added if neither
//! its name nor its SID means anybody here; groups that are here keep their members, unless the server
//! has no accounts of its own yet: then its whole state was lost, and the accounts on the disks are the
//! server's. Each new administrator, and everything that is left out, is in the report.

use super::checks::is_given_to_accounts;
use super::{Plan, Report};
use crate::account_error::{check_name, folded, is_reserved};
use crate::accounts::{AccountError, Group, UserRecord, seal_label};
use crate::names::NameRule;
use crate::seal::SealKey;
use crate::settings::{ID, ServerSettings};
use crate::shares::Share;
use crate::{BlockingState, PoolRecord, Record, StateError, Stored, Transaction, Typed};
use std::collections::{BTreeMap, BTreeSet};
use types::Sid;

/// Members of a group that a note names.
const NAMED_MAX: usize = 10;

/// The accounts that this server has.
pub(super) struct Known {
    settings: Option<Stored<ServerSettings>>,
    users: Vec<UserRecord>,
    groups: Vec<Stored<Group>>,
    /// SIDs to which shares or groups give something.
    granted: BTreeSet<Sid>,
    /// The server has no pools, shares and accounts of its own.
    is_fresh: bool,
}

/// An account of the disks' records that means nobody here.
enum Standing {
    New,
    /// The very same one is here.
    Known,
    /// Why it is left out.
    Refused(String),
}

impl Known {
    pub fn read(state: &impl BlockingState) -> Result<Self, AccountError> {
        let settings = state.read::<ServerSettings>(ID)?;
        let users: Vec<UserRecord> = state.list()?.into_iter().map(|found| found.value).collect();
        let groups = state.list::<Group>()?;
        let shares = state.list::<Share>()?;
        let is_untouched = |group: &Stored<Group>| group.value.is_builtin() && group.value.members.is_empty();
        let is_fresh = users.is_empty()
            && shares.is_empty()
            && groups.iter().all(is_untouched)
            && state.list::<PoolRecord>()?.is_empty();
        let members = groups.iter().flat_map(|group| group.value.members.iter().cloned());
        let grants = shares.iter().flat_map(|share| share.value.access.iter().map(|(sid, _)| sid.clone()));
        let granted = members.chain(grants).collect();
        Ok(Self { settings, users, groups, granted, is_fresh })
    }

    fn group(&self, sid: &Sid) -> Option<&Stored<Group>> {
        self.groups.iter().find(|group| group.value.sid == *sid)
    }

    /// How an account with this name and SID stands to those here.
    fn standing(&self, kind: &'static str, name: &str, sid: &Sid) -> Standing {
        let refused = |why: String| Standing::Refused(why);
        let id = folded(name);
        let users = self.users.iter().map(|user| ("user", &user.user.name, &user.user.sid));
        let groups = self.groups.iter().map(|group| ("group", &group.value.name, &group.value.sid));
        let here: Vec<_> = users.chain(groups).collect();
        if here.iter().any(|(other, own, own_sid)| *other == kind && folded(own) == id && *own_sid == sid) {
            return Standing::Known;
        }
        if let Some((kind, own, _)) = here.iter().find(|(_, own, _)| folded(own) == id) {
            return refused(format!("there is another {kind} '{own}' here"));
        }
        if let Some((kind, own, _)) = here.iter().find(|(_, _, own_sid)| *own_sid == sid) {
            return refused(format!("its SID is that of {kind} '{own}' here"));
        }
        if !is_given_to_accounts(sid) {
            return refused("its SID is none that servers give to their accounts".into());
        }
        if is_reserved(&id) {
            return refused("Windows uses the name for something else".into());
        }
        let rule = if kind == "user" { NameRule::USER } else { NameRule::GROUP };
        if let Err(error) = check_name(rule, name) {
            return refused(error.to_string());
        }
        if self.granted.contains(sid) {
            return refused("a share or group here gives its SID something".into());
        }
        match &self.settings {
            Some(own) if !self.is_fresh && own.value.has_given(sid) => {
                refused("this server gave its SID to an account that was deleted since".into())
            }
            _ => Standing::New,
        }
    }
}

/// Accounts that the import adds, by SID.
#[derive(Default)]
struct Added {
    names: BTreeMap<Sid, String>,
    /// Users and groups share one space of names.
    taken: BTreeSet<String>,
}

impl Added {
    /// `false` if an earlier record of the disks has the name or SID.
    fn insert(&mut self, name: &str, sid: &Sid) -> bool {
        let is_new = !self.names.contains_key(sid) && self.taken.insert(folded(name));
        if is_new {
            self.names.insert(sid.clone(), name.to_owned());
        }
        is_new
    }
}

/// Adds accounts and, on a server without its own, their memberships and the server's identity.
pub(super) fn add(
    known: &Known,
    keys: (&SealKey, Option<&SealKey>),
    plan: &Plan,
    report: &mut Report,
    changes: Transaction,
) -> Result<Transaction, AccountError> {
    let mut added = Added::default();
    let changes = users(known, keys, plan, &mut added, report, changes)?;
    let groups = new_groups(known, plan, &mut added, report)?;
    let changes = memberships(known, groups, &added, report, changes);
    settings(known, plan, &added, changes)
}

fn users(
    known: &Known,
    (key, old_key): (&SealKey, Option<&SealKey>),
    plan: &Plan,
    added: &mut Added,
    report: &mut Report,
    mut changes: Transaction,
) -> Result<Transaction, AccountError> {
    for mut record in plan.image.records::<UserRecord>().map_err(malformed)? {
        let user = &record.user;
        match known.standing("user", &user.name, &user.sid) {
            Standing::Known => continue,
            Standing::New if added.insert(&user.name, &user.sid) => {}
            standing => {
                let why = standing.why();
                report.notes.push(format!(
                    "user {:?} was left out: {why}; what it owns shows as {}",
                    user.name, user.sid
                ));
                continue;
            }
        }
        let label = seal_label(&record.user);
        let mut keys = [Some(key), old_key].into_iter().flatten();
        match keys.find_map(|key| key.open(&label, &record.sealed_nt_hash).ok()) {
            Some(hash) if !record.user.password_lost => record.sealed_nt_hash = key.seal(&label, &hash)?,
            _ => {
                record.sealed_nt_hash = String::new();
                record.user.password_lost = true;
                report.passwords_lost.push(record.user.name.clone());
            }
        }
        report.users.push(record.user.name.clone());
        changes = changes.when(record.key(), 0).put(record.key(), record.encode());
    }
    Ok(changes)
}

impl Standing {
    fn why(self) -> String {
        match self {
            Self::Refused(why) => why,
            Self::New | Self::Known => "the disks' records have its name or SID twice".into(),
        }
    }
}

/// The groups of the disks' records that are added or are here, each with the members that the disks give it.
fn new_groups(
    known: &Known,
    plan: &Plan,
    added: &mut Added,
    report: &mut Report,
) -> Result<Vec<Group>, AccountError> {
    let mut groups = Vec::new();
    for group in plan.image.records::<Group>().map_err(malformed)? {
        match known.standing("group", &group.name, &group.sid) {
            Standing::Known => groups.push(group),
            Standing::New if added.insert(&group.name, &group.sid) => groups.push(group),
            standing => report.notes.push(format!(
                "group {:?} was left out: {}; its rights show as {}",
                group.name,
                standing.why(),
                group.sid
            )),
        }
    }
    Ok(groups)
}

fn memberships(
    known: &Known,
    groups: Vec<Group>,
    added: &Added,
    report: &mut Report,
    mut changes: Transaction,
) -> Transaction {
    let mut administrators: Vec<Sid> =
        known.group(&Sid::administrators()).map_or_else(Vec::new, |group| group.value.members.clone());
    for group in groups {
        let own = known.group(&group.sid);
        let held = own.map_or(&[][..], |own| own.value.members.as_slice());
        // A group that others are given rights by here takes nobody in.
        let is_open = own.is_none() || known.is_fresh;
        let new: BTreeSet<Sid> = group.members.iter().filter(|sid| !held.contains(sid)).cloned().collect();
        let (joins, left_out): (Vec<Sid>, Vec<Sid>) =
            new.into_iter().partition(|sid| is_open && added.names.contains_key(sid));
        if !left_out.is_empty() {
            report.notes.push(not_joined(&group.name, &left_out, added));
        }
        if group.sid == Sid::administrators() {
            administrators.extend(joins.iter().cloned());
        }
        match own {
            None => {
                let group = Group { members: joins, ..group };
                changes = changes.when(group.key(), 0).put(group.key(), group.encode());
            }
            Some(own) if !joins.is_empty() => {
                let members = own.value.members.iter().cloned().chain(joins).collect();
                let group = Group { members, ..own.value.clone() };
                changes = changes.when(group.key(), own.revision).put(group.key(), group.encode());
            }
            Some(_) => {}
        }
    }
    let name = |sid: &Sid| {
        let user = known.users.iter().find(|user| user.user.sid == *sid).map(|user| user.user.name.clone());
        let group = || known.group(sid).map(|group| group.value.name.clone());
        user.or_else(group).or_else(|| added.names.get(sid).cloned()).unwrap_or_else(|| sid.to_string())
    };
    report.administrators = administrators.iter().map(name).collect();
    changes
}

fn not_joined(group: &str, left_out: &[Sid], added: &Added) -> String {
    let name = |sid: &Sid| added.names.get(sid).cloned().unwrap_or_else(|| sid.to_string());
    let mut names = left_out.iter().take(NAMED_MAX).map(name).collect::<Vec<_>>().join(", ");
    if left_out.len() > NAMED_MAX {
        names += &format!(" and {} more", left_out.len() - NAMED_MAX);
    }
    format!(
        "these members of group '{group}' on the disks did not become members here: {names}; `cenote group set '{group}' --add MEMBER` adds one"
    )
}

/// Keeps SIDs on a server without accounts of its own; elsewhere it never gives one twice.
fn settings(
    known: &Known,
    plan: &Plan,
    added: &Added,
    changes: Transaction,
) -> Result<Transaction, AccountError> {
    let Some(old) = plan.image.records::<ServerSettings>().map_err(malformed)?.into_iter().next() else {
        return Ok(changes);
    };
    let revision = known.settings.as_ref().map_or(0, |own| own.revision);
    let mut next = match &known.settings {
        Some(own) if own.value.domain_sid == old.domain_sid => ServerSettings {
            next_relative_id: own.value.next_relative_id.max(old.next_relative_id),
            ..own.value.clone()
        },
        Some(_) if !known.is_fresh => return Ok(changes),
        _ => old,
    };
    for sid in added.names.keys() {
        if let Some(id) = next.relative_id_of(sid) {
            next.next_relative_id = next.next_relative_id.max(id.saturating_add(1));
        }
    }
    Ok(changes.when(next.key(), revision).put(next.key(), next.encode()))
}

pub(super) fn malformed(error: crate::image::ImageError) -> AccountError {
    AccountError::State(StateError::Malformed { key: "the disks' records".into(), why: error.to_string() })
}
