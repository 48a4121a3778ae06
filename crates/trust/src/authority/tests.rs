use super::*;
use types::NodeId;

const NOW: u64 = 1_800_000_000;

fn key() -> (tempfile::TempDir, SealKey) {
    let directory = tempfile::tempdir().unwrap();
    let key = SealKey::open_or_create(&directory.path().join("key")).unwrap();
    (directory, key)
}

fn cluster(key: &SealKey) -> ClusterRecord {
    let id = Uuid::from_bytes([9; 16]);
    let made = Authority::create(id, key, NOW).unwrap();
    ClusterRecord {
        name: "C".into(),
        id,
        authority_certificate: made.certificate,
        authority_key: made.key,
        heartbeat_key: ClusterRecord::new_heartbeat_key(id, key).unwrap(),
        next_node: NodeId(2),
        created_unix_s: NOW,
        revoked: Vec::new(),
    }
}

#[test]
fn a_certificate_is_made_only_for_a_key_that_its_holder_has() {
    let (_directory, key) = key();
    let authority = Authority::open(&cluster(&key), &key).unwrap();
    let addresses = ["10.1.0.11".parse().unwrap()];
    let node = NodeKey::generate().unwrap();
    let proven = node.prove("join 1").unwrap();
    let issue = |proven: &ProvenKey, context| authority.issue("node-2", &addresses, proven, context, NOW);
    let issued = issue(&proven, "join 1").unwrap();
    assert!(issued.pem.contains("BEGIN CERTIFICATE"));
    assert_eq!(issued.serial.len(), 2 * SERIAL_BYTES);
    // A proof that was overheard is good for nothing else.
    assert!(matches!(issue(&proven, "join 2"), Err(AuthorityError::NotItsKey)));
    let other = NodeKey::generate().unwrap().prove("join 1").unwrap();
    let mixed = ProvenKey { public_key: other.public_key, ..proven };
    assert!(matches!(issue(&mixed, "join 1"), Err(AuthorityError::NotItsKey)));
    for rubbish in ["", "04", "zz", &"04".repeat(65)] {
        let rubbish = ProvenKey { public_key: rubbish.into(), proof: rubbish.into() };
        assert!(matches!(issue(&rubbish, "join 1"), Err(AuthorityError::NotItsKey)));
    }
}

#[test]
fn the_authority_opens_with_its_own_clusters_key_only() {
    let (_directory, key) = key();
    let cluster = cluster(&key);
    let (_other_directory, other) = self::key();
    assert!(matches!(Authority::open(&cluster, &other), Err(AuthorityError::Seal(_))));
    let another = ClusterRecord { id: Uuid::from_bytes([8; 16]), ..cluster };
    assert!(matches!(Authority::open(&another, &key), Err(AuthorityError::Seal(_))));
}

#[test]
fn a_revocation_list_is_made_of_serial_numbers() {
    let (_directory, key) = key();
    let authority = Authority::open(&cluster(&key), &key).unwrap();
    let revoked = [RevokedCertificate { serial: "40ff".into(), since_unix_s: NOW }];
    assert!(authority.revocation_list(&revoked, 3, NOW).unwrap().contains("BEGIN X509 CRL"));
}

#[test]
fn a_clock_that_is_far_off_makes_no_panic() {
    let (_directory, key) = key();
    for now in [0, u64::MAX] {
        Authority::create(Uuid::from_bytes([9; 16]), &key, now).unwrap();
    }
}

#[test]
fn certificates_are_renewed_at_half_their_life() {
    assert!(!is_due(NOW, NOW + 182 * DAY_S));
    assert!(is_due(NOW, NOW + 184 * DAY_S));
    assert!(!is_due(NOW, NOW - DAY_S));
}
