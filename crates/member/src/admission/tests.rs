use super::*;
use crate::join_token::{JoinToken, LIFE_S};
use records::{Fault, FaultDomain, MemoryState, Request};
use trust::authority::{Fingerprint, NodeKey};
use types::{DiskId, PoolId};

const NOW: u64 = 1_800_000_000;
const VERSION: &str = "0.1.0";

fn disk(number: u8) -> DiskRecord {
    DiskRecord {
        id: DiskId::from_bytes([number; 16]),
        pool: PoolId::from_bytes([1; 16]),
        node: None,
        path: format!("/old/{number}"),
        size_bytes: 1 << 30,
        slab_bytes: 1 << 26,
        fault_domain: FaultDomain::default(),
        state: DiskState::Healthy,
        since_unix_s: 0,
        scrubbed_unix_s: 0,
    }
}

struct Bench {
    _directory: tempfile::TempDir,
    state: MemoryState,
    key: SealKey,
}

fn applicant(number: u8, context: &str) -> Applicant {
    let at = |port| SocketAddr::from(([10, 1, 0, number], port));
    Applicant {
        name: format!("node-{number}"),
        version: VERSION.into(),
        server_guid: Uuid::from_bytes([number; 16]),
        addresses: vec![at(0).ip()],
        smb: at(445),
        rdma: Some(at(5445)),
        api: SocketAddr::from(([127, 0, 0, 1], 9445)),
        cluster: at(9447),
        heartbeat: at(9447),
        etcd: Some(EtcdAddresses { peer: at(40001), client: at(40002) }),
        rack: String::new(),
        chassis: String::new(),
        is_witness: false,
        uses_other_etcd: false,
        unix_s: NOW,
        key: NodeKey::generate().unwrap().prove(&proof_context(context)).unwrap(),
    }
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = SealKey::open_or_create(&directory.path().join("key")).unwrap();
        let bench = Self { _directory: directory, state: MemoryState::new(), key };
        found_cluster(&bench.state, &bench.key, "C", &applicant(1, "C"), NOW).unwrap();
        bench
    }

    fn token(&self) -> JoinToken {
        join_token::create(&self.state, Fingerprint([1; 32]), &[], NOW).unwrap()
    }

    fn admit(&self, token: &JoinToken, applicant: &Applicant) -> Result<Admitted, Refused> {
        let (id, secret) = (token.id.to_string(), token.secret.to_hex());
        admit(&self.state, &self.key, (&id, &secret), applicant, VERSION, NOW)
    }

    fn join(&self, number: u8) -> Result<Admitted, Refused> {
        let token = self.token();
        self.admit(&token, &applicant(number, &token.id.to_string()))
    }

    /// Is refused, and nothing of the state is changed but the token that was made.
    fn refused(&self, change: impl FnOnce(&mut Applicant)) -> String {
        let token = self.token();
        let mut applicant = applicant(2, &token.id.to_string());
        change(&mut applicant);
        let before = self.everything();
        let refused = self.admit(&token, &applicant).unwrap_err();
        assert_eq!(self.everything(), before);
        refused.to_string()
    }

    fn everything(&self) -> records::Answer {
        self.state.answer(&Request::List { prefix: String::new() })
    }
}

#[test]
fn a_rack_or_chassis_has_the_name_of_a_fault_domain() {
    for domain in [" r1", "r\u{200B}1", "..", &"r".repeat(65)] {
        for is_rack in [true, false] {
            let mut applicant = applicant(2, "C");
            *(if is_rack { &mut applicant.rack } else { &mut applicant.chassis }) = domain.to_owned();
            let refused = check_form(&applicant).unwrap_err();
            assert!(refused.to_string().contains("is not a name for a fault domain"), "{refused}");
        }
    }
    let applicant = Applicant { rack: "rack 1".into(), chassis: "r".repeat(64), ..applicant(2, "C") };
    check_form(&applicant).unwrap();
}

