//! Files and trees of a share that go.

use super::names::is_fit_for_disk;
use super::{Copier, PATH_BYTES_MAX, Tally, TransferError, below};
use types::attribute;

/// Step left to do in a tree.
enum Step {
    Empty(String),
    Delete(String),
}

impl Copier<'_> {
    /// Removes a file, or an empty directory.
    ///
    /// # Errors
    /// [`TransferError::Remote`]; `Refused` for the share's root.
    pub fn remove(&mut self, path: &str) -> Result<Tally, TransferError> {
        self.demand_no_root(path)?;
        self.client.delete(self.tree, path).map_err(|error| self.remote(path, error))?;
        self.tally.files += 1;
        Ok(self.tally)
    }

    /// Removes a directory with all its contents. Of links the links go, not their targets.
    ///
    /// # Errors
    /// Errors after which nothing can continue; all others go to the watcher, and leave the directories
    /// above in place.
    pub fn remove_tree(&mut self, path: &str) -> Result<Tally, TransferError> {
        self.demand_no_root(path)?;
        let top = self.client.stat(self.tree, path).map_err(|error| self.remote(path, error))?;
        if !top.is_directory() || top.attributes & attribute::REPARSE_POINT != 0 {
            return self.remove(path);
        }
        let mut steps = vec![Step::Empty(path.to_owned())];
        while let Some(step) = steps.pop() {
            self.go_on()?;
            let done = match step {
                Step::Empty(path) => self.remove_entries(path, &mut steps),
                Step::Delete(path) => {
                    let deleted = self.client.delete(self.tree, &path);
                    self.tally.directories += u64::from(deleted.is_ok());
                    deleted.map_err(|error| self.remote(&path, error))
                }
            };
            if let Err(error) = done {
                self.leave_out(error)?;
            }
        }
        Ok(self.tally)
    }

    fn demand_no_root(&self, path: &str) -> Result<(), TransferError> {
        if path.is_empty() {
            return Err(self.refused(path, "it is a share's root, which stays: name what is in it"));
        }
        Ok(())
    }

    fn remove_entries(&mut self, path: String, steps: &mut Vec<Step>) -> Result<(), TransferError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(self.refused(&path, "the tree is too deep"));
        }
        let entries = self.client.list(self.tree, &path, "*").map_err(|error| self.remote(&path, error))?;
        steps.push(Step::Delete(path.clone()));
        for entry in entries {
            self.go_on()?;
            let here = below(&path, &entry.name);
            // A server's ".." would lead out of the named directory.
            if !is_fit_for_disk(&entry.name) {
                let error = self.refused(&here, "no file can have that name");
                self.leave_out(error)?;
                continue;
            }
            if entry.status.is_directory() && entry.status.attributes & attribute::REPARSE_POINT == 0 {
                steps.push(Step::Empty(here));
                continue;
            }
            match self.client.delete(self.tree, &here) {
                Ok(()) => self.tally.files += 1,
                Err(error) => {
                    let error = self.remote(&here, error);
                    self.leave_out(error)?;
                }
            }
        }
        Ok(())
    }
}
