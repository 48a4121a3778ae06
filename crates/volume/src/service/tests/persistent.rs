//! Opens of continuously available shares outlive the server, with everything that was reported to
//! their clients.

mod answers;
mod cuts;
mod ends;

use super::durability::Disk;
use super::*;
use crate::fs::OpenStateKey;
use crate::security::{self, Ace, AceFlags, Acl, SecurityDescriptor};
use crate::service::review::review;
use crate::service::tasks::{Parked, Wait, Work};

const R: LeaseState = LeaseState::READ;
const RH: LeaseState = LeaseState::READ.union(LeaseState::HANDLE);
const RWH: LeaseState = LeaseState::all();
const MINUTE: Duration = Duration::from_secs(60);

/// A session of a client, through a share that is continuously available.
fn continuous(session: u64, client: u8) -> Caller {
    let share = ShareOptions { continuously_available: true, ..ShareOptions::default() };
    Caller { client: [client; 16], share, standing: Standing::new("docs", ()), ..caller(session) }
}

fn lease(key: u8, state: LeaseState) -> CacheRequest {
    let version_2 = Some(LeaseVersion2 { parent_key: None, epoch: 0 });
    CacheRequest::Lease(LeaseRequest { key: [key; 16], state, version_2 })
}

/// A persistent open by client 1, with the GUID of this number.
fn persistent(path: &str, guid: u8) -> Create {
    let durable = DurableRequest::Version2 { create_guid: [guid; 16], timeout: None, persistent: true };
    Create { caller: continuous(1, 1), durable: Some(durable), ..open_if(1, path) }
}

fn leased(path: &str, guid: u8, state: LeaseState) -> Create {
    Create { cache: lease(guid, state), ..persistent(path, guid) }
}

/// The reconnect of [`persistent`], from another session.
fn back(open: OpenId, path: &str, guid: u8) -> Reconnect {
    let caller = continuous(101, 1);
    Reconnect { caller, open, path: wide(path), create_guid: Some([guid; 16]), persistent: true, lease: None }
}

fn back_leased(open: OpenId, path: &str, guid: u8) -> Reconnect {
    let CacheRequest::Lease(asked) = lease(guid, LeaseState::empty()) else { unreachable!() };
    Reconnect { lease: Some(asked), ..back(open, path, guid) }
}

impl Bench {
    fn reconnect(&mut self, request: Reconnect) -> Result<Created, NtStatus> {
        match self.call(Operation::Reconnect(Box::new(request)))? {
            Reply::Created(created) => Ok(*created),
            other => panic!("{other:?}"),
        }
    }

    fn lock(&mut self, open: OpenId, offset: u64, sequence: Option<u32>) -> Result<(), NtStatus> {
        let element = LockElement {
            range: ByteRange { offset, len_bytes: 10 },
            exclusive: Some(true),
            fail_immediately: true,
        };
        self.call(Operation::Lock { open, elements: vec![element], sequence }).map(drop)
    }

    /// Locks `(offset, bytes)`, exclusively or not; `None` unlocks.
    fn lock_range(
        &mut self,
        open: OpenId,
        range: (u64, u64),
        exclusive: Option<bool>,
    ) -> Result<(), NtStatus> {
        let range = ByteRange { offset: range.0, len_bytes: range.1 };
        let element = LockElement { range, exclusive, fail_immediately: exclusive.is_some() };
        self.call(Operation::Lock { open, elements: vec![element], sequence: None }).map(drop)
    }

    fn unlock(&mut self, open: OpenId, offset: u64) -> Result<(), NtStatus> {
        let range = ByteRange { offset, len_bytes: 10 };
        let element = LockElement { range, exclusive: None, fail_immediately: false };
        self.call(Operation::Lock { open, elements: vec![element], sequence: None }).map(drop)
    }

    /// Makes the share of client 1 durable on request only, from now on, without persistent handles.
    fn promise_less(&mut self) {
        let Caller { token, share_access, standing, .. } = continuous(1, 1);
        let share = ShareOptions { durability: Durability::Flush, ..ShareOptions::default() };
        let terms = Terms { token, share_access, share, standing };
        let Service { opens, replays, agenda, .. } = &mut self.service;
        review(opens, replays, agenda, &mut |_| Ruling::Amend(terms.clone()));
    }

