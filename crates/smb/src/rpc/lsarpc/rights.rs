//! Privileges, and the accounts that have them (MS-LSAD 3.1.4.5, 3.1.4.8), for reading. The table has
//! only what this server grants: a right that Windows gives a group by default, and that changes
//! nothing here, is left out.

use super::super::handles::{Handles, Object, open_answer};
use super::super::ndr::{BadStub, Reader, Writer};
use super::{NO_MORE_ENTRIES, Stub};
use types::{NtStatus, Sid};

const MORE_ENTRIES: NtStatus = NtStatus(0x0000_0105);
const NO_SUCH_PRIVILEGE: NtStatus = NtStatus(0xC000_0060);
/// POLICY_MODE_NETWORK (MS-LSAD 2.2.1.2): SeNetworkLogonRight as a bit of system access.
const MODE_NETWORK: u32 = 2;
/// English (United States), which all display names are in.
const LANGUAGE: u16 = 0x0409;

/// A privilege: its LUID has no high part (MS-LSAD 3.1.1.2.1).
struct Privilege {
    luid: u32,
    name: &'static str,
    display: &'static str,
}

const PRIVILEGES: &[Privilege] = &[
    Privilege { luid: 8, name: "SeSecurityPrivilege", display: "Manage auditing and security log" },
    Privilege {
        luid: 9,
        name: "SeTakeOwnershipPrivilege",
        display: "Take ownership of files or other objects",
    },
    Privilege { luid: 17, name: "SeBackupPrivilege", display: "Back up files and directories" },
    Privilege { luid: 18, name: "SeRestorePrivilege", display: "Restore files and directories" },
    Privilege { luid: 23, name: "SeChangeNotifyPrivilege", display: "Bypass traverse checking" },
    Privilege { luid: 35, name: "SeCreateSymbolicLinkPrivilege", display: "Create symbolic links" },
];

/// A right that is no privilege (MS-LSAD 3.1.1.2.2): each account of this server, and only such an account, logs on by network.
const NETWORK_LOGON: &str = "SeNetworkLogonRight";

/// An account with the privileges that its members have by it.
struct Account {
    sid: &'static str,
    privileges: &'static [&'static str],
    logs_on: bool,
}

/// No path is checked for the right to traverse it, and who may write to a file may make it a link: both are everybody's.
const EVERYBODY: &[&str] = &["SeChangeNotifyPrivilege", "SeCreateSymbolicLinkPrivilege"];

const ACCOUNTS: &[Account] = &[
    Account { sid: "S-1-1-0", privileges: EVERYBODY, logs_on: false },
    Account {
        sid: "S-1-5-32-544",
        privileges: &[
            "SeSecurityPrivilege",
            "SeTakeOwnershipPrivilege",
            "SeBackupPrivilege",
            "SeRestorePrivilege",
            "SeChangeNotifyPrivilege",
            "SeCreateSymbolicLinkPrivilege",
        ],
        logs_on: true,
    },
    Account { sid: "S-1-5-32-545", privileges: EVERYBODY, logs_on: true },
    Account {
        sid: "S-1-5-32-551",
        privileges: &[
            "SeBackupPrivilege",
            "SeRestorePrivilege",
            "SeChangeNotifyPrivilege",
            "SeCreateSymbolicLinkPrivilege",
        ],
        logs_on: true,
    },
];

impl Account {
    fn find(sid: &Sid) -> Option<&'static Self> {
        let text = sid.to_string();
        ACCOUNTS.iter().find(|account| account.sid == text)
    }

    /// Privileges and rights.
    fn rights(&self) -> impl Iterator<Item = &'static str> {
        self.privileges.iter().copied().chain(self.logs_on.then_some(NETWORK_LOGON))
    }
}

/// Returns the privileges of an account that lsarpc lists, by their names.
pub fn privileges_told_of(sid: &Sid) -> &'static [&'static str] {
    Account::find(sid).map_or(&[], |account| account.privileges)
}

