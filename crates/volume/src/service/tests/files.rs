use super::*;
use crate::fs::{QuotaMode, QuotaSettings};
use crate::security::{self, Ace, AceFlags, Acl, SecurityDescriptor};

#[test]
fn what_is_written_is_read_and_survives_closing() {
    let mut bench = Bench::new();
    let file = bench.create(open_if(1, "a.txt")).expect("made");
    assert_eq!(file.action, CreateAction::Created);
    bench.write(file.open, 3, b"hello").expect("written");
    assert_eq!(bench.read(file.open, 0, 100), Ok(b"\0\0\0hello".to_vec()));
    assert_eq!(bench.read(file.open, 8, 1), Err(NtStatus::END_OF_FILE));
    bench.close(file.open).expect("closed");
    assert_eq!(bench.read(file.open, 0, 1), Err(NtStatus::FILE_CLOSED));
    let again = bench.create(open_if(1, "A.TXT")).expect("opened");
    assert_eq!((again.action, again.information.end_of_file), (CreateAction::Opened, 8));
    assert_eq!(again.path, wide("a.txt"));
}

#[test]
fn dispositions_follow_the_table() {
    use Disposition::*;
    let mut bench = Bench::new();
    let table = [
        (Open, Err(NtStatus::OBJECT_NAME_NOT_FOUND), Ok(CreateAction::Opened)),
        (Create, Ok(CreateAction::Created), Err(NtStatus::OBJECT_NAME_COLLISION)),
        (OpenIf, Ok(CreateAction::Created), Ok(CreateAction::Opened)),
        (Overwrite, Err(NtStatus::OBJECT_NAME_NOT_FOUND), Ok(CreateAction::Overwritten)),
        (OverwriteIf, Ok(CreateAction::Created), Ok(CreateAction::Overwritten)),
        (Supersede, Ok(CreateAction::Created), Ok(CreateAction::Superseded)),
    ];
    for (disposition, missing, existing) in table {
        for (path, expected) in [("missing", missing), ("existing", existing)] {
            let there = bench.create(open_if(1, "existing")).expect("made");
            bench.close(there.open).expect("closed");
            let found = bench.create(crate::backend::Create { disposition, ..open_if(1, path) });
            assert_eq!(found.as_ref().map(|created| created.action).map_err(|status| *status), expected);
            if let Ok(created) = found {
                bench.set(created.open, SetInformation::Disposition { flags: 1 }).expect("marked");
                bench.close(created.open).expect("closed");
            }
        }
    }
}

#[test]
fn paths_that_lead_nowhere_say_where_they_end() {
    let mut bench = Bench::new();
    bench.create(open_if(1, "file")).expect("made");
    let open = |path: &str| Create { disposition: Disposition::Open, ..open_if(1, path) };
    for (path, status) in [
        ("nothing", NtStatus::OBJECT_NAME_NOT_FOUND),
        ("nothing\\below", NtStatus::OBJECT_PATH_NOT_FOUND),
        ("file\\below", NtStatus::OBJECT_PATH_NOT_FOUND),
        ("\\file", NtStatus::INVALID_PARAMETER),
        ("fi*le", NtStatus::OBJECT_NAME_INVALID),
        ("file:a:b", NtStatus::OBJECT_NAME_INVALID),
        ("file:stream", NtStatus::OBJECT_NAME_NOT_FOUND),
        ("..\\file", NtStatus::OBJECT_PATH_SYNTAX_BAD),
    ] {
        assert_eq!(bench.create(open(path)).map(|created| created.path), Err(status), "{path}");
    }
}

#[test]
fn share_modes_keep_opens_apart() {
    let mut bench = Bench::new();
    let reader = Create { desired_access: rights::READ_DATA, share_access: 1, ..open_if(1, "file") };
    let first = bench.create(reader.clone()).expect("made");
    bench.create(reader.clone()).expect("readers agree");
    let writer = Create { desired_access: rights::WRITE_DATA, ..open_if(2, "file") };
    assert_eq!(bench.create(writer).map(|_| ()), Err(NtStatus::SHARING_VIOLATION));
    let attributes =
        Create { desired_access: rights::READ_ATTRIBUTES, share_access: 0, ..open_if(2, "file") };
    bench.create(attributes).expect("attributes are nobody's business");
    bench.close(first.open).expect("closed");
}