    fn delete(&mut self, open: OpenId, delete: bool) -> Result<(), NtStatus> {
        self.set(open, SetInformation::Disposition { flags: delete.into() }).map(drop)
    }

    /// Opens a path as an intruder from another client; returns the status.
    fn intrude(&mut self, path: &str) -> NtStatus {
        let create = Create { caller: continuous(2, 2), ..open_if(2, path) };
        self.create(create).err().unwrap_or(NtStatus::SUCCESS)
    }
}

fn started() -> (Disk, Bench) {
    let disk = Disk::new();
    let bench = Bench::over(formatted(disk.clone()));
    (disk, bench)
}

fn lease_state(created: &Created) -> LeaseState {
    match created.cache {
        CacheGrant::Lease { state, .. } => state,
        CacheGrant::Oplock(_) => panic!("no lease"),
    }
}

#[test]
fn an_open_comes_back_with_its_lease_its_locks_and_its_place_in_the_world() {
    let (disk, mut bench) = started();
    let made = bench.create(leased("file", 1, RWH)).expect("made");
    assert!(made.persistent && made.durable.is_some());
    bench.write(made.open, 0, b"0123456789").expect("written");
    bench.lock(made.open, 0, None).expect("locked");
    let mut bench = disk.cut();
    let found = bench.reconnect(back_leased(made.open, "file", 1)).expect("it is there");
    assert_eq!(
        (found.open, lease_state(&found), found.granted_access),
        (made.open, RWH, made.granted_access)
    );
    assert_eq!(bench.read(found.open, 0, 10), Ok(b"0123456789".to_vec()));
    assert_eq!(bench.lock(found.open, 5, None), Err(NtStatus::LOCK_NOT_GRANTED), "its own lock");
    bench.unlock(found.open, 0).expect("unlocked");
    bench.close(found.open).expect("closed");
    let bench = disk.cut();
    assert_eq!(bench.service.open_count(), 0, "what was closed stays closed");
}

#[test]
fn an_exclusive_lock_under_its_owners_shared_one_comes_back() {
    for (exclusive, shared) in [((50, 10), (0, 100)), ((0, 100), (0, 50))] {
        let (disk, mut bench) = started();
        let open = bench.create(persistent("file", 1)).expect("made").open;
        bench.lock_range(open, exclusive, Some(true)).expect("locked");
        bench.lock_range(open, shared, Some(false)).expect("its own may lie on it");
        let mut bench = disk.cut();
        let open = bench.reconnect(back(open, "file", 1)).expect("it is there").open;
        bench.lock_range(open, shared, None).expect("the shared one is there");
        bench.lock_range(open, exclusive, None).expect("the exclusive one is there");
    }
}

#[test]
fn what_was_closed_stays_closed_if_the_share_promises_less_by_then() {
    let (disk, mut bench) = started();
    let open = bench.create(persistent("file", 1)).expect("made").open;
    bench.promise_less();
    bench.close(open).expect("closed");
    assert_eq!(disk.cut().service.open_count(), 0);
}

#[test]
fn a_reconnect_that_waits_for_storage_ends_with_its_session() {
    let (_, mut bench) = started();
    let open = bench.create(persistent("file", 1)).expect("made").open;
    bench.call(Operation::EndSession { session: SessionId(1) }).expect("ended");
    let work = Some(Work::Request(Operation::Reconnect(Box::new(back(open, "file", 1)))));
    let parked = Parked { work, wait: Wait::Storage, told: true };
    bench.service.agenda.tasks.park(OperationId(900_000), parked);
    bench.call(Operation::EndSession { session: SessionId(101) }).expect("ended");
    bench.service.agenda.tasks.retry_misses();
    bench.run_polls();
    let later = Reconnect { caller: continuous(102, 1), ..back(open, "file", 1) };
    bench.reconnect(later).expect("nobody has it");
}

