use super::*;
use crate::backend::{AccessToken, Privileges};
use proptest::prelude::*;
use types::{NtStatus, Sid};

fn sid(text: &str) -> Sid {
    text.parse().expect("a SID")
}

fn alice() -> AccessToken {
    AccessToken {
        user: sid("S-1-5-21-1-2-3-1001"),
        primary_group: sid("S-1-5-21-1-2-3-513"),
        groups: vec![Sid::everyone(), Sid::authenticated_users(), Sid::users()],
        privileges: Privileges::empty(),
    }
}

fn owned_by(owner: Sid, aces: Vec<Ace>) -> SecurityDescriptor {
    SecurityDescriptor {
        control: Control::DACL_PRESENT,
        owner: Some(owner),
        group: Some(Sid::administrators()),
        dacl: Some(Acl::new(aces)),
        sacl: None,
    }
}

fn check(descriptor: &SecurityDescriptor, token: &AccessToken, desired: u32) -> Result<u32, NtStatus> {
    access_check(descriptor, token, AccessRequest { desired, backup_intent: false, from_parent: 0 })
}

#[test]
fn the_first_ace_that_names_a_right_decides_it() {
    let deny_first = owned_by(
        Sid::administrators(),
        vec![
            Ace::deny(Sid::users(), rights::WRITE_DATA, AceFlags::empty()),
            Ace::allow(Sid::everyone(), rights::READ_DATA | rights::WRITE_DATA, AceFlags::empty()),
        ],
    );
    assert_eq!(check(&deny_first, &alice(), rights::READ_DATA), Ok(rights::READ_DATA));
    assert_eq!(check(&deny_first, &alice(), rights::WRITE_DATA), Err(NtStatus::ACCESS_DENIED));
    let allow_first = owned_by(
        Sid::administrators(),
        vec![
            Ace::allow(Sid::everyone(), rights::WRITE_DATA, AceFlags::empty()),
            Ace::deny(Sid::users(), rights::WRITE_DATA, AceFlags::empty()),
        ],
    );
    assert_eq!(check(&allow_first, &alice(), rights::WRITE_DATA), Ok(rights::WRITE_DATA));
}

#[test]
fn an_owner_may_read_and_change_the_acl_unless_owner_rights_say_otherwise() {
    let own = rights::READ_CONTROL | rights::WRITE_DAC;
    let empty = owned_by(alice().user, vec![]);
    assert_eq!(check(&empty, &alice(), own), Ok(own));
    assert_eq!(check(&empty, &alice(), rights::READ_DATA), Err(NtStatus::ACCESS_DENIED));
    let limited = owned_by(
        alice().user,
        vec![Ace::allow(Sid::owner_rights(), rights::READ_CONTROL, AceFlags::empty())],
    );
    assert_eq!(check(&limited, &alice(), rights::WRITE_DAC), Err(NtStatus::ACCESS_DENIED));
    assert_eq!(check(&limited, &alice(), rights::READ_CONTROL), Ok(rights::READ_CONTROL));
}

#[test]
fn inherit_only_aces_have_no_effect_on_the_object_itself() {
    let descriptor = owned_by(
        Sid::administrators(),
        vec![Ace::allow(
            Sid::everyone(),
            rights::FILE_ALL,
            AceFlags::INHERIT_ONLY | AceFlags::OBJECT_INHERIT,
        )],
    );
    assert_eq!(check(&descriptor, &alice(), rights::READ_DATA), Err(NtStatus::ACCESS_DENIED));
}

#[test]
fn a_null_dacl_grants_everything_and_an_empty_one_nothing() {
    let mut descriptor = owned_by(Sid::administrators(), vec![]);
    assert_eq!(maximal_access(&descriptor, &alice()), 0);
    assert_eq!(check(&descriptor, &alice(), rights::MAXIMUM_ALLOWED), Err(NtStatus::ACCESS_DENIED));
    descriptor.dacl = None;
    assert_eq!(check(&descriptor, &alice(), rights::GENERIC_ALL), Ok(rights::FILE_ALL));
    assert_eq!(check(&descriptor, &alice(), rights::MAXIMUM_ALLOWED), Ok(rights::FILE_ALL));
}

