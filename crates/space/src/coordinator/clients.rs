//! Requests of the volume, and the answers to them.
//!
//! Invariant: a request is answered once: when its last piece is done, or at its deadline if disks
//! are unreachable. Its pieces that are in flight to the copies then continue.

use super::Counters;
use super::keys::ClientKey;
use crate::api::{SpaceCompletion, SpaceError, SpaceReply};
use crate::planted::Planted;
use std::collections::BTreeMap;
use sys::Payload;
use types::Monotonic;

/// A request of the volume.
struct Client {
    token: u64,
    reads: bool,
    /// Pieces that have not ended.
    remaining: usize,
    /// Data of a read, by piece.
    parts: Vec<Option<Payload>>,
    error: Option<SpaceError>,
    deadline: Monotonic,
    /// Whether the request was answered at its deadline, before its pieces ended.
    answered: bool,
}

pub(super) struct Clients {
    map: BTreeMap<ClientKey, Client>,
    last: ClientKey,
    /// Lower bound of all requests' deadlines.
    expire_at: Monotonic,
    completions: Vec<SpaceCompletion>,
}

impl Clients {
    pub fn new(now: Monotonic) -> Self {
        Self { map: BTreeMap::new(), last: ClientKey::default(), expire_at: now, completions: Vec::new() }
    }

    /// Adds a request of this many pieces. It is late if it has no answer by `deadline`.
    pub fn begin(&mut self, token: u64, reads: bool, pieces: usize, deadline: Monotonic) -> ClientKey {
        let key = self.last.advance();
        let parts = vec![None; pieces];
        let client =
            Client { token, reads, remaining: pieces, parts, error: None, deadline, answered: false };
        // Later requests have later deadlines.
        if self.map.is_empty() {
            self.expire_at = deadline;
        }
        self.map.insert(key, client);
        key
    }

    /// Answers a request before any piece of it has begun.
    pub fn refuse(&mut self, token: u64, error: SpaceError) {
        self.completions.push(SpaceCompletion { token, result: Err(error) });
    }

    /// Notes the result of a piece; the last one answers the request. `Some` is the data of a read.
    pub fn piece_done(
        &mut self,
        key: ClientKey,
        part: usize,
        result: Result<Option<Payload>, SpaceError>,
        counters: &mut Counters,
    ) {
        let Some(client) = self.map.get_mut(&key) else { return };
        debug_assert!(client.remaining > 0, "a request has more answers than pieces");
        client.remaining -= 1;
        match result {
            Ok(data) => client.parts[part] = data,
            Err(error) => merge_error(&mut client.error, error),
        }
        if client.remaining == 0 {
            self.answer(key, counters);
        }
    }

    fn answer(&mut self, key: ClientKey, counters: &mut Counters) {
        let Some(client) = self.map.remove(&key) else { return };
        if client.answered {
            return;
        }
        let result = match client.error {
            Some(error) => Err(error),
            None if client.reads => {
                debug_assert!(client.parts.iter().all(Option::is_some), "a read is answered in part (I6)");
                let mut data = Payload::new();
                client.parts.into_iter().flatten().for_each(|part| data.append(part));
                counters.reads += 1;
                Ok(SpaceReply::Data(data))
            }
            None => {
                counters.writes += 1;
                Ok(SpaceReply::Done)
            }
        };
        self.completions.push(SpaceCompletion { token: client.token, result });
    }

    pub fn next_timeout(&self) -> Option<Monotonic> {
        (!self.map.is_empty()).then_some(self.expire_at)
    }

    /// Whether some request may be late.
    pub fn is_due(&self, now: Monotonic) -> bool {
        self.expire_at <= now
    }

    /// Returns requests whose deadline has passed.
    pub fn late(&self, now: Monotonic) -> Vec<ClientKey> {
        let late = self.map.iter().filter(|(_, client)| !client.answered && client.deadline <= now);
        late.map(|(&key, _)| key).collect()
    }

    /// Moves a slow request's deadline to this time.
    pub fn extend(&mut self, key: ClientKey, deadline: Monotonic) {
        self.map.entry(key).and_modify(|client| client.deadline = deadline);
    }

    /// Answers the request as unavailable before its pieces are done.
    pub fn give_up(&mut self, key: ClientKey) {
        if let Some(client) = self.map.get_mut(&key) {
            debug_assert!(!client.answered, "a request is answered twice");
            client.answered = true;
            let token = client.token;
            self.completions.push(SpaceCompletion { token, result: Err(SpaceError::Unavailable) });
        }
    }

    /// Checks for late requests again at the next deadline, or at this time.
    pub fn look_again(&mut self, at: Monotonic) {
        let waiting = self.map.values().filter(|client| !client.answered);
        self.expire_at = waiting.map(|client| client.deadline).min().unwrap_or(at);
    }

    /// Moves the answers into `out`.
    pub fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        out.append(&mut self.completions);
    }

    /// Withdraws acknowledgements that were not polled yet, since they may not hold any more.
    pub fn take_back_acknowledgements(&mut self) {
        for held in self.completions.iter_mut().filter(|held| matches!(held.result, Ok(SpaceReply::Done))) {
            held.result = Err(SpaceError::Unavailable);
        }
    }

    /// Fails all requests with `why`, also those whose answers were not polled yet, since their
    /// data may be out of date.
    pub fn stop(&mut self, why: &SpaceError) {
        let is_right = !Planted::AnswerAfterFencing.is_planted();
        for held in self.completions.iter_mut().filter(|held| held.result.is_ok() && is_right) {
            held.result = Err(why.clone());
        }
        for client in std::mem::take(&mut self.map).into_values().filter(|client| !client.answered) {
            self.refuse(client.token, why.clone());
        }
    }
}

/// Joins the corrupt blocks of two pieces; of other errors, keeps the first.
fn merge_error(have: &mut Option<SpaceError>, error: SpaceError) {
    match (have, error) {
        (Some(SpaceError::Corrupt { lbas }), SpaceError::Corrupt { lbas: more }) => lbas.extend(more),
        (have @ None, error) => *have = Some(error),
        _ => {}
    }
}
