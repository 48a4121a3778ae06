//! Records of opens decode as they were stored, and nothing else decodes.

use super::*;

fn open() -> OpenRecord {
    OpenRecord {
        stream: StreamId { file: FileId(77), index: 3 },
        directory: false,
        link: Some((FileId(5), "Näme".encode_utf16().collect())),
        root: FileId(9),
        share: "docs".into(),
        user: Sid::new(5, &[21, 1, 2, 3, 1001]).expect("a SID"),
        token: TokenDigest(0x1234_5678_9ABC_DEF0),
        client: [1; 16],
        create_guid: [2; 16],
        app_instance: Some(AppInstance { id: [3; 16], version: Some((1, 2)) }),
        access: 0x1F,
        share_access: 7,
        options: 0x40,
        delete_on_close: true,
        renamed: true,
        timeout: Duration::from_millis(61_500),
        action: CreateAction::Created,
        cache: StoredCache::Lease([4; 16]),
        parent_key: Some([5; 16]),
        fixed_times: FixedTimes::WRITTEN | FixedTimes::CHANGED,
        sequences: Some([0xFF; SEQUENCE_BUCKETS]),
    }
}

/// Every optional part, both present and absent.
fn variants() -> Vec<(OpenStateKey, StateRecord)> {
    let bare = OpenRecord {
        directory: true,
        link: None,
        app_instance: None,
        delete_on_close: false,
        renamed: false,
        cache: StoredCache::Oplock(OplockLevel::Batch),
        parent_key: None,
        fixed_times: FixedTimes::empty(),
        sequences: None,
        ..open()
    };
    let app = OpenRecord { app_instance: Some(AppInstance { id: [3; 16], version: None }), ..open() };
    let opens = [open(), bare, app].map(|open| StateRecord::Open(Box::new(open)));
    let (file, stream) = (FileId(7), StreamId { file: FileId(7), index: 2 });
    let lease = |version_2| LeaseRecord { stream, state: LeaseState::all(), epoch: 9, version_2 };
    let versions = [None, Some(None), Some(Some([6; 16]))].map(|parent: Option<Option<Guid>>| {
        lease(parent.map(|parent_key| LeaseVersion2 { parent_key, epoch: 9 }))
    });
    let name: WideString = "Gone".encode_utf16().collect();
    let mut all: Vec<_> = opens.into_iter().map(|open| (OpenStateKey::Open(1), open)).collect();
    all.extend(
        versions
            .map(|lease| (OpenStateKey::Lease { client: [1; 16], key: [2; 16] }, StateRecord::Lease(lease))),
    );
    all.push((OpenStateKey::Lock { open: 1, offset: 2, len_bytes: 3, shared: true }, StateRecord::Lock(4)));
    let link = OpenStateKey::DeletedLink { file, parent: FileId(5), name: name.clone() };
    all.push((link, StateRecord::DeletedLink(name)));
    all.push((OpenStateKey::DeletedStream(stream), StateRecord::DeletedStream));
    all
}

#[test]
fn records_of_opens_come_back_as_they_were_stored() {
    for (key, record) in variants() {
        assert_eq!(StateRecord::decode(&key, &record.encode()), Some(record));
    }
}

#[test]
fn what_is_cut_off_or_longer_or_of_another_version_is_no_record_of_an_open() {
    for (key, record) in variants() {
        let bytes = record.encode();
        for len in 0..bytes.len() {
            let cut = StateRecord::decode(&key, &bytes[..len]);
            // A shorter name is a name.
            let is_name = matches!(cut, Some(StateRecord::DeletedLink(_) | StateRecord::Open(_)));
            assert!(cut.is_none() || is_name, "{len} of {key:?}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(StateRecord::decode(&key, &longer), None, "{key:?}");
        let mut other = bytes;
        other[0] = 2;
        assert_eq!(StateRecord::decode(&key, &other), None, "{key:?}");
    }
}

#[test]
fn any_change_of_a_token_shows_in_its_digest_but_the_order_of_groups() {
    use crate::backend::Privileges;
    let sid = |number| Sid::new(5, &[21, 1, 2, 3, number]).expect("a SID");
    let token = AccessToken {
        user: sid(1),
        primary_group: sid(513),
        groups: vec![sid(2), sid(3)],
        privileges: Privileges::empty(),
    };
    let digest = TokenDigest::of(&token);
    let other = |change: fn(&mut AccessToken)| {
        let mut token = token.clone();
        change(&mut token);
        TokenDigest::of(&token)
    };
    assert_eq!(other(|token| token.groups.reverse()), digest);
    assert_ne!(other(|token| drop(token.groups.pop())), digest);
    assert_ne!(other(|token| token.privileges = Privileges::BACKUP), digest);
    assert_ne!(other(|token| token.user = token.groups[0].clone()), digest);
    assert_ne!(other(|token| token.primary_group = token.groups[0].clone()), digest);
}