#[test]
fn an_open_needs_no_lease_to_be_persistent_and_a_directory_can_be() {
    let (disk, mut bench) = started();
    let file = bench.create(persistent("file", 1)).expect("made").open;
    let folder = Create { options: super::super::options::DIRECTORY_FILE, ..persistent("folder", 2) };
    let folder = bench.create(folder).expect("made").open;
    let mut bench = disk.cut();
    bench.reconnect(back(file, "file", 1)).expect("the file");
    bench.reconnect(back(folder, "folder", 2)).expect("the folder");
    assert_eq!(bench.names(folder, "*"), [".", ".."]);
}

#[test]
fn without_the_flag_or_the_share_an_open_does_not_outlive_the_server() {
    let (disk, mut bench) = started();
    let other_share = Create { caller: caller(1), ..leased("one", 1, RWH) };
    let durable = DurableRequest::Version2 { create_guid: [2; 16], timeout: None, persistent: false };
    let no_flag = Create { durable: Some(durable), ..leased("two", 2, RWH) };
    for create in [other_share, no_flag] {
        let made = bench.create(create).expect("made");
        assert!(made.durable.is_some() && !made.persistent);
    }
    assert_eq!(disk.cut().service.open_count(), 0);
}

#[test]
fn until_a_client_is_back_or_its_time_is_over_nobody_takes_its_place() {
    for asked in [RWH, RH, LeaseState::empty()] {
        let (disk, mut bench) = started();
        let made = bench.create(Create { share_access: 0, ..leased("file", 1, asked) }).expect("made");
        let mut bench = disk.cut();
        assert_eq!(bench.intrude("file"), NtStatus::FILE_NOT_AVAILABLE);
        bench.pass(MINUTE / 2);
        bench.reconnect(back_leased(made.open, "file", 1)).expect("in time");
        let mut bench = disk.cut();
        bench.pass(MINUTE + Duration::from_secs(1));
        assert_eq!(bench.intrude("file"), NtStatus::SUCCESS);
        let late = bench.reconnect(back_leased(made.open, "file", 1));
        assert_eq!(late.err(), Some(NtStatus::OBJECT_NAME_NOT_FOUND));
    }
}

#[test]
fn a_lost_connection_is_no_reason_to_take_an_open_from_its_client_either() {
    let (_disk, mut bench) = started();
    let made = bench.create(Create { share_access: 0, ..persistent("file", 1) }).expect("made");
    bench.call(Operation::EndSession { session: SessionId(1) }).expect("ended");
    assert_eq!(bench.intrude("file"), NtStatus::FILE_NOT_AVAILABLE);
    bench.reconnect(back(made.open, "file", 1)).expect("it is there");
    assert_eq!(bench.intrude("file"), NtStatus::SHARING_VIOLATION, "its client is there");
}

#[test]
fn who_does_not_fight_over_a_file_is_let_in_at_once() {
    let (disk, mut bench) = started();
    bench.create(leased("file", 1, RH)).expect("made");
    let mut bench = disk.cut();
    let reader = Create { desired_access: rights::FILE_GENERIC_READ, ..open_if(2, "file") };
    bench.create(reader).expect("it shares");
    assert_eq!(bench.intrude("other"), NtStatus::SUCCESS);
}

#[test]
fn a_reconnect_has_to_fit_in_everything() {
    let (disk, mut bench) = started();
    let open = bench.create(leased("file", 1, RWH)).expect("made").open;
    let mut bench = disk.cut();
    let good = back_leased(open, "file", 1);
    let with = |change: fn(&mut Reconnect)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    let missing = NtStatus::OBJECT_NAME_NOT_FOUND;
    let cases: [(&str, Reconnect, NtStatus); 9] = [
        ("open", with(|request| request.open = OpenId(request.open.0 + 1)), missing),
        ("create GUID", with(|request| request.create_guid = Some([9; 16])), missing),
        ("no create GUID", with(|request| request.create_guid = None), missing),
        ("flag", with(|request| request.persistent = false), missing),
        ("client", with(|request| request.caller.client = [9; 16]), missing),
        ("user", with(|request| request.caller.token = user(2)), NtStatus::ACCESS_DENIED),
        ("no lease", with(|request| request.lease = None), missing),
        ("share", with(|request| request.caller.standing = Standing::new("other", ())), missing),
        ("path", with(|request| request.path = wide("other")), NtStatus::INVALID_PARAMETER),
    ];
    for (what, request, status) in cases {
        if what == "no create GUID" {
            // Version 1's reconnect has no GUID, and no persistent handles.
            let request = Reconnect { persistent: false, ..request };
            assert_eq!(bench.reconnect(request).err(), Some(status), "{what}");
            continue;
        }
        assert_eq!(bench.reconnect(request).err(), Some(status), "{what}");
    }
    let mut wrong_key = good.clone();
    wrong_key.lease = wrong_key.lease.map(|asked| LeaseRequest { key: [9; 16], ..asked });
    assert_eq!(bench.reconnect(wrong_key).err(), Some(missing), "lease key");
    bench.reconnect(good).expect("all fits");
}

