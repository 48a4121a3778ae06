//! Quotas: charges to each user, refusals, and counts that stay right through any change.

use super::crash::Random;
use super::*;
use crate::security::SecurityDescriptor;
use ::types::Sid;

const BLOCK: u64 = ::types::BLOCK_BYTES as u64;

fn user(number: u32) -> Sid {
    Sid::new(5, &[21, 1, 2, 3, 1000 + number]).expect("a SID")
}

fn owned_by(user: &Sid) -> Vec<u8> {
    SecurityDescriptor { owner: Some(user.clone()), ..Default::default() }.build().expect("short enough")
}

impl Bench {
    fn create_of(&mut self, name: &str, owner: &Sid) -> StreamId {
        let (name, security) = (wide(name), owned_by(owner));
        let new = NewFile { security: &security, ..file(5) };
        StreamId::unnamed(self.run(|fs| fs.create(FileId::ROOT, &name, &new)).expect("a new file"))
    }

    fn turn_quotas(&mut self, mode: QuotaMode) {
        let settings = QuotaSettings { mode, ..self.fs.quota_settings().0 };
        self.run(|fs| fs.set_quota_settings(settings)).expect("settings");
    }

    fn counted(&mut self) {
        for _ in 0..10_000 {
            if !self.fs.quota_settings().1 {
                return;
            }
            self.poll();
        }
        panic!("the files are counted for ever");
    }

    /// Turns quotas on and waits until all files are counted.
    fn enforce(&mut self) {
        self.turn_quotas(QuotaMode::Enforce);
        self.counted();
    }

    fn limit(&mut self, user: &Sid, bytes: u64) {
        let limits = QuotaLimits { threshold_bytes: None, limit_bytes: Some(bytes) };
        self.run(|fs| fs.set_quota_limits(user, Some(limits), FileTime(9))).expect("limits");
    }

    fn used_blocks(&self, user: &Sid) -> u64 {
        self.fs.quota_user(user).used_bytes / BLOCK
    }

    pub(super) fn remove(&mut self, name: &str) {
        let name = wide(name);
        let gone = self.run(|fs| fs.unlink(FileId::ROOT, &name, FileTime(9))).expect("a file");
        self.run(|fs| fs.reclaim(gone.file)).expect("no names");
        for _ in 0..100 {
            self.poll();
        }
    }
}

#[test]
fn an_owner_is_charged_with_each_stream_up_to_its_end_and_no_longer_than_the_file_is_there() {
    let mut bench = Bench::with(32, 1024, small());
    let (ann, bob) = (user(1), user(2));
    bench.enforce();
    let plain = bench.create_of("plain", &ann);
    bench.write(plain, 0, &[1; 5000]).unwrap();
    assert_eq!(bench.used_blocks(&ann), 2, "what is in memory counts");
    bench.flush_all().unwrap();
    assert_eq!(bench.used_blocks(&ann), 2);
    // A hole counts, as on NTFS.
    bench.run(|fs| fs.set_end_of_file(plain, 10 * BLOCK, FileTime(6))).unwrap();
    assert_eq!(bench.used_blocks(&ann), 10);
    let named = bench.run(|fs| fs.create_stream(plain.file, &wide("notes"), FileTime(5))).unwrap();
    bench.write(named, 0, &[1; 4096 * 3]).unwrap();
    assert_eq!(bench.used_blocks(&ann), 13);
    bench.flush_all().unwrap();
    bench.run(|fs| fs.set_allocation(plain, 20 * BLOCK, FileTime(6))).unwrap();
    assert_eq!(bench.used_blocks(&ann), 23);
    bench.check_clean();
    bench.run(|fs| fs.set_end_of_file(plain, 1, FileTime(6))).unwrap();
    assert_eq!(bench.used_blocks(&ann), 4);
    // Another owner takes all of it over, growth in memory too.
    bench.write(plain, 0, &[1; 4096 * 2]).unwrap();
    let of_bob = owned_by(&bob);
    bench.run(|fs| fs.set_security(plain.file, &of_bob, FileTime(7))).unwrap();
    assert_eq!((bench.used_blocks(&ann), bench.used_blocks(&bob)), (0, 5));
    bench.check_clean();
    bench.run(|fs| fs.unlink_stream(named, FileTime(8))).unwrap();
    bench.run(|fs| fs.reclaim_stream(named)).unwrap();
    for _ in 0..100 {
        bench.poll();
    }
    assert_eq!(bench.used_blocks(&bob), 2);
    bench.write(plain, 0, &[1; 4096 * 4]).unwrap();
    bench.remove("plain");
    assert_eq!(bench.used_blocks(&bob), 0);
    bench.check_clean();
    bench.reopen();
    assert_eq!((bench.used_blocks(&ann), bench.used_blocks(&bob)), (0, 0));
    bench.check_clean();
}

