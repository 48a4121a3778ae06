//! Memory and time of a turn that long paths, long lists and many holders of the same file may take.

use super::*;
use crate::security::{Ace, AceFlags, Acl, Control, SecurityDescriptor};
use crate::service::caching::CACHING_MAX;
use crate::service::descriptors::{DESCRIPTOR_BYTES_MAX, Descriptors};

fn level_two(session: u64) -> Create {
    Create { cache: CacheRequest::Oplock(OplockLevel::LevelII), ..open_if(session, "file") }
}

/// Makes opens without polls after each.
fn create_all(bench: &mut Bench, creates: impl Iterator<Item = Create>) -> Vec<Created> {
    let mut operations = Vec::new();
    for create in creates {
        let operation = OperationId(bench.next);
        bench.next += 1;
        bench.service.submit(operation, Operation::Create(Box::new(create)), bench.now);
        operations.push(operation);
    }
    while bench.answers.len() < operations.len() {
        bench.run_polls();
    }
    let created = |operation| match bench.answers.remove(&operation) {
        Some(Ok(Reply::Created(created))) => *created,
        other => panic!("{other:?}"),
    };
    operations.into_iter().map(created).collect()
}

#[test]
fn one_write_tells_no_more_than_so_many_that_they_cache_nothing_any_more() {
    let mut bench = Bench::new();
    let more = 3;
    let opens = create_all(&mut bench, (0..CACHING_MAX + more).map(|_| level_two(1)));
    let granted = |created: &Created| created.cache == CacheGrant::Oplock(OplockLevel::LevelII);
    assert!(opens[..CACHING_MAX].iter().all(granted));
    assert!(!opens[CACHING_MAX..].iter().any(granted));
    let writer = bench.create(open_if(2, "file")).unwrap();
    bench.told.clear();
    bench.write(writer.open, 0, b"x").unwrap();
    let told = bench.told.iter().filter(|event| matches!(event, Event::BreakOplock { .. })).count();
    assert_eq!(told, CACHING_MAX);
    // Broken holders no longer keep others from caching.
    assert!(granted(&bench.create(level_two(3)).unwrap()));
}

#[test]
fn a_lease_that_was_granted_nothing_breaks_like_any_other_once_it_has_something() {
    let mut bench = Bench::new();
    let lease = |state| CacheRequest::Lease(LeaseRequest { key: [7; 16], state, version_2: None });
    let read = |state| Create {
        cache: lease(state),
        desired_access: rights::FILE_GENERIC_READ,
        ..open_if(1, "file")
    };
    let first = bench.create(read(LeaseState::empty())).unwrap();
    let second = bench.create(read(LeaseState::READ)).unwrap();
    assert!(matches!(second.cache, CacheGrant::Lease { state: LeaseState::READ, .. }), "{:?}", second.cache);
    bench.close(second.open).unwrap();
    let writer = bench.create(open_if(2, "file")).unwrap();
    bench.told.clear();
    bench.write(writer.open, 0, b"x").unwrap();
    let told = bench.told.iter().filter(|event| matches!(event, Event::BreakLease { .. })).count();
    assert_eq!(told, 1, "the first open still has the lease");
    bench.close(first.open).unwrap();
}

#[test]
fn an_open_with_a_long_path_counts_for_several() {
    let mut bench = Bench::with_opens(40);
    let name = "n".repeat(255);
    let mut path = String::new();
    for _ in 0..4 {
        path += &name;
        let made = bench.create(directory(1, &path)).unwrap();
        bench.close(made.open).unwrap();
        path += "\\";
    }
    // 1,028 code units and two kilobytes: three of forty.
    path += "file";
    let mut opens = Vec::new();
    for _ in 0..6 {
        opens.push(bench.create(open_if(1, &path)).unwrap().open);
    }
    let refused = NtStatus::TOO_MANY_OPENED_FILES;
    assert_eq!(bench.create(open_if(1, &path)).unwrap_err(), refused);
    bench.create(open_if(1, "short")).unwrap();
    for open in opens {
        bench.close(open).unwrap();
    }
    // Nor does a path become long for nothing.
    let mut last = None;
    for _ in 0..18 {
        last = Some(bench.create(open_if(1, "short")).unwrap().open);
    }
    let rename = |target: &str| SetInformation::Rename { target: wide(target), replace: true, posix: false };
    let answer = bench.set(last.unwrap(), rename(&path));
    assert_eq!(answer.unwrap_err(), NtStatus::INSUFFICIENT_RESOURCES);
    bench.set(last.unwrap(), rename("renamed")).unwrap();
}

#[test]
fn a_path_has_no_more_names_than_lead_back_up_to_the_root() {
    let mut bench = Bench::new();
    let mut create = |path: &str| bench.create(open_if(1, path)).map(|created| created.action);
    assert_eq!(create(&["a"; 4096].join("\\")), Err(NtStatus::OBJECT_PATH_NOT_FOUND));
    assert_eq!(create(&["a"; 4097].join("\\")), Err(NtStatus::OBJECT_NAME_INVALID));
    // Names that `..` takes back do not count.
    assert_eq!(create(&format!("{}file", "a\\..\\".repeat(5000))), Ok(CreateAction::Created));
}

/// A list of this many entries that say nothing of anybody, unlike that of every other `number`.
fn long_list(number: u32, entries: u32) -> Vec<u8> {
    let of_nobody = |entry| Sid::new(9, &[number, entry]).expect("a SID");
    let nothing = (0..entries).map(|entry| Ace::deny(of_nobody(entry), rights::READ_DATA, AceFlags::empty()));
    let all = Ace::allow(Sid::everyone(), rights::FILE_ALL, AceFlags::empty());
    let descriptor = SecurityDescriptor {
        control: Control::DACL_PRESENT,
        dacl: Some(Acl::new(nothing.chain([all]).collect())),
        ..SecurityDescriptor::default()
    };
    descriptor.build().expect("short enough")
}

#[test]
fn a_listing_that_looks_at_long_lists_goes_on_in_further_turns() {
    let mut bench = Bench::new();
    let files = 120;
    for number in 0..files {
        let create = open_if(1, &format!("file{number}"));
        let made = bench.create(Create { security: Some(long_list(number, 2000)), ..create }).unwrap();
        bench.close(made.open).unwrap();
    }
    bench.service.descriptors = Descriptors::default();
    let share = ShareOptions { access_based_enumeration: true, ..ShareOptions::default() };
    let root = root(1);
    let open = bench.create(Create { caller: Caller { share, ..caller(1) }, ..root }).unwrap().open;
    let list = Operation::QueryDirectory {
        open,
        pattern: wide("*"),
        after: 0,
        entries_max: 4096,
        short_names: false,
    };
    let operation = OperationId(bench.next);
    bench.next += 1;
    bench.service.poll(&mut Vec::new());
    bench.service.submit(operation, list, bench.now);
    let mut turns = 0;
    let mut events = Vec::new();
    while events.is_empty() {
        turns += 1;
        bench.service.poll(&mut events);
    }
    assert!(turns > 2, "three steps for each of {files} times 2,000 entries take {turns} turns");
    let [Event::Done { result: Ok(Reply::Directory(found)), .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(found.len(), files as usize + 2);
    assert!(bench.service.descriptors.stored_bytes() <= DESCRIPTOR_BYTES_MAX);
}
