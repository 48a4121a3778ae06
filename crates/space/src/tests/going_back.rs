//! Disks of which an older image is restored.

use super::{Bench, CHUNK, VOLUME, disk, filled};
use crate::api::SpaceRequest;
use crate::coordinator::{Event, Phase};
use crate::fake_store::{FakeFault, FakeImage};
use crate::local::LocalEvent;
use crate::seam::BlockStore;
use records::{FaultDomain, JobKind, Resiliency};
use std::time::Duration;
use store::api::{StoreRequest, WriteClass};
use types::{Epoch, Lba};

const MINUTE: Duration = Duration::from_secs(60);

/// A mirror whose disk 1 has image `0` of before the writes with 2, half a minute and more old.
fn with_an_image() -> (Bench, FakeImage) {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 300, 1).unwrap();
    bench.pass(MINUTE);
    let image = bench.stores[0].image();
    // Nothing shows writes under the epoch of the image, for half a minute.
    bench.overwrite(500, 1);
    bench.pass(MINUTE);
    bench.overwrite(3, 2);
    bench.write(u64::from(CHUNK), WriteClass::Fresh, 8, 2).unwrap();
    (bench, image)
}

fn assert_whole(bench: &mut Bench, what: &str) {
    for _ in 0..4 {
        assert_eq!(bench.read(2, 3), [1, 2, 1], "{what}");
        assert_eq!(bench.read(u64::from(CHUNK), 2), [2, 2], "{what}");
        assert_eq!(bench.read(500, 1), [1], "{what}");
    }
    bench.pass(MINUTE);
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)], "{what}");
    for lba in [2, 3, 500, u64::from(CHUNK)] {
        assert!(bench.copies_agree(lba), "{what}: block {lba}");
    }
}

fn went_back(bench: &Bench) -> bool {
    std::iter::from_fn(|| bench.space.poll_event())
        .any(|event| matches!(event, LocalEvent::Volume(_, Event::WentBack { disk: found, .. }) if found == disk(1)))
}

#[test]
pub(super) fn a_disk_that_goes_back_between_two_starts_is_brought_up_to_date_from_the_beginning() {
    for closed in [true, false] {
        let (mut bench, image) = with_an_image();
        bench.pass(MINUTE);
        if closed {
            bench.space.close_volume(VOLUME);
            bench.pass(Duration::from_secs(3));
            assert_eq!(bench.space.phase(VOLUME), Some(Phase::Closed));
        }
        bench.stores[0].go_back_to(&image);
        bench.crash(|| false);
        assert!(went_back(&bench), "closed: {closed}");
        assert_whole(&mut bench, "between two starts");
    }
}

#[test]
fn a_disk_that_goes_back_after_a_clean_close_is_known_however_young_the_image_is() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(3, 1);
    let image = bench.stores[0].image();
    bench.overwrite(3, 2);
    bench.space.close_volume(VOLUME);
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.space.phase(VOLUME), Some(Phase::Closed));
    bench.stores[0].go_back_to(&image);
    bench.crash(|| false);
    for _ in 0..4 {
        assert_eq!(bench.read(3, 1), [2]);
    }
    bench.pass(MINUTE);
    assert_eq!(bench.record().in_sync.len(), 2);
    assert!(bench.copies_agree(3));
}

#[test]
fn a_disk_that_goes_back_while_it_is_pulled_does_not_come_back_in_sync() {
    // Shortly, so that nobody has noticed, or until it is out.
    for away in [Duration::from_millis(200), MINUTE] {
        let (mut bench, image) = with_an_image();
        bench.pass(MINUTE);
        let store = bench.space.detach_disk(disk(1)).unwrap();
        bench.pass(away);
        store.go_back_to(&image);
        bench.space.attach_disk(disk(1), store, FaultDomain::default()).unwrap();
        assert_whole(&mut bench, "while it was pulled");
        assert!(went_back(&bench), "away for {away:?}");
    }
}

#[test]
fn a_crash_while_a_disk_that_went_back_is_put_out_does_not_make_it_count() {
    for step in 0..40_u32 {
        let (mut bench, image) = with_an_image();
        bench.pass(MINUTE);
        bench.stores[0].go_back_to(&image);
        bench.restart_for(Duration::from_millis(25) * step);
        bench.crash(|| step % 2 == 0);
        assert_eq!(bench.read(2, 3), [1, 2, 1], "after {step} steps");
        assert_eq!(bench.read(u64::from(CHUNK), 2), [2, 2], "after {step} steps");
    }
}

#[test]
fn a_disk_that_went_back_and_has_the_last_copy_serves_what_it_has_and_is_told() {
    let mut bench = Bench::new(1, 8, Resiliency::Simple);
    bench.overwrite(3, 1);
    let image = bench.stores[0].image();
    bench.pass(MINUTE);
    bench.overwrite(3, 2);
    bench.pass(MINUTE);
    bench.stores[0].go_back_to(&image);
    bench.crash(|| false);
    assert_eq!(bench.read(3, 1), [1]);
    assert!(went_back(&bench));
    bench.overwrite(3, 3);
    assert_eq!(bench.read(3, 1), [3]);
}

