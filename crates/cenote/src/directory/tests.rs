use super::*;
use zeroize::Zeroizing;

fn domain() -> Sid {
    Sid::new(5, &[21, 1, 2, 3]).unwrap()
}

fn user(name: &str, relative_id: u32) -> UserSecret {
    let user = records::accounts::User {
        name: name.into(),
        sid: domain().child(relative_id).unwrap(),
        enabled: true,
        full_name: String::new(),
        password_set_unix_s: 0,
        password_lost: false,
    };
    UserSecret { user, nt_hash: Zeroizing::new([0; 16]) }
}

fn group(name: &str, sid: Sid, members: &[&Sid]) -> Group {
    Group { name: name.into(), sid, members: members.iter().map(|sid| (*sid).clone()).collect() }
}

#[test]
fn a_member_of_a_group_in_a_group_is_in_both_and_cycles_end() {
    let ann = user("Ann", 1000);
    let (inner, outer) = (domain().child(1001).unwrap(), domain().child(1002).unwrap());
    let groups = vec![
        group("inner", inner.clone(), &[&ann.user.sid, &outer]),
        group("outer", outer.clone(), &[&inner]),
        group("Administrators", Sid::administrators(), &[&outer]),
    ];
    let directory = Directory::new(domain(), vec![ann], groups, Vec::new());
    let token = directory.token(&directory.user("ANN").unwrap().user.sid);
    for sid in [&inner, &outer, &Sid::administrators(), &Sid::everyone(), &Sid::authenticated_users()] {
        assert!(token.groups.contains(sid), "{sid}");
    }
    assert_eq!(token.privileges, Privileges::all());
    assert_eq!(token.primary_group, domain().child(513).unwrap());
}

#[test]
fn who_is_no_administrator_has_no_privileges() {
    let directory = Directory::new(domain(), vec![user("ann", 1000)], Vec::new(), Vec::new());
    let token = directory.token(&directory.user("ann").unwrap().user.sid);
    assert_eq!(token.privileges, Privileges::empty());
    assert!(!token.groups.contains(&Sid::administrators()));
}

#[test]
fn lsarpc_tells_of_each_group_the_privileges_that_its_members_have() {
    let names = [
        (Privileges::BACKUP, "SeBackupPrivilege"),
        (Privileges::RESTORE, "SeRestorePrivilege"),
        (Privileges::SECURITY, "SeSecurityPrivilege"),
        (Privileges::TAKE_OWNERSHIP, "SeTakeOwnershipPrivilege"),
    ];
    assert!(names.iter().fold(Privileges::all(), |rest, (privilege, _)| rest - *privilege).is_empty());
    for relative_id in 544..600 {
        let sid = Sid::new(5, &[32, relative_id]).unwrap();
        let ann = user("ann", 1000);
        let groups = vec![group("some", sid.clone(), &[&ann.user.sid])];
        let directory = Directory::new(domain(), vec![ann], groups, Vec::new());
        let token = directory.token(&domain().child(1000).unwrap());
        let told = smb::rpc::privileges_told_of(&sid);
        for (privilege, name) in names {
            assert_eq!(told.contains(&name), token.privileges.contains(privilege), "{sid}: {name}");
        }
    }
}

#[test]
fn a_group_granted_to_everyone_reaches_who_has_no_other_group() {
    let crew = domain().child(1001).unwrap();
    let groups = vec![group("crew", crew.clone(), &[&Sid::authenticated_users()])];
    let directory = Directory::new(domain(), vec![user("ann", 1000)], groups, Vec::new());
    assert!(directory.groups_of(&directory.user("ann").unwrap().user.sid).contains(&crew));
}

#[test]
fn names_and_sids_lead_to_each_other_whatever_the_case() {
    let groups = vec![group("Crew", domain().child(1001).unwrap(), &[])];
    let directory = Directory::new(domain(), vec![user("Ann", 1000)], groups, Vec::new());
    for (name, sid) in [
        ("aNN", domain().child(1000).unwrap()),
        ("crew", domain().child(1001).unwrap()),
        ("EVERYONE", Sid::everyone()),
        ("S-1-5-11", Sid::authenticated_users()),
    ] {
        assert_eq!(directory.sid_of(name), Some(sid), "{name}");
    }
    assert_eq!(directory.sid_of("nobody"), None);
    assert_eq!(directory.display_name(&domain().child(1000).unwrap()), "Ann");
    assert_eq!(directory.display_name(&Sid::everyone()), "Everyone");
    assert_eq!(directory.display_name(&domain().child(9).unwrap()), domain().child(9).unwrap().to_string());
}
