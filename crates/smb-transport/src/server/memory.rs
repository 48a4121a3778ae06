//! Memory of unfinished and of held messages: one rule for TCP and SMB Direct.
//!
//! A large message gets its own buffer of the announced length, so that its payload is received without
//! a copy. A peer that announces and sends nothing must not block others with that memory. So a
//! connection first asks [`ReceiveMemory`], which counts by [`Party`], and by two rules:
//!
//! - **A party may hold as much as is free.** One party alone gets half of all, each of n an (n+1)th,
//!   and the next one finds as much. A party that holds much never delays others that hold little.
//! - **Half of that is lent on an announcement.** More is lent only for a message of which a fair part
//!   has arrived: as much as its connection could hold in its small buffer.
//!
//! Connections without a loan wait with their small buffer. Freed memory goes to their parties in turn;
//! in each, first to connections that have sent whole large messages before. When connections wait, the
//! owner ends those that hold memory and are too slow ([`ReceiveMemory::is_short`]). A connection with
//! a loan needs no more to finish its message, so there is no deadlock.
//!
//! SMB Direct has no wait, since a peer sends as its credits allow: a connection beyond its share is
//! closed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use types::PeerHost;

/// Guests' part of a transport's memory: a sixteenth.
const GUESTS_DIVISOR: usize = 16;

/// Parties tried each time that memory becomes free: the rest has its turn later.
const TRIED_MAX: usize = 16;

/// The holder of memory: the clients of one host, and of them those of one user if the user is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Party {
    pub host: PeerHost,
    pub user: Option<Arc<str>>,
}

/// Names a party while it has connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartyId(u32);

/// Memory lent to one connection, until [`ReceiveMemory::give_back`].
#[derive(Debug)]
#[must_use]
pub struct Loan {
    party: PartyId,
    bytes: usize,
    is_advance: bool,
}

impl Loan {
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A connection's place among those that wait; smaller comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// Whether the connection has not brought a whole large message yet.
    is_new: bool,
    order: u64,
}

/// The account of one party.
struct Account<C> {
    party: Party,
    connections: usize,
    held_bytes: usize,
    /// Of these, bytes lent on announcements.
    advanced_bytes: usize,
    /// Connections that wait, and for how many bytes.
    waiting: BTreeMap<Waiting, (C, usize)>,
    /// Turn of the party, while its connections wait.
    turn: Option<u64>,
}

/// The memory of one transport, which names its connections `C`. See the module for the rules.
pub struct ReceiveMemory<C> {
    bytes_max: usize,
    held_bytes: usize,
    accounts: Vec<Option<Account<C>>>,
    free_accounts: Vec<u32>,
    by_party: HashMap<Party, PartyId>,
    /// Parties of which connections wait, by their turn.
    turns: BTreeMap<u64, PartyId>,
    /// Memory became free since the last [`Self::next_served`] without a result.
    has_freed: bool,
    orders: u64,
}

