//! A client's knowledge of its directory, and the requests that name files in it.

use super::model::{CELL_BYTES, Changes, FileModel};
use super::names::NameModel;
use std::collections::BTreeMap;
use std::sync::Arc;
use sys::Payload;
use types::Sid;
use volume::backend::*;
use volume::security::rights;

/// NT create option: the path must be a directory.
const DIRECTORY_FILE: u32 = 1;

/// One client's directory: its client and share, its names, and the files that they lead to.
///
/// `files` has each file that a name leads to or may lead to once unanswered changes are known.
pub(crate) struct Home {
    /// Number of the client.
    pub number: usize,
    pub share: ShareOptions,
    pub names: NameModel,
    pub files: BTreeMap<u32, FileModel>,
}

pub(crate) fn wide(text: &str) -> Box<[u16]> {
    text.encode_utf16().collect()
}

/// Makes an open of a path with all rights and no special options.
pub(crate) fn plain_create(caller: Caller, path: WideString, disposition: Disposition) -> Create {
    Create {
        caller,
        path,
        desired_access: rights::FILE_ALL,
        attributes: 0,
        share_access: 7,
        disposition,
        options: 0,
        cache: CacheRequest::Oplock(OplockLevel::None),
        allocation_bytes: None,
        extended_attributes: Vec::new(),
        security: None,
        durable: None,
        app_instance: None,
        query_maximal_access: false,
        time_warp: None,
        replay: false,
    }
}

impl Home {
    pub fn new(number: usize, durability: Durability) -> Self {
        Self {
            number,
            share: ShareOptions { durability, ..ShareOptions::default() },
            names: NameModel::default(),
            files: BTreeMap::new(),
        }
    }

    /// Whether each write is durable when it is answered.
    pub fn is_durable_share(&self) -> bool {
        self.share.durability == Durability::Write
    }

    /// Returns the end of a file in bytes, after its last change.
    pub fn end_of(&self, file: u32) -> u64 {
        self.files.get(&file).map_or(0, |file| file.end_of_file.last())
    }

    pub fn session(&self) -> SessionId {
        SessionId(self.number as u64 + 1)
    }

    fn caller(&self) -> Caller {
        let sid = |rid| Sid::new(5, &[21, 1, 2, 3, rid]).expect("a SID");
        Caller {
            session: self.session(),
            client: [self.number as u8 + 1; 16],
            token: Arc::new(AccessToken {
                user: sid(1000 + self.number as u32),
                primary_group: sid(513),
                groups: vec![Sid::everyone(), Sid::authenticated_users(), Sid::users()],
                privileges: Privileges::empty(),
            }),
            root: ShareRoot::VOLUME,
            share_access: rights::FILE_ALL,
            share: self.share,
            standing: Standing::none(),
        }
    }

    /// Returns the path of a name in the directory.
    pub fn path(&self, name: u64) -> WideString {
        wide(&format!("c{}\\{name}", self.number))
    }

    /// Makes a request to open the file or directory at a path of the volume.
    pub fn create(&self, path: WideString, disposition: Disposition, options: u32) -> Operation {
        Operation::Create(Box::new(Create { options, ..plain_create(self.caller(), path, disposition) }))
    }

    /// Makes a request to open the directory.
    pub fn open_directory(&self, disposition: Disposition) -> Operation {
        self.create(wide(&format!("c{}", self.number)), disposition, DIRECTORY_FILE)
    }

    /// Makes a request to open the file of this name.
    pub fn open_name(&self, name: u64) -> Operation {
        self.create(self.path(name), Disposition::Open, 0)
    }

    /// Notes that a change of names was answered. If the share is durable, so is the change, and
    /// all that this client changed before. Returns the step before which all changes of all
    /// clients are durable because of it.
    pub fn made_names_durable(&mut self, durable_share: bool, began: u64) -> Option<u64> {
        if durable_share {
            self.names.flushed(u64::MAX - 1);
        }
        durable_share.then_some(began)
    }

    /// Notes that all changes of the file that were answered before this step are durable.
    pub fn made_durable(&mut self, file: u32, began: u64) {
        if let Some(file) = self.files.get_mut(&file) {
            file.flushed(began);
        }
    }

    /// Describes the fault in an answer to an open of this file, if there is one.
    pub fn check_opened(&self, changes: &Changes, file: u32, created: &Created) -> Option<String> {
        let known = self.files.get(&file)?;
        let found = created.information.file_id;
        if known.file_id.is_some_and(|id| id != found) {
            return Some(format!("file {file} is {:?}, and its name leads to {found}", known.file_id));
        }
        let end = created.information.end_of_file;
        let wrong = known.end_of_file.certain(changes).is_some_and(|known| known != end);
        wrong.then(|| format!("file {file} ends at {end}, not at {}", known.end_of_file.last()))
    }

    /// Describes the fault in the bytes that a read of cells returned, if there is one. The read
    /// was requested at step `began`.
    pub fn check_read(
        &self,
        changes: &Changes,
        file: u32,
        from: u64,
        count: u64,
        data: &Payload,
        began: u64,
    ) -> Option<String> {
        let known = self.files.get(&file)?;
        let bytes = data.contiguous();
        let ends: Vec<u64> = known.end_of_file.live(changes, began).collect();
        let shown = |end: u64| (from + count).min(end / CELL_BYTES).saturating_sub(from) * CELL_BYTES;
        if !ends.iter().any(|end| shown(*end) == bytes.len() as u64) {
            return Some(format!("a read of file {file} found {} bytes; it ends at {ends:?}", bytes.len()));
        }
        known.check_read(changes, from, &bytes, began)
    }
}