fn privilege(name: &str) -> Option<&'static Privilege> {
    PRIVILEGES.iter().find(|privilege| privilege.name.eq_ignore_ascii_case(name))
}

fn status(out: Writer, status: NtStatus) -> Stub {
    let mut out = out;
    out.u32(status.0);
    Ok(out.into_stub())
}

/// LsarEnumeratePrivileges (MS-LSAD 3.1.4.8.1); the context of a client that continues is a place in the table.
pub(super) fn enumerate(reader: &mut Reader<'_>) -> Stub {
    let from = reader.u32()? as usize;
    let bytes_max = reader.u32()? as usize;
    let rest = PRIVILEGES.get(from..).unwrap_or_default();
    let mut out = Writer::default();
    // Of one privilege: its string's head, its LUID, and its name. One always goes, or the client would ask for ever.
    let mut used = 0;
    let fitting = rest.iter().take_while(|privilege| {
        used += 28 + 2 * privilege.name.len();
        used <= bytes_max
    });
    let shown = rest.get(..fitting.count().max(1)).unwrap_or_default();
    out.count(from + shown.len());
    out.count(shown.len());
    out.pointer_if(!shown.is_empty());
    if shown.is_empty() {
        return status(out, NO_MORE_ENTRIES);
    }
    out.count(shown.len());
    for privilege in shown {
        out.unicode_string(privilege.name);
        write_luid(&mut out, privilege);
    }
    shown.iter().for_each(|privilege| out.unicode_string_target(privilege.name));
    status(out, if shown.len() < rest.len() { MORE_ENTRIES } else { NtStatus::SUCCESS })
}

fn write_luid(out: &mut Writer, privilege: &Privilege) {
    out.u32(privilege.luid);
    out.u32(0);
}

/// LsarLookupPrivilegeValue (MS-LSAD 3.1.4.8.2).
pub(super) fn value(reader: &mut Reader<'_>) -> Stub {
    let name = reader.unicode_string()?;
    let mut out = Writer::default();
    match privilege(&name) {
        Some(found) => {
            write_luid(&mut out, found);
            status(out, NtStatus::SUCCESS)
        }
        None => {
            out.bytes(&[0; 8]);
            status(out, NO_SUCH_PRIVILEGE)
        }
    }
}

/// LsarLookupPrivilegeName (MS-LSAD 3.1.4.8.3).
pub(super) fn name(reader: &mut Reader<'_>) -> Stub {
    let (low, high) = (reader.u32()?, reader.u32()?);
    let found = PRIVILEGES.iter().find(|privilege| high == 0 && privilege.luid == low);
    let mut out = Writer::default();
    out.pointer_if(found.is_some());
    if let Some(found) = found {
        out.unicode_string(found.name);
        out.unicode_string_target(found.name);
    }
    status(out, if found.is_some() { NtStatus::SUCCESS } else { NO_SUCH_PRIVILEGE })
}

/// LsarLookupPrivilegeDisplayName (MS-LSAD 3.1.4.8.4): in the one language that there is, whichever the client prefers.
pub(super) fn display_name(reader: &mut Reader<'_>) -> Stub {
    let found = privilege(&reader.unicode_string()?);
    let mut out = Writer::default();
    out.pointer_if(found.is_some());
    if let Some(found) = found {
        out.unicode_string(found.display);
        out.unicode_string_target(found.display);
    }
    out.u16(if found.is_some() { LANGUAGE } else { 0 });
    status(out, if found.is_some() { NtStatus::SUCCESS } else { NO_SUCH_PRIVILEGE })
}

/// LSAPR_ACCOUNT_ENUM_BUFFER (MS-LSAD 2.2.5.2).
fn write_accounts(out: &mut Writer, accounts: &[&Account]) {
    out.count(accounts.len());
    out.pointer_if(!accounts.is_empty());
    if accounts.is_empty() {
        return;
    }
    out.count(accounts.len());
    accounts.iter().for_each(|_| out.pointer());
    for account in accounts {
        let sid: Sid = account.sid.parse().expect("the table's SIDs are SIDs");
        out.sid(&sid);
    }
}

