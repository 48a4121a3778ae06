//! The logon of one node of a cluster at another one, by their certificates: a key exchange that both of them sign (SIGMA).
//!
//! | token | from | holds |
//! |---|---|---|
//! | hello | client | cluster, both nodes, the client's ephemeral key |
//! | answer | server | the server's ephemeral key, its certificate, its signature |
//! | proof | client | its certificate, its signature |
//!
//! Each signature covers the signer's role, the preauthentication integrity hash of all messages so far, the cluster, both nodes, both
//! ephemeral keys and the signer's certificate. Promises: a listener in between can hand messages on, and no more: it has no key of the
//! session, and neither end takes the logon for one at or of another node, on another connection, in another dialect, or in the other
//! role. A node is no peer of itself. Never decides who is a node: [`NodeProver`] does.

use super::InitiateError;
use super::{DeniedReason, SessionKey};
use crate::crypto::PreauthHash;
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use std::fmt;
use std::sync::Arc;
use types::{FileTime, NodeId};
use zeroize::Zeroizing;

/// Longest accepted certificate in bytes: one with 16 addresses has less than a quarter of that.
const CERTIFICATE_BYTES_MAX: usize = 4096;
/// Longest accepted signature in bytes: those of P-256 have at most 72.
const SIGNATURE_BYTES_MAX: usize = 128;
const KEY_BYTES: usize = 32;
/// How each token begins; the version of all of this is in it. A byte follows that says which token it is.
const MARK: [u8; 7] = *b"CENOTE\x01";
const HELLO: u8 = 1;
const ANSWER: u8 = 2;
const PROOF: u8 = 3;
/// Purpose of signatures and keys, so that they are good for nothing else.
const PURPOSE: &[u8] = b"Cenote: logon of a node, version 1: ";

/// Why a node's proof is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NodeRefused {
    #[error("the records name no such node: it was removed, or never was one")]
    Unknown,
    #[error("the certificate is none that the records name for that node")]
    NotItsCertificate,
    #[error("the certificate is not good: it ran out, or the cluster's authority did not make it")]
    BadCertificate,
    #[error("the signature is not by the certificate's key")]
    BadSignature,
}

/// The certificates of a cluster's nodes, as one of the nodes has and knows them at one moment.
pub trait NodeProver: Send + Sync {
    /// The cluster's id.
    fn cluster(&self) -> [u8; 16];
    fn own(&self) -> NodeId;
    /// The node's own certificate, in DER form.
    fn certificate(&self) -> &[u8];
    /// Signs with the certificate's key; `None`: the system has no random numbers.
    fn sign(&self, message: &[u8]) -> Option<Vec<u8>>;
    /// Checks that `node` is in the cluster, has this certificate, and signed this message.
    ///
    /// # Errors
    /// [`NodeRefused`].
    fn verify(
        &self,
        node: NodeId,
        certificate: &[u8],
        message: &[u8],
        signature: &[u8],
        now: FileTime,
    ) -> Result<(), NodeRefused>;
}

/// As which node an initiator logs on, and at which.
#[derive(Clone)]
pub struct NodeCredentials {
    pub prover: Arc<dyn NodeProver>,
    /// The node that is meant.
    pub peer: NodeId,
}

impl fmt::Debug for NodeCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeCredentials({} at {})", self.prover.own(), self.peer)
    }
}

/// The preauthentication integrity hash before and behind the message that brought a token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard {
    pub before: PreauthHash,
    pub behind: PreauthHash,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Client,
    Server,
}

/// Facts that both ends have sent in the clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parties {
    cluster: [u8; 16],
    client: NodeId,
    server: NodeId,
    client_key: [u8; KEY_BYTES],
    server_key: [u8; KEY_BYTES],
}

impl Parties {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.cluster);
        out.extend_from_slice(&self.client.0.to_le_bytes());
        out.extend_from_slice(&self.server.0.to_le_bytes());
        out.extend_from_slice(&self.client_key);
        out.extend_from_slice(&self.server_key);
    }

    /// The message that the end of this role signs. `heard`: the hash of all messages before the one that brings the signature.
    fn signed(&self, role: Role, heard: &PreauthHash, certificate: &[u8]) -> Vec<u8> {
        let mut out = PURPOSE.to_vec();
        out.extend_from_slice(match role {
            Role::Client => b"client\0",
            Role::Server => b"server\0",
        });
        out.extend_from_slice(heard.value());
        self.put(&mut out);
        out.extend_from_slice(digest(&SHA256, certificate).as_ref());
        out
    }

    /// The session's key. `heard` is the hash behind the server's answer.
    fn session_key(&self, shared: &[u8], heard: &PreauthHash) -> Option<SessionKey> {
        let mut info = PURPOSE.to_vec();
        info.extend_from_slice(b"session key\0");
        self.put(&mut info);
        let mut key = SessionKey::default();
        let secret = Salt::new(HKDF_SHA256, heard.value()).extract(shared);
        secret.expand(&[&info], KeyBytes).ok()?.fill(&mut *key).ok()?;
        Some(key)
    }
}