#[test]
fn privileges_give_what_they_are_named_for() {
    let descriptor = owned_by(Sid::administrators(), vec![]);
    let mut token = alice();
    assert_eq!(check(&descriptor, &token, rights::ACCESS_SYSTEM_SECURITY), Err(NtStatus::PRIVILEGE_NOT_HELD));
    token.privileges = Privileges::TAKE_OWNERSHIP | Privileges::BACKUP | Privileges::SECURITY;
    assert!(check(&descriptor, &token, rights::WRITE_OWNER | rights::ACCESS_SYSTEM_SECURITY).is_ok());
    assert_eq!(check(&descriptor, &token, rights::READ_DATA), Err(NtStatus::ACCESS_DENIED));
    let request = AccessRequest { desired: rights::READ_DATA, backup_intent: true, from_parent: 0 };
    assert_eq!(access_check(&descriptor, &token, request), Ok(rights::READ_DATA));
}

#[test]
fn the_parent_may_give_delete_and_read_attributes() {
    let descriptor = owned_by(Sid::administrators(), vec![]);
    let from_parent = parent_grants(rights::DELETE_CHILD | rights::LIST_DIRECTORY);
    let request = AccessRequest {
        desired: rights::DELETE | rights::READ_ATTRIBUTES,
        backup_intent: false,
        from_parent,
    };
    assert!(access_check(&descriptor, &alice(), request).is_ok());
}

#[test]
fn creator_owner_becomes_the_owner_on_files_and_both_on_directories() {
    let parent = owned_by(
        Sid::administrators(),
        vec![Ace::allow(
            Sid::creator_owner(),
            rights::WRITE_DATA,
            AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT,
        )],
    );
    let file = inherit(&parent, None, &alice(), false).expect("a descriptor");
    assert_eq!(
        file.dacl,
        Some(Acl::new(vec![Ace::allow(alice().user, rights::WRITE_DATA, AceFlags::empty())]))
    );
    let directory = inherit(&parent, None, &alice(), true).expect("a descriptor");
    assert_eq!(
        directory.dacl,
        Some(Acl::new(vec![
            Ace::allow(alice().user, rights::WRITE_DATA, AceFlags::empty()),
            Ace::allow(
                Sid::creator_owner(),
                rights::WRITE_DATA,
                AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT | AceFlags::INHERIT_ONLY
            ),
        ]))
    );
}

#[test]
fn inheritance_flags_follow_the_table() {
    use AceFlags as F;
    // The parent's flags, then those of the child directory's ACE; None: no inherited ACE.
    let table = [
        (F::empty(), None),
        (F::OBJECT_INHERIT, Some(F::OBJECT_INHERIT | F::INHERIT_ONLY)),
        (F::CONTAINER_INHERIT, Some(F::CONTAINER_INHERIT)),
        (F::OBJECT_INHERIT | F::CONTAINER_INHERIT, Some(F::OBJECT_INHERIT | F::CONTAINER_INHERIT)),
        (F::NO_PROPAGATE_INHERIT | F::OBJECT_INHERIT, None),
        (F::NO_PROPAGATE_INHERIT | F::CONTAINER_INHERIT, Some(F::empty())),
        (F::INHERIT_ONLY | F::CONTAINER_INHERIT, Some(F::CONTAINER_INHERIT)),
        (F::INHERIT_ONLY, None),
    ];
    for (flags, expected) in table {
        let parent =
            owned_by(Sid::administrators(), vec![Ace::allow(Sid::everyone(), rights::READ_DATA, flags)]);
        let child = inherit(&parent, None, &alice(), true).expect("a descriptor");
        let found = child.dacl.expect("a DACL").aces;
        let inherited = found.iter().find(|ace| ace.sid == Sid::everyone()).map(|ace| ace.flags);
        assert_eq!(inherited, expected, "{flags:?}");
    }
}

#[test]
fn without_inheritable_aces_only_owner_and_system_have_access() {
    let child =
        inherit(&owned_by(Sid::administrators(), vec![]), None, &alice(), false).expect("a descriptor");
    assert_eq!(child, default_for(&alice()));
}

