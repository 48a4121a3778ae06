//! Quotas: SMB2_QUERY_QUOTA_INFO (MS-SMB2 2.2.37.1), FileQuotaInformation and FileGetQuotaInformation (MS-FSCC 2.4.33), and the flags of
//! FileFsControlInformation (MS-FSCC 2.5.2).

use super::{Put, U16, U32, U64, WireError, range, view_at};
use types::Sid;

/// Entries of a list that are read at most: each is looked up, or changed, in one turn of the server.
pub const QUOTA_ENTRIES_MAX: usize = 256;

/// A threshold or limit that is none (MS-FSCC 2.4.33: -1).
pub const QUOTA_NONE: u64 = u64::MAX;
/// To a limit of this value (MS-FSCC 2.4.33: -2) the user's own quota is removed.
pub const QUOTA_REMOVE: u64 = u64::MAX - 1;

bitflags::bitflags! {
    /// FileSystemControlFlags of FileFsControlInformation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct QuotaFlags: u32 {
        const TRACK = 0x1;
        const ENFORCE = 0x2;
        const CONTENT_INDEX_DISABLED = 0x8;
        const LOG_THRESHOLD = 0x10;
        const LOG_LIMIT = 0x20;
        const LOG_VOLUME_THRESHOLD = 0x40;
        const LOG_VOLUME_LIMIT = 0x80;
        const INCOMPLETE = 0x100;
        const REBUILDING = 0x200;
    }
}

wire_struct! {
    /// Head of an entry of FileQuotaInformation; the SID follows.
    QuotaInformationHead {
        next_entry_offset: U32,
        sid_length: U32,
        change_time: U64,
        quota_used: U64,
        quota_threshold: U64,
        quota_limit: U64,
    }
}

wire_struct! {
    /// Head of SMB2_QUERY_QUOTA_INFO; the SIDs follow.
    QueryQuotaHead {
        return_single: u8,
        restart_scan: u8,
        reserved: U16,
        sid_list_length: U32,
        start_sid_length: U32,
        start_sid_offset: U32,
    }
}

/// One entry of FileQuotaInformation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaInformation {
    pub user: Sid,
    pub change_time: u64,
    pub used_bytes: u64,
    pub threshold_bytes: u64,
    pub limit_bytes: u64,
}

impl QuotaInformation {
    /// Bytes of the entry, with its padding to the next one.
    pub fn len_bytes(&self) -> usize {
        (size_of::<QuotaInformationHead>() + self.user.len_bytes()).next_multiple_of(8)
    }

    /// Adds the entry to a list; `last` is the place of the one before.
    pub fn put(&self, out: &mut Vec<u8>, last: &mut Option<usize>) {
        out.pad_from(0, 8);
        let at = out.len();
        if let Some(last) = *last {
            out.patch_u32(last, (at - last) as u32);
        }
        *last = Some(at);
        out.put(&QuotaInformationHead {
            next_entry_offset: U32::new(0),
            sid_length: U32::new(self.user.len_bytes() as u32),
            change_time: U64::new(self.change_time),
            quota_used: U64::new(self.used_bytes),
            quota_threshold: U64::new(self.threshold_bytes),
            quota_limit: U64::new(self.limit_bytes),
        });
        self.user.write_to(out);
    }

    /// Reads a list, of [`QUOTA_ENTRIES_MAX`] entries at most.
    ///
    /// # Errors
    /// Entries that lie outside the list or overlap, too many, a SID that is none.
    pub fn parse_list(bytes: &[u8]) -> Result<Vec<Self>, WireError> {
        let mut entries = Vec::new();
        each(bytes, size_of::<QuotaInformationHead>(), |entry| {
            let head: &QuotaInformationHead = view_at(entry, 0)?;
            entries.push(Self {
                user: sid(entry, size_of::<QuotaInformationHead>(), head.sid_length.get())?,
                change_time: head.change_time.get(),
                used_bytes: head.quota_used.get(),
                threshold_bytes: head.quota_threshold.get(),
                limit_bytes: head.quota_limit.get(),
            });
            Ok(())
        })?;
        Ok(entries)
    }
}

/// The question of a QUERY_INFO about quotas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueryQuota {
    pub return_single: bool,
    pub restart_scan: bool,
    /// The users asked for; empty: all, from `start` on if it is given.
    pub users: Vec<Sid>,
    pub start: Option<Sid>,
}