#[test]
fn a_token_that_lost_what_the_open_was_granted_by_does_not_get_it_back() {
    let without_users = |token: &AccessToken| {
        let mut token = token.clone();
        token.groups.retain(|group| *group != Sid::users());
        Arc::new(token)
    };
    for (giving, comes_back) in [(Sid::users(), false), (Sid::everyone(), true)] {
        let (disk, mut bench) = started();
        let open = bench.create(persistent("file", 1)).expect("made").open;
        let entry = Ace::allow(giving, rights::FILE_ALL, AceFlags::empty());
        let dacl = Some(Acl::new(vec![entry]));
        let descriptor =
            SecurityDescriptor { dacl, ..security::volume_root() }.build().expect("short enough");
        bench.call(Operation::SetSecurity { open, parts: 4, descriptor }).expect("set");
        let mut bench = disk.cut();
        let mut request = back(open, "file", 1);
        request.caller.token = without_users(&request.caller.token);
        let status = bench.reconnect(request).err();
        assert_eq!(status, (!comes_back).then_some(NtStatus::OBJECT_NAME_NOT_FOUND));
        if !comes_back {
            bench.reconnect(back(open, "file", 1)).expect("the token of before");
        }
    }
}

#[test]
fn a_create_whose_answer_was_lost_is_answered_again_and_happens_once() {
    let (disk, mut bench) = started();
    let create = Create { disposition: Disposition::Create, ..leased("file", 1, RWH) };
    let made = bench.create(create.clone()).expect("made");
    let mut bench = disk.cut();
    let again = Create { caller: continuous(101, 1), replay: true, ..create.clone() };
    let found = bench.create(again.clone()).expect("answered again");
    assert_eq!((found.open, found.action, lease_state(&found)), (made.open, CreateAction::Created, RWH));
    assert!(found.persistent && found.durable.is_some());
    let fresh = Create { replay: false, ..again };
    assert_eq!(bench.create(fresh).err(), Some(NtStatus::DUPLICATE_OBJECTID));
    let other = Create { caller: continuous(2, 2), replay: true, ..create };
    assert_eq!(bench.create(other).err(), Some(NtStatus::OBJECT_NAME_COLLISION), "another client's GUID");
    bench.write(found.open, 0, b"mine").expect("it has a session");
}

#[test]
fn a_replayed_create_finds_its_open_from_another_session_of_the_same_client_only() {
    let (_disk, mut bench) = started();
    let create = Create { disposition: Disposition::Create, ..persistent("file", 1) };
    let made = bench.create(create.clone()).expect("made");
    let mut again = Create { caller: continuous(101, 1), replay: true, ..create };
    again.caller.token = user(2);
    assert_eq!(bench.create(again.clone()).err(), Some(NtStatus::ACCESS_DENIED));
    again.caller.token = user(1);
    assert_eq!(bench.create(again).expect("answered again").open, made.open);
    // The session that lost it takes nothing along.
    bench.call(Operation::EndSession { session: SessionId(1) }).expect("ended");
    bench.write(made.open, 0, b"mine").expect("it has a session");
}

#[test]
fn a_lock_whose_answer_was_lost_is_taken_once() {
    let (disk, mut bench) = started();
    let open = bench.create(persistent("file", 1)).expect("made").open;
    bench.lock(open, 0, Some(0x13)).expect("locked");
    let mut bench = disk.cut();
    bench.reconnect(back(open, "file", 1)).expect("it is there");
    bench.lock(open, 0, Some(0x13)).expect("it happened");
    assert_eq!(bench.lock(open, 0, Some(0x14)), Err(NtStatus::LOCK_NOT_GRANTED), "it is locked");
    bench.unlock(open, 0).expect("unlocked");
    assert_eq!(bench.unlock(open, 0), Err(NtStatus::RANGE_NOT_LOCKED), "once");
}

