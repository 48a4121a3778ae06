//! The life of a node that a verdict is about.

use std::time::Duration;
use types::Monotonic;

/// A node that is down, and the life of it that died: the one that was on record when the verdict came.
/// A life that it records later may be its return, of which others know already: that one counts as
/// dead as well when the verdict has stood for longer. This decides when a claim is tried
/// (`NodeLease`), and not which node answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dead {
    life: u64,
    /// A life that was recorded later, and when it was seen.
    later: Option<(u64, Monotonic)>,
}

impl Dead {
    /// `recorded`: the last life on record; 0: none is.
    pub fn new(recorded: u64) -> Self {
        Self { life: recorded, later: None }
    }

    /// The life that died.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// Takes notice of the life that is on record by now. `stands`: for how long a verdict has to stand until it is about a later one.
    pub fn heed(&mut self, recorded: u64, now: Monotonic, stands: Duration) {
        match self.later {
            _ if recorded == self.life => self.later = None,
            Some((life, since)) if life == recorded => {
                if now.since(since) >= stands {
                    *self = Self::new(recorded);
                }
            }
            _ => self.later = Some((recorded, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_about_a_later_life_only_once_it_has_stood() {
        let second = Duration::from_secs(1);
        let (mut dead, begun) = (Dead::new(3), Monotonic(0));
        dead.heed(3, begun, second);
        dead.heed(4, begun, second);
        dead.heed(4, begun.after(second / 2), second);
        assert_eq!(dead.life, 3, "it may be back: the verdict may be about to change");
        dead.heed(5, begun.after(second), second);
        dead.heed(5, begun.after(second * 3 / 2), second);
        assert_eq!(dead.life, 3, "that is yet another life");
        dead.heed(5, begun.after(second * 2), second);
        assert_eq!(dead.life, 5);
    }
}
