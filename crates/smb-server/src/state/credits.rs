//! The window of message identifiers that a client may use (MS-SMB2 3.3.1.1, 3.3.1.2, 3.3.5.2.3).
//!
//! Promises: each identifier is accepted once, and only after it was granted; the window never spans more than its maximum.

/// Identifiers granted and not yet used, as a range with holes.
#[derive(Debug)]
pub(crate) struct CreditWindow {
    /// Lowest identifier that is granted and unused.
    low: u64,
    /// First identifier not granted yet.
    high: u64,
    /// Bit `id % capacity`: the identifier between low and high is used.
    used: Vec<u64>,
    /// Granted and unused.
    available: u32,
    maximum: u32,
}

impl CreditWindow {
    /// A window with identifier 0 granted. At most `maximum` credits are out.
    pub fn new(maximum: u16) -> Self {
        let maximum = u32::from(maximum.max(1));
        Self { low: 0, high: 1, used: Vec::new(), available: 1, maximum }
    }

    #[inline]
    fn position(&self, id: u64) -> (usize, u64) {
        let capacity = (self.used.len() * 64) as u64;
        let bit = id % capacity;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    #[inline]
    fn is_used(&self, id: u64) -> bool {
        let (word, bit) = self.position(id);
        self.used[word] & bit != 0
    }

    /// Takes `charge` identifiers from `first`; false if one of them is not the client's to use.
    #[must_use]
    #[inline]
    pub fn take(&mut self, first: u64, charge: u16) -> bool {
        let Some(end) = first.checked_add(u64::from(charge)) else { return false };
        if first < self.low || end > self.high || charge == 0 {
            return false;
        }
        if first == self.low && self.used.is_empty() {
            // In order and without holes: the common way needs no bits.
            self.low = end;
            self.available -= u32::from(charge);
            return true;
        }
        if self.used.is_empty() {
            self.used = vec![0; (self.maximum as usize).div_ceil(64) + 1];
        }
        if (first..end).any(|id| self.is_used(id)) {
            return false;
        }
        for id in first..end {
            let (word, bit) = self.position(id);
            self.used[word] |= bit;
        }
        self.available -= u32::from(charge);
        while self.low < self.high && self.is_used(self.low) {
            let (word, bit) = self.position(self.low);
            self.used[word] &= !bit;
            self.low += 1;
        }
        if self.available == (self.high - self.low) as u32 {
            // No holes left.
            self.used = Vec::new();
        }
        true
    }

    /// Grants up to `wanted` more; at least one if the client has none left. Returns how many.
    #[inline]
    pub fn grant(&mut self, wanted: u16) -> u16 {
        let wanted = if self.available == 0 { wanted.max(1) } else { wanted };
        let room = self.maximum.saturating_sub((self.high - self.low) as u32);
        let granted = u32::from(wanted).min(room);
        self.high += u64::from(granted);
        self.available += granted;
        granted as u16
    }
}

#[cfg(test)]
mod tests {
    use super::CreditWindow;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_identifier_is_accepted_once_and_only_when_granted() {
        let mut window = CreditWindow::new(8);
        assert!(window.take(0, 1));
        assert!(!window.take(0, 1));
        assert!(!window.take(1, 1));
        assert_eq!(window.grant(4), 4);
        assert!(window.take(2, 1));
        assert!(!window.take(2, 1));
        assert!(!window.take(1, 2), "covers one that is used");
        assert!(window.take(1, 1));
    }

    #[test]
    fn the_window_does_not_grow_past_a_hole() {
        let mut window = CreditWindow::new(8);
        assert_eq!(window.grant(100), 7);
        // Identifier 0 is never used: no more than 8 are ever out.
        for id in 1..8 {
            assert!(window.take(id, 1));
            assert_eq!(window.grant(10), 0);
        }
        assert!(window.take(0, 1));
        assert_eq!(window.grant(10), 8);
    }

    #[test]
    fn a_client_without_credits_gets_one() {
        let mut window = CreditWindow::new(8);
        assert!(window.take(0, 1));
        assert_eq!(window.grant(0), 1);
    }

    proptest! {
        #[test]
        fn behaves_as_a_set_of_identifiers(
            steps in proptest::collection::vec((0..40_u64, 0..4_u16, 0..6_u16), 1..200)
        ) {
            let mut window = CreditWindow::new(16);
            let mut model: BTreeSet<u64> = BTreeSet::from([0]);
            let mut high = 1;
            for (back, charge, wanted) in steps {
                let first = high - u64::min(high, back);
                let ids: Vec<u64> = (first..first + u64::from(charge)).collect();
                let expected = charge > 0 && ids.iter().all(|id| model.contains(id));
                prop_assert_eq!(window.take(first, charge), expected);
                if expected {
                    ids.iter().for_each(|id| { model.remove(id); });
                }
                let granted = window.grant(wanted);
                prop_assert!(granted >= u16::from(model.is_empty()));
                model.extend(high..high + u64::from(granted));
                high += u64::from(granted);
                let span = model.first().map_or(0, |low| high - low);
                prop_assert!(span <= 16);
            }
        }
    }
}