/// LsarEnumerateAccounts (MS-LSAD 3.1.4.5.2): there are fewer than any client takes at once.
pub(super) fn accounts(reader: &mut Reader<'_>) -> Stub {
    let from = reader.u32()? as usize;
    reader.u32()?;
    let rest: Vec<&Account> = ACCOUNTS.iter().skip(from).collect();
    let mut out = Writer::default();
    out.count(ACCOUNTS.len());
    write_accounts(&mut out, &rest);
    status(out, if rest.is_empty() { NO_MORE_ENTRIES } else { NtStatus::SUCCESS })
}

/// LsarEnumerateAccountsWithUserRight (MS-LSAD 3.1.4.5.12); without a right it is all of them.
pub(super) fn accounts_with(reader: &mut Reader<'_>) -> Stub {
    let right = if reader.pointer()? { Some(reader.unicode_string()?) } else { None };
    let is_known = |right: &String| privilege(right).is_some() || right.eq_ignore_ascii_case(NETWORK_LOGON);
    let mut out = Writer::default();
    if !right.as_ref().is_none_or(is_known) {
        write_accounts(&mut out, &[]);
        return status(out, NO_SUCH_PRIVILEGE);
    }
    let has = |account: &&Account| {
        right.as_ref().is_none_or(|right| account.rights().any(|known| known.eq_ignore_ascii_case(right)))
    };
    let found: Vec<&Account> = ACCOUNTS.iter().filter(has).collect();
    write_accounts(&mut out, &found);
    status(out, NtStatus::SUCCESS)
}

/// LsarEnumerateAccountRights (MS-LSAD 3.1.4.5.10).
pub(super) fn of_account(reader: &mut Reader<'_>) -> Stub {
    let found = Account::find(&reader.sid()?);
    let rights: Vec<&str> = found.into_iter().flat_map(Account::rights).collect();
    let mut out = Writer::default();
    out.count(rights.len());
    out.pointer_if(!rights.is_empty());
    if !rights.is_empty() {
        out.count(rights.len());
        rights.iter().for_each(|right| out.unicode_string(right));
        rights.iter().for_each(|right| out.unicode_string_target(right));
    }
    status(out, if found.is_some() { NtStatus::SUCCESS } else { NtStatus::OBJECT_NAME_NOT_FOUND })
}

/// LsarOpenAccount (MS-LSAD 3.1.4.5.3).
pub(super) fn open_account(reader: &mut Reader<'_>, handles: &mut Handles) -> Stub {
    let is_policy = handles.find(reader.handle()?) == Some(&Object::Policy);
    let sid = reader.sid()?;
    let refused = match (is_policy, Account::find(&sid)) {
        (false, _) => NtStatus::INVALID_HANDLE,
        (true, None) => NtStatus::OBJECT_NAME_NOT_FOUND,
        (true, Some(_)) => {
            return Ok(open_answer(
                handles,
                Object::PrivilegedAccount(sid),
                NtStatus::INSUFFICIENT_RESOURCES.0,
            ));
        }
    };
    let mut out = Writer::default();
    out.bytes(&[0; 20]);
    status(out, refused)
}