/// A mirror: chunk 0 is on both disks and holds 2 in block 3, which the image of `older` does not, chunk 1 is on `sole` alone, which is
/// therefore the last of something by the record.
fn with_a_single_copy(older: u8, sole: u8) -> (Bench, FakeImage) {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.space.suspend_job(VOLUME, JobKind::Rebuild);
    bench.write(0, WriteClass::Fresh, 300, 1).unwrap();
    let away = bench.space.detach_disk(disk(3 - sole)).unwrap();
    // This write expels the disk.
    bench.overwrite(600, 1);
    bench.write(u64::from(CHUNK), WriteClass::Fresh, 8, 5).unwrap();
    bench.pass(MINUTE);
    bench.space.attach_disk(disk(3 - sole), away, FaultDomain::default()).unwrap();
    bench.pass(MINUTE);
    let record = bench.record();
    assert_eq!((record.in_sync.len(), record.min_holders), (2, 1));
    assert_eq!(bench.holders(1), [usize::from(sole) - 1]);
    let image = bench.stores[usize::from(older) - 1].image();
    bench.overwrite(500, 1);
    bench.pass(MINUTE);
    bench.overwrite(3, 2);
    // The writes are settled.
    for _ in 0..4 {
        bench.pass(MINUTE);
        bench.overwrite(600, 1);
    }
    (bench, image)
}

/// Reads the last acknowledged writes, from all copies that count.
fn assert_nothing_older(bench: &mut Bench, what: &str) {
    for _ in 0..4 {
        assert_eq!(bench.read(2, 3), [1, 2, 1], "{what}");
        assert_eq!(bench.read(u64::from(CHUNK), 2), [5, 5], "{what}");
    }
}

#[test]
fn a_disk_that_goes_back_does_not_count_for_what_others_have_though_a_chunk_has_one_copy() {
    for (older, sole) in [(2, 1), (1, 1), (1, 2), (2, 2)] {
        let what = format!("disk {older} goes back, disk {sole} alone has chunk 1");
        let (mut bench, image) = with_a_single_copy(older, sole);
        bench.stores[usize::from(older) - 1].go_back_to(&image);
        bench.crash(|| false);
        assert_nothing_older(&mut bench, &what);
        bench.pass(MINUTE);
        bench.pass(MINUTE);
        assert_nothing_older(&mut bench, &what);
        let record = bench.record();
        assert_eq!((record.in_sync.len(), record.building.len(), record.min_holders), (2, 0, 2), "{what}");
        for lba in [2, 3, 500, u64::from(CHUNK)] {
            assert!(bench.copies_agree(lba), "{what}: block {lba}");
        }
    }
}

#[test]
fn a_second_crash_does_not_make_an_older_copy_count_beside_the_last_one_of_another_chunk() {
    for step in 0..60_u32 {
        let (older, sole) = if step % 3 == 0 { (2, 1) } else { (1, 1) };
        let (mut bench, image) = with_a_single_copy(older, sole);
        bench.stores[usize::from(older) - 1].go_back_to(&image);
        bench.restart_for(Duration::from_millis(25) * step);
        bench.crash(|| step % 2 == 0);
        assert_nothing_older(&mut bench, &format!("after {step} steps"));
    }
}

#[test]
fn a_disk_that_goes_back_while_it_is_pulled_counts_for_its_last_copies_alone() {
    for (writes, away) in
        [(false, Duration::from_millis(200)), (true, Duration::from_millis(200)), (false, MINUTE)]
    {
        let (mut bench, image) = with_a_single_copy(1, 1);
        let store = bench.space.detach_disk(disk(1)).unwrap();
        let data = filled(1, 7);
        let write = writes
            .then(|| bench.start(SpaceRequest::Write { lba: Lba(9), class: WriteClass::Overwrite, data }));
        bench.pass(away);
        store.go_back_to(&image);
        bench.space.attach_disk(disk(1), store, FaultDomain::default()).unwrap();
        bench.pass(Duration::from_secs(2));
        if let Some(token) = write {
            let answers = bench.answers();
            assert!(
                answers.iter().any(|answer| answer.token == token && answer.result.is_ok()),
                "{answers:?}"
            );
            assert_eq!(bench.read(9, 1), [7]);
        }
        assert_nothing_older(&mut bench, "while it was pulled");
        bench.pass(MINUTE);
        assert_nothing_older(&mut bench, "a minute later");
        assert_eq!(bench.record().in_sync.len(), 2);
        assert!(bench.copies_agree(3) && bench.copies_agree(u64::from(CHUNK)));
        bench.crash(|| false);
        assert_nothing_older(&mut bench, "after a crash");
    }
}

