//! A heartbeat on the wire.
//!
//! Owns its layout. Promises: only a datagram of a sender with the cluster's key parses, as a whole;
//! nothing of any other is used. Numbers are little endian.
//!
//! | bytes | |
//! |---|---|
//! | 4 | `CNHB` |
//! | 1 | version, 1 |
//! | 1 | count of votes, at most [`VOTES_MAX`] |
//! | 1 | 1 if the sender may answer for volumes; 0 if it answers nothing, and will read the records first |
//! | 1 | bit 0: the receiver is asked to answer at once; bit 1: the sender stops, and still needs others for that; bit 2: large messages of the
//! sender reach most of the servers, and theirs reach it; bit 3: the sender's member of the cluster's state votes |
//! | 8 | the cluster's tag |
//! | 4, 4 | sender, receiver: node ids |
//! | 8 | the sender's incarnation: a random number for each start |
//! | 8 | stamp: the sender's clock in nanoseconds since its start; rises with each datagram to a receiver |
//! | 8 | term of the sender's lease |
//! | 8, 4 | turns of the sender's data plane; milliseconds for which it has made none |
//! | 8 | the revision of the cluster's state up to which the sender acts by the records |
//! | 8, 8, 8 | echo: the incarnation, stamp and term last heard from the receiver; zeroes: none |
//! | 8 | the receiver's last term that the sender grants no lease any more; 0: none. A later term in the echo is granted |
//! | 16 each | votes: a node that the sender holds dead (4), milliseconds since it granted that node a lease (4), the node's incarnation (8) |
//! | 16 | HMAC-SHA-256 of all before, its first half |

use aws_lc_rs::{constant_time, hmac};
use std::time::Duration;
use types::NodeId;

const MAGIC: [u8; 4] = *b"CNHB";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 100;
const VOTE_BYTES: usize = 16;
/// Where the sender's id lies; the receiver's follows.
const FROM_AT: usize = 16;
const MAC_BYTES: usize = 16;
const ASKS: u8 = 1;
const NEEDS_OTHERS: u8 = 2;
const REACHES: u8 = 4;
const VOTES: u8 = 8;
/// More nodes than a cluster may have (16, and a witness).
pub const VOTES_MAX: usize = 32;
/// Fits into any path's MTU.
pub const DATAGRAM_BYTES_MAX: usize = HEAD_BYTES + VOTES_MAX * VOTE_BYTES + MAC_BYTES;

/// The key that nodes of one cluster know each other by.
#[derive(Clone)]
pub struct HeartbeatKey(hmac::Key);

impl HeartbeatKey {
    /// Derives the key from a secret of the cluster, which is used for other things too.
    pub fn derive(secret: &[u8]) -> Self {
        let of_secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived = hmac::sign(&of_secret, b"cenote heartbeat 1");
        Self(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }
}

/// A start of a node's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Incarnation(pub u64);

/// One node's vote about another that it holds dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vote {
    /// Node that the voter holds dead.
    pub node: NodeId,
    /// Process of that node that the voter holds dead.
    pub incarnation: Incarnation,
    /// Time since the voter last granted that node a lease.
    pub granted_ago: Duration,
}

/// The last word of the receiver that reached the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// Incarnation of the receiver's process.
    pub incarnation: Incarnation,
    /// Stamp of that word.
    pub stamp: u64,
    /// Term of that word: granted a lease if it is later than the refused one.
    pub term: u64,
}

/// The sender's reach beyond heartbeats. A server of an earlier release reports neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ways {
    /// Large messages come through between it and most of the servers, both ways. A witness, which sends none to servers, says so too.
    pub reach_most: bool,
    /// The sender's member of the cluster's state answers, knows a leader, and votes; a server that uses
    /// somebody else's etcd says whether that answers it.
    pub votes: bool,
}

/// A heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Number of the sender.
    pub from: NodeId,
    /// Number of the receiver.
    pub to: NodeId,
    /// Start of the sender's process.
    pub incarnation: Incarnation,
    /// Sender's clock, in nanoseconds since its start; rises with each datagram to a receiver.
    pub stamp: u64,
    /// Term of the sender's lease.
    pub term: u64,
    /// The sender may answer for volumes. If not, it answers nothing, and will read the records before it does again.
    pub may_answer: bool,
    /// The receiver is to answer at once.
    pub asks: bool,
    /// The sender stops, and makes its data durable: it still needs the disks of others, and the cluster's
    /// state.
    pub needs_others: bool,
    /// Reach of the sender's large messages, and its vote in the cluster's state.
    pub ways: Ways,
    /// Turns that the sender's data plane has made.
    pub turns: u64,
    /// Time for which the sender's data plane has made no turn.
    pub still: Duration,
    /// The revision of the cluster's state up to which the sender acts by the records.
    pub applied: u64,
    /// Last word heard from the receiver; `None`: none so far.
    pub echo: Option<Echo>,
    /// The receiver's last term that is granted no lease any more.
    pub refused_term: u64,
    /// Nodes that the sender holds dead; at most [`VOTES_MAX`] are encoded.
    pub votes: Vec<Vote>,
}

/// Sender and receiver that a datagram names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub from: NodeId,
    pub to: NodeId,
}

