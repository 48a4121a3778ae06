//! Persistent opens in odd moments: answers that reach nobody, volumes that take no changes,
//! interrupted creates, shares that promise something else.

use super::*;
use crate::fs::FileId;
use crate::service::open::LinkName;
use crate::service::tasks::Attempt;

/// File for whose opens interrupted creates wait here, so that they continue only when woken.
const NEVER_OPEN: FileId = FileId(u64::MAX);
const SECOND: Duration = Duration::from_secs(1);

fn existing(path: &str) -> Create {
    Create { disposition: Disposition::Open, ..open_if(2, path) }
}

#[test]
fn an_open_whose_client_was_not_told_that_it_has_it_again_waits_for_it_anew() {
    let (_disk, mut bench) = started();
    let open = bench.create(persistent("file", 1)).expect("made").open;
    bench.call(Operation::EndSession { session: SessionId(1) }).expect("ended");
    bench.pass(MINUTE / 2);
    bench.reconnect(back(open, "file", 1)).expect("it is there");
    let abandon = |session| Operation::Abandon(open, SessionId(session));
    bench.call(abandon(1)).expect("another session's");
    bench.write(open, 0, b"mine").expect("it has a session");
    bench.call(abandon(101)).expect("nobody was told");
    bench.pass(MINUTE * 3 / 4);
    let again = Reconnect { caller: continuous(102, 1), ..back(open, "file", 1) };
    bench.reconnect(again).expect("its time began anew");
    bench.call(abandon(101)).expect("it is another session's by now");
    bench.write(open, 0, b"mine").expect("it has a session");
    let plain = bench.create(Create { caller: continuous(1, 1), ..open_if(1, "other") }).expect("made").open;
    bench.call(Operation::Abandon(plain, SessionId(1))).expect("nobody was told");
    assert_eq!(bench.service.open_count(), 1, "what cannot be taken up again is closed");
}

#[test]
fn what_a_lease_is_said_to_allow_is_durable_whoever_is_told() {
    for durability in [Durability::Flush, Durability::Write] {
        let (disk, mut bench) = started();
        let open = bench.create(leased("file", 1, R)).expect("made").open;
        let mut plain = Create { durable: None, disposition: Disposition::Open, ..leased("file", 1, RWH) };
        plain.caller.share = ShareOptions { durability, ..ShareOptions::default() };
        disk.closed.set(true);
        let later = bench.create_later(plain.clone());
        let another = bench.create_later(plain);
        for operation in [later, another] {
            assert!(bench.answer(operation).is_none(), "a start now would take the lease back");
        }
        disk.closed.set(false);
        for operation in [later, another] {
            let Some(Ok(Reply::Created(created))) = bench.answer(operation) else { panic!("no answer") };
            assert_eq!(lease_state(&created), RWH);
        }
        let found = disk.cut().reconnect(back_leased(open, "file", 1)).expect("it is there");
        assert_eq!(lease_state(&found), RWH);
    }
}

#[test]
fn on_a_volume_that_takes_no_changes_a_lease_gets_no_more_than_is_recorded() {
    let (disk, mut bench) = started();
    let open = bench.create(leased("file", 1, R)).expect("made").open;
    bench.service.file_system_mut().set_read_only(true);
    let plain = Create { durable: None, disposition: Disposition::Open, ..leased("file", 1, RWH) };
    assert_eq!(lease_state(&bench.create(plain).expect("reading goes on")), R);
    let found = disk.cut().reconnect(back_leased(open, "file", 1)).expect("it is there");
    assert_eq!(lease_state(&found), R);
}

#[test]
fn an_open_whose_time_ends_on_a_volume_that_takes_no_changes_is_closed_when_it_does() {
    let (disk, mut bench) = started();
    let open = bench.create(Create { share_access: 0, ..leased("file", 1, RWH) }).expect("made").open;
    bench.write(open, 0, b"0123456789").expect("written");
    bench.lock(open, 0, None).expect("locked");
    bench.call(Operation::EndSession { session: SessionId(1) }).expect("ended");
    bench.service.file_system_mut().set_read_only(true);
    bench.pass(MINUTE + SECOND);
    assert_eq!(bench.service.open_count(), 1);
    let late = bench.reconnect(back_leased(open, "file", 1));
    assert_eq!(late.err(), Some(NtStatus::OBJECT_NAME_NOT_FOUND));
    let reader = Create { desired_access: rights::FILE_GENERIC_READ, ..existing("file") };
    let reader = bench.create(reader).expect("it stands in nobody's way").open;
    assert_eq!(bench.read(reader, 0, 10), Ok(b"0123456789".to_vec()), "nor do its locks, nor its writes");
    bench.close(reader).expect("closed");
    for _ in 0..3 {
        bench.pass(SECOND);
        assert_eq!(bench.service.open_count(), 1);
    }
    bench.service.file_system_mut().set_read_only(false);
    bench.pass(SECOND);
    assert_eq!(bench.service.open_count(), 0);
    bench.pass(2 * SECOND);
    bench.create(open_if(2, "other")).expect("it goes on");
    assert_eq!(disk.cut().service.open_count(), 0, "for good");
}