#[test]
fn a_named_stream_costs_a_block_for_its_name_until_it_is_gone() {
    let mut bench = Bench::with(32, 1024, small());
    let ann = user(1);
    bench.enforce();
    bench.limit(&ann, 4 * BLOCK);
    let file = bench.create_of("file", &ann).file;
    let make = |bench: &mut Bench, number: usize| {
        bench.run(|fs| fs.create_stream(file, &wide(&format!("stream {number}")), FileTime(5)))
    };
    let streams: Vec<_> = (0..3).map(|number| make(&mut bench, number).unwrap()).collect();
    assert_eq!(make(&mut bench, 3), Err(FsError::QuotaExceeded));
    assert_eq!(bench.used_blocks(&ann), 4);
    // Content that takes no more costs no more.
    bench.write(streams[0], 0, &[1; 4096]).unwrap();
    assert_eq!(bench.write(streams[0], 4096, &[1; 1]), Err(FsError::QuotaExceeded));
    bench.flush_all().unwrap();
    assert_eq!(bench.used_blocks(&ann), 4);
    bench.check_clean();
    bench.run(|fs| fs.unlink_stream(streams[1], FileTime(8))).unwrap();
    bench.run(|fs| fs.reclaim_stream(streams[1])).unwrap();
    for _ in 0..100 {
        bench.poll();
    }
    assert_eq!(bench.used_blocks(&ann), 3);
    make(&mut bench, 3).unwrap();
    bench.remove("file");
    assert_eq!(bench.used_blocks(&ann), 0);
    bench.check_clean();
}

#[test]
pub fn names_are_bounded_by_their_owners_limit() {
    let mut bench = Bench::with(32, 1024, small());
    let (ann, bob) = (user(1), user(2));
    let security = owned_by(&ann);
    let new = NewFile { directory: true, security: &security, ..file(5) };
    let make = |bench: &mut Bench, number: usize| {
        bench.run(|fs| fs.create(FileId::ROOT, &wide(&format!("directory {number}")), &new))
    };
    let first = make(&mut bench, 0).unwrap();
    bench.enforce();
    assert_eq!(bench.used_blocks(&ann), 1, "what was there is counted");
    bench.limit(&ann, 4 * BLOCK);
    (1..3).for_each(|number| assert!(make(&mut bench, number).is_ok()));
    let plain = bench.create_of("file", &ann);
    assert_eq!(make(&mut bench, 3), Err(FsError::QuotaExceeded));
    // Data takes the place of the block for the name.
    bench.write(plain, 0, &[1; 4096]).unwrap();
    bench.flush_all().unwrap();
    assert_eq!(bench.used_blocks(&ann), 4);
    let link = |bench: &mut Bench, name: &str| {
        bench.run(|fs| fs.link(plain.file, first, &wide(name), true, FileTime(6)))
    };
    assert_eq!(link(&mut bench, "other").map(drop), Err(FsError::QuotaExceeded));
    bench.remove("directory 1");
    link(&mut bench, "other").unwrap();
    assert_eq!(bench.used_blocks(&ann), 4);
    bench.check_clean();
    // A name less, by each of the ways in which a file loses one that is not its last.
    bench.run(|fs| fs.unlink(first, &wide("other"), FileTime(7))).unwrap();
    assert_eq!(bench.used_blocks(&ann), 3);
    link(&mut bench, "other").unwrap();
    bench.create_of("new", &bob);
    bench.run(|fs| fs.rename(FileId::ROOT, &wide("new"), first, &wide("other"), true, FileTime(8))).unwrap();
    assert_eq!((bench.used_blocks(&ann), bench.used_blocks(&bob)), (3, 1));
    // Another owner takes the names over.
    link(&mut bench, "again").unwrap();
    let of_bob = owned_by(&bob);
    bench.run(|fs| fs.set_security(plain.file, &of_bob, FileTime(7))).unwrap();
    assert_eq!((bench.used_blocks(&ann), bench.used_blocks(&bob)), (2, 3));
    bench.check_clean();
    bench.reopen();
    assert_eq!((bench.used_blocks(&ann), bench.used_blocks(&bob)), (2, 3));
    bench.check_clean();
}