#[test]
fn inherited_aces_are_marked_only_below_an_auto_inherited_parent() {
    let mut parent = owned_by(
        Sid::administrators(),
        vec![Ace::allow(Sid::everyone(), rights::READ_DATA, AceFlags::OBJECT_INHERIT)],
    );
    let plain = inherit(&parent, None, &alice(), false).expect("a descriptor");
    assert!(!plain.control.contains(Control::DACL_AUTO_INHERITED));
    assert_eq!(plain.dacl.expect("a DACL").aces[0].flags, AceFlags::empty());
    parent.control |= Control::DACL_AUTO_INHERITED;
    let marked = inherit(&parent, None, &alice(), false).expect("a descriptor");
    assert!(marked.control.contains(Control::DACL_AUTO_INHERITED));
    assert_eq!(marked.dacl.expect("a DACL").aces[0].flags, AceFlags::INHERITED);
}

#[test]
fn an_explicit_dacl_is_taken_as_it_is() {
    let given = owned_by(alice().user, vec![Ace::allow(Sid::users(), rights::READ_DATA, AceFlags::empty())]);
    let child = inherit(&volume_root(), Some(&given), &alice(), false).expect("a descriptor");
    assert_eq!(child.dacl, given.dacl);
    let foreign = owned_by(Sid::local_system(), vec![]);
    assert_eq!(inherit(&volume_root(), Some(&foreign), &alice(), false), Err(NtStatus::INVALID_OWNER));
}

fn audit(sid: Sid) -> Ace {
    Ace::new(
        AceKind::Other(2),
        AceFlags::SUCCESSFUL_ACCESS | AceFlags::OBJECT_INHERIT,
        rights::WRITE_DATA,
        sid,
    )
}

fn with_sacl(mut descriptor: SecurityDescriptor, sacl: Option<Acl>) -> SecurityDescriptor {
    descriptor.control |= Control::SACL_PRESENT;
    descriptor.sacl = sacl;
    descriptor
}

#[test]
fn only_a_holder_of_the_security_privilege_gives_a_sacl_to_what_it_creates() {
    let parent = with_sacl(volume_root(), Some(Acl::new(vec![audit(Sid::everyone())])));
    let inherited = inherit(&parent, None, &alice(), false).expect("a descriptor").sacl;
    assert!(inherited.is_some());
    let own = Acl::new(vec![audit(Sid::users())]);
    let given = with_sacl(owned_by(alice().user, vec![]), Some(own.clone()));
    assert_eq!(inherit(&parent, Some(&given), &alice(), false), Err(NtStatus::PRIVILEGE_NOT_HELD));
    for idle in [None, Some(Acl::default())] {
        let given = with_sacl(owned_by(alice().user, vec![]), idle);
        let child = inherit(&parent, Some(&given), &alice(), false).expect("a descriptor");
        assert_eq!(child.sacl, inherited, "the audit that the parent hands down stays");
    }
    let mut auditor = alice();
    auditor.privileges = Privileges::SECURITY;
    let child = inherit(&parent, Some(&given), &auditor, false).expect("a descriptor");
    assert_eq!(child.sacl, Some(own));
}

#[test]
fn a_query_of_the_label_answers_the_label_alone() {
    let everyone = Sid::everyone;
    let of_kind = |kind| Ace::new(AceKind::Other(kind), AceFlags::empty(), 1, everyone());
    let aces = vec![audit(everyone()), of_kind(0x11), of_kind(0x12), of_kind(0x13)];
    let descriptor = with_sacl(volume_root(), Some(Acl::new(aces.clone())));
    let selected = |parts| select(&descriptor, parts).sacl.map(|sacl| sacl.aces);
    assert_eq!(selected(Parts::LABEL), Some(vec![aces[1].clone()]));
    assert_eq!(selected(Parts::ATTRIBUTE), Some(vec![aces[2].clone()]));
    assert_eq!(selected(Parts::SCOPE | Parts::LABEL), Some(vec![aces[1].clone(), aces[3].clone()]));
    assert_eq!(selected(Parts::SACL), Some(aces.clone()));
    assert_eq!(selected(Parts::OWNER | Parts::GROUP | Parts::DACL), None);
    let unlabelled = with_sacl(volume_root(), Some(Acl::new(vec![audit(everyone())])));
    let answer = select(&unlabelled, Parts::LABEL);
    assert!(answer.sacl.is_none() && !answer.control.contains(Control::SACL_PRESENT));
    // A part that takes READ_CONTROL alone never shows one that takes ACCESS_SYSTEM_SECURITY.
    for bit in Parts::all().iter().filter(|part| part.access_to_query() & rights::ACCESS_SYSTEM_SECURITY == 0)
    {
        let shown = selected(bit).unwrap_or_default();
        assert!(shown.iter().all(|ace| ace.kind == AceKind::Other(0x11)), "{bit:?}");
    }
}

