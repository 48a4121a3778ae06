//! One node's knowledge of another.

use super::keys::KeyNumber;
use super::{Echo, Heartbeat, Incarnation, Refused, Timing, Verdict, Vote, Ways};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use types::{Monotonic, NodeId};

/// The last accepted heartbeat.
struct Last {
    word: Echo,
    at: Monotonic,
    /// By how much its stamps are ahead of this node's clock at most, in nanoseconds: those that were on their way for the shortest time.
    lead: i128,
}

/// Most words, for each peer, of processes that did not prove to live now: the peer's own, between
/// replays of earlier ones.
const UNPROVEN_MAX: usize = 8;

/// A word of such a process.
struct Unproven {
    word: Echo,
    /// The word echoes something that this process said long ago: it is likely to be a replay, and gives
    /// way first.
    is_stale: bool,
}

impl Last {
    /// A stamp comes behind the one before, and no earlier than time allows. The first word was less than `dead` on its way, as it was
    /// fresh, and clocks run apart by less than one percent.
    fn check_stamp(&self, stamp: u64, lead: i128, now: Monotonic, timing: &Timing) -> Result<(), Refused> {
        let drift = now.since(self.at) / 100;
        match lead - self.lead > (timing.dead + drift).as_nanos() as i128 {
            _ if stamp <= self.word.stamp => Err(Refused::Replayed),
            true => Err(Refused::Ahead),
            false => Ok(()),
        }
    }
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

/// Classes of accepted heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// A heartbeat as the ones before it.
    Again,
    /// The first of a new term.
    NewTerm,
    /// The first of this peer.
    First,
    /// The first of another process of the peer.
    Restarted,
    /// A word of another process, which has not proved that it lives now.
    Unproven,
}

/// A peer.
///
/// Invariants: `refused_term` never falls while the peer's incarnation stays; a condemned peer is granted nothing.
pub(super) struct Peer {
    pub address: SocketAddr,
    last: Option<Last>,
    /// Processes that have not proved to live now, the last heard at the end; they are echoed in turn when the known one is silent.
    unproven: Vec<Unproven>,
    /// The index of the one that is echoed next.
    echoed_next: usize,
    /// The last key by which it was heard, or which was the present one when it was first known: none before that is good for it.
    pub shown_key: KeyNumber,
    /// When the first word was sent to it that it did not echo.
    unheard_since: Option<Monotonic>,
    last_sent: Monotonic,
    pub is_cut_off: bool,
    /// The peer is stopping, and has not finished.
    pub needs_others: bool,
    /// The peer's last report.
    pub ways: Ways,
    /// When it was last granted a lease; before it was heard: when it was added, since an earlier process may have granted one.
    granted_at: Monotonic,
    /// This node holds it dead.
    is_condemned: bool,
    /// When its connections were reset, if it has not shown since that it lives.
    reset_at: Option<Monotonic>,
    refused_term: u64,
    /// The moment of this node's clock up to which the peer grants it a lease in its current term.
    pub granted: Option<Monotonic>,
    /// Nodes that the peer holds dead.
    votes: BTreeMap<NodeId, SeenVote>,
    applied: u64,
    /// A moment after which the peer once reported that it answers nothing.
    silent_as_of: Option<Monotonic>,
    verdict: Verdict,
    /// The process that is, or was last, held dead by a majority.
    taken_for_dead: Option<Incarnation>,
    /// How often such a process was heard again.
    survived: u64,
}

impl Peer {
    pub fn new(address: SocketAddr, key: KeyNumber, now: Monotonic) -> Self {
        Self {
            address,
            last: None,
            unproven: Vec::new(),
            echoed_next: 0,
            shown_key: key,
            unheard_since: None,
            last_sent: now,
            is_cut_off: false,
            needs_others: false,
            ways: Ways::default(),
            granted_at: now,
            is_condemned: false,
            reset_at: None,
            refused_term: 0,
            granted: None,
            votes: BTreeMap::new(),
            applied: 0,
            silent_as_of: None,
            verdict: Verdict::Suspect { since: now },
            taken_for_dead: None,
            survived: 0,
        }
    }