#[test]
fn growth_beyond_a_limit_is_refused_and_changes_nothing() {
    let mut bench = Bench::with(32, 1024, small());
    let (ann, bob) = (user(1), user(2));
    bench.enforce();
    bench.limit(&ann, 10 * BLOCK);
    let stream = bench.create_of("file", &ann);
    bench.write(stream, 0, &[1; 8 * 4096]).unwrap();
    assert_eq!(bench.fs.quota_room(&ann), Some((2 * BLOCK, 10 * BLOCK)));
    let other = bench.create_of("other", &ann);
    for _ in 0..2 {
        assert_eq!(bench.write(other, 0, &[1; 3 * 4096]), Err(FsError::QuotaExceeded));
        assert_eq!(
            bench.run(|fs| fs.set_end_of_file(other, 3 * BLOCK, FileTime(6))),
            Err(FsError::QuotaExceeded)
        );
        assert_eq!(
            bench.run(|fs| fs.set_allocation(other, 3 * BLOCK, FileTime(6))),
            Err(FsError::QuotaExceeded)
        );
        bench.flush_all().unwrap();
    }
    assert_eq!(bench.used_blocks(&ann), 9);
    bench.write(other, 0, &[1; 2 * 4096]).unwrap();
    // Existing data may be changed and cut.
    bench.write(stream, 100, &[2; 100]).unwrap();
    assert_eq!(bench.write(stream, 8 * BLOCK, &[2; 1]), Err(FsError::QuotaExceeded));
    bench.run(|fs| fs.set_end_of_file(other, 0, FileTime(6))).unwrap();
    bench.write(stream, 8 * BLOCK, &[2; 1]).unwrap();
    // Others have their own limits; administrators have none.
    let of_bob = bench.create_of("bob", &bob);
    bench.write(of_bob, 0, &[1; 20 * 4096]).unwrap();
    let of_ann = owned_by(&ann);
    let given = bench.run(|fs| fs.set_security(of_bob.file, &of_ann, FileTime(7)));
    assert_eq!(given, Err(FsError::QuotaExceeded));
    let administrators = Sid::administrators();
    bench.limit(&administrators, BLOCK);
    let theirs = bench.create_of("theirs", &administrators);
    bench.write(theirs, 0, &[1; 5 * 4096]).unwrap();
    // Quotas that are only tracked refuse nobody.
    bench.turn_quotas(QuotaMode::Track);
    bench.write(other, 0, &[1; 9 * 4096]).unwrap();
    bench.check_clean();
}

