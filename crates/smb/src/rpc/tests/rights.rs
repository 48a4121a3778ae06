//! Privileges and the accounts that have them, in lsarpc.

use super::interfaces::{handle_of, unicode};
use super::*;

const ADMINISTRATORS: &str = "S-1-5-32-544";
const BACKUP_OPERATORS: &str = "S-1-5-32-551";

fn policy() -> (Pipe, Vec<u8>) {
    let mut pipe = bound("lsarpc");
    let handle = open_policy(&mut pipe);
    (pipe, handle)
}

/// One operation on the policy, with the bytes behind the handle.
fn ask(operation: u16, rest: &[u8]) -> Vec<u8> {
    let (mut pipe, handle) = policy();
    call(&mut pipe, &FILER, operation, &[handle, rest.to_vec()].concat())
}

fn word(stub: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(stub[at..at + 4].try_into().unwrap())
}

#[test]
fn privileges_are_listed_whole_or_in_parts_that_go_on() {
    let whole = ask(2, &words(&[0, u32::MAX]));
    assert_eq!((word(&whole, 0), word(&whole, 4), last_word(&whole)), (6, 6, 0));
    assert!(contains(&whole, "SeBackupPrivilege") && contains(&whole, "SeChangeNotifyPrivilege"));
    let (mut from, mut found) = (0, 0);
    for _ in 0..10 {
        let part = ask(2, &words(&[from, 100]));
        (from, found) = (word(&part, 0), found + word(&part, 4));
        match last_word(&part) {
            0 => break,
            status => assert_eq!(status, 0x105),
        }
    }
    assert_eq!((from, found), (6, 6));
    assert_eq!(ask(2, &words(&[6, u32::MAX])), words(&[6, 0, 0, 0x8000_001A]));
}

#[test]
fn a_privilege_has_a_value_a_name_and_a_display_name() {
    assert_eq!(ask(31, &unicode("sebackupprivilege")), words(&[17, 0, 0]));
    let name = ask(32, &words(&[17, 0]));
    assert!(contains(&name, "SeBackupPrivilege") && last_word(&name) == 0);
    let display = ask(33, &[unicode("SeBackupPrivilege"), vec![9, 4, 9, 4]].concat());
    assert!(contains(&display, "Back up files and directories") && last_word(&display) == 0);
    assert_eq!(display[display.len() - 6..][..2], [9, 4], "its language");
    // One that Windows has and that means nothing here is not known.
    for (operation, rest) in [
        (31, unicode("SeDebugPrivilege")),
        (32, words(&[20, 0])),
        (32, words(&[17, 1])),
        (33, [unicode("SeDebugPrivilege"), vec![9, 4, 9, 4]].concat()),
    ] {
        assert_eq!(last_word(&ask(operation, &rest)), 0xC000_0060, "operation {operation}");
    }
}

#[test]
fn accounts_and_their_rights_lead_to_each_other() {
    let has = |stub: &[u8], sid: &str| {
        let sid = sid_bytes(sid);
        stub.windows(sid.len()).any(|window| window == sid)
    };
    let all = ask(11, &words(&[0, 8192]));
    assert_eq!((word(&all, 0), word(&all, 4), last_word(&all)), (4, 4, 0));
    assert!(has(&all, "S-1-1-0") && has(&all, ADMINISTRATORS) && has(&all, BACKUP_OPERATORS));
    assert_eq!(ask(11, &words(&[4, 8192])), words(&[4, 0, 0, 0x8000_001A]));

    let rights = ask(36, &sid_bytes(BACKUP_OPERATORS));
    for (right, is_there) in [
        ("SeBackupPrivilege", true),
        ("SeRestorePrivilege", true),
        ("SeNetworkLogonRight", true),
        ("SeSecurityPrivilege", false),
        ("SeTakeOwnershipPrivilege", false),
    ] {
        assert_eq!(contains(&rights, right), is_there, "{right}");
        let holders = ask(35, &[words(&[1]), unicode(right)].concat());
        assert_eq!(has(&holders, BACKUP_OPERATORS), is_there, "{right}");
        assert!(has(&holders, ADMINISTRATORS), "{right}");
    }
    assert_eq!(word(&ask(35, &words(&[0])), 0), 4, "without a right it is all of them");
    let unknown = ask(35, &[words(&[1]), unicode("SeDebugPrivilege")].concat());
    assert_eq!(unknown, words(&[0, 0, 0xC000_0060]));
    assert_eq!(ask(36, &sid_bytes("S-1-5-32-550")), words(&[0, 0, 0xC000_0034]));
}

#[test]
fn an_account_that_is_opened_tells_its_privileges_and_how_it_logs_on() {
    let (mut pipe, policy) = policy();
    let open = |sid: &str| [policy.clone(), sid_bytes(sid), words(&[0x0200_0000])].concat();
    let account = handle_of(&call(&mut pipe, &FILER, 17, &open(BACKUP_OPERATORS)));
    let privileges = call(&mut pipe, &FILER, 18, &account);
    assert_eq!(privileges, words(&[0x20004, 4, 4, 0, 17, 0, 3, 18, 0, 3, 23, 0, 3, 35, 0, 3, 0]));
    assert_eq!(call(&mut pipe, &FILER, 23, &account), words(&[2, 0]));
    let everyone = handle_of(&call(&mut pipe, &FILER, 17, &open("S-1-1-0")));
    assert_eq!(call(&mut pipe, &FILER, 23, &everyone), words(&[0, 0]));
    assert_eq!(last_word(&call(&mut pipe, &FILER, 17, &open("S-1-5-32-550"))), 0xC000_0034);
    // A handle of one kind is none of the other.
    for (operation, handle) in [(18, &policy), (23, &policy), (11, &account), (31, &account)] {
        let stub = [handle.clone(), unicode("SeBackupPrivilege")].concat();
        let answer = call(&mut pipe, &FILER, operation, &stub);
        assert_eq!(last_word(&answer), NtStatus::INVALID_HANDLE.0, "operation {operation}");
    }
    for (handle, mask) in [(&policy, 0x0002_0801_u32), (&account, 0x0002_0001)] {
        let answer = call(&mut pipe, &FILER, 3, &[handle.clone(), words(&[7])].concat());
        assert!(answer.windows(4).any(|window| window == mask.to_le_bytes()) && last_word(&answer) == 0);
    }
    assert_eq!(last_word(&call(&mut pipe, &FILER, 0, &account)), 0);
    assert_eq!(fault_of(&mut pipe, 18, &account), 0x1C00_001A);
}

#[test]
fn rights_and_accounts_are_not_changed_here() {
    let (mut pipe, policy) = policy();
    for operation in [4, 10, 19, 20, 24, 34, 37, 38] {
        let answer = call(&mut pipe, &FILER, operation, &policy);
        assert_eq!(last_word(&answer), NtStatus::ACCESS_DENIED.0, "operation {operation}");
    }
}
