//! Shared state of the requests of one message (MS-SMB2 3.3.5.2.7), and their answers until they are
//! sent.

use crate::exchange::{Body, ChainFile, Context};
use crate::state::keys::SessionKey;
use crate::state::proof::Verified;
use smallvec::SmallVec;
use smb::wire::Header;
use sys::Buf;

/// The preauthentication integrity hash that takes in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hashed {
    No,
    Connection,
    /// The hash of this session's setup on the connection.
    Setup(SessionKey),
}

/// An answer that waits for those it is compounded with.
pub(crate) struct Response {
    pub header: Header,
    pub body: Body,
    /// Proof of the key that signs it. `None`: none may.
    pub proof: Option<Verified>,
    /// The session that ends when this has been sent: the answer to its LOGOFF still needs its keys.
    pub ends_session: Option<SessionKey>,
    pub hashed: Hashed,
    /// The client's RDMA registration that ends with it.
    pub invalidate: Option<u32>,
}

impl Response {
    /// An answer that no key signs.
    pub fn unsigned(header: Header, body: Body) -> Self {
        Self { header, body, proof: None, ends_session: None, hashed: Hashed::No, invalidate: None }
    }
}

/// The rest of a message, and the shared state of its requests.
pub(crate) struct Chain {
    pub message: Buf,
    /// The offset at which the next element starts; the message's length at its end.
    pub at: usize,
    /// The session whose key decrypted the message.
    pub sealed_by: Option<SessionKey>,
    pub first: bool,
    /// The number of elements begun.
    pub elements: usize,
    /// The element before had a session and a tree: one that is related to it inherits them.
    pub inheritable: bool,
    pub session: Option<SessionKey>,
    pub tree_id: u32,
    pub file: ChainFile,
    pub responses: SmallVec<[Response; 1]>,
    /// The bytes that `responses` take in a message.
    pub held_bytes: usize,
    /// Bytes of all answers so far, sent or not.
    pub answered_bytes: usize,
}

impl Chain {
    /// The chain of a message of which nothing has been begun.
    #[inline]
    pub fn of_message(message: Buf, sealed_by: Option<SessionKey>) -> Self {
        Self {
            message,
            at: 0,
            sealed_by,
            first: true,
            elements: 0,
            inheritable: false,
            session: None,
            tree_id: 0,
            file: ChainFile::None,
            responses: SmallVec::new(),
            held_bytes: 0,
            answered_bytes: 0,
        }
    }

    /// The chain of a message with one request, all of which has been begun.
    #[inline]
    pub fn of_one(context: &Context) -> Self {
        Self {
            elements: 1,
            session: context.session,
            tree_id: context.tree_id,
            ..Self::of_message(Buf::empty(), context.sealed_by)
        }
    }

    /// Whether part of the message is still to be processed.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.at < self.message.len()
    }

    /// Returns the bytes that it keeps alive: the whole message if part of it is unprocessed, and the
    /// answers so far.
    pub fn kept_bytes(&self) -> usize {
        let message = if self.has_more() { self.message.len() } else { 0 };
        message + self.held_bytes
    }

    /// Keeps only the unprocessed part of the message. Returns its length in bytes.
    pub fn shrink(&mut self) -> usize {
        let rest = self.message.len() - self.at;
        if rest == 0 {
            (self.message, self.at) = (Buf::empty(), 0);
        } else if rest <= self.message.len() / 2 {
            (self.message, self.at) = (Buf::from(&self.message[self.at..]), 0);
        }
        self.message.len()
    }
}
