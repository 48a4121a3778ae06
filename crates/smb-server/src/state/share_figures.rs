//! Clients' requests of each share, and their latencies.
//!
//! Promises: at most [`SHARES_MAX`] shares have separate figures; noting an answer costs an index into
//! a table.

use super::counters::RequestKind;
use types::{LatencyHistogram, VolumeId};

/// Further shares are counted together, under an empty name. Deleted shares keep their place.
pub const SHARES_MAX: usize = 1024;

/// The place of a share's figures; that of pipes and of further shares comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FiguresSlot(u16);

/// Totals of one share since the server started.
#[derive(Debug, Clone, Default)]
pub struct ShareFigures {
    /// Name of the share as the directory spells it.
    pub name: String,
    /// `None`: pipes, and shares beyond [`SHARES_MAX`].
    pub volume: Option<VolumeId>,
    /// Requests answered that name an open file, by [`RequestKind`].
    pub requests: [u64; RequestKind::ALL.len()],
    /// Payload of READs that succeeded, in bytes.
    pub read_bytes: u64,
    /// Payload of WRITEs that succeeded, in bytes.
    pub written_bytes: u64,
    /// Of reads and writes that did not wait for another client.
    pub latency: LatencyHistogram,
}

pub(crate) struct AllShareFigures(Vec<ShareFigures>);

impl Default for AllShareFigures {
    fn default() -> Self {
        Self(vec![ShareFigures::default()])
    }
}

impl AllShareFigures {
    /// Returns the place of a share; one made again on another volume has another.
    pub fn slot_of(&mut self, name: &str, volume: VolumeId) -> FiguresSlot {
        let known = |figures: &ShareFigures| figures.name == name && figures.volume == Some(volume);
        let place = match self.0.iter().position(known) {
            Some(place) => place,
            None if self.0.len() > SHARES_MAX => 0,
            None => {
                let figures =
                    ShareFigures { name: name.to_owned(), volume: Some(volume), ..Default::default() };
                self.0.push(figures);
                self.0.len() - 1
            }
        };
        FiguresSlot(u16::try_from(place).unwrap_or_default())
    }

    #[inline]
    pub fn of(&mut self, slot: FiguresSlot) -> &mut ShareFigures {
        &mut self.0[usize::from(slot.0)]
    }

    pub fn all(&self) -> &[ShareFigures] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_keeps_its_place_and_one_on_another_volume_has_another() {
        let mut all = AllShareFigures::default();
        let [one, two] = [1, 2].map(|number| VolumeId::from_bytes([number; 16]));
        let slot = all.slot_of("data", one);
        all.of(slot).read_bytes += 7;
        assert_eq!(all.slot_of("data", one), slot);
        assert_ne!(all.slot_of("data", two), slot);
        assert_eq!(all.all().iter().map(|figures| figures.read_bytes).collect::<Vec<_>>(), [0, 7, 0]);
    }

    #[test]
    fn further_shares_are_counted_together() {
        let mut all = AllShareFigures::default();
        let volume = VolumeId::from_bytes([1; 16]);
        for number in 0..2 * SHARES_MAX {
            all.slot_of(&number.to_string(), volume);
        }
        assert_eq!(all.all().len(), SHARES_MAX + 1);
        assert_eq!(all.slot_of("more", volume), FiguresSlot::default());
    }
}
