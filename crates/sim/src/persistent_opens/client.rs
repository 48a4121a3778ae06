//! A client of a continuously available share: its requests, their replays, and its conclusions
//! from answers.

use super::model::{File, Kept, Known, Mode, Own, SLOTS};
use crate::random::Random;
use crate::stack::{plain_create, wide};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use sys::{BufMut, Payload};
use types::{Monotonic, Sid};
use volume::backend::*;
use volume::security::rights;

const OPENS_MAX: usize = 4;
const SHARED_FILES: u64 = 3;
const SLOT_BYTES: u64 = 10;

/// A request that a client may have in flight.
#[derive(Debug, Clone)]
pub(crate) enum What {
    Create { file: File, guid: Guid, mode: Mode, lease: LeaseState },
    Lock { open: OpenId, slot: usize, sequence: u32, locks: bool },
    Write { open: OpenId, file: File, value: u64 },
    Read { open: OpenId, file: File },
    Delete { open: OpenId, file: File, delete: bool },
    Rename { open: OpenId, file: File, name: u64 },
    Close { open: OpenId },
    Reconnect { open: OpenId },
    EndSession,
}

/// A request without an answer.
#[derive(Debug, Clone)]
pub(crate) struct Doing {
    pub what: What,
    /// Step at which it was first sent.
    pub began: u64,
    pub began_at: Monotonic,
    /// Time at which it was first sent.
    pub said_at: Monotonic,
    /// Whether the request is a replay, because its first answer did not come.
    pub again: bool,
}

/// State of a client's session with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// No session until this time.
    Down {
        until: Monotonic,
    },
    /// The client reclaims its opens, then replays its unanswered requests.
    Returning,
    Up,
}

pub(crate) struct Client {
    pub number: usize,
    pub link: Link,
    /// The last step at which the client had no session, or had not all of its opens back.
    pub away_at: u64,
    session: u64,
    pub opens: Vec<Kept>,
    pub own: BTreeMap<u64, Own>,
    /// A break that arrived before the answer to the open whose lease it is, and whether it needs
    /// an acknowledgement.
    pub early: Option<(Guid, LeaseState, bool)>,
    next_own: u64,
    next_value: u64,
    next_guid: u64,
    /// The request in flight: at most one, acknowledgements aside.
    pub doing: Option<(u64, Doing)>,
    /// The request to replay when the client has its opens back.
    pub again: Option<Doing>,
    to_reclaim: VecDeque<OpenId>,
    pub wake_at: Monotonic,
    /// Whether the client closes everything and begins nothing new.
    pub leaves: bool,
}

fn token() -> Arc<AccessToken> {
    let sid = |rid| Sid::new(5, &[21, 1, 2, 3, rid]).expect("a SID");
    Arc::new(AccessToken {
        user: sid(1000),
        primary_group: sid(513),
        groups: vec![Sid::everyone(), Sid::authenticated_users(), Sid::users()],
        privileges: Privileges::empty(),
    })
}

/// Returns the identity of a client's session on a continuously available share.
pub(crate) fn caller(client: usize, session: u64) -> Caller {
    let share = ShareOptions {
        continuously_available: true,
        durability: Durability::Write,
        ..ShareOptions::default()
    };
    Caller {
        session: SessionId(session),
        client: [client as u8 + 1; 16],
        token: token(),
        root: ShareRoot::VOLUME,
        share_access: rights::FILE_ALL,
        share,
        standing: Standing::new("lasting", ()),
    }
}

fn lease_request(guid: Guid, state: LeaseState) -> LeaseRequest {
    LeaseRequest { key: guid, state, version_2: Some(LeaseVersion2 { parent_key: None, epoch: 0 }) }
}

impl Client {
    pub fn new(number: usize, now: Monotonic) -> Self {
        Self {
            number,
            link: Link::Down { until: now },
            away_at: 0,
            session: number as u64 + 1,
            opens: Vec::new(),
            own: BTreeMap::new(),
            early: None,
            next_own: 0,
            next_value: 1,
            next_guid: 1,
            doing: None,
            again: None,
            to_reclaim: VecDeque::new(),
            wake_at: now,
            leaves: false,
        }
    }

    pub fn open(&self, id: OpenId) -> Option<&Kept> {
        self.opens.iter().find(|kept| kept.open == id)
    }

    pub fn open_mut(&mut self, id: OpenId) -> Option<&mut Kept> {
        self.opens.iter_mut().find(|kept| kept.open == id)
    }

    pub fn own_mut(&mut self, file: File) -> Option<&mut Own> {
        match file {
            File::Own { client, number } if client == self.number => self.own.get_mut(&number),
            _ => None,
        }
    }

