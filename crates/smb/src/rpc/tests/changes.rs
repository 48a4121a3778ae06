//! Listings and changes of administrators by srvsvc.

use super::*;

fn listed(operation: u16, arguments: &[u8], level: u32, resume: Option<u32>) -> (Vec<u8>, u32) {
    let mut stub = words(&[0]);
    stub.extend_from_slice(arguments);
    stub.extend(words(&[level, level, 1, 0, 0, u32::MAX]));
    match resume {
        Some(at) => stub.extend(words(&[1, at])),
        None => stub.extend(words(&[0])),
    }
    let answer = call(&mut bound_as("srvsvc", true), &FILER, operation, &stub);
    let status = last_word(&answer);
    (answer, status)
}

/// Makes a call that has to wait, and answers the change that it waits for.
fn waits(pipe: &mut Pipe, operation: u16, stub: &[u8]) -> RpcChange {
    pipe.write(&request(operation, stub), &FILER).unwrap();
    assert_eq!(pipe.read(65536), None, "it is not answered yet");
    assert!(pipe.is_pending());
    let change = pipe.take_change().unwrap();
    assert_eq!(pipe.take_change(), None);
    change
}

fn answered(pipe: &mut Pipe, outcome: Result<RpcDone, RpcRefusal>) -> Vec<u8> {
    pipe.finish(outcome);
    assert!(!pipe.is_pending());
    pipe.read(65536).unwrap().bytes[24..].to_vec()
}

/// SHARE_INFO_2 of a share `plans`, as NetrShareAdd has it, without the pointer to a wrong parameter.
fn new_share(kind: u32, path: &str) -> Vec<u8> {
    let mut stub = words(&[0, 2, 2, 1, 1, kind, 1, 0, u32::MAX, 0, 1, 0]);
    stub.extend(wide("plans"));
    stub.extend(wide("of houses"));
    stub.extend(wide(path));
    stub
}

#[test]
fn open_files_are_listed_from_where_the_client_stopped_by_path_and_by_user() {
    let nothing = words(&[0, 0]);
    let (all, status) = listed(9, &nothing, 3, Some(0));
    assert_eq!(status, 0);
    assert!(contains(&all, "C:\\demo0\\plan1\0") && contains(&all, "bob\0"));
    let (rest, _) = listed(9, &nothing, 3, Some(4));
    assert!(!contains(&rest, "plan3") && contains(&rest, "plan4") && contains(&rest, "plan5"));
    let by_path = [words(&[1]), wide("c:\\DEMO0\\plan2"), words(&[0])].concat();
    let (one, _) = listed(9, &by_path, 3, None);
    assert!(contains(&one, "plan2") && !contains(&one, "plan1"));
    let by_user = [words(&[0, 1]), wide("BOB")].concat();
    let (one, _) = listed(9, &by_user, 3, None);
    assert!(contains(&one, "plan5") && !contains(&one, "plan4"));
    assert_eq!(listed(9, &nothing, 4, None).1, 124);
    assert_eq!(listed(8, &[words(&[1]), wide("demo0")].concat(), 1, None).1, 0);
    assert_eq!(listed(8, &[words(&[1]), wide("nowhere")].concat(), 1, None).1, 2310);
    for level in [0, 1, 2, 10, 502] {
        assert_eq!(listed(12, &nothing, level, None).1, 0, "level {level}");
    }
}

#[test]
fn a_file_is_closed_by_the_name_that_the_list_has_for_it() {
    let mut pipe = bound_as("srvsvc", true);
    let change = waits(&mut pipe, 11, &words(&[0, 102]));
    assert_eq!(change, RpcChange::CloseFile { open: 0x10_0000_0002 });
    // A client that does not wait is held back, and one change is answered once.
    assert_eq!(pipe.write(&request(28, &words(&[0])), &FILER), Err(PipeError::Full));
    assert_eq!(answered(&mut pipe, Ok(RpcDone::Changed)), words(&[0]));
    pipe.finish(Ok(RpcDone::Changed));
    assert_eq!(pipe.read(65536), None);
    waits(&mut pipe, 11, &words(&[0, 102]));
    assert_eq!(answered(&mut pipe, Err(RpcRefusal::NotFound)), words(&[2314]));
    assert_eq!(call(&mut pipe, &FILER, 11, &words(&[0, 9])), words(&[2314]));
}

