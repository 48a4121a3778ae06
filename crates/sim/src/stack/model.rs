//! The oracle of data: contents that a read of a file may return.
//!
//! A file is a row of cells of [`CELL_BYTES`]. Each cell remembers the changes since the last one
//! known to be durable, oldest first. While the process lives, a read finds the last change that
//! was answered before the read began, or a later one. After a restart it may find any that is not
//! older than the last durable one. A cell's bytes name their file, place and change, so that
//! garbage, another file's data and older data can be distinguished.

use smallvec::{SmallVec, smallvec};
use sys::BufMut;

/// Unit in which file contents are tracked.
pub(crate) const CELL_BYTES: u64 = 1024;

/// Names a change; grows along the run. Also identifies the change that wrote a cell's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChangeId(pub u32);

/// Time at which a change was answered, in steps of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    /// [`NEVER`] while it is not answered, or if it was answered with an error: then it may have
    /// happened.
    pub ended: u64,
    /// Whether the change was acknowledged as durable.
    pub durable: bool,
}

pub(crate) const NEVER: u64 = u64::MAX;

/// All changes of all files, by their numbers.
#[derive(Debug)]
pub(crate) struct Changes {
    all: Vec<Change>,
    /// Step of the request of the first unanswered read; [`NEVER`] if there is none.
    reads_since: u64,
}

impl Default for Changes {
    fn default() -> Self {
        Self { all: Vec::new(), reads_since: NEVER }
    }
}

impl Changes {
    pub fn begin(&mut self) -> ChangeId {
        // Number 0 stands for the contents of a cell that was never written.
        if self.all.is_empty() {
            self.all.push(Change { ended: 0, durable: true });
        }
        self.all.push(Change { ended: NEVER, durable: false });
        ChangeId(self.all.len() as u32 - 1)
    }

    /// Notes the request of the first unanswered read: it may find the contents of that time.
    pub fn note_reads(&mut self, began: Option<u64>) {
        self.reads_since = began.unwrap_or(NEVER);
    }

    pub fn end(&mut self, id: ChangeId, step: u64, durable: bool) {
        if let Some(change) = self.all.get_mut(id.0 as usize) {
            (change.ended, change.durable) = (step, durable);
        }
    }

    pub fn get(&self, id: ChangeId) -> Change {
        let nothing = Change { ended: 0, durable: true };
        self.all.get(id.0 as usize).copied().unwrap_or(nothing)
    }
}

/// Contents of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Zeroes,
    /// Bytes that were written to this cell of this file by this change; a clone carries them elsewhere.
    Written {
        file: u32,
        cell: u32,
        change: ChangeId,
    },
}

impl Content {
    pub fn fill(self, into: &mut [u8]) {
        let Self::Written { file, cell, change } = self else { return into.fill(0) };
        let mut tag = [0; 16];
        tag[..4].copy_from_slice(b"cell");
        tag[4..8].copy_from_slice(&file.to_le_bytes());
        tag[8..12].copy_from_slice(&cell.to_le_bytes());
        tag[12..].copy_from_slice(&change.0.to_le_bytes());
        let (parts, rest) = into.as_chunks_mut::<16>();
        parts.fill(tag);
        rest.copy_from_slice(&tag[..rest.len()]);
    }

    /// Parses a cell's bytes; `None`: they were never written.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let tag = bytes.first_chunk::<16>()?;
        let (parts, rest) = bytes.as_chunks::<16>();
        let whole = parts.iter().all(|part| part == tag) && rest == &tag[..rest.len()];
        if tag == &[0; 16] {
            return whole.then_some(Self::Zeroes);
        }
        let word = |at: usize| u32::from_le_bytes([tag[at], tag[at + 1], tag[at + 2], tag[at + 3]]);
        (whole && tag.starts_with(b"cell")).then(|| Self::Written {
            file: word(4),
            cell: word(8),
            change: ChangeId(word(12)),
        })
    }
}

/// A register: changes and their outcomes, oldest first. A change whose outcome depends on an
/// earlier one in doubt is listed more than once.
#[derive(Debug, Clone)]
pub(crate) struct Versions<T>(SmallVec<[(ChangeId, T); 2]>);

impl<T: Copy + PartialEq> Versions<T> {
    pub fn new(first: T) -> Self {
        Self(smallvec![(ChangeId(0), first)])
    }

