//! A cluster's authority and its nodes' certificates, for tests.

use super::{NodeTrust, OwnPapers};
use crate::authority::{Authority, Issued, NewAuthority, NodeKey};
use records::nodes::{NodeRecord, NodeState};
use records::seal::SealKey;
use std::collections::BTreeMap;
use types::NodeId;
use uuid::Uuid;

/// See the module.
pub struct TestCluster {
    id: Uuid,
    authority: Authority,
    certificate: String,
    now_unix_s: u64,
    members: BTreeMap<NodeId, (NodeRecord, NodeKey, String)>,
}

impl TestCluster {
    /// Nodes 1 to `count`, whose certificates are made at `now_unix_s`.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub fn new(count: u32, now_unix_s: u64) -> Self {
        let id = Uuid::from_u128(now_unix_s.into());
        let seal = SealKey::from_hex(&"17".repeat(32)).expect("32 bytes are a key");
        let NewAuthority { authority, certificate, .. } =
            Authority::create(id, &seal, now_unix_s).expect("an authority");
        let mut cluster = Self { id, authority, certificate, now_unix_s, members: BTreeMap::new() };
        for number in 1..=count {
            let (key, node) = (NodeKey::generate().expect("a key"), NodeId(number));
            let issued = cluster.issue(node, &key, now_unix_s);
            cluster.members.insert(node, (record(node, &issued), key, issued.pem));
        }
        cluster
    }

    /// A certificate for the node, by the cluster's own authority, that is on no record.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub fn issue(&self, node: NodeId, key: &NodeKey, now_unix_s: u64) -> Issued {
        let proven = key.prove("tests").expect("a proof");
        let addresses = ["127.0.0.1".parse().expect("an address")];
        self.authority
            .issue(&format!("node-{node}"), &addresses, &proven, "tests", now_unix_s)
            .expect("a certificate")
    }

    /// The records know nothing of the node any more.
    pub fn remove(&mut self, node: NodeId) {
        if let Some((record, _, _)) = self.members.get_mut(&node) {
            record.state = NodeState::Removed;
        }
    }

    /// Records another certificate of the node, by its key, made `age_s` ago; the node still shows the one
    /// before.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn renew(&mut self, node: NodeId, age_s: u64) -> Issued {
        let issued = self.issue(node, &self.members[&node].1, self.now_unix_s - age_s);
        let member = self.members.get_mut(&node).expect("a member");
        let renewed = (issued.fingerprint.to_string(), issued.serial.clone());
        member.0 = member.0.clone().with_certificate(renewed.0, renewed.1, 0).0;
        issued
    }

    /// The node's trust in the others, with its own certificate.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn trust(&self, own: NodeId) -> NodeTrust {
        let certificate = &self.members[&own].2;
        self.trust_showing(own, &self.members[&own].1.pem(), certificate)
    }

    /// The same with another certificate and key, in PEM form.
    ///
    /// # Panics
    /// If they are none.
    pub fn trust_showing(&self, own: NodeId, key: &str, certificate: &str) -> NodeTrust {
        let papers = OwnPapers { certificate, authority: &self.certificate, key };
        let records = self.members.values().map(|(record, _, _)| record);
        NodeTrust::new(self.id, own, &papers, records).expect("certificates")
    }

    /// The certificate that the node shows, in PEM form.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn certificate(&self, node: NodeId) -> &str {
        &self.members[&node].2
    }

    /// The node's key in PEM form.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn key(&self, node: NodeId) -> String {
        self.members[&node].1.pem().to_string()
    }
}

fn record(id: NodeId, issued: &Issued) -> NodeRecord {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 445));
    NodeRecord {
        id,
        name: format!("node-{id}"),
        server_guid: Uuid::nil(),
        addresses: Vec::new(),
        smb: address,
        rdma: None,
        api: address,
        cluster: address,
        heartbeat: address,
        etcd: None,
        public_key: String::new(),
        certificate_sha256: issued.fingerprint.to_string(),
        certificate_serial: issued.serial.clone(),
        certified_unix_s: 0,
        earlier_certificates: Vec::new(),
        rack: String::new(),
        chassis: String::new(),
        version: String::new(),
        joined_unix_s: 0,
        state: NodeState::Up,
        is_witness: false,
    }
}