#[test]
fn users_without_limits_of_their_own_have_the_defaults() {
    let mut bench = Bench::with(32, 1024, small());
    let (ann, bob) = (user(1), user(2));
    let defaults = QuotaLimits { threshold_bytes: Some(BLOCK), limit_bytes: Some(2 * BLOCK) };
    let settings = QuotaSettings { mode: QuotaMode::Enforce, defaults, ..QuotaSettings::default() };
    bench.run(|fs| fs.set_quota_settings(settings)).unwrap();
    bench.counted();
    bench.limit(&bob, 5 * BLOCK);
    for (name, user, most) in [("a", &ann, 2), ("b", &bob, 5)] {
        let stream = bench.create_of(name, user);
        assert_eq!(bench.write(stream, 0, &vec![1; (most + 1) * 4096]), Err(FsError::QuotaExceeded));
        bench.write(stream, 0, &vec![1; most * 4096]).unwrap();
    }
    bench.run(|fs| fs.set_quota_limits(&bob, None, FileTime(9))).unwrap();
    assert_eq!(bench.fs.quota_room(&bob), Some((0, 2 * BLOCK)));
    let listed: Vec<_> = bench.fs.quota_users(None, 10).into_iter().map(|user| user.user).collect();
    assert_eq!(listed, [ann.clone(), bob.clone()]);
    assert_eq!(bench.fs.quota_users(Some(&ann), 10).len(), 1);
}

#[test]
fn files_that_were_there_before_are_counted_beside_changes_and_again_after_a_crash() {
    for crash_after in [0, 3, 9, 1000] {
        let mut bench = Bench::with(32, 1024, small());
        let users = [user(1), user(2), user(3)];
        let mut streams = Vec::new();
        for number in 0..300 {
            let stream = bench.create_of(&format!("file {number}"), &users[number % 3]);
            bench.write(stream, 0, &vec![1; (number % 5) * 4096]).unwrap();
            streams.push(stream);
        }
        bench.flush_all().unwrap();
        bench.turn_quotas(QuotaMode::Enforce);
        for round in 0..crash_after {
            if !bench.fs.quota_settings().1 {
                break;
            }
            bench.poll();
            // A change, immediately in the metadata, of a counted file, and of an uncounted one.
            for at in [1, 298] {
                let bytes = (10 + round) * BLOCK;
                bench.run(|fs| fs.set_allocation(streams[at], bytes, FileTime(6))).unwrap();
            }
        }
        if crash_after < 1000 {
            bench.flush_all().unwrap();
            bench.crash(|_| 0);
        }
        bench.counted();
        bench.check_clean();
        let all: u64 = users.iter().map(|user| bench.used_blocks(user)).sum();
        assert!(all > 500, "{all}");
    }
}

#[test]
fn counts_are_right_after_power_cuts_at_random_points() {
    for seed in 1..6 {
        let mut bench = Bench::with(24, 256, small());
        let mut random = Random(seed * 77 + 1);
        let users = [user(1), user(2)];
        bench.enforce();
        let names = ["a", "b", "c", "d", "e"];
        for _ in 0..12 {
            for _ in 0..25 {
                let name = names[random.below(5) as usize];
                let owner = users[random.below(2) as usize].clone();
                let found = bench.run(|fs| fs.lookup(FileId::ROOT, &wide(name)));
                let stream = match found {
                    Ok(entry) => StreamId::unnamed(entry.file),
                    Err(_) => bench.create_of(name, &owner),
                };
                let at = random.below(40) * 1000;
                match random.below(6) {
                    0 | 1 => drop(bench.write(stream, at, &vec![1; random.below(50_000) as usize])),
                    2 => drop(bench.run(|fs| fs.set_end_of_file(stream, at, FileTime(6)))),
                    3 => drop(bench.run(|fs| fs.set_allocation(stream, at, FileTime(6)))),
                    4 => drop(bench.run(|fs| fs.set_security(stream.file, &owned_by(&owner), FileTime(6)))),
                    _ => bench.remove(name),
                }
                if random.below(5) == 0 {
                    bench.sleep(Duration::from_millis(random.below(1500)));
                }
            }
            bench.crash(|pending| random.below(pending));
            let report = bench.check();
            assert!(report.problems.is_empty(), "seed {seed}: {:#?}", report.problems);
        }
    }
}