#[test]
fn a_lock_that_was_waited_for_outlives_the_server_too() {
    let (disk, mut bench) = started();
    let open = bench.create(persistent("file", 1)).expect("made").open;
    let other = bench.create(Create { caller: continuous(2, 2), ..open_if(2, "file") }).expect("opened").open;
    bench.lock(other, 0, None).expect("locked");
    let range = ByteRange { offset: 0, len_bytes: 10 };
    let element = LockElement { range, exclusive: Some(true), fail_immediately: false };
    let waiting = bench.start(Operation::Lock { open, elements: vec![element], sequence: Some(0x15) });
    assert!(bench.is_waiting(waiting));
    bench.close(other).expect("closed");
    assert!(matches!(bench.answer(waiting), Some(Ok(Reply::Done))));
    let mut bench = disk.cut();
    bench.reconnect(back(open, "file", 1)).expect("it is there");
    bench.lock(open, 0, Some(0x15)).expect("it happened");
    bench.unlock(open, 0).expect("it is locked");
}

#[test]
fn a_deletion_that_was_agreed_happens_with_the_last_open() {
    let (disk, mut bench) = started();
    let open = bench.create(persistent("file", 1)).expect("made").open;
    bench.delete(open, true).expect("it is to go");
    let mut bench = disk.cut();
    assert_eq!(bench.intrude("file"), NtStatus::DELETE_PENDING);
    let found = bench.reconnect(back(open, "file", 1)).expect("it is there");
    assert!(found.information.delete_pending);
    bench.close(open).expect("closed");
    let missing = Create { disposition: Disposition::Open, ..open_if(2, "file") };
    assert_eq!(bench.create(missing.clone()).err(), Some(NtStatus::OBJECT_NAME_NOT_FOUND));
    // A recovered one does not.
    let open = bench.create(persistent("other", 2)).expect("made").open;
    bench.delete(open, true).expect("it is to go");
    bench.delete(open, false).expect("it is to stay");
    let mut bench = disk.cut();
    bench.reconnect(back(open, "other", 2)).expect("it is there");
    bench.close(open).expect("closed");
    bench.create(Create { path: wide("other"), ..missing }).expect("it stays");
}

#[test]
fn a_deletion_happens_at_the_start_if_no_open_has_outlived_it() {
    let (disk, mut bench) = started();
    let plain = Create { caller: continuous(1, 1), ..open_if(1, "file") };
    let open = bench.create(plain).expect("made").open;
    let stream =
        bench.create(Create { caller: continuous(1, 1), ..open_if(1, "kept:stream") }).expect("made").open;
    bench.delete(open, true).expect("it is to go");
    bench.delete(stream, true).expect("it is to go");
    let mut bench = disk.cut();
    for path in ["file", "kept:stream"] {
        let missing = Create { disposition: Disposition::Open, ..open_if(2, path) };
        assert_eq!(bench.create(missing).err(), Some(NtStatus::OBJECT_NAME_NOT_FOUND), "{path}");
    }
    bench.create(Create { disposition: Disposition::Open, ..open_if(2, "kept") }).expect("it stays");
}

#[test]
fn an_open_that_deletes_on_close_still_does() {
    let (disk, mut bench) = started();
    let options = super::super::options::DELETE_ON_CLOSE;
    let open = bench.create(Create { options, ..persistent("file", 1) }).expect("made").open;
    let mut bench = disk.cut();
    bench.reconnect(back(open, "file", 1)).expect("it is there");
    bench.close(open).expect("closed");
    let missing = Create { disposition: Disposition::Open, ..open_if(2, "file") };
    assert_eq!(bench.create(missing).err(), Some(NtStatus::OBJECT_NAME_NOT_FOUND));
}

