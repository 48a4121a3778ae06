//! A client's check when its volume serves again: it reads all its files, and compares them with the
//! model.

use super::home::{Home, wide};
use super::model::Changes;
use super::names::{Cut, Names};
use std::collections::{BTreeMap, VecDeque};
use volume::backend::{ByteRange, Disposition, OpenId, Operation, Reply};

/// Bytes of a file in one read.
const READ_BYTES: u64 = 256 << 10;
/// Entries of a directory in one listing.
const ENTRIES: u32 = 50;

enum Stage {
    OpenDirectory,
    List { open: OpenId, after: u64, found: BTreeMap<u64, u64> },
    CloseDirectory { found: BTreeMap<u64, u64> },
    OpenFile { file: u32 },
    Read { file: u32, open: OpenId, end_of_file: u64, bytes: Vec<u8> },
    CloseFile,
}

/// One client's check.
pub(crate) struct Recovery {
    stage: Stage,
    /// Names and files that remain to be read.
    left: VecDeque<(u64, u32)>,
    /// Whether the directory may not exist yet.
    first: bool,
}

/// The next step of the check.
pub(crate) enum Progress {
    Next(Operation),
    Done,
    Wrong(String),
}

impl Recovery {
    pub fn new(first: bool) -> Self {
        Self { stage: Stage::OpenDirectory, left: VecDeque::new(), first }
    }

    pub fn begin(&self, home: &Home) -> Operation {
        home.open_directory(if self.first { Disposition::OpenIf } else { Disposition::Open })
    }

    /// Handles an answer. `cuts` gets the progress of the client's names.
    pub fn answered(
        &mut self,
        home: &mut Home,
        changes: &Changes,
        reply: Reply,
        cuts: &mut Vec<Cut>,
    ) -> Progress {
        let stage = std::mem::replace(&mut self.stage, Stage::CloseFile);
        match (stage, reply) {
            (Stage::OpenDirectory, Reply::Created(created)) => self.list(created.open, 0, BTreeMap::new()),
            (Stage::List { open, after, mut found }, Reply::Directory(entries)) => {
                let next = entries.last().map_or(after, |last| last.cookie);
                let over = entries.is_empty();
                for entry in entries {
                    let name = String::from_utf16_lossy(&entry.name);
                    if let Ok(name) = name.parse::<u64>() {
                        found.insert(name, entry.information.file_id);
                    }
                }
                if over { self.close_directory(open, found) } else { self.list(open, next, found) }
            }
            (Stage::CloseDirectory { found }, Reply::Closed(_)) => match take_names(home, &found) {
                Ok((names, cut)) => {
                    cuts.push(cut);
                    self.left = names.into_iter().collect();
                    self.next_file(home)
                }
                Err(why) => Progress::Wrong(why),
            },
            (Stage::OpenFile { file }, Reply::Created(created)) => {
                let end_of_file = created.information.end_of_file;
                self.read_on(home, changes, file, created.open, end_of_file, Vec::new())
            }
            (Stage::Read { file, open, end_of_file, mut bytes }, Reply::Read(data)) => {
                bytes.extend_from_slice(&data.contiguous());
                if data.is_empty() {
                    return Progress::Wrong(format!(
                        "file {file} ends at {end_of_file}, and reads stop before"
                    ));
                }
                self.read_on(home, changes, file, open, end_of_file, bytes)
            }
            (Stage::CloseFile, Reply::Closed(_)) => self.next_file(home),
            (_, reply) => Progress::Wrong(format!("after a restart {reply:?} was answered")),
        }
    }

    /// Handles the status that a directory has no more entries.
    pub fn no_more(&mut self) -> Option<Operation> {
        match std::mem::replace(&mut self.stage, Stage::CloseFile) {
            Stage::List { open, found, .. } => match self.close_directory(open, found) {
                Progress::Next(operation) => Some(operation),
                _ => None,
            },
            _ => None,
        }
    }

    fn list(&mut self, open: OpenId, after: u64, found: BTreeMap<u64, u64>) -> Progress {
        self.stage = Stage::List { open, after, found };
        let pattern = wide("*");
        Progress::Next(Operation::QueryDirectory {
            open,
            pattern,
            after,
            entries_max: ENTRIES,
            short_names: false,
        })
    }

    fn close_directory(&mut self, open: OpenId, found: BTreeMap<u64, u64>) -> Progress {
        self.stage = Stage::CloseDirectory { found };
        Progress::Next(Operation::Close { open, query: false })
    }

    fn next_file(&mut self, home: &Home) -> Progress {
        let Some((name, file)) = self.left.pop_front() else { return Progress::Done };
        self.stage = Stage::OpenFile { file };
        Progress::Next(home.open_name(name))
    }

    fn read_on(
        &mut self,
        home: &mut Home,
        changes: &Changes,
        file: u32,
        open: OpenId,
        end_of_file: u64,
        bytes: Vec<u8>,
    ) -> Progress {
        let offset = bytes.len() as u64;
        if offset < end_of_file {
            self.stage = Stage::Read { file, open, end_of_file, bytes };
            let range = ByteRange { offset, len_bytes: READ_BYTES };
            return Progress::Next(Operation::Read { open, range, unbuffered: false });
        }
        self.stage = Stage::CloseFile;
        let found = home.files.get_mut(&file);
        match found.and_then(|known| known.recover(changes, end_of_file, &bytes)) {
            Some(wrong) => Progress::Wrong(wrong),
            None => Progress::Next(Operation::Close { open, query: false }),
        }
    }
}

/// Compares the present names with the allowed ones, and takes them as the client's.
fn take_names(home: &mut Home, found: &BTreeMap<u64, u64>) -> Result<(Names, Cut), String> {
    let files = &home.files;
    let same = |names: &Names| {
        names.len() == found.len()
            && names.iter().all(|(name, file)| {
                let known = files.get(file).and_then(|file| file.file_id);
                found.get(name).is_some_and(|id| known.is_none_or(|known| known == *id))
            })
    };
    let (count, names, cut) = home
        .names
        .recover(same)
        .map_err(|why| format!("client {}, after a restart: {why}; found {found:?}", home.number))?;
    home.files.retain(|number, _| names.values().any(|kept| kept == number));
    for (name, number) in &names {
        let Some(file) = home.files.get_mut(number) else { continue };
        file.file_id = found.get(name).copied();
        // A file that takes another one's name must have the data written to it before.
        let began = file.replaced.iter().filter(|(at, _)| *at < count).map(|(_, began)| *began).max();
        file.durable_before = file.durable_before.max(began.unwrap_or(0));
    }
    home.names.restart(names.clone());
    Ok((names, cut))
}
