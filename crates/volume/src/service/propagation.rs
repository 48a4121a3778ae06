//! Handing a directory's access entries down to all that is below it (MS-DTYP 2.5.3.4), a few files at a time beside other operations.
//!
//! Promises: a directory gets its entries before its contents are examined, so that files made
//! meanwhile inherit the new ones; each file changes in one transaction. An interrupted propagation
//! begins again at the top, with the same result.

use super::Service;
use super::notify;
use super::parts::Parts;
use super::run;
use super::suspend::Suspend;
use super::turn::ENTRY_STEPS;
use crate::backend::{ShareRoot, WideString};
use crate::fs::{Entry, FileId};
use crate::security::{OwnEntries, hand_down};
use types::NtStatus;

/// Entries examined in one step: a millisecond or two, if each changes.
const STEP_ENTRIES: usize = 64;
/// Number of entries listed at a time.
const BATCH: usize = 16;
/// Steps of an access entry that is computed, compared and written.
const ACE_STEPS: u32 = 4;
/// Unreached files that are named; further ones are counted.
const NAMED_MAX: usize = 20;

/// Progress of a propagation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PropagationReport {
    /// Files and directories examined.
    pub seen: u64,
    /// Files and directories whose descriptor was changed.
    pub changed: u64,
    /// Files that stayed unchanged, with everything below them, since they inherit nothing.
    pub protected: u64,
    /// Paths from the volume's root that could not be changed, and why: the first twenty.
    pub unreached: Vec<(WideString, NtStatus)>,
    /// Number of unreached paths, those beyond `unreached` included.
    pub unreached_count: u64,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropagationStep {
    /// Everything below the top has been examined.
    Finished,
    /// The step is done and work is left: call again.
    More,
    /// Metadata is being loaded.
    Waits,
}

/// A directory that is being walked through.
#[derive(Debug)]
struct Level {
    directory: FileId,
    /// Units of the directory's path within [`Propagation::path`].
    path_units: usize,
    /// The entry that was examined last.
    after: Option<WideString>,
}

/// A propagation under way. It holds a number and a name for each level down to its place in the tree,
/// for trees of any size.
#[derive(Debug)]
pub struct Propagation {
    own: OwnEntries,
    /// The directory at which it begins; taken when the walk has begun.
    top: Option<FileId>,
    levels: Vec<Level>,
    /// Path of the innermost directory, from the volume's root.
    path: Vec<u16>,
    report: PropagationReport,
}

impl Propagation {
    /// Makes a propagation of `top`'s entries to all that is below it.
    pub fn new(top: ShareRoot, own: OwnEntries) -> Self {
        Self {
            own,
            top: Some(top.directory()),
            levels: Vec::new(),
            path: Vec::new(),
            report: PropagationReport::default(),
        }
    }

    /// Returns the counts up to now.
    pub fn report(&self) -> &PropagationReport {
        &self.report
    }

    fn walk(&mut self, parts: &mut Parts<'_>) -> Result<PropagationStep, Suspend> {
        if let Some(top) = self.top {
            self.path = parts.fs.path(top)?.to_vec();
            self.top = None;
            self.levels.push(Level { directory: top, path_units: self.path.len(), after: None });
        }
        let end = self.report.seen + STEP_ENTRIES as u64;
        while self.report.seen < end && !parts.agenda.turn.is_spent() {
            let Some(level) = self.levels.last() else { return Ok(PropagationStep::Finished) };
            let directory = level.directory;
            self.path.truncate(level.path_units);
            let batch = parts.fs.list(directory, level.after.as_deref(), BATCH);
            let batch = match batch.map_err(Suspend::from) {
                Ok(batch) => batch,
                Err(suspend) => {
                    self.pass_over(None, suspend)?;
                    self.levels.pop();
                    continue;
                }
            };
            if batch.is_empty() {
                self.levels.pop();
                continue;
            }
            for entry in batch {
                let result = self.visit(parts, directory, &entry);
                parts.spend_metadata();
                let descend = match result {
                    Ok(descend) => descend,
                    Err(suspend) => {
                        self.pass_over(Some(&entry), suspend)?;
                        false
                    }
                };
                self.report.seen += 1;
                self.levels.last_mut().expect("the level whose entries these are").after =
                    Some(entry.name.clone());
                if descend {
                    self.enter(&entry);
                }
                if descend || parts.agenda.turn.is_spent() {
                    break;
                }
            }
        }
        Ok(PropagationStep::More)
    }

