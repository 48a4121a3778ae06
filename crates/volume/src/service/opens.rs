//! The table of opens: by identifier, by file and by owner.
//!
//! Promises: an identifier of an open is never given twice. Knows no rule of caching or locking.

use super::agenda::Agenda;
use super::file_opens::{Doomed, FileNode};
use super::lasting::LastingOpens;
use super::open::{Open, places_of};
use super::open_record::FixedTimes;
use super::open_table::OpenTable;
use super::owners::Owners;
use super::share::ShareMode;
use super::tasks::Work;
use super::timers::Timer;
use crate::backend::{Event, OpenId, SessionId, WideString};
use crate::fs::{AttributeChange, FileId, FileSystem, StreamId};
use crate::security::rights;
use std::collections::HashMap;
use std::time::Duration;
use types::{NtStatus, Sid, attribute};

/// A file's times show the first write of an open after this time, as in NTFS.
const WRITE_TIME_DELAY: Duration = Duration::from_secs(2);

/// Limit of opens of one file that outlive the server; others are durable at best. A rename records all
/// of them in one batch of the journal, which has to hold them.
const PERSISTENT_MAX: usize = 1024;
/// Those of one user.
const PERSISTENT_PER_USER_MAX: usize = PERSISTENT_MAX / 4;

/// The time after which a close is tried again that the volume did not take: it may be read-only for long.
const CLOSE_PAUSE: Duration = Duration::from_secs(1);

/// All opens.
///
/// Invariant: an open is in the table, among the opens of its file and with its owner, or in none of
/// them. A file has a node exactly while something of it is open, so that names and streams to delete
/// with the last open never outlive it.
#[derive(Debug)]
pub struct Opens {
    table: OpenTable,
    files: HashMap<FileId, FileNode>,
    owners: Owners,
    places_max: usize,
}

impl Opens {
    /// Makes a table for at most `places_max` opens, those with long paths counted by [`places_of`];
    /// `lasting`: the count of all volumes.
    pub fn new(places_max: usize, lasting: LastingOpens) -> Self {
        Self { table: OpenTable::default(), files: HashMap::new(), owners: Owners::new(lasting), places_max }
    }

    /// Sets the number of the volume's opening, before anything is opened.
    pub fn set_incarnation(&mut self, incarnation: u64) {
        self.table.set_incarnation(incarnation);
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0 && self.files.is_empty()
    }

    pub fn get(&self, id: OpenId) -> Option<&Open> {
        self.table.get(id)
    }