#[test]
fn a_check_finds_wrong_counts_and_counting_again_corrects_them() {
    let mut bench = Bench::with(32, 1024, small());
    let ann = user(1);
    bench.enforce();
    let stream = bench.create_of("file", &ann);
    bench.write(stream, 0, &[1; 8 * 4096]).unwrap();
    bench.flush_all().unwrap();
    // A size that changed and was not charged.
    let mut txn = Transaction::new();
    let mut inode = inodes::inode(&mut bench.fs.base.meta.store, &txn, stream.file).unwrap();
    inode.end_of_file = 20 * BLOCK;
    inodes::put_inode(&mut txn, stream.file, &inode);
    bench.fs.base.record(txn);
    let report = bench.check();
    assert_eq!((report.wrong_quotas, report.problem_count), (1, 1), "{report:?}");
    bench.run(FileSystem::recount_quotas).unwrap();
    bench.counted();
    assert_eq!(bench.used_blocks(&ann), 20);
    bench.check_clean();
}

#[test]
fn a_volume_with_quotas_says_so_to_older_programs_and_one_without_does_not() {
    let mut bench = Bench::with(32, 1024, small());
    let version = |bench: &mut Bench| {
        bench.fs.base.checkpointer.superblock.map(|superblock| superblock.encode()[8]).unwrap()
    };
    bench.create("file");
    assert_eq!(version(&mut bench), 2);
    bench.enforce();
    assert_eq!(version(&mut bench), 3);
    bench.reopen();
    assert_eq!(version(&mut bench), 3);
    bench.turn_quotas(QuotaMode::Off);
    bench.check_clean();
}

#[test]
fn without_quotas_nothing_is_recorded_for_them() {
    let mut bench = Bench::with(32, 1024, small());
    let stream = bench.create_of("file", &user(1));
    bench.write(stream, 0, &[1; 9000]).unwrap();
    bench.flush_all().unwrap();
    let store = &mut bench.fs.base.meta.store;
    let end = key::after(&key::quota_users());
    let found = store.next(&Transaction::new(), &key::quota_settings(), &end).unwrap();
    assert!(found.is_none());
}

#[test]
fn reparse_data_are_charged_by_whole_blocks_and_go_with_the_point() {
    let mut bench = Bench::with(32, 1024, small());
    let (ann, bob) = (user(1), user(2));
    bench.enforce();
    bench.limit(&ann, 6 * BLOCK);
    let link = bench.create_of("link", &ann).file;
    let full = vec![7; 16384];
    bench.run(|fs| fs.set_reparse(link, Some((9, &[1; 64])), FileTime(6))).unwrap();
    assert_eq!(bench.used_blocks(&ann), 1, "a quarter of a block is free");
    for (len_bytes, blocks) in [(1024, 0), (1025, 1), (4016, 1), (4097, 2)] {
        bench.run(|fs| fs.set_reparse(link, Some((9, &vec![1; len_bytes])), FileTime(6))).unwrap();
        assert_eq!(bench.used_blocks(&ann), 1 + blocks, "{len_bytes} bytes");
    }
    bench.run(|fs| fs.set_reparse(link, Some((9, &full)), FileTime(6))).unwrap();
    assert_eq!(bench.used_blocks(&ann), 5);
    let second = bench.create_of("second", &ann).file;
    let refused = bench.run(|fs| fs.set_reparse(second, Some((9, &full)), FileTime(6)));
    assert_eq!(refused, Err(FsError::QuotaExceeded));
    assert_eq!(bench.run(|fs| fs.attributes(second)).unwrap().reparse_tag, 0);
    let of_bob = owned_by(&bob);
    bench.run(|fs| fs.set_security(link, &of_bob, FileTime(7))).unwrap();
    assert_eq!((bench.used_blocks(&ann), bench.used_blocks(&bob)), (1, 5));
    bench.check_clean();
    bench.run(|fs| fs.set_reparse(link, None, FileTime(8))).unwrap();
    assert_eq!(bench.used_blocks(&bob), 1);
    bench.run(|fs| fs.set_reparse(link, Some((9, &full)), FileTime(6))).unwrap();
    bench.remove("link");
    assert_eq!(bench.used_blocks(&bob), 0);
    bench.reopen();
    bench.check_clean();
}