    fn enter(&mut self, entry: &Entry) {
        if !self.path.is_empty() {
            self.path.push(u16::from(b'\\'));
        }
        self.path.extend_from_slice(&entry.name);
        self.levels.push(Level { directory: entry.file, path_units: self.path.len(), after: None });
    }

    /// Gives an entry its inherited ACEs. Returns whether to continue below it.
    fn visit(&mut self, parts: &mut Parts<'_>, directory: FileId, entry: &Entry) -> Result<bool, Suspend> {
        let of_parent = parts.fs.attributes(directory)?;
        let parent = parts.descriptor(&of_parent)?;
        let attributes = parts.fs.attributes(entry.file)?;
        let child = parts.descriptor(&attributes)?;
        let aces = [&parent, &child].map(|of| of.dacl.as_ref().map_or(0, |dacl| dacl.aces.len()) as u32);
        parts.agenda.turn.spend(ENTRY_STEPS + aces.iter().sum::<u32>() * ACE_STEPS);
        let is_protected = child.control.contains(crate::security::Control::DACL_PROTECTED);
        if is_protected && self.own == OwnEntries::Kept {
            self.report.protected += 1;
            return Ok(false);
        }
        if let Some(changed) = hand_down(&parent, &child, entry.directory, self.own) {
            let now = parts.time();
            parts.fs.hand_down_security(entry.file, &changed.build()?, now)?;
            self.report.changed += 1;
            self.tell(parts, directory, entry);
        }
        Ok(entry.directory)
    }

    /// Notifies watchers and holders of directory leases, as for a change by a client.
    fn tell(&self, parts: &mut Parts<'_>, directory: FileId, entry: &Entry) {
        if !parts.watches.is_empty() {
            parts.watches.changed(&self.path_of(entry), notify::MODIFIED, notify::SECURITY);
        }
        parts.directory_changed(directory, None);
    }

    fn path_of(&self, entry: &Entry) -> Vec<u16> {
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(u16::from(b'\\'));
        }
        path.extend_from_slice(&entry.name);
        path
    }

    /// Notes an entry, or the innermost directory, that cannot be changed or listed. Ignores one that is
    /// gone by now.
    ///
    /// # Errors
    /// The suspension itself if it concerns more than this file.
    fn pass_over(&mut self, entry: Option<&Entry>, suspend: Suspend) -> Result<(), Suspend> {
        match suspend {
            Suspend::Status(NtStatus::OBJECT_NAME_NOT_FOUND) => Ok(()),
            Suspend::Status(
                status @ (NtStatus::DATA_ERROR
                | NtStatus::INVALID_ACL
                | NtStatus::INVALID_PARAMETER
                | NtStatus::NOT_A_DIRECTORY),
            ) => {
                self.report.unreached_count += 1;
                if self.report.unreached.len() < NAMED_MAX {
                    let path = entry.map_or_else(|| self.path.clone(), |entry| self.path_of(entry));
                    self.report.unreached.push((path.into(), status));
                }
                Ok(())
            }
            suspend => Err(suspend),
        }
    }
}

impl Service {
    /// Carries a propagation on by a bounded step.
    ///
    /// # Errors
    /// Why the volume takes no changes. Changes made so far stay, and the propagation can be continued
    /// later.
    pub fn propagate(&mut self, propagation: &mut Propagation) -> Result<PropagationStep, NtStatus> {
        let mut parts = self.parts();
        // Steps of the file layer itself are bounded there.
        parts.fs.take_steps();
        let result = propagation.walk(&mut parts);
        parts.spend_metadata();
        run::run_ready(&mut parts);
        match result {
            Ok(step) => Ok(step),
            Err(Suspend::Miss | Suspend::Yield) => Ok(PropagationStep::Waits),
            Err(Suspend::Status(status)) => Err(status),
            // No open of another is in the way of a change of a descriptor, and no reparse point is followed.
            Err(Suspend::Break(_) | Suspend::Closing(_) | Suspend::Symlink { .. }) => {
                Err(NtStatus::INTERNAL_ERROR)
            }
        }
    }
}