/// Finds the account that a handle is of.
fn opened(reader: &mut Reader<'_>, handles: &Handles) -> Result<Option<&'static Account>, BadStub> {
    Ok(match handles.find(reader.handle()?) {
        Some(Object::PrivilegedAccount(sid)) => Account::find(sid),
        _ => None,
    })
}

/// LsarEnumeratePrivilegesAccount (MS-LSAD 3.1.4.5.4): LSAPR_PRIVILEGE_SET.
pub(super) fn privileges_of_account(reader: &mut Reader<'_>, handles: &Handles) -> Stub {
    /// SE_PRIVILEGE_ENABLED_BY_DEFAULT and SE_PRIVILEGE_ENABLED (MS-LSAD 2.2.5.4).
    const ENABLED: u32 = 3;
    let found = opened(reader, handles)?;
    let mut out = Writer::default();
    out.pointer_if(found.is_some());
    let Some(found) = found else { return status(out, NtStatus::INVALID_HANDLE) };
    let all: Vec<&Privilege> = found.privileges.iter().filter_map(|name| privilege(name)).collect();
    out.count(all.len());
    out.count(all.len());
    out.u32(0);
    for privilege in all {
        write_luid(&mut out, privilege);
        out.u32(ENABLED);
    }
    status(out, NtStatus::SUCCESS)
}

/// LsarGetSystemAccessAccount (MS-LSAD 3.1.4.5.8).
pub(super) fn system_access(reader: &mut Reader<'_>, handles: &Handles) -> Stub {
    let found = opened(reader, handles)?;
    let mut out = Writer::default();
    out.u32(if found.is_some_and(|account| account.logs_on) { MODE_NETWORK } else { 0 });
    status(out, if found.is_some() { NtStatus::SUCCESS } else { NtStatus::INVALID_HANDLE })
}

/// LsarQuerySecurityObject (MS-LSAD 3.1.4.9.1): everybody may read, and nobody may change anything.
pub(super) fn security(reader: &mut Reader<'_>, handles: &Handles) -> Stub {
    /// READ_CONTROL, POLICY_LOOKUP_NAMES and POLICY_VIEW_LOCAL_INFORMATION (MS-LSAD 2.2.1.1.2).
    const POLICY_READ: u32 = 0x0002_0801;
    /// READ_CONTROL and ACCOUNT_VIEW (MS-LSAD 2.2.1.1.3).
    const ACCOUNT_READ: u32 = 0x0002_0001;
    let object = handles.find(reader.handle()?);
    let parts = reader.u32()?;
    let mut out = Writer::default();
    let mask = match object {
        Some(Object::Policy) => POLICY_READ,
        Some(Object::PrivilegedAccount(_)) => ACCOUNT_READ,
        _ => {
            out.null();
            return status(out, NtStatus::INVALID_HANDLE);
        }
    };
    let descriptor = descriptor(parts, mask);
    // LSAPR_SR_SECURITY_DESCRIPTOR (MS-LSAD 2.2.7.4).
    out.pointer();
    out.count(descriptor.len());
    out.pointer();
    out.byte_array(&descriptor);
    status(out, NtStatus::SUCCESS)
}

/// Makes the parts that are asked for of a self-relative descriptor (MS-DTYP 2.4.6) of the administrators, that gives everybody `mask`.
fn descriptor(parts: u32, mask: u32) -> Vec<u8> {
    const OWNER: u32 = 1;
    const GROUP: u32 = 2;
    const DACL: u32 = 4;
    const SELF_RELATIVE: u16 = 0x8000;
    const DACL_PRESENT: u16 = 4;
    let mut body = Vec::new();
    let mut offsets = [0_u32; 4];
    for (slot, wanted) in [(0, OWNER), (1, GROUP)] {
        if parts & wanted != 0 {
            offsets[slot] = 20 + body.len() as u32;
            Sid::administrators().write_to(&mut body);
        }
    }
    let has_dacl = parts & DACL != 0;
    if has_dacl {
        offsets[3] = 20 + body.len() as u32;
        let everyone = Sid::everyone();
        let entry = 8 + everyone.len_bytes() as u16;
        for number in [2, 8 + entry, 1, 0, 0, entry] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        body.extend_from_slice(&mask.to_le_bytes());
        everyone.write_to(&mut body);
    }
    let control = SELF_RELATIVE | if has_dacl { DACL_PRESENT } else { 0 };
    let mut out = vec![1, 0];
    out.extend_from_slice(&control.to_le_bytes());
    offsets.iter().for_each(|offset| out.extend_from_slice(&offset.to_le_bytes()));
    out.extend_from_slice(&body);
    out
}
