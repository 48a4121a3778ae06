//! Changes of accounts and shares of connected clients: each change, and everything that may be open or
//! waiting at that moment.

use crate::fixture::*;
use smb::wire::*;
use smb_server::{Account, Directory, Share};
use std::sync::Arc;
use types::{NtStatus, Sid, VolumeId};
use volume::backend::{AccessToken, Durability, Operation, Privileges};
use volume::security::rights;

const DURABLE: [u8; 16] = [0; 16];

fn group() -> Sid {
    Sid::new(5, &[21, 1, 2, 3, 2000]).unwrap()
}

/// Returns the account with which all of these tests begin: the user is in a group and has a privilege.
fn account() -> Account {
    let before = People::default().account("", "user").unwrap();
    let token = AccessToken {
        groups: vec![Sid::everyone(), group()],
        privileges: Privileges::BACKUP,
        ..AccessToken::clone(&before.token)
    };
    Account { token: Arc::new(token), ..before }
}

fn share() -> Share {
    Share::clone(&People::default().share("share").unwrap())
}

fn set(world: &mut World, account: Option<Account>, share: Option<Share>) {
    world.people.0.borrow_mut().account = Some(account);
    world.people.0.borrow_mut().shares.insert("share".into(), share);
    world.server.directory_changed(world.now);
    world.run_until_idle();
}

fn create(
    client: &mut Client,
    world: &mut World,
    name: &str,
    disposition: u32,
    oplock: u8,
    contexts: &[u8],
) -> Option<Vec<u8>> {
    let message = client.build(Command::Create, |out| {
        let body = CreateRequestBody {
            requested_oplock_level: oplock,
            impersonation_level: 2.into(),
            desired_access: 0x001F_01FF.into(),
            share_access: 7.into(),
            create_disposition: disposition.into(),
            ..Default::default()
        };
        write_create_request(out, body, &wide_from_str(name), contexts);
    });
    client.send(world, message);
    client.receive(world)
}

fn open(client: &mut Client, world: &mut World, name: &str, oplock: u8, contexts: &[u8]) -> FileId {
    let answer = create(client, world, name, FILE_OPEN_IF, oplock, contexts).expect("an answer");
    assert_eq!(status(&answer), NtStatus::SUCCESS, "{name}");
    CreateResponse::parse(&answer).unwrap().file_id
}

fn write(client: &mut Client, world: &mut World, file: FileId) -> Option<NtStatus> {
    let message = client.build(Command::Write, Client::write_body(file, b"new"));
    let id = client.message_id - 1;
    client.send(world, message);
    // Answers to waiting requests come first.
    while let Some(answer) = client.receive(world) {
        if Header::parse(&answer).unwrap().message_id.get() == id {
            return Some(status(&answer));
        }
    }
    None
}