    /// Takes a heartbeat. `echoed`: when this process sent the word that it echoes. `is_fresh`: that was
    /// just now.
    pub fn hear(
        &mut self,
        heartbeat: &Heartbeat,
        echoed: Option<Monotonic>,
        is_fresh: bool,
        now: Monotonic,
        timing: &Timing,
    ) -> Result<Heard, Refused> {
        let word = Echo { incarnation: heartbeat.incarnation, stamp: heartbeat.stamp, term: heartbeat.term };
        // Echoes of an earlier process are older than the silence since its end.
        let begins = is_fresh && self.last.as_ref().is_none_or(|last| now.since(last.at) >= timing.dead);
        let lead = i128::from(word.stamp) - i128::from(now.0);
        let heard = match &self.last {
            Some(last) if last.word.incarnation == word.incarnation => {
                if !begins {
                    last.check_stamp(word.stamp, lead, now, timing)?;
                }
                if word.term > last.word.term { Heard::NewTerm } else { Heard::Again }
            }
            _ if !begins => {
                self.note_unproven(Unproven { word, is_stale: echoed.is_some() && !is_fresh });
                return Ok(Heard::Unproven);
            }
            last => {
                let was_known = last.is_some();
                // A process that was not there when this one began has been refused nothing; of one that was, this one knows nothing.
                self.refused_term = if was_known { 0 } else { word.term };
                self.unproven.clear();
                (self.is_condemned, self.granted) = (false, None);
                (self.reset_at, self.unheard_since) = (None, None);
                if was_known { Heard::Restarted } else { Heard::First }
            }
        };
        let known = self.last.as_ref().filter(|_| !begins);
        let lead = known.map_or(lead, |known| known.lead.max(lead));
        self.last = Some(Last { word, at: now, lead });
        if let Some(echoed) = echoed {
            self.note_echoed(echoed, timing);
        }
        // Only a word from after the reset, in answer to one from after it, shows that the process is still
        // there.
        if echoed.is_some_and(|echoed| self.reset_at.is_some_and(|reset_at| echoed >= reset_at)) {
            self.reset_at = None;
        }
        (self.applied, self.needs_others, self.ways) =
            (heartbeat.applied, heartbeat.needs_others, heartbeat.ways);
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

    fn note_unproven(&mut self, new: Unproven) {
        let same = |known: &Unproven| known.word.incarnation == new.word.incarnation;
        if let Some(at) = self.unproven.iter().position(same) {
            if new.word.stamp <= self.unproven[at].word.stamp {
                return;
            }
            self.unproven.remove(at);
        } else if self.unproven.len() == UNPROVEN_MAX {
            let victim = self.unproven.iter().position(|known| known.is_stale);
            self.unproven.remove(victim.unwrap_or(0));
        }
        self.unproven.push(new);
    }

    /// A word was sent to it, with a stamp of this moment.
    pub fn note_sent(&mut self, at: Monotonic) {
        self.unheard_since.get_or_insert(at);
        self.last_sent = at;
    }

    /// The peer has heard the word that was sent at `at`.
    fn note_echoed(&mut self, at: Monotonic, timing: &Timing) {
        if self.unheard_since.is_some_and(|since| at >= since) {
            let later = at.after(timing.interval).min(self.last_sent);
            self.unheard_since = (at < self.last_sent).then_some(later);
        }
    }

    /// Whether it is cut off from now on, or not any more; `None`: as before. One that was never heard is judged by its silence alone.
    pub fn turns_cut_off(&mut self, now: Monotonic, timing: &Timing) -> Option<bool> {
        let is_old = |since: Monotonic| now.since(since) >= timing.cut_off;
        let is_cut_off =
            self.last.as_ref().is_some_and(|last| is_old(last.at) || self.unheard_since.is_some_and(is_old));
        (std::mem::replace(&mut self.is_cut_off, is_cut_off) != is_cut_off).then_some(is_cut_off)
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

    pub fn granted_at(&self) -> Monotonic {
        self.granted_at
    }

    fn heard_at(&self) -> Monotonic {
        self.last.as_ref().map_or(self.granted_at, |last| last.at)
    }

    #[cfg(test)]
    pub fn is_of(&self, incarnation: Incarnation) -> bool {
        self.last.as_ref().is_some_and(|last| last.word.incarnation == incarnation)
    }

    pub fn is_silent(&self, now: Monotonic, timing: &Timing) -> bool {
        self.last.is_none() || now.since(self.heard_at()) >= timing.suspect
    }

    /// Whether it was heard so lately that its last report of itself still counts.
    pub fn was_heard(&self, now: Monotonic, timing: &Timing) -> bool {
        self.last.as_ref().is_some_and(|last| now.since(last.at) < timing.cut_off)
    }

    /// Notes that the peer's connections were reset; whether to ask it now.
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

    /// The word of the peer that it is told was heard, and the last term in which it is granted nothing: to a process that has not proved to
    /// live nothing is granted at all, since no vote would say until when.
    pub fn echo(&mut self, now: Monotonic, timing: &Timing) -> (Option<Echo>, u64) {
        let known = self.last.as_ref();
        let is_known = known.is_some_and(|last| now.since(last.at) < timing.suspect);
        if is_known || self.unproven.is_empty() {
            return (known.map(|last| last.word), self.refused_term);
        }
        self.echoed_next = (self.echoed_next + 1) % self.unproven.len();
        (Some(self.unproven[self.echoed_next].word), u64::MAX)
    }

    /// This node's vote against the peer for the others, if it holds the peer dead.
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
        let process = self.last.as_ref().map(|last| last.word.incarnation);
        match verdict {
            Verdict::Down { .. } if !is_same => self.taken_for_dead = process,
            Verdict::Up { .. } => {
                let taken = self.taken_for_dead.take();
                self.survived += u64::from(taken.is_some() && taken == process);
            }
            _ => {}
        }
        !is_same
    }

    /// How often a majority held a process of the peer dead that had not ended.
    pub fn survived(&self) -> u64 {
        self.survived
    }
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
