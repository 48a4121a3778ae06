//! Latencies of requests.

use super::client_figures::{AllClientFigures, ClientSlot};
use super::counters::RequestKind;
use super::share_figures::{AllShareFigures, FiguresSlot};
use types::{LatencyHistogram, Monotonic};

/// Answers noted between two calls of [`Latencies::record_noted`]. Further ones go unmeasured: their memory
/// would have to be allocated.
const NOTED_MAX: usize = 4096;

/// Measures requests from the turn of the loop in which the server received them to the moment at which
/// the transport got the answers. The loop's time does not change during a turn, and most requests are
/// answered within one: so an answer is only noted, and all answers of a round get one time.
///
/// Invariant: at most [`NOTED_MAX`] answers are noted, in memory that was allocated at the start.
pub(crate) struct Latencies {
    /// Without those of other servers of the cluster.
    by_kind: [LatencyHistogram; RequestKind::ALL.len()],
    /// Requests answered since the last call of [`Self::record_noted`], and their times of receipt.
    noted: Vec<(Monotonic, RequestKind, FiguresSlot, ClientSlot)>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { by_kind: Default::default(), noted: Vec::with_capacity(NOTED_MAX) }
    }
}

impl Latencies {
    /// Notes an answer to a request received at `since`.
    #[inline]
    pub fn note(&mut self, kind: RequestKind, share: FiguresSlot, client: ClientSlot, since: Monotonic) {
        if self.noted.len() < NOTED_MAX {
            self.noted.push((since, kind, share, client));
        }
    }

    /// Whether [`Self::record_noted`] has something to do.
    #[inline]
    pub fn has_noted(&self) -> bool {
        !self.noted.is_empty()
    }

    /// Takes `now` for the time at which all noted answers were handed over.
    pub fn record_noted(
        &mut self,
        shares: &mut AllShareFigures,
        clients: &mut AllClientFigures,
        now: Monotonic,
    ) {
        for (since, kind, share, client) in self.noted.drain(..) {
            if client != ClientSlot::SERVERS {
                self.by_kind[kind as usize].record(now.since(since));
            }
            if kind != RequestKind::Metadata {
                shares.of(share).latency.record(now.since(since));
                clients.of(client).latency.record(now.since(since));
            }
        }
    }

    pub fn of(&self, kind: RequestKind) -> &LatencyHistogram {
        &self.by_kind[kind as usize]
    }
}