    /// Finds the index of the last durable change.
    fn floor(&self, changes: &Changes, durable_before: u64) -> usize {
        let durable = |id: ChangeId| {
            let change = changes.get(id);
            change.durable || change.ended < durable_before
        };
        self.first_of(self.0.iter().rposition(|(id, _)| durable(*id)))
    }

    /// Finds the index of the first outcome of the change at an index.
    fn first_of(&self, at: Option<usize>) -> usize {
        let Some(at) = at else { return 0 };
        self.0[..at].iter().rposition(|(id, _)| *id != self.0[at].0).map_or(0, |before| before + 1)
    }

    /// Finds the index of the first change that a read begun at this step may find.
    fn first_live(&self, changes: &Changes, began: u64) -> usize {
        self.first_of(self.0.iter().rposition(|(id, _)| changes.get(*id).ended < began))
    }

    pub fn push(&mut self, change: ChangeId, value: T, changes: &Changes, durable_before: u64) {
        if self.0.len() > 1 {
            let floor = self.floor(changes, durable_before);
            self.0.drain(..floor.min(self.first_live(changes, changes.reads_since)));
        }
        self.0.push((change, value));
    }

    /// Returns the value, if the answers determine it; `None`: a change may or may not have
    /// happened.
    pub fn certain(&self, changes: &Changes) -> Option<T> {
        let is_one = self.first_of(self.0.len().checked_sub(1)) + 1 == self.0.len();
        let last = self.0.last().filter(|_| is_one);
        last.filter(|(id, _)| changes.get(*id).ended != NEVER).map(|(_, value)| *value)
    }

    pub fn last(&self) -> T {
        self.0[self.0.len() - 1].1
    }

    /// Returns the values that a read begun at this step may find, while the process lives.
    pub fn live(&self, changes: &Changes, began: u64) -> impl Iterator<Item = T> {
        self.0[self.first_live(changes, began)..].iter().map(|(_, value)| *value)
    }

    /// Returns the values that may be found after a restart, with the changes that left them.
    pub fn after_restart(
        &self,
        changes: &Changes,
        durable_before: u64,
    ) -> impl Iterator<Item = (ChangeId, T)> {
        self.0[self.floor(changes, durable_before)..].iter().copied()
    }

    /// Takes a value found after a restart as the stored one.
    pub fn found(&mut self, value: T) {
        self.0 = smallvec![(ChangeId(0), value)];
    }
}

/// The client's knowledge of one file.
#[derive(Debug, Clone)]
pub(crate) struct FileModel {
    /// Number of the file in its cells.
    pub number: u32,
    /// The volume's own id of it, once known from an answer.
    pub file_id: Option<u64>,
    cells: Vec<Versions<Content>>,
    pub end_of_file: Versions<u64>,
    /// Step before which all its answered changes are durable.
    pub durable_before: u64,
    /// Renames by which it took another file's name: position in its client's log of names, and
    /// step of the request.
    pub replaced: Vec<(usize, u64)>,
}

impl FileModel {
    pub fn new(number: u32) -> Self {
        Self {
            number,
            file_id: None,
            cells: Vec::new(),
            end_of_file: Versions::new(0),
            durable_before: 0,
            replaced: Vec::new(),
        }
    }

    pub fn flushed(&mut self, began: u64) {
        self.durable_before = self.durable_before.max(began);
    }

    fn cell(&mut self, at: u64) -> &mut Versions<Content> {
        let at = at as usize;
        while self.cells.len() <= at {
            self.cells.push(Versions::new(Content::Zeroes));
        }
        &mut self.cells[at]
    }

    /// Notes a write of whole cells. Returns its bytes.
    pub fn write(&mut self, changes: &Changes, change: ChangeId, from: u64, count: u64) -> BufMut {
        let mut bytes = BufMut::for_overwrite((count * CELL_BYTES) as usize);
        let (number, durable_before) = (self.number, self.durable_before);
        for (cell, into) in (from..from + count).zip(bytes.chunks_mut(CELL_BYTES as usize)) {
            let content = Content::Written { file: number, cell: cell as u32, change };
            content.fill(into);
            self.cell(cell).push(change, content, changes, durable_before);
        }
        let end = (from + count) * CELL_BYTES;
        let last = self.end_of_file.last();
        if end > last {
            self.end_of_file.push(change, end, changes, durable_before);
        } else if self.end_of_file.live(changes, NEVER).any(|may_be| may_be < end) {
            // An enlargement was refused, and may not have happened.
            self.end_of_file.push(change, end, changes, durable_before);
            self.end_of_file.push(change, last, changes, durable_before);
        }
        bytes
    }