#[test]
fn a_file_marked_for_deletion_goes_with_its_last_open() {
    let mut bench = Bench::new();
    let first = bench.create(open_if(1, "file")).expect("made");
    let second = bench.create(open_if(2, "file")).expect("opened");
    bench.set(first.open, SetInformation::Disposition { flags: 1 }).expect("marked");
    assert!(bench.information(second.open).delete_pending);
    assert_eq!(bench.create(open_if(1, "file")).map(|_| ()), Err(NtStatus::DELETE_PENDING));
    bench.close(first.open).expect("closed");
    assert_eq!(bench.create(open_if(1, "file")).map(|_| ()), Err(NtStatus::DELETE_PENDING));
    bench.close(second.open).expect("closed");
    let again = bench.create(open_if(1, "file")).expect("made anew");
    assert_eq!(again.action, CreateAction::Created);
}

#[test]
fn a_directory_with_entries_is_not_deleted() {
    let mut bench = Bench::new();
    let outer = bench.create(directory(1, "outer")).expect("made");
    let inner = bench.create(open_if(1, "outer\\inner")).expect("made");
    let delete = SetInformation::Disposition { flags: 1 };
    assert_eq!(bench.set(outer.open, delete.clone()).map(|_| ()), Err(NtStatus::DIRECTORY_NOT_EMPTY));
    bench.set(inner.open, delete.clone()).expect("marked");
    bench.close(inner.open).expect("closed");
    bench.set(outer.open, delete).expect("marked");
    assert_eq!(bench.create(open_if(1, "outer\\new")).map(|_| ()), Err(NtStatus::DELETE_PENDING));
    bench.close(outer.open).expect("closed");
    let open = Create { disposition: Disposition::Open, ..directory(1, "outer") };
    assert_eq!(bench.create(open).map(|_| ()), Err(NtStatus::OBJECT_NAME_NOT_FOUND));
}

#[test]
fn a_listing_has_dots_and_all_that_matches() {
    let mut bench = Bench::new();
    for name in ["a.txt", "b.txt", "c.doc", "d"] {
        bench.create(open_if(1, name)).expect("made");
    }
    let root = bench.create(root(1)).expect("opened");
    assert_eq!(bench.names(root.open, "*"), [".", "..", "a.txt", "b.txt", "c.doc", "d"]);
    assert_eq!(bench.names(root.open, "*.TXT"), ["a.txt", "b.txt"]);
    assert_eq!(bench.names(root.open, "D"), ["d"]);
}

#[test]
fn a_rename_moves_the_entry_and_its_opens() {
    let mut bench = Bench::new();
    let to = bench.create(directory(1, "to")).expect("made");
    bench.close(to.open).expect("closed");
    let file = bench.create(open_if(1, "from")).expect("made");
    let other = bench.create(open_if(1, "to\\taken")).expect("made");
    bench.close(other.open).expect("closed");
    let rename =
        |target: &str, replace| SetInformation::Rename { target: wide(target), replace, posix: false };
    assert_eq!(
        bench.set(file.open, rename("to\\taken", false)).map(|_| ()),
        Err(NtStatus::OBJECT_NAME_COLLISION)
    );
    assert_eq!(
        bench.set(file.open, rename("nowhere\\x", false)).map(|_| ()),
        Err(NtStatus::OBJECT_PATH_NOT_FOUND)
    );
    bench.set(file.open, rename("to\\Taken", true)).expect("renamed");
    let found = bench.service.list_opens().into_iter().find(|open| open.open == file.open).expect("open");
    assert_eq!(found.path, wide("to\\Taken"));
    let open = Create { disposition: Disposition::Open, ..open_if(1, "from") };
    assert_eq!(bench.create(open).map(|_| ()), Err(NtStatus::OBJECT_NAME_NOT_FOUND));
}

