use super::fixture::TestCluster;
use super::{NodeTrust, NotProven};
use crate::authority::NodeKey;
use types::NodeId;

const NOW: u64 = 1_700_000_000;
const DAY_S: u64 = 86_400;
const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);

/// Node 1's verdict on `other`, which shows itself as node 2.
fn judge(one: &NodeTrust, other: &NodeTrust, now: u64) -> Result<(), NotProven> {
    let signature = other.sign(b"message").unwrap();
    one.verify(TWO, other.certificate(), b"message", &signature, now)
}

#[test]
fn a_node_is_proven_by_its_certificate_and_a_signature_of_its_key() {
    let cluster = TestCluster::new(3, NOW);
    let (one, two, three) = (cluster.trust(ONE), cluster.trust(TWO), cluster.trust(NodeId(3)));
    assert_eq!(judge(&one, &two, NOW), Ok(()));
    assert_eq!(judge(&one, &three, NOW), Err(NotProven::NotItsCertificate), "it is another node");
    let signature = two.sign(b"message").unwrap();
    let said = |message: &[u8], signature: &[u8]| one.verify(TWO, two.certificate(), message, signature, NOW);
    assert_eq!(said(b"another", &signature), Err(NotProven::BadSignature));
    assert_eq!(said(b"message", &three.sign(b"message").unwrap()), Err(NotProven::BadSignature));
    assert_eq!(said(b"message", b""), Err(NotProven::BadSignature));
    assert_eq!(one.verify(TWO, b"none", b"", b"", NOW), Err(NotProven::NotItsCertificate));
    let own = one.sign(b"message").unwrap();
    assert_eq!(one.verify(ONE, one.certificate(), b"message", &own, NOW), Err(NotProven::Unknown));
}

#[test]
fn a_server_that_was_removed_is_proven_by_nothing_even_with_the_authoritys_key() {
    let mut cluster = TestCluster::new(3, NOW);
    let two = cluster.trust(TWO);
    cluster.remove(TWO);
    assert_eq!(judge(&cluster.trust(ONE), &two, NOW), Err(NotProven::Unknown));
    // Node 2 had the key that opens the authority's, and makes itself a certificate as node 3.
    let key = NodeKey::generate().unwrap();
    let forged = cluster.issue(NodeId(3), &key, NOW);
    let three = cluster.trust_showing(NodeId(3), &key.pem(), &forged.pem);
    let signature = three.sign(b"message").unwrap();
    let one = cluster.trust(ONE);
    assert_eq!(
        one.verify(NodeId(3), three.certificate(), b"message", &signature, NOW),
        Err(NotProven::NotItsCertificate)
    );
}

#[test]
fn a_certificate_is_good_from_its_renewal_on_and_until_its_time_is_over() {
    let mut cluster = TestCluster::new(2, NOW);
    let before = cluster.trust(TWO);
    let renewed = cluster.renew(TWO, 0);
    let (one, after) = (cluster.trust(ONE), cluster.trust_showing(TWO, &cluster.key(TWO), &renewed.pem));
    assert_eq!(judge(&one, &before, NOW), Ok(()), "it is shown until the new one is here");
    assert_eq!(judge(&one, &after, NOW), Ok(()));
    assert_eq!(judge(&one, &after, NOW + 400 * DAY_S), Err(NotProven::BadCertificate));
    let old = cluster.renew(TWO, 400 * DAY_S);
    let (one, old) = (cluster.trust(ONE), cluster.trust_showing(TWO, &cluster.key(TWO), &old.pem));
    assert_eq!(judge(&one, &old, NOW), Err(NotProven::BadCertificate));
}

#[test]
fn another_clusters_authority_counts_for_nothing() {
    let (cluster, other) = (TestCluster::new(2, NOW), TestCluster::new(2, NOW + 1));
    assert_eq!(judge(&cluster.trust(ONE), &other.trust(TWO), NOW), Err(NotProven::NotItsCertificate));
}
