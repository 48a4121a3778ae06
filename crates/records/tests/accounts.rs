//! Accounts, shares and the key file, as the control plane uses them.

use records::accounts::{AccountError, Accounts, PasswordPolicy};
use records::api_tokens::{self, Role};
use records::seal::{SealError, SealKey};
use records::settings::ServerSettings;
use records::shares::{self, Share, ShareAccess};
use records::{Answer, BlockingState, MemoryState, Record, Request, Transaction, Typed};
use std::os::unix::fs::PermissionsExt;
use types::{Sid, VolumeId};

struct Fixture {
    directory: tempfile::TempDir,
    state: MemoryState,
    key: SealKey,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let key = SealKey::open_or_create(&directory.path().join("secret.key")).unwrap();
    let fixture = Fixture { directory, state: MemoryState::new(), key };
    fixture.accounts().create_builtin_groups().unwrap();
    fixture
}

impl Fixture {
    fn accounts(&self) -> Accounts<'_, MemoryState> {
        Accounts::new(&self.state, &self.key)
    }
}

#[test]
fn a_user_has_the_nt_hash_of_its_password_and_a_sid_of_the_servers_domain() {
    let fixture = fixture();
    let user = fixture.accounts().add_user("User", "", "Password", &[], 7).unwrap();
    let users = fixture.accounts().users().unwrap();
    // MS-NLMP 4.2.2.1.2: NTOWFv1("Password").
    let expected =
        [0xa4, 0xf4, 0x9c, 0x40, 0x65, 0x10, 0xbd, 0xca, 0xb6, 0x82, 0x4e, 0xe7, 0xc3, 0x0f, 0xd8, 0x52];
    assert_eq!(*users[0].nt_hash, expected);
    let domain = ServerSettings::open_or_create(&fixture.state).unwrap().value.domain_sid;
    assert_eq!(user.sid, domain.child(1000).unwrap());
    assert!(domain.to_string().starts_with("S-1-5-21-"));
}

#[test]
fn a_sid_is_never_given_twice() {
    let fixture = fixture();
    let first = fixture.accounts().add_user("ann", "", "secret", &[], 0).unwrap();
    fixture.accounts().delete_user("ANN").unwrap();
    let second = fixture.accounts().add_user("ann", "", "secret", &[], 0).unwrap();
    assert_ne!(first.sid, second.sid);
    assert_ne!(fixture.accounts().add_group("crew").unwrap().sid, second.sid);
}

#[test]
fn names_are_unique_whatever_their_case_among_users_and_groups() {
    let fixture = fixture();
    fixture.accounts().add_user("ann", "", "secret", &[], 0).unwrap();
    assert!(matches!(
        fixture.accounts().add_user("Ann", "", "secret", &[], 0),
        Err(AccountError::Exists { .. })
    ));
    assert!(matches!(fixture.accounts().add_group("ANN"), Err(AccountError::Exists { .. })));
    assert!(matches!(fixture.accounts().add_group("administrators"), Err(AccountError::Exists { .. })));
}

#[test]
fn bad_names_and_passwords_are_refused_and_nothing_is_changed() {
    let fixture = fixture();
    for name in ["", " ann", "a/b", "a\\b", "a:b", "ann\n", "everyone", "S-1-5-7", "ann.", &"x".repeat(65)] {
        assert!(fixture.accounts().add_user(name, "", "secret", &[], 0).is_err(), "{name:?}");
    }
    assert!(fixture.accounts().add_user("ann", "", "", &[], 0).is_err());
    assert!(fixture.accounts().add_user("ann", "", "secret", &["nobody".into()], 0).is_err());
    assert!(fixture.accounts().users().unwrap().is_empty());
    assert_eq!(ServerSettings::open_or_create(&fixture.state).unwrap().value.next_relative_id, 1000);
}

#[test]
fn a_deleted_user_is_gone_from_groups_and_shares() {
    let fixture = fixture();
    let accounts = fixture.accounts();
    let user = accounts.add_user("ann", "", "secret", &["Administrators".into()], 0).unwrap();
    let share =
        Share::new("demo", VolumeId::from_bytes([1; 16]), vec![(user.sid.clone(), ShareAccess::Full)]);
    shares::create(&fixture.state, &share).unwrap();
    assert!(accounts.groups().unwrap().iter().any(|group| group.members == [user.sid.clone()]));
    accounts.delete_user("ann").unwrap();
    assert!(accounts.groups().unwrap().iter().all(|group| group.members.is_empty()));
    assert!(shares::list(&fixture.state).unwrap()[0].access.is_empty());
}