    /// Notes that cells become zeroes.
    pub fn zero(&mut self, changes: &Changes, change: ChangeId, from: u64, count: u64) {
        let durable_before = self.durable_before;
        let end = (from + count).min(self.cells.len() as u64);
        for cell in from..end {
            self.cell(cell).push(change, Content::Zeroes, changes, durable_before);
        }
    }

    /// Notes a new end of the file: the data behind it are gone.
    pub fn set_end(&mut self, changes: &Changes, change: ChangeId, end_of_file: u64) {
        let (last, durable_before) = (self.end_of_file.last(), self.durable_before);
        if end_of_file < last {
            self.zero(changes, change, end_of_file / CELL_BYTES, u64::from(u32::MAX));
        }
        self.end_of_file.push(change, end_of_file, changes, durable_before);
    }

    /// Returns the certain contents of cells; `None` if those of one are uncertain.
    pub fn certain(&self, changes: &Changes, from: u64, count: u64) -> Option<Vec<Content>> {
        let known = |cell: u64| {
            self.cells.get(cell as usize).map_or(Some(Content::Zeroes), |cell| cell.certain(changes))
        };
        (from..from + count).map(known).collect()
    }

    /// Notes that cells get the contents of others.
    pub fn take(&mut self, changes: &Changes, change: ChangeId, from: u64, contents: &[Content]) {
        let durable_before = self.durable_before;
        for (cell, content) in (from..).zip(contents) {
            self.cell(cell).push(change, *content, changes, durable_before);
        }
    }

    /// Checks bytes that a read begun at this step returned, while the process lives. Describes the
    /// first fault.
    pub fn check_read(&self, changes: &Changes, from: u64, bytes: &[u8], began: u64) -> Option<String> {
        for (cell, bytes) in (from..).zip(bytes.chunks(CELL_BYTES as usize)) {
            let found = Content::parse(bytes);
            let right = found.is_some_and(|found| match self.cells.get(cell as usize) {
                Some(versions) => versions.live(changes, began).any(|allowed| allowed == found),
                None => found == Content::Zeroes,
            });
            if !right {
                let allowed: Vec<Content> =
                    self.cells.get(cell as usize).map_or_else(Vec::new, |v| v.live(changes, began).collect());
                return Some(self.describe(cell, found, bytes, &allowed));
            }
        }
        None
    }

    fn describe(&self, cell: u64, found: Option<Content>, bytes: &[u8], allowed: &[Content]) -> String {
        let what = match found {
            None => format!("garbage that begins with {:02x?}", &bytes[..16.min(bytes.len())]),
            Some(Content::Zeroes) => "zeroes".to_owned(),
            Some(Content::Written { file, cell: other, change }) if file == self.number => {
                format!("older or misplaced bytes of cell {other}, change {}", change.0)
            }
            Some(Content::Written { file, cell: other, change }) => {
                format!("bytes of file {file}, cell {other}, change {}", change.0)
            }
        };
        format!("file {} (id {:?}), cell {cell}: {what}; allowed: {allowed:?}", self.number, self.file_id)
    }

