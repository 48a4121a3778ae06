//! The oracle of names: those that a client's directory may hold after a restart.
//!
//! A client changes the names in a directory of its own, one change after the other. After a
//! restart the directory has the state after some number of these changes, which includes all
//! durable ones.

use super::model::NEVER;
use std::collections::BTreeMap;

/// A change of names; files by their numbers in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameChange {
    Create {
        name: u64,
        file: u32,
    },
    Remove {
        name: u64,
    },
    /// The file that had the name `to`, if there was one, is gone.
    Rename {
        from: u64,
        to: u64,
    },
}

impl NameChange {
    fn apply(self, names: &mut Names) {
        match self {
            Self::Create { name, file } => {
                names.insert(name, file);
            }
            Self::Remove { name } => {
                names.remove(&name);
            }
            Self::Rename { from, to } => {
                if let Some(file) = names.remove(&from) {
                    names.insert(to, file);
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Logged {
    change: NameChange,
    began: u64,
    ended: u64,
}

/// Names to files.
pub(crate) type Names = BTreeMap<u64, u32>;

/// The names of one client.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameModel {
    base: Names,
    log: Vec<Logged>,
    /// Names after all changes of the log.
    now: Names,
    /// Number of changes of the log that are durable.
    durable: usize,
}

/// Progress of a client's names, for a comparison with others: no change that ended before
/// `kept_began` may be lost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cut {
    /// Step of the request of the last change that is present.
    pub kept_began: u64,
    /// Step of the answer to the first change that is missing.
    pub lost_ended: Option<u64>,
}

impl NameModel {
    pub fn begin(&mut self, change: NameChange, step: u64) -> usize {
        change.apply(&mut self.now);
        self.log.push(Logged { change, began: step, ended: NEVER });
        self.log.len() - 1
    }

    pub fn end(&mut self, at: usize, step: u64) {
        if let Some(logged) = self.log.get_mut(at) {
            logged.ended = step;
        }
    }

    /// Removes a refused change, which did not happen.
    pub fn withdraw(&mut self, at: usize) {
        if at + 1 == self.log.len() {
            self.log.pop();
            self.now = self.after(at);
        }
    }

    /// Notes that all changes answered before this step are durable.
    pub fn flushed(&mut self, began: u64) {
        let durable = self.log.iter().take_while(|logged| logged.ended < began).count();
        self.durable = self.durable.max(durable);
    }

    /// Returns the present names.
    pub fn current(&self) -> &Names {
        &self.now
    }

    fn after(&self, count: usize) -> Names {
        let mut names = self.base.clone();
        for logged in &self.log[..count] {
            logged.change.apply(&mut names);
        }
        names
    }

    /// Returns the least number of changes that are present, given the names found, and the names
    /// after them. `matches` compares with the names found.
    pub fn recover(&mut self, matches: impl Fn(&Names) -> bool) -> Result<(usize, Names, Cut), String> {
        let fits: Vec<usize> =
            (self.durable..=self.log.len()).filter(|count| matches(&self.after(*count))).collect();
        let (Some(&fewest), Some(&most)) = (fits.first(), fits.last()) else {
            let early = (0..self.durable).rev().find(|count| matches(&self.after(*count)));
            return Err(match early {
                Some(count) => format!(
                    "names are as after change {count}, and {} were durable: {:?}",
                    self.durable,
                    &self.log[count..self.durable]
                ),
                None => format!(
                    "names are as they never were; at least {} of {} changes were durable, the last being {:?}, expected {:?}",
                    self.durable,
                    self.log.len(),
                    self.log.last(),
                    self.current(),
                ),
            });
        };
        let cut = Cut {
            kept_began: fewest.checked_sub(1).map_or(0, |last| self.log[last].began),
            lost_ended: self.log.get(most).map(|first| first.ended).filter(|ended| *ended != NEVER),
        };
        Ok((fewest, self.after(fewest), cut))
    }

    /// Takes the names found as the stored ones.
    pub fn restart(&mut self, names: Names) {
        *self = Self { base: names.clone(), now: names, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_lose_a_suffix_of_their_changes_but_none_that_was_durable() {
        let mut names = NameModel::default();
        for (step, name) in [(1, 5), (3, 6), (5, 7)] {
            let at = names.begin(NameChange::Create { name, file: name as u32 }, step);
            names.end(at, step + 1);
        }
        names.flushed(3);
        let found = |wanted: &[u64]| {
            let wanted: Vec<u64> = wanted.to_vec();
            names
                .clone()
                .recover(|names| names.keys().copied().collect::<Vec<u64>>() == wanted)
                .map(|found| found.0)
        };
        assert_eq!(found(&[5]), Ok(1));
        assert_eq!(found(&[5, 6]), Ok(2));
        assert!(found(&[5, 7]).is_err(), "one in the middle is lost");
        assert!(found(&[]).is_err(), "a durable one is lost");
    }
}
