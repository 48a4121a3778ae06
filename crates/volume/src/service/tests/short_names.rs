use super::*;
use crate::service::short_names::ShortNames;

fn short_name(bench: &mut Bench, open: OpenId) -> String {
    match bench.call(Operation::QueryShortName { open }) {
        Ok(Reply::Name(name)) => String::from_utf16_lossy(&name),
        other => panic!("{other:?}"),
    }
}

fn existing(path: &str) -> Create {
    Create { disposition: Disposition::Open, ..open_if(1, path) }
}

#[test]
fn a_short_name_opens_what_it_was_told_for() {
    let mut bench = Bench::new();
    let made = bench.create(open_if(1, "a long name.html")).expect("made");
    let short = short_name(&mut bench, made.open);
    bench.close(made.open).expect("closed");
    let found = bench.create(existing(&short.to_lowercase())).expect("opened by its short name");
    assert_eq!(found.path, wide("a long name.html"));
    assert_eq!(found.information.file_id, made.information.file_id);
    let root = bench_root(&mut bench);
    assert_eq!(bench.names(root, &short), ["a long name.html"]);
}

fn bench_root(bench: &mut Bench) -> OpenId {
    bench.create(root(1)).expect("the root").open
}

#[test]
fn a_listing_shows_short_names_that_open_their_files() {
    let mut bench = Bench::new();
    for name in ["a long name.html", "a long name.html too", "short.txt"] {
        let made = bench.create(open_if(1, name)).expect("made");
        bench.close(made.open).expect("closed");
    }
    let open = bench_root(&mut bench);
    let list = |bench: &mut Bench, short_names| {
        let pattern = wide("*");
        match bench.call(Operation::QueryDirectory { open, pattern, after: 0, entries_max: 9, short_names }) {
            Ok(Reply::Directory(entries)) => entries,
            other => panic!("{other:?}"),
        }
    };
    let entries = list(&mut bench, true);
    assert_eq!(entries.len(), 5);
    let mut told = 0;
    for entry in entries.iter().filter(|entry| entry.short_name.is_some()) {
        let short = String::from_utf16_lossy(entry.short_name.as_deref().unwrap_or_default());
        assert!(short.len() <= 12, "{short}");
        let found = bench.create(existing(&short)).expect("opened by its short name");
        assert_eq!(found.path, entry.name);
        told += 1;
    }
    assert_eq!(told, 2, "one name has the form itself, `.` and `..` are no names");
    assert!(list(&mut bench, false).iter().all(|entry| entry.short_name.is_none()));
}

#[test]
fn short_names_of_directories_lead_through_them() {
    let mut bench = Bench::new();
    let made = bench.create(directory(1, "a long directory")).expect("made");
    let short = short_name(&mut bench, made.open);
    bench.create(open_if(1, "a long directory\\file")).expect("made");
    let found = bench.create(existing(&format!("{short}\\file"))).expect("opened");
    assert_eq!(found.path, wide("a long directory\\file"));
}

#[test]
fn a_short_name_is_found_again_by_who_was_not_told_it() {
    let mut bench = Bench::new();
    let made = bench.create(open_if(1, "the file that was there before")).expect("made");
    for number in 0..300 {
        bench.create(open_if(1, &format!("the file number {number}"))).expect("made");
    }
    let short = short_name(&mut bench, made.open);
    bench.service.names = ShortNames::default();
    let found = bench.create(existing(&short)).expect("opened");
    assert_eq!(found.path, wide("the file that was there before"));
    assert_eq!(
        bench.create(existing("THEXX0~Q")).map(|found| found.path),
        Err(NtStatus::OBJECT_NAME_NOT_FOUND)
    );
}

#[test]
fn a_name_that_looks_like_the_short_one_of_another_is_its_own() {
    let mut bench = Bench::new();
    let made = bench.create(open_if(1, "a long name.html")).expect("made");
    let taken = short_name(&mut bench, made.open);
    let literal = bench.create(Create { disposition: Disposition::Create, ..open_if(1, &taken) });
    assert_eq!(literal.map(|found| found.path), Err(NtStatus::OBJECT_NAME_COLLISION));
    bench.service.names = ShortNames::default();
    bench
        .set(made.open, SetInformation::Rename { target: wide("x"), replace: false, posix: false })
        .expect("renamed");
    let literal = bench.create(open_if(1, &taken)).expect("made");
    bench
        .set(
            made.open,
            SetInformation::Rename { target: wide("a long name.html"), replace: false, posix: false },
        )
        .expect("renamed");
    let other = short_name(&mut bench, made.open);
    assert_ne!(other, taken);
    assert_eq!(bench.create(existing(&taken)).expect("opened").path, literal.path);
    assert_eq!(bench.create(existing(&other)).expect("opened").path, wide("a long name.html"));
}

#[test]
fn what_is_made_under_the_short_name_of_a_deleted_file_gets_its_long_name_for_a_while() {
    let mut bench = Bench::new();
    for (waited_s, expected) in [(1, "a long name.html"), (20, "")] {
        let made = bench.create(open_if(1, "a long name.html")).expect("made");
        let short = short_name(&mut bench, made.open);
        bench.set(made.open, SetInformation::Disposition { flags: 1 }).expect("marked");
        bench.close(made.open).expect("closed");
        bench.pass(Duration::from_secs(waited_s));
        let again = bench.create(open_if(1, &short)).expect("made");
        assert_eq!(again.action, CreateAction::Created);
        let expected = if expected.is_empty() { short.as_str() } else { expected };
        assert_eq!(again.path, wide(expected));
        bench.set(again.open, SetInformation::Disposition { flags: 1 }).expect("marked");
        bench.close(again.open).expect("closed");
    }
}

#[test]
fn a_rename_onto_a_short_name_replaces_the_file_that_has_it() {
    let mut bench = Bench::new();
    let target = bench.create(open_if(1, "a long name.html")).expect("made");
    let short = short_name(&mut bench, target.open);
    bench.close(target.open).expect("closed");
    let source = bench.create(open_if(1, "source")).expect("made");
    let onto = |replace| SetInformation::Rename { target: wide(&short), replace, posix: false };
    assert_eq!(bench.set(source.open, onto(false)).map(|_| ()), Err(NtStatus::OBJECT_NAME_COLLISION));
    bench.set(source.open, onto(true)).expect("renamed");
    let root = bench_root(&mut bench);
    let names = bench.names(root, "*");
    assert_eq!(names.iter().filter(|name| !name.starts_with('.')).count(), 1, "{names:?}");
}

#[test]
fn the_root_has_no_short_name_and_short_names_are_their_own() {
    let mut bench = Bench::new();
    let open = bench_root(&mut bench);
    let answer = bench.call(Operation::QueryShortName { open });
    assert_eq!(answer.map(|_| ()), Err(NtStatus::OBJECT_NAME_NOT_FOUND));
    let made = bench.create(open_if(1, "Readme.txt")).expect("made");
    assert_eq!(short_name(&mut bench, made.open), "README.TXT");
}
