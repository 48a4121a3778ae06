use super::*;

fn root() -> Described {
    Described { descriptor: volume::security::volume_root().build().unwrap(), directory: true }
}

/// A directory or file in the root, as it is made there.
fn in_root(directory: bool) -> Described {
    let parent = volume::security::volume_root();
    let token = volume::backend::AccessToken {
        user: "S-1-5-21-1-2-3-1001".parse().unwrap(),
        primary_group: Sid::users(),
        groups: Vec::new(),
        privileges: volume::backend::Privileges::empty(),
    };
    let made = volume::security::inherit(&parent, None, &token, directory).unwrap();
    Described { descriptor: made.build().unwrap(), directory }
}

/// The file after a change, as it is stored and read again.
fn changed(file: &Described, request: &SetAcl) -> Result<Described, ApiError> {
    let change = change(file, Some(&root()), request, sids)?;
    let new = SecurityDescriptor::parse(&change.descriptor).unwrap();
    let old = SecurityDescriptor::parse(&file.descriptor).unwrap();
    let administrator = volume::backend::AccessToken {
        user: Sid::administrators(),
        primary_group: Sid::administrators(),
        groups: Vec::new(),
        privileges: volume::backend::Privileges::all(),
    };
    let stored = volume::security::change(&old, &new, volume::security::Parts::DACL, &administrator).unwrap();
    Ok(Described { descriptor: stored.build().unwrap(), directory: file.directory })
}

fn entries(file: &Described) -> Vec<AclEntry> {
    view(&file.descriptor, names).unwrap().entries.unwrap()
}

fn inheritance(wish: Inheritance) -> SetAcl {
    SetAcl { inheritance: Some(wish), ..SetAcl::default() }
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
    let once = changed(&root(), &request).unwrap();
    assert!(entries(&once).contains(&grant(&Sid::guests(), true, "read")));
    let request = SetAcl { grant: vec![grant(&Sid::guests(), true, "0x1")], ..SetAcl::default() };
    let twice = entries(&changed(&once, &request).unwrap());
    let theirs: Vec<_> = twice.iter().filter(|entry| entry.who == Sid::guests().to_string()).collect();
    assert_eq!(theirs, [&grant(&Sid::guests(), true, "0x1")]);
}

#[test]
fn denying_entries_stand_before_allowing_ones() {
    let request = SetAcl {
        grant: vec![grant(&Sid::guests(), true, "full"), grant(&Sid::guests(), false, "write")],
        ..SetAcl::default()
    };
    let entries = entries(&changed(&root(), &request).unwrap());
    assert!(!entries[0].allow);
    assert!(entries[1..].iter().all(|entry| entry.allow));
}

#[test]
fn a_revoked_account_has_no_entry_and_the_others_stay() {
    let before = entries(&root());
    let gone = before[0].who.clone();
    let request = SetAcl { revoke: vec![gone.clone()], ..SetAcl::default() };
    let after = entries(&changed(&root(), &request).unwrap());
    let expected: Vec<_> = before.into_iter().filter(|entry| entry.who != gone).collect();
    assert_eq!(after, expected);
}

#[test]
fn unknown_words_and_names_are_refused() {
    for access in ["", "everything", "0x0", "0xzz"] {
        let request = SetAcl { grant: vec![grant(&Sid::guests(), true, access)], ..SetAcl::default() };
        assert_eq!(changed(&root(), &request).unwrap_err().kind, ErrorKind::Invalid, "{access:?}");
    }
    let request = SetAcl { revoke: vec!["nobody".into()], ..SetAcl::default() };
    assert_eq!(changed(&root(), &request).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(view(&[1, 2, 3], names).unwrap_err().kind, ErrorKind::Corrupt);
}

#[test]
fn an_entry_that_is_only_inherited_is_not_revoked_and_says_so() {
    let who = Sid::authenticated_users().to_string();
    let revoke = SetAcl { revoke: vec![who.clone()], ..SetAcl::default() };
    let made = in_root(true);
    let refused = changed(&made, &revoke).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Conflict);
    assert!(refused.message.contains("inherited") && refused.message.contains("acl protect"), "{refused:?}");
    // Its own entry is removed, and the answer names the inherited one.
    let both = SetAcl { grant: vec![grant(&Sid::authenticated_users(), true, "full")], ..SetAcl::default() };
    let both = changed(&made, &both).unwrap();
    let told = change(&both, Some(&root()), &revoke, sids).unwrap();
    assert_eq!(told.still_inherited, [who]);
    assert_eq!(entries(&changed(&both, &revoke).unwrap()), entries(&made));
}

#[test]
fn revoking_an_account_without_entries_is_refused() {
    let request = SetAcl { revoke: vec![Sid::guests().to_string()], ..SetAcl::default() };
    assert_eq!(changed(&root(), &request).unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn broken_inheritance_keeps_the_entries_as_its_own_and_restored_inheritance_is_as_before() {
    for directory in [true, false] {
        let made = in_root(directory);
        let broken = changed(&made, &inheritance(Inheritance::BreakAndKeep)).unwrap();
        assert!(view(&broken.descriptor, names).unwrap().protected);
        let own = |entry: AclEntry| AclEntry { inherited: false, ..entry };
        let expected: Vec<_> = entries(&made).into_iter().map(own).collect();
        assert_eq!(entries(&broken), expected);
        let restored = changed(&broken, &inheritance(Inheritance::Restore)).unwrap();
        assert!(!view(&restored.descriptor, names).unwrap().protected);
        assert_eq!(entries(&restored), entries(&made), "directory: {directory}");
    }
}

#[test]
fn inherited_entries_are_dropped_unless_none_would_be_left() {
    let drop = inheritance(Inheritance::BreakAndDrop);
    let made = in_root(true);
    assert_eq!(changed(&made, &drop).unwrap_err().kind, ErrorKind::Conflict);
    let request = SetAcl { grant: vec![grant(&Sid::guests(), true, "read")], ..SetAcl::default() };
    let granted = changed(&made, &request).unwrap();
    let dropped = changed(&granted, &drop).unwrap();
    assert_eq!(entries(&dropped), [grant(&Sid::guests(), true, "read")]);
}

#[test]
fn a_changed_directory_hands_its_entries_down_as_inherited_ones() {
    let request = SetAcl { grant: vec![grant(&Sid::guests(), true, "read")], ..SetAcl::default() };
    let directory = changed(&root(), &request).unwrap();
    let parent = SecurityDescriptor::parse(&directory.descriptor).unwrap();
    assert!(parent.control.contains(Control::DACL_AUTO_INHERITED));
}

#[test]
fn a_file_without_a_dacl_stays_open_to_everyone_unless_something_is_granted() {
    let open = SecurityDescriptor { dacl: None, ..volume::security::volume_root() };
    let open = Described { descriptor: open.build().unwrap(), directory: false };
    let unchanged = change(&open, Some(&root()), &SetAcl::default(), sids).unwrap();
    assert!(SecurityDescriptor::parse(&unchanged.descriptor).unwrap().dacl.is_none());
    let keep = inheritance(Inheritance::BreakAndKeep);
    assert_eq!(changed(&open, &keep).unwrap_err().kind, ErrorKind::Conflict);
    let restored = changed(&open, &inheritance(Inheritance::Restore)).unwrap();
    assert!(entries(&restored).iter().all(|entry| entry.inherited));
}

#[test]
fn the_root_of_a_volume_has_nothing_to_inherit() {
    let restore = inheritance(Inheritance::Restore);
    assert_eq!(change(&root(), None, &restore, sids).unwrap_err().kind, ErrorKind::Invalid);
}