/// The length of a session's key.
#[derive(Clone, Copy)]
struct KeyBytes;

impl KeyType for KeyBytes {
    fn len(&self) -> usize {
        size_of::<[u8; 16]>()
    }
}

/// An ephemeral key of X25519.
struct Ephemeral {
    private: PrivateKey,
    public: [u8; KEY_BYTES],
}

impl Ephemeral {
    fn generate(random: &mut dyn FnMut(&mut [u8])) -> Option<Self> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        random(&mut *bytes);
        let private = PrivateKey::from_private_key(&X25519, &*bytes).ok()?;
        let public = private.compute_public_key().ok()?.as_ref().try_into().ok()?;
        Some(Self { private, public })
    }

    /// The secret that only the holder of the other key has as well; `None`: that key is none.
    fn agree(&self, other: &[u8; KEY_BYTES]) -> Option<Zeroizing<Vec<u8>>> {
        let other = UnparsedPublicKey::new(&X25519, other);
        agree(&self.private, other, (), |shared| Ok(Zeroizing::new(shared.to_vec()))).ok()
    }
}

/// A certificate, and a signature by its key.
struct Signed<'a> {
    certificate: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Signed<'a> {
    fn put(certificate: &[u8], signature: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let fits = certificate.len() <= CERTIFICATE_BYTES_MAX && signature.len() <= SIGNATURE_BYTES_MAX;
        fits.then_some(())?;
        out.extend_from_slice(&(certificate.len() as u16).to_le_bytes());
        out.extend_from_slice(&(signature.len() as u16).to_le_bytes());
        out.extend_from_slice(certificate);
        out.extend_from_slice(signature);
        Some(())
    }

    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (certificate_bytes, rest) = bytes.split_first_chunk()?;
        let (signature_bytes, rest) = rest.split_first_chunk()?;
        let certificate_bytes = usize::from(u16::from_le_bytes(*certificate_bytes));
        let signature_bytes = usize::from(u16::from_le_bytes(*signature_bytes));
        if certificate_bytes > CERTIFICATE_BYTES_MAX || signature_bytes > SIGNATURE_BYTES_MAX {
            return None;
        }
        let (certificate, signature) = rest.split_at_checked(certificate_bytes)?;
        (signature.len() == signature_bytes).then_some(Self { certificate, signature })
    }
}

fn begin(kind: u8) -> Vec<u8> {
    let mut out = MARK.to_vec();
    out.push(kind);
    out
}

fn content(token: &[u8], kind: u8) -> Option<&[u8]> {
    token.strip_prefix(&MARK)?.strip_prefix(&[kind])
}

/// A client's first token.
struct Hello {
    cluster: [u8; 16],
    client: NodeId,
    server: NodeId,
    key: [u8; KEY_BYTES],
}

impl Hello {
    fn encode(&self) -> Vec<u8> {
        let mut out = begin(HELLO);
        out.extend_from_slice(&self.cluster);
        out.extend_from_slice(&self.client.0.to_le_bytes());
        out.extend_from_slice(&self.server.0.to_le_bytes());
        out.extend_from_slice(&self.key);
        out
    }

    fn parse(token: &[u8]) -> Option<Self> {
        let (cluster, rest) = content(token, HELLO)?.split_first_chunk()?;
        let (client, rest) = rest.split_first_chunk()?;
        let (server, key) = rest.split_first_chunk()?;
        let node = |bytes: &[u8; 4]| NodeId(u32::from_le_bytes(*bytes));
        let key = key.try_into().ok()?;
        Some(Self { cluster: *cluster, client: node(client), server: node(server), key })
    }
}

/// The accepting side.
pub(super) struct NodeAcceptor {
    prover: Arc<dyn NodeProver>,
    asked: Option<Asked>,
}

/// A logon that was answered.
struct Asked {
    parties: Parties,
    shared: Zeroizing<Vec<u8>>,
}

impl NodeAcceptor {
    pub fn new(prover: Arc<dyn NodeProver>) -> Self {
        Self { prover, asked: None }
    }