impl<C: Copy> ReceiveMemory<C> {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            held_bytes: 0,
            accounts: Vec::new(),
            free_accounts: Vec::new(),
            by_party: HashMap::new(),
            turns: BTreeMap::new(),
            has_freed: false,
            orders: 0,
        }
    }

    /// Bytes lent.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Connections wait for memory.
    pub fn is_short(&self) -> bool {
        !self.turns.is_empty()
    }

    /// A party has one connection more.
    pub fn join(&mut self, party: Party) -> PartyId {
        if let Some(&id) = self.by_party.get(&party) {
            self.account(id).connections += 1;
            return id;
        }
        let slot = self.free_accounts.pop().unwrap_or_else(|| {
            self.accounts.push(None);
            (self.accounts.len() - 1) as u32
        });
        self.by_party.insert(party.clone(), PartyId(slot));
        self.accounts[slot as usize] = Some(Account {
            party,
            connections: 1,
            held_bytes: 0,
            advanced_bytes: 0,
            waiting: BTreeMap::new(),
            turn: None,
        });
        PartyId(slot)
    }

    /// Removes a connection of a party. It holds no memory and does not wait.
    pub fn leave(&mut self, id: PartyId) {
        let account = self.account(id);
        account.connections -= 1;
        if account.connections > 0 {
            return;
        }
        assert!(
            account.held_bytes == 0 && account.waiting.is_empty(),
            "a party without connections holds memory"
        );
        if let Some(account) = self.accounts[id.0 as usize].take() {
            self.by_party.remove(&account.party);
            self.free_accounts.push(id.0);
        }
    }

    fn account(&mut self, id: PartyId) -> &mut Account<C> {
        self.accounts[id.0 as usize].as_mut().expect("a party exists while it has connections")
    }

    /// Whether a party may be lent this many bytes more.
    fn fits(&mut self, id: PartyId, bytes: usize, is_advance: bool) -> bool {
        let free_bytes = self.bytes_max.saturating_sub(self.held_bytes);
        let is_alone = self.held_bytes == 0;
        let account = self.account(id);
        let fits = account.held_bytes + bytes <= free_bytes;
        // A single message always fits, even above the limit.
        is_alone || fits && (!is_advance || account.advanced_bytes + bytes <= free_bytes / 2)
    }

    /// Lends `bytes` for one message. `is_advance`: less than a fair part of it has come.
    pub fn lend(&mut self, party: PartyId, bytes: usize, is_advance: bool) -> Option<Loan> {
        if !self.fits(party, bytes, is_advance) {
            return None;
        }
        self.held_bytes += bytes;
        let account = self.account(party);
        account.held_bytes += bytes;
        account.advanced_bytes += if is_advance { bytes } else { 0 };
        Some(Loan { party, bytes, is_advance })
    }

    /// Counts memory against a party that it was lent to as another.
    pub fn take_over(&mut self, party: PartyId, bytes: usize) -> Loan {
        self.held_bytes += bytes;
        self.account(party).held_bytes += bytes;
        Loan { party, bytes, is_advance: false }
    }

    /// Makes a loan of this size, or resizes one; `None`: the party may not have the difference, and the
    /// loan is unchanged.
    pub fn resize(&mut self, loan: &mut Option<Loan>, party: PartyId, bytes: usize) -> Option<()> {
        let before = loan.as_ref().map_or(0, Loan::bytes);
        if bytes > before {
            // Only the difference may be refused: without it the rest would fit as the only loan.
            let more = self.lend(party, bytes - before, false)?;
            self.give_back(more);
        }
        loan.take().into_iter().for_each(|loan| self.give_back(loan));
        *loan = (bytes > 0).then(|| self.take_over(party, bytes));
        Some(())
    }

    pub fn give_back(&mut self, loan: Loan) {
        let Loan { party, bytes, is_advance } = loan;
        self.held_bytes -= bytes;
        let account = self.account(party);
        account.held_bytes -= bytes;
        account.advanced_bytes -= if is_advance { bytes } else { 0 };
        self.has_freed = true;
    }

    /// A connection that could not be lent `bytes`, not even without an advance, waits for them from now on.
    pub fn wait(&mut self, party: PartyId, connection: C, bytes: usize, is_new: bool) -> Waiting {
        self.orders += 1;
        let waiting = Waiting { is_new, order: self.orders };
        self.account(party).waiting.insert(waiting, (connection, bytes));
        self.take_turn(party, false);
        waiting
    }

    /// Ends a connection's wait.
    pub fn end_wait(&mut self, party: PartyId, waiting: Waiting) {
        self.account(party).waiting.remove(&waiting);
        self.take_turn(party, false);
    }

    /// Gives a party with waiting connections a turn, if it has none, and takes it from one without.
    /// `anew`: behind all others.
    fn take_turn(&mut self, party: PartyId, anew: bool) {
        self.orders += 1;
        let next = self.orders;
        let account = self.account(party);
        let before = account.turn;
        let kept = before.filter(|_| !anew).unwrap_or(next);
        account.turn = (!account.waiting.is_empty()).then_some(kept);
        let after = account.turn;
        if before != after {
            before.map(|turn| self.turns.remove(&turn));
            self.turns.extend(after.map(|turn| (turn, party)));
        }
    }

    /// Gives all that wait a turn, also those that had none when memory became free last.
    pub fn look_again(&mut self) {
        self.has_freed = true;
    }

    /// Returns a waiting connection that now can have its memory, and ends its wait. Call it until it
    /// returns none, with [`Self::lend`] for each.
    pub fn next_served(&mut self) -> Option<C> {
        if !self.has_freed {
            return None;
        }
        for _ in 0..self.turns.len().min(TRIED_MAX) {
            let (_, &party) = self.turns.first_key_value()?;
            let first = self.account(party).waiting.first_key_value();
            let (waiting, connection, bytes) = first.map(|(&waiting, &(id, bytes))| (waiting, id, bytes))?;
            let fits = self.fits(party, bytes, false);
            if fits {
                self.account(party).waiting.remove(&waiting);
            }
            self.take_turn(party, true);
            if fits {
                return Some(connection);
            }
        }
        self.has_freed = false;
        None
    }
}

/// The memory of one transport. Guests and members have separate parts, so that guests cannot take that
/// of members.
pub struct Memories<C> {
    guests: ReceiveMemory<C>,
    members: ReceiveMemory<C>,
}

impl<C: Copy> Memories<C> {
    pub fn new(bytes_max: usize) -> Self {
        let guests_bytes = bytes_max / GUESTS_DIVISOR;
        Self {
            guests: ReceiveMemory::new(guests_bytes),
            members: ReceiveMemory::new(bytes_max - guests_bytes),
        }
    }

    pub fn of(&mut self, is_member: bool) -> &mut ReceiveMemory<C> {
        if is_member { &mut self.members } else { &mut self.guests }
    }