    pub fn get_mut(&mut self, id: OpenId) -> Option<&mut Open> {
        self.table.get_mut(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (OpenId, &Open)> {
        self.table.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (OpenId, &mut Open)> {
        self.table.iter_mut()
    }

    /// Finds an open for an operation that needs these rights; it counts as used from here on.
    pub fn open_for(&mut self, id: OpenId, access: u32) -> Result<&mut Open, NtStatus> {
        let open = self.table.get_mut(id).ok_or(NtStatus::FILE_CLOSED)?;
        open.used = true;
        if open.access & access == access { Ok(open) } else { Err(NtStatus::ACCESS_DENIED) }
    }

    /// Finds the open of a directory that may be listed.
    pub fn open_to_list(&mut self, id: OpenId) -> Result<&mut Open, NtStatus> {
        let open = self.open_for(id, 0)?;
        match open {
            open if !open.directory => Err(NtStatus::INVALID_PARAMETER),
            open if open.access & rights::LIST_DIRECTORY == 0 => Err(NtStatus::ACCESS_DENIED),
            open => Ok(open),
        }
    }

    /// Returns the shared state of a file's opens; none if nothing of it is open.
    pub fn file(&self, file: FileId) -> Option<&FileNode> {
        self.files.get(&file)
    }

    pub fn file_mut(&mut self, file: FileId) -> Option<&mut FileNode> {
        self.files.get_mut(&file)
    }

    /// Lists the opens of a file, oldest first.
    pub fn of_file(&self, file: FileId) -> impl Iterator<Item = (OpenId, &Open)> {
        let ids = self.files.get(&file).into_iter().flat_map(|node| node.opens.iter());
        ids.filter_map(|id| Some((id, self.table.get(id)?)))
    }

    /// Changes each open of a file.
    fn change_each(&mut self, file: FileId, mut change: impl FnMut(OpenId, &mut Open, &mut Owners)) {
        let Some(node) = self.files.get(&file) else { return };
        for id in node.opens.iter() {
            if let Some(open) = self.table.get_mut(id) {
                change(id, open, &mut self.owners);
            }
        }
    }

    /// Returns the steps that examining all opens of a file takes.
    pub fn steps_of(&self, file: FileId) -> u32 {
        let opens = self.files.get(&file).map_or(0, |node| node.opens.len());
        u32::try_from(opens).unwrap_or(u32::MAX)
    }

    /// Whether a stream is open.
    pub fn is_open(&self, stream: StreamId) -> bool {
        self.files.get(&stream.file).is_some_and(|node| node.opens.of_stream(stream.index) > 0)
    }

    /// Whether any name of the file is to be deleted with its last open.
    pub fn is_deleting(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(FileNode::is_deleting)
    }

    /// Whether this mode conflicts with opens whose clients may still return for them.
    pub fn violates_kept(&self, mode: ShareMode, stream: StreamId) -> bool {
        let mut kept = self.of_file(stream.file).filter(|(_, open)| open.awaits_client());
        kept.any(|(_, open)| !mode.agrees_with(open.share_mode()))
    }

    /// Whether this mode conflicts with any open.
    pub fn violates(&self, mode: ShareMode, stream: StreamId) -> bool {
        self.of_file(stream.file).any(|(_, open)| !mode.agrees_with(open.share_mode()))
    }

    /// Adds an open; `caches`: it caches something.
    pub fn insert(&mut self, open: Open, caches: bool) -> OpenId {
        let stream = open.stream;
        let id = self.table.insert(open);
        self.list(id, stream, caches);
        id
    }

    /// Adds an open that outlived a start, under its old identifier and with its client disconnected.
    /// False: the identifier is taken.
    pub fn restore(&mut self, id: OpenId, open: Open, caches: bool, agenda: &mut Agenda) -> bool {
        let stream = open.stream;
        let is_new = self.table.restore(id, open);
        if is_new {
            self.list(id, stream, caches);
            self.disconnect(id, agenda);
        }
        is_new
    }

    fn list(&mut self, id: OpenId, stream: StreamId, caches: bool) {
        let place = self.files.entry(stream.file).or_default().opens.insert(id, stream.index, caches);
        let open = self.table.get_mut(id).expect("an open that was just inserted is there");
        open.place = place;
        if open.persistent
            && let Some(node) = self.files.get_mut(&stream.file)
        {
            node.opens.add_persistent(&open.token.user);
        }
        self.owners.opened(id, open);
    }

    /// Takes an open out, with the timers that it set.
    pub fn remove(&mut self, id: OpenId, agenda: &mut Agenda) -> Option<Box<Open>> {
        let open = self.table.remove(id)?;
        self.owners.closed(id, &open);
        if open.persistent {
            agenda.records.open(id);
        }
        if let Some(at) = open.disconnected {
            agenda.timers.clear(at, Timer::Disconnected(id));
        }
        if let Some(at) = open.write_time.due {
            agenda.timers.clear(at, Timer::WriteTime(id));
        }
        let stream = open.stream;
        let node = self.files.get_mut(&stream.file).expect("a file that is open has a node");
        node.opens.remove(open.place, stream.index);
        if open.persistent {
            node.opens.remove_persistent(&open.token.user);
        }
        if node.opens.of_stream(stream.index) == 0 && node.forget_stream(stream.index) {
            agenda.records.deletion(stream.file, Doomed::Stream(stream.index), false);
        }
        if node.opens.is_empty() {
            self.files.remove(&stream.file);
        }
        Some(open)
    }

    /// Gives the opens that `renamed` picks another path. Returns them.
    pub fn rename(
        &mut self,
        file: FileId,
        renamed: impl Fn(&mut Open) -> Option<WideString>,
    ) -> Vec<(OpenId, WideString)> {
        let mut moved = Vec::new();
        self.change_each(file, |id, open, owners| {
            if let Some(path) = renamed(open) {
                owners.resized(id, open, places_of(path.len()));
                (open.path, open.renamed) = (path, true);
                moved.push((id, open.path.clone()));
            }
        });
        moved
    }

    /// Notes at the opens which list a directory that one of its entries has another name.
    pub fn note_renamed_entry(&mut self, directory: FileId, file: FileId, old: &[u16], new: &[u16]) {
        self.change_each(directory, |_, open, _| {
            if let Some(listing) = &mut open.listing {
                listing.note_renamed(file, old, new);
            }
        });
    }

    /// Lists the connected opens of a session.
    pub fn of_session(&self, session: SessionId) -> Vec<OpenId> {
        self.owners.of_session(session)
    }

    /// Whether a user may have opens for `places` more: a user without any may take the rest.
    pub fn may_have(&self, user: &Sid, places: usize) -> bool {
        let free = self.places_max.saturating_sub(self.owners.count());
        let own = self.owners.count_of(user);
        if own == 0 { places <= free } else { places == 0 || own + 2 * places <= free }
    }

    /// Whether a user may have one more open of a file that outlives the server: no user takes all that there may be of it, or of all volumes.
    /// Beyond, an open is granted as one that does not (MS-SMB2 3.3.5.9.10).
    pub fn may_persist(&self, file: FileId, user: &Sid) -> bool {
        self.file(file).is_none_or(|node| {
            node.opens.persistent_len() < PERSISTENT_MAX
                && node.opens.persistent_of(user) < PERSISTENT_PER_USER_MAX
        }) && self.owners.may_last(user)
    }

    /// Frees places for an open. A user has no more opens than are left free, including those of
    /// disconnected clients: of these it closes the longest disconnected ones.
    pub fn make_room(&mut self, user: &Sid, places: usize, agenda: &mut Agenda) -> Result<(), NtStatus> {
        let mut given_up = 0;
        while !self.may_have(user, places.saturating_sub(given_up)) {
            let away = self.owners.longest_away(user).ok_or(NtStatus::TOO_MANY_OPENED_FILES)?;
            given_up += self.table.get(away).map_or(1, |open| open.places);
            self.revoke(away, agenda);
        }
        Ok(())
    }

    /// Notes that the client of a durable open is disconnected: the open ends unless the client returns in
    /// time. If the user has too many of those, over all volumes, the longest disconnected ones are closed.
    pub fn disconnect(&mut self, id: OpenId, agenda: &mut Agenda) {
        let Some(open) = self.table.get_mut(id) else { return };
        let Some(durable) = open.durable else { return };
        let at = agenda.clock.now().after(durable.timeout);
        open.disconnected = Some(at);
        self.owners.disconnected(id, open);
        agenda.timers.set(at, Timer::Disconnected(id));
        let token = open.token.clone();
        while let Some(away) = self.owners.one_too_many(&token.user) {
            self.revoke(away, agenda);
        }
    }

    /// Notes that a session takes over an open that is disconnected or another session's. The caller
    /// changes the open itself.
    pub fn reconnect(&mut self, id: OpenId, session: SessionId, agenda: &mut Agenda) -> Option<&mut Open> {
        let open = self.table.get_mut(id)?;
        if open.disconnected.is_none() {
            self.owners.disconnected(id, open);
        }
        self.owners.reconnecting(id, open, session);
        if let Some(at) = open.disconnected.take() {
            agenda.timers.clear(at, Timer::Disconnected(id));
        }
        Some(open)
    }

    /// Closes an open for which no client asked, soon.
    pub fn close_unasked(&mut self, id: OpenId, agenda: &mut Agenda) {
        if let Some(open) = self.table.get_mut(id)
            && !std::mem::replace(&mut open.closing, true)
        {
            self.owners.closing(id, open);
            agenda.start_internal(Work::CloseQuietly(id));
        }
    }

    /// Notes that an open could not be closed. Nothing happens through it any more; its close is tried again.
    pub fn put_off_close(&mut self, id: OpenId, agenda: &mut Agenda) {
        let Some(open) = self.table.get_mut(id) else { return };
        open.closing = true;
        // The owners' index finds the open by its time of disconnection, which is lost with its rights.
        self.owners.closing(id, open);
        open.take_rights();
        agenda.timers.set(agenda.clock.now().after(CLOSE_PAUSE), Timer::CloseAgain(id));
    }

    /// Retries a failed close, unless the open is gone.
    pub fn close_again(&mut self, id: OpenId, agenda: &mut Agenda) {
        if self.table.get(id).is_some() {
            agenda.start_internal(Work::CloseQuietly(id));
        }
    }

    /// Takes an open from its client. The close may have to wait for metadata; nothing happens through the open meanwhile, and
    /// neither a reconnect nor a replay finds it.
    pub fn revoke(&mut self, id: OpenId, agenda: &mut Agenda) {
        let Some(open) = self.table.get_mut(id) else { return };
        if open.closing {
            open.take_rights();
            return;
        }
        // The owners' index finds the open by its time of disconnection, which is lost with its rights.
        self.owners.closing(id, open);
        open.take_rights();
        if let Some(at) = open.disconnected.take() {
            agenda.timers.clear(at, Timer::Disconnected(id));
        }
        agenda.events.push(Event::Closed { open: id });
        self.close_unasked(id, agenda);
    }

    /// Sets the archive attribute, which tells backups of changes, when an open changes its file for the
    /// first time.
    pub fn mark_archive(&mut self, id: OpenId, fs: &mut FileSystem) {
        let Some(open) = self.table.get_mut(id).filter(|open| !open.modified) else { return };
        open.modified = true;
        let file = open.stream.file;
        if let Ok(found) = fs.attributes(file)
            && found.attributes & attribute::ARCHIVE == 0
            && !found.directory
        {
            let change = AttributeChange {
                attributes: Some(found.attributes | attribute::ARCHIVE),
                ..AttributeChange::default()
            };
            // If metadata is missing, the next modification sets it.
            open.modified = fs.set_attributes(file, &change).is_ok();
        }
    }

    /// Notes a write: it is to become durable, and visible in the file's times a little later. Returns
    /// whether it has to be durable immediately.
    pub fn note_write(&mut self, id: OpenId, agenda: &mut Agenda) -> bool {
        let Some(open) = self.table.get_mut(id) else { return false };
        open.dirty = true;
        if !open.fixed_times.contains(FixedTimes::WRITTEN | FixedTimes::CHANGED) {
            open.write_time.owed = true;
            if !open.write_time.started {
                open.write_time.started = true;
                let due = agenda.clock.now().after(WRITE_TIME_DELAY);
                open.write_time.due = Some(due);
                agenda.timers.set(due, Timer::WriteTime(id));
            }
        }
        open.durable_writes() || open.options & super::options::WRITE_THROUGH != 0
    }

    /// Lets the file's times show the writes of an open that they do not show yet.
    pub fn apply_write_time(&mut self, id: OpenId, fs: &mut FileSystem, agenda: &mut Agenda) {
        let Some(open) = self.table.get_mut(id) else { return };
        if let Some(due) = open.write_time.due.take() {
            agenda.timers.clear(due, Timer::WriteTime(id));
        }
        if !std::mem::take(&mut open.write_time.owed) {
            return;
        }
        let now = agenda.clock.time();
        let set = |bit| (!open.fixed_times.contains(bit)).then_some(now);
        let change = AttributeChange {
            written: set(FixedTimes::WRITTEN),
            changed: set(FixedTimes::CHANGED),
            ..AttributeChange::default()
        };
        fs.touch(open.stream.file, &change);
    }

    /// Forgets writes that the file's times do not show: a client has said when the file was written.
    pub fn forget_write_times(&mut self, file: FileId) {
        self.change_each(file, |_, open, _| open.write_time.owed = false);
    }
}