    fn own_of(&self, file: File) -> Option<&Own> {
        match file {
            File::Own { client, number } if client == self.number => self.own.get(&number),
            _ => None,
        }
    }

    /// Ends the session, with all requests in flight in it.
    pub fn loses_session(&mut self, now: Monotonic, step: u64, until: Monotonic) {
        if let Some((_, doing)) = self.doing.take()
            && !matches!(doing.what, What::EndSession | What::Reconnect { .. } | What::Read { .. })
        {
            self.again = Some(Doing { again: true, ..doing });
        }
        self.link = Link::Down { until };
        self.early = None;
        self.away_at = step;
        for kept in &mut self.opens {
            if kept.is_here {
                kept.here_at = (step, now);
            }
            (kept.is_here, kept.acknowledging) = (false, None);
        }
    }

    /// Begins a new session, and reclaims the client's opens in any order.
    pub fn returns(&mut self, random: &mut Random) {
        self.session += 100;
        self.link = Link::Returning;
        let mut ids: Vec<OpenId> = self.opens.iter().map(|kept| kept.open).collect();
        self.to_reclaim.clear();
        while !ids.is_empty() {
            let at = random.below(ids.len() as u64) as usize;
            self.to_reclaim.push_back(ids.swap_remove(at));
        }
    }

    /// Gives up its session.
    pub fn end_session(&self) -> Operation {
        Operation::EndSession { session: SessionId(self.session) }
    }

    /// Returns the acknowledgement of a break that arrived, if one is due.
    pub fn acknowledgement(&mut self, random: &mut Random) -> Option<(OpenId, Operation)> {
        let client = [self.number as u8 + 1; 16];
        let due = |kept: &&mut Kept| {
            kept.breaking.is_some() && kept.acknowledging.is_none() && kept.is_here && !kept.closing
        };
        let kept = self.opens.iter_mut().find(due)?;
        if !random.chance(300) {
            return None;
        }
        let state = kept.breaking?;
        kept.acknowledging = Some(state);
        Some((kept.open, Operation::AcknowledgeLease { client, key: kept.guid, state }))
    }

    /// Chooses the client's next request.
    pub fn choose(&mut self, random: &mut Random, step: u64, now: Monotonic) -> Option<(Doing, Operation)> {
        if self.link == Link::Returning {
            if let Some(open) = self.to_reclaim.pop_front() {
                let Some(kept) = self.open(open) else { return self.choose(random, step, now) };
                let operation = self.reconnect(kept);
                return Some((self.doing(What::Reconnect { open }, step, now), operation));
            }
            self.link = Link::Up;
            self.away_at = step;
            if let Some(mut doing) = self.again.take() {
                (doing.began_at, doing.again) = (now, true);
                let operation = self.request(&doing)?;
                return Some((doing, operation));
            }
        }
        let what = if self.leaves { self.leave() } else { self.choose_new(random, step) }?;
        let doing = self.doing(what, step, now);
        let operation = self.request(&doing)?;
        Some((doing, operation))
    }

    fn doing(&self, what: What, began: u64, began_at: Monotonic) -> Doing {
        Doing { what, began, began_at, said_at: began_at, again: false }
    }

    fn reconnect(&self, kept: &Kept) -> Operation {
        let caller = caller(self.number, self.session);
        let generation = self.own_of(kept.file).map_or(0, |own| own.name);
        Operation::Reconnect(Box::new(Reconnect {
            caller,
            open: kept.open,
            path: wide(&kept.file.name(generation)),
            create_guid: Some(kept.guid),
            persistent: true,
            lease: Some(lease_request(kept.guid, LeaseState::empty())),
        }))
    }

    fn leave(&mut self) -> Option<What> {
        let kept = self.opens.iter_mut().find(|kept| !kept.closing)?;
        kept.closing = true;
        kept.locks.iter_mut().for_each(Known::doubt);
        Some(What::Close { open: kept.open })
    }

