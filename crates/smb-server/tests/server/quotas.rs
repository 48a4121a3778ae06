//! Quotas over the wire: who sees and changes them, and that the quota file does not lead to the
//! share's root.

use crate::fixture::*;
use crate::raw::*;
use smb::wire::*;
use types::{NtStatus, Sid};

const QUOTA_FILE: &str = r"$Extend\$Quota:$Q:$INDEX_ALLOCATION";

fn query(
    client: &mut Client,
    world: &mut World,
    file: FileId,
    input: &[u8],
    max: u32,
) -> (NtStatus, Vec<u8>) {
    let answer = client.call(world, Command::QueryInfo, |out| {
        let body = QueryInfoRequestBody {
            info_type: INFO_QUOTA,
            output_buffer_length: max.into(),
            file_id: file,
            ..Default::default()
        };
        write_query_info_request(out, body, input);
    });
    let data = match status(&answer) {
        NtStatus::SUCCESS => OutputBufferResponse::parse(&answer).unwrap().data().unwrap().to_vec(),
        _ => Vec::new(),
    };
    (status(&answer), data)
}

fn set(
    client: &mut Client,
    world: &mut World,
    file: FileId,
    (kind, class): (u8, u8),
    data: &[u8],
) -> NtStatus {
    let answer = client.call(world, Command::SetInfo, |out| {
        let body = SetInfoRequestBody {
            info_type: kind,
            file_info_class: class,
            file_id: file,
            ..Default::default()
        };
        write_set_info_request(out, body, data);
    });
    status(&answer)
}

fn question(query: QueryQuota) -> Vec<u8> {
    let mut out = Vec::new();
    query.put(&mut out);
    out
}

fn scan(restart_scan: bool) -> Vec<u8> {
    question(QueryQuota { restart_scan, ..QueryQuota::default() })
}

#[test]
fn a_user_sees_the_own_quota_and_changes_none() {
    let mut world = World::over_volume();
    let mut client = Client::ready_at(&mut world, "full");
    let file = client.open_as(&mut world, QUOTA_FILE, MAKE).unwrap();
    let (status, data) = query(&mut client, &mut world, file, &scan(true), 4096);
    assert_eq!(status, NtStatus::SUCCESS);
    let told = QuotaInformation::parse_list(&data).unwrap();
    assert_eq!(told.iter().map(|entry| entry.user.clone()).collect::<Vec<_>>(), [user_sid()]);
    assert_eq!(query(&mut client, &mut world, file, &scan(false), 4096).0, NtStatus::NO_MORE_ENTRIES);
    assert_eq!(query(&mut client, &mut world, file, &scan(true), 40).0, NtStatus::BUFFER_TOO_SMALL);
    let other = question(QueryQuota { users: vec![Sid::administrators()], ..QueryQuota::default() });
    assert_eq!(query(&mut client, &mut world, file, &other, 4096).0, NtStatus::ACCESS_DENIED);
    assert_eq!(set(&mut client, &mut world, file, (INFO_QUOTA, 0), &data), NtStatus::ACCESS_DENIED);
    let mut settings = Vec::new();
    settings.put(&FsControlInformation::default());
    let class = (INFO_FILESYSTEM, fs_class::CONTROL);
    assert_eq!(set(&mut client, &mut world, file, class, &settings), NtStatus::ACCESS_DENIED);
    // Input that is none costs its sender an answer.
    for wrong in [&[][..], &[0; 7], &[0xFF; 64]] {
        assert_ne!(query(&mut client, &mut world, file, wrong, 4096).0, NtStatus::SUCCESS);
        assert_ne!(set(&mut client, &mut world, file, (INFO_QUOTA, 0), wrong), NtStatus::SUCCESS);
    }
    client.close(&mut world, file);
}

#[test]
fn the_quota_file_gives_no_right_to_the_root_and_does_not_delete_it() {
    let mut world = World::over_volume();
    let mut client = Client::ready_at(&mut world, "full");
    client.make(&mut world, "kept", MAKE);
    let asked = Asked { options: DELETE_ON_CLOSE, ..MAKE };
    let file = client.open_as(&mut world, &QUOTA_FILE.to_uppercase(), asked).unwrap();
    assert_eq!(client.set_info(&mut world, file, class::DISPOSITION, &[1]), NtStatus::ACCESS_DENIED);
    assert_eq!(client.set_security(&mut world, file, 4, &[0; 20]), NtStatus::ACCESS_DENIED);
    client.close(&mut world, file);
    let kept = client.open_as(&mut world, "kept", Asked::default()).unwrap();
    client.close(&mut world, kept);
}
