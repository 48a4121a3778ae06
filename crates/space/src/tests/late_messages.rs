//! A coordinator and replicas with messages that a test holds back.

use super::*;
use crate::coordinator::Coordinator;
use crate::fake_store::FakeFault;
use crate::message::{BusError, ReplicaOperation, Request, Response};
use crate::replica::Replica;
use pool::{Disk, PoolView, Route};
use records::FaultDomain;
use std::cell::RefCell;
use std::rc::Rc;
use types::ChunkIndex;

struct Wire {
    coordinator: Coordinator,
    replicas: Vec<Replica<FakeStore>>,
    state: MemoryState,
    pool: Rc<RefCell<PoolView>>,
    stores: Vec<FakeStore>,
    now: Monotonic,
    held: Vec<(DiskId, Request)>,
    done: Vec<u64>,
}

impl Wire {
    /// Carries all requests but the held ones.
    fn carry(&mut self, hold: impl Fn(DiskId, &ReplicaOperation) -> bool) {
        for _ in 0..10_000 {
            if let Some((to, request)) = self.coordinator.poll_send() {
                match hold(to, &request.operation) {
                    true => self.held.push((to, request)),
                    false => self.deliver(to, request),
                }
                continue;
            }
            if let Some((token, request)) = self.coordinator.poll_state() {
                let answer = self.state.answer(&request);
                self.coordinator.handle_state(self.now, token, answer);
                continue;
            }
            let mut answers: Vec<Response> = Vec::new();
            self.replicas.iter_mut().for_each(|replica| replica.poll(&mut answers));
            if answers.is_empty() {
                break;
            }
            answers.into_iter().for_each(|answer| self.coordinator.handle_response(self.now, answer));
        }
        let mut out = Vec::new();
        self.coordinator.poll(&mut out);
        self.done.extend(out.into_iter().filter(|done| done.result.is_ok()).map(|done| done.token));
    }

    fn deliver(&mut self, to: DiskId, request: Request) {
        self.replicas.iter_mut().filter(|replica| replica.disk() == to).for_each(|replica| {
            replica.handle(request.clone());
        });
    }

    fn pass(&mut self, milliseconds: u64, hold: impl Fn(DiskId, &ReplicaOperation) -> bool) {
        for _ in 0..milliseconds / 50 {
            self.now = self.now.after(Duration::from_millis(50));
            self.coordinator.handle_timeout(self.now);
            self.carry(&hold);
        }
    }

    /// The process dies and starts again.
    fn restart(&mut self, incarnation: u128) {
        let ids = (1..).map(disk);
        self.replicas = ids.zip(&self.stores).map(|(id, store)| Replica::new(id, store.clone())).collect();
        self.coordinator =
            Coordinator::new(VOLUME, incarnation, Config::default(), CHUNK, self.pool.clone(), self.now);
    }

    fn write(&mut self, token: u64, lba: u64, byte: u8) {
        let write =
            SpaceRequest::Write { lba: Lba(lba), class: WriteClass::Overwrite, data: filled(1, byte) };
        self.coordinator.submit(self.now, token, write);
    }
}

/// Two disks with a copy each of one block, and the stores behind them.
fn two_disks() -> (Wire, Vec<FakeStore>) {
    with_disks(2, Resiliency::TwoWay)
}

/// Makes `count` disks, some of which have a copy of one block.
fn with_disks(count: u8, resiliency: Resiliency) -> (Wire, Vec<FakeStore>) {
    let (state, now) = (MemoryState::new(), Monotonic(1_000_000_000));
    let pool = PoolId::from_bytes([1; 16]);
    let size = u64::from(CHUNK) * 4 * BLOCK_BYTES as u64;
    let ids: Vec<DiskId> = (1..=count).map(disk).collect();
    let thin = Provisioning::Thin;
    let record = VolumeRecord::new(VOLUME, pool, "data", resiliency, size, thin, ids.clone(), 0);
    state.write(&record, 0).unwrap();
    let views = ids.iter().map(|&id| Disk::new(id, 8, FaultDomain::default(), Route::Local));
    let pool = Rc::new(RefCell::new(PoolView::new(views.collect(), 0)));
    let stores: Vec<FakeStore> = ids.iter().map(|_| FakeStore::new(CHUNK, 8)).collect();
    let replicas = ids.iter().zip(&stores).map(|(&id, store)| Replica::new(id, store.clone())).collect();
    let coordinator = Coordinator::new(VOLUME, 1, Config::default(), CHUNK, pool.clone(), now);
    let (held, done) = Default::default();
    let mut wire = Wire { coordinator, replicas, state, pool, stores: stores.clone(), now, held, done };
    wire.pass(500, |_, _| false);
    wire.write(1, 0, 1);
    wire.carry(|_, _| false);
    assert_eq!(wire.done, [1]);
    (wire, stores)
}