/// Has the first create be interrupted after it made its file. Returns the file.
fn interrupted(bench: &mut Bench, create: Create) -> FileId {
    let path = String::from_utf16(&create.path).expect("a name");
    let made = bench.create(Create { caller: caller(7), ..open_if(7, &path) }).expect("made").open;
    let Service { opens, replays, agenda, .. } = &mut bench.service;
    let file = opens.get(made).expect("open").stream.file;
    let link = opens.get(made).and_then(|open| open.link.clone());
    let mut attempt =
        Attempt { made: Some(file), made_link: link.map(Box::<LinkName>::new), ..Attempt::default() };
    opens.remove(made, agenda);
    replays.interrupt(&mut attempt, agenda);
    let wait = agenda.tasks.wait_for_caching(NEVER_OPEN);
    let parked = Parked { work: Some(Work::Create(Box::new(create), attempt)), wait, told: true };
    agenda.tasks.park(OperationId(900_000), parked);
    file
}

fn deleting(path: &str, disposition: Disposition) -> Create {
    Create { options: super::super::super::options::DELETE_ON_CLOSE, disposition, ..persistent(path, 1) }
}

#[test]
fn a_file_of_an_interrupted_create_goes_at_a_start_unless_another_one_has_opened_it() {
    for opened in [false, true] {
        let (disk, mut bench) = started();
        bench.create(persistent("other", 2)).expect("made");
        interrupted(&mut bench, deleting("file", Disposition::Create));
        if opened {
            let other = bench.create(existing("file")).expect("it is there").open;
            bench.write(other, 0, b"theirs").expect("written");
            bench.call(Operation::Flush { open: other }).expect("durable");
        } else {
            bench.create(persistent("third", 3)).expect("made, and all before it is durable");
        }
        let mut bench = disk.cut();
        let found = bench.create(existing("file"));
        assert_eq!(found.is_ok(), opened, "{:?}", found.err());
        if let Ok(found) = found {
            assert_eq!(bench.read(found.open, 0, 6), Ok(b"theirs".to_vec()));
        }
    }
}

#[test]
fn an_interrupted_create_finds_that_others_have_opened_or_replaced_what_it_made() {
    for replaced in [false, true] {
        let (_disk, mut bench) = started();
        let made = interrupted(&mut bench, deleting("file", Disposition::Create));
        let other = bench.create(Create { share_access: 0, ..existing("file") }).expect("it is there").open;
        bench.write(other, 0, b"theirs").expect("written");
        if replaced {
            bench.delete(other, true).expect("to go");
        }
        bench.close(other).expect("closed");
        if replaced {
            let new = bench.create(open_if(2, "file")).expect("made").open;
            assert_ne!(bench.service.opens.get(new).expect("open").stream.file, made);
            bench.close(new).expect("closed");
        }
        bench.service.agenda.tasks.wake(NEVER_OPEN);
        let answer = bench.answer(OperationId(900_000)).expect("it goes on");
        assert!(matches!(answer, Err(NtStatus::OBJECT_NAME_COLLISION)), "{answer:?}");
        bench.create(existing("file")).expect("it stays");
    }
}

#[test]
fn an_interrupted_create_whose_file_was_deleted_makes_it_anew() {
    let (_disk, mut bench) = started();
    let made = interrupted(&mut bench, persistent("file", 1));
    let other = bench.create(existing("file")).expect("it is there").open;
    bench.delete(other, true).expect("to go");
    bench.close(other).expect("closed");
    bench.service.agenda.tasks.wake(NEVER_OPEN);
    let Some(Ok(Reply::Created(created))) = bench.answer(OperationId(900_000)) else { panic!("no answer") };
    assert_ne!(bench.service.opens.get(created.open).expect("open").stream.file, made);
    bench.create(existing("file")).expect("it is there");
}

#[test]
fn an_interrupted_create_whose_client_goes_leaves_its_open_for_the_replay() {
    let (disk, mut bench) = started();
    let create = Create { disposition: Disposition::Create, ..persistent("file", 1) };
    let made = interrupted(&mut bench, create.clone());
    bench.service.cancel(OperationId(900_000));
    bench.call(Operation::EndSession { session: SessionId(1) }).expect("ended");
    assert!(bench.answer(OperationId(900_000)).is_none(), "it goes on");
    let again = Create { caller: continuous(101, 1), replay: true, ..create };
    bench.service.agenda.tasks.wake(NEVER_OPEN);
    bench.run_polls();
    let replayed = bench.create(again.clone()).expect("answered again");
    assert_eq!(replayed.action, CreateAction::Created);
    assert_eq!(bench.service.opens.get(replayed.open).expect("open").stream.file, made);
    let mut bench = disk.cut();
    let found = bench.create(Create { caller: continuous(201, 1), ..again }).expect("after a start, too");
    assert_eq!(found.open, replayed.open);
}

