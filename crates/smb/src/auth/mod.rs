//! Authentication of the other end: SPNEGO (RFC 4178, MS-SPNG) around NTLMv2 (MS-NLMP), and around the logon of a cluster's nodes ([`node`]),
//! as state machines without I/O.
//!
//! Owns: tokens and their state machines, for the accepting and the initiating side. Promises: bounded
//! work on any input; passwords and keys wiped when dropped and never printed; the same way for a wrong
//! password and an unknown user. Never decides policy: anonymous logons and unknown users (for a guest)
//! are reported, and the caller decides on them.

mod accept;
mod der;
mod initiate;
mod node;
mod ntlm;
mod spnego;

pub use accept::Acceptor;
pub use initiate::{Initiator, InitiatorStep};
pub use node::{NodeCredentials, NodeProver, NodeRefused};
pub use ntlm::{MessageSecurity, NtHash};
pub use spnego::{Mechanism, server_hint};

use types::{NodeId, NtStatus};
use zeroize::Zeroizing;

/// Longest accepted token in bytes: Kerberos tickets with many groups stay below it.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;
/// Longest accepted message of NTLM in bytes. Names are at most 512 bytes each, the target information
/// that a client repeats with its proof a few hundred.
pub const NTLM_BYTES_MAX: usize = 8 << 10;

/// The key that a session's other keys are derived from.
pub type SessionKey = Zeroizing<[u8; 16]>;

/// Names of this server in challenges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerNames {
    /// At most 15 characters, capitals.
    pub netbios_computer: String,
    /// The workgroup, or the computer's name where it stands alone.
    pub netbios_domain: String,
    /// Host name in small letters, as MsvAvDnsComputerName has it (MS-NLMP 2.2.2.1).
    pub dns_computer: String,
    /// DNS suffix of the host name (MsvAvDnsDomainName); empty if the host name has none.
    pub dns_domain: String,
}

impl ServerNames {
    /// The names of a server of its own from its host name.
    pub fn standalone(host: &str) -> Self {
        let first = host.split('.').next().unwrap_or_default();
        let netbios: String = first.chars().take(15).collect::<String>().to_uppercase();
        Self {
            netbios_domain: netbios.clone(),
            netbios_computer: netbios,
            dns_computer: host.to_lowercase(),
            dns_domain: host.split_once('.').map(|(_, domain)| domain.to_lowercase()).unwrap_or_default(),
        }
    }
}

/// Where an acceptor finds users.
pub trait AccountLookup {
    /// The NT hash of `user`, who the client says belongs to `domain`; `None` if there is no such user or it may not log
    /// on. Names compare without regard to case; `domain` may be empty, the server's name, or anything a client invents.
    fn nt_hash(&self, user: &str, domain: &str) -> Option<NtHash>;
}

/// The party that logged on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// Nobody in particular: no user, no proof. The session key is known to everybody.
    Anonymous,
    /// Holder of a password that an [`AccountLookup`] knows, by NTLMv2.
    User {
        /// As the client wrote it.
        user: String,
        /// As the client wrote it.
        domain: String,
        /// Name of the client's computer, as the client wrote it: proven by nothing.
        workstation: String,
        /// The service the client believes to talk to, such as `cifs/server`, if it said so.
        target_name: Option<String>,
    },
    /// A node of this server's cluster, by its certificate.
    Node(NodeId),
}

/// The outcome of one token.
#[derive(Debug)]
pub enum AuthStep {
    /// Send the token and wait for the next one (STATUS_MORE_PROCESSING_REQUIRED).
    Continue(Vec<u8>),
    /// The client is who it says. Send the token with the final answer.
    Done(Box<Accepted>),
    /// The client is somebody else, or its token cannot be understood. The logon is over.
    Denied(Denied),
}

/// A logon that succeeded, and the keys that came of it.
pub struct Accepted {
    /// Party that logged on; the caller decides on [`Identity::Anonymous`].
    pub identity: Identity,
    /// Key from which the session derives its keys for signing and encryption (MS-SMB2 3.3.5.5.3).
    pub session_key: SessionKey,
    /// Last SPNEGO token, for the final SESSION_SETUP response; may be empty.
    pub token: Vec<u8>,
    /// For messages below SMB that are protected by the logon itself, as DCE/RPC's; `None`: the keys are too short, or a node's.
    pub message_security: Option<MessageSecurity>,
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Why a logon failed: for the audit log and policy, never for the client, which learns [`Denied::status`] only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("logon of {} denied: {reason}", .user.as_deref().unwrap_or("an unnamed user"))]
pub struct Denied {
    /// Reason for the audit log.
    pub reason: DeniedReason,
    /// As the client wrote it, if it came so far.
    pub user: Option<String>,
    /// Domain or computer of `user`, as the client wrote it.
    pub domain: Option<String>,
}

