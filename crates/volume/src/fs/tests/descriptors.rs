//! Security descriptors: counted by the files that have them, and gone with the last of these.

use super::crash::Random;
use super::*;
use crate::fs::meta::record::{DescriptorCountsRecord, Inode, ReferencesRecord};
use crate::fs::meta::{Key, Value};

/// Bytes of a descriptor, different for each number.
fn descriptor(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len.max(8)];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

impl Bench {
    /// All keys and values with a prefix.
    fn keys(&mut self, prefix: &[u8]) -> Vec<(Key, Value)> {
        let (mut from, end) = (Key::from_slice(prefix), key::after(prefix));
        let mut out = Vec::new();
        while let Some((found, value)) =
            self.run(|fs| fs.base.meta.store.next(&Transaction::new(), &from, &end)).expect("keys")
        {
            from = found.clone();
            from.push(0);
            out.push((found, value));
        }
        out
    }

    /// Waits until the references of all files are counted.
    fn count_descriptors(&mut self) {
        for _ in 0..10_000 {
            self.poll();
            if !self.fs.base.meta.descriptors.wants_step() {
                return;
            }
        }
        panic!("descriptors are counted for ever");
    }

    /// Compares the references of descriptors with the files.
    pub fn check_references(&mut self) {
        self.count_descriptors();
        let mut files: BTreeMap<SecurityId, u64> = BTreeMap::new();
        for (found, value) in self.keys(&key::file_first(FileId(0))[..1]) {
            if let key::Kind::Inode(_) = key::kind(&found) {
                *files.entry(Inode::decode(&value).expect("an inode").security).or_default() += 1;
            }
        }
        files.remove(&SecurityId::default());
        let counted: BTreeMap<SecurityId, u64> = self
            .keys(&key::all_security_hashes())
            .into_iter()
            .map(|(found, value)| {
                let record = ReferencesRecord::decode(&value).expect("references");
                (key::parse_security_hash(&found).expect("a descriptor").1, record.references)
            })
            .collect();
        assert_eq!(counted, files, "descriptors with their references, and those that files have");
        let stored: std::collections::BTreeSet<u64> = self
            .keys(&key::security(SecurityId(0))[..1])
            .iter()
            .filter_map(|(found, _)| key::parse_number(found))
            .collect();
        assert!(stored.iter().copied().eq(files.keys().map(|id| id.0)), "{stored:?} stored of {files:?}");
    }

    fn create_with(&mut self, name: &str, security: &[u8]) -> FileId {
        let (name, new) = (wide(name), NewFile { security, ..file(5) });
        self.run(|fs| fs.create(FileId::ROOT, &name, &new)).expect("a new file")
    }

    fn delete(&mut self, name: &str) {
        let gone = self.run(|fs| fs.unlink(FileId::ROOT, &wide(name), FileTime(9))).expect("a file");
        self.run(|fs| fs.reclaim(gone.file)).expect("no names");
        self.poll();
    }
}

#[test]
pub fn a_descriptor_goes_with_the_last_file_that_has_it() {
    let mut bench = Bench::with(32, 1024, small());
    let (first, second) = (descriptor(1, 61_000), descriptor(2, 200));
    bench.create_with("a", &first);
    let shares = bench.create_with("b", &first);
    bench.check_clean();
    assert_eq!(bench.keys(&key::all_security_hashes()).len(), 2, "the root's, and one of two files");
    bench.delete("a");
    bench.check_clean();
    bench.run(|fs| fs.set_security(shares, &second, FileTime(6))).unwrap();
    bench.check_clean();
    // A removed descriptor can be stored again, by a volume that remembers its hash.
    bench.create_with("a", &first);
    bench.check_clean();
    bench.delete("a");
    bench.delete("b");
    bench.check_clean();
    assert_eq!(bench.keys(&key::all_security_hashes()).len(), 1, "the root's");
    bench.reopen();
    bench.check_clean();
}

#[test]
pub fn descriptors_that_are_made_and_deleted_for_ever_fill_no_volume() {
    let mut bench = Bench::with(24, 256, small());
    let before = bench.disk.size().available.0;
    for round in 0..600 {
        bench.create_with("a", &descriptor(round, 61_000));
        bench.delete("a");
        bench.now = bench.now.after(Duration::from_millis(20));
        bench.poll();
    }
    bench.flush_all().unwrap();
    bench.sleep(Duration::from_secs(5));
    bench.check_clean();
    let lost = before - bench.disk.size().available.0;
    assert!(lost <= 6 * 256, "36 MB of descriptors were made and deleted, and {lost} blocks are missing");
}

