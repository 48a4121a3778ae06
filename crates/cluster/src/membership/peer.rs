//! What one node knows of another.

use super::{Echo, Heartbeat, Incarnation, Refused, Timing, Verdict, Vote};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use types::{Monotonic, NodeId};

/// The last accepted heartbeat.
struct Last {
    word: Echo,
    at: Monotonic,
}

/// A vote as it came.
struct SeenVote {
    incarnation: Incarnation,
    /// When the voter granted that node a lease last, at the latest.
    granted: Monotonic,
    /// The vote was sent after this moment.
    as_of: Monotonic,
}

/// A verdict without its beginning.
pub(super) enum Judgement {
    Up,
    Suspect,
    Down { lease_ends: Monotonic },
}

/// What a heartbeat was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// As the ones before it.
    Again,
    /// Of a term that is new.
    NewTerm,
    /// The first of this peer.
    First,
    /// Of another process of the peer.
    Restarted,
    /// Of another process, which has not proved that it lives now.
    Unproven,
}

/// A peer.
///
/// Invariants: `refused_term` never falls while the peer's incarnation stays; a condemned peer is granted nothing.
pub(super) struct Peer {
    pub address: SocketAddr,
    last: Option<Last>,
    /// A process that has not proved to live now; it is echoed when the known one is silent.
    unproven: Option<Echo>,
    /// When it was last granted a lease; before it was heard: when it was added, since an earlier process may have granted one.
    granted_at: Monotonic,
    /// This node holds it dead.
    is_condemned: bool,
    /// When its connections were reset, if it has not shown since that it lives.
    reset_at: Option<Monotonic>,
    refused_term: u64,
    /// The moment of this node's clock up to which the peer grants it a lease in its current term.
    pub granted: Option<Monotonic>,
    /// Whom the peer holds dead.
    votes: BTreeMap<NodeId, SeenVote>,
    applied: u64,
    /// It answered nothing at some moment after this one.
    silent_as_of: Option<Monotonic>,
    verdict: Verdict,
}

impl Peer {
    pub fn new(address: SocketAddr, now: Monotonic) -> Self {
        Self {
            address,
            last: None,
            unproven: None,
            granted_at: now,
            is_condemned: false,
            reset_at: None,
            refused_term: 0,
            granted: None,
            votes: BTreeMap::new(),
            applied: 0,
            silent_as_of: None,
            verdict: Verdict::Suspect { since: now },
        }
    }

    /// Takes a heartbeat. `echoed`: the moment of what it echoes of this process. `is_fresh`: that was just now.
    pub fn hear(
        &mut self,
        heartbeat: &Heartbeat,
        echoed: Option<Monotonic>,
        is_fresh: bool,
        now: Monotonic,
        timing: &Timing,
    ) -> Result<Heard, Refused> {
        let word = Echo { incarnation: heartbeat.incarnation, stamp: heartbeat.stamp, term: heartbeat.term };
        let heard = match &self.last {
            Some(last) if last.word.incarnation == word.incarnation => {
                if word.stamp <= last.word.stamp {
                    return Err(Refused::Replayed);
                }
                if word.term > last.word.term { Heard::NewTerm } else { Heard::Again }
            }
            _ if !is_fresh => {
                self.unproven = Some(word);
                return Ok(Heard::Unproven);
            }
            last => {
                let was_known = last.is_some();
                // A process that was not there when this one began has been refused nothing; of one that was, this one knows nothing.
                self.refused_term = if was_known { 0 } else { word.term };
                (self.is_condemned, self.unproven, self.granted) = (false, None, None);
                self.reset_at = None;
                if was_known { Heard::Restarted } else { Heard::First }
            }
        };
        self.last = Some(Last { word, at: now });
        // Only what was sent after the reset, as an answer to something after it, says that the process is there still.
        if echoed.is_some_and(|echoed| self.reset_at.is_some_and(|reset_at| echoed >= reset_at)) {
            self.reset_at = None;
        }
        self.applied = heartbeat.applied;
        self.silent_as_of = echoed.filter(|_| !heartbeat.may_answer);
        let seen = |vote: &Vote| SeenVote {
            incarnation: vote.incarnation,
            granted: Monotonic(now.0.saturating_sub(nanoseconds(vote.granted_ago))),
            as_of: echoed.unwrap_or_default(),
        };
        self.votes = heartbeat.votes.iter().map(|vote| (vote.node, seen(vote))).collect();
        if heartbeat.still >= timing.stall {
            self.condemn();
        } else if word.term > self.refused_term {
            (self.is_condemned, self.granted_at) = (false, now);
        }
        Ok(heard)
    }

