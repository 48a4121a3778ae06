//! Recently removed names, and the properties that a file inherits with one of them (MS-FSA 2.1.1.2,
//! "tunneling").
//!
//! Programs save a file by writing another one and renaming that over the first: the result should keep
//! the old file's date of creation, and its long name if the program knows only the short one. So a
//! name removed by a deletion or a rename is kept for [`KEPT_FOR`]. Promises: a name is inherited once,
//! by a file that is made or renamed; at most [`KEPT_MAX`] are kept. Directories neither inherit nor
//! leave anything. A replaced name never left its directory.

use super::open::LinkName;
use crate::backend::WideString;
use crate::fs::{FileId, names_equal};
use std::collections::VecDeque;
use std::time::Duration;
use types::{FileTime, Monotonic};

/// Time for which a removed name can be inherited, as in NTFS.
const KEPT_FOR: Duration = Duration::from_secs(15);
/// As many names as NTFS keeps by default.
const KEPT_MAX: usize = 256;

/// A name that was removed.
#[derive(Debug)]
pub struct Removed {
    until: Monotonic,
    pub link: LinkName,
    /// Short name that was reported for it, in upper case.
    short: Option<WideString>,
    /// When its file was made.
    pub created: FileTime,
}

impl Removed {
    pub fn new(link: &LinkName, short: Option<WideString>, created: FileTime, now: Monotonic) -> Self {
        Self { until: now.after(KEPT_FOR), link: link.clone(), short, created }
    }
}

/// The names that were removed, the oldest first.
///
/// Invariant: no two have the same directory and the same name; at most [`KEPT_MAX`] are kept.
#[derive(Debug, Default)]
pub struct Tunnel {
    removed: VecDeque<Removed>,
}

impl Tunnel {
    fn place_of(&self, link: &LinkName) -> Option<usize> {
        self.removed.iter().rposition(|removed| {
            removed.link.parent == link.parent && names_equal(&removed.link.name, &link.name)
        })
    }

    /// Forgets a name that a file has again.
    pub fn forget(&mut self, link: &LinkName) {
        if let Some(at) = self.place_of(link) {
            self.removed.remove(at);
        }
    }

    pub fn keep(&mut self, removed: Removed) {
        self.forget(&removed.link);
        if self.removed.len() >= KEPT_MAX {
            self.removed.pop_front();
        }
        self.removed.push_back(removed);
    }

    /// Finds the removed name that a file of this name takes: that name, or the one of which this is the short form.
    pub fn find(&mut self, parent: FileId, name: &[u16], now: Monotonic) -> Option<&Removed> {
        while self.removed.front().is_some_and(|oldest| oldest.until <= now) {
            self.removed.pop_front();
        }
        self.removed.iter().rfind(|removed| {
            let short = removed.short.as_deref();
            removed.link.parent == parent
                && (names_equal(&removed.link.name, name)
                    || short.is_some_and(|short| names_equal(short, name)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(number: usize, now: Monotonic) -> Removed {
        let name: WideString = format!("file {number}").encode_utf16().collect();
        let link = LinkName { parent: FileId(7), name };
        Removed::new(&link, None, FileTime(number as u64), now)
    }

    #[test]
    fn names_are_kept_for_a_while_and_only_the_last_ones() {
        let (mut tunnel, now) = (Tunnel::default(), Monotonic(1));
        (0..KEPT_MAX + 10).for_each(|number| tunnel.keep(removed(number, now)));
        tunnel.keep(removed(20, now));
        assert_eq!(tunnel.removed.len(), KEPT_MAX, "a name is kept once");
        let find = |tunnel: &mut Tunnel, number: usize, after: Duration| {
            let name = removed(number, now).link.name;
            tunnel.find(FileId(7), &name, now.after(after)).map(|found| found.created)
        };
        assert_eq!(find(&mut tunnel, 9, Duration::ZERO), None);
        assert_eq!(find(&mut tunnel, 11, Duration::ZERO), Some(FileTime(11)));
        assert_eq!(find(&mut tunnel, 11, KEPT_FOR), None);
        assert!(tunnel.removed.is_empty());
    }
}