#[test]
fn streams_live_beside_the_unnamed_one() {
    let mut bench = Bench::new();
    let stream = bench.create(open_if(1, "file:one")).expect("made");
    assert!(stream.is_stream);
    bench.write(stream.open, 0, b"stream").expect("written");
    let base = bench.create(open_if(1, "file")).expect("opened");
    assert_eq!(base.information.end_of_file, 0);
    let Ok(Reply::Streams(streams)) = bench.call(Operation::QueryStreams { open: base.open }) else {
        panic!("no streams")
    };
    let names: Vec<String> = streams.iter().map(|stream| String::from_utf16_lossy(&stream.name)).collect();
    assert_eq!(names, ["::$DATA", ":one:$DATA"]);
    bench.set(stream.open, SetInformation::Disposition { flags: 1 }).expect("marked");
    bench.close(stream.open).expect("closed");
    let open = Create { disposition: Disposition::Open, ..open_if(1, "file:one") };
    assert_eq!(bench.create(open).map(|_| ()), Err(NtStatus::OBJECT_NAME_NOT_FOUND));
}

#[test]
fn another_user_gets_what_the_descriptor_gives() {
    let mut bench = Bench::new();
    let file = bench.create(open_if(1, "mine")).expect("made");
    bench.close(file.open).expect("closed");
    let mut theirs = Create { desired_access: rights::WRITE_DAC, ..open_if(2, "mine") };
    theirs.caller.token = user(2);
    assert_eq!(bench.create(theirs.clone()).map(|_| ()), Err(NtStatus::ACCESS_DENIED));
    theirs.desired_access = rights::MAXIMUM_ALLOWED;
    let granted = bench.create(theirs).expect("opened").granted_access;
    assert_eq!(granted & rights::WRITE_DAC, 0);
    assert_ne!(granted & rights::READ_DATA, 0);
}

#[test]
fn readonly_files_are_neither_written_nor_deleted() {
    let mut bench = Bench::new();
    let file = bench.create(Create { attributes: 1, ..open_if(1, "file") }).expect("made");
    bench.write(file.open, 0, b"x").expect("the creator's open may write");
    assert_eq!(
        bench.set(file.open, SetInformation::Disposition { flags: 1 }).map(|_| ()),
        Err(NtStatus::CANNOT_DELETE)
    );
    bench.close(file.open).expect("closed");
    assert_eq!(bench.create(open_if(1, "file")).map(|_| ()), Err(NtStatus::ACCESS_DENIED));
    let reader = Create { desired_access: rights::READ_DATA, ..open_if(1, "file") };
    bench.create(reader).expect("readable");
}

#[test]
fn a_copy_within_the_server_equals_its_source() {
    let mut bench = Bench::new();
    let source = bench.create(open_if(1, "source")).expect("made");
    let target = bench.create(open_if(1, "target")).expect("made");
    bench.write(source.open, 0, b"0123456789").expect("written");
    let chunks = vec![
        CopyChunk { source_offset: 5, target_offset: 0, len_bytes: 5 },
        CopyChunk { source_offset: 0, target_offset: 5, len_bytes: 5 },
    ];
    let copy = Operation::CopyChunks { source: source.open, target: target.open, chunks };
    assert!(matches!(bench.call(copy), Ok(Reply::Copied { chunks: 2, bytes: 10 })));
    assert_eq!(bench.read(target.open, 0, 10), Ok(b"5678901234".to_vec()));
    let beyond = vec![CopyChunk { source_offset: 5, target_offset: 0, len_bytes: 6 }];
    let copy = Operation::CopyChunks { source: source.open, target: target.open, chunks: beyond };
    assert_eq!(bench.call(copy).map(|_| ()), Err(NtStatus::INVALID_VIEW_SIZE));
}

