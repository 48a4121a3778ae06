//! SPNEGO, NTLM and the logon of nodes: tokens of a client at the acceptor, tokens of a server at the initiator.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb::auth::{
    Acceptor, AccountLookup, Credentials, Initiator, InitiatorStep, NodeCredentials, NodeProver, NodeRefused,
    NtHash, ServerNames, AuthStep,
};
use smb::crypto::PreauthHash;
use std::sync::Arc;
use types::{FileTime, NodeId};

const NOW: FileTime = FileTime(133_000_000_000_000_000);

struct Everybody;

impl AccountLookup for Everybody {
    fn nt_hash(&self, _user: &str, _domain: &str) -> Option<NtHash> {
        Some(NtHash::from_password("password"))
    }
}

/// A node with nobody's signature.
struct Node(u32);

impl NodeProver for Node {
    fn cluster(&self) -> [u8; 16] {
        [7; 16]
    }
    fn own(&self) -> NodeId {
        NodeId(self.0)
    }
    fn certificate(&self) -> &[u8] {
        b"certificate"
    }
    fn sign(&self, _message: &[u8]) -> Option<Vec<u8>> {
        Some(vec![7; 70])
    }
    fn verify(
        &self,
        _node: NodeId,
        _certificate: &[u8],
        _message: &[u8],
        _signature: &[u8],
        _now: FileTime,
    ) -> Result<(), NodeRefused> {
        Err(NodeRefused::BadSignature)
    }
}

/// Tokens of a node that cannot prove to be one, at either side.
fn nodes(first: &[u8], second: &[u8]) {
    let mut random = |bytes: &mut [u8]| bytes.fill(7);
    let (before, behind) = (PreauthHash::default(), PreauthHash::default());
    let mut acceptor = Acceptor::new(ServerNames::standalone("filer")).with_nodes(Arc::new(Node(1)));
    acceptor.hear(before, behind);
    if let AuthStep::Continue(_) = acceptor.step(first, &Everybody, NOW, &mut random) {
        acceptor.hear(before, behind);
        if let AuthStep::Done(accepted) = acceptor.step(second, &Everybody, NOW, &mut random) {
            assert_eq!(accepted.identity, smb::auth::Identity::Anonymous);
        }
    }
    let credentials = NodeCredentials { prover: Arc::new(Node(2)), peer: NodeId(1) };
    let mut initiator = Initiator::of_node(credentials, &mut random).expect("another node");
    initiator.hear(before, behind);
    assert!(!matches!(initiator.step(first, NOW, &mut random), Ok(InitiatorStep::Done(_))));
    initiator.hear(before, behind);
    assert!(initiator.step(second, NOW, &mut random).is_err(), "nobody has proven to be node 1");
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, tokens)) = input.split_first() else { return };
    let (first, second) = tokens.split_at(usize::from(cut).min(tokens.len()));
    let mut random = |bytes: &mut [u8]| bytes.fill(7);
    nodes(first, second);

    let mut acceptor = Acceptor::new(ServerNames::standalone("filer"));
    if let AuthStep::Continue(_) = acceptor.step(first, &Everybody, NOW, &mut random) {
        // A party that has to prove a password must not succeed with arbitrary bytes.
        if let AuthStep::Done(accepted) = acceptor.step(second, &Everybody, NOW, &mut random) {
            assert_eq!(accepted.identity, smb::auth::Identity::Anonymous);
        }
    }

    let mut initiator = Initiator::new(Credentials::User {
        user: "user".into(),
        domain: String::new(),
        workstation: String::new(),
        hash: NtHash::from_password("password"),
        target_name: String::new(),
    });
    if initiator.step(first, NOW, &mut random).is_ok() {
        let _ = initiator.step(second, NOW, &mut random);
    }
});
