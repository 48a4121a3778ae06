//! When something was changed: orders the changes of a volume by one coordinator after another.

use crate::Epoch;

/// The number of a change among those that one coordinator asked for. Starts anew after the highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeNumber(pub u32);

impl ChangeNumber {
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Whether it comes after the other one: those that are compared lie closer together than half of all numbers.
    const fn is_after(self, other: Self) -> bool {
        let ahead = self.0.wrapping_sub(other.0);
        ahead != 0 && ahead < 1 << 31
    }
}

/// The epoch of a change and its number. As one word: the number in the upper half, so that a word of an epoch alone is the stamp of its
/// change 0.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp(u64);

impl Stamp {
    /// Of something of which the stamp is lost. Later than all others.
    pub const UNKNOWN: Self = Self(u64::MAX);
    /// The highest epoch that there may be.
    pub const EPOCH_MAX: Epoch = Epoch(u32::MAX as u64 - 1);

    /// Of an epoch above the highest that there may be: as of the highest.
    pub const fn new(epoch: Epoch, number: ChangeNumber) -> Self {
        let epoch = if epoch.0 > Self::EPOCH_MAX.0 { Self::EPOCH_MAX.0 } else { epoch.0 };
        Self((number.0 as u64) << 32 | epoch)
    }

    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub const fn word(self) -> u64 {
        self.0
    }

    pub const fn epoch(self) -> Epoch {
        Epoch(self.0 & u32::MAX as u64)
    }

    pub const fn number(self) -> ChangeNumber {
        ChangeNumber((self.0 >> 32) as u32)
    }

    pub fn is_known(self) -> bool {
        self != Self::UNKNOWN
    }

    /// Whether its change came after the other one. Two of one epoch are of one coordinator.
    pub fn is_after(self, other: Self) -> bool {
        let (own, others) = (self.epoch(), other.epoch());
        own > others || (own == others && self.number().is_after(other.number()))
    }

    /// The later one of both.
    pub fn later(self, other: Self) -> Self {
        if other.is_after(self) { other } else { self }
    }
}

impl From<Epoch> for Stamp {
    fn from(epoch: Epoch) -> Self {
        Self::new(epoch, ChangeNumber(0))
    }
}

impl std::fmt::Debug for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stamp({}, {})", self.epoch(), self.number().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(epoch: u64, number: u32) -> Stamp {
        Stamp::new(Epoch(epoch), ChangeNumber(number))
    }

    #[test]
    fn a_later_epoch_counts_before_the_number_which_starts_anew_after_the_highest() {
        for (earlier, later) in [
            (stamp(4, 9), stamp(5, 0)),
            (stamp(5, 0), stamp(5, 1)),
            (stamp(5, u32::MAX), stamp(5, 0)),
            (stamp(5, u32::MAX - 3), stamp(5, 7)),
            (Stamp::default(), stamp(1, 0)),
            (stamp(u64::MAX, u32::MAX), Stamp::UNKNOWN),
        ] {
            assert!(later.is_after(earlier) && !earlier.is_after(later), "{earlier:?} {later:?}");
            assert_eq!((earlier.later(later), later.later(earlier)), (later, later));
        }
        assert!(!stamp(5, 1).is_after(stamp(5, 1)));
    }

    #[test]
    fn the_word_of_an_epoch_alone_is_the_stamp_of_its_change_0() {
        assert_eq!(Stamp::from_word(57), stamp(57, 0));
        assert_eq!(Stamp::from(Epoch(57)).word(), 57);
        let both = stamp(57, 3);
        assert_eq!((both.epoch(), both.number()), (Epoch(57), ChangeNumber(3)));
        assert_eq!(Stamp::from_word(both.word()), both);
    }

    #[test]
    fn no_change_has_the_stamp_that_is_not_known() {
        assert!(stamp(u64::MAX, u32::MAX).is_known());
        assert!(!Stamp::UNKNOWN.is_known() && Stamp::UNKNOWN.word() == u64::MAX);
    }
}