#[test]
fn a_symbolic_link_on_the_way_stops_the_create_with_its_data() {
    let mut bench = Bench::new();
    let link = bench.create(directory(1, "link")).expect("made");
    let mut data = 0xA000_000C_u32.to_le_bytes().to_vec();
    data.extend_from_slice(&[4, 0, 0, 0, 1, 2, 3, 4]);
    bench.call(Operation::SetReparsePoint { open: link.open, data: data.clone() }).expect("set");
    bench.close(link.open).expect("closed");
    let expected = |unparsed_bytes| Some(Refusal::on_symlink(data.clone(), unparsed_bytes));
    for (path, unparsed_bytes) in [
        ("link", 0),
        ("link:stream", 14),
        ("link\\file", 10),
        ("link\\file:stream", 24),
        ("link\\a\\..\\file", 20),
        ("link\\", 2),
        ("a\\..\\link\\file", 10),
    ] {
        let stopped = bench.start(Operation::Create(Box::new(open_if(1, path))));
        let refused = bench.full_answer(stopped).and_then(Result::err);
        assert_eq!(refused, expected(unparsed_bytes), "{path}");
    }
    // Neither a rename nor a hard link changes anything, and neither reports success.
    let file = bench.create(open_if(1, "file")).expect("made");
    let target = wide("link\\new");
    for set in [
        SetInformation::Rename { target: target.clone(), replace: false, posix: false },
        SetInformation::Link { target, replace: false },
    ] {
        let stopped = bench.start(Operation::SetInformation { open: file.open, set });
        assert_eq!(bench.full_answer(stopped).and_then(Result::err), expected(8));
    }
}

#[test]
fn watchers_hear_of_changes_between_and_during_their_requests() {
    let mut bench = Bench::new();
    let root = bench.create(root(1)).expect("opened");
    let notify = Operation::Notify { open: root.open, filter: 3, tree: true, bytes_max: 4096 };
    let waiting = bench.start(notify.clone());
    assert!(bench.is_waiting(waiting));
    bench.create(directory(1, "sub")).expect("made");
    match bench.answer(waiting) {
        Some(Ok(Reply::Notify(changes))) => assert_eq!(changes, [(1, wide("sub"))]),
        other => panic!("{other:?}"),
    }
    bench.create(open_if(1, "sub\\file")).expect("made");
    match bench.call(notify.clone()) {
        Ok(Reply::Notify(changes)) => assert_eq!(changes, [(1, wide("sub\\file"))]),
        other => panic!("{other:?}"),
    }
    let waiting = bench.start(notify);
    bench.close(root.open).expect("closed");
    assert_eq!(bench.answer(waiting).map(|answer| answer.map(|_| ())), Some(Err(NtStatus::NOTIFY_CLEANUP)));
}

