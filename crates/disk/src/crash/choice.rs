//! Chooses the effect of a power cut on the writes that it may lose, and the possibilities that a test should visit.

use crate::change::Fate;
use crate::random::Random;

/// A fate for each candidate, in their order; candidates beyond its end are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrashChoice(pub Vec<Fate>);

impl CrashChoice {
    /// Everything that was not made durable is lost.
    pub fn lose_all() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn fate(&self, candidate: usize) -> Fate {
        self.0.get(candidate).copied().unwrap_or(Fate::Lost)
    }
}

/// Bounds of an enumeration.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most candidates of which all subsets are visited (2 to the power of it).
    pub exhaustive_candidates: usize,
    /// Beyond that: most candidates of a subset that is lost, or kept (at most 2).
    pub subset_size: usize,
    /// Most choices; the rest is dropped evenly.
    pub choices: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { exhaustive_candidates: 6, subset_size: 2, choices: 1000 }
    }
}

/// All subsets if they are few; otherwise all prefixes, and all small subsets lost or kept alone. On top of each prefix:
/// its last write torn in every typical way, with all others before it kept or lost.
pub fn enumerate(candidates: &[u64], limits: Limits) -> Vec<CrashChoice> {
    let count = candidates.len();
    let mut choices = Vec::new();
    if count <= limits.exhaustive_candidates.min(20) {
        for subset in 0..1_u32 << count {
            choices.push(from_fn(count, |at| if subset >> at & 1 == 1 { Fate::Kept } else { Fate::Lost }));
        }
    } else {
        for kept in 0..=count {
            choices.push(from_fn(count, |at| if at < kept { Fate::Kept } else { Fate::Lost }));
        }
        for (few, rest) in [(Fate::Lost, Fate::Kept), (Fate::Kept, Fate::Lost)] {
            if limits.subset_size >= 1 {
                choices.extend((0..count).map(|one| from_fn(count, |at| if at == one { few } else { rest })));
            }
            if limits.subset_size >= 2 {
                for a in 0..count {
                    choices.extend(
                        (a + 1..count)
                            .map(|b| from_fn(count, |at| if at == a || at == b { few } else { rest })),
                    );
                }
            }
        }
    }
    for (torn, &sectors) in candidates.iter().enumerate() {
        for tear in tears(sectors) {
            for (before, after) in [
                (Fate::Kept, Fate::Lost),
                (Fate::Lost, Fate::Lost),
                (Fate::Kept, Fate::Kept),
                (Fate::Lost, Fate::Kept),
            ] {
                let needless =
                    (torn == 0 && before == Fate::Lost) || (torn + 1 == count && after == Fate::Kept);
                if !needless {
                    choices.push(from_fn(count, |at| match at.cmp(&torn) {
                        std::cmp::Ordering::Less => before,
                        std::cmp::Ordering::Equal => tear,
                        std::cmp::Ordering::Greater => after,
                    }));
                }
            }
        }
    }
    thin_out(choices, limits.choices)
}

/// One fate for each candidate by chance: a third lost, a third kept, a third torn.
pub fn random(candidates: &[u64], seed: u64) -> CrashChoice {
    let mut random = Random::new(seed);
    CrashChoice(
        candidates
            .iter()
            .map(|&sectors| match random.below(3) {
                0 => Fate::Lost,
                1 => Fate::Kept,
                _ => {
                    let tears = tears(sectors);
                    match random.below(tears.len() as u64 + 1) as usize {
                        at if at < tears.len() => tears[at],
                        _ => Fate::Mixed(random.next()),
                    }
                }
            })
            .collect(),
    )
}

/// The typical ways to tear a write of this many sectors.
fn tears(sectors: u64) -> Vec<Fate> {
    if sectors < 2 {
        return Vec::new();
    }
    let mut tears = vec![Fate::First(1), Fate::Last(1)];
    if sectors > 2 {
        tears.extend([
            Fate::First(sectors / 2),
            Fate::First(sectors - 1),
            Fate::Last(sectors / 2),
            Fate::Last(sectors - 1),
            Fate::Without(sectors / 2),
            Fate::Mixed(sectors),
        ]);
    }
    tears.dedup();
    tears
}

fn from_fn(count: usize, fate: impl FnMut(usize) -> Fate) -> CrashChoice {
    CrashChoice((0..count).map(fate).collect())
}

fn thin_out(choices: Vec<CrashChoice>, limit: usize) -> Vec<CrashChoice> {
    let (total, limit) = (choices.len(), limit.max(1));
    if total <= limit {
        return choices;
    }
    choices
        .into_iter()
        .enumerate()
        .filter(|(at, _)| at * limit / total != (at + 1) * limit / total)
        .map(|(_, choice)| choice)
        .collect()
}