/// Why a datagram was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Length, magic, version or number of votes is wrong.
    #[error("it is no heartbeat")]
    Malformed,
    /// The cluster's tag is another one.
    #[error("it is of another cluster")]
    OtherCluster,
    /// The authentication code is not by the cluster's key.
    #[error("it is not signed with the cluster's key")]
    Signature,
    /// The receiver is not this node, or the sender is not among its peers.
    #[error("it is for another node, or of one that is no member")]
    Stranger,
    /// The stamp is no later than that of the sender's last word.
    #[error("it is an old one, sent again")]
    Replayed,
    /// The stamp is further ahead of the last one than the time that went by here.
    #[error("its stamp is ahead of the time that went by")]
    Ahead,
}

impl Heartbeat {
    /// Encodes the heartbeat and authenticates it; `cluster`: the cluster's tag.
    pub fn encode(&self, cluster: u64, key: &HeartbeatKey) -> Vec<u8> {
        let votes = &self.votes[..self.votes.len().min(VOTES_MAX)];
        let Ways { reach_most, votes: has_vote } = self.ways;
        let flags =
            [(self.asks, ASKS), (self.needs_others, NEEDS_OTHERS), (reach_most, REACHES), (has_vote, VOTES)];
        let flags = flags.into_iter().fold(0, |all, (is_set, flag)| all | (u8::from(is_set) * flag));
        let mut bytes = Vec::with_capacity(HEAD_BYTES + votes.len() * VOTE_BYTES + MAC_BYTES);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, votes.len() as u8, self.may_answer.into(), flags]);
        bytes.extend(cluster.to_le_bytes());
        bytes.extend(self.from.0.to_le_bytes());
        bytes.extend(self.to.0.to_le_bytes());
        let echo = self.echo.unwrap_or(Echo { incarnation: Incarnation(0), stamp: 0, term: 0 });
        for number in [self.incarnation.0, self.stamp, self.term, self.turns] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(milliseconds(self.still).to_le_bytes());
        for number in [self.applied, echo.incarnation.0, echo.stamp, echo.term, self.refused_term] {
            bytes.extend(number.to_le_bytes());
        }
        debug_assert_eq!(bytes.len(), HEAD_BYTES);
        for vote in votes {
            bytes.extend(vote.node.0.to_le_bytes());
            bytes.extend(milliseconds(vote.granted_ago).to_le_bytes());
            bytes.extend(vote.incarnation.0.to_le_bytes());
        }
        let mac = hmac::sign(&key.0, &bytes);
        bytes.extend(&mac.as_ref()[..MAC_BYTES]);
        bytes
    }

    /// The sender and the receiver that a datagram names, before its signature is checked; `None`: its
    /// length is no heartbeat's.
    pub fn ends(bytes: &[u8]) -> Option<Ends> {
        if !(HEAD_BYTES + MAC_BYTES..=DATAGRAM_BYTES_MAX).contains(&bytes.len()) {
            return None;
        }
        let node = |at: usize| bytes.get(at..)?.first_chunk::<4>().map(|id| NodeId(u32::from_le_bytes(*id)));
        Some(Ends { from: node(FROM_AT)?, to: node(FROM_AT + 4)? })
    }

    /// # Errors
    /// [`Refused`], except for reasons that depend on earlier datagrams.
    pub fn parse(bytes: &[u8], cluster: u64, key: &HeartbeatKey) -> Result<Self, Refused> {
        if bytes.len() < HEAD_BYTES + MAC_BYTES || bytes.len() > DATAGRAM_BYTES_MAX {
            return Err(Refused::Malformed);
        }
        let (body, mac) = bytes.split_at(bytes.len() - MAC_BYTES);
        let mut read = Reader(body);
        let (magic, version, count) = (read.bytes::<4>(), read.bytes::<1>()[0], read.bytes::<1>()[0]);
        let votes_bytes = usize::from(count) * VOTE_BYTES;
        if magic != MAGIC || version != VERSION || body.len() != HEAD_BYTES + votes_bytes {
            return Err(Refused::Malformed);
        }
        let [may_answer, flags] = read.bytes::<2>();
        if read.u64() != cluster {
            return Err(Refused::OtherCluster);
        }
        let expected = hmac::sign(&key.0, body);
        constant_time::verify_slices_are_equal(&expected.as_ref()[..MAC_BYTES], mac)
            .map_err(|_| Refused::Signature)?;
        let mut heartbeat = Self {
            from: NodeId(read.u32()),
            to: NodeId(read.u32()),
            incarnation: Incarnation(read.u64()),
            stamp: read.u64(),
            term: read.u64(),
            // An unknown value is no promise to be silent.
            may_answer: may_answer != 0,
            asks: flags & ASKS != 0,
            needs_others: flags & NEEDS_OTHERS != 0,
            ways: Ways { reach_most: flags & REACHES != 0, votes: flags & VOTES != 0 },
            turns: read.u64(),
            still: Duration::from_millis(read.u32().into()),
            applied: read.u64(),
            echo: Some(Echo { incarnation: Incarnation(read.u64()), stamp: read.u64(), term: read.u64() })
                .filter(|echo| echo.incarnation.0 != 0),
            refused_term: read.u64(),
            votes: Vec::with_capacity(count.into()),
        };
        for _ in 0..count {
            let (node, ago, incarnation) = (read.u32(), read.u32(), read.u64());
            heartbeat.votes.push(Vote {
                node: NodeId(node),
                incarnation: Incarnation(incarnation),
                granted_ago: Duration::from_millis(ago.into()),
            });
        }
        Ok(heartbeat)
    }
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Reader of fields whose length was checked before.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (piece, rest) = self.0.split_first_chunk::<N>().expect("the length was checked");
        self.0 = rest;
        *piece
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}
