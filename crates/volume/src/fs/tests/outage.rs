//! Missing copies or space: writes that must succeed wait, are reported as waiting, and succeed in the
//! end.

use super::*;
use crate::fs::io::{Purpose, Requests};
use ::types::Monotonic;
use space::api::SpaceError;

#[test]
pub fn an_outage_at_any_moment_fails_nothing_and_loses_nothing() {
    for error in [SpaceError::Unavailable, SpaceError::NoSpace] {
        for begin in [0, 9, 17] {
            let mut bench = Bench::with(24, 256, small());
            bench.disk.1.set(Some(begin * 31 + 7));
            let mut names = Vec::new();
            let mut told = false;
            // Enough for some checkpoints.
            for round in 0..900_u64 {
                if round == 300 + begin * 11 {
                    bench.disk.0.borrow_mut().fail(Some(error.clone()));
                }
                let name = format!("file {round}");
                match bench.fs.create(FileId::ROOT, &wide(&name), &file(5)) {
                    Ok(file) => {
                        let _ = bench.fs.write(
                            1_000_000 + round,
                            StreamId::unnamed(file),
                            0,
                            Payload::from(Buf::from([round as u8; 100].as_slice())),
                            false,
                        );
                        names.push((name, round as u8));
                    }
                    Err(FsError::Miss | FsError::Unavailable | FsError::NoSpace) => {}
                    Err(error) => panic!("{error}"),
                }
                bench.now = bench.now.after(Duration::from_millis(100));
                bench.poll();
                told |= bench.fs.write_back_failure().is_some();
                if round == 300 + begin * 11 + 320 {
                    bench.disk.0.borrow_mut().fail(None);
                }
                let failed = bench.events.iter().any(|event| matches!(event, FsEvent::Failed(_)));
                assert!(!failed, "begun at {begin}, round {round}: {error}");
            }
            assert!(told, "somebody is told");
            bench.disk.1.set(None);
            bench.disk.0.borrow_mut().hold(false);
            bench.sleep(Duration::from_secs(40));
            assert!(
                bench.fs.write_back_failure().is_none(),
                "{:?} {:?} {:?}",
                bench.fs.write_back_failure(),
                bench.fs.base.requests.stalled(),
                bench.fs.base.checkpointer.trouble()
            );
            bench.flush_all().unwrap();
            bench.disk.0.borrow_mut().hold(true);
            bench.crash(|_| 0);
            assert!(names.len() > 500, "{} names", names.len());
            for (name, byte) in names {
                let found = bench.run(|fs| fs.lookup(FileId::ROOT, &wide(&name))).expect("the name");
                let read = bench.read(StreamId::unnamed(found.file), 0, 200).unwrap();
                // A write that was refused meanwhile left its file empty.
                assert!(read.is_empty() || read == [byte; 100], "{name}");
            }
            bench.check_clean();
        }
    }
}

#[test]
fn a_chunk_cannot_be_had_while_copies_are_missing_which_does_not_make_the_volume_full() {
    let disk = SharedDisk::new(64, 256);
    let mut requests = Requests::new(Box::new(disk.clone()));
    let (start, mut answers) = (Monotonic(0), Vec::new());
    disk.0.borrow_mut().fail(Some(SpaceError::Unavailable));
    let block = Payload::from(Buf::from([0; 4096].as_slice()));
    requests.write_needed(Purpose::Probe { chunk: 3 }, Lba(3 * 256), WriteClass::Fresh, block);
    disk.0.borrow_mut().hold(false);
    requests.poll(start, &mut answers);
    assert!(answers.is_empty(), "that is no answer: {answers:?}");
    assert!(requests.stalled().is_none(), "what is written elsewhere does not wait for it");
    assert_eq!(requests.retry_at(), Some(start.after(Duration::from_secs(1))));
    assert_eq!(requests.probes_late_since(), Some(start));
    disk.0.borrow_mut().fail(Some(SpaceError::NoSpace));
    requests.poll(start.after(Duration::from_secs(2)), &mut answers);
    assert!(
        matches!(answers.as_slice(), [(Purpose::Probe { chunk: 3 }, Err(FsError::NoSpace))]),
        "{answers:?}"
    );
    assert!(requests.stalled().is_none() && requests.probes_late_since().is_none());
}

#[test]
fn a_chunk_for_which_copies_are_missing_for_long_is_not_waited_for() {
    let disk = SharedDisk::new(64, 256);
    let mut requests = Requests::new(Box::new(disk.clone()));
    let (start, mut answers) = (Monotonic(0), Vec::new());
    disk.0.borrow_mut().fail(Some(SpaceError::Unavailable));
    disk.0.borrow_mut().hold(false);
    let block = Payload::from(Buf::from([0; 4096].as_slice()));
    requests.write_needed(Purpose::Probe { chunk: 3 }, Lba(3 * 256), WriteClass::Fresh, block);
    let mut now = start;
    while let Some(at) = {
        requests.poll(now, &mut answers);
        requests.retry_at()
    } {
        now = at;
    }
    assert!(
        matches!(answers.as_slice(), [(Purpose::Probe { chunk: 3 }, Err(FsError::Unavailable))]),
        "{answers:?}"
    );
    assert_eq!(now, start.after(Duration::from_secs(30)));
}

#[test]
fn what_cannot_be_given_back_for_want_of_copies_is_given_back_when_they_are_there_again() {
    for error in [SpaceError::Unavailable, SpaceError::NoSpace] {
        let mut bench = Bench::with(64, 256, small());
        let sparse = bench.create("sparse");
        for at in 0..1500 {
            bench.write(StreamId::unnamed(sparse), at * 8192, &[7; 4096]).unwrap();
        }
        bench.flush_all().unwrap();
        // A checkpoint moves the extents to pages of the tree, which a restart has not read.
        bench.fs.base.checkpointer.want_features(layout::Features::OPENS);
        bench.sleep(Duration::from_secs(3));
        bench.reopen();
        bench.sleep(Duration::from_secs(3));
        let free = bench.fs.statistics().available_bytes;
        let gone = bench.run(|fs| fs.unlink(FileId::ROOT, &wide("sparse"), FileTime(9))).expect("a file");
        bench.disk.0.borrow_mut().fail(Some(error.clone()));
        bench.run(|fs| fs.reclaim(gone.file)).expect("no names");
        bench.sleep(Duration::from_secs(10));
        bench.disk.0.borrow_mut().fail(None);
        bench.sleep(Duration::from_secs(10));
        let more = bench.fs.statistics().available_bytes - free;
        assert!(more >= 1500 * 4096, "{error}: {more} bytes came back");
        bench.check_clean();
    }
}
