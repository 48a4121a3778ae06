//! Disks of which an older image is restored.

use super::{Bench, CHUNK, VOLUME, disk};
use crate::coordinator::{Event, Phase};
use crate::fake_store::FakeImage;
use crate::local::LocalEvent;
use cluster::{FaultDomain, Resiliency};
use std::time::Duration;
use store::api::WriteClass;

const MINUTE: Duration = Duration::from_secs(60);

/// A mirror whose disk 1 has image `0` of before the writes with 2, half a minute and more old.
fn with_an_image() -> (Bench, FakeImage) {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 300, 1).unwrap();
    bench.pass(MINUTE);
    let image = bench.stores[0].image();
    // Nothing shows what is written under the epoch of the image, for half a minute.
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