#[test]
fn of_two_disks_that_went_back_the_newer_one_counts_for_what_both_have() {
    for newer in [1, 2] {
        let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
        bench.write(0, WriteClass::Fresh, 300, 1).unwrap();
        bench.pass(MINUTE);
        let older_image = bench.stores[2 - newer].image();
        for byte in [2, 3, 4] {
            bench.pass(MINUTE);
            bench.overwrite(3, byte);
        }
        bench.pass(MINUTE);
        let newer_image = bench.stores[newer - 1].image();
        for _ in 0..4 {
            bench.pass(MINUTE);
            bench.overwrite(3, 5);
        }
        bench.stores[2 - newer].go_back_to(&older_image);
        bench.stores[newer - 1].go_back_to(&newer_image);
        bench.crash(|| false);
        for _ in 0..4 {
            assert_eq!(bench.read(2, 3), [1, 4, 1], "disk {newer} is the newer one");
        }
        bench.pass(MINUTE);
        assert_eq!((bench.record().in_sync.len(), bench.record().building.len()), (2, 0));
        assert_eq!(bench.holders(0).len(), 2);
        assert!(bench.copies_agree(3));
    }
}

#[test]
fn a_chunk_that_was_freed_since_the_image_is_not_there_again() {
    for closed in [false, true] {
        let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
        bench.write(0, WriteClass::Fresh, 8, 1).unwrap();
        bench.write(u64::from(CHUNK), WriteClass::Fresh, 8, 5).unwrap();
        bench.pass(MINUTE);
        let image = bench.stores[0].image();
        bench.overwrite(3, 2);
        bench.call(SpaceRequest::Discard { lba: Lba(u64::from(CHUNK)), blocks: CHUNK.into() }).unwrap();
        assert!(bench.holders(1).is_empty());
        for _ in 0..4 {
            bench.pass(MINUTE);
            bench.overwrite(4, 1);
        }
        if closed {
            bench.space.close_volume(VOLUME);
            bench.pass(Duration::from_secs(3));
        }
        bench.stores[0].go_back_to(&image);
        bench.crash(|| false);
        assert_eq!((bench.read(2, 3), bench.read(u64::from(CHUNK), 2)), (vec![1, 2, 1], vec![0, 0]));
        bench.pass(MINUTE);
        assert_eq!((bench.holders(1), bench.record().in_sync.len()), (Vec::new(), 2));
    }
}

#[test]
fn an_opening_waits_for_a_disk_that_may_alone_have_what_one_that_went_back_should_have() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 1).unwrap();
    bench.pass(MINUTE);
    let holders = bench.holders(0);
    let (older, slow) = (holders[0], holders[1]);
    let image = bench.stores[older].image();
    for _ in 0..4 {
        bench.pass(MINUTE);
        bench.overwrite(3, 2);
    }
    bench.stores[older].go_back_to(&image);
    let mut faults = [FakeFault::None; 3];
    faults[slow] = FakeFault::Hang;
    bench.restart_with(&faults, MINUTE);
    assert_eq!(bench.space.phase(VOLUME), Some(Phase::Opening));
    assert_eq!(bench.record().in_sync.len(), 3);
    bench.crash(|| true);
    bench.stores[slow].set_fault(FakeFault::None);
    bench.pass(MINUTE);
    assert_eq!(bench.read(2, 3), [1, 2, 1]);
    bench.pass(MINUTE);
    assert_eq!(bench.record().in_sync.len(), 3);
    assert!(bench.copies_agree(3));
}

#[test]
fn an_opening_goes_on_without_a_disk_that_is_away_and_one_that_went_back_if_a_third_copy_is_there() {
    let mut bench = Bench::new(3, 8, Resiliency::ThreeWay);
    bench.write(0, WriteClass::Fresh, 8, 1).unwrap();
    bench.pass(MINUTE);
    let image = bench.stores[0].image();
    for _ in 0..4 {
        bench.pass(MINUTE);
        bench.overwrite(3, 2);
    }
    bench.stores[0].go_back_to(&image);
    bench.restart_with(&[FakeFault::None, FakeFault::Hang, FakeFault::None], MINUTE);
    assert_eq!(bench.read(2, 3), [1, 2, 1]);
    assert_eq!(bench.record().in_sync, [disk(1), disk(3)]);
    assert!(bench.copies_agree(3));
}

#[test]
fn a_disk_that_has_promised_what_no_owner_can_come_to_keeps_the_volume_out_until_it_forgets_that() {
    let (mut bench, _) = with_an_image();
    bench.pass(MINUTE);
    let mut store = bench.stores[0].clone();
    let mut ask = |request: StoreRequest| {
        let mut answers = Vec::new();
        store.submit(1, request);
        store.poll(&mut answers);
        assert!(answers.iter().all(|answer| answer.result.is_ok()), "{answers:?}");
    };
    ask(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(4_294_967_000) });
    bench.restart_for(MINUTE);
    assert_ne!(bench.space.phase(VOLUME), Some(Phase::Serving), "the disk refuses every owner");
    ask(StoreRequest::Unpromise { volume: VOLUME });
    bench.crash(|| false);
    assert!(went_back(&bench));
    assert_whole(&mut bench, "after the promise was forgotten");
}
