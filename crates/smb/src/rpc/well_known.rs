//! SIDs that mean the same on every machine (MS-DTYP 2.4.2.4).

use super::AccountKind;
use types::Sid;

/// Text of the SID, domain, name, kind.
const TABLE: &[(&str, &str, &str, AccountKind)] = &[
    ("S-1-0-0", "", "NULL SID", AccountKind::WellKnownGroup),
    ("S-1-1-0", "", "Everyone", AccountKind::WellKnownGroup),
    ("S-1-2-0", "", "LOCAL", AccountKind::WellKnownGroup),
    ("S-1-3-0", "", "CREATOR OWNER", AccountKind::WellKnownGroup),
    ("S-1-3-1", "", "CREATOR GROUP", AccountKind::WellKnownGroup),
    ("S-1-3-4", "", "OWNER RIGHTS", AccountKind::WellKnownGroup),
    ("S-1-5-1", "NT AUTHORITY", "DIALUP", AccountKind::WellKnownGroup),
    ("S-1-5-2", "NT AUTHORITY", "NETWORK", AccountKind::WellKnownGroup),
    ("S-1-5-3", "NT AUTHORITY", "BATCH", AccountKind::WellKnownGroup),
    ("S-1-5-4", "NT AUTHORITY", "INTERACTIVE", AccountKind::WellKnownGroup),
    ("S-1-5-6", "NT AUTHORITY", "SERVICE", AccountKind::WellKnownGroup),
    ("S-1-5-7", "NT AUTHORITY", "ANONYMOUS LOGON", AccountKind::WellKnownGroup),
    ("S-1-5-9", "NT AUTHORITY", "ENTERPRISE DOMAIN CONTROLLERS", AccountKind::WellKnownGroup),
    ("S-1-5-10", "NT AUTHORITY", "SELF", AccountKind::WellKnownGroup),
    ("S-1-5-11", "NT AUTHORITY", "Authenticated Users", AccountKind::WellKnownGroup),
    ("S-1-5-12", "NT AUTHORITY", "RESTRICTED", AccountKind::WellKnownGroup),
    ("S-1-5-13", "NT AUTHORITY", "TERMINAL SERVER USER", AccountKind::WellKnownGroup),
    ("S-1-5-14", "NT AUTHORITY", "REMOTE INTERACTIVE LOGON", AccountKind::WellKnownGroup),
    ("S-1-5-15", "NT AUTHORITY", "This Organization", AccountKind::WellKnownGroup),
    ("S-1-5-17", "NT AUTHORITY", "IUSR", AccountKind::WellKnownGroup),
    ("S-1-5-18", "NT AUTHORITY", "SYSTEM", AccountKind::WellKnownGroup),
    ("S-1-5-19", "NT AUTHORITY", "LOCAL SERVICE", AccountKind::WellKnownGroup),
    ("S-1-5-20", "NT AUTHORITY", "NETWORK SERVICE", AccountKind::WellKnownGroup),
    ("S-1-5-33", "NT AUTHORITY", "WRITE RESTRICTED", AccountKind::WellKnownGroup),
    ("S-1-5-64-10", "NT AUTHORITY", "NTLM Authentication", AccountKind::WellKnownGroup),
    ("S-1-5-113", "NT AUTHORITY", "Local account", AccountKind::WellKnownGroup),
    (
        "S-1-5-114",
        "NT AUTHORITY",
        "Local account and member of Administrators group",
        AccountKind::WellKnownGroup,
    ),
    ("S-1-5-32-544", "BUILTIN", "Administrators", AccountKind::Alias),
    ("S-1-5-32-545", "BUILTIN", "Users", AccountKind::Alias),
    ("S-1-5-32-546", "BUILTIN", "Guests", AccountKind::Alias),
    ("S-1-5-32-547", "BUILTIN", "Power Users", AccountKind::Alias),
    ("S-1-5-32-548", "BUILTIN", "Account Operators", AccountKind::Alias),
    ("S-1-5-32-549", "BUILTIN", "Server Operators", AccountKind::Alias),
    ("S-1-5-32-550", "BUILTIN", "Print Operators", AccountKind::Alias),
    ("S-1-5-32-551", "BUILTIN", "Backup Operators", AccountKind::Alias),
    ("S-1-5-32-552", "BUILTIN", "Replicator", AccountKind::Alias),
    ("S-1-5-32-554", "BUILTIN", "Pre-Windows 2000 Compatible Access", AccountKind::Alias),
    ("S-1-5-32-555", "BUILTIN", "Remote Desktop Users", AccountKind::Alias),
    ("S-1-5-32-556", "BUILTIN", "Network Configuration Operators", AccountKind::Alias),
    ("S-1-5-32-557", "BUILTIN", "Incoming Forest Trust Builders", AccountKind::Alias),
    ("S-1-5-32-558", "BUILTIN", "Performance Monitor Users", AccountKind::Alias),
    ("S-1-5-32-559", "BUILTIN", "Performance Log Users", AccountKind::Alias),
    ("S-1-5-32-560", "BUILTIN", "Windows Authorization Access Group", AccountKind::Alias),
    ("S-1-5-32-561", "BUILTIN", "Terminal Server License Servers", AccountKind::Alias),
    ("S-1-5-32-562", "BUILTIN", "Distributed COM Users", AccountKind::Alias),
    ("S-1-5-32-568", "BUILTIN", "IIS_IUSRS", AccountKind::Alias),
    ("S-1-5-32-569", "BUILTIN", "Cryptographic Operators", AccountKind::Alias),
    ("S-1-5-32-573", "BUILTIN", "Event Log Readers", AccountKind::Alias),
    ("S-1-5-32-574", "BUILTIN", "Certificate Service DCOM Access", AccountKind::Alias),
    ("S-1-5-32-575", "BUILTIN", "RDS Remote Access Servers", AccountKind::Alias),
    ("S-1-5-32-576", "BUILTIN", "RDS Endpoint Servers", AccountKind::Alias),
    ("S-1-5-32-577", "BUILTIN", "RDS Management Servers", AccountKind::Alias),
    ("S-1-5-32-578", "BUILTIN", "Hyper-V Administrators", AccountKind::Alias),
    ("S-1-5-32-579", "BUILTIN", "Access Control Assistance Operators", AccountKind::Alias),
    ("S-1-5-32-580", "BUILTIN", "Remote Management Users", AccountKind::Alias),
    ("S-1-5-32-581", "BUILTIN", "System Managed Accounts Group", AccountKind::Alias),
    ("S-1-5-32-582", "BUILTIN", "Storage Replica Administrators", AccountKind::Alias),
];