#[test]
fn sessions_end_by_client_by_user_and_never_without_either() {
    let mut pipe = bound_as("srvsvc", true);
    let ask = |client: &str, user: &str| {
        let part =
            |name: &str| if name.is_empty() { words(&[0]) } else { [words(&[1]), wide(name)].concat() };
        [words(&[0]), part(client), part(user)].concat()
    };
    let change = waits(&mut pipe, 13, &ask("\\\\10.0.0.9", ""));
    assert_eq!(change, RpcChange::CloseSessions { sessions: vec![77] });
    assert_eq!(answered(&mut pipe, Ok(RpcDone::Changed)), words(&[0]));
    assert_eq!(call(&mut pipe, &FILER, 13, &ask("", "")), words(&[87]));
    assert_eq!(call(&mut pipe, &FILER, 13, &ask("10.0.0.1", "")), words(&[2312]));
    assert_eq!(call(&mut pipe, &FILER, 13, &ask("", "eva")), words(&[2221]));
}

#[test]
fn a_share_is_made_changed_and_deleted_by_what_the_client_fills_in() {
    let mut pipe = bound_as("srvsvc", true);
    let add = [new_share(0, "C:\\data\\plans"), words(&[1, 0])].concat();
    let comment = |text: &str| ShareSettings { comment: Some(text.into()), ..ShareSettings::default() };
    let change = waits(&mut pipe, 14, &add);
    let path = "C:\\data\\plans".into();
    assert_eq!(change, RpcChange::CreateShare { name: "plans".into(), path, settings: comment("of houses") });
    assert_eq!(answered(&mut pipe, Err(RpcRefusal::Exists)), words(&[0x20004, 0, 2118]));

    let mut set = words(&[0]);
    set.extend(wide("DEMO0"));
    set.extend(words(&[1004, 1004, 1, 1]));
    set.extend(wide("new"));
    set.extend(words(&[0]));
    let change = waits(&mut pipe, 17, &set);
    assert_eq!(change, RpcChange::SetShare { name: "demo0".into(), settings: comment("new") });
    assert_eq!(answered(&mut pipe, Ok(RpcDone::Changed)), words(&[0, 0]));

    let delete = |name: &str| [words(&[0]), wide(name), words(&[0])].concat();
    assert_eq!(waits(&mut pipe, 18, &delete("demo0")), RpcChange::DeleteShare { name: "demo0".into() });
    assert_eq!(answered(&mut pipe, Ok(RpcDone::Changed)), words(&[0]));
    assert_eq!(call(&mut pipe, &FILER, 18, &delete("nowhere")), words(&[2310]));
    assert_eq!(call(&mut pipe, &FILER, 18, &delete("IPC$")), words(&[87]));
    // A printer.
    let printer = [new_share(1, "C:\\data"), words(&[0])].concat();
    assert_eq!(call(&mut pipe, &FILER, 14, &printer), words(&[0, 87]));
}

#[test]
fn changes_and_lists_of_others_are_refused_to_those_who_are_no_administrators() {
    let mut pipe = bound("srvsvc");
    let add = [new_share(0, "C:\\data"), words(&[0])].concat();
    let delete = [words(&[0]), wide("demo0"), words(&[0])].concat();
    let set = [words(&[0]), wide("demo0"), words(&[1004, 1004, 1, 0, 0])].concat();
    let security = [words(&[0, 1]), wide("demo0"), wide("\\"), words(&[7])].concat();
    let sessions = words(&[0, 0, 0]);
    let all = [(14, &add), (18, &delete), (17, &set), (39, &security), (13, &sessions)];
    for (operation, stub) in all {
        assert_eq!(last_word(&call(&mut pipe, &FILER, operation, stub)), 5, "operation {operation}");
    }
    assert_eq!(call(&mut pipe, &FILER, 11, &words(&[0, 102])), words(&[5]));
    let list = words(&[0, 0, 0, 3, 3, 1, 0, 0, u32::MAX, 0]);
    assert_eq!(last_word(&call(&mut pipe, &FILER, 9, &list)), 5);
    assert!(!pipe.is_pending());
}

#[test]
fn the_descriptor_of_a_file_is_told_as_it_comes() {
    let mut pipe = bound_as("srvsvc", true);
    let stub = [words(&[0, 1]), wide("demo0"), wide("\\plan1"), words(&[7])].concat();
    let change = waits(&mut pipe, 39, &stub);
    assert_eq!(change, RpcChange::FileSecurity { share: "demo0".into(), path: "\\plan1".into() });
    let answer = answered(&mut pipe, Ok(RpcDone::SecurityDescriptor(vec![1, 0, 4, 128])));
    assert_eq!(answer, [words(&[0x20004, 4, 0x20008, 4]), vec![1, 0, 4, 128], words(&[0])].concat());
    waits(&mut pipe, 39, &stub);
    assert_eq!(answered(&mut pipe, Err(RpcRefusal::NotFound)), words(&[0, 2]));
}
