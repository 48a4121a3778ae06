//! Judges an answer by all earlier answers to clients.

use super::client::{Client, Doing, Link, What};
use super::model::{File, Kept, Known, Mode, SLOTS};
use super::world::LastingWorld;
use std::time::Duration;
use types::NtStatus;
use volume::backend::*;

/// Least time for which an open surely waits for its client: its timeout, less the duration of an
/// interruption.
const KEPT_FOR: Duration = Duration::from_secs(50);

impl LastingWorld {
    /// Describes the fault of an answer, if there is one.
    pub fn answered(
        &mut self,
        index: usize,
        doing: &Doing,
        result: Result<Reply, NtStatus>,
    ) -> Option<String> {
        match (&doing.what, result) {
            (What::EndSession, _) => None,
            (What::Create { file, guid, mode, lease }, Ok(Reply::Created(created))) => {
                self.created(index, doing, (*file, *guid, *mode, *lease), &created)
            }
            (What::Create { file, mode, .. }, Err(status)) => {
                self.create_refused(index, doing, *file, *mode, status)
            }
            (What::Reconnect { open }, result) => self.reconnected(index, *open, result),
            (What::Lock { open, slot, locks, .. }, result) => {
                self.locked(index, doing, (*open, *slot, *locks), result)
            }
            (What::Write { file, value, .. }, Ok(Reply::Written(8))) => {
                if let Some(own) = self.clients[index].own_mut(*file) {
                    own.value = *value;
                }
                None
            }
            (What::Read { file, .. }, Ok(Reply::Read(data))) => {
                let own = self.clients[index].own_mut(*file)?;
                let bytes = data.contiguous();
                let value =
                    bytes.get(..8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight")));
                (value != own.value).then(|| format!("{value:#x} was read, not {:#x}", own.value))
            }
            (What::Read { file, .. }, Err(NtStatus::END_OF_FILE)) => {
                let own = self.clients[index].own_mut(*file)?;
                (own.value != 0).then(|| format!("the file is empty, not {:#x}", own.value))
            }
            (What::Delete { file, delete, .. }, Ok(Reply::Done)) => {
                let step = self.step;
                self.clients[index].own_mut(*file)?.deleting.learn(*delete, step);
                None
            }
            (What::Rename { file, name, .. }, Ok(Reply::Done)) => {
                let own = self.clients[index].own_mut(*file)?;
                own.name = *name;
                None
            }
            (What::Close { open }, Ok(Reply::Closed(_))) => {
                self.gone(index, *open);
                None
            }
            // The open ended by its timeout.
            (_, Err(NtStatus::FILE_CLOSED)) if doing.again && self.open_of(index, doing).is_none() => {
                self.forget(index, doing);
                None
            }
            (_, other) => Some(format!("answered {:.120}", format!("{other:?}"))),
        }
    }

    fn open_of(&self, index: usize, doing: &Doing) -> Option<&Kept> {
        match &doing.what {
            What::Lock { open, .. }
            | What::Write { open, .. }
            | What::Read { open, .. }
            | What::Delete { open, .. }
            | What::Rename { open, .. }
            | What::Close { open } => self.clients[index].open(*open),
            _ => None,
        }
    }

    /// Gives up a request whose open is gone.
    fn forget(&mut self, index: usize, doing: &Doing) {
        match &doing.what {
            // The outcome of the request stays unknown, since it is not replayed: the file is no
            // longer judged.
            What::Write { file, .. } | What::Delete { file, .. } | What::Rename { file, .. } => {
                self.forget_own(index, *file);
            }
            _ => {}
        }
    }

    /// Forgets an open, and all that depended on it.
    fn gone(&mut self, index: usize, open: OpenId) {
        let step = self.step;
        let client = &mut self.clients[index];
        let Some(at) = client.opens.iter().position(|kept| kept.open == open) else { return };
        let kept = client.opens.remove(at);
        self.touched.note(kept.file, index, step);
        if let Some(own) = client.own_mut(kept.file)
            && own.deleting.is_so()
        {
            own.exists.learn(false, step);
        }
    }

    fn others(&self, file: File, except: Option<OpenId>) -> impl Iterator<Item = (&Client, &Kept)> {
        self.clients
            .iter()
            .flat_map(|client| client.opens.iter().map(move |kept| (client, kept)))
            .filter(move |(_, kept)| kept.file == file && Some(kept.open) != except)
    }

    /// Whether the open existed at all times since the step, by all answers to its client and all
    /// messages to the server.
    fn is_certain(&self, kept: &Kept, step: u64) -> bool {
        let may_have_expired = !kept.is_here && self.now.since(kept.here_at.1) > KEPT_FOR;
        kept.since <= step && !kept.closing && !may_have_expired
    }

    /// Whether others may have had the file open at some time since the step and no longer have, or
    /// will have.
    fn was_touched(&self, index: usize, file: File, step: u64) -> bool {
        self.touched.by_others_since(file, index, step)
            || self.clients.iter().any(|client| {
                let creates =
                    |doing: &Doing| matches!(doing.what, What::Create { file: other, .. } if other == file);
                client.number != index
                    && (client.doing.iter().any(|(_, doing)| creates(doing))
                        || client.again.iter().any(creates))
            })
    }

    /// Whether another client was away, or came back, since the step.
    fn was_away(&self, index: usize, step: u64) -> bool {
        let away = |client: &Client| client.link != Link::Up || client.away_at >= step;
        self.clients.iter().any(|client| client.number != index && away(client))
    }

    fn created(
        &mut self,
        index: usize,
        doing: &Doing,
        (file, guid, mode, lease): (File, Guid, Mode, LeaseState),
        created: &Created,
    ) -> Option<String> {
        self.coverage.creates += 1;
        if !created.persistent {
            return Some("the handle is not persistent".to_owned());
        }
        let CacheGrant::Lease { state, .. } = created.cache else { return Some("no lease".to_owned()) };
        if !lease.contains(state) {
            return Some(format!("{state:?} was granted, and {lease:?} asked for"));
        }
        for (other, kept) in self.others(file, Some(created.open)) {
            if !self.is_certain(kept, doing.began) {
                continue;
            }
            if kept.mode.excludes(mode) {
                return Some(format!(
                    "granted beside {:?} of client {}, which excludes it",
                    kept.open, other.number
                ));
            }
            if state.contains(LeaseState::WRITE) {
                return Some(format!("{state:?} granted beside {:?} of client {}", kept.open, other.number));
            }
            if kept.lease.contains(LeaseState::WRITE) && kept.breaking.is_none() {
                return Some(format!(
                    "granted while {:?} of client {} caches writes and was told of no break",
                    kept.open, other.number
                ));
            }
        }
        let step = self.step;
        let client = &mut self.clients[index];
        if let Some(own) = client.own_mut(file) {
            if created.action != CreateAction::Created {
                return Some(format!("a new file was {:?}", created.action));
            }
            own.exists.learn(true, step);
        }
        if client.open(created.open).is_some() {
            return Some(format!("{:?} is open already", created.open));
        }
        let early = client.early.take().filter(|(key, ..)| *key == guid);
        let breaking = early.and_then(|(_, to, acknowledge)| acknowledge.then_some(to));
        let lowered = early.filter(|(.., acknowledge)| !acknowledge).map_or(state, |(_, to, _)| state & to);
        client.opens.push(Kept {
            open: created.open,
            guid,
            file,
            mode,
            since: step,
            lease: lowered,
            breaking,
            acknowledging: None,
            locks: [Known::new(false, step); SLOTS],
            sequence: 0,
            closing: false,
            is_here: true,
            here_at: (step, self.now),
        });
        None
    }

    fn create_refused(
        &mut self,
        index: usize,
        doing: &Doing,
        file: File,
        mode: Mode,
        status: NtStatus,
    ) -> Option<String> {
        self.coverage.refusals += 1;
        let step = self.step;
        // The file was made, and its open timed out before the request could be replayed.
        let is_late = doing.again && self.now.since(doing.said_at) > KEPT_FOR;
        if let Some(own) = self.clients[index].own_mut(file) {
            if is_late && status == NtStatus::OBJECT_NAME_COLLISION {
                own.exists.learn(true, step);
                return None;
            }
            own.exists.learn(false, step);
            return Some(format!("refused: {status:?}, and nobody else has it"));
        }
        let touched = self.was_touched(index, file, doing.began);
        let right = match status {
            NtStatus::SHARING_VIOLATION => {
                touched || self.others(file, None).any(|(_, kept)| kept.mode.excludes(mode))
            }
            NtStatus::FILE_NOT_AVAILABLE => {
                self.was_away(index, doing.began) || self.own_is_away(index, file)
            }
            _ => false,
        };
        (!right).then(|| format!("refused: {status:?}, and nothing stands against it"))
    }

    fn own_is_away(&self, index: usize, file: File) -> bool {
        self.clients[index].opens.iter().any(|kept| kept.file == file && !kept.is_here)
    }

    fn reconnected(&mut self, index: usize, open: OpenId, result: Result<Reply, NtStatus>) -> Option<String> {
        let client = &mut self.clients[index];
        let kept = client.opens.iter_mut().find(|kept| kept.open == open)?;
        let away_for = self.now.since(kept.here_at.1);
        let created = match result {
            Ok(Reply::Created(created)) => created,
            // The answer to its CLOSE was lost, or its time is over.
            Err(NtStatus::OBJECT_NAME_NOT_FOUND) if kept.closing || away_for > KEPT_FOR => {
                let (closing, file) = (kept.closing, kept.file);
                if !closing {
                    self.coverage.expired += 1;
                }
                self.gone(index, open);
                let client = &mut self.clients[index];
                client
                    .again
                    .take_if(|doing| matches!(&doing.what, What::Close { open: other } if *other == open));
                let of_open = |what: &What| {
                    matches!(what, What::Lock { open: other, .. } | What::Write { open: other, .. }
                        | What::Delete { open: other, .. } | What::Rename { open: other, .. } if *other == open)
                };
                if let Some(doing) = client.again.take_if(|doing| of_open(&doing.what)) {
                    self.forget(index, &doing);
                }
                if let Some(own) = self.clients[index].own_mut(file)
                    && !own.deleting.is_so()
                    && !own.deleting.is_not()
                {
                    self.forget_own(index, file);
                }
                return None;
            }
            other => return Some(format!("its open did not come back: {:.120}", format!("{other:?}"))),
        };
        self.coverage.reclaims += 1;
        let CacheGrant::Lease { state, .. } = created.cache else {
            return Some("it has no lease".to_owned());
        };
        let told = Some(state) == kept.breaking;
        let (before, file, since) = (kept.lease, kept.file, kept.here_at.0);
        // A break that did not reach the client while it was away, or one that reached it and never
        // took effect.
        if state != before && !told && !self.may_have_broken(index, file, since) {
            return Some(format!("its lease is {state:?}, and was {before:?}"));
        }
        let kept = self.clients[index].open_mut(open)?;
        (kept.lease, kept.breaking, kept.is_here) = (state, None, true);
        let deleting = created.information.delete_pending;
        let own = self.clients[index].own_mut(file)?;
        if own.deleting.is_so() && !deleting || own.deleting.is_not() && deleting {
            return Some(format!("deletion pending: {deleting}, and {:?} was told", own.deleting));
        }
        None
    }

    fn forget_own(&mut self, index: usize, file: File) {
        if let File::Own { number, .. } = file {
            self.clients[index].own.remove(&number);
        }
    }

    /// Whether a request that breaks leases of the file was sent since the step, or had no answer
    /// by then.
    fn may_have_broken(&self, index: usize, file: File, since: u64) -> bool {
        let breaks = |client: &Client, doing: &Doing| match &doing.what {
            What::Create { file: other, .. } => *other == file,
            What::Lock { open, .. } => client.open(*open).is_some_and(|kept| kept.file == file),
            _ => false,
        };
        let breaks = |client: &Client| {
            let doing = client.doing.iter().map(|(_, doing)| doing);
            doing.chain(&client.again).any(|doing| breaks(client, doing))
        };
        self.touched.by_others_since(file, index, since)
            || self.locked.by_others_since(file, index, since)
            || self.clients.iter().any(breaks)
    }

    fn locked(
        &mut self,
        index: usize,
        doing: &Doing,
        (open, slot, locks): (OpenId, usize, bool),
        result: Result<Reply, NtStatus>,
    ) -> Option<String> {
        self.coverage.locks += 1;
        let step = self.step;
        let file = self.clients[index].open(open)?.file;
        let began = doing.began;
        match result {
            Ok(Reply::Done) => {
                let held = self
                    .others(file, Some(open))
                    .find(|(_, kept)| kept.locks[slot].is_so_since(began) && self.is_certain(kept, began))
                    .map(|(client, kept)| (client.number, kept.open));
                if let Some((client, other)) = held.filter(|_| locks) {
                    return Some(format!("locked, and {other:?} of client {client} has the lock"));
                }
                self.clients[index].open_mut(open)?.locks[slot].learn(locks, step);
                None
            }
            Err(NtStatus::LOCK_NOT_GRANTED | NtStatus::FILE_LOCK_CONFLICT) if locks => {
                self.coverage.refusals += 1;
                let may_be = self.was_touched(index, file, began)
                    || self.others(file, Some(open)).any(|(_, kept)| !kept.locks[slot].is_not_since(began));
                self.clients[index].open_mut(open)?.locks[slot].learn(false, step);
                (!may_be).then(|| "refused, and nobody has the lock".to_owned())
            }
            other => Some(format!("answered {:.120}", format!("{other:?}"))),
        }
    }
}
