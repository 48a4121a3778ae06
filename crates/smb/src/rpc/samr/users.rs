//! One user or group.

use super::super::handles::Object;
use super::super::ndr::{Reader, Writer};
use super::super::{GroupEntry, UserEntry};
use super::domains::old_large;
use super::{
    Call, GROUP_ATTRIBUTES, NO_SUCH_ALIAS, NO_SUCH_USER, PRIMARY_GROUP, PRIMARY_GROUP_NAME, Stub, refused,
};
use types::NtStatus;

/// USER_ACCOUNT_DISABLED, USER_NORMAL_ACCOUNT and USER_DONT_EXPIRE_PASSWORD (MS-SAMR 2.2.1.12).
const DISABLED: u32 = 1;
const NORMAL: u32 = 0x10;
const PASSWORD_NEVER_EXPIRES: u32 = 0x200;
const NEVER: u64 = i64::MAX as u64;
/// The fields of SAMPR_USER_ALL_INFORMATION that are filled (MS-SAMR 2.2.1.8): names, identifiers, flags and times.
const FIELDS_PRESENT: u32 = 0x00FF_FFFF;

pub(super) fn account_flags(user: &UserEntry) -> u32 {
    NORMAL | PASSWORD_NEVER_EXPIRES | if user.enabled { 0 } else { DISABLED }
}

/// Whether a filter of account flags means normal accounts; without any it means all.
pub(super) fn is_normal(flags: u32) -> bool {
    flags == 0 || flags & NORMAL != 0
}

fn user_of(call: &Call<'_>, handle: [u8; 20]) -> Result<UserEntry, NtStatus> {
    let Some(Object::SamUser(sid)) = call.handles.find(handle) else { return Err(NtStatus::INVALID_HANDLE) };
    call.directory.users().into_iter().find(|user| user.sid == *sid).ok_or(NO_SUCH_USER)
}

fn alias_of(call: &Call<'_>, handle: [u8; 20]) -> Result<GroupEntry, NtStatus> {
    let Some(Object::SamAlias(sid)) = call.handles.find(handle) else { return Err(NtStatus::INVALID_HANDLE) };
    call.directory.groups().into_iter().find(|group| group.sid == *sid).ok_or(NO_SUCH_ALIAS)
}

fn is_group(call: &Call<'_>, handle: [u8; 20]) -> bool {
    matches!(call.handles.find(handle), Some(Object::SamGroup(_)))
}

/// A pointer to a union of that class, whose content follows.
fn begin(class: u16) -> Writer {
    let mut out = Writer::default();
    out.pointer();
    out.u16(class);
    out
}

fn end(mut out: Writer) -> Stub {
    out.u32(NtStatus::SUCCESS.0);
    Ok(out.into_stub())
}

fn strings(out: &mut Writer, texts: &[&str]) {
    texts.iter().for_each(|text| out.unicode_string(text));
    texts.iter().for_each(|text| out.unicode_string_target(text));
}

/// SamrQueryInformationUser and 2 (MS-SAMR 3.1.5.5.5).
pub(super) fn query_user(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let handle = reader.handle()?;
    let class = reader.u16()?;
    let user = match user_of(call, handle) {
        Ok(user) => user,
        Err(status) => return Ok(refused(4, status)),
    };
    let rid = user.sid.relative_id().unwrap_or_default();
    let mut out = begin(class);
    match class {
        // UserGeneralInformation
        1 => {
            out.unicode_string(&user.name);
            out.unicode_string(&user.full_name);
            out.u32(PRIMARY_GROUP);
            out.unicode_string("");
            out.unicode_string("");
            for text in [&user.name, &user.full_name, "", ""] {
                out.unicode_string_target(text);
            }
        }
        // UserNameInformation, UserAccountNameInformation, UserFullNameInformation
        6 => strings(&mut out, &[&user.name, &user.full_name]),
        7 => strings(&mut out, &[&user.name]),
        8 => strings(&mut out, &[&user.full_name]),
        9 => out.u32(PRIMARY_GROUP),
        // Home, script, profile, comment and workstations, which nobody has.
        10 => strings(&mut out, &["", ""]),
        11..=14 => strings(&mut out, &[""]),
        16 => out.u32(account_flags(&user)),
        17 => old_large(&mut out, NEVER),
        21 => write_all(&mut out, &user, rid),
        _ => return Ok(refused(4, NtStatus::INVALID_INFO_CLASS)),
    }
    end(out)
}