#[test]
fn a_write_that_nobody_waits_for_any_more_does_not_come_after_newer_ones() {
    let (mut wire, stores) = two_disks();
    // Disk 2 is expelled because a write does not arrive, and gets it again while disk 1 has yet to
    // promise the new epoch.
    wire.write(2, 0, 2);
    let writes_to_2 = |to: DiskId, operation: &ReplicaOperation| {
        to == disk(2) && matches!(operation, ReplicaOperation::Write { .. })
    };
    let promises = |operation: &ReplicaOperation| matches!(operation, ReplicaOperation::Promise);
    wire.pass(5_500, |to, operation| writes_to_2(to, operation) || promises(operation));
    let (late, promise): (Vec<_>, Vec<_>) =
        std::mem::take(&mut wire.held).into_iter().partition(|(_, request)| !promises(&request.operation));
    assert!(late.len() >= 2 && !promise.is_empty() && wire.done == [1], "{late:?} {promise:?}");
    promise.into_iter().for_each(|(to, request)| wire.deliver(to, request));
    wire.carry(|_, _| false);
    assert_eq!(wire.done, [1, 2]);

    wire.write(3, 0, 3);
    wire.pass(5_000, |_, _| false);
    assert_eq!(wire.coordinator.record().in_sync, [disk(1), disk(2)], "disk 2 is back");
    late.into_iter().for_each(|(to, request)| wire.deliver(to, request));
    wire.carry(|_, _| false);
    let held = |store: &FakeStore| store.peek(VOLUME, Lba(0)).map(|block| block[0]);
    assert_eq!((held(&stores[0]), held(&stores[1])), (Some(3), Some(3)));
}

#[test]
fn a_region_whose_copying_fails_while_the_disks_session_is_opened_anew_is_copied_later() {
    let (mut wire, stores) = two_disks();
    let writes_to_2 = |to: DiskId, operation: &ReplicaOperation| {
        to == disk(2) && matches!(operation, ReplicaOperation::Write { .. })
    };
    wire.write(2, 0, 2);
    wire.pass(4_500, writes_to_2);
    assert_eq!(wire.done, [1, 2]);
    // The source does not answer; meanwhile the disk's process starts anew, and its session is slow to come.
    let source = |to: DiskId, operation: &ReplicaOperation| {
        to == disk(1) && matches!(operation, ReplicaOperation::Read { .. })
    };
    wire.pass(2_000, source);
    assert!(!wire.held.is_empty(), "the region is being copied");
    wire.replicas[1] = Replica::new(disk(2), stores[1].clone());
    wire.write(3, 256, 3);
    wire.pass(3_500, |to, operation| {
        source(to, operation) || to == disk(2) && matches!(operation, ReplicaOperation::Open { .. })
    });
    wire.pass(10_000, |_, _| false);
    assert_eq!(wire.coordinator.record().in_sync, [disk(1), disk(2)], "disk 2 is back");
    assert_eq!(stores[0].peek(VOLUME, Lba(0)), stores[1].peek(VOLUME, Lba(0)));
}

#[test]
fn a_slab_is_not_given_back_while_a_change_is_on_its_way_to_it() {
    for (repairs, new_copy_fails) in [(false, true), (true, false), (true, true)] {
        let (mut wire, stores) = with_disks(3, Resiliency::TwoWay);
        wire.write(2, 256, 2);
        wire.carry(|_, _| false);
        let chunk = ChunkIndex(0);
        let (holders, others): (Vec<usize>, Vec<usize>) =
            (0..3).partition(|at| stores[*at].has_chunk(VOLUME, chunk));
        let (old, new) = (disk(holders[0] as u8 + 1), disk(others[0] as u8 + 1));
        // The copy of its first region is still being read when the change is sent.
        let reads = |_: DiskId, operation: &ReplicaOperation| matches!(operation, ReplicaOperation::Read { lba, .. } if lba.0 < 256);
        wire.pool.borrow_mut().change(old, |disk| disk.is_retired = true);
        wire.coordinator.plan_soon();
        wire.pass(1_000, reads);
        let reading = std::mem::take(&mut wire.held);
        assert!(!reading.is_empty(), "its copy is being made");
        let changes = |to: DiskId, operation: &ReplicaOperation| {
            to == old && matches!(operation, ReplicaOperation::Write { .. })
        };
        if repairs {
            stores[holders[0]].corrupt(VOLUME, Lba(256));
            wire.coordinator.repair(wire.now, old, Lba(256));
        } else {
            wire.write(3, 512, 3);
        }
        wire.carry(changes);
        assert_eq!(wire.held.len(), 1);
        reading.into_iter().for_each(|(to, request)| wire.deliver(to, request));
        wire.pass(200, changes);
        assert_eq!(wire.coordinator.record().building, [(old, chunk)], "it does not count any more");
        if new_copy_fails {
            stores[others[0]].set_fault(FakeFault::Errors);
            wire.write(4, 600, 4);
            wire.pass(1_500, changes);
            assert!(!wire.coordinator.record().in_sync.contains(&new));
        }
        assert!(stores[holders[0]].has_chunk(VOLUME, chunk), "{repairs} {new_copy_fails}");
        stores[others[0]].set_fault(FakeFault::None);
        for (to, request) in std::mem::take(&mut wire.held) {
            wire.deliver(to, request);
        }
        wire.pass(10_000, |_, _| false);
        wire.write(5, 256, 5);
        wire.carry(|_, _| false);
        assert!(wire.done.contains(&5) && (repairs || wire.done.contains(&3)), "{:?}", wire.done);
        assert!(!stores[holders[0]].has_chunk(VOLUME, chunk));
    }
}