#[test]
fn a_renamed_file_is_found_by_its_new_name() {
    let (disk, mut bench) = started();
    let open = bench.create(persistent("old", 1)).expect("made").open;
    let to_new = || SetInformation::Rename { target: wide("new"), replace: false, posix: false };
    bench.set(open, to_new()).expect("renamed");
    let mut bench = disk.cut();
    bench.reconnect(back(open, "new", 1)).expect("it is there");
    bench.set(open, to_new()).expect("what happened already succeeds");
    bench.close(open).expect("closed");
    bench.create(Create { disposition: Disposition::Open, ..open_if(2, "new") }).expect("it is there");
}

#[test]
fn what_was_given_up_of_a_lease_does_not_come_back() {
    let (disk, mut bench) = started();
    let open = bench.create(leased("file", 1, RWH)).expect("made").open;
    let other = bench.create_later(Create { caller: continuous(2, 2), ..open_if(2, "file") });
    let acknowledge = Operation::AcknowledgeLease { client: [1; 16], key: [1; 16], state: RH };
    bench.call(acknowledge).expect("acknowledged");
    assert!(matches!(bench.answer(other), Some(Ok(_))));
    let mut bench = disk.cut();
    let found = bench.reconnect(back_leased(open, "file", 1)).expect("it is there");
    assert_eq!(lease_state(&found), RH);
    // More is granted again on request.
    let more = Create { caller: continuous(101, 1), cache: lease(1, RWH), ..persistent("file", 2) };
    assert_eq!(lease_state(&bench.create(more).expect("opened")), RWH);
    let mut bench = disk.cut();
    let found = bench.reconnect(back_leased(open, "file", 1)).expect("it is there");
    assert_eq!(lease_state(&found), RWH);
}

#[test]
fn a_client_that_is_away_loses_what_others_made_stale_and_learns_of_it() {
    let (disk, mut bench) = started();
    let open = bench.create(Create { desired_access: rights::FILE_GENERIC_READ, ..leased("file", 1, RH) });
    let open = open.expect("made").open;
    let mut bench = disk.cut();
    let writer = bench.create(open_if(2, "file")).expect("it shares").open;
    bench.write(writer, 0, b"new").expect("nobody away writes");
    bench.call(Operation::Flush { open: writer }).expect("durable");
    let mut bench = disk.cut();
    let found = bench.reconnect(back_leased(open, "file", 1)).expect("it is there");
    assert_eq!(lease_state(&found), LeaseState::empty());
}

#[test]
fn others_do_not_write_while_a_client_that_may_have_written_is_away() {
    let (disk, mut bench) = started();
    let open = bench.create(persistent("file", 1)).expect("made").open;
    bench.write(open, 0, b"first").expect("written");
    let mut bench = disk.cut();
    let other = bench.create(Create { caller: continuous(2, 2), ..open_if(2, "file") }).expect("opened").open;
    let write = |data: &[u8]| Operation::Write {
        open: other,
        offset: 0,
        data: Payload::from(Buf::from(data)),
        write_through: false,
        unbuffered: false,
    };
    let later = bench.start(write(b"later"));
    assert!(bench.is_waiting(later));
    assert_eq!(bench.read(other, 0, 5), Ok(b"first".to_vec()), "reading is no matter");
    bench.reconnect(back(open, "file", 1)).expect("it is there");
    assert!(matches!(bench.answer(later), Some(Ok(Reply::Written(5)))));
    // Nor if only the connection is lost; and not for ever.
    bench.call(Operation::EndSession { session: SessionId(101) }).expect("ended");
    let last = bench.start(write(b"third"));
    assert!(bench.is_waiting(last));
    bench.pass(MINUTE + Duration::from_secs(1));
    assert!(matches!(bench.answer(last), Some(Ok(Reply::Written(5)))));
}

#[test]
fn a_client_waits_for_no_other_handle_of_its_own() {
    let (disk, mut bench) = started();
    let one = bench.create(persistent("file", 1)).expect("made").open;
    let two = bench.create(persistent("file", 2)).expect("opened").open;
    bench.lock(two, 50, None).expect("locked");
    let mut bench = disk.cut();
    bench.reconnect(back(one, "file", 1)).expect("it is there");
    bench.write(one, 0, b"mine").expect("written");
    assert_eq!(bench.write(one, 50, b"locked").map(drop), Err(NtStatus::FILE_LOCK_CONFLICT));
}

