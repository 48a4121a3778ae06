//! The stamps of regions: the last change by epoch and number, in RAM, after a replay and after a checkpoint.

mod common;

use common::{EPOCH, Rig, VOLUME, new_rig, pattern, write_request_at};
use disk::crash::CrashDisk;
use store::api::{StoreRequest, WriteClass};
use types::{ChangeNumber, Lba, Stamp};

fn stamp(number: u32) -> Stamp {
    Stamp::new(EPOCH, ChangeNumber(number))
}

fn write(rig: &mut Rig<CrashDisk>, number: u32) {
    rig.run(write_request_at(stamp(number), WriteClass::Overwrite, 5, &pattern(1, 1))).unwrap();
}

/// Returns the stamp after these writes, one after the other: at once, after a replay, and after a
/// checkpoint between each two.
fn after(numbers: &[u32]) -> [Stamp; 3] {
    let mut rig = new_rig();
    rig.allocate(0, false);
    numbers.iter().for_each(|number| write(&mut rig, *number));
    let seen = rig.stamps(0)[0];
    let replayed = rig.reopen().stamps(0)[0];
    let mut rig = new_rig();
    rig.allocate(0, false);
    for number in numbers {
        write(&mut rig, *number);
        rig.checkpoint();
        rig = rig.reopen();
    }
    [seen, replayed, rig.stamps(0)[0]]
}

#[test]
fn a_region_has_the_stamp_of_its_last_change_however_changes_come() {
    for (numbers, last) in [
        (&[3, 4][..], 4),
        (&[4, 3], 4),
        (&[u32::MAX - 1, 0, u32::MAX], 0),
        (&[1, 1 << 30, 1 << 31, 2 << 30, 3 << 30], 3 << 30),
    ] {
        assert_eq!(after(numbers), [stamp(last); 3], "{numbers:?}");
    }
}

#[test]
fn a_replay_of_more_changes_than_a_page_has_words_keeps_the_last_stamp() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    for number in (0..1200).rev() {
        rig.run(StoreRequest::Discard { volume: VOLUME, stamp: stamp(number), lba: Lba(9), blocks: 1 })
            .unwrap();
    }
    assert_eq!(rig.reopen().stamps(0)[0], stamp(1199));
}

#[test]
fn an_epoch_comes_before_the_number_and_one_beyond_all_is_not_promised() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    write(&mut rig, 900);
    let next = Stamp::new(EPOCH.next(), ChangeNumber(1));
    rig.run(write_request_at(next, WriteClass::Overwrite, 5, &pattern(1, 1))).unwrap();
    write(&mut rig, 901);
    assert_eq!(rig.stamps(0)[0], next);
    let beyond = StoreRequest::Promise { volume: VOLUME, epoch: Stamp::EPOCH_MAX.next() };
    assert!(rig.run(beyond).is_err());
}
