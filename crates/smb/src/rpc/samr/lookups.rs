//! Accounts of a domain: listed, and found by name, by identifier and by member.

use super::super::AccountKind;
use super::super::ndr::{BadStub, Reader, Writer};
use super::domains::write_enumerated;
use super::users::{account_flags, is_normal};
use super::{
    Call, GROUP_ATTRIBUTES, LOOKUPS_MAX, MORE_ENTRIES, PRIMARY_GROUP, PRIMARY_GROUP_NAME, SOME_NOT_MAPPED,
    Stub, builtin, refused, write_numbers,
};
use types::{NtStatus, Sid};

/// Most bytes of one list, even if the client asks for more.
const LIST_BYTES_MAX: usize = 64 << 10;
/// Bytes that one account takes in a list beside its names.
const ENTRY_BYTES: usize = 64;

/// The accounts that a list is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Users,
    Groups,
    Aliases,
}

struct Account {
    rid: u32,
    name: String,
    kind: AccountKind,
    full_name: String,
    flags: u32,
}

/// All accounts of a domain, by rising identifier.
fn accounts(call: &Call<'_>, domain: &Sid) -> Vec<Account> {
    let rid_in = |sid: &Sid| sid.relative_id().filter(|rid| domain.child(*rid).as_ref() == Some(sid));
    let mut all = Vec::new();
    for user in call.directory.users() {
        if let Some(rid) = rid_in(&user.sid) {
            let flags = account_flags(&user);
            let kind = AccountKind::User;
            all.push(Account { rid, name: user.name, kind, full_name: user.full_name, flags });
        }
    }
    for group in call.directory.groups() {
        if let Some(rid) = rid_in(&group.sid) {
            let kind = AccountKind::Alias;
            all.push(Account { rid, name: group.name, kind, full_name: String::new(), flags: 0 });
        }
    }
    if *domain != builtin() {
        let (name, kind) = (PRIMARY_GROUP_NAME.into(), AccountKind::Group);
        let flags = GROUP_ATTRIBUTES;
        all.push(Account { rid: PRIMARY_GROUP, name, kind, full_name: String::new(), flags });
    }
    all.sort_by_key(|account| account.rid);
    all
}

/// As many accounts as an answer of this many bytes holds; one always.
fn fitting(rest: &[Account], bytes_max: usize) -> &[Account] {
    let mut used = 0;
    let fits = |account: &&Account| {
        used += ENTRY_BYTES + 2 * (account.name.len() + account.full_name.len());
        used <= bytes_max.min(LIST_BYTES_MAX)
    };
    let count = rest.iter().take_while(fits).count();
    rest.get(..count.max(1).min(rest.len())).unwrap_or_default()
}

/// SamrEnumerateGroupsInDomain, SamrEnumerateAliasesInDomain and SamrEnumerateUsersInDomain (MS-SAMR 3.1.5.2.3 to 3.1.5.2.5). The client's place in
/// the list is the identifier of the account before it.
pub(super) fn enumerate(reader: &mut Reader<'_>, call: &Call<'_>, kind: Kind) -> Stub {
    let handle = reader.handle()?;
    let after = reader.u32()?;
    let flags = if kind == Kind::Users { reader.u32()? } else { 0 };
    let bytes_max = reader.u32()? as usize;
    let Some(domain) = call.domain(handle) else { return Ok(refused(12, NtStatus::INVALID_HANDLE)) };
    let wanted = match kind {
        Kind::Users => AccountKind::User,
        Kind::Groups => AccountKind::Group,
        Kind::Aliases => AccountKind::Alias,
    };
    // All accounts here are normal ones, of people.
    let is_meant = |account: &Account| {
        account.kind == wanted && account.rid > after && (kind != Kind::Users || is_normal(flags))
    };
    let rest: Vec<Account> = accounts(call, &domain).into_iter().filter(is_meant).collect();
    let shown = fitting(&rest, bytes_max);
    let entries: Vec<_> = shown.iter().map(|account| (account.rid, account.name.as_str())).collect();
    let mut out = Writer::default();
    out.u32(shown.last().map_or(after, |account| account.rid));
    write_enumerated(&mut out, &entries);
    out.u32(if shown.len() < rest.len() { MORE_ENTRIES.0 } else { NtStatus::SUCCESS.0 });
    Ok(out.into_stub())
}

