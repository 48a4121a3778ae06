//! Security descriptors over the wire: who may give and see a SACL.

use crate::fixture::*;
use smb::wire::*;
use smb_server::{Account, Directory};
use std::sync::Arc;
use types::{NtStatus, Sid};
use volume::backend::{AccessToken, Privileges};
use volume::security::{Ace, AceFlags, AceKind, Acl, Control, Parts, SecurityDescriptor, rights};

const SYSTEM_AUDIT: u8 = 2;
const MANDATORY_LABEL: u8 = 0x11;

fn with_sacl(aces: Vec<Ace>) -> Vec<u8> {
    let sacl = Some(Acl::new(aces));
    let control = Control::SACL_PRESENT;
    SecurityDescriptor { control, sacl, ..SecurityDescriptor::default() }.build().unwrap()
}

fn ace(kind: u8) -> Ace {
    Ace::new(AceKind::Other(kind), AceFlags::SUCCESSFUL_ACCESS, rights::WRITE_DATA, Sid::everyone())
}

/// A client whose user has these privileges.
fn privileged(world: &mut World, privileges: Privileges) -> Client {
    let before = People::default().account("", "user").unwrap();
    let token = Arc::new(AccessToken { privileges, ..AccessToken::clone(&before.token) });
    world.people.0.borrow_mut().account = Some(Some(Account { token, ..before }));
    Client::ready(world)
}

fn create(
    client: &mut Client,
    world: &mut World,
    access: u32,
    disposition: u32,
    descriptor: Option<&[u8]>,
) -> Result<FileId, NtStatus> {
    let mut contexts = CreateContextWriter::default();
    if let Some(descriptor) = descriptor {
        contexts.push(CONTEXT_SECURITY_DESCRIPTOR, descriptor);
    }
    let contexts = contexts.finish();
    let answer = client.call(world, Command::Create, |out| {
        let body = CreateRequestBody {
            impersonation_level: 2.into(),
            desired_access: access.into(),
            share_access: 7.into(),
            create_disposition: disposition.into(),
            ..Default::default()
        };
        write_create_request(out, body, &wide_from_str("file"), &contexts);
    });
    match status(&answer) {
        NtStatus::SUCCESS => Ok(CreateResponse::parse(&answer).unwrap().file_id),
        status => Err(status),
    }
}

fn query(
    client: &mut Client,
    world: &mut World,
    file: FileId,
    parts: Parts,
) -> Result<SecurityDescriptor, NtStatus> {
    let answer = client.call(world, Command::QueryInfo, |out| {
        let body = QueryInfoRequestBody {
            info_type: INFO_SECURITY,
            output_buffer_length: 4096.into(),
            additional_information: parts.bits().into(),
            file_id: file,
            ..Default::default()
        };
        write_query_info_request(out, body, &[]);
    });
    match status(&answer) {
        NtStatus::SUCCESS => {
            let response = OutputBufferResponse::parse(&answer).unwrap();
            Ok(SecurityDescriptor::parse(response.data().unwrap()).unwrap())
        }
        status => Err(status),
    }
}

#[test]
fn a_creator_without_the_privilege_gives_no_sacl() {
    let mut world = World::over_volume();
    let mut plain = Client::ready(&mut world);
    let given = with_sacl(vec![ace(SYSTEM_AUDIT)]);
    let refused = create(&mut plain, &mut world, rights::FILE_ALL, FILE_CREATE, Some(&given));
    assert_eq!(refused, Err(NtStatus::PRIVILEGE_NOT_HELD));
    let missing = create(&mut plain, &mut world, rights::FILE_ALL, FILE_OPEN, None);
    assert_eq!(missing, Err(NtStatus::OBJECT_NAME_NOT_FOUND), "nothing was made");
    // Clients send a descriptor whose SACL is empty or absent without meaning anything by it.
    let idle = with_sacl(vec![]);
    create(&mut plain, &mut world, rights::FILE_ALL, FILE_CREATE, Some(&idle)).unwrap();
}

#[test]
fn who_may_read_a_descriptor_sees_the_label_and_not_the_audit() {
    let mut world = World::over_volume();
    let mut auditor = privileged(&mut world, Privileges::SECURITY);
    let access = rights::FILE_ALL | rights::ACCESS_SYSTEM_SECURITY;
    let given = with_sacl(vec![ace(SYSTEM_AUDIT), ace(MANDATORY_LABEL)]);
    let file = create(&mut auditor, &mut world, access, FILE_CREATE, Some(&given)).unwrap();
    let all = query(&mut auditor, &mut world, file, Parts::SACL).unwrap();
    assert_eq!(all.sacl.unwrap().aces.len(), 2);
    let mut plain = privileged(&mut world, Privileges::empty());
    let refused = create(&mut plain, &mut world, access, FILE_OPEN, None);
    assert_eq!(refused, Err(NtStatus::PRIVILEGE_NOT_HELD));
    let file = create(&mut plain, &mut world, rights::READ_CONTROL, FILE_OPEN, None).unwrap();
    assert_eq!(query(&mut plain, &mut world, file, Parts::SACL), Err(NtStatus::ACCESS_DENIED));
    let seen = query(&mut plain, &mut world, file, Parts::LABEL | Parts::OWNER | Parts::DACL).unwrap();
    assert_eq!(seen.sacl.unwrap().aces, [ace(MANDATORY_LABEL)]);
}

#[test]
fn setting_no_part_of_a_descriptor_changes_nothing() {
    let mut world = World::over_volume();
    let mut plain = Client::ready(&mut world);
    create(&mut plain, &mut world, rights::FILE_ALL, FILE_CREATE, None).unwrap();
    let file = create(&mut plain, &mut world, rights::READ_ATTRIBUTES, FILE_OPEN, None).unwrap();
    let changed_at = |plain: &mut Client, world: &mut World| {
        let answer = plain.call(world, Command::QueryInfo, |out| {
            let body = QueryInfoRequestBody {
                info_type: INFO_FILE,
                file_info_class: class::BASIC,
                output_buffer_length: 4096.into(),
                file_id: file,
                ..Default::default()
            };
            write_query_info_request(out, body, &[]);
        });
        OutputBufferResponse::parse(&answer).unwrap().data().unwrap()[24..32].to_vec()
    };
    let before = changed_at(&mut plain, &mut world);
    world.wait(std::time::Duration::from_secs(10));
    let answer = plain.call(&mut world, Command::SetInfo, |out| {
        let body = SetInfoRequestBody { info_type: INFO_SECURITY, file_id: file, ..Default::default() };
        write_set_info_request(out, body, &with_sacl(vec![ace(SYSTEM_AUDIT)]));
    });
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    assert_eq!(changed_at(&mut plain, &mut world), before);
}