    /// Holds the peer dead until it begins another term, which says that it knows.
    pub fn condemn(&mut self) {
        (self.is_condemned, self.reset_at) = (true, None);
        if let Some(last) = &self.last {
            self.refused_term = last.word.term.max(self.refused_term);
        }
    }

    pub fn is_condemned(&self) -> bool {
        self.is_condemned
    }

    pub fn refused_term(&self) -> u64 {
        self.refused_term
    }

    pub fn granted_at(&self) -> Monotonic {
        self.granted_at
    }

    fn heard_at(&self) -> Monotonic {
        self.last.as_ref().map_or(self.granted_at, |last| last.at)
    }

    pub fn is_silent(&self, now: Monotonic, timing: &Timing) -> bool {
        self.last.is_none() || now.since(self.heard_at()) >= timing.suspect
    }

    /// Its connections were reset; whether it is to be asked now.
    pub fn note_reset(&mut self, now: Monotonic) -> bool {
        // One that was never heard, or is held dead, is judged as before; one that is being asked gets no more time.
        let begins = self.last.is_some() && !self.is_condemned && self.reset_at.is_none();
        if begins {
            self.reset_at = Some(now);
        }
        begins
    }

    /// Whether it is to show that it lives.
    pub fn is_asked(&self) -> bool {
        self.reset_at.is_some()
    }

    /// Condemns a peer that was silent for too long; whether it did so now.
    pub fn is_found_dead(&mut self, now: Monotonic, timing: &Timing) -> bool {
        let is_silent = now.since(self.heard_at()) >= timing.dead;
        let answers_no_more = self.reset_at.is_some_and(|reset_at| now.since(reset_at) >= timing.reset);
        let is_death = !self.is_condemned && (is_silent || answers_no_more);
        if is_death {
            self.condemn();
        }
        is_death
    }

    /// When silence is to be judged next.
    pub fn next_timeout(&self, timing: &Timing) -> Option<Monotonic> {
        let silence = if self.verdict.is_up() { timing.suspect } else { timing.dead };
        let silent_at = self.heard_at().after(silence);
        let next = self.reset_at.map_or(silent_at, |reset_at| reset_at.after(timing.reset).min(silent_at));
        (!self.is_condemned).then_some(next)
    }

    /// The word of the peer that it is told was heard.
    pub fn echo(&self, now: Monotonic, timing: &Timing) -> Option<Echo> {
        match (&self.last, self.unproven) {
            (Some(last), Some(unproven)) => {
                Some(if now.since(last.at) < timing.suspect { last.word } else { unproven })
            }
            (Some(last), None) => Some(last.word),
            (None, unproven) => unproven,
        }
    }

    /// What is said of the peer to others.
    pub fn vote(&self, node: NodeId, now: Monotonic) -> Option<Vote> {
        let incarnation = self.last.as_ref().map_or(Incarnation(0), |last| last.word.incarnation);
        self.is_condemned.then(|| Vote { node, incarnation, granted_ago: now.since(self.granted_at) })
    }

    /// When this peer granted `node` a lease last, if it holds the process of it dead that is known here as `of`, and said so after
    /// `since`.
    pub fn vote_on(&self, node: NodeId, of: &Self, since: Monotonic) -> Option<Monotonic> {
        let vote = self.votes.get(&node).filter(|vote| vote.as_of >= since)?;
        let known = of.last.as_ref().map_or(0, |last| last.word.incarnation.0);
        // 0: one of the two never heard it.
        (known == 0 || vote.incarnation.0 == 0 || vote.incarnation.0 == known).then_some(vote.granted)
    }

    /// Whether it told that it acts by the records of a revision, or that it answered nothing after a moment.
    pub fn knows(&self, revision: u64, moment: Monotonic) -> bool {
        self.applied >= revision || self.silent_as_of.is_some_and(|as_of| as_of >= moment)
    }

    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Whether the verdict is another one than before.
    pub fn set_verdict(&mut self, judgement: Judgement, now: Monotonic) -> bool {
        let (verdict, is_same) = match (judgement, self.verdict) {
            (Judgement::Up, Verdict::Up { since }) => (Verdict::Up { since }, true),
            (Judgement::Suspect, Verdict::Suspect { since }) => (Verdict::Suspect { since }, true),
            (Judgement::Down { lease_ends }, Verdict::Down { since, .. }) => {
                (Verdict::Down { since, lease_ends }, true)
            }
            (Judgement::Up, _) => (Verdict::Up { since: now }, false),
            (Judgement::Suspect, _) => (Verdict::Suspect { since: now }, false),
            (Judgement::Down { lease_ends }, _) => (Verdict::Down { since: now, lease_ends }, false),
        };
        self.verdict = verdict;
        !is_same
    }
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