/// Reasons for which an acceptor ends a logon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeniedReason {
    /// Token that is too long or has a structure other than its mechanism's.
    #[error("the token is malformed")]
    Malformed,
    /// Logon without a mechanism, key strength or NTLM flag that this server needs.
    #[error("the client offers no mechanism or option that is supported")]
    Unsupported,
    /// Token of a step other than the next one, or after the verdict.
    #[error("a token came after the logon was over")]
    OutOfSequence,
    /// Response of NTLMv1 or LM, which prove too little, in place of NTLMv2's.
    #[error("the client does not use NTLMv2")]
    NotNtlmV2,
    /// User whom the [`AccountLookup`] does not find; the client sees a wrong password.
    #[error("there is no such user, or it may not log on")]
    UnknownUser,
    /// NTProofStr that the user's NT hash does not yield (MS-NLMP 3.3.2).
    #[error("wrong password")]
    WrongPassword,
    /// MIC over the three NTLM messages that the session's key does not yield (MS-NLMP 3.1.5.1.2).
    #[error("the messages were changed on the way (wrong MIC)")]
    WrongMic,
    /// Wrong or missing mechListMIC (RFC 4178 section 5), which a downgrade would need.
    #[error("the list of mechanisms was changed on the way, or is not protected (mechListMIC)")]
    WrongMechanismListMic,
    /// NTLMv2 response over target information other than this server's: a relayed logon.
    #[error("the proof was made for another server")]
    OtherTarget,
    /// Timestamp too far from this server's clock, or a challenge answered too late.
    #[error("the answer came too late, or the client's clock is wrong")]
    Expired,
    /// Node's logon by a dialect before 3.1.1, which binds no logon to its connection.
    #[error("a node's logon needs SMB 3.1.1")]
    NoPreauthIntegrity,
    /// Hello addressed to another node, or sent by this node itself.
    #[error("a node's logon was meant for another node, or is that of this node itself")]
    OtherNode,
    /// Certificate or signature that the cluster's records do not confirm.
    #[error("a node is not proven: {0}")]
    Node(NodeRefused),
}

impl From<DeniedReason> for Denied {
    fn from(reason: DeniedReason) -> Self {
        Self { reason, user: None, domain: None }
    }
}

impl Denied {
    /// Returns the status for the client.
    pub fn status(&self) -> NtStatus {
        match self.reason {
            DeniedReason::Malformed => NtStatus::INVALID_PARAMETER,
            DeniedReason::OutOfSequence => NtStatus::REQUEST_NOT_ACCEPTED,
            _ => NtStatus::LOGON_FAILURE,
        }
    }
}

/// Identity with which an initiator logs on.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// No user: NTLM without a proof, for servers that take anonymous logons.
    Anonymous,
    /// A user's name and NT hash.
    User {
        /// Account name, without its domain.
        user: String,
        /// May be empty.
        domain: String,
        /// Own name; may be empty.
        workstation: String,
        /// Hash of the password, in place of the password itself (MS-NLMP 3.3.1 NTOWFv1).
        hash: NtHash,
        /// The service meant, such as `cifs/server`.
        target_name: String,
    },
}

/// Why an initiator cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InitiateError {
    /// Token with a structure other than that of SPNEGO or the mechanism inside.
    #[error("the server's token is malformed")]
    Malformed,
    /// Answer without NTLMv2, 128-bit keys or another option that the logon depends on.
    #[error("the server offers no NTLMv2 with strong keys")]
    Unsupported,
    /// SPNEGO's negState is reject (RFC 4178 section 4.2.2).
    #[error("the server rejected the logon")]
    Rejected,
    /// Wrong or missing mechListMIC (RFC 4178 section 5).
    #[error("the list of mechanisms was changed on the way (mechListMIC)")]
    WrongMechanismListMic,
    /// Token of another step, or after the logon was over.
    #[error("the server's token came out of sequence")]
    OutOfSequence,
    /// Answer that does not prove the node, or a logon of a node at itself.
    #[error("the server is not the node that was meant: {0}")]
    NotTheNode(NodeRefused),
}

#[cfg(test)]
mod tests;
