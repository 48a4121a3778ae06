//! Read-only check of a volume in use: every key against those it belongs with, extents against the allocation.
//!
//! Works in bounded steps between other operations. Everything of one file is checked within one step,
//! so changes between steps are not mistaken for damage. The check compares the allocation at the end
//! if no blocks were allocated or freed meanwhile; otherwise the report says that it did not. The same
//! holds for references of shared blocks: if there are too many to count at once, further passes over
//! the extents count those of later addresses.

use std::collections::{BTreeMap, HashMap};

use ::types::Lba;

use super::FileSystem;
use super::bitmap::Bitmap;
use super::data::extents::extents_from;
use super::meta::record::{EntryRecord, ExtentRecord, Inode, SharedRecord, StreamRecord, decode_number};
use super::meta::{BlockRun, Key, Transaction, Value, key};
use super::types::{FileId, FsError, StreamId};

/// Problems described one by one; further ones are counted.
const PROBLEMS_MAX: usize = 100;

/// Files with more extents than this are not summed up.
const EXTENTS_SUMMED_MAX: usize = 4096;

/// Shared blocks whose references one pass counts: some 50 MB.
const SHARED_BLOCKS_MAX: usize = 1 << 20;

/// Blocks and lookups with which a step ends: some milliseconds.
const STEP_WORK_MAX: u64 = 32_768;

/// Work of a lookup, in blocks.
const LOOKUP_WORK: u64 = 4;

/// Findings of a check so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Keys of the metadata tree examined, in the first pass only.
    pub keys: u64,
    /// Files and directories whose inode was examined.
    pub files: u64,
    /// Extents of file data examined, in the first pass only.
    pub extents: u64,
    /// Blocks that extents point to.
    pub blocks: u64,
    /// The first hundred, in words.
    pub problems: Vec<String>,
    /// Number of problems found, those beyond `problems` included.
    pub problem_count: u64,
    /// Allocation was compared with the extents: nothing was allocated or freed meanwhile.
    pub allocation_compared: bool,
    /// References of shared blocks were compared with the extents: no clone was made or changed meanwhile.
    pub references_compared: bool,
    /// Files with too many extents to be summed up in one step.
    pub files_not_summed: u64,
    /// Of the problems, users whose counted use of space is not that of their files.
    pub wrong_quotas: u64,
    /// Everything has been examined and compared: the other fields are final.
    pub finished: bool,
}

/// A check under way.
#[derive(Debug)]
pub struct Check {
    next: Key,
    /// Allocation changes of the volume when the check began.
    changes: u64,
    seen: HashMap<u32, Bitmap>,
    /// References found of blocks in shared extents, from `shared_from` on up to `shared_to`.
    shared: BTreeMap<u64, u32>,
    shared_from: u64,
    shared_to: u64,
    shared_max: usize,
    /// Changes of references when this pass over the extents began.
    shared_changes: u64,
    /// A further pass, for references only.
    is_further: bool,
    /// All references are counted and compared.
    is_counted: bool,
    /// Blocks and lookups of this step.
    work: u64,
    group: u32,
    quotas: QuotaStage,
    report: CheckReport,
}

/// How far the counts of quotas are compared: last of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuotaStage {
    Later,
    /// The file layer counts, in its polls.
    Counting,
}

impl Check {
    /// Of this volume, from the start.
    pub fn new(fs: &FileSystem) -> Self {
        Self {
            next: Key::new(),
            changes: fs.base.meta.allocator.changes(),
            seen: HashMap::new(),
            shared: BTreeMap::new(),
            shared_from: 0,
            shared_to: u64::MAX,
            shared_max: SHARED_BLOCKS_MAX,
            shared_changes: fs.base.meta.shared_changes,
            is_further: false,
            is_counted: false,
            work: 0,
            group: 0,
            quotas: QuotaStage::Later,
            report: CheckReport { references_compared: true, ..CheckReport::default() },
        }
    }

    /// Returns the findings up to now; final once [`Check::step`] has returned true.
    pub fn report(&self) -> &CheckReport {
        &self.report
    }

    /// Counts the references of this many shared blocks in one pass.
    #[cfg(test)]
    pub fn count_shared_at_once(&mut self, blocks: usize) {
        self.shared_max = blocks;
    }