#[test]
fn a_renamed_user_is_the_same_one_under_another_name() {
    let fixture = fixture();
    let accounts = fixture.accounts();
    let user = accounts.add_user("ann", "Ann", "Password", &["Administrators".into()], 7).unwrap();
    accounts.add_user("ben", "", "secret", &[], 0).unwrap();
    let hash = |name: &str| {
        let users = accounts.users().unwrap();
        users.into_iter().find(|one| one.user.name == name).map(|one| *one.nt_hash)
    };
    let before = hash("ann").unwrap();
    assert!(matches!(accounts.rename_user("ann", "Ben"), Err(AccountError::Exists { .. })));
    assert!(matches!(accounts.rename_user("ann", "users"), Err(AccountError::Exists { .. })));
    assert!(matches!(accounts.rename_user("ann", "a/b"), Err(AccountError::BadName { .. })));
    assert!(matches!(accounts.rename_user("eve", "adam"), Err(AccountError::NotFound { .. })));
    let renamed = accounts.rename_user("ANN", "ann.example").unwrap();
    assert_eq!(renamed, records::accounts::User { name: "ann.example".into(), ..user.clone() });
    assert_eq!((hash("ann"), hash("ann.example")), (None, Some(before)));
    assert_eq!(accounts.sid_of("ann.example").unwrap(), user.sid);
    assert!(accounts.groups().unwrap().iter().any(|group| group.members == [user.sid.clone()]));
    // Only its case changes: the record keeps its key.
    assert_eq!(accounts.rename_user("ann.example", "Ann.Example").unwrap().name, "Ann.Example");
    assert_eq!(accounts.users().unwrap().len(), 2);
    assert_ne!(accounts.add_user("ann", "", "secret", &[], 0).unwrap().sid, user.sid);
}

#[test]
fn new_passwords_are_judged_by_the_policy_and_old_ones_stay() {
    let fixture = fixture();
    fixture.accounts().add_user("ann", "", "short", &[], 0).unwrap();
    let accounts = fixture.accounts().with_policy(PasswordPolicy { characters_min: 8 });
    let why = |result: Result<(), AccountError>| match result {
        Err(AccountError::BadPassword(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(why(accounts.set_password("ann", "7777777", 1)).contains("7 characters"));
    assert!(why(accounts.set_password("ann", "", 1)).contains("empty"));
    assert!(why(accounts.set_password("ann", &"x".repeat(257), 1)).contains("longer than 256"));
    assert!(why(accounts.add_user("marie.anne", "", "Marie.Anne", &[], 1).map(|_| ())).contains("name"));
    assert_eq!(accounts.users().unwrap()[0].user.password_set_unix_s, 0);
    // Characters count, not bytes.
    accounts.set_password("ann", "größe äß", 1).unwrap();
    let generated = records::accounts::generated_password().unwrap();
    assert_eq!(generated.len(), records::accounts::GENERATED_PASSWORD_CHARS);
    accounts.set_password("ann", &generated, 1).unwrap();
}

#[test]
fn an_account_that_is_not_there_may_be_either_kind() {
    let fixture = fixture();
    let error = fixture.accounts().sid_of("nope").unwrap_err().to_string();
    assert!(error.contains("no user or group 'nope'"), "{error}");
}

#[test]
fn groups_hold_groups_but_never_themselves() {
    let fixture = fixture();
    let accounts = fixture.accounts();
    for name in ["inner", "outer"] {
        accounts.add_group(name).unwrap();
    }
    accounts.set_members("outer", &["inner".into()], &[]).unwrap();
    assert!(matches!(accounts.set_members("inner", &["outer".into()], &[]), Err(AccountError::Invalid(_))));
    accounts.set_members("outer", &[], &["inner".into()]).unwrap();
    accounts.set_members("inner", &["outer".into()], &[]).unwrap();
}

#[test]
fn windows_own_groups_have_their_sids_and_stay() {
    let fixture = fixture();
    assert_eq!(fixture.accounts().sid_of("administrators").unwrap(), Sid::administrators());
    assert!(matches!(fixture.accounts().delete_group("Users"), Err(AccountError::Builtin(_))));
}

#[test]
fn a_hash_does_not_lie_in_the_state_in_the_clear_and_needs_the_key_it_was_sealed_with() {
    let fixture = fixture();
    fixture.accounts().add_user("ann", "", "Password", &[], 0).unwrap();
    let stored = fixture.state.call(Request::Get { key: "user/ann".into() }).unwrap();
    let text = match stored {
        records::Answer::Value(Some(found)) => String::from_utf8(found.value).unwrap(),
        other => panic!("{other:?}"),
    };
    assert!(!text.contains("a4f49c406510bdcab6824ee7c30fd852"), "{text}");
    let other = SealKey::open_or_create(&fixture.directory.path().join("other.key")).unwrap();
    assert!(matches!(
        Accounts::new(&fixture.state, &other).users(),
        Err(AccountError::Seal(SealError::DoesNotOpen { .. }))
    ));
}

#[test]
fn a_sealed_value_opens_only_for_whom_it_was_sealed() {
    let fixture = fixture();
    let sealed = fixture.key.seal("user A", b"secret").unwrap();
    assert_eq!(fixture.key.open("user A", &sealed).unwrap().as_slice(), b"secret");
    assert!(fixture.key.open("user B", &sealed).is_err());
    assert!(fixture.key.open("user A", &sealed[2..]).is_err());
    assert!(fixture.key.open("user A", "é").is_err());
    assert!(fixture.key.open("user A", "").is_err());
}

#[test]
fn a_key_file_is_private_kept_and_refused_when_others_can_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret.key");
    let first = SealKey::open_or_create(&path).unwrap();
    let sealed = first.seal("x", b"secret").unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(SealKey::open_or_create(&path).unwrap().open("x", &sealed).is_ok());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(SealKey::open_or_create(&path), Err(SealError::TooOpen { mode: 0o640, .. })));
    // A credential's list of readers shows as the group's bits.
    assert!(SealKey::open_credential(&path).unwrap().open("x", &sealed).is_ok());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    assert!(matches!(SealKey::open_credential(&path), Err(SealError::TooOpen { mode: 0o444, .. })));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, b"short").unwrap();
    assert!(matches!(SealKey::open_or_create(&path), Err(SealError::WrongSize { .. })));
}

