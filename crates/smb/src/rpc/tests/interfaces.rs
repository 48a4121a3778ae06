//! samr, dssetup, winreg, svcctl, epmapper, mgmt, and big-endian clients.

use super::interface::Interface;
use super::*;

pub(super) fn handle_of(answer: &[u8]) -> Vec<u8> {
    assert_eq!(last_word(answer), 0);
    answer[answer.len() - 24..answer.len() - 4].to_vec()
}

/// RPC_UNICODE_STRING as it lies in a request.
pub(super) fn unicode(name: &str) -> Vec<u8> {
    let (len, units) = (2 * name.len() as u32, name.len() as u32);
    let mut out = words(&[len << 16 | len, 1, units, 0, units]);
    name.encode_utf16().for_each(|unit| out.extend_from_slice(&unit.to_le_bytes()));
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// samr with a handle of a domain.
fn domain(sid: &str) -> (Pipe, Vec<u8>) {
    let mut pipe = bound_as("samr", true);
    let server = handle_of(&call(&mut pipe, &FILER, 57, &words(&[0, 0x0200_0000])));
    let open = [server, words(&[0x0200_0000]), sid_bytes(sid)].concat();
    let domain = handle_of(&call(&mut pipe, &FILER, 7, &open));
    (pipe, domain)
}

#[test]
fn accounts_are_for_administrators() {
    let answer = call(&mut bound("samr"), &FILER, 57, &words(&[0, 0x0200_0000]));
    assert_eq!(last_word(&answer), NtStatus::ACCESS_DENIED.0);
    let answer = call(&mut bound("samr"), &FILER, 64, &words(&[0, 0x0200_0000, 1, 1, 3, 0]));
    assert_eq!(last_word(&answer), NtStatus::ACCESS_DENIED.0);
}

#[test]
fn users_groups_and_aliases_are_listed_in_their_domains() {
    let (mut pipe, own) = domain(OWN);
    let list = |handle: &[u8], operation| {
        let flags: &[u32] = if operation == 13 { &[0] } else { &[] };
        [handle, &words(&[0]), &words(flags), &words(&[u32::MAX])].concat()
    };
    let users = call(&mut pipe, &FILER, 13, &list(&own, 13));
    assert!(contains(&users, "ana") && contains(&users, "bob") && !contains(&users, "drawers"));
    assert_eq!(users[users.len() - 8..], words(&[2, 0]));
    let aliases = call(&mut pipe, &FILER, 15, &list(&own, 15));
    assert!(contains(&aliases, "drawers") && !contains(&aliases, "Administrators"));
    assert!(contains(&call(&mut pipe, &FILER, 11, &list(&own, 11)), "None"));
    // One entry at a time: more are there, and the last one found is where it continues.
    let first = call(&mut pipe, &FILER, 13, &[own.clone(), words(&[0, 0, 1])].concat());
    assert_eq!((first[..4].to_vec(), last_word(&first)), (words(&[1000]), 0x105));
    let second = call(&mut pipe, &FILER, 13, &[own, words(&[1000, 0, 1])].concat());
    assert!(contains(&second, "bob") && last_word(&second) == 0);

    let (mut pipe, builtin) = domain("S-1-5-32");
    let aliases = call(&mut pipe, &FILER, 15, &list(&builtin, 15));
    assert!(contains(&aliases, "Administrators") && !contains(&aliases, "drawers"));
}

#[test]
fn names_and_identifiers_are_found_in_a_domain() {
    let (mut pipe, own) = domain(OWN);
    let names = [own.clone(), words(&[2, 1000, 0, 2])].concat();
    let (first, second) = (unicode("BOB"), unicode("eva"));
    let names = [names, first[..8].to_vec(), second[..8].to_vec(), first[8..].to_vec(), second[8..].to_vec()];
    let answer = call(&mut pipe, &FILER, 17, &names.concat());
    assert_eq!(answer, words(&[2, 0x20004, 2, 1001, 0, 2, 0x20008, 2, 1, 8, 0x107]));
    let answer = call(&mut pipe, &FILER, 18, &[own, words(&[1, 1000, 0, 1, 1000])].concat());
    assert!(contains(&answer, "ana") && last_word(&answer) == 0);
}

#[test]
fn a_user_and_a_group_tell_of_themselves_and_take_no_change() {
    let (mut pipe, own) = domain(OWN);
    let user = handle_of(&call(&mut pipe, &FILER, 34, &[own.clone(), words(&[1, 1001])].concat()));
    for class in [1, 6, 7, 8, 9, 16, 21] {
        let answer = call(&mut pipe, &FILER, 36, &[user.clone(), vec![class, 0]].concat());
        assert_eq!(last_word(&answer), 0, "class {class}");
        assert_eq!(contains(&answer, "bob"), !matches!(class, 9 | 16), "class {class}");
    }
    let control = call(&mut pipe, &FILER, 36, &[user.clone(), vec![16, 0]].concat());
    assert_eq!(control, words(&[0x20004, 16, 0x211, 0]), "a disabled user's flags");
    let alias = handle_of(&call(&mut pipe, &FILER, 27, &[own.clone(), words(&[1, 1100])].concat()));
    let members = call(&mut pipe, &FILER, 33, &alias);
    let sid = sid_bytes(&format!("{OWN}-1000"));
    assert!(members.windows(sid.len()).any(|window| window == sid));
    let of = [own.clone(), words(&[1, 1, 1, 1]), sid].concat();
    assert_eq!(call(&mut pipe, &FILER, 16, &of), words(&[1, 0x20004, 1, 1100, 0]));

    for operation in [9, 12, 14, 31, 35, 37, 50, 58] {
        let answer = call(&mut pipe, &FILER, operation, &own);
        assert_eq!(last_word(&answer), NtStatus::ACCESS_DENIED.0, "operation {operation}");
    }
    let missing = call(&mut pipe, &FILER, 34, &[own, words(&[1, 7])].concat());
    assert_eq!(last_word(&missing), 0xC000_0064);
    // A handle of a group is none of a user.
    let answer = call(&mut pipe, &FILER, 36, &[alias, vec![21, 0]].concat());
    assert_eq!(last_word(&answer), NtStatus::INVALID_HANDLE.0);
}

#[test]
fn every_class_of_a_domain_is_answered_and_others_are_refused() {
    let (mut pipe, own) = domain(OWN);
    for class in 0..20_u8 {
        let answer = call(&mut pipe, &FILER, 8, &[own.clone(), vec![class, 0]].concat());
        let is_known = matches!(class, 1..=9 | 11..=13);
        let status = if is_known { 0 } else { NtStatus::INVALID_INFO_CLASS.0 };
        assert_eq!(last_word(&answer), status, "class {class}");
    }
}

#[test]
fn the_display_of_users_has_their_full_names_and_goes_on_by_index() {
    let (mut pipe, own) = domain(OWN);
    let ask = |class: u8, from| [own.clone(), vec![class, 0, 0, 0], words(&[from, 100, 0x10000])].concat();
    let all = call(&mut pipe, &FILER, 51, &ask(1, 0));
    assert!(contains(&all, "ana Full") && contains(&all, "bob") && last_word(&all) == 0);
    let rest = call(&mut pipe, &FILER, 51, &ask(1, 1));
    assert!(!contains(&rest, "ana") && contains(&rest, "bob"));
    assert!(contains(&call(&mut pipe, &FILER, 51, &ask(3, 0)), "None"));
    assert_eq!(last_word(&call(&mut pipe, &FILER, 51, &ask(9, 0))), NtStatus::INVALID_INFO_CLASS.0);
}

#[test]
fn builtin_is_a_domain_with_its_newer_members() {
    let mut pipe = bound("lsarpc");
    let policy = open_policy(&mut pipe);
    let sids = ["S-1-5-32", "S-1-5-32-580", "S-1-5-32-555"];
    let mut stub = [policy.clone(), words(&[3, 1, 3, 1, 1, 1])].concat();
    sids.iter().for_each(|sid| stub.extend(sid_bytes(sid)));
    stub.extend(words(&[0, 0, 1, 0]));
    let answer = call(&mut pipe, &FILER, 15, &stub);
    assert!(contains(&answer, "Remote Management Users") && contains(&answer, "Remote Desktop Users"));
    assert_eq!(answer[answer.len() - 8..], words(&[3, 0]), "all three are known");
    for name in ["builtin", "BUILTIN\\BUILTIN", "BUILTIN\\", ""] {
        let mut stub = [policy.clone(), words(&[1, 1])].concat();
        stub.extend(unicode(name));
        stub.extend(words(&[0, 0, 1, 0]));
        let answer = call(&mut pipe, &FILER, 14, &stub);
        // A domain has no identifier of its own (MS-LSAT 2.2.14).
        assert_eq!(answer[answer.len() - 20..], words(&[3, u32::MAX, 0, 1, 0]), "{name}");
    }
}

#[test]
fn a_server_of_its_own_says_so_to_dssetup() {
    let mut pipe = bound_to(Interface::Dssetup, "lsarpc", false);
    let answer = call(&mut pipe, &FILER, 0, &[1, 0]);
    assert_eq!(answer[8..10], [2, 0]);
    assert!(contains(&answer, "WORKGROUP\0") && last_word(&answer) == 0);
    assert_eq!(call(&mut pipe, &FILER, 0, &[9, 0]), words(&[0, 87]));
    assert_eq!(fault_of(&mut pipe, 1, &[]), 0x1C01_0002);
}

#[test]
fn the_users_of_sessions_are_named_once_to_administrators() {
    let list = words(&[0, 1, 1, 1, 0, 0, u32::MAX, 0]);
    let answer = call(&mut bound_as("wkssvc", true), &FILER, 2, &list);
    assert!(contains(&answer, "ana\0") && last_word(&answer) == 0);
    assert_eq!(last_word(&call(&mut bound("wkssvc"), &FILER, 2, &list)), 5);
}

#[test]
fn the_registry_has_a_few_keys_and_values() {
    let mut pipe = bound_as("winreg", true);
    let root = handle_of(&call(&mut pipe, &FILER, 2, &words(&[0, 0x0200_0000])));
    let open = |parent: &[u8], path: &str| [parent, &unicode(path), &words(&[0, 0x0200_0000])].concat();
    let options = "system\\currentcontrolset\\CONTROL\\ProductOptions";
    let key = handle_of(&call(&mut pipe, &FILER, 15, &open(&root, options)));
    let mut query = [key.clone(), unicode("producttype")].concat();
    query.extend(words(&[1, 0, 1, 100, 0, 0, 1, 100, 1, 0]));
    let answer = call(&mut pipe, &FILER, 17, &query);
    assert!(contains(&answer, "ServerNT\0") && last_word(&answer) == 0);
    let mut missing = [key, unicode("nothing")].concat();
    missing.extend(words(&[0, 0, 0, 0]));
    assert_eq!(last_word(&call(&mut pipe, &FILER, 17, &missing)), 2);
    for path in ["SYSTEM\\Current", "SYSTEM\\CurrentControlSet\\x"] {
        assert_eq!(last_word(&call(&mut pipe, &FILER, 15, &open(&root, path))), 2, "{path}");
    }
    // Keys below a root: SOFTWARE, SYSTEM, and no third one.
    for (index, status) in [(0, 0), (1, 0), (2, 259)] {
        let ask = [root.clone(), words(&[index, 0x0200_0000, 0, 0, 0])].concat();
        assert_eq!(last_word(&call(&mut pipe, &FILER, 9, &ask)), status, "index {index}");
    }
    assert_eq!(last_word(&call(&mut bound("winreg"), &FILER, 2, &words(&[0, 0x0200_0000]))), 5);
}

#[test]
fn no_service_is_there() {
    let mut pipe = bound_as("svcctl", true);
    let manager = handle_of(&call(&mut pipe, &FILER, 15, &words(&[0, 0, 1])));
    let open = [manager.clone(), wide("spooler"), words(&[1])].concat();
    assert_eq!(last_word(&call(&mut pipe, &FILER, 16, &open)), 1060);
    let list = [manager, words(&[0x30, 3, 64, 1, 0])].concat();
    let answer = call(&mut pipe, &FILER, 14, &list);
    assert_eq!(answer.len(), 4 + 64 + 8 + 8 + 4);
    assert_eq!(last_word(&answer), 0);
    assert_eq!(last_word(&call(&mut bound("svcctl"), &FILER, 15, &words(&[0, 0, 1]))), 5);
}

#[test]
fn interfaces_are_found_on_their_pipes() {
    let mut pipe = bound("epmapper");
    let mut list = |entries_max: u32| {
        let (mut handle, mut found) = (vec![0; 20], 0);
        for asked in 1..20 {
            let ask = [words(&[0, 0, 0, 1]), handle, words(&[entries_max])].concat();
            let answer = call(&mut pipe, &FILER, 2, &ask);
            let shown = u32::from_le_bytes(answer[20..24].try_into().unwrap());
            handle = answer[..20].to_vec();
            found += shown;
            assert_eq!(handle == [0; 20], last_word(&answer) != 0, "the handle ends with the list");
            if last_word(&answer) != 0 {
                assert_eq!(last_word(&answer), 0x16C9_A0D6);
                return (found, asked);
            }
            assert_eq!(shown, entries_max, "fewer are the last ones");
        }
        panic!("a list without end");
    };
    // Eight interfaces: each but that of every pipe.
    assert_eq!([list(1), list(3), list(8), list(10)], [(8, 9), (8, 3), (8, 2), (8, 1)]);
    let management = bound_to(Interface::Management, "samr", false);
    let answer = call(&mut { management }, &FILER, 0, &[]);
    let samr = Interface::Samr.syntax().uuid;
    assert!(answer.windows(16).any(|window| window == samr) && last_word(&answer) == 0);
}

#[test]
fn a_big_endian_client_is_understood() {
    let syntax = Interface::Lsarpc.syntax();
    let big = |uuid: [u8; 16], version: u32| {
        let mut out = pdu::Order::Big.uuid(uuid).to_vec();
        out.extend_from_slice(&version.to_be_bytes());
        out
    };
    let big_pdu = |kind: u8, body: &[u8]| {
        let mut out = vec![5, 0, kind, 3, 0, 0, 0, 0];
        out.extend_from_slice(&(16 + body.len() as u16).to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 0, 0, 7]);
        out.extend_from_slice(body);
        out
    };
    let mut body = vec![0x10, 0xB8, 0x10, 0xB8, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0];
    body.extend(big(syntax.uuid, syntax.version));
    body.extend(big(pdu::NDR.uuid, pdu::NDR.version));
    let mut pipe = Pipe::open("lsarpc", caller(false)).unwrap();
    let ack = pipe.transact(&big_pdu(11, &body), 4280, &FILER).unwrap().unwrap().bytes;
    assert_eq!((ack[2], &ack[ack.len() - 20..]), (12, &NDR[..]));

    let ask = |pipe: &mut Pipe, operation: u16, stub: &[u8]| {
        let head = [[0; 6], [0; 6]].concat()[..6].to_vec();
        let request = [head, operation.to_be_bytes().to_vec(), stub.to_vec()].concat();
        pipe.transact(&big_pdu(0, &request), 4280, &FILER).unwrap().unwrap().bytes[24..].to_vec()
    };
    let handle = ask(&mut pipe, 44, &[0; 32])[..20].to_vec();
    // The client has the handle's integers in its own order.
    let uuid = pdu::Order::Big.uuid(handle[4..].try_into().unwrap());
    let mut stub = [&handle[..4], &uuid[..]].concat();
    let numbers = |values: &[u32]| values.iter().flat_map(|value| value.to_be_bytes()).collect::<Vec<u8>>();
    let sid: Sid = format!("{OWN}-1000").parse().unwrap();
    stub.extend(numbers(&[1, 1, 1, 1, 5]));
    stub.extend([1, 5, 0, 0, 0, 0, 0, 5]);
    stub.extend(numbers(sid.sub_authorities()));
    stub.extend(numbers(&[0, 0, 1, 0]));
    let answer = ask(&mut pipe, 15, &stub);
    assert!(contains(&answer, "ana") && last_word(&answer) == 0);
}
