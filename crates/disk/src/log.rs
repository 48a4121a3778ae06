//! The volatile write cache of a disk whose power can be cut: completed changes that are not on the medium for certain.

use crate::change::{Change, Fate, overlaps};
use std::collections::VecDeque;

/// A change that completed.
#[derive(Clone)]
struct Logged {
    /// Number of its completion, growing along the log.
    completion: u64,
    offset: u64,
    change: Change,
    /// Survives a power cut.
    forced: bool,
}

impl Logged {
    fn overlaps(&self, other: &Self) -> bool {
        overlaps(self.offset, self.change.len_bytes(), other.offset, other.change.len_bytes())
    }
}

/// Invariant: the medium, with all changes applied in their order, is what reads find. After [`Self::apply_forced`] a forced change stays only
/// behind an older change of the same bytes that is not forced: fates are applied in the log's order.
#[derive(Clone, Default)]
pub(crate) struct ChangeLog {
    changes: VecDeque<Logged>,
    len_bytes: u64,
    /// Number of the last completion.
    completions: u64,
}

impl ChangeLog {
    pub(crate) fn completions(&self) -> u64 {
        self.completions
    }

    /// Bytes of all changes.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Notes a change that completes; a `forced` one survives a power cut.
    pub(crate) fn push(&mut self, offset: u64, change: Change, forced: bool) {
        self.completions += 1;
        self.len_bytes += change.len_bytes();
        self.changes.push_back(Logged { completion: self.completions, offset, change, forced });
    }

    /// Makes the changes that completed up to `completion` survive.
    pub(crate) fn force(&mut self, completion: u64) {
        for logged in &mut self.changes {
            logged.forced |= logged.completion <= completion;
        }
    }

    /// Makes the oldest changes survive that would not fit within `bytes_max`.
    pub(crate) fn force_beyond(&mut self, bytes_max: u64) {
        let mut rest = self.len_bytes;
        for logged in &mut self.changes {
            if rest <= bytes_max {
                break;
            }
            logged.forced = true;
            rest -= logged.change.len_bytes();
        }
    }

    /// Moves forced changes to the medium, by `apply`, unless an older change of the same bytes could come after them.
    ///
    /// # Errors
    /// As `apply`; the change that could not be applied stays, and all behind it.
    pub(crate) fn apply_forced<E>(
        &mut self,
        mut apply: impl FnMut(u64, &Change) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut waiting = VecDeque::with_capacity(self.changes.len());
        let mut result = Ok(());
        for logged in std::mem::take(&mut self.changes) {
            if result.is_ok() && logged.forced && !waiting.iter().any(|older| logged.overlaps(older)) {
                result = apply(logged.offset, &logged.change);
                if result.is_ok() {
                    self.len_bytes -= logged.change.len_bytes();
                    continue;
                }
            }
            waiting.push_back(logged);
        }
        self.changes = waiting;
        result
    }

    /// All changes, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Change)> {
        self.changes.iter().map(|logged| (logged.offset, &logged.change))
    }

    /// The changes that a power cut may lose, in order.
    pub(crate) fn at_risk(&self) -> impl Iterator<Item = (u64, &Change)> {
        let at_risk = self.changes.iter().filter(|logged| !logged.forced);
        at_risk.map(|logged| (logged.offset, &logged.change))
    }

    /// Applies, by `apply`, each change with its fate: `fate` answers that of the change at this place among those at risk.
    ///
    /// # Errors
    /// As `apply`.
    pub(crate) fn cut<E>(
        &self,
        fate: impl Fn(usize) -> Fate,
        mut apply: impl FnMut(u64, &Change, Fate) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = 0;
        for logged in &self.changes {
            let fate = if logged.forced { Fate::Kept } else { fate(at) };
            at += usize::from(!logged.forced);
            apply(logged.offset, &logged.change, fate)?;
        }
        Ok(())
    }
}