/// The domain of the groups that every machine has, S-1-5-32.
pub(super) const BUILTIN: &str = "BUILTIN";

pub(super) fn builtin() -> Sid {
    Sid::new(5, &[32]).expect("S-1-5-32 is a SID")
}

/// A well-known SID: its own, its domain's name and SID, its name and kind.
pub(super) struct WellKnown {
    pub(super) sid: Sid,
    pub(super) domain: &'static str,
    pub(super) domain_sid: Sid,
    pub(super) name: &'static str,
    pub(super) kind: AccountKind,
}

fn entry(row: &(&str, &'static str, &'static str, AccountKind)) -> Option<WellKnown> {
    let sid: Sid = row.0.parse().ok()?;
    let (_, above) = sid.sub_authorities().split_last()?;
    let domain_sid = Sid::new(sid.authority(), above).ok()?;
    Some(WellKnown { sid, domain: row.1, domain_sid, name: row.2, kind: row.3 })
}

pub(super) fn by_sid(sid: &Sid) -> Option<WellKnown> {
    let text = sid.to_string();
    TABLE.iter().find(|row| row.0 == text).and_then(entry)
}

/// By name, and by domain if one was given; both without regard to case.
pub(super) fn by_name(domain: Option<&str>, name: &str) -> Option<WellKnown> {
    TABLE
        .iter()
        .find(|row| {
            row.2.eq_ignore_ascii_case(name) && domain.is_none_or(|domain| row.1.eq_ignore_ascii_case(domain))
        })
        .and_then(entry)
}
