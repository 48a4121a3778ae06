//! Disks restored from an older image.

use super::{Bench, CHUNK, VOLUME, disk, filled};
use crate::api::SpaceRequest;
use crate::block_store::BlockStore;
use crate::coordinator::{Event, Phase};
use crate::fake_store::{FakeFault, FakeImage, FakeStore};
use crate::local::LocalEvent;
use records::{FaultDomain, JobKind, Resiliency, Typed, VolumeRecord};
use std::time::Duration;
use store::api::{StoreRequest, WriteClass};
use types::{DiskId, Epoch, Lba};

const MINUTE: Duration = Duration::from_secs(60);

/// Makes a mirror whose disk 1 has image `0`, from half a minute and more before the writes with 2.
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
    // Shortly, so that nobody has noticed, or until the disk is expelled.
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

/// An administrator accepts the disk as it is.
fn accept(bench: &mut Bench, number: u8) {
    accept_for(bench, number, Duration::from_millis(300));
}

fn accept_for(bench: &mut Bench, number: u8, time: Duration) {
    let found = bench.state.read::<VolumeRecord>(&VOLUME.to_string()).unwrap().unwrap();
    let record = VolumeRecord { accepted_images: vec![disk(number)], ..found.value };
    bench.state.write(&record, found.revision).unwrap();
    bench.space.note_record(&record);
    bench.pass(time);
}

fn held(bench: &Bench) -> Vec<DiskId> {
    bench.space.with_volume(VOLUME, |coordinator| coordinator.held_images()).unwrap()
}

/// Makes one disk without a mirror, replaced by an image with 1 in block 3, of which 2 was
/// acknowledged since.
fn with_the_last_copy_gone_back() -> (Bench, FakeImage) {
    let mut bench = Bench::new(1, 8, Resiliency::Simple);
    bench.overwrite(3, 1);
    let older = bench.stores[0].image();
    bench.pass(MINUTE);
    bench.overwrite(3, 2);
    bench.pass(MINUTE);
    bench.space.close_volume(VOLUME);
    bench.pass(Duration::from_secs(3));
    let right = bench.stores[0].image();
    bench.stores[0].go_back_to(&older);
    bench.restart_for(MINUTE);
    (bench, right)
}

#[test]
pub(super) fn the_last_copy_of_something_is_not_served_from_a_disk_that_went_back_until_somebody_accepts_that()
 {
    let (mut bench, _) = with_the_last_copy_gone_back();
    for start in 1..=3 {
        assert_eq!(bench.space.phase(VOLUME), Some(Phase::Opening), "start {start}");
        assert_eq!(held(&bench), [disk(1)], "start {start}");
        let told = std::iter::from_fn(|| bench.space.poll_event())
            .filter(|event| matches!(event, LocalEvent::Volume(_, Event::WentBack { .. })));
        assert_eq!(told.count(), 1, "start {start}");
        bench.restart_for(MINUTE);
    }
    accept(&mut bench, 1);
    assert_eq!(bench.read(3, 1), [1]);
    bench.overwrite(3, 3);
    bench.crash(|| false);
    assert_eq!((bench.read(3, 1), held(&bench)), (vec![3], Vec::new()));
    assert_eq!(bench.record().accepted_images, []);
}

#[test]
fn the_right_disk_in_the_place_of_one_that_went_back_is_served_by_itself() {
    let (mut bench, right) = with_the_last_copy_gone_back();
    let store = bench.space.detach_disk(disk(1)).unwrap();
    bench.pass(Duration::from_secs(1));
    store.go_back_to(&right);
    bench.space.attach_disk(disk(1), store, FaultDomain::default()).unwrap();
    bench.pass(MINUTE);
    assert_eq!((bench.read(3, 1), held(&bench)), (vec![2], Vec::new()));
}