    /// Takes the bytes found after a restart as the stored ones, or describes the fault in them.
    pub fn recover(&mut self, changes: &Changes, end_of_file: u64, bytes: &[u8]) -> Option<String> {
        let durable_before = self.durable_before;
        let allowed: Vec<u64> =
            self.end_of_file.after_restart(changes, durable_before).map(|(_, end)| end).collect();
        // A write that makes the file longer may have happened in part.
        let in_part = allowed.windows(2).any(|pair| (pair[0]..pair[1]).contains(&end_of_file));
        if !allowed.contains(&end_of_file) && !in_part {
            return Some(format!(
                "file {} (id {:?}) ends at {end_of_file} after a restart; allowed: {allowed:?}",
                self.number, self.file_id
            ));
        }
        let mut cells = Vec::with_capacity(bytes.len().div_ceil(CELL_BYTES as usize));
        for (cell, bytes) in bytes.chunks(CELL_BYTES as usize).enumerate() {
            let found = Content::parse(bytes);
            let known = self.cells.get(cell);
            let allowed = || known.into_iter().flat_map(|known| known.after_restart(changes, durable_before));
            let is_allowed = |found: &Content| match known {
                Some(_) => allowed().any(|(_, value)| value == *found),
                None => *found == Content::Zeroes,
            };
            match found.filter(is_allowed) {
                Some(found) => cells.push(Versions::new(found)),
                None => {
                    let allowed: Vec<Content> = allowed().map(|(_, value)| value).collect();
                    let what = self.describe(cell as u64, found, bytes, &allowed);
                    return Some(format!("after a restart: {what}"));
                }
            }
        }
        self.cells = cells;
        self.end_of_file.found(end_of_file);
        self.durable_before = 0;
        self.replaced.clear();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(content: Content) -> Vec<u8> {
        let mut bytes = vec![0xee; CELL_BYTES as usize];
        content.fill(&mut bytes);
        bytes
    }

    #[test]
    fn a_cell_tells_whose_bytes_it_has_and_garbage_from_both() {
        let content = Content::Written { file: 3, cell: 9, change: ChangeId(77) };
        let mut bytes = cell(content);
        assert_eq!(Content::parse(&bytes), Some(content));
        assert_eq!(Content::parse(&cell(Content::Zeroes)), Some(Content::Zeroes));
        bytes[700] ^= 1;
        assert_eq!(Content::parse(&bytes), None);
    }

    #[test]
    fn a_read_finds_the_last_answered_write_or_one_under_way() {
        let (mut changes, mut file) = (Changes::default(), FileModel::new(1));
        let first = changes.begin();
        let bytes = file.write(&changes, first, 0, 1).to_vec();
        changes.end(first, 10, false);
        let second = changes.begin();
        let newer = file.write(&changes, second, 0, 1).to_vec();
        assert_eq!(file.check_read(&changes, 0, &bytes, 11), None);
        assert_eq!(file.check_read(&changes, 0, &newer, 11), None);
        changes.end(second, 20, false);
        assert!(
            file.check_read(&changes, 0, &bytes, 21).is_some(),
            "older bytes are wrong once the write was answered"
        );
        assert_eq!(file.check_read(&changes, 0, &newer, 21), None);
    }

    #[test]
    fn a_read_may_find_what_was_there_before_durable_changes_that_came_after_it() {
        let (mut changes, mut file) = (Changes::default(), FileModel::new(1));
        let mut change = |file: &mut FileModel, reads: Option<u64>, ended| {
            changes.note_reads(reads);
            let change = changes.begin();
            let bytes = file.write(&changes, change, 0, 1).to_vec();
            changes.end(change, ended, true);
            let wrong = file.check_read(&changes, 0, &bytes, 11);
            (bytes, wrong)
        };
        let (old, _) = change(&mut file, None, 10);
        for ended in [13, 15, 17] {
            let (_, wrong) = change(&mut file, Some(11), ended);
            assert_eq!(wrong, None);
        }
        assert_eq!(file.check_read(&changes, 0, &old, 11), None);
        assert!(file.check_read(&changes, 0, &old, 14).is_some(), "it was gone when the read began");
    }

    #[test]
    fn a_write_behind_one_in_doubt_leaves_the_file_as_long_as_it_or_longer() {
        let (mut changes, mut file) = (Changes::default(), FileModel::new(1));
        let refused = changes.begin();
        file.write(&changes, refused, 0, 9);
        let second = changes.begin();
        file.write(&changes, second, 2, 3);
        changes.end(second, 20, false);
        let ends: Vec<u64> = file.end_of_file.live(&changes, 21).collect();
        assert_eq!(ends, [5 * CELL_BYTES, 9 * CELL_BYTES]);
        assert_eq!(file.end_of_file.certain(&changes), None);
        assert_eq!(file.end_of_file.last(), 9 * CELL_BYTES);
    }

    #[test]
    fn after_a_restart_what_was_flushed_is_there_and_what_came_later_may_be() {
        for flushed in [false, true] {
            let (mut changes, mut file) = (Changes::default(), FileModel::new(1));
            let first = changes.begin();
            let old = file.write(&changes, first, 0, 1).to_vec();
            changes.end(first, 10, false);
            let second = changes.begin();
            let new = file.write(&changes, second, 0, 1).to_vec();
            changes.end(second, 20, false);
            file.flushed(if flushed { 21 } else { 11 });
            let old_is_wrong = file.clone().recover(&changes, CELL_BYTES, &old).is_some();
            assert_eq!(old_is_wrong, flushed);
            assert_eq!(file.clone().recover(&changes, CELL_BYTES, &new), None);
            assert!(file.recover(&changes, 0, &[]).is_some(), "its end was flushed too");
        }
    }
}