    /// Examines up to `keys_max` keys, fewer if they are expensive. Returns whether the check is finished.
    ///
    /// # Errors
    /// `Miss`: call again after the next [`super::FsEvent::Retry`].
    pub fn step(&mut self, fs: &mut FileSystem, keys_max: usize) -> Result<bool, FsError> {
        fs.base.ready()?;
        let txn = Transaction::new();
        let end = Key::from_slice(&[u8::MAX; 2]);
        self.work = 0;
        for _ in 0..keys_max {
            if self.report.finished {
                return Ok(true);
            }
            if self.work >= STEP_WORK_MAX {
                break;
            }
            let lookups = fs.base.meta.store.steps;
            match fs.base.meta.store.next(&txn, &self.next, &end)? {
                Some((found, value)) if self.is_further => self.look_again(fs, &found, &value)?,
                Some((found, value)) => {
                    self.look(fs, &txn, &found, &value)?;
                    self.report.keys += 1;
                    self.next = found;
                    self.next.push(0);
                }
                None if self.begin_further_pass(fs) => {}
                None => self.compare_group(fs)?,
            }
            self.work += LOOKUP_WORK * u64::from(fs.base.meta.store.steps.saturating_sub(lookups));
        }
        Ok(self.report.finished)
    }

    /// Ends a pass over the extents. If it did not count all references, begins the next, of those behind.
    fn begin_further_pass(&mut self, fs: &FileSystem) -> bool {
        if self.is_counted {
            return false;
        }
        self.end_pass(fs);
        if self.shared_to == u64::MAX {
            self.is_counted = true;
            return false;
        }
        self.shared_from = std::mem::replace(&mut self.shared_to, u64::MAX);
        self.shared_changes = fs.base.meta.shared_changes;
        self.next = key::file_first(FileId(0));
        self.is_further = true;
        true
    }

    /// Reports a block that several extents share if no record was compared with it. A shared mark without
    /// a record is right if one extent is left.
    fn end_pass(&mut self, fs: &FileSystem) {
        let shared = std::mem::take(&mut self.shared);
        if self.references_hold(fs)
            && let Some((at, count)) = shared.iter().find(|(_, count)| **count > 1)
        {
            self.problem(format!("block {at} is shared by {count} extents, which is not recorded"));
        }
    }

    /// Whether no reference changed since this pass began.
    fn references_hold(&mut self, fs: &FileSystem) -> bool {
        let hold = fs.base.meta.shared_changes == self.shared_changes;
        self.report.references_compared &= hold;
        hold
    }

    /// Examines a key for references only, and continues with the next one of that kind.
    fn look_again(&mut self, fs: &FileSystem, found: &[u8], value: &Value) -> Result<(), FsError> {
        self.next = Key::from_slice(found);
        self.next.push(0);
        match key::kind(found) {
            key::Kind::Extent(..) => {
                if let Some(extent) = ExtentRecord::decode(value).filter(|extent| extent.shared) {
                    self.count_references(&extent);
                }
            }
            key::Kind::Shared(lba) => self.look_at_shared(fs, lba, value)?,
            _ if found >= &key::after(&key::all_shared())[..] => self.next = Key::from_slice(&[u8::MAX; 2]),
            _ if found >= &key::file_first(FileId(u64::MAX))[..] => self.next = key::all_shared(),
            _ => {}
        }
        Ok(())
    }

    /// Counts an extent as a reference to each of its blocks in this pass. If there are too many, leaves
    /// the last to the next pass.
    fn count_references(&mut self, extent: &ExtentRecord) {
        self.work += u64::from(extent.blocks);
        let end = (extent.lba.0 + u64::from(extent.blocks)).min(self.shared_to);
        for at in extent.lba.0.max(self.shared_from)..end {
            if at >= self.shared_to {
                break;
            }
            *self.shared.entry(at).or_default() += 1;
            if self.shared.len() > self.shared_max
                && let Some((last, _)) = self.shared.pop_last()
            {
                self.shared_to = last;
            }
        }
    }