#[test]
fn the_write_time_follows_the_first_write_after_two_seconds_and_the_last_at_close() {
    let mut bench = Bench::new();
    let file = bench.create(open_if(1, "file")).expect("made");
    let created = file.information.written;
    bench.pass(Duration::from_secs(1));
    bench.write(file.open, 0, b"x").expect("written");
    assert_eq!(bench.information(file.open).written, created);
    bench.pass(Duration::from_secs(3));
    let first = bench.information(file.open).written;
    assert!(first > created);
    bench.write(file.open, 0, b"x").expect("written");
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.information(file.open).written, first);
    match bench.call(Operation::Close { open: file.open, query: true }) {
        Ok(Reply::Closed(Some(information))) => assert!(information.written > first),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_frozen_time_is_not_changed_by_writes_until_it_thaws() {
    let mut bench = Bench::new();
    let file = bench.create(open_if(1, "file")).expect("made");
    let created = file.information.written;
    let set = |written| SetInformation::Basic {
        created: SetTime::Keep,
        accessed: SetTime::Keep,
        written,
        changed: SetTime::Keep,
        attributes: None,
    };
    bench.set(file.open, set(SetTime::Freeze)).expect("frozen");
    bench.pass(Duration::from_secs(1));
    bench.write(file.open, 0, b"x").expect("written");
    bench.call(Operation::Flush { open: file.open }).expect("flushed");
    assert_eq!(bench.information(file.open).written, created);
    bench.set(file.open, set(SetTime::Thaw)).expect("thawed");
    bench.write(file.open, 0, b"x").expect("written");
    bench.call(Operation::Flush { open: file.open }).expect("flushed");
    assert!(bench.information(file.open).written > created);
}

#[test]
fn an_open_that_may_only_append_writes_at_the_end_and_behind_it_alone() {
    let mut bench = Bench::new();
    let file = bench.create(open_if(1, "file")).expect("made");
    bench.write(file.open, 0, b"head").expect("written");
    let log = Create { desired_access: rights::APPEND_DATA, ..open_if(2, "file") };
    let log = bench.create(log).expect("opened");
    assert_eq!(bench.write(log.open, 0, b"tail").err(), Some(NtStatus::ACCESS_DENIED));
    assert_eq!(bench.write(log.open, 3, b"tail").err(), Some(NtStatus::ACCESS_DENIED));
    bench.write(log.open, 4, b"tail").expect("written");
    bench.write(log.open, u64::MAX, b".").expect("written");
    bench.write(file.open, u64::MAX, b"!").expect("written");
    assert_eq!(bench.read(file.open, 0, 100), Ok(b"headtail.!".to_vec()));
}

#[test]
fn a_volume_of_files_has_no_devices() {
    let mut bench = Bench::new();
    let Create { caller, path, .. } = open_if(1, "disk");
    let device = Operation::OpenDevice(Box::new(OpenDevice { caller, path, context: vec![1; 56] }));
    assert_eq!(bench.call(device).err(), Some(NtStatus::INVALID_DEVICE_REQUEST));
    let file = bench.create(open_if(1, "file")).expect("made");
    let control =
        Operation::Control { open: file.open, code: 0x0009_2000, input: vec![0; 32], output_bytes_max: 64 };
    assert_eq!(bench.call(control).err(), Some(NtStatus::INVALID_DEVICE_REQUEST));
}

#[test]
fn what_the_volume_could_never_hold_is_refused_of_a_file_without_holes() {
    let mut bench = Bench::new();
    let open = bench.create(open_if(1, "file")).expect("made").open;
    let capacity = bench.service.file_system().capacity_bytes();
    let grow = |bench: &mut Bench, bytes| bench.set(open, SetInformation::EndOfFile(bytes)).map(|_| ());
    assert_eq!(grow(&mut bench, 1 << 40), Err(NtStatus::DISK_FULL));
    assert_eq!(bench.write(open, 1 << 40, b"far").map(|_| ()), Err(NtStatus::DISK_FULL));
    let free = bench.service.file_system().statistics().available_bytes;
    assert_eq!(grow(&mut bench, free + (1 << 20)), Err(NtStatus::DISK_FULL));
    assert_eq!(bench.information(open).end_of_file, 0);
    // As large as the free space, and reported as fully allocated.
    assert_eq!(grow(&mut bench, free - 5000), Ok(()));
    let told = bench.information(open);
    assert_eq!(told.allocation_bytes, (free - 5000).next_multiple_of(4096));
    assert_eq!(grow(&mut bench, 10), Ok(()));
    assert_eq!(bench.information(open).allocation_bytes, 4096);
    // Holes take nothing, and are reported so.
    bench.call(Operation::SetSparse { open, sparse: true }).expect("sparse");
    assert_eq!(grow(&mut bench, 1 << 40), Ok(()));
    bench.write(open, 1 << 41, b"far").expect("written");
    assert!(bench.information(open).allocation_bytes < capacity);
}

#[test]
fn a_file_that_is_made_again_in_the_room_of_a_deleted_one_may_be_as_large() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        let open = bench.create(open_if(1, "large")).expect("made").open;
        bench.set(open, SetInformation::EndOfFile(150 << 20)).expect("it grows");
        // The blocks of the former file become free gradually.
        bench.pass(Duration::from_secs(5));
        bench.set(open, SetInformation::Allocation(150 << 20)).expect("all of it is allocated");
        bench.set(open, SetInformation::Disposition { flags: 1 }).expect("marked");
        bench.close(open).expect("closed");
    }
}