/// Disk 2 loses acknowledged writes, the coordinator's process dies, and the next one dies when disk 2
/// has the first of several writes that make it equal, and perhaps the stamp before that.
#[test]
fn a_second_crash_while_copies_are_made_equal_leaves_the_one_believed_that_was_before() {
    for (copies, resiliency) in [(2, Resiliency::TwoWay), (3, Resiliency::ThreeWay)] {
        let (mut wire, stores) = with_disks(copies, resiliency);
        let before = stores[1].image();
        for step in 0..8 {
            let data = filled(16, 7);
            let write = SpaceRequest::Write { lba: Lba(step * 16), class: WriteClass::Overwrite, data };
            wire.coordinator.submit(wire.now, 10 + step, write);
        }
        wire.carry(|_, _| false);
        assert_eq!(wire.done.len(), 9);
        stores[1].go_back_to(&before);

        wire.restart(2);
        let written = std::cell::Cell::new(0);
        wire.pass(1_000, |to, operation| {
            let is_write = to == disk(2) && matches!(operation, ReplicaOperation::Write { .. });
            written.set(written.get() + u32::from(is_write));
            is_write && written.get() > 2
        });
        assert!(!wire.held.is_empty(), "it is made equal in several steps");
        wire.held.clear();

        wire.restart(3);
        wire.pass(2_000, |_, _| false);
        for (at, store) in stores.iter().enumerate() {
            for lba in 0..128 {
                let block = store.peek(VOLUME, Lba(lba)).map(|block| block[0]);
                assert_eq!(block, Some(7), "block {lba} of disk {}", at + 1);
            }
        }
    }
}

/// A network that loses large packets: sessions with disk 2 begin, and each connection closes a
/// second after a write that does not get through.
#[test]
fn a_disk_that_opens_sessions_and_takes_no_write_is_not_waited_for_any_longer_than_a_silent_one() {
    let (mut wire, _) = two_disks();
    let is_lost = |to: DiskId, operation: &ReplicaOperation| {
        to == disk(2) && matches!(operation, ReplicaOperation::Write { .. })
    };
    wire.write(7, 0, 9);
    wire.carry(is_lost);
    for _ in 0..7 {
        wire.pass(1_000, is_lost);
        for (from, Request { volume, session, id, .. }) in std::mem::take(&mut wire.held) {
            let response = Response { from, volume, session, id, result: Err(BusError::Unreachable) };
            wire.coordinator.handle_response(wire.now, response);
        }
        wire.carry(is_lost);
    }
    assert!(wire.done.contains(&7), "the write waits for a disk that takes none");
    assert_eq!(wire.coordinator.record().in_sync, [disk(1)]);
    // The network carries everything again.
    wire.held.clear();
    wire.pass(20_000, |_, _| false);
    assert_eq!(wire.coordinator.record().in_sync, [disk(1), disk(2)]);
}

#[test]
pub(super) fn a_chunk_is_given_back_only_when_no_disk_is_asked_about_it_any_more() {
    let (mut wire, stores) = two_disks();
    wire.restart(2);
    // After a crash the coordinator asks disks for region epochs. One has not answered yet when the
    // chunk is not needed any more.
    let slow = |to: DiskId, operation: &ReplicaOperation| {
        to == disk(2) && matches!(operation, ReplicaOperation::Regions { .. })
    };
    wire.pass(500, slow);
    assert_eq!((wire.coordinator.phase(), wire.held.len()), (&Phase::Serving, 1));
    let give_back = SpaceRequest::Discard { lba: Lba(0), blocks: u64::from(CHUNK) };
    wire.coordinator.submit(wire.now, 2, give_back);
    wire.pass(500, slow);
    for (to, request) in std::mem::take(&mut wire.held) {
        wire.deliver(to, request);
    }
    wire.pass(500, |_, _| false);
    assert_eq!(wire.done, [1, 2]);
    assert!(stores.iter().all(|store| !store.has_chunk(VOLUME, ChunkIndex(0))));
    assert_eq!(wire.coordinator.record().in_sync, [disk(1), disk(2)], "no disk has lost anything");
}
