//! 8.3 names (MS-FSCC 2.1.5.2.1) for clients that ask for one, and the lookup of files by them.
//!
//! A name of that form is its own short name. The short name of any other contains a hash of the whole
//! name, so that it stays the same without being stored, also when the volume is opened again.
//! Promises: a reported short name leads to its file while it is among the last ones reported, and no
//! two files of a directory are reported with the same; in memory this is bounded. Short names from
//! before the volume was opened are searched for among at most [`SEARCHED_MAX`] names of their
//! directory.

use super::opens::Opens;
use super::suspend::Suspend;
use crate::backend::{OpenId, Reply, WideString};
use crate::fs::{Entry, FileId, FileSystem, FsError, names_equal, upcase_unit};
use std::collections::{HashMap, VecDeque};
use types::NtStatus;

/// Characters of a hash in a short name; with `~` and the character before it they fill eight.
const HASH_CHARS: usize = 6;
const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const TILDE: u16 = b'~' as u16;
const DOT: u16 = b'.' as u16;
/// Precedes the hash if the name begins with a character that a short name cannot have.
const NO_FIRST: u16 = b'_' as u16;
/// Hashes tried for a name before it has none.
const TRIES: u32 = 16;
/// Short names remembered.
const TOLD_MAX: usize = 16_384;
/// Names of a directory searched for a short name that was reported before the volume was opened.
const SEARCHED_MAX: usize = 1024;
const SEARCHED_AT_ONCE: usize = 128;

type ShortName = (FileId, WideString);

/// Reported short names.
///
/// Invariant: `order` names each of `told` once; at most [`TOLD_MAX`] are remembered.
#[derive(Debug, Default)]
pub struct ShortNames {
    /// Long name by directory and short name.
    told: HashMap<ShortName, WideString>,
    /// In the order in which they are forgotten.
    order: VecDeque<ShortName>,
}

fn is_short_char(unit: u16) -> bool {
    match u8::try_from(unit) {
        Ok(byte) => byte.is_ascii_alphanumeric() || b"!#$%&'()-@^_`{}~".contains(&byte),
        Err(_) => false,
    }
}

/// Whether the name has the form already.
fn is_short(name: &[u16]) -> bool {
    let mut parts = name.split(|unit| *unit == DOT);
    let base = parts.next().unwrap_or_default();
    let extension = parts.next();
    let fits = |part: &[u16], len: usize| {
        (1..=len).contains(&part.len()) && part.iter().all(|unit| is_short_char(*unit))
    };
    parts.next().is_none() && fits(base, 8) && extension.is_none_or(|part| fits(part, 3))
}

/// Whether the name could be one made here.
fn is_made(name: &[u16]) -> bool {
    is_short(name)
        && name.get(HASH_CHARS) == Some(&TILDE)
        && matches!(name.get(HASH_CHARS + 2), None | Some(&DOT))
}

fn upper(name: &[u16]) -> WideString {
    name.iter().map(|unit| upcase_unit(*unit)).collect()
}

/// Makes the short name of `name`, which is one component of a path, for this try.
fn make(name: &[u16], again: u32) -> WideString {
    // FNV-1a over the folded name.
    let seed = 0xCBF2_9CE4_8422_2325_u64 ^ u64::from(again);
    let mut hash = name
        .iter()
        .fold(seed, |hash, unit| (hash ^ u64::from(upcase_unit(*unit))).wrapping_mul(0x0000_0100_0000_01B3));
    let first = name.first().copied().filter(|unit| is_short_char(*unit)).map_or(NO_FIRST, upcase_unit);
    let mut out = vec![first];
    for _ in 0..HASH_CHARS {
        out.push(u16::from(DIGITS[(hash % 36) as usize]));
        hash /= 36;
    }
    out.insert(HASH_CHARS, TILDE);
    if let Some(at) = name.iter().rposition(|unit| *unit == DOT) {
        let units = name[at + 1..].iter().copied();
        let extension: Vec<u16> =
            units.filter(|unit| is_short_char(*unit)).take(3).map(upcase_unit).collect();
        if at > 0 && !extension.is_empty() {
            out.push(DOT);
            out.extend(extension);
        }
    }
    out.into()
}