fn connected(world: &mut World, guid: u8, share: &str) -> Client {
    let mut client = Client::new(world);
    client.guid = [guid; 16];
    client.negotiate(world, &Wishes::default());
    assert_eq!(client.log_on(world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(client.tree_connect(world, share), NtStatus::SUCCESS);
    client
}

fn reconnect(client: &mut Client, world: &mut World, name: &str, file: FileId) -> NtStatus {
    let mut contexts = CreateContextWriter::default();
    contexts.push_struct(CONTEXT_DURABLE_RECONNECT, &file);
    let answer = create(client, world, name, FILE_OPEN, OPLOCK_LEVEL_BATCH, &contexts.finish());
    status(&answer.expect("an answer"))
}

fn durable(client: &mut Client, world: &mut World, name: &str) -> FileId {
    let mut contexts = CreateContextWriter::default();
    contexts.push(CONTEXT_DURABLE_REQUEST, &DURABLE);
    open(client, world, name, OPLOCK_LEVEL_BATCH, &contexts.finish())
}

/// Something of every kind: open, away, waiting.
struct Everything {
    world: World,
    /// Has files open, and a lock and a CHANGE_NOTIFY waiting.
    busy: Client,
    plain: FileId,
    /// Waits with a CREATE that would empty `held`.
    waiting: Client,
    away: FileId,
}

impl Everything {
    fn set_up() -> Self {
        Self::under(share())
    }

    fn under(share: Share) -> Self {
        let mut world = World::over_volume();
        set(&mut world, Some(account()), Some(share));
        let mut busy = connected(&mut world, 5, "share");
        let plain = open(&mut busy, &mut world, "plain", OPLOCK_LEVEL_NONE, &[]);
        let second = open(&mut busy, &mut world, "plain", OPLOCK_LEVEL_NONE, &[]);
        for (file, pends) in [(plain, false), (second, true)] {
            let answer = busy.call(&mut world, Command::Lock, |out| {
                let element = LockElement { length: 10.into(), flags: 2.into(), ..Default::default() };
                let element = LockElement { offset: 100.into(), ..element };
                write_lock_request(out, LockRequestBody { file_id: file, ..Default::default() }, &[element]);
            });
            let expected = if pends { NtStatus::PENDING } else { NtStatus::SUCCESS };
            assert_eq!(status(&answer), expected);
        }
        let root = open_directory(&mut busy, &mut world);
        let answer = busy.call(&mut world, Command::ChangeNotify, |out| {
            out.put(&ChangeNotifyRequestBody {
                output_buffer_length: 1000.into(),
                file_id: root,
                // FILE_NOTIFY_CHANGE_EA: of which nothing here makes one.
                completion_filter: 0x80.into(),
                ..Default::default()
            });
        });
        assert_eq!(status(&answer), NtStatus::PENDING);
        let mut gone = connected(&mut world, 6, "share");
        let away = durable(&mut gone, &mut world, "away");
        world.server.connection_closed(gone.connection, world.now);
        world.run_until_idle();
        let held = open(&mut busy, &mut world, "held", OPLOCK_LEVEL_BATCH, &[]);
        assert_eq!(write(&mut busy, &mut world, held), Some(NtStatus::SUCCESS));
        let mut waiting = connected(&mut world, 7, "share");
        let answer = create(&mut waiting, &mut world, "held", FILE_OVERWRITE_IF, OPLOCK_LEVEL_NONE, &[]);
        assert_eq!(status(&answer.unwrap()), NtStatus::PENDING);
        assert_eq!(status(&busy.receive(&mut world).unwrap()), NtStatus::SUCCESS, "the break");
        assert_eq!((world.opens_in_volume(), world.server.requests_in_work()), (5, 3));
        Self { world, busy, plain, waiting, away }
    }

    /// Checks that everything meant to end has ended. After undoing the change, opens of disconnected
    /// clients do not return, and nothing was changed.
    fn expect_nothing_left(mut self, what: &str) {
        let world = &mut self.world;
        assert_eq!(world.opens_in_volume(), 0, "{what}");
        assert_eq!((world.server.gauges().opens, world.server.requests_in_work()), (0, 0), "{what}");
        let refused = write(&mut self.busy, world, self.plain);
        assert!(refused.is_none_or(|status| status.is_error()), "{what}: {refused:?}");
        while let Some(answer) = self.waiting.receive(world) {
            assert!(status(&answer).is_error(), "{what}");
        }
        set(world, Some(account()), Some(share()));
        let mut again = connected(world, 6, "share");
        assert_eq!(
            reconnect(&mut again, world, "away", self.away),
            NtStatus::OBJECT_NAME_NOT_FOUND,
            "{what}"
        );
        let answer = create(&mut again, world, "held", FILE_OPEN, OPLOCK_LEVEL_NONE, &[]).unwrap();
        assert_eq!(CreateResponse::parse(&answer).unwrap().end_of_file.get(), 3, "{what}: held is emptied");
    }

    /// Nobody noticed anything.
    fn expect_all_there(mut self, what: &str) {
        let world = &mut self.world;
        assert_eq!((world.opens_in_volume(), world.server.requests_in_work()), (5, 3), "{what}");
        assert_eq!(write(&mut self.busy, world, self.plain), Some(NtStatus::SUCCESS), "{what}");
        let mut again = connected(world, 6, "share");
        assert_eq!(reconnect(&mut again, world, "away", self.away), NtStatus::SUCCESS, "{what}");
    }
}

fn open_directory(client: &mut Client, world: &mut World) -> FileId {
    let answer = client.call(world, Command::Create, |out| {
        let body = CreateRequestBody {
            impersonation_level: 2.into(),
            desired_access: rights::FILE_GENERIC_READ.into(),
            share_access: 7.into(),
            create_disposition: FILE_OPEN.into(),
            create_options: 1.into(),
            ..Default::default()
        };
        write_create_request(out, body, &[], &[]);
    });
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    CreateResponse::parse(&answer).unwrap().file_id
}

#[test]
fn what_a_share_takes_away_ends_its_trees_with_all_that_was_opened_or_waits() {
    type Change = fn(&mut Share);
    let changes: [(&str, Change); 7] = [
        ("read-only", |share| share.options.read_only = true),
        ("encryption", |share| share.encrypt = true),
        ("no caching", |share| share.options.no_caching = true),
        ("another directory", |share| share.path = "elsewhere".into()),
        ("another volume", |share| share.volume = VolumeId::from_bytes([8; 16])),
        ("less granted", |share| share.access = vec![(Sid::everyone(), rights::FILE_MODIFY)]),
        ("nothing granted", |share| share.access.clear()),
    ];
    for (what, change) in changes {
        let mut everything = Everything::set_up();
        let mut changed = share();
        change(&mut changed);
        set(&mut everything.world, Some(account()), Some(changed));
        let answer = write(&mut everything.busy, &mut everything.world, everything.plain);
        assert_eq!(answer, Some(NtStatus::NETWORK_NAME_DELETED), "{what}: the session goes on");
        everything.expect_nothing_left(what);
    }
    let mut everything = Everything::set_up();
    set(&mut everything.world, Some(account()), None);
    everything.expect_nothing_left("deleted");
}

#[test]
fn what_an_account_loses_ends_its_sessions_with_all_that_was_opened_or_waits() {
    let with_token = |change: fn(&mut AccessToken)| {
        let before = account();
        let mut token = AccessToken::clone(&before.token);
        change(&mut token);
        Some(Account { token: Arc::new(token), ..before })
    };
    let changes = [
        ("deleted", None),
        ("disabled", Some(Account { enabled: false, ..account() })),
        ("another password", Some(Account { nt_hash: [7; 16], ..account() })),
        ("fewer groups", with_token(|token| token.groups.retain(|sid| *sid != group()))),
        ("fewer privileges", with_token(|token| token.privileges = Privileges::empty())),
        ("another user", with_token(|token| token.user = Sid::new(5, &[21, 1, 2, 3, 1999]).unwrap())),
    ];
    for (what, changed) in changes {
        let mut everything = Everything::set_up();
        set(&mut everything.world, changed, Some(share()));
        assert_eq!(everything.world.server.gauges().sessions, 0, "{what}");
        everything.expect_nothing_left(what);
    }
}

#[test]
fn what_is_given_or_binds_the_server_alone_ends_nothing() {
    type Change = fn(&mut Share);
    let changes: [(&str, Change); 6] = [
        ("comment", |share| share.comment = "new".into()),
        ("durability", |share| share.options.durability = Durability::Write),
        ("less durability", |share| share.options.durability = Durability::Flush),
        ("enumeration", |share| share.options.access_based_enumeration = true),
        ("availability", |share| share.options.continuously_available = true),
        ("another's grant", |share| share.access.push((group(), rights::FILE_ALL))),
    ];
    for (what, change) in changes {
        let mut everything = Everything::set_up();
        let mut changed = share();
        change(&mut changed);
        set(&mut everything.world, Some(account()), Some(changed));
        everything.expect_all_there(what);
    }
    let mut everything = Everything::set_up();
    let mut more = account();
    let mut token = AccessToken::clone(&more.token);
    token.groups.push(Sid::administrators());
    token.privileges = Privileges::all();
    more.token = Arc::new(token);
    set(&mut everything.world, Some(more), Some(share()));
    everything.expect_all_there("more groups and privileges");
}

#[test]
fn what_is_given_is_there_with_the_next_request_of_the_same_tree() {
    let mut world = World::over_volume();
    let mut narrow = share();
    narrow.options.read_only = true;
    narrow.options.no_caching = true;
    narrow.access = vec![(group(), rights::FILE_ALL)];
    let mut poor = account();
    poor.token = Arc::new(AccessToken { groups: vec![Sid::everyone()], ..AccessToken::clone(&poor.token) });
    narrow.access.push((Sid::everyone(), rights::FILE_GENERIC_READ));
    set(&mut world, Some(poor.clone()), Some(narrow.clone()));
    let mut client = connected(&mut world, 5, "share");
    let refused = |client: &mut Client, world: &mut World| {
        let answer = create(client, world, "file", FILE_OPEN_IF, OPLOCK_LEVEL_BATCH, &[]).unwrap();
        assert_eq!(status(&answer), NtStatus::ACCESS_DENIED);
    };
    refused(&mut client, &mut world);
    narrow.options.read_only = false;
    set(&mut world, Some(poor), Some(narrow.clone()));
    refused(&mut client, &mut world);
    set(&mut world, Some(account()), Some(narrow.clone()));
    let oplock = |client: &mut Client, world: &mut World| {
        let answer = create(client, world, "file", FILE_OPEN_IF, OPLOCK_LEVEL_BATCH, &[]).unwrap();
        assert_eq!(status(&answer), NtStatus::SUCCESS);
        let opened = CreateResponse::parse(&answer).unwrap();
        client.call(world, Command::Close, Client::close_body(opened.file_id));
        opened.oplock_level
    };
    assert_eq!(oplock(&mut client, &mut world), OPLOCK_LEVEL_NONE);
    narrow.options.no_caching = false;
    set(&mut world, Some(account()), Some(narrow));
    assert_eq!(oplock(&mut client, &mut world), OPLOCK_LEVEL_BATCH);
}

#[test]
fn options_that_bind_the_server_reach_what_is_open() {
    let mut world = World::over_volume();
    set(&mut world, Some(account()), Some(share()));
    let mut client = connected(&mut world, 5, "share");
    let file = open(&mut client, &mut world, "hidden", OPLOCK_LEVEL_NONE, &[]);
    let names = |client: &mut Client, world: &mut World, directory: FileId| {
        let answer = client.call(world, Command::QueryDirectory, |out| {
            let body = QueryDirectoryRequestBody {
                file_information_class: class::NAMES,
                flags: QUERY_DIRECTORY_RESTART_SCANS,
                file_id: directory,
                output_buffer_length: 4096.into(),
                ..Default::default()
            };
            write_query_directory_request(out, body, &wide_from_str("h*"));
        });
        status(&answer)
    };
    let directory = open_directory(&mut client, &mut world);
    assert_eq!(names(&mut client, &mut world, directory), NtStatus::SUCCESS);
    // Nobody may read it: a DACL without entries.
    let mut descriptor = vec![0; 20];
    descriptor[0] = 1;
    descriptor[2..4].copy_from_slice(&0x8004_u16.to_le_bytes());
    descriptor[16..20].copy_from_slice(&20_u32.to_le_bytes());
    descriptor.extend_from_slice(&[2, 0, 8, 0, 0, 0, 0, 0]);
    let answer = client.call(&mut world, Command::SetInfo, |out| {
        let body = SetInfoRequestBody {
            info_type: INFO_SECURITY,
            file_id: file,
            additional_information: 4.into(),
            ..Default::default()
        };
        write_set_info_request(out, body, &descriptor);
    });
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    assert_eq!(names(&mut client, &mut world, directory), NtStatus::SUCCESS);
    let mut changed = share();
    changed.options.access_based_enumeration = true;
    set(&mut world, Some(account()), Some(changed));
    assert_eq!(names(&mut client, &mut world, directory), NtStatus::NO_MORE_FILES);
}

#[test]
fn a_create_asked_for_after_a_change_carries_the_new_terms() {
    let mut world = World::new();
    set(&mut world, Some(account()), Some(share()));
    let mut client = connected(&mut world, 5, "share");
    let mut changed = share();
    changed.options.durability = Durability::Write;
    changed.options.continuously_available = true;
    set(&mut world, Some(account()), Some(changed.clone()));
    client.create(&mut world, "file");
    let layer = world.layer.0.borrow();
    let (_, Operation::Create(asked)) = layer.asked.last().unwrap() else { panic!("no CREATE") };
    assert_eq!(asked.caller.share, changed.options);
}

#[test]
fn an_encrypted_share_made_plain_takes_plain_requests_on_the_same_tree() {
    let mut world = World::over_volume();
    let mut secret = share();
    secret.encrypt = true;
    set(&mut world, Some(account()), Some(secret));
    let mut client = connected(&mut world, 5, "share");
    client.seal = true;
    let file = open(&mut client, &mut world, "file", OPLOCK_LEVEL_NONE, &[]);
    client.seal = false;
    assert_eq!(write(&mut client, &mut world, file), Some(NtStatus::ACCESS_DENIED));
    set(&mut world, Some(account()), Some(share()));
    assert_eq!(write(&mut client, &mut world, file), Some(NtStatus::SUCCESS));
}

#[test]
fn a_share_narrowed_twice_ends_what_was_opened_in_between() {
    let mut everything = Everything::set_up();
    let mut changed = share();
    changed.options.durability = Durability::Write;
    set(&mut everything.world, Some(account()), Some(changed.clone()));
    changed.options.read_only = true;
    set(&mut everything.world, Some(account()), Some(changed));
    everything.expect_nothing_left("read-only in two steps");
}

#[test]
fn a_durable_open_is_taken_up_again_through_its_own_share_only() {
    let mut world = World::over_volume();
    let mut first = connected(&mut world, 6, "share");
    let file = durable(&mut first, &mut world, "file");
    world.server.connection_closed(first.connection, world.now);
    world.run_until_idle();
    for other in ["read-only", "read", "change", "full"] {
        let mut client = connected(&mut world, 6, other);
        assert_eq!(
            reconnect(&mut client, &mut world, "file", file),
            NtStatus::OBJECT_NAME_NOT_FOUND,
            "{other}"
        );
    }
    let mut client = connected(&mut world, 6, "share");
    assert_eq!(reconnect(&mut client, &mut world, "file", file), NtStatus::SUCCESS);
}

#[test]
fn trees_of_a_session_that_logs_on_as_somebody_with_less_end() {
    let mut world = World::over_volume();
    let mut mine = share();
    mine.access = vec![(account().token.user.clone(), rights::FILE_ALL)];
    set(&mut world, Some(account()), Some(mine));
    let mut client = connected(&mut world, 5, "share");
    let file = open(&mut client, &mut world, "file", OPLOCK_LEVEL_NONE, &[]);
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(write(&mut client, &mut world, file), Some(NtStatus::SUCCESS));
    client.user = "second".to_owned();
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(write(&mut client, &mut world, file), Some(NtStatus::NETWORK_NAME_DELETED));
    assert_eq!(world.opens_in_volume(), 0);
}

/// Returns the answer to a TREE_CONNECT during which the share or account changes, while the volume
/// looks up the root.
fn tree_connect_meanwhile(account: Option<Account>, share: Option<Share>) -> Option<Vec<u8>> {
    let mut world = World::new();
    set(&mut world, Some(self::account()), Some(self::share()));
    let mut client = Client::new(&mut world);
    client.negotiate(&mut world, &Wishes::default());
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    world.layer.0.borrow_mut().hold = true;
    client.sign = true;
    let path = wide_from_str(r"\\server\share");
    let message = client.build(Command::TreeConnect, |out| write_tree_connect_request(out, 0, &path));
    client.send(&mut world, message);
    assert!(client.receive(&mut world).is_none());
    set(&mut world, account, share);
    world.layer.release(0);
    world.run_until_idle();
    client.receive(&mut world)
}

#[test]
fn a_tree_connect_that_waits_ends_with_the_rights_of_its_end() {
    let changed = |change: fn(&mut Share)| {
        let mut changed = share();
        change(&mut changed);
        Some(changed)
    };
    let granted = |answer: Option<Vec<u8>>| {
        let answer = answer.expect("an answer");
        assert_eq!(status(&answer), NtStatus::SUCCESS);
        let response = TreeConnectResponse::parse(&answer).unwrap();
        (response.maximal_access.get(), response.share_flags.get() & ShareFlags::ENCRYPT_DATA.bits() != 0)
    };
    let refused = |answer: Option<Vec<u8>>| status(&answer.expect("an answer"));
    assert_eq!(granted(tree_connect_meanwhile(Some(account()), Some(share()))), (rights::FILE_ALL, false));
    let read_only = changed(|share| share.options.read_only = true);
    let reads = rights::FILE_GENERIC_READ | rights::FILE_GENERIC_EXECUTE;
    assert_eq!(granted(tree_connect_meanwhile(Some(account()), read_only)), (reads, false));
    let encrypted = changed(|share| share.encrypt = true);
    assert_eq!(granted(tree_connect_meanwhile(Some(account()), encrypted)), (rights::FILE_ALL, true));
    let nobodys = changed(|share| share.access.clear());
    assert_eq!(refused(tree_connect_meanwhile(Some(account()), nobodys)), NtStatus::ACCESS_DENIED);
    let elsewhere = changed(|share| share.path = "elsewhere".into());
    assert_eq!(refused(tree_connect_meanwhile(Some(account()), elsewhere)), NtStatus::BAD_NETWORK_NAME);
    assert_eq!(refused(tree_connect_meanwhile(Some(account()), None)), NtStatus::BAD_NETWORK_NAME);
    let disabled = Some(Account { enabled: false, ..account() });
    let answer = tree_connect_meanwhile(disabled, Some(share()));
    assert!(answer.is_none_or(|answer| status(&answer).is_error()));
}

#[test]
fn a_create_that_is_past_waiting_when_its_tree_ends_leaves_no_open() {
    let mut world = World::new();
    set(&mut world, Some(account()), Some(share()));
    let mut client = connected(&mut world, 5, "share");
    world.layer.0.borrow_mut().hold = true;
    assert!(create(&mut client, &mut world, "file", FILE_OPEN_IF, OPLOCK_LEVEL_NONE, &[]).is_none());
    let mut narrow = share();
    narrow.options.read_only = true;
    set(&mut world, Some(account()), Some(narrow));
    world.layer.release(0);
    world.run_until_idle();
    assert!(status(&client.receive(&mut world).unwrap()).is_error());
    let layer = world.layer.0.borrow();
    assert!(matches!(layer.asked.last(), Some((_, Operation::Close { .. }))), "the open is closed again");
    assert_eq!(world.server.gauges().opens, 0);
}

#[test]
fn who_could_only_read_goes_on_when_the_share_becomes_read_only() {
    let mut world = World::over_volume();
    let mut reads = share();
    reads.access = vec![(Sid::everyone(), rights::FILE_GENERIC_READ)];
    set(&mut world, Some(account()), Some(reads.clone()));
    let mut client = connected(&mut world, 5, "share");
    let root = open_directory(&mut client, &mut world);
    reads.options.read_only = true;
    set(&mut world, Some(account()), Some(reads));
    let answer = client.call(&mut world, Command::Close, Client::close_body(root));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
}

#[test]
fn a_continuously_available_share_says_so_to_clients_that_know_what_it_means() {
    let continuous = ShareCapabilities::CONTINUOUS_AVAILABILITY | ShareCapabilities::CLUSTER;
    let scale_out = continuous | ShareCapabilities::SCALEOUT;
    let cases = [
        (0x0311, false, continuous),
        (0x0311, true, scale_out | ShareCapabilities::ASYMMETRIC),
        (0x0300, true, scale_out),
        (0x0210, true, ShareCapabilities::empty()),
    ];
    for (dialect, is_scale_out, expected) in cases {
        let mut world = World::over_volume();
        let mut changed = share();
        changed.options.continuously_available = true;
        changed.options.scale_out = is_scale_out;
        set(&mut world, Some(account()), Some(changed));
        let mut client = Client::new(&mut world);
        let wishes = Wishes { dialects: vec![dialect], ..Wishes::default() };
        let answer = client.negotiate(&mut world, &wishes);
        let capabilities = NegotiateResponse::parse(&answer).unwrap().capabilities.get();
        let knows = capabilities & Capabilities::PERSISTENT_HANDLES.bits() != 0;
        assert_eq!(knows, dialect >= 0x0300, "{dialect:x}");
        assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
        client.sign = true;
        let path = wide_from_str(r"\\server\share");
        let connect = |out: &mut Vec<u8>| write_tree_connect_request(out, 0, &path);
        let answer = client.call(&mut world, Command::TreeConnect, connect);
        assert_eq!(status(&answer), NtStatus::SUCCESS);
        let capabilities = TreeConnectResponse::parse(&answer).unwrap().capabilities.get();
        assert_eq!(capabilities, expected.bits(), "{dialect:x}");
    }
}

#[test]
fn nobody_logs_on_anew_by_accounts_that_are_known_to_be_old_and_who_is_logged_on_goes_on() {
    let mut world = World::new();
    let mut before = Client::from(&mut world, "10.0.0.7");
    assert_eq!(before.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    world.people.0.borrow_mut().is_behind = true;
    // As often as it takes to be throttled, if these were guesses.
    for _ in 0..12 {
        let mut anew = Client::from(&mut world, "10.0.0.7");
        assert_eq!(anew.log_on(&mut world, PASSWORD), NtStatus::PENDING);
        assert_eq!(anew.wait_for_status(&mut world).1, NtStatus::NO_LOGON_SERVERS);
    }
    assert_eq!(before.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    world.people.0.borrow_mut().is_behind = false;
    let mut again = Client::from(&mut world, "10.0.0.7");
    assert_eq!(again.log_on(&mut world, PASSWORD), NtStatus::SUCCESS, "a refused logon is no guess");
}
