//! lsarpc (MS-LSAT, MS-LSAD): names and SIDs into each other, the domain they belong to, and who has which privileges.

mod rights;

pub use rights::privileges_told_of;

use super::handles::{Handles, Object, close_answer, open_answer};
use super::ndr::{BadStub, Reader, Writer};
use super::{AccountEntry, AccountKind, Directory, RpcCaller, well_known};
use types::{NtStatus, Sid};

/// Most names or SIDs in one lookup (MS-LSAT 2.2.13, 2.2.18).
const LOOKUPS_MAX: usize = 1000;
const SOME_NOT_MAPPED: NtStatus = NtStatus(0x0000_0107);
const NO_MORE_ENTRIES: NtStatus = NtStatus(0x8000_001A);
/// POLICY_LSA_SERVER_ROLE: primary.
const ROLE_PRIMARY: u16 = 3;

type Stub = Result<Vec<u8>, BadStub>;

/// Answers one operation; `None` if it is not known.
pub(super) fn call(
    operation: u16,
    reader: &mut Reader<'_>,
    policies: &mut Handles,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Option<Result<Vec<u8>, BadStub>> {
    let answer = match operation {
        0 => close(reader, policies),
        2 => with_handle(reader, policies, rights::enumerate, |out| zeros(out, 3)),
        3 => rights::security(reader, policies),
        6 | 44 => Ok(open_policy(policies)),
        7 | 46 => with_handle(reader, policies, |reader| query_policy(reader, directory), |out| out.null()),
        11 => with_handle(reader, policies, rights::accounts, |out| zeros(out, 3)),
        // LsarEnumerateTrustedDomains and Ex (MS-LSAD 3.1.4.7.7, 3.1.4.7.8): a server of its own trusts none.
        13 | 50 => with_handle(reader, policies, |_| Ok(no_domains()), |out| zeros(out, 3)),
        14 | 58 | 68 => {
            let form = NameForm::of(operation);
            with_handle(reader, policies, |reader| lookup_names(reader, form, directory), nothing_translated)
        }
        15 | 57 => with_handle(
            reader,
            policies,
            |reader| lookup_sids(reader, operation == 57, directory),
            nothing_translated,
        ),
        17 => rights::open_account(reader, policies),
        18 => rights::privileges_of_account(reader, policies),
        23 => rights::system_access(reader, policies),
        31 => with_handle(reader, policies, rights::value, |out| zeros(out, 2)),
        32 => with_handle(reader, policies, rights::name, |out| out.null()),
        33 => with_handle(reader, policies, rights::display_name, |out| zeros(out, 2)),
        35 => with_handle(reader, policies, rights::accounts_with, |out| zeros(out, 2)),
        36 => with_handle(reader, policies, rights::of_account, |out| zeros(out, 2)),
        45 => user_name(reader, caller),
        76 => lookup_sids(reader, true, directory),
        77 => lookup_names(reader, NameForm::Sids, directory),
        _ => return refused_change(operation, reader),
    };
    Some(answer)
}

/// Refuses operations that would change policy, accounts or rights: the API alone changes those.
/// `None`: it is no such operation.
fn refused_change(operation: u16, reader: &mut Reader<'_>) -> Option<Stub> {
    let mut out = Writer::default();
    match operation {
        // LsarCreateAccount answers a handle.
        10 => zeros(&mut out, 5),
        // LsarDeleteObject: the handle stays.
        34 => match reader.handle() {
            Ok(handle) => out.bytes(&handle),
            Err(bad) => return Some(Err(bad)),
        },
        // LsarSetSecurityObject; privileges, system access and rights of accounts.
        4 | 19 | 20 | 24 | 37 | 38 => {}
        _ => return None,
    }
    out.u32(NtStatus::ACCESS_DENIED.0);
    Some(Ok(out.into_stub()))
}

fn zeros(out: &mut Writer, count: usize) {
    (0..count).for_each(|_| out.u32(0));
}

/// Reads a handle, and answers STATUS_INVALID_HANDLE after `refused` if it is not one of ours.
fn with_handle(
    reader: &mut Reader<'_>,
    policies: &Handles,
    serve: impl FnOnce(&mut Reader<'_>) -> Result<Vec<u8>, BadStub>,
    refused: impl FnOnce(&mut Writer),
) -> Result<Vec<u8>, BadStub> {
    if policies.find(reader.handle()?) == Some(&Object::Policy) {
        return serve(reader);
    }
    let mut out = Writer::default();
    refused(&mut out);
    out.u32(NtStatus::INVALID_HANDLE.0);
    Ok(out.into_stub())
}

/// No domains, no entries, none mapped.
fn nothing_translated(out: &mut Writer) {
    zeros(out, 4);
}

fn close(reader: &mut Reader<'_>, policies: &mut Handles) -> Result<Vec<u8>, BadStub> {
    Ok(close_answer(policies, reader.handle()?, NtStatus::INVALID_HANDLE.0))
}

/// LsarOpenPolicy2 (MS-LSAD 3.1.4.4.1). The attributes are ignored: everybody may translate names.
fn open_policy(policies: &mut Handles) -> Vec<u8> {
    open_answer(policies, Object::Policy, NtStatus::INSUFFICIENT_RESOURCES.0)
}

/// LsarQueryInformationPolicy2 (MS-LSAD 3.1.4.4.4): primary domain, account domain, role, DNS domain.
fn query_policy(reader: &mut Reader<'_>, directory: &dyn Directory) -> Result<Vec<u8>, BadStub> {
    const PRIMARY_DOMAIN: u16 = 3;
    const ACCOUNT_DOMAIN: u16 = 5;
    const SERVER_ROLE: u16 = 6;
    const DNS_DOMAIN: u16 = 12;
    let class = reader.u16()?;
    let server = directory.server();
    let mut out = Writer::default();
    if !matches!(class, PRIMARY_DOMAIN | ACCOUNT_DOMAIN | SERVER_ROLE | DNS_DOMAIN) {
        out.null();
        out.u32(NtStatus::INVALID_INFO_CLASS.0);
        return Ok(out.into_stub());
    }
    out.pointer();
    out.u16(class);
    match class {
        // A server of its own is in no domain: the workgroup has a name and no SID.
        PRIMARY_DOMAIN => {
            out.unicode_string(&server.domain);
            out.null();
            out.unicode_string_target(&server.domain);
        }
        ACCOUNT_DOMAIN => {
            out.unicode_string(&server.name);
            out.pointer();
            out.unicode_string_target(&server.name);
            out.sid(&directory.domain_sid());
        }
        SERVER_ROLE => out.u16(ROLE_PRIMARY),
        _ => {
            for name in [&server.domain, "", ""] {
                out.unicode_string(name);
            }
            out.bytes(&[0; 16]);
            out.null();
            for name in [&server.domain, "", ""] {
                out.unicode_string_target(name);
            }
        }
    }
    out.u32(NtStatus::SUCCESS.0);
    Ok(out.into_stub())
}

fn no_domains() -> Vec<u8> {
    let mut out = Writer::default();
    out.u32(0);
    out.u32(0);
    out.null();
    out.u32(NO_MORE_ENTRIES.0);
    out.into_stub()
}

/// LsarGetUserName (MS-LSAT 3.1.4.2): who asks.
fn user_name(reader: &mut Reader<'_>, caller: &RpcCaller) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    if reader.pointer()? {
        // A name that the client gives has no meaning (it must be null).
        return Err(BadStub);
    }
    let wants_domain = reader.pointer()?;
    let mut out = Writer::default();
    out.pointer();
    out.unicode_string(&caller.user);
    out.unicode_string_target(&caller.user);
    out.pointer_if(wants_domain);
    if wants_domain {
        out.pointer();
        out.unicode_string(&caller.domain);
        out.unicode_string_target(&caller.domain);
    }
    out.u32(NtStatus::SUCCESS.0);
    Ok(out.into_stub())
}

/// One name or SID, translated.
struct Translated {
    kind: AccountKind,
    name: String,
    sid: Option<Sid>,
    /// Position in the list of referenced domains.
    domain: Option<usize>,
}

/// LSAPR_REFERENCED_DOMAIN_LIST (MS-LSAT 2.2.12) while it grows.
#[derive(Default)]
struct Domains {
    list: Vec<(String, Sid)>,
}

impl Domains {
    fn position(&mut self, name: &str, sid: &Sid) -> usize {
        self.list.iter().position(|(_, known)| known == sid).unwrap_or_else(|| {
            self.list.push((name.to_owned(), sid.clone()));
            self.list.len() - 1
        })
    }

    fn write(&self, out: &mut Writer) {
        out.pointer();
        out.count(self.list.len());
        out.pointer_if(!self.list.is_empty());
        out.u32(32);
        if self.list.is_empty() {
            return;
        }
        out.count(self.list.len());
        for (name, _) in &self.list {
            out.unicode_string(name);
            out.pointer();
        }
        for (name, sid) in &self.list {
            out.unicode_string_target(name);
            out.sid(sid);
        }
    }
}

fn write_domain_index(out: &mut Writer, domain: Option<usize>) {
    out.u32(domain.and_then(|index| u32::try_from(index).ok()).unwrap_or(u32::MAX));
}

/// Writes how many were translated, and the status that follows.
fn write_verdict(out: &mut Writer, all: &[Translated]) {
    let mapped = all.iter().filter(|one| one.kind != AccountKind::Unknown).count();
    out.count(mapped);
    let status = match mapped {
        0 => NtStatus::NONE_MAPPED,
        some if some < all.len() => SOME_NOT_MAPPED,
        _ => NtStatus::SUCCESS,
    };
    out.u32(status.0);
}

/// LsarLookupSids, 2 and 3 (MS-LSAT 3.1.4.9 to 3.1.4.11).
fn lookup_sids(
    reader: &mut Reader<'_>,
    extended: bool,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    let count = reader.u32()? as usize;
    if count > LOOKUPS_MAX {
        return Err(BadStub);
    }
    let mut sids = Vec::new();
    if reader.pointer()? {
        if reader.u32()? as usize != count {
            return Err(BadStub);
        }
        let present: Vec<bool> = (0..count).map(|_| reader.pointer()).collect::<Result<_, _>>()?;
        for is_present in present {
            sids.push(if is_present { reader.sid()? } else { return Err(BadStub) });
        }
    } else if count != 0 {
        return Err(BadStub);
    }

    let mut domains = Domains::default();
    let all: Vec<Translated> = sids.iter().map(|sid| translate_sid(sid, &mut domains, directory)).collect();
    let mut out = Writer::default();
    domains.write(&mut out);
    out.count(all.len());
    out.pointer_if(!all.is_empty());
    if !all.is_empty() {
        out.count(all.len());
        for one in &all {
            out.u32(one.kind as u32);
            out.unicode_string(&one.name);
            write_domain_index(&mut out, one.domain);
            if extended {
                out.u32(0);
            }
        }
        all.iter().for_each(|one| out.unicode_string_target(&one.name));
    }
    write_verdict(&mut out, &all);
    Ok(out.into_stub())
}

/// An account of this server, in the domain that its SID says.
fn account_of(account: AccountEntry, domains: &mut Domains, own_name: &str, own_domain: &Sid) -> Translated {
    let is_own =
        own_domain.child(account.sid.relative_id().unwrap_or_default()).as_ref() == Some(&account.sid);
    let domain = is_own.then(|| domains.position(own_name, own_domain));
    Translated { kind: account.kind, name: account.name, sid: Some(account.sid), domain }
}

fn translate_sid(sid: &Sid, domains: &mut Domains, directory: &dyn Directory) -> Translated {
    let (own_domain, own_name) = (directory.domain_sid(), directory.server().name);
    if let Some(known) = well_known::by_sid(sid) {
        let domain = Some(domains.position(known.domain, &known.domain_sid));
        return Translated { kind: known.kind, name: known.name.into(), sid: None, domain };
    }
    if *sid == well_known::builtin() {
        let domain = Some(domains.position(well_known::BUILTIN, sid));
        return Translated { kind: AccountKind::Domain, name: well_known::BUILTIN.into(), sid: None, domain };
    }
    if *sid == own_domain {
        let domain = Some(domains.position(&own_name, &own_domain));
        return Translated { kind: AccountKind::Domain, name: own_name, sid: None, domain };
    }
    if let Some(account) = directory.account_by_sid(sid) {
        return account_of(account, domains, &own_name, &own_domain);
    }
    Translated { kind: AccountKind::Unknown, name: sid.to_string(), sid: None, domain: None }
}

/// How an operation returns SIDs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameForm {
    /// LsarLookupNames: a relative identifier.
    Relative,
    /// LsarLookupNames2: with flags.
    RelativeWithFlags,
    /// LsarLookupNames3 and 4: the SID itself.
    Sids,
}