impl ShortNames {
    fn tell(&mut self, name: ShortName, long: WideString) {
        if self.told.insert(name.clone(), long).is_none() {
            self.order.push_back(name);
            if self.order.len() > TOLD_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.told.remove(&oldest);
            }
        }
    }

    /// Answers the short name of an open's file: FileAlternateNameInformation (MS-FSCC 2.4.5).
    pub fn query(&mut self, fs: &mut FileSystem, opens: &Opens, id: OpenId) -> Result<Reply, Suspend> {
        let open = opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        // The root has none.
        let link = open.own_link().ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        if is_short(&link.name) {
            return Ok(Reply::Name(upper(&link.name)));
        }
        let name = self.short_name(fs, link.parent, &link.name)?;
        name.map(Reply::Name).ok_or_else(|| NtStatus::OBJECT_NAME_NOT_FOUND.into())
    }

    /// Returns the short name of the entry `long`; `None` if that has the form itself.
    pub fn short_name(
        &mut self,
        fs: &mut FileSystem,
        directory: FileId,
        long: &[u16],
    ) -> Result<Option<WideString>, Suspend> {
        if is_short(long) {
            return Ok(None);
        }
        for again in 0..TRIES {
            let name = (directory, make(long, again));
            match self.told.get(&name) {
                Some(told) if names_equal(told, long) => return Ok(Some(name.1)),
                // Reported for another file, which may be deleted.
                Some(told) => {
                    let told = told.clone();
                    match fs.lookup(directory, &told) {
                        Ok(_) => continue,
                        Err(FsError::NotFound) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                None => {}
            }
            match fs.lookup(directory, &name.1) {
                // Another file has this as its whole name.
                Ok(_) => continue,
                Err(FsError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
            let answer = name.1.clone();
            self.tell(name, long.into());
            return Ok(Some(answer));
        }
        Ok(None)
    }

    /// Finds the entry of this name, or of this short name.
    pub fn lookup(&self, fs: &mut FileSystem, directory: FileId, name: &[u16]) -> Result<Entry, FsError> {
        match fs.lookup(directory, name) {
            Err(FsError::NotFound) if is_made(name) => self.lookup_short(fs, directory, name),
            found => found,
        }
    }

    fn lookup_short(&self, fs: &mut FileSystem, directory: FileId, name: &[u16]) -> Result<Entry, FsError> {
        let short = upper(name);
        if let Some(long) = self.told.get(&(directory, short.clone())).cloned() {
            match fs.lookup(directory, &long) {
                Err(FsError::NotFound) => {}
                found => return found,
            }
        }
        // Names are in the order of their upper-case forms: only those with this first character can match.
        let first = short.first().copied().filter(|first| *first != NO_FIRST);
        let begin = first.map(|first| vec![first]);
        let mut after: Option<WideString> = begin.map(Into::into);
        let mut only: Option<Entry> = None;
        for _ in 0..SEARCHED_MAX / SEARCHED_AT_ONCE {
            let entries = fs.list(directory, after.as_deref(), SEARCHED_AT_ONCE)?;
            let Some(last) = entries.last() else { break };
            after = Some(last.name.clone());
            for entry in entries {
                if first.is_some() && entry.name.first().map(|unit| upcase_unit(*unit)) != first {
                    return only.ok_or(FsError::NotFound);
                }
                if !is_short(&entry.name) && make(&entry.name, 0) == short {
                    if only.is_some() {
                        // Two names fit: nothing is opened rather than the wrong one.
                        return Err(FsError::NotFound);
                    }
                    only = Some(entry);
                }
            }
        }
        only.ok_or(FsError::NotFound)
    }

    /// Returns the short name that was reported for a name, if one was.
    pub fn told_for(&self, directory: FileId, long: &[u16]) -> Option<WideString> {
        if self.told.is_empty() || is_short(long) {
            return None;
        }
        for again in 0..TRIES {
            let name = (directory, make(long, again));
            if names_equal(self.told.get(&name)?, long) {
                return Some(name.1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{TRIES, is_made, is_short, make};

    fn units(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    #[test]
    fn short_names_have_the_form_and_stay_the_same_whatever_the_case() {
        for name in ["a long name.html", "ünïcode", "many.dots.in.it", ".hidden", "a+b", "trailing."] {
            let short = make(&units(name), 0);
            assert!(is_made(&short), "{name}: {}", String::from_utf16_lossy(&short));
            assert_eq!(short, make(&units(&name.to_uppercase()), 0));
        }
    }

    #[test]
    fn names_of_the_form_are_known() {
        for (name, expected) in
            [("Readme.txt", true), ("x", true), ("a+b", false), ("a.html", false), (".a", false)]
        {
            assert_eq!(is_short(&units(name)), expected, "{name}");
        }
    }

    #[test]
    fn each_try_gives_another_name() {
        let mut made: Vec<_> = (0..TRIES).map(|again| make(&units("a long name.txt"), again)).collect();
        made.sort();
        made.dedup();
        assert_eq!(made.len(), TRIES as usize);
    }
}
