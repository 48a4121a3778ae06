//! Tree connects of each share, counted as they begin and end, so that no search through all sessions
//! is needed.

use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct ShareUses(HashMap<String, u32>);

impl ShareUses {
    pub fn add(&mut self, share: &str) {
        match self.0.get_mut(share) {
            Some(uses) => *uses += 1,
            None => {
                self.0.insert(share.to_owned(), 1);
            }
        }
    }

    pub fn remove(&mut self, share: &str) {
        if let Some(uses) = self.0.get_mut(share) {
            *uses -= 1;
            if *uses == 0 {
                self.0.remove(share);
            }
        }
    }

    pub fn of(&self, share: &str) -> u32 {
        self.0.get(share).copied().unwrap_or_default()
    }
}
