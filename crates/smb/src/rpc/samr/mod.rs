//! samr (MS-SAMR), for reading: users and groups of this server and of BUILTIN, for administrators, as Windows has it where no other rule is
//! set (RestrictRemoteSAM). Accounts are changed by the API alone.

mod domains;
mod lookups;
mod users;

use super::handles::{Handles, Object, close_answer, open_answer};
use super::ndr::{BadStub, Reader, Writer};
use super::well_known::builtin;
use super::{Directory, RpcCaller};
use types::{NtStatus, Sid};

/// Most names, identifiers or SIDs in one question (MS-SAMR 3.1.5.11.2, 3.1.5.11.3).
const LOOKUPS_MAX: usize = 1000;
/// The primary group of all users: `None`, as on a Windows server of its own.
const PRIMARY_GROUP: u32 = 513;
const PRIMARY_GROUP_NAME: &str = "None";
/// SE_GROUP_MANDATORY, SE_GROUP_ENABLED_BY_DEFAULT and SE_GROUP_ENABLED.
const GROUP_ATTRIBUTES: u32 = 7;

type Stub = Result<Vec<u8>, BadStub>;

/// Context of an operation.
struct Call<'a> {
    handles: &'a mut Handles,
    caller: &'a RpcCaller,
    directory: &'a dyn Directory,
}

/// Answers one operation; `None` if it is not known.
pub(super) fn call(
    operation: u16,
    reader: &mut Reader<'_>,
    handles: &mut Handles,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Option<Stub> {
    let mut call = Call { handles, caller, directory };
    Some(match operation {
        // SamrConnect, 2, 3 and 4: who may is asked before anything is read.
        0 | 57 | 61 | 62 => Ok(call.connect()),
        64 => call.connect5(reader),
        1 => reader.handle().map(|handle| close_answer(call.handles, handle, NtStatus::INVALID_HANDLE.0)),
        3 => Ok(refused(4, NtStatus::NOT_SUPPORTED)),
        5 => domains::lookup_domain(reader, &call),
        6 => domains::enumerate(reader, &call),
        7 => domains::open(reader, &mut call),
        8 | 46 => domains::query(reader, &call),
        11 => lookups::enumerate(reader, &call, lookups::Kind::Groups),
        13 => lookups::enumerate(reader, &call, lookups::Kind::Users),
        15 => lookups::enumerate(reader, &call, lookups::Kind::Aliases),
        16 => lookups::alias_membership(reader, &call),
        17 => lookups::names(reader, &call),
        18 => lookups::ids(reader, &call),
        19 | 27 | 34 => open_account(operation, reader, &mut call),
        20 => users::query_group(reader, &call),
        25 => users::members_of_group(reader, &call),
        28 => users::query_alias(reader, &call),
        33 => users::members_of_alias(reader, &call),
        36 | 47 => users::query_user(reader, &call),
        39 => users::groups_of_user(reader, &call),
        40 | 48 | 51 => lookups::display(reader, &call),
        44 => users::password_rules(reader, &call),
        56 => Ok(domains::password_rules()),
        65 => domains::rid_to_sid(reader, &call),
        _ => return refused_change(operation),
    })
}

/// An answer of this many zero bytes and a status.
fn refused(zeros: usize, status: NtStatus) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes(&vec![0; zeros]);
    out.u32(status.0);
    out.into_stub()
}

/// Operations that would change accounts; `None`: it is none of them.
fn refused_change(operation: u16) -> Option<Stub> {
    let zeros = match operation {
        // Security, domains, members, settings and passwords.
        2 | 9 | 21 | 22 | 24 | 26 | 29 | 31 | 32 | 37 | 38 | 45 | 52 | 53 | 54 | 55 | 58 | 63 | 66 => 0,
        // Deleting answers the handle.
        23 | 30 | 35 => 20,
        // Creating answers a handle and an identifier, the second way of creating users the access besides.
        10 | 12 | 14 => 24,
        50 => 28,
        _ => return None,
    };
    Some(Ok(refused(zeros, NtStatus::ACCESS_DENIED)))
}

impl Call<'_> {
    fn connect(&mut self) -> Vec<u8> {
        if !self.caller.is_administrator {
            return refused(20, NtStatus::ACCESS_DENIED);
        }
        open_answer(self.handles, Object::SamServer, NtStatus::INSUFFICIENT_RESOURCES.0)
    }

    /// SamrConnect5 (MS-SAMR 3.1.5.1.1): answers its own revision before the handle.
    fn connect5(&mut self, reader: &mut Reader<'_>) -> Stub {
        reader.optional_string()?;
        reader.u32()?;
        let version = reader.u32()?;
        let mut out = Writer::default();
        // SAMPR_REVISION_INFO_V1: revision 3 (clients from Windows XP on), no features.
        for value in [1, 1, 3, 0] {
            out.u32(value);
        }
        out.bytes(&if version == 1 { self.connect() } else { refused(20, NtStatus::NOT_SUPPORTED) });
        Ok(out.into_stub())
    }

    fn is_server(&self, handle: [u8; 20]) -> bool {
        self.handles.find(handle) == Some(&Object::SamServer)
    }

    /// The SID of the domain that a handle is of.
    fn domain(&self, handle: [u8; 20]) -> Option<Sid> {
        match self.handles.find(handle) {
            Some(Object::SamDomain(sid)) => Some(sid.clone()),
            _ => None,
        }
    }
}

/// SamrOpenGroup, SamrOpenAlias, SamrOpenUser (MS-SAMR 3.1.5.1.7 to 3.1.5.1.9).
fn open_account(operation: u16, reader: &mut Reader<'_>, call: &mut Call<'_>) -> Stub {
    let handle = reader.handle()?;
    reader.u32()?;
    let rid = reader.u32()?;
    let Some(sid) = call.domain(handle).and_then(|domain| domain.child(rid)) else {
        return Ok(refused(20, NtStatus::INVALID_HANDLE));
    };
    let (object, missing) = match operation {
        19 => {
            let is_there = Some(&sid) == call.directory.domain_sid().child(PRIMARY_GROUP).as_ref();
            (is_there.then_some(Object::SamGroup(sid)), NO_SUCH_GROUP)
        }
        27 => {
            let is_there = call.directory.groups().iter().any(|group| group.sid == sid);
            (is_there.then_some(Object::SamAlias(sid)), NO_SUCH_ALIAS)
        }
        _ => {
            let is_there = call.directory.users().iter().any(|user| user.sid == sid);
            (is_there.then_some(Object::SamUser(sid)), NO_SUCH_USER)
        }
    };
    Ok(match object {
        Some(object) => open_answer(call.handles, object, NtStatus::INSUFFICIENT_RESOURCES.0),
        None => refused(20, missing),
    })
}

const NO_SUCH_USER: NtStatus = NtStatus(0xC000_0064);
const NO_SUCH_GROUP: NtStatus = NtStatus(0xC000_0066);
const NO_SUCH_ALIAS: NtStatus = NtStatus(0xC000_0151);
const NO_SUCH_DOMAIN: NtStatus = NtStatus(0xC000_00DF);
const MORE_ENTRIES: NtStatus = NtStatus(0x0000_0105);
const SOME_NOT_MAPPED: NtStatus = NtStatus(0x0000_0107);

/// A list of numbers, SAMPR_ULONG_ARRAY (MS-SAMR 2.2.7.4).
fn write_numbers(out: &mut Writer, numbers: &[u32]) {
    out.count(numbers.len());
    out.pointer_if(!numbers.is_empty());
    if !numbers.is_empty() {
        out.count(numbers.len());
        numbers.iter().for_each(|number| out.u32(*number));
    }
}