    /// Whether connections wait for memory: of guests, of members.
    pub fn are_short(&self) -> [bool; 2] {
        [self.guests.is_short(), self.members.is_short()]
    }

    /// As [`ReceiveMemory::look_again`].
    pub fn look_again(&mut self) {
        self.guests.look_again();
        self.members.look_again();
    }

    /// Counts a new guest's connection.
    pub fn join_guest(&mut self, host: PeerHost) -> PartyId {
        self.guests.join(Party { host, user: None })
    }

    /// Bytes lent.
    pub fn held_bytes(&self) -> usize {
        self.guests.held_bytes() + self.members.held_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tcp::ConnectionId;
    use std::net::{IpAddr, Ipv4Addr};

    const MIB: usize = 1 << 20;

    fn party(number: u8) -> Party {
        Party { host: IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)).into(), user: None }
    }

    fn hold(
        memory: &mut ReceiveMemory<ConnectionId>,
        party: PartyId,
        bytes: usize,
        is_advance: bool,
    ) -> Vec<Loan> {
        std::iter::from_fn(|| memory.lend(party, bytes, is_advance)).collect()
    }

    #[test]
    fn one_party_alone_gets_half_and_the_next_finds_as_much_as_it() {
        let mut memory = ReceiveMemory::new(120 * MIB);
        let (first, second) = (memory.join(party(1)), memory.join(party(2)));
        let of_first = hold(&mut memory, first, MIB, false);
        assert_eq!(of_first.len(), 60);
        let of_second = hold(&mut memory, second, MIB, false);
        assert_eq!(of_second.len(), 30);
        let third = memory.join(party(3));
        let of_third = hold(&mut memory, third, MIB, false);
        assert_eq!(of_third.len(), 15);
        of_first.into_iter().chain(of_second).chain(of_third).for_each(|loan| memory.give_back(loan));
        assert_eq!(memory.held_bytes(), 0);
        for party in [first, second, third] {
            memory.leave(party);
        }
        assert!(memory.by_party.is_empty());
    }

    #[test]
    fn announcements_alone_never_take_what_a_message_needs_that_comes() {
        let mut memory = ReceiveMemory::new(240 * MIB);
        let party = memory.join(party(1));
        let announced = hold(&mut memory, party, MIB / 4, true);
        assert_eq!(announced.len(), 320, "a third of all");
        assert!(memory.lend(party, 8 * MIB, true).is_none());
        let comes = memory.lend(party, 8 * MIB, false);
        assert!(comes.is_some());
        comes.into_iter().chain(announced).for_each(|loan| memory.give_back(loan));
    }

    #[test]
    fn one_message_fits_a_limit_that_is_smaller() {
        let mut memory = ReceiveMemory::<ConnectionId>::new(MIB);
        let party = memory.join(party(1));
        let loan = memory.lend(party, 8 * MIB, true);
        assert!(loan.is_some() && memory.lend(party, 1, false).is_none());
        loan.into_iter().for_each(|loan| memory.give_back(loan));
    }

    #[test]
    fn what_becomes_free_goes_round_the_parties_and_first_to_those_that_are_known() {
        let mut memory = ReceiveMemory::new(8 * MIB);
        let (many, one) = (memory.join(party(1)), memory.join(party(2)));
        let mut loans = hold(&mut memory, many, MIB, false);
        loans.extend(hold(&mut memory, one, MIB, false));
        for id in 0..3 {
            memory.wait(many, ConnectionId(id), MIB, true);
        }
        memory.wait(many, ConnectionId(3), MIB, false);
        memory.wait(one, ConnectionId(9), MIB, true);
        assert_eq!(memory.next_served(), None, "nothing became free");
        loans.drain(..).for_each(|loan| memory.give_back(loan));
        let mut served = Vec::new();
        while let Some(connection) = memory.next_served() {
            served.push(connection.0);
        }
        assert_eq!(served, [3, 9, 0, 1, 2]);
        assert!(!memory.is_short());
    }

    #[test]
    fn who_wants_much_is_passed_by_others_and_who_has_gone_is_not_served() {
        let mut memory = ReceiveMemory::new(8 * MIB);
        let (greedy, modest) = (memory.join(party(1)), memory.join(party(2)));
        let kept = memory.lend(greedy, 4 * MIB, false).expect("half of all");
        let other = memory.lend(modest, MIB, false).expect("is free");
        memory.wait(greedy, ConnectionId(1), 4 * MIB, false);
        let gone = memory.wait(modest, ConnectionId(2), MIB, false);
        memory.wait(modest, ConnectionId(3), MIB, false);
        memory.end_wait(modest, gone);
        memory.give_back(other);
        assert_eq!(memory.next_served(), Some(ConnectionId(3)));
        assert_eq!(memory.next_served(), None);
        assert!(memory.is_short());
        memory.give_back(kept);
        assert_eq!(memory.next_served(), Some(ConnectionId(1)));
        memory.leave(greedy);
        memory.leave(modest);
    }
}