#[test]
fn one_user_does_not_use_up_what_a_file_may_have_of_persistent_opens() {
    let (disk, mut bench) = started();
    let create = |number: u16, who: u32| {
        let mut guid = [who as u8; 16];
        guid[..2].copy_from_slice(&number.to_le_bytes());
        let durable = DurableRequest::Version2 { create_guid: guid, timeout: None, persistent: true };
        let caller = Caller { token: user(who), ..continuous(1, 1) };
        let desired_access = rights::FILE_GENERIC_READ;
        Create { durable: Some(durable), caller, desired_access, ..persistent("file", 1) }
    };
    let first = bench.create(create(0, 1)).expect("made").open;
    for number in 1..256 {
        assert!(bench.create(create(number, 1)).expect("opened").persistent);
    }
    let beyond = bench.create(create(256, 1)).expect("opened");
    assert!(!beyond.persistent && beyond.durable.is_none(), "it may be opened, and is not kept");
    bench.close(beyond.open).expect("closed");
    assert!(bench.create(create(0, 2)).expect("another user's").persistent);
    bench.create(Create { durable: None, ..create(256, 1) }).expect("others are not counted");
    let mut bench = disk.cut();
    let beyond = bench.create(create(256, 1)).expect("opened");
    assert!(!beyond.persistent, "they are counted again");
    bench.close(beyond.open).expect("closed");
    let again = Reconnect {
        create_guid: Some({
            let mut guid = [1; 16];
            guid[..2].fill(0);
            guid
        }),
        ..back(first, "file", 1)
    };
    bench.reconnect(again).expect("it is there");
    bench.close(first).expect("closed");
    assert!(bench.create(create(256, 1)).expect("there is room").persistent);
}

#[test]
fn times_that_an_open_fixed_stay_fixed_over_a_start() {
    let (disk, mut bench) = started();
    let open = bench.create(persistent("file", 1)).expect("made").open;
    let times = |written| SetInformation::Basic {
        created: SetTime::Keep,
        accessed: SetTime::Keep,
        written,
        changed: SetTime::Keep,
        attributes: None,
    };
    bench.set(open, times(SetTime::To(FileTime(77_777)))).expect("set");
    let mut bench = disk.cut();
    bench.reconnect(back(open, "file", 1)).expect("it is there");
    bench.write(open, 0, b"later").expect("written");
    bench.pass(3 * SECOND);
    assert_eq!(bench.information(open).written, FileTime(77_777));
    bench.set(open, times(SetTime::Thaw)).expect("set");
    let mut bench = disk.cut();
    bench.reconnect(back(open, "file", 1)).expect("it is there");
    bench.write(open, 0, b"later").expect("written");
    bench.pass(3 * SECOND);
    assert_ne!(bench.information(open).written, FileTime(77_777));
}

#[test]
fn an_open_comes_back_to_a_share_that_allows_less_caching_with_what_it_allows() {
    let (disk, mut bench) = started();
    let open = bench.create(leased("file", 1, RWH)).expect("made").open;
    let batch = CacheRequest::Oplock(OplockLevel::Batch);
    let second = bench.create(Create { cache: batch, ..persistent("second", 2) }).expect("made").open;
    let mut bench = disk.cut();
    let on = |mut request: Reconnect, change: fn(&mut ShareOptions)| {
        change(&mut request.caller.share);
        request
    };
    let request = on(back_leased(open, "file", 1), |share| share.no_caching = true);
    assert_eq!(lease_state(&bench.reconnect(request).expect("it is there")), LeaseState::empty());
    let request = on(back(second, "second", 2), |share| share.scale_out = true);
    let found = bench.reconnect(request).expect("it is there");
    assert_eq!(found.cache, CacheGrant::Oplock(OplockLevel::LevelII));
    let mut bench = disk.cut();
    let found = bench.reconnect(back_leased(open, "file", 1)).expect("it is there");
    assert_eq!(lease_state(&found), LeaseState::empty(), "what was taken stays taken");
}

#[test]
fn writes_of_a_persistent_open_are_durable_though_its_share_promises_less_by_now() {
    let (disk, mut bench) = started();
    let open = bench.create(persistent("file", 1)).expect("made").open;
    bench.promise_less();
    bench.write(open, 0, b"acknowledged").expect("written");
    let mut bench = disk.cut();
    bench.reconnect(back(open, "file", 1)).expect("it is there");
    assert_eq!(bench.read(open, 0, 12), Ok(b"acknowledged".to_vec()));
}