#[test]
fn servers_get_numbers_that_are_never_given_again() {
    let bench = Bench::new();
    assert_eq!(bench.join(2).unwrap().node.id, NodeId(2));
    assert_eq!(bench.join(3).unwrap().node.id, NodeId(3));
    remove(&bench.state, &bench.key, "NODE-3", NOW).unwrap();
    assert_eq!(bench.join(3).unwrap().node.id, NodeId(4));
}

#[test]
fn the_first_three_servers_run_etcd_and_one_that_leaves_is_replaced() {
    let bench = Bench::new();
    let mut with_etcd = Vec::new();
    for number in 2..=4 {
        with_etcd.push(bench.join(number).unwrap().node.etcd.is_some());
    }
    assert_eq!(with_etcd, [true, true, false]);
    remove(&bench.state, &bench.key, "node-2", NOW).unwrap();
    assert!(bench.join(5).unwrap().node.etcd.is_some());
}

#[test]
fn a_token_lets_in_one_server() {
    let bench = Bench::new();
    let token = bench.token();
    let id = token.id.to_string();
    bench.admit(&token, &applicant(2, &id)).unwrap();
    let error = bench.admit(&token, &applicant(3, &id)).unwrap_err();
    assert!(error.to_string().contains("used already, by server node-2"), "{error}");
    // Another key under the same name is another server.
    assert!(matches!(bench.admit(&token, &applicant(2, &id)), Err(Refused::Token(TokenRefused::Used(_)))));
}

#[test]
fn a_server_whose_answer_was_lost_asks_again_and_is_the_same() {
    let bench = Bench::new();
    let token = bench.token();
    let applicant = applicant(2, &token.id.to_string());
    let first = bench.admit(&token, &applicant).unwrap();
    let again = bench.admit(&token, &applicant).unwrap();
    assert_eq!(first.node.id, again.node.id);
    assert_ne!(first.certificate, again.certificate);
    let stored = nodes::members(&bench.state).unwrap();
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[1].value.certificate_sha256, again.node.certificate_sha256);
}

#[test]
fn a_commit_whose_answer_is_lost_is_looked_up() {
    for fault in [Fault::AnswerLost, Fault::Lost] {
        let bench = Bench::new();
        let token = bench.token();
        let mut faults = 1;
        bench.state.set_fault_hook(Some(Box::new(move |request| {
            if matches!(request, Request::Commit(_)) && faults > 0 {
                faults -= 1;
                return fault;
            }
            Fault::None
        })));
        let admitted = bench.admit(&token, &applicant(2, &token.id.to_string())).unwrap();
        bench.state.set_fault_hook(None);
        let members = nodes::members(&bench.state).unwrap();
        assert_eq!(members.len(), 2);
        assert_eq!(members[1].value, admitted.node);
    }
}

#[test]
fn of_two_that_join_at_once_under_one_name_one_gets_in() {
    let bench = Bench::new();
    let (first, second) = (bench.token(), bench.token());
    let rival = applicant(2, &second.id.to_string());
    let (state, secret) = (bench.state.clone(), second.secret.to_hex());
    let (id, path) = (second.id.to_string(), bench._directory.path().join("key"));
    let mut is_first = true;
    // The rival's transaction is committed between the reading and the commit of the first.
    let own = applicant(2, &first.id.to_string());
    let key = SealKey::open_existing(&path).unwrap();
    let mut late = |request: &Request| {
        if matches!(request, Request::Commit(_)) && std::mem::take(&mut is_first) {
            admit(&state, &key, (&id, &secret), &rival, VERSION, NOW).unwrap();
        }
    };
    let interposed = Interposed { state: bench.state.clone(), before: std::cell::RefCell::new(&mut late) };
    let (id, secret) = (first.id.to_string(), first.secret.to_hex());
    let refused = admit(&interposed, &bench.key, (&id, &secret), &own, VERSION, NOW).unwrap_err();
    assert!(matches!(refused, Refused::NameTaken { .. }), "{refused}");
    assert_eq!(nodes::members(&bench.state).unwrap().len(), 2);
}