impl QueryQuota {
    /// # Errors
    /// SIDs outside the buffer, too many, or none at all.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let head: &QueryQuotaHead = view_at(bytes, 0)?;
        let buffer = bytes.get(size_of::<QueryQuotaHead>()..).ok_or(WireError::OutOfBounds)?;
        let mut query = Self {
            return_single: head.return_single != 0,
            restart_scan: head.restart_scan != 0,
            ..Self::default()
        };
        let (list, start) = (head.sid_list_length.get(), head.start_sid_length.get());
        if list > 0 {
            each(range(buffer, 0, list as usize)?, 8, |entry| {
                let length = view_at::<U32>(entry, 4)?.get();
                query.users.push(sid(entry, 8, length)?);
                Ok(())
            })?;
        } else if start > 0 {
            query.start = Some(sid(buffer, head.start_sid_offset.get() as usize, start)?);
        }
        Ok(query)
    }

    /// Writes the question, as clients do.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut list = Vec::new();
        let mut last = None;
        for user in &self.users {
            list.pad_from(0, 4);
            if let Some(last) = last {
                let next = (list.len() - last) as u32;
                list.patch_u32(last, next);
            }
            last = Some(list.len());
            list.put(&[U32::new(0), U32::new(user.len_bytes() as u32)]);
            user.write_to(&mut list);
        }
        out.put(&QueryQuotaHead {
            return_single: u8::from(self.return_single),
            restart_scan: u8::from(self.restart_scan),
            reserved: U16::new(0),
            sid_list_length: U32::new(list.len() as u32),
            start_sid_length: U32::new(self.start.as_ref().map_or(0, |start| start.len_bytes() as u32)),
            start_sid_offset: U32::new(0),
        });
        out.extend_from_slice(&list);
        if let Some(start) = &self.start {
            start.write_to(out);
        }
    }
}

/// Goes over the entries of a list that begin with the offset of the next one.
fn each<'a>(
    mut bytes: &'a [u8],
    head_bytes: usize,
    mut entry: impl FnMut(&'a [u8]) -> Result<(), WireError>,
) -> Result<(), WireError> {
    for _ in 0..QUOTA_ENTRIES_MAX {
        let next = view_at::<U32>(bytes, 0)?.get() as usize;
        if next == 0 {
            return entry(bytes);
        }
        if next < head_bytes {
            return Err(WireError::OutOfBounds);
        }
        let (this, rest) = bytes.split_at_checked(next).ok_or(WireError::OutOfBounds)?;
        entry(this)?;
        bytes = rest;
    }
    Err(WireError::OutOfBounds)
}

fn sid(bytes: &[u8], at: usize, length: u32) -> Result<Sid, WireError> {
    Sid::parse(range(bytes, at, length as usize)?).map_err(|_| WireError::OutOfBounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u32) -> QuotaInformation {
        QuotaInformation {
            user: Sid::new(5, &[21, 1, 2, 3, number]).unwrap(),
            change_time: 7,
            used_bytes: 4096,
            threshold_bytes: QUOTA_NONE,
            limit_bytes: u64::from(number) << 30,
        }
    }

    #[test]
    fn lists_of_quotas_are_read_as_they_were_written() {
        let entries = [entry(1), QuotaInformation { user: Sid::everyone(), ..entry(2) }, entry(3)];
        let (mut bytes, mut last) = (Vec::new(), None);
        let mut expected_bytes = 0;
        for entry in &entries {
            expected_bytes += entry.len_bytes();
            entry.put(&mut bytes, &mut last);
        }
        assert_eq!(QuotaInformation::parse_list(&bytes), Ok(entries.to_vec()));
        assert!(bytes.len() <= expected_bytes);
        for len in 0..bytes.len() {
            assert!(QuotaInformation::parse_list(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn questions_are_read_as_they_were_written() {
        let some = |number| entry(number).user;
        for query in [
            QueryQuota { restart_scan: true, ..QueryQuota::default() },
            QueryQuota { users: vec![some(1), Sid::everyone(), some(2)], ..QueryQuota::default() },
            QueryQuota { return_single: true, start: Some(some(4)), ..QueryQuota::default() },
        ] {
            let mut bytes = Vec::new();
            query.put(&mut bytes);
            assert_eq!(QueryQuota::parse(&bytes), Ok(query.clone()));
            assert!((0..bytes.len()).all(|len| QueryQuota::parse(&bytes[..len]).is_err()), "{query:?}");
        }
    }

    #[test]
    fn lists_that_never_end_are_refused() {
        let (mut bytes, mut last) = (Vec::new(), None);
        for _ in 0..=QUOTA_ENTRIES_MAX {
            entry(1).put(&mut bytes, &mut last);
        }
        assert!(QuotaInformation::parse_list(&bytes).is_err());
    }
}