#[test]
fn only_the_named_parts_change() {
    let current = default_for(&alice());
    let mut new = owned_by(Sid::local_system(), vec![]);
    new.control |= Control::DACL_PROTECTED | Control::DACL_AUTO_INHERITED;
    let changed = change(&current, &new, Parts::DACL, &alice()).expect("allowed");
    assert_eq!(changed.owner, current.owner);
    assert_eq!(changed.dacl, Some(Acl::default()));
    assert!(changed.control.contains(Control::DACL_PROTECTED));
    assert!(!changed.control.contains(Control::DACL_AUTO_INHERITED));
    assert_eq!(change(&current, &new, Parts::OWNER, &alice()), Err(NtStatus::INVALID_OWNER));
    new.control |= Control::DACL_AUTO_INHERIT_REQUIRED;
    let changed = change(&current, &new, Parts::DACL | Parts::UNPROTECTED_DACL, &alice()).expect("allowed");
    assert!(changed.control.contains(Control::DACL_AUTO_INHERITED));
    assert!(!changed.control.contains(Control::DACL_PROTECTED));
}

#[test]
fn a_descriptor_survives_its_wire_form() {
    let mut descriptor = volume_root();
    descriptor.sacl = Some(Acl::new(vec![Ace::new(
        AceKind::Other(2),
        AceFlags::SUCCESSFUL_ACCESS,
        rights::WRITE_DATA,
        Sid::everyone(),
    )]));
    descriptor.control |= Control::SACL_PRESENT | Control::SELF_RELATIVE;
    let bytes = descriptor.build().expect("short enough");
    assert_eq!(SecurityDescriptor::parse(&bytes), Ok(descriptor));
}

#[test]
fn broken_descriptors_are_refused() {
    let bytes = volume_root().build().expect("short enough");
    assert_eq!(SecurityDescriptor::parse(&[]), Err(NtStatus::INVALID_SECURITY_DESCR));
    // The access list is its last part, behind owner and group.
    assert_eq!(SecurityDescriptor::parse(&bytes[..bytes.len() - 1]), Err(NtStatus::INVALID_ACL));
    let owner = 20;
    assert_eq!(SecurityDescriptor::parse(&bytes[..owner + 7]), Err(NtStatus::INVALID_SID));
    let mut wrong = bytes.clone();
    wrong[16] = 0xFF;
    wrong[17] = 0xFF;
    assert_eq!(SecurityDescriptor::parse(&wrong), Err(NtStatus::INVALID_SECURITY_DESCR));
    let mut wrong = bytes;
    let count_of_entries = usize::from(wrong[16]) + 4;
    wrong[count_of_entries] = 0xFF;
    assert_eq!(SecurityDescriptor::parse(&wrong), Err(NtStatus::INVALID_ACL));
}

proptest! {
    #[test]
    fn any_bytes_parse_or_are_refused_and_what_parses_builds_again(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        flip in 0usize..140, to in any::<u8>(),
    ) {
        let _ = SecurityDescriptor::parse(&bytes);
        let mut near = volume_root().build().expect("short enough");
        let at = flip % near.len();
        near[at] = to;
        if let Ok(parsed) = SecurityDescriptor::parse(&near) {
            let built = parsed.build().expect("short enough");
            let again = SecurityDescriptor::parse(&built).expect("what was built parses");
            prop_assert_eq!(again.dacl, parsed.dacl);
            prop_assert_eq!(again.owner, parsed.owner);
        }
    }
}