/// Does something before each request.
struct Interposed<'a> {
    state: MemoryState,
    before: std::cell::RefCell<&'a mut dyn FnMut(&Request)>,
}

impl records::BlockingState for Interposed<'_> {
    fn call(&self, request: Request) -> Result<records::Answer, StateError> {
        (self.before.borrow_mut())(&request);
        self.state.call(request)
    }
}

#[test]
fn what_is_wrong_with_a_server_is_told_and_changes_nothing() {
    let bench = Bench::new();
    let told = |change: fn(&mut Applicant)| bench.refused(change);
    assert!(told(|a| a.unix_s += 3600).contains("3600 s ahead of"));
    assert!(told(|a| a.unix_s -= 31).contains("31 s behind"));
    assert!(told(|a| a.version = "0.2.0".into()).contains("version 0.2.0, and the cluster version 0.1.0"));
    assert!(told(|a| a.name = "NODE-1".into()).contains("number 1"));
    assert!(told(|a| a.name = "a_b".into()).contains("letters, digits"));
    assert!(told(|a| a.addresses.clear()).contains("1 to 16 addresses"));
    assert!(told(|a| a.smb.set_port(0)).contains("has no port"));
    assert!(told(|a| a.cluster = "10.9.9.9:1".parse().unwrap()).contains("at none of the addresses"));
    assert!(told(|a| a.key.proof = a.key.public_key.clone()).contains("does not hold the private one"));
    let loopback = |a: &mut Applicant| {
        *a = Applicant { etcd: None, rdma: None, ..a.clone() };
        a.addresses = vec!["127.0.0.1".parse().unwrap()];
        for socket in [&mut a.smb, &mut a.cluster, &mut a.heartbeat] {
            socket.set_ip("127.0.0.1".parse().unwrap());
        }
    };
    assert!(told(loopback).contains("on loopback"));
    // The last number of a version may differ.
    let token = bench.token();
    let patched = Applicant { version: "0.1.9".into(), ..applicant(2, &token.id.to_string()) };
    bench.admit(&token, &patched).unwrap();
}

#[test]
fn tokens_that_are_unknown_or_expired_are_refused() {
    let bench = Bench::new();
    let token = bench.token();
    let applicant = applicant(2, &token.id.to_string());
    let other = Bench::new().token();
    assert!(matches!(bench.admit(&other, &applicant), Err(Refused::Token(TokenRefused::Unknown))));
    let (id, secret) = (token.id.to_string(), token.secret.to_hex());
    let late = admit(&bench.state, &bench.key, (&id, &secret), &applicant, VERSION, NOW + LIFE_S);
    assert!(matches!(late, Err(Refused::Token(TokenRefused::Expired))));
}

#[test]
fn there_are_at_most_sixteen_servers() {
    let bench = Bench::new();
    for number in 2..=16 {
        bench.join(number).unwrap();
    }
    assert!(matches!(bench.join(17), Err(Refused::Full)));
}

#[test]
fn a_cluster_is_founded_once() {
    let bench = Bench::new();
    let again = found_cluster(&bench.state, &bench.key, "D", &applicant(2, "D"), NOW);
    assert!(matches!(again, Err(Refused::InCluster(name)) if name == "C"));
}

#[test]
fn a_removed_server_is_revoked_and_gets_no_new_certificate() {
    let bench = Bench::new();
    let joined = bench.join(2).unwrap();
    let proven = |key: &NodeKey| key.prove(&proof_context(&joined.cluster.id.to_string())).unwrap();
    let key = NodeKey::generate().unwrap();
    let renewed = renew(&bench.state, &bench.key, NodeId(2), &proven(&key), NOW).unwrap();
    assert_ne!(renewed.node.certificate_sha256, joined.node.certificate_sha256);
    let removed = remove(&bench.state, &bench.key, "node-2", NOW).unwrap();
    let cluster = ClusterRecord::find(&bench.state).unwrap().unwrap().value;
    assert_eq!(cluster.revoked[0].serial, removed.certificate_serial);
    assert!(matches!(
        renew(&bench.state, &bench.key, NodeId(2), &proven(&key), NOW),
        Err(Refused::NoSuchNode(_))
    ));
    assert!(matches!(remove(&bench.state, &bench.key, "node-1", NOW), Err(Refused::LastNode(_))));
}