    /// Answers a client's first token. `heard`: none if the dialect has no hash of earlier messages.
    pub fn hello(
        &mut self,
        token: &[u8],
        heard: Option<Heard>,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Vec<u8>, DeniedReason> {
        let heard = heard.ok_or(DeniedReason::NoPreauthIntegrity)?;
        let hello = Hello::parse(token).ok_or(DeniedReason::Malformed)?;
        let own = self.prover.own();
        // The server computes nothing for a client that does not even name the right server.
        if hello.cluster != self.prover.cluster() || hello.server != own || hello.client == own {
            return Err(DeniedReason::OtherNode);
        }
        let ephemeral = Ephemeral::generate(random).ok_or(DeniedReason::Unsupported)?;
        let shared = ephemeral.agree(&hello.key).ok_or(DeniedReason::Malformed)?;
        let parties = Parties {
            cluster: hello.cluster,
            client: hello.client,
            server: own,
            client_key: hello.key,
            server_key: ephemeral.public,
        };
        let certificate = self.prover.certificate();
        let signature = self.prover.sign(&parties.signed(Role::Server, &heard.behind, certificate));
        let signature = signature.ok_or(DeniedReason::Unsupported)?;
        let mut out = begin(ANSWER);
        out.extend_from_slice(&ephemeral.public);
        Signed::put(certificate, &signature, &mut out).ok_or(DeniedReason::Unsupported)?;
        self.asked = Some(Asked { parties, shared });
        Ok(out)
    }

    /// Takes a client's proof: which node it is, and the session's key.
    pub fn proof(
        &mut self,
        token: &[u8],
        heard: Option<Heard>,
        now: FileTime,
    ) -> Result<(NodeId, SessionKey), DeniedReason> {
        let heard = heard.ok_or(DeniedReason::NoPreauthIntegrity)?.before;
        let Asked { parties, shared } = self.asked.take().ok_or(DeniedReason::OutOfSequence)?;
        let proof = content(token, PROOF).and_then(Signed::parse).ok_or(DeniedReason::Malformed)?;
        let signed = parties.signed(Role::Client, &heard, proof.certificate);
        self.prover
            .verify(parties.client, proof.certificate, &signed, proof.signature, now)
            .map_err(DeniedReason::Node)?;
        let key = parties.session_key(&shared, &heard).ok_or(DeniedReason::Unsupported)?;
        Ok((parties.client, key))
    }
}

/// The initiating side.
pub(super) struct NodeInitiator {
    credentials: NodeCredentials,
    ephemeral: Ephemeral,
    hello: Vec<u8>,
}

impl NodeInitiator {
    pub fn new(
        credentials: NodeCredentials,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Self, InitiateError> {
        let NodeCredentials { prover, peer } = &credentials;
        if prover.own() == *peer {
            return Err(InitiateError::NotTheNode(NodeRefused::Unknown));
        }
        let ephemeral = Ephemeral::generate(random).ok_or(InitiateError::Unsupported)?;
        let hello =
            Hello { cluster: prover.cluster(), client: prover.own(), server: *peer, key: ephemeral.public };
        let hello = hello.encode();
        Ok(Self { credentials, ephemeral, hello })
    }

    pub fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// Checks the server's answer, and answers it with a proof; also the session's key.
    pub fn prove(
        &self,
        token: &[u8],
        heard: Option<Heard>,
        now: FileTime,
    ) -> Result<(Vec<u8>, SessionKey), InitiateError> {
        let heard = heard.ok_or(InitiateError::Unsupported)?;
        let NodeCredentials { prover, peer } = &self.credentials;
        let answer = content(token, ANSWER).ok_or(InitiateError::Malformed)?;
        let (server_key, answer) = answer.split_first_chunk().ok_or(InitiateError::Malformed)?;
        let answer = Signed::parse(answer).ok_or(InitiateError::Malformed)?;
        let parties = Parties {
            cluster: prover.cluster(),
            client: prover.own(),
            server: *peer,
            client_key: self.ephemeral.public,
            server_key: *server_key,
        };
        let signed = parties.signed(Role::Server, &heard.before, answer.certificate);
        prover
            .verify(*peer, answer.certificate, &signed, answer.signature, now)
            .map_err(InitiateError::NotTheNode)?;
        let shared = self.ephemeral.agree(server_key).ok_or(InitiateError::Malformed)?;
        let certificate = prover.certificate();
        let signature = prover.sign(&parties.signed(Role::Client, &heard.behind, certificate));
        let mut out = begin(PROOF);
        signature
            .and_then(|signature| Signed::put(certificate, &signature, &mut out))
            .ok_or(InitiateError::Unsupported)?;
        let key = parties.session_key(&shared, &heard.behind).ok_or(InitiateError::Unsupported)?;
        Ok((out, key))
    }
}