#[test]
fn a_mirror_of_which_all_copies_went_back_is_not_served_until_somebody_accepts_the_newest() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(3, 1);
    let older = bench.stores[1].image();
    for byte in [2, 3, 4] {
        bench.pass(MINUTE);
        bench.overwrite(3, byte);
    }
    let newer = bench.stores[0].image();
    bench.pass(MINUTE);
    bench.overwrite(3, 5);
    bench.pass(MINUTE);
    let right = bench.stores[1].image();
    let go_back = |bench: &Bench| {
        bench.stores[0].go_back_to(&newer);
        bench.stores[1].go_back_to(&older);
    };
    go_back(&bench);
    bench.restart_for(MINUTE);
    assert_eq!((bench.space.phase(VOLUME), held(&bench)), (Some(Phase::Opening), vec![disk(1)]));
    // One right disk comes, even one that the opening did not ask for: the other is brought up to
    // date from it.
    let store = bench.space.detach_disk(disk(2)).unwrap();
    store.go_back_to(&right);
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    bench.pass(MINUTE);
    assert_eq!(bench.read(3, 1), [5]);
    bench.pass(MINUTE);
    assert!(bench.copies_agree(3) && bench.record().in_sync.len() == 2);
    go_back(&bench);
    bench.restart_for(MINUTE);
    assert_eq!(held(&bench), [disk(1)]);
    accept(&mut bench, 1);
    assert_eq!(bench.read(3, 1), [4]);
    bench.pass(MINUTE);
    assert!(bench.copies_agree(3) && bench.record().in_sync.len() == 2);
}

/// Makes a mirror that was closed with 2 in block 3, and images of its disks from when that held 1.
fn with_images_of_both() -> (Bench, Vec<FakeImage>) {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(3, 1);
    let images = bench.stores.iter().map(FakeStore::image).collect();
    bench.pass(MINUTE);
    bench.overwrite(3, 2);
    bench.pass(MINUTE);
    bench.space.close_volume(VOLUME);
    bench.pass(Duration::from_secs(3));
    (bench, images)
}

#[test]
fn an_administrator_may_accept_either_of_two_older_images() {
    for accepted in [1, 2] {
        let (mut bench, images) = with_images_of_both();
        bench.stores.iter().zip(&images).for_each(|(store, image)| store.go_back_to(image));
        bench.restart_for(MINUTE);
        assert_eq!((bench.space.phase(VOLUME), held(&bench).len()), (Some(Phase::Opening), 1));
        accept_for(&mut bench, accepted, Duration::from_secs(3));
        assert_eq!(bench.read(3, 1), [1], "disk {accepted}");
        bench.pass(MINUTE);
        assert!(bench.copies_agree(3) && bench.record().in_sync.len() == 2, "disk {accepted}");
    }
}

#[test]
fn an_older_image_is_served_without_the_lost_copies_only_if_somebody_accepts_it() {
    let (mut bench, images) = with_images_of_both();
    bench.stores[0].go_back_to(&images[0]);
    let lost = [FakeFault::None, FakeFault::Errors];
    bench.restart_with(&lost, MINUTE);
    assert_eq!((bench.space.phase(VOLUME), bench.record().in_sync.len()), (Some(Phase::Opening), 2));
    // The other copy comes back: there is nothing to accept.
    bench.stores[1].set_fault(FakeFault::None);
    bench.pass(MINUTE);
    assert_eq!(bench.read(3, 1), [2]);
    bench.pass(MINUTE);
    assert!(bench.copies_agree(3) && bench.record().in_sync.len() == 2);

    let (mut bench, images) = with_images_of_both();
    bench.stores[0].go_back_to(&images[0]);
    bench.restart_with(&lost, MINUTE);
    // An administrator must say both: that the other disk is lost, and that this one counts.
    accept_for(&mut bench, 1, MINUTE);
    assert_eq!((bench.space.phase(VOLUME), bench.record().in_sync.len()), (Some(Phase::Opening), 2));
    bench.space.set_retired(disk(2), true);
    bench.pass(MINUTE);
    assert_eq!(bench.read(3, 1), [1]);
    bench.space.set_retired(disk(2), false);
    // The lost copy has writes that were given up: a resync brings all of it to the contents that
    // count.
    bench.stores[1].set_fault(FakeFault::None);
    bench.pass(MINUTE);
    assert!(bench.copies_agree(3) && bench.record().in_sync.len() == 2);
    assert_eq!(bench.read(3, 1), [1]);
}