/// Reads the bounds of an array of at most [`LOOKUPS_MAX`] entries (conformant and varying).
fn read_count(reader: &mut Reader<'_>) -> Result<usize, BadStub> {
    let count = reader.u32()? as usize;
    let (max, offset, actual) = (reader.u32()? as usize, reader.u32()?, reader.u32()? as usize);
    if count > LOOKUPS_MAX || offset != 0 || actual != count || max < count {
        return Err(BadStub);
    }
    Ok(count)
}

fn verdict(asked: usize, mapped: usize) -> u32 {
    match mapped {
        0 if asked > 0 => NtStatus::NONE_MAPPED.0,
        some if some < asked => SOME_NOT_MAPPED.0,
        _ => NtStatus::SUCCESS.0,
    }
}

/// SamrLookupNamesInDomain (MS-SAMR 3.1.5.11.2).
pub(super) fn names(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let handle = reader.handle()?;
    let count = read_count(reader)?;
    let names = reader.unicode_strings(count)?;
    let Some(domain) = call.domain(handle) else { return Ok(refused(16, NtStatus::INVALID_HANDLE)) };
    let known: std::collections::HashMap<String, (u32, u32)> = accounts(call, &domain)
        .into_iter()
        .map(|account| (account.name.to_lowercase(), (account.rid, account.kind as u32)))
        .collect();
    let found: Vec<_> = names.iter().map(|name| known.get(&name.to_lowercase()).copied()).collect();
    let mapped = found.iter().flatten().count();
    let status = verdict(found.len(), mapped);
    if mapped == 0 {
        return Ok(refused(16, NtStatus(status)));
    }
    let found: Vec<_> = found.into_iter().map(|found| found.unwrap_or((0, 8))).collect();
    let mut out = Writer::default();
    write_numbers(&mut out, &found.iter().map(|(rid, _)| *rid).collect::<Vec<_>>());
    write_numbers(&mut out, &found.iter().map(|(_, kind)| *kind).collect::<Vec<_>>());
    out.u32(status);
    Ok(out.into_stub())
}

/// SamrLookupIdsInDomain (MS-SAMR 3.1.5.11.3).
pub(super) fn ids(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let handle = reader.handle()?;
    let count = read_count(reader)?;
    let asked = (0..count).map(|_| reader.u32()).collect::<Result<Vec<_>, _>>()?;
    let Some(domain) = call.domain(handle) else { return Ok(refused(16, NtStatus::INVALID_HANDLE)) };
    let known: std::collections::HashMap<u32, (String, u32)> = accounts(call, &domain)
        .into_iter()
        .map(|account| (account.rid, (account.name, account.kind as u32)))
        .collect();
    let found: Vec<_> = asked.iter().map(|rid| known.get(rid)).collect();
    let mapped = found.iter().flatten().count();
    let status = verdict(found.len(), mapped);
    if mapped == 0 {
        return Ok(refused(16, NtStatus(status)));
    }
    let name = |found: &Option<&(String, u32)>| found.map_or("", |(name, _)| name.as_str()).to_owned();
    let names: Vec<String> = found.iter().map(name).collect();
    let mut out = Writer::default();
    // SAMPR_RETURNED_USTRING_ARRAY (MS-SAMR 2.2.7.7).
    out.count(names.len());
    out.pointer();
    out.count(names.len());
    names.iter().for_each(|name| out.unicode_string(name));
    names.iter().for_each(|name| out.unicode_string_target(name));
    let kinds: Vec<u32> = found.iter().map(|found| found.map_or(8, |(_, kind)| *kind)).collect();
    write_numbers(&mut out, &kinds);
    out.u32(status);
    Ok(out.into_stub())
}