    fn choose_new(&mut self, random: &mut Random, step: u64) -> Option<What> {
        let usable: Vec<usize> =
            (0..self.opens.len()).filter(|at| self.opens[*at].is_here && !self.opens[*at].closing).collect();
        let create = self.opens.len() < OPENS_MAX && random.chance(300);
        let Some(at) = random.pick(&usable).filter(|_| !create) else {
            return Some(self.create(random, step));
        };
        let kept = &mut self.opens[at];
        let (open, file) = (kept.open, kept.file);
        let choice = random.below(100);
        if choice < 15 || matches!(file, File::Shared(_)) && choice < 25 {
            kept.closing = true;
            kept.locks.iter_mut().for_each(Known::doubt);
            return Some(What::Close { open });
        }
        if choice < 65 || matches!(file, File::Shared(_)) {
            let slot = random.below(SLOTS as u64) as usize;
            if !kept.locks[slot].is_so() && !kept.locks[slot].is_not() {
                return None;
            }
            let locks = !kept.locks[slot].is_so();
            kept.locks[slot].doubt();
            // Sixteen numbers in each of 64 buckets.
            kept.sequence = (kept.sequence + 1) % (64 * 16);
            let sequence = ((kept.sequence % 64 + 1) << 4) | (kept.sequence / 64);
            return Some(What::Lock { open, slot, sequence, locks });
        }
        self.next_value += 1;
        let value = self.next_value << 8 | self.number as u64;
        let own = self.own_mut(file)?;
        Some(match choice {
            65..75 => What::Write { open, file, value },
            75..82 => What::Read { open, file },
            82..92 => {
                let delete = !own.deleting.is_so();
                own.deleting.doubt();
                What::Delete { open, file, delete }
            }
            _ if own.deleting.is_so() => What::Read { open, file },
            _ => What::Rename { open, file, name: own.name + 1 },
        })
    }

    fn create(&mut self, random: &mut Random, step: u64) -> What {
        self.next_guid += 1;
        let mut guid = [self.number as u8 + 1; 16];
        guid[..8].copy_from_slice(&self.next_guid.to_le_bytes());
        let lease = random
            .pick(&[LeaseState::READ, LeaseState::READ | LeaseState::HANDLE, LeaseState::all()])
            .unwrap_or_default();
        if random.chance(400) {
            self.next_own += 1;
            let file = File::Own { client: self.number, number: self.next_own };
            self.own.insert(self.next_own, Own::new(step));
            return What::Create { file, guid, mode: Mode { access: rights::FILE_ALL, share: 7 }, lease };
        }
        let file = File::Shared(random.below(SHARED_FILES));
        let access = random
            .pick(&[rights::FILE_GENERIC_READ, rights::FILE_GENERIC_READ | rights::FILE_GENERIC_WRITE])
            .unwrap_or_default();
        let share = random.pick(&[7, 7, 7, 1, 0]).unwrap_or(7);
        What::Create { file, guid, mode: Mode { access, share }, lease }
    }

    /// Returns the operation for the server.
    pub fn request(&self, doing: &Doing) -> Option<Operation> {
        let set = |open, set| Operation::SetInformation { open, set };
        Some(match &doing.what {
            What::Create { file, guid, mode, lease } => {
                let disposition = match file {
                    File::Shared(_) => Disposition::OpenIf,
                    File::Own { .. } => Disposition::Create,
                };
                let durable =
                    DurableRequest::Version2 { create_guid: *guid, timeout: None, persistent: true };
                let create =
                    plain_create(caller(self.number, self.session), wide(&file.name(0)), disposition);
                Operation::Create(Box::new(Create {
                    desired_access: mode.access,
                    share_access: mode.share,
                    cache: CacheRequest::Lease(lease_request(*guid, *lease)),
                    durable: Some(durable),
                    replay: doing.again,
                    ..create
                }))
            }
            What::Lock { open, slot, sequence, locks } => {
                let range = ByteRange { offset: *slot as u64 * SLOT_BYTES, len_bytes: SLOT_BYTES };
                let element =
                    LockElement { range, exclusive: locks.then_some(true), fail_immediately: *locks };
                Operation::Lock { open: *open, elements: vec![element], sequence: Some(*sequence) }
            }
            What::Write { open, value, .. } => {
                let mut bytes = BufMut::zeroed(8);
                bytes.copy_from_slice(&value.to_le_bytes());
                let data = Payload::from(bytes.freeze());
                Operation::Write { open: *open, offset: 0, data, write_through: false, unbuffered: false }
            }
            What::Read { open, .. } => {
                let range = ByteRange { offset: 0, len_bytes: 8 };
                Operation::Read { open: *open, range, unbuffered: false }
            }
            What::Delete { open, delete, .. } => {
                set(*open, SetInformation::Disposition { flags: u32::from(*delete) })
            }
            What::Rename { open, file, name } => {
                let target = wide(&file.name(*name));
                set(*open, SetInformation::Rename { target, replace: false, posix: false })
            }
            What::Close { open } => Operation::Close { open: *open, query: false },
            What::Reconnect { open } => self.reconnect(self.open(*open)?),
            What::EndSession => self.end_session(),
        })
    }
}