impl NameForm {
    fn of(operation: u16) -> Self {
        match operation {
            14 => Self::Relative,
            58 => Self::RelativeWithFlags,
            _ => Self::Sids,
        }
    }
}

/// LsarLookupNames, 2, 3 and 4 (MS-LSAT 3.1.4.5 to 3.1.4.8).
fn lookup_names(
    reader: &mut Reader<'_>,
    form: NameForm,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    let count = reader.u32()? as usize;
    if count > LOOKUPS_MAX || reader.u32()? as usize != count {
        return Err(BadStub);
    }
    let names = reader.unicode_strings(count)?;

    let mut domains = Domains::default();
    let all: Vec<Translated> =
        names.iter().map(|name| translate_name(name, &mut domains, directory)).collect();
    let mut out = Writer::default();
    domains.write(&mut out);
    out.count(all.len());
    out.pointer_if(!all.is_empty());
    if !all.is_empty() {
        out.count(all.len());
        for one in &all {
            out.u32(one.kind as u32);
            match form {
                NameForm::Sids => out.pointer_if(one.sid.is_some()),
                // A domain itself has no relative identifier (MS-LSAT 2.2.14).
                _ => out.u32(match (&one.sid, one.kind) {
                    (Some(sid), kind) if kind != AccountKind::Domain => sid.relative_id().unwrap_or(u32::MAX),
                    _ => u32::MAX,
                }),
            }
            write_domain_index(&mut out, one.domain);
            if form != NameForm::Relative {
                out.u32(0);
            }
        }
        if form == NameForm::Sids {
            all.iter().filter_map(|one| one.sid.as_ref()).for_each(|sid| out.sid(sid));
        }
    }
    write_verdict(&mut out, &all);
    Ok(out.into_stub())
}