/// SamrGetAliasMembership (MS-SAMR 3.1.5.9.2): the local groups of a domain that SIDs are in.
pub(super) fn alias_membership(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let handle = reader.handle()?;
    let count = reader.u32()? as usize;
    if count > LOOKUPS_MAX {
        return Err(BadStub);
    }
    let mut sids = Vec::with_capacity(count);
    if reader.pointer()? {
        if reader.u32()? as usize != count {
            return Err(BadStub);
        }
        for _ in 0..count {
            if !reader.pointer()? {
                return Err(BadStub);
            }
        }
        for _ in 0..count {
            sids.push(reader.sid()?);
        }
    }
    let Some(domain) = call.domain(handle) else { return Ok(refused(8, NtStatus::INVALID_HANDLE)) };
    let sids: std::collections::HashSet<Sid> = sids.into_iter().collect();
    let groups = call.directory.groups();
    let found = groups.iter().filter(|group| group.members.iter().any(|member| sids.contains(member)));
    let rids: Vec<u32> = found
        .filter_map(|group| {
            group.sid.relative_id().filter(|rid| domain.child(*rid) == Some(group.sid.clone()))
        })
        .collect();
    let mut out = Writer::default();
    write_numbers(&mut out, &rids);
    out.u32(NtStatus::SUCCESS.0);
    Ok(out.into_stub())
}

/// SamrQueryDisplayInformation, 2 and 3 (MS-SAMR 3.1.5.3.1): users, machines (none) and groups with their full names.
pub(super) fn display(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let handle = reader.handle()?;
    let class = reader.u16()?;
    let from = reader.u32()? as usize;
    let entries_max = reader.u32()? as usize;
    let bytes_max = reader.u32()? as usize;
    let refuse = |status: NtStatus| {
        let mut out = Writer::default();
        [0, 0, u32::from(class), 0, 0, status.0].into_iter().for_each(|value| out.u32(value));
        Ok(out.into_stub())
    };
    let Some(domain) = call.domain(handle) else { return refuse(NtStatus::INVALID_HANDLE) };
    let kind = match class {
        1 | 4 => Some(AccountKind::User),
        2 => None,
        3 | 5 => Some(AccountKind::Group),
        _ => return refuse(NtStatus::INVALID_INFO_CLASS),
    };
    let all: Vec<Account> =
        accounts(call, &domain).into_iter().filter(|account| Some(account.kind) == kind).collect();
    let rest = all.get(from.min(all.len())..).unwrap_or_default();
    let rest_max = rest.get(..entries_max.min(rest.len())).unwrap_or_default();
    let shown = fitting(rest_max, bytes_max);
    let mut out = Writer::default();
    let bytes = |list: &[Account]| list.iter().map(|one| ENTRY_BYTES + 2 * one.name.len()).sum::<usize>();
    out.count(bytes(&all));
    out.count(bytes(shown));
    out.u16(class);
    out.count(shown.len());
    out.pointer_if(!shown.is_empty());
    if !shown.is_empty() {
        out.count(shown.len());
    }
    for (at, account) in shown.iter().enumerate() {
        write_displayed(&mut out, class, (from + at + 1) as u32, account);
    }
    for account in shown {
        match class {
            // Names of the OEM character set, which is as good as ASCII.
            4 | 5 => write_oem_target(&mut out, &account.name),
            _ => {
                out.unicode_string_target(&account.name);
                out.unicode_string_target("");
                if class == 1 {
                    out.unicode_string_target(&account.full_name);
                }
            }
        }
    }
    out.u32(if shown.len() < rest.len() { MORE_ENTRIES.0 } else { NtStatus::SUCCESS.0 });
    Ok(out.into_stub())
}

/// Writes the fixed part of one entry (MS-SAMR 2.2.8.2 to 2.2.8.6); the comment is empty.
fn write_displayed(out: &mut Writer, class: u16, index: u32, account: &Account) {
    out.u32(index);
    if matches!(class, 4 | 5) {
        let len = oem(&account.name).len() as u16;
        out.u16(len);
        out.u16(len);
        out.pointer();
        return;
    }
    out.u32(account.rid);
    out.u32(account.flags);
    out.unicode_string(&account.name);
    out.unicode_string("");
    if class == 1 {
        out.unicode_string(&account.full_name);
    }
}

fn oem(name: &str) -> Vec<u8> {
    name.chars().map(|c| if c.is_ascii() { c as u8 } else { b'?' }).collect()
}

fn write_oem_target(out: &mut Writer, name: &str) {
    let bytes = oem(name);
    out.count(bytes.len());
    out.u32(0);
    out.count(bytes.len());
    out.bytes(&bytes);
}
