//! The two domains of a server of its own: its accounts, and BUILTIN.

use super::super::handles::{Object, open_answer};
use super::super::ndr::{Reader, Writer};
use super::{Call, NO_SUCH_DOMAIN, Stub, builtin, refused};
use types::{NtStatus, Sid};

const BUILTIN_NAME: &str = "Builtin";
/// A duration that never ends, in 100 ns units before now.
const NEVER: u64 = 1 << 63;
/// DOMAIN_SERVER_ENABLED
const SERVER_ENABLED: u32 = 1;
/// DomainServerRolePrimary
const ROLE_PRIMARY: u32 = 3;

fn all(call: &Call<'_>) -> [(String, Sid); 2] {
    [(call.directory.server().name, call.directory.domain_sid()), (BUILTIN_NAME.into(), builtin())]
}

/// SamrLookupDomainInSamServer (MS-SAMR 3.1.5.11.1).
pub(super) fn lookup_domain(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let handle = reader.handle()?;
    let name = reader.unicode_string()?;
    if !call.is_server(handle) {
        return Ok(refused(4, NtStatus::INVALID_HANDLE));
    }
    if name.is_empty() {
        return Ok(refused(4, NtStatus::INVALID_PARAMETER));
    }
    let found = all(call).into_iter().find(|(known, _)| known.eq_ignore_ascii_case(&name));
    let Some((_, sid)) = found else { return Ok(refused(4, NO_SUCH_DOMAIN)) };
    let mut out = Writer::default();
    out.pointer();
    out.sid(&sid);
    out.u32(NtStatus::SUCCESS.0);
    Ok(out.into_stub())
}

/// SamrEnumerateDomainsInSamServer (MS-SAMR 3.1.5.2.1).
pub(super) fn enumerate(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let handle = reader.handle()?;
    let from = reader.u32()? as usize;
    if !call.is_server(handle) {
        return Ok(refused(12, NtStatus::INVALID_HANDLE));
    }
    let domains = all(call);
    let entries = domains.iter().enumerate().skip(from).map(|(at, (name, _))| (at as u32, name.as_str()));
    let entries: Vec<_> = entries.collect();
    let mut out = Writer::default();
    out.count(domains.len());
    write_enumerated(&mut out, &entries);
    out.u32(NtStatus::SUCCESS.0);
    Ok(out.into_stub())
}

/// A pointer to a SAMPR_ENUMERATION_BUFFER (MS-SAMR 2.2.7.10), and the number of its entries.
pub(super) fn write_enumerated(out: &mut Writer, entries: &[(u32, &str)]) {
    out.pointer();
    out.count(entries.len());
    out.pointer_if(!entries.is_empty());
    if !entries.is_empty() {
        out.count(entries.len());
        for (id, name) in entries {
            out.u32(*id);
            out.unicode_string(name);
        }
        entries.iter().for_each(|(_, name)| out.unicode_string_target(name));
    }
    out.count(entries.len());
}

/// SamrOpenDomain (MS-SAMR 3.1.5.1.5).
pub(super) fn open(reader: &mut Reader<'_>, call: &mut Call<'_>) -> Stub {
    let handle = reader.handle()?;
    reader.u32()?;
    let sid = reader.sid()?;
    if !call.is_server(handle) {
        return Ok(refused(20, NtStatus::INVALID_HANDLE));
    }
    if !all(call).iter().any(|(_, known)| *known == sid) {
        return Ok(refused(20, NO_SUCH_DOMAIN));
    }
    Ok(open_answer(call.handles, Object::SamDomain(sid), NtStatus::INSUFFICIENT_RESOURCES.0))
}

/// A 64-bit number that is aligned as two halves (OLD_LARGE_INTEGER, MS-SAMR 2.2.2.2).
pub(super) fn old_large(out: &mut Writer, value: u64) {
    out.u32(value as u32);
    out.u32((value >> 32) as u32);
}