#[test]
fn disks_of_a_server_that_a_recovery_leaves_behind_may_come_back_and_those_of_a_removed_one_are_given_up() {
    let bench = Bench::new();
    for number in [2, 3] {
        bench.join(number).unwrap();
        let disk = DiskRecord { node: Some(NodeId(number.into())), ..disk(number) };
        bench.state.write(&disk, 0).unwrap();
    }
    leave_behind(&bench.state, &bench.key, "node-2", NOW).unwrap();
    remove(&bench.state, &bench.key, "node-3", NOW).unwrap();
    let state_of = |number| {
        let found = bench.state.read::<DiskRecord>(&disk(number).id.to_string());
        found.unwrap().unwrap().value.state
    };
    assert_eq!((state_of(2), state_of(3)), (DiskState::Missing, DiskState::Retired));
}

#[test]
fn heartbeats_have_another_key_when_a_server_has_left() {
    let bench = Bench::new();
    (2..=4).for_each(|number| drop(bench.join(number).unwrap()));
    let heartbeat_key = |bench: &Bench| {
        let cluster = ClusterRecord::find(&bench.state).unwrap().unwrap().value;
        cluster.open_heartbeat_key(&bench.key).unwrap()
    };
    let before = heartbeat_key(&bench);
    remove(&bench.state, &bench.key, "node-3", NOW).unwrap();
    assert_ne!(heartbeat_key(&bench), before);
}

#[test]
fn every_certificate_that_a_server_ever_had_is_revoked_when_it_leaves() {
    let bench = Bench::new();
    let token = bench.token();
    let asks = applicant(2, &token.id.to_string());
    let mut serials = Vec::new();
    for _ in 0..9 {
        serials.push(bench.admit(&token, &asks).unwrap().node.certificate_serial);
    }
    let node = nodes::member_named(&bench.state, "node-2").unwrap().unwrap().value;
    let is_revoked = |bench: &Bench, serial: &String| {
        let cluster = ClusterRecord::find(&bench.state).unwrap().unwrap().value;
        cluster.revoked.iter().any(|one| one.serial == *serial)
    };
    // Certificates that do not count any more are revoked already.
    for serial in &serials {
        assert_ne!(node.certificate_serials().any(|counts| counts == serial), is_revoked(&bench, serial));
    }
    remove(&bench.state, &bench.key, "node-2", NOW).unwrap();
    assert!(serials.iter().all(|serial| is_revoked(&bench, serial)));
}

#[test]
fn who_asks_again_is_certified_for_what_was_looked_at_and_nothing_else() {
    let bench = Bench::new();
    let token = bench.token();
    let mut asks = applicant(2, &token.id.to_string());
    bench.admit(&token, &asks).unwrap();
    asks.addresses.push("10.1.0.1".parse().unwrap());
    let again = bench.admit(&token, &asks).unwrap();
    assert_eq!(again.node.addresses, applicant(2, "").addresses);
    let der = der_of(&again.certificate);
    // Address 10.1.0.1 as a subject's alternative name (RFC 5280 4.2.1.6): tag 7, four bytes.
    let holds = |ip: [u8; 4]| der.windows(6).any(|bytes| bytes[..2] == [0x87, 4] && bytes[2..] == ip);
    assert!(holds([10, 1, 0, 2]) && !holds([10, 1, 0, 1]));
}

/// The bytes of a certificate in PEM form (RFC 7468): base64 between two lines.
fn der_of(pem: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in pem.lines().filter(|line| !line.starts_with('-')).flat_map(str::bytes) {
        let Some(digit) = DIGITS.iter().position(|known| *known == byte) else { continue };
        (bits, count) = (bits << 6 | digit as u32, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