#[test]
fn identifiers_are_not_given_again_after_a_start() {
    let (disk, mut bench) = started();
    let mut known = std::collections::HashSet::new();
    for round in 0..5 {
        for number in 0..3 {
            let guid = 10 * round + number;
            let open = bench.create(persistent(&format!("file{guid}"), guid)).expect("made").open;
            assert!(known.insert(open));
            if number == 0 {
                bench.close(open).expect("closed");
            }
        }
        bench = disk.cut();
        assert_eq!(bench.service.open_count(), 2 * (usize::from(round) + 1));
    }
}

#[test]
fn an_expired_open_is_forgotten_for_good() {
    let (disk, mut bench) = started();
    bench.create(leased("file", 1, RWH)).expect("made");
    let mut bench = disk.cut();
    bench.pass(MINUTE + Duration::from_secs(1));
    bench.pass(Duration::from_secs(2));
    assert_eq!(disk.cut().service.open_count(), 0);
}

#[test]
fn on_a_share_that_scales_out_nobody_caches_more_than_reads() {
    let (_disk, mut bench) = started();
    let mut create = leased("file", 1, RWH);
    create.caller.share.scale_out = true;
    let made = bench.create(create.clone()).expect("made");
    assert_eq!((lease_state(&made), made.persistent), (R, true));
    let batch = CacheRequest::Oplock(OplockLevel::Batch);
    let made = bench.create(Create { cache: batch, path: wide("other"), durable: None, ..create });
    assert_eq!(made.expect("made").cache, CacheGrant::Oplock(OplockLevel::LevelII));
}

#[test]
fn a_volume_whose_records_of_opens_make_no_sense_is_refused() {
    let keys = [
        OpenStateKey::Open(77),
        OpenStateKey::Lock { open: 77, offset: 0, len_bytes: 1, shared: false },
        OpenStateKey::Lease { client: [1; 16], key: [1; 16] },
        OpenStateKey::DeletedStream(crate::fs::StreamId { file: crate::fs::FileId(5), index: 1 }),
    ];
    for key in keys {
        let (disk, mut bench) = started();
        bench.create(persistent("file", 1)).expect("made");
        let fs = bench.service.file_system_mut();
        fs.keep_open_state(vec![(key.clone(), Some(vec![9, 9, 9]))]);
        bench.create(persistent("other", 2)).expect("made, and all before it is durable");
        let fs = FileSystem::open(Box::new(disk.clone()), Config::default());
        let mut service = Service::new(fs, ServiceConfig::default(), Monotonic(1), FileTime(1));
        let mut events = Vec::new();
        for _ in 0..200 {
            service.poll(&mut events);
        }
        assert!(!service.is_open(), "{key:?}");
        assert!(service.failure().is_some_and(|error| error.to_string().contains("record of")), "{key:?}");
    }
}

#[test]
fn what_is_left_of_something_that_is_gone_is_forgotten() {
    let (disk, mut bench) = started();
    bench.create(persistent("file", 1)).expect("made");
    let lock = OpenStateKey::Lock { open: 77, offset: 0, len_bytes: 1, shared: false };
    let fs = bench.service.file_system_mut();
    fs.keep_open_state(vec![(lock, Some(vec![1, 1, 0, 0, 0]))]);
    bench.create(persistent("other", 2)).expect("made, and all before it is durable");
    let bench = disk.cut();
    assert_eq!(bench.service.open_count(), 2);
}

#[test]
fn an_open_comes_back_by_its_old_name_if_the_answer_to_its_rename_was_lost() {
    let (disk, mut bench) = started();
    let open = bench.create(leased("old", 1, RWH)).expect("made").open;
    bench.create(persistent("other", 2)).expect("made");
    let rename = SetInformation::Rename { target: wide("new"), replace: false, posix: false };
    bench.set(open, rename).expect("renamed");
    let mut bench = disk.cut();
    let other = bench.reconnect(back_leased(open, "other", 1)).err();
    assert_eq!(other, Some(NtStatus::INVALID_PARAMETER), "the name is another file's");
    let found = bench.reconnect(back_leased(open, "old", 1)).expect("it is there");
    assert_eq!((found.open, &*found.path), (open, &*wide("new")));
}