/// SamrQueryInformationDomain and 2 (MS-SAMR 3.1.5.5.1).
pub(super) fn query(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let handle = reader.handle()?;
    let class = reader.u16()?;
    let Some(domain) = call.domain(handle) else { return Ok(refused(4, NtStatus::INVALID_HANDLE)) };
    let server = call.directory.server().name;
    let own = call.directory.domain_sid();
    let name = if domain == own { server.as_str() } else { BUILTIN_NAME };
    let mut out = Writer::default();
    out.pointer();
    out.u16(class);
    // Unions begin where their longest part may, which is a multiple of eight.
    out.u64_alignment();
    match class {
        1 => {
            // No length, no history and no complexity of passwords to report; passwords never expire.
            out.u16(0);
            out.u16(0);
            out.u32(0);
            old_large(&mut out, NEVER);
            old_large(&mut out, 0);
        }
        2 | 11 => general(&mut out, call, &domain, name, &server, class == 11),
        3 => old_large(&mut out, NEVER),
        4 => one_string(&mut out, ""),
        5 => one_string(&mut out, name),
        6 => one_string(&mut out, ""),
        7 => out.u32(ROLE_PRIMARY),
        8 => {
            old_large(&mut out, 1);
            old_large(&mut out, 0);
        }
        9 => out.u32(SERVER_ENABLED),
        12 => lockout(&mut out),
        13 => [1, 0, 0].into_iter().for_each(|value| old_large(&mut out, value)),
        _ => return Ok(refused(4, NtStatus::INVALID_INFO_CLASS)),
    }
    out.u32(NtStatus::SUCCESS.0);
    Ok(out.into_stub())
}

fn one_string(out: &mut Writer, text: &str) {
    out.unicode_string(text);
    out.unicode_string_target(text);
}

/// SAMPR_DOMAIN_LOCKOUT_INFORMATION: nobody is locked out, logons that fail are delayed.
fn lockout(out: &mut Writer) {
    out.u64(0);
    out.u64(0);
    out.u16(0);
}

/// SAMPR_DOMAIN_GENERAL_INFORMATION and 2 (MS-SAMR 2.2.3.10, 2.2.3.11).
fn general(out: &mut Writer, call: &Call<'_>, domain: &Sid, name: &str, server: &str, is_second: bool) {
    let is_in = |sid: &Sid| sid.relative_id().and_then(|rid| domain.child(rid)).as_ref() == Some(sid);
    old_large(out, NEVER);
    for text in ["", name, server] {
        out.unicode_string(text);
    }
    old_large(out, 1);
    out.u32(SERVER_ENABLED);
    out.u32(ROLE_PRIMARY);
    // Compatible with LAN Manager's accounts.
    out.u32(1);
    out.count(call.directory.users().iter().filter(|user| is_in(&user.sid)).count());
    out.u32(u32::from(*domain != builtin()));
    out.count(call.directory.groups().iter().filter(|group| is_in(&group.sid)).count());
    if is_second {
        lockout(out);
    }
    for text in ["", name, server] {
        out.unicode_string_target(text);
    }
}

/// SamrGetDomainPasswordInformation (MS-SAMR 3.1.5.13.4): rules that everybody may know before a logon;
/// there are none.
pub(super) fn password_rules() -> Vec<u8> {
    refused(8, NtStatus::SUCCESS)
}

/// SamrRidToSid (MS-SAMR 3.1.5.13.5).
pub(super) fn rid_to_sid(reader: &mut Reader<'_>, call: &Call<'_>) -> Stub {
    let handle = reader.handle()?;
    let rid = reader.u32()?;
    let domain = match call.handles.find(handle) {
        Some(Object::SamDomain(sid)) => Some(sid.clone()),
        Some(Object::SamUser(sid) | Object::SamGroup(sid) | Object::SamAlias(sid)) => {
            sid.sub_authorities().split_last().and_then(|(_, above)| Sid::new(sid.authority(), above).ok())
        }
        _ => None,
    };
    let Some(sid) = domain.and_then(|domain| domain.child(rid)) else {
        return Ok(refused(4, NtStatus::INVALID_HANDLE));
    };
    let mut out = Writer::default();
    out.pointer();
    out.sid(&sid);
    out.u32(NtStatus::SUCCESS.0);
    Ok(out.into_stub())
}
