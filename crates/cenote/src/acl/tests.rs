use super::*;

fn root() -> Vec<u8> {
    volume::security::volume_root().build().unwrap()
}

fn names(sid: &Sid) -> String {
    sid.to_string()
}

fn sids(name: &str) -> Result<Sid, ApiError> {
    name.parse().map_err(|_| ApiError::new(ErrorKind::NotFound, name))
}

fn grant(who: &Sid, allow: bool, access: &str) -> AclEntry {
    AclEntry {
        who: who.to_string(),
        allow,
        access: access.into(),
        object_inherit: true,
        container_inherit: true,
        inherit_only: false,
        inherited: false,
    }
}

#[test]
fn a_granted_entry_is_shown_again_and_a_second_one_for_the_same_account_replaces_it() {
    let request = SetAcl { grant: vec![grant(&Sid::guests(), true, "read")], ..SetAcl::default() };
    let once = change(&root(), &request, sids).unwrap();
    let entries = view(&once, names).unwrap().entries.unwrap();
    assert!(entries.contains(&grant(&Sid::guests(), true, "read")));
    let request = SetAcl { grant: vec![grant(&Sid::guests(), true, "0x1")], ..SetAcl::default() };
    let twice = change(&once, &request, sids).unwrap();
    let entries = view(&twice, names).unwrap().entries.unwrap();
    let theirs: Vec<_> = entries.iter().filter(|entry| entry.who == Sid::guests().to_string()).collect();
    assert_eq!(theirs, [&grant(&Sid::guests(), true, "0x1")]);
}

#[test]
fn denying_entries_stand_before_allowing_ones() {
    let request = SetAcl {
        grant: vec![grant(&Sid::guests(), true, "full"), grant(&Sid::guests(), false, "write")],
        ..SetAcl::default()
    };
    let changed = change(&root(), &request, sids).unwrap();
    let entries = view(&changed, names).unwrap().entries.unwrap();
    assert!(!entries[0].allow);
    assert!(entries[1..].iter().all(|entry| entry.allow));
}

#[test]
fn a_revoked_account_has_no_entry_and_the_others_stay() {
    let before = view(&root(), names).unwrap().entries.unwrap();
    let gone = before[0].who.clone();
    let request = SetAcl { revoke: vec![gone.clone()], ..SetAcl::default() };
    let after = view(&change(&root(), &request, sids).unwrap(), names).unwrap().entries.unwrap();
    let expected: Vec<_> = before.into_iter().filter(|entry| entry.who != gone).collect();
    assert_eq!(after, expected);
}

#[test]
fn unknown_words_and_names_are_refused() {
    for access in ["", "everything", "0x0", "0xzz"] {
        let request = SetAcl { grant: vec![grant(&Sid::guests(), true, access)], ..SetAcl::default() };
        assert_eq!(change(&root(), &request, sids).unwrap_err().kind, ErrorKind::Invalid, "{access:?}");
    }
    let request = SetAcl { revoke: vec!["nobody".into()], ..SetAcl::default() };
    assert_eq!(change(&root(), &request, sids).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(view(&[1, 2, 3], names).unwrap_err().kind, ErrorKind::Corrupt);
}