#[test]
fn a_further_name_is_given_by_users_who_may_change_the_file_through_shares_that_let_them() {
    let mut bench = Bench::new();
    let file = bench.create(open_if(1, "file")).expect("made").open;
    let grant = |sid: &Sid, mask| Ace::allow(sid.clone(), mask, AceFlags::empty());
    let reads = rights::FILE_GENERIC_READ;
    let dacl = vec![grant(&user(1).user, rights::FILE_ALL), grant(&Sid::everyone(), reads)];
    let descriptor = SecurityDescriptor { dacl: Some(Acl::new(dacl)), ..security::volume_root() };
    let descriptor = descriptor.build().expect("short enough");
    bench.call(Operation::SetSecurity { open: file, parts: 4, descriptor }).expect("set");
    let link = |name: &str, replace| SetInformation::Link { target: wide(name), replace };
    let reading = |session, token: u32| {
        let mut create = Create { desired_access: rights::READ_ATTRIBUTES, ..open_if(session, "file") };
        create.caller.token = user(token);
        create
    };
    let of_reader = bench.create(reading(2, 2)).expect("opened").open;
    assert_eq!(bench.set(of_reader, link("theirs", false)).err(), Some(NtStatus::ACCESS_DENIED));
    // As Linux opens a file to link it.
    let of_owner = bench.create(reading(3, 1)).expect("opened").open;
    bench.set(of_owner, link("own", false)).expect("linked");
    let mut by_share = reading(4, 1);
    by_share.caller.share_access = rights::FILE_ALL & !rights::WRITE_ATTRIBUTES;
    let by_share = bench.create(by_share).expect("opened").open;
    assert_eq!(bench.set(by_share, link("by the share", false)).err(), Some(NtStatus::ACCESS_DENIED));
    let root = bench.create(root(1)).expect("opened").open;
    assert_eq!(bench.names(root, "*"), [".", "..", "file", "own"]);
}

#[test]
fn while_limits_hold_a_directory_s_streams_are_written_by_its_owner_and_administrators_alone() {
    let mut bench = Bench::new();
    let create = |path: &str, token: &Arc<AccessToken>| {
        let mut create = Create { desired_access: rights::WRITE_DATA, ..open_if(1, path) };
        create.caller.token = token.clone();
        create
    };
    let administrator = AccessToken { groups: vec![Sid::administrators()], ..(*user(9)).clone() };
    let (owner, other, administrator) = (user(1), user(2), Arc::new(administrator));
    let made = bench.create(directory(1, "directory")).expect("made");
    bench.close(made.open).expect("closed");
    let early = bench.create(create("directory:early", &other)).expect("no limits hold").open;
    bench.close(early).expect("closed");
    let kept = bench.create(create("directory:kept", &other)).expect("no limits hold").open;
    let (of_owner, of_file) = (create("directory:own", &owner), create("plain:stream", &other));
    let may = [of_owner, of_file].map(|create| bench.create(create).expect("no limits hold").open);
    bench.write(kept, 0, b"begun").expect("written");
    let root = bench.create(Create { caller: create("", &administrator).caller, ..root(1) }).expect("opened");
    let settings = QuotaSettings { mode: QuotaMode::Enforce, ..QuotaSettings::default() };
    let change = QuotaChange::Settings(settings);
    bench.call(Operation::SetQuotas { open: root.open, change }).expect("set");
    // An open that is older than the limits.
    assert_eq!(bench.write(kept, 5, b"more").err(), Some(NtStatus::ACCESS_DENIED));
    for grows in [SetInformation::EndOfFile(1 << 20), SetInformation::Allocation(1 << 20)] {
        assert_eq!(bench.set(kept, grows).err(), Some(NtStatus::ACCESS_DENIED));
    }
    for open in may {
        bench.write(open, 0, b"more").expect("written");
    }
    for (path, token, is_let) in [
        ("directory:new", &other, false),
        ("directory:early", &other, false),
        ("directory:early", &owner, true),
        ("directory:new", &administrator, true),
        (":of the root", &other, false),
        ("file:of a file", &other, true),
    ] {
        let opened = bench.create(create(path, token));
        assert_eq!(opened.as_ref().err(), (!is_let).then_some(&NtStatus::ACCESS_DENIED), "{path}");
        if let Ok(opened) = opened {
            bench.close(opened.open).expect("closed");
        }
    }
    let reading = Create { desired_access: rights::READ_DATA, ..create("directory:early", &other) };
    bench.create(reading).expect("read by all");
}