#[test]
fn a_stale_disk_with_writes_that_an_accepted_image_lacks_is_brought_back_from_the_beginning() {
    let (mut bench, images) = with_images_of_both();
    bench.crash(|| false);
    let other = bench.space.detach_disk(disk(2)).unwrap();
    bench.overwrite(600, 1);
    bench.pass(MINUTE);
    assert_eq!(bench.record().in_sync, [disk(1)]);
    bench.space.close_volume(VOLUME);
    bench.pass(Duration::from_secs(3));
    bench.stores[0].go_back_to(&images[0]);
    bench.restart_with(&[FakeFault::None, FakeFault::Errors], MINUTE);
    accept_for(&mut bench, 1, MINUTE);
    assert_eq!(bench.read(3, 1), [1]);
    other.set_fault(FakeFault::None);
    bench.pass(MINUTE);
    assert_eq!(bench.record().in_sync.len(), 2, "{:?}", bench.record());
    assert!(bench.copies_agree(3), "{:?}", bench.record());
}

#[test]
fn images_from_before_a_chunk_do_not_make_its_disks_dispensable() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 1).unwrap();
    bench.pass(MINUTE);
    let images: Vec<FakeImage> = bench.stores.iter().map(FakeStore::image).collect();
    for chunk in 1..4 {
        bench.write(chunk * u64::from(CHUNK), WriteClass::Fresh, 8, 2).unwrap();
    }
    bench.overwrite(3, 2);
    bench.pass(MINUTE);
    bench.space.close_volume(VOLUME);
    bench.pass(Duration::from_secs(3));
    let right: Vec<FakeImage> = bench.stores.iter().map(FakeStore::image).collect();
    bench.stores.iter().zip(&images).for_each(|(store, image)| store.go_back_to(image));
    bench.restart_for(MINUTE);
    assert_eq!((bench.space.phase(VOLUME), bench.record().in_sync.len()), (Some(Phase::Opening), 3));
    bench.stores.iter().zip(&right).for_each(|(store, image)| store.go_back_to(image));
    bench.restart_for(MINUTE);
    for chunk in 1..4 {
        assert_eq!(bench.read(chunk * u64::from(CHUNK), 8), [2; 8], "chunk {chunk}");
    }
    assert_eq!(bench.read(2, 3), [1, 2, 1]);
}

#[test]
fn the_right_disk_may_come_at_any_moment_of_an_opening() {
    for step in 0..16_u32 {
        let (mut bench, images) = with_images_of_both();
        let right: Vec<FakeImage> = bench.stores.iter().map(FakeStore::image).collect();
        let [first, second] = if step % 2 == 0 { [0, 1] } else { [1, 0] };
        bench.stores.iter().zip(&images).for_each(|(store, image)| store.go_back_to(image));
        bench.restart_for(Duration::from_millis(100) * step);
        for at in [first, second] {
            let number = at as u8 + 1;
            let store = bench.space.detach_disk(disk(number)).unwrap();
            store.go_back_to(&right[at]);
            bench.space.attach_disk(disk(number), store, FaultDomain::default()).unwrap();
            bench.pass(Duration::from_millis(100) * (step % 5));
        }
        bench.pass(MINUTE);
        for _ in 0..4 {
            assert_eq!(bench.read(3, 1), [2], "after {step} steps");
        }
        bench.overwrite(3, 3);
        assert!(bench.copies_agree(3), "after {step} steps");
        bench.pass(MINUTE);
        assert_eq!(bench.record().in_sync.len(), 2, "after {step} steps");
    }
}

/// Makes a mirror: chunk 0 is on both disks and holds 2 in block 3, unlike the image of `older`.
/// Chunk 1 is on `sole` alone, so by the record that disk has the last copy of a chunk.
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
        bench.restart_for(MINUTE);
        // By its list the image has nothing that the other disk lacks, but the right disk may.
        assert_eq!(held(&bench), [disk(older)], "{what}");
        accept(&mut bench, older);
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
        bench.restart_for(Duration::from_secs(3));
        accept_for(&mut bench, older, Duration::from_millis(25) * step);
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
        assert_eq!(held(&bench), [disk(1)]);
        accept(&mut bench, 1);
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
        bench.restart_for(MINUTE);
        accept(&mut bench, newer as u8);
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
