//! Resources that clients take, counted by holder: bytes of requests and answers, opens.
//!
//! **The rule.** A holder may take more while it holds no more than is still free. So one holder alone
//! has at most half of the limit, and each of n at most one part in n + 1: something is always free for
//! the next one, without anybody having to know their number.
//!
//! A [`Charge`] is the amount that one request or open holds. It cannot be copied: it moves with the
//! request, and removing the request from its table releases the charge.

use std::collections::HashMap;
use std::hash::Hash;
use types::{PeerHost, Sid};

/// A holder's place; valid while the holder is entered or charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HolderId(u32);

#[derive(Debug)]
struct Holder<K> {
    /// `None`: the place is free.
    key: Option<K>,
    held: usize,
    entered: usize,
}

/// A limited quantity, shared among its holders.
#[derive(Debug)]
pub(crate) struct Budget<K> {
    limit: usize,
    held: usize,
    holders: Vec<Holder<K>>,
    free: Vec<u32>,
    by_key: HashMap<K, u32>,
}

impl<K: Hash + Eq + Clone> Budget<K> {
    pub fn new(limit: usize) -> Self {
        Self { limit, held: 0, holders: Vec::new(), free: Vec::new(), by_key: HashMap::new() }
    }

    /// The amount that all holders hold.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Returns a holder's place, valid until [`Self::leave`] was called as often.
    pub fn enter(&mut self, key: &K) -> HolderId {
        if let Some(at) = self.by_key.get(key) {
            self.holders[*at as usize].entered += 1;
            return HolderId(*at);
        }
        let holder = Holder { key: Some(key.clone()), held: 0, entered: 1 };
        let at = match self.free.pop() {
            Some(at) => {
                self.holders[at as usize] = holder;
                at
            }
            None => {
                self.holders.push(holder);
                (self.holders.len() - 1) as u32
            }
        };
        self.by_key.insert(key.clone(), at);
        HolderId(at)
    }

    pub fn leave(&mut self, holder: HolderId) {
        self.holders[holder.0 as usize].entered -= 1;
        self.forget_idle(holder);
    }

    fn forget_idle(&mut self, holder: HolderId) {
        let place = &mut self.holders[holder.0 as usize];
        if place.entered == 0
            && place.held == 0
            && let Some(key) = place.key.take()
        {
            self.by_key.remove(&key);
            self.free.push(holder.0);
        }
    }

    /// Charges a holder; if that can be refused, check [`Self::may_take`] first.
    #[inline]
    pub fn take(&mut self, holder: HolderId, amount: usize) {
        self.held += amount;
        self.holders[holder.0 as usize].held += amount;
    }

    #[inline]
    pub fn release(&mut self, holder: HolderId, amount: usize) {
        if amount == 0 {
            return;
        }
        self.held -= amount;
        let place = &mut self.holders[holder.0 as usize];
        place.held -= amount;
        if place.held == 0 && place.entered == 0 {
            self.forget_idle(holder);
        }
    }

    /// Whether this holder, perhaps without a place, may take that amount: it would then hold at most as
    /// much as is free. One that holds nothing may take the rest.
    pub fn may_take(&self, key: &K, amount: usize) -> bool {
        let held = self.by_key.get(key).map_or(0, |at| self.holders[*at as usize].held);
        let free = self.limit.saturating_sub(self.held);
        if held == 0 { amount <= free } else { held + 2 * amount <= free }
    }

    /// Whether a holder holds no more than is free: it need not wait. One that holds nothing never waits.
    #[inline]
    pub fn has_room(&self, holder: HolderId) -> bool {
        self.holders[holder.0 as usize].held <= self.limit.saturating_sub(self.held)
    }
}

/// The server's memory that is for clients.
pub(crate) struct Memory {
    /// Requests that are being worked on, and answers that are not sent yet. Over it, connections are not received from.
    pub in_work: Budget<PeerHost>,
    /// Waiting requests (STATUS_PENDING), and data in named pipes. Beyond the limit, more is refused.
    pub parked: Budget<Sid>,
}