#[test]
fn a_share_has_a_valid_unique_name_and_a_path_inside_its_volume() {
    let state = MemoryState::new();
    let share = |name: &str, path: &str| Share {
        path: path.into(),
        ..Share::new(name, VolumeId::from_bytes([1; 16]), Vec::new())
    };
    shares::create(&state, &share("demo", "")).unwrap();
    shares::create(&state, &share("deep", r"one\two")).unwrap();
    assert!(matches!(shares::create(&state, &share("DEMO", "")), Err(AccountError::Exists { .. })));
    for name in ["", "IPC$", "a/b", "a\\b", &"x".repeat(81), "pipe"] {
        assert!(shares::create(&state, &share(name, "")).is_err(), "{name:?}");
    }
    for path in ["..", r"a\..\b", r"\a", r"a\\b", "a/b", "a:b"] {
        assert!(shares::create(&state, &share("other", path)).is_err(), "{path:?}");
    }
    assert_eq!(shares::list(&state).unwrap().len(), 2);
}

#[test]
fn share_access_is_the_sum_over_ones_sids() {
    let share = Share::new(
        "demo",
        VolumeId::from_bytes([1; 16]),
        vec![(Sid::everyone(), ShareAccess::Read), (Sid::administrators(), ShareAccess::Full)],
    );
    assert_eq!(share.access_of([&Sid::everyone()]), ShareAccess::Read.mask());
    assert_eq!(share.access_of([&Sid::everyone(), &Sid::administrators()]), ShareAccess::Full.mask());
    assert_eq!(share.access_of([&Sid::guests()]), 0);
}

/// Writes a record that an older build has let in.
fn write_as_before(state: &MemoryState, record: &impl Record) {
    let transaction = Transaction::default().when(record.key(), 0);
    state.commit(transaction.put(record.key(), record.encode())).unwrap();
}

#[test]
fn names_that_nobody_can_read_are_refused_and_those_that_are_there_can_be_changed_and_deleted() {
    let fixture = fixture();
    let (state, accounts) = (&fixture.state, fixture.accounts());
    let (hidden, turned) = ("a\u{200B}nn", "txt\u{202E}exe");
    let share = |name: &str| Share::new(name, VolumeId::from_bytes([1; 16]), Vec::new());
    for name in [hidden, turned, "\u{200B}", "..", "."] {
        let refused = |result: Result<(), AccountError>| {
            assert!(matches!(result, Err(AccountError::BadName(_))), "{name:?}: {result:?}");
        };
        refused(accounts.add_user(name, "", "secret", &[], 0).map(|_| ()));
        refused(accounts.add_group(name).map(|_| ()));
        refused(api_tokens::create(state, name, Role::Reader, None, 5).map(|_| ()));
        refused(shares::create(state, &share(name)));
    }
    let ann = accounts.add_user("ann", "", "secret", &[], 0).unwrap();
    assert!(
        accounts.rename_user("ann", hidden).is_err()
            && accounts.add_user("ben", turned, "x", &[], 0).is_err()
    );
    assert!(accounts.set_user("ann", None, Some(turned)).is_err());
    assert!(shares::create(state, &Share { comment: turned.into(), ..share("demo") }).is_err());

    for name in [hidden, turned, ".."] {
        write_as_before(state, &Share { comment: turned.into(), ..share(name) });
        let close = |share: &mut Share| {
            share.read_only = true;
            Ok(())
        };
        shares::set(state, name, close).unwrap();
        assert!(shares::list(state).unwrap().iter().any(|share| share.name == name && share.read_only));
        shares::delete(state, name).unwrap();
    }
    let (token, _) = api_tokens::create(state, "api", Role::Reader, None, 5).unwrap();
    write_as_before(state, &api_tokens::ApiToken { name: hidden.into(), ..token });
    api_tokens::delete(state, hidden).unwrap();
    let ann_record = state.call(Request::Get { key: "user/ann".into() }).unwrap();
    let Answer::Value(Some(found)) = ann_record else { panic!("{ann_record:?}") };
    let record = String::from_utf8(found.value).unwrap().replace("\"ann\"", &format!("\"{hidden}\""));
    let moved = Transaction::default().delete("user/ann").put(format!("user/{hidden}"), record.into_bytes());
    state.commit(moved).unwrap();
    accounts.set_password(hidden, "secret", 1).unwrap();
    assert_eq!(accounts.rename_user(hidden, "ann").unwrap().sid, ann.sid);
    accounts.delete_user("ann").unwrap();
}