    fn problem(&mut self, text: String) {
        self.report.problem_count += 1;
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(text);
        }
    }

    fn look(
        &mut self,
        fs: &mut FileSystem,
        txn: &Transaction,
        found: &[u8],
        value: &Value,
    ) -> Result<(), FsError> {
        match key::kind(found) {
            key::Kind::Inode(file) => self.look_at_inode(fs, txn, file, value),
            key::Kind::Link(file, parent, name) => {
                let entry = fs.base.meta.store.get(txn, &key::entry(parent, &name))?;
                let back = entry.and_then(|entry| EntryRecord::decode(&entry)).map(|entry| entry.file);
                if back != Some(file) {
                    self.problem(format!("file {} has a link that its directory {} lacks", file.0, parent.0));
                }
                Ok(())
            }
            key::Kind::Entry(parent, name) => self.look_at_entry(fs, txn, parent, &name, value),
            key::Kind::StreamName(file) => {
                let index = decode_number(value).and_then(|index| u32::try_from(index).ok());
                let stream = index.map(|index| StreamId { file, index });
                let known = match stream {
                    Some(stream) => fs.base.meta.store.get(txn, &key::stream(stream))?.is_some(),
                    None => false,
                };
                if !known {
                    self.problem(format!("file {} has a stream name without a stream", file.0));
                }
                Ok(())
            }
            key::Kind::Stream(stream) => {
                if StreamRecord::decode(value).is_none() {
                    self.problem(format!("stream {} of file {} cannot be read", stream.index, stream.file.0));
                }
                Ok(())
            }
            key::Kind::Extent(stream, block) => self.look_at_extent(fs, txn, stream, block, value),
            key::Kind::Shared(lba) => self.look_at_shared(fs, lba, value),
            key::Kind::Orphan(stream) => {
                let inode = fs.base.meta.store.get(txn, &key::inode(stream.file))?;
                // Reclaiming may have deleted the inode before the orphan.
                if inode.is_some_and(|inode| Inode::decode(&inode).is_none()) {
                    self.problem(format!("orphan {} cannot be read", stream.file.0));
                }
                Ok(())
            }
            key::Kind::Other => Ok(()),
            key::Kind::Unknown => {
                self.problem(format!("a key of no known kind: {found:02x?}"));
                Ok(())
            }
        }
    }

    fn look_at_inode(
        &mut self,
        fs: &mut FileSystem,
        txn: &Transaction,
        file: FileId,
        value: &Value,
    ) -> Result<(), FsError> {
        let Some(inode) = Inode::decode(value) else {
            self.problem(format!("file {} cannot be read", file.0));
            return Ok(());
        };
        let prefix = key::links(file);
        let (mut from, end) = (prefix.clone(), key::after(&prefix));
        let mut links = u32::from(file == FileId::ROOT);
        while let Some((link, _)) = fs.base.meta.store.next(txn, &from, &end)? {
            links += 1;
            from = link;
            from.push(0);
        }
        if links != inode.link_count {
            self.problem(format!("file {} says {} links and has {links}", file.0, inode.link_count));
        }
        let orphan = key::orphan(StreamId { file, index: key::WHOLE_FILE });
        if links == 0 && fs.base.meta.store.get(txn, &orphan)?.is_none() {
            self.problem(format!("file {} has no name and is no orphan", file.0));
        }
        let extents =
            extents_from(&mut fs.base.meta.store, txn, StreamId::unnamed(file), 0, EXTENTS_SUMMED_MAX + 1)?;
        let blocks: u64 = extents.iter().map(|(_, extent)| u64::from(extent.blocks)).sum();
        let partly_reclaimed = links == 0;
        self.report.files_not_summed += u64::from(extents.len() > EXTENTS_SUMMED_MAX);
        if extents.len() <= EXTENTS_SUMMED_MAX && blocks != inode.allocated_blocks && !partly_reclaimed {
            self.problem(format!("file {} says {} blocks and has {blocks}", file.0, inode.allocated_blocks));
        }
        self.report.files += 1;
        Ok(())
    }

    fn look_at_entry(
        &mut self,
        fs: &mut FileSystem,
        txn: &Transaction,
        parent: FileId,
        name: &[u16],
        value: &Value,
    ) -> Result<(), FsError> {
        let Some(entry) = EntryRecord::decode(value) else {
            self.problem(format!("an entry of directory {} cannot be read", parent.0));
            return Ok(());
        };
        let directory =
            fs.base.meta.store.get(txn, &key::inode(parent))?.and_then(|inode| Inode::decode(&inode));
        if !directory.is_some_and(|inode| inode.directory) {
            self.problem(format!("entries of {}, which is no directory", parent.0));
        }
        let child =
            fs.base.meta.store.get(txn, &key::inode(entry.file))?.and_then(|inode| Inode::decode(&inode));
        if child.is_none_or(|inode| inode.directory != entry.directory) {
            self.problem(format!("directory {} names file {}, which is not there", parent.0, entry.file.0));
        }
        if fs.base.meta.store.get(txn, &key::link(entry.file, parent, name))?.is_none() {
            self.problem(format!("file {} does not know that directory {} names it", entry.file.0, parent.0));
        }
        Ok(())
    }

    fn look_at_extent(
        &mut self,
        fs: &mut FileSystem,
        txn: &Transaction,
        stream: StreamId,
        block: u64,
        value: &Value,
    ) -> Result<(), FsError> {
        let what = format!("extent at block {block} of stream {} of file {}", stream.index, stream.file.0);
        let Some(extent) = ExtentRecord::decode(value) else {
            self.problem(format!("{what} cannot be read"));
            return Ok(());
        };
        let run = BlockRun { lba: extent.lba, blocks: extent.blocks };
        if !fs.base.meta.allocator.is_data(run) {
            self.problem(format!("{what} lies outside the chunks for data"));
            return Ok(());
        }
        let next = fs.base.meta.store.next(
            txn,
            &key::extent(stream, block + 1),
            &key::after(&key::extents(stream)),
        )?;
        if let Some((_, next)) = next.and_then(|(found, _)| key::parse_extent(&found))
            && next < block + u64::from(extent.blocks)
        {
            self.problem(format!("{what} overlaps the next one"));
        }
        self.report.extents += 1;
        if extent.shared {
            self.count_references(&extent);
        }
        self.mark(fs.base.meta.allocator.group_blocks(), run, extent.shared, &what);
        Ok(())
    }

    fn mark(&mut self, group_blocks: u32, run: BlockRun, shared: bool, what: &str) {
        let (mut at, end) = (run.lba.0, run.lba.0 + u64::from(run.blocks));
        while at < end {
            let group = (at / u64::from(group_blocks)) as u32;
            let bit = (at % u64::from(group_blocks)) as u32;
            let count = u64::from(group_blocks - bit).min(end - at) as u32;
            let seen = self.seen.entry(group).or_insert_with(|| Bitmap::new(group_blocks));
            let fresh = seen.set_range(bit, count, true);
            self.report.blocks += u64::from(fresh);
            if fresh < count && !shared {
                self.problem(format!("{what} has blocks from {at} on, one of which another extent has too"));
            }
            at += u64::from(count);
        }
    }

    fn look_at_shared(&mut self, fs: &FileSystem, lba: Lba, value: &Value) -> Result<(), FsError> {
        let Some(record) = SharedRecord::decode(value) else {
            if !self.is_further {
                self.problem(format!("shared run at {lba} cannot be read"));
            }
            return Ok(());
        };
        self.work += u64::from(record.blocks);
        if self.references_hold(fs) {
            let end = (lba.0 + u64::from(record.blocks)).min(self.shared_to);
            let mut counted = lba.0.max(self.shared_from)..end;
            let wrong = counted.find(|at| self.shared.remove(at).unwrap_or(0) != record.references);
            if let Some(at) = wrong {
                self.problem(format!("block {at} is not shared by {} extents", record.references));
            }
        }
        Ok(())
    }

    /// Compares the counts of quotas with the files.
    ///
    /// # Errors
    /// `Miss` while the file layer counts.
    fn compare_quotas(&mut self, fs: &mut FileSystem) -> Result<(), FsError> {
        let quotas = &mut fs.base.meta.quotas;
        if self.quotas == QuotaStage::Later {
            self.quotas = QuotaStage::Counting;
            quotas.begin_check();
        }
        if let Some(findings) = quotas.take_findings() {
            if findings.pages_unreadable > 0 {
                let count = findings.pages_unreadable;
                self.problem(format!("{count} pages or files could not be read: quotas were not compared"));
                self.report.finished = true;
                return Ok(());
            }
            self.report.wrong_quotas = findings.wrong_count;
            for (user, counted, is) in &findings.wrong {
                self.problem(format!("{user} is counted with {counted} blocks and has {is}"));
            }
            self.report.problem_count += findings.wrong_count - findings.wrong.len() as u64;
        } else if quotas.is_checking() {
            fs.base.agenda.again = true;
            return Err(FsError::Miss);
        }
        self.report.finished = true;
        Ok(())
    }

    /// Compares one group's allocation with the extents seen.
    fn compare_group(&mut self, fs: &mut FileSystem) -> Result<(), FsError> {
        if self.quotas == QuotaStage::Counting {
            return self.compare_quotas(fs);
        }
        if fs.base.meta.allocator.changes() != self.changes
            || self.group >= fs.base.meta.allocator.group_count()
        {
            self.report.allocation_compared = fs.base.meta.allocator.changes() == self.changes;
            return self.compare_quotas(fs);
        }
        let first = u64::from(self.group) * u64::from(fs.base.meta.allocator.group_blocks());
        if fs.base.meta.allocator.is_data(BlockRun { lba: Lba(first), blocks: 1 }) {
            fs.base.meta.load_group(self.group)?;
            let seen = self.seen.remove(&self.group);
            let differ = fs.base.meta.allocator.committed(self.group).and_then(|committed| {
                let empty = Bitmap::new(committed.len());
                let seen = seen.as_ref().unwrap_or(&empty);
                (0..committed.len())
                    .find(|at| committed.get(*at) != seen.get(*at))
                    .map(|at| (at, seen.get(at)))
            });
            if let Some((at, owned)) = differ {
                let lba = first + u64::from(at);
                self.problem(match owned {
                    true => format!("block {lba} is in use and counted as free"),
                    false => format!("block {lba} is counted as in use and nothing has it"),
                });
            }
        }
        self.group += 1;
        Ok(())
    }
}