#[test]
fn counts_come_back_whenever_the_power_goes() {
    for seed in 0..12 {
        let mut random = Random(seed * 77 + 5);
        let mut bench = Bench::with(32, 1024, small());
        let mut names: Vec<String> = Vec::new();
        for step in 0..300 {
            let security = descriptor(random.below(6), [20, 4000, 9000][random.below(3) as usize]);
            match random.below(8) {
                0..3 => {
                    let name = format!("{step}");
                    bench.create_with(&name, &security);
                    names.push(name);
                }
                3..5 if !names.is_empty() => {
                    let name = names.swap_remove(random.below(names.len() as u64) as usize);
                    bench.delete(&name);
                }
                5 if !names.is_empty() => {
                    let name = wide(&names[random.below(names.len() as u64) as usize]);
                    let found = bench.run(|fs| fs.lookup(FileId::ROOT, &name)).expect("a file").file;
                    bench.run(|fs| fs.set_security(found, &security, FileTime(7))).unwrap();
                }
                6 => bench.sleep(Duration::from_millis(random.below(1500))),
                _ if random.below(8) == 0 => {
                    if random.below(2) == 0 {
                        bench.check_references();
                    }
                    bench.crash(|pending| random.below(pending + 1));
                    names = bench
                        .run(|fs| fs.list(FileId::ROOT, None, 1000))
                        .expect("names")
                        .iter()
                        .map(|entry| String::from_utf16_lossy(&entry.name))
                        .collect();
                }
                _ => bench.poll(),
            }
        }
        bench.check_clean();
        bench.reopen();
        bench.check_clean();
    }
}

/// Removes the counts, as by a program without them; `between`: another program has opened the volume
/// since they were made.
fn without_counts(bench: &mut Bench, between: bool) {
    let mut txn = Transaction::new();
    let counts = key::counter(key::Counter::References);
    if between {
        let value = bench.run(|fs| fs.base.meta.store.get(&Transaction::new(), &counts)).unwrap().unwrap();
        let record = DescriptorCountsRecord::decode(&value).unwrap();
        txn.put(counts, DescriptorCountsRecord { incarnation: record.incarnation - 1, ..record }.encode());
    } else {
        txn.delete(counts);
        for (found, _) in bench.keys(&key::all_security_hashes()) {
            txn.put(found, Vec::new());
        }
    }
    // A file goes, and nobody counts that.
    let gone = bench.run(|fs| fs.lookup(FileId::ROOT, &wide("uncounted"))).unwrap().file;
    for found in [
        key::inode(gone),
        key::entry(FileId::ROOT, &wide("uncounted")),
        key::link(gone, FileId::ROOT, &wide("uncounted")),
    ] {
        txn.delete(found);
    }
    bench.fs.base.record(txn);
    bench.flush_all().unwrap();
}

#[test]
fn a_volume_whose_files_were_changed_without_counts_is_counted_and_loses_what_no_file_has() {
    for between in [false, true] {
        let mut bench = Bench::with(32, 1024, small());
        for number in 0..200 {
            bench.create_with(&format!("{number}"), &descriptor(number % 7, 3000));
        }
        bench.create_with("uncounted", &descriptor(99, 20_000));
        bench.count_descriptors();
        without_counts(&mut bench, between);
        bench.reopen();
        // Changes continue while files are counted.
        for number in 0..100 {
            bench.delete(&format!("{}", number * 2));
            bench.create_with(&format!("new {number}"), &descriptor(50 + number % 3, 100));
        }
        bench.check_clean();
        assert_eq!(bench.keys(&key::all_security_hashes()).len(), 1 + 7 + 3);
    }
}

#[test]
fn a_descriptor_is_charged_to_the_owner_by_the_block() {
    use crate::security::SecurityDescriptor;
    let user = ::types::Sid::new(5, &[21, 1, 2, 3, 1001]).expect("a SID");
    let owned = |number: u64, len: usize| {
        let mut bytes =
            SecurityDescriptor { owner: Some(user.clone()), ..Default::default() }.build().unwrap();
        bytes.resize(len, 0);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes
    };
    let mut bench = Bench::with(32, 1024, small());
    let settings = QuotaSettings { mode: QuotaMode::Enforce, ..bench.fs.quota_settings().0 };
    bench.run(|fs| fs.set_quota_settings(settings)).unwrap();
    while bench.fs.quota_settings().1 {
        bench.poll();
    }
    let limits = QuotaLimits { threshold_bytes: None, limit_bytes: Some((1 << 20) + 2 * 4096) };
    bench.run(|fs| fs.set_quota_limits(&user, Some(limits), FileTime(9))).unwrap();
    let mut made = 0;
    let refused = loop {
        let (name, security) = (wide(&format!("{made}")), owned(made, 61_000));
        let new = NewFile { security: &security, ..file(5) };
        match bench.run(|fs| fs.create(FileId::ROOT, &name, &new)) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 100);
    };
    // A block for the name, and the fifteen that the descriptor begins.
    assert_eq!((refused, made), (FsError::QuotaExceeded, (1 << 20) / (16 * 4096)));
    bench.check_clean();
    let small_one = owned(1000, 500);
    let name = wide("small");
    let new = NewFile { security: &small_one, ..file(5) };
    let small_file = bench.run(|fs| fs.create(FileId::ROOT, &name, &new)).expect("a name has room");
    let large = owned(1001, 61_000);
    assert_eq!(bench.run(|fs| fs.set_security(small_file, &large, FileTime(8))), Err(FsError::QuotaExceeded));
    bench
        .run(|fs| fs.hand_down_security(small_file, &large, FileTime(8)))
        .expect("an administrator is not refused");
    bench.check_clean();
    for number in 0..made {
        bench.delete(&format!("{number}"));
    }
    bench.delete("small");
    for _ in 0..50 {
        bench.poll();
    }
    assert_eq!(bench.fs.quota_user(&user).used_bytes, 0);
    bench.check_clean();
}