/// SAMPR_USER_ALL_INFORMATION (MS-SAMR 2.2.6.6).
fn write_all(out: &mut Writer, user: &UserEntry, rid: u32) {
    // Logon, logoff, password's change, expiry of the account, when the password may and must be changed.
    for time in [0, 0, user.password_set.0, NEVER, 0, NEVER] {
        old_large(out, time);
    }
    // Name, full name, home, drive, script, profile, comments, workstations.
    let texts = [user.name.as_str(), &user.full_name, "", "", "", "", "", "", ""];
    texts.iter().for_each(|text| out.unicode_string(text));
    // Parameters, the two hashes, private data, security descriptor: nothing.
    for _ in 0..5 {
        out.u32(0);
        out.null();
    }
    out.u32(rid);
    out.u32(PRIMARY_GROUP);
    out.u32(account_flags(user));
    out.u32(FIELDS_PRESENT);
    // Logon hours: always.
    out.u16(168);
    out.null();
    // Bad passwords, logons, country, code page; then whether passwords are set, expired and private,
    // which is left out.
    [0; 4].into_iter().for_each(|zero| out.u16(zero));
    out.bytes(&[0; 4]);
    texts.iter().for_each(|text| out.unicode_string_target(text));
}

/// SamrGetGroupsForUser (MS-SAMR 3.1.5.9.1): the primary group alone.
pub(super) fn groups_of_user(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    if let Err(status) = user_of(call, reader.handle()?) {
        return Ok(refused(4, status));
    }
    let mut out = Writer::default();
    out.pointer();
    out.u32(1);
    out.pointer();
    out.u32(1);
    out.u32(PRIMARY_GROUP);
    out.u32(GROUP_ATTRIBUTES);
    end(out)
}

/// SamrGetUserDomainPasswordInformation (MS-SAMR 3.1.5.13.3).
pub(super) fn password_rules(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let status = user_of(call, reader.handle()?).err().unwrap_or(NtStatus::SUCCESS);
    Ok(refused(8, status))
}

/// SamrQueryInformationGroup (MS-SAMR 3.1.5.5.3).
pub(super) fn query_group(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let handle = reader.handle()?;
    let class = reader.u16()?;
    if !is_group(call, handle) {
        return Ok(refused(4, NtStatus::INVALID_HANDLE));
    }
    let mut out = begin(class);
    match class {
        1 | 5 => {
            out.unicode_string(PRIMARY_GROUP_NAME);
            out.u32(GROUP_ATTRIBUTES);
            out.count(call.directory.users().len());
            out.unicode_string("");
            out.unicode_string_target(PRIMARY_GROUP_NAME);
            out.unicode_string_target("");
        }
        2 => strings(&mut out, &[PRIMARY_GROUP_NAME]),
        3 => out.u32(GROUP_ATTRIBUTES),
        4 => strings(&mut out, &[""]),
        _ => return Ok(refused(4, NtStatus::INVALID_INFO_CLASS)),
    }
    end(out)
}

/// SamrGetMembersInGroup (MS-SAMR 3.1.5.8.3): all users.
pub(super) fn members_of_group(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    if !is_group(call, reader.handle()?) {
        return Ok(refused(4, NtStatus::INVALID_HANDLE));
    }
    let users = call.directory.users();
    let rids: Vec<u32> = users.iter().filter_map(|user| user.sid.relative_id()).collect();
    let mut out = Writer::default();
    out.pointer();
    out.count(rids.len());
    out.pointer_if(!rids.is_empty());
    out.pointer_if(!rids.is_empty());
    if !rids.is_empty() {
        out.count(rids.len());
        rids.iter().for_each(|rid| out.u32(*rid));
        out.count(rids.len());
        rids.iter().for_each(|_| out.u32(GROUP_ATTRIBUTES));
    }
    end(out)
}

/// SamrQueryInformationAlias (MS-SAMR 3.1.5.5.4).
pub(super) fn query_alias(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let handle = reader.handle()?;
    let class = reader.u16()?;
    let group = match alias_of(call, handle) {
        Ok(group) => group,
        Err(status) => return Ok(refused(4, status)),
    };
    let mut out = begin(class);
    match class {
        1 => {
            out.unicode_string(&group.name);
            out.count(group.members.len());
            out.unicode_string("");
            out.unicode_string_target(&group.name);
            out.unicode_string_target("");
        }
        2 => strings(&mut out, &[&group.name]),
        3 => strings(&mut out, &[""]),
        _ => return Ok(refused(4, NtStatus::INVALID_INFO_CLASS)),
    }
    end(out)
}

/// SamrGetMembersInAlias (MS-SAMR 3.1.5.8.3): SAMPR_PSID_ARRAY_OUT.
pub(super) fn members_of_alias(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let group = match alias_of(call, reader.handle()?) {
        Ok(group) => group,
        Err(status) => return Ok(refused(8, status)),
    };
    let members = group.members;
    let mut out = Writer::default();
    out.count(members.len());
    out.pointer_if(!members.is_empty());
    if !members.is_empty() {
        out.count(members.len());
        members.iter().for_each(|_| out.pointer());
        members.iter().for_each(|member| out.sid(member));
    }
    end(out)
}