/// Memory that a request holds, until [`Memory::release`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Charge {
    pub kind: ChargeKind,
    holder: HolderId,
    pub bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChargeKind {
    InWork,
    Parked,
}

impl Charge {
    /// A charge of nothing, without a holder.
    #[inline]
    pub const fn none() -> Self {
        Self { kind: ChargeKind::InWork, holder: HolderId(0), bytes: 0 }
    }
}

impl Memory {
    pub fn new(in_work_bytes: usize, parked_bytes: usize) -> Self {
        Self { in_work: Budget::new(in_work_bytes), parked: Budget::new(parked_bytes) }
    }

    /// A request of this connection's host goes into work.
    #[inline]
    pub fn work(&mut self, holder: HolderId, bytes: usize) -> Charge {
        self.in_work.take(holder, bytes);
        Charge { kind: ChargeKind::InWork, holder, bytes }
    }

    /// Charges the user for a waiting request or kept bytes. `None`: beyond the user's limit.
    pub fn park(&mut self, user: &Sid, bytes: usize) -> Option<Charge> {
        if !self.parked.may_take(user, bytes) {
            return None;
        }
        let holder = self.parked.enter(user);
        self.parked.take(holder, bytes);
        Some(Charge { kind: ChargeKind::Parked, holder, bytes })
    }

    #[inline]
    pub fn release(&mut self, charge: Charge) {
        match charge.kind {
            ChargeKind::InWork => self.in_work.release(charge.holder, charge.bytes),
            ChargeKind::Parked => {
                self.parked.release(charge.holder, charge.bytes);
                self.parked.leave(charge.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn one_holder_takes_half_and_two_a_third_each() {
        let mut budget = Budget::new(300);
        let (first, second) = (budget.enter(&"first"), budget.enter(&"second"));
        let fill = |budget: &mut Budget<&'static str>, key, holder| {
            while budget.may_take(&key, 1) {
                budget.take(holder, 1);
            }
        };
        fill(&mut budget, "first", first);
        assert_eq!(budget.held(), 150);
        fill(&mut budget, "second", second);
        assert_eq!(budget.held(), 225, "half of what was left");
        assert!(!budget.has_room(first), "it gives back before it takes again");
        for _ in 0..50 {
            budget.release(first, 1);
        }
        fill(&mut budget, "second", second);
        assert_eq!(budget.held(), 200);
        assert!(budget.may_take(&"third", 50));
    }

    proptest! {
        #[test]
        fn what_is_held_is_the_sum_of_what_was_taken_and_idle_holders_leave_nothing(
            steps in proptest::collection::vec((0..4_u8, 0..5_u8, 0..20_usize), 1..200)
        ) {
            let mut budget = Budget::new(1000);
            let mut model: HashMap<u8, (Vec<super::HolderId>, Vec<usize>)> = HashMap::new();
            for (step, key, amount) in steps {
                let (entered, taken) = model.entry(key).or_default();
                match step {
                    0 => entered.push(budget.enter(&key)),
                    1 => if let Some(holder) = entered.last() {
                        budget.take(*holder, amount);
                        taken.push(amount);
                    },
                    2 => if let (Some(holder), Some(amount)) = (entered.last(), taken.pop()) {
                        budget.release(*holder, amount);
                    },
                    _ if entered.len() > 1 || taken.is_empty() => {
                        if let Some(holder) = entered.pop() { budget.leave(holder); }
                    }
                    _ => {}
                }
                let held: usize = model.values().flat_map(|(_, taken)| taken).sum();
                prop_assert_eq!(budget.held(), held);
            }
            for (_, (entered, taken)) in model {
                for amount in taken { budget.release(entered[0], amount); }
                for holder in entered { budget.leave(holder); }
            }
            prop_assert_eq!((budget.held(), budget.by_key.len()), (0, 0));
        }
    }
}