/// A name alone, as `DOMAIN\name` or as `name@domain`.
fn translate_name(full: &str, domains: &mut Domains, directory: &dyn Directory) -> Translated {
    let (own_domain, own_name) = (directory.domain_sid(), directory.server().name);
    let (domain, name) = match (full.split_once('\\'), full.rsplit_once('@')) {
        (Some((domain, name)), _) => (Some(domain).filter(|domain| !domain.is_empty()), name),
        (None, Some((name, domain))) => (Some(domain), name),
        (None, None) => (None, full),
    };
    let is_ours = domain.is_none_or(|domain| domain.eq_ignore_ascii_case(&own_name));
    // An account of the server's own may have the name of a well-known one, but then it is that one.
    if is_ours
        && let Some(account) = directory.account_by_name(name)
        && well_known::by_sid(&account.sid).is_none()
    {
        return account_of(account, domains, &own_name, &own_domain);
    }
    if let Some(known) = well_known::by_name(domain, name) {
        let domain = Some(domains.position(known.domain, &known.domain_sid));
        return Translated { kind: known.kind, name: known.name.into(), sid: Some(known.sid), domain };
    }
    // A domain's name may stand alone, before a separator, and as that of the domain in itself.
    let names_domain = |known: &str| match domain {
        Some(domain) => {
            domain.eq_ignore_ascii_case(known) && (name.is_empty() || name.eq_ignore_ascii_case(known))
        }
        None => name.eq_ignore_ascii_case(known),
    };
    // Nothing, too, is a name of that domain, as at Windows.
    if full.is_empty() || names_domain(well_known::BUILTIN) {
        let sid = well_known::builtin();
        let domain = Some(domains.position(well_known::BUILTIN, &sid));
        let name = well_known::BUILTIN.into();
        return Translated { kind: AccountKind::Domain, name, sid: Some(sid), domain };
    }
    if names_domain(&own_name) {
        let domain = Some(domains.position(&own_name, &own_domain));
        return Translated { kind: AccountKind::Domain, name: own_name, sid: Some(own_domain), domain };
    }
    Translated { kind: AccountKind::Unknown, name: full.to_owned(), sid: None, domain: None }
}
