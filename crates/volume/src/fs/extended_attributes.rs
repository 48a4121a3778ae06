//! A file's list of extended attributes: packed as stored, merged with a client's changes.
//!
//! Promises: merging costs time in proportion to both lists, for any names; a list that is too long is
//! refused before it is stored.

use std::collections::HashMap;

use super::reader::Reader;
use super::types::ExtendedAttribute;
use super::types::FsError;

/// Longest list of one file in bytes as MS-FSCC 2.4.16 packs it, as in NTFS. An attribute takes at least 12 of them, so that a file has
/// at most 5,461.
pub const EXTENDED_ATTRIBUTE_BYTES_MAX: usize = 65_536;

/// Fixed part of an attribute in that form, with the zero behind its name.
const FULL_HEAD_BYTES: usize = 9;

/// Name of an attribute, ignoring ASCII case.
#[derive(Debug)]
pub struct EaName(Box<[u8]>);

impl EaName {
    /// Makes the form of `name` that is compared, with ASCII letters in upper case.
    pub fn new(name: &[u8]) -> Self {
        Self(name.to_ascii_uppercase().into())
    }
}

impl PartialEq for EaName {
    fn eq(&self, other: &Self) -> bool {
        #[cfg(test)]
        COMPARISONS.with(|count| count.set(count.get() + 1));
        self.0 == other.0
    }
}

impl Eq for EaName {}

impl std::hash::Hash for EaName {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[cfg(test)]
thread_local! {
    /// Names that were compared on this thread.
    pub static COMPARISONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Attributes in the order in which they were first set, and the place of each name.
#[derive(Debug, Default)]
pub struct AttributeList {
    /// `None`: removed.
    entries: Vec<Option<ExtendedAttribute>>,
    positions: HashMap<EaName, usize>,
}

impl AttributeList {
    pub fn new(stored: Vec<ExtendedAttribute>) -> Self {
        let positions = stored.iter().enumerate().map(|(at, one)| (EaName::new(&one.name), at)).collect();
        Self { entries: stored.into_iter().map(Some).collect(), positions }
    }

    /// Sets each of these; one with an empty value is removed.
    ///
    /// # Errors
    /// `Invalid` if a name is empty, or a name or value too long for the form in which it is stored.
    pub fn merge(&mut self, set: &[ExtendedAttribute]) -> Result<(), FsError> {
        for one in set {
            let name_fits = (1..=usize::from(u8::MAX)).contains(&one.name.len());
            if !name_fits || one.value.len() > usize::from(u16::MAX) {
                return Err(FsError::Invalid("an extended attribute's name or value has a wrong length"));
            }
            let name = EaName::new(&one.name);
            if one.value.is_empty() {
                if let Some(at) = self.positions.remove(&name) {
                    self.entries[at] = None;
                }
            } else {
                let next = self.entries.len();
                match *self.positions.entry(name).or_insert(next) {
                    at if at == next => self.entries.push(Some(one.clone())),
                    at => self.entries[at] = Some(one.clone()),
                }
            }
        }
        Ok(())
    }

    /// Packs the list for storage: each attribute as flags, name length, value length (16 bits,
    /// little-endian), name, value. Also returns its length as MS-FSCC 2.4.16 packs it.
    ///
    /// # Errors
    /// `TooLarge` beyond [`EXTENDED_ATTRIBUTE_BYTES_MAX`].
    pub fn pack(&self) -> Result<(Vec<u8>, u32), FsError> {
        let (mut packed, mut full_bytes) = (Vec::new(), 0_usize);
        for one in self.entries.iter().flatten() {
            packed.push(one.flags);
            packed.push(one.name.len() as u8);
            packed.extend_from_slice(&(one.value.len() as u16).to_le_bytes());
            packed.extend_from_slice(&one.name);
            packed.extend_from_slice(&one.value);
            full_bytes = full_bytes.next_multiple_of(4) + FULL_HEAD_BYTES + one.name.len() + one.value.len();
            if full_bytes > EXTENDED_ATTRIBUTE_BYTES_MAX {
                return Err(FsError::TooLarge);
            }
        }
        Ok((packed, full_bytes as u32))
    }
}

/// Whether a file without extended attributes can get these.
///
/// # Errors
/// Those of [`AttributeList::merge`] and [`AttributeList::pack`].
pub fn check_extended_attributes(set: &[ExtendedAttribute]) -> Result<(), FsError> {
    let mut list = AttributeList::default();
    list.merge(set)?;
    list.pack().map(drop)
}

pub(super) fn unpack_attributes(packed: &[u8]) -> Option<Vec<ExtendedAttribute>> {
    let (mut reader, mut out) = (Reader(packed), Vec::new());
    while !reader.0.is_empty() {
        let (flags, name_len, value_len) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let name = reader.take(usize::from(name_len))?.to_vec();
        let value = reader.take(usize::from(value_len))?.to_vec();
        out.push(ExtendedAttribute { flags, name, value });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(name: &str, value: &[u8]) -> ExtendedAttribute {
        ExtendedAttribute { flags: 0, name: name.into(), value: value.into() }
    }

    fn names(list: &AttributeList) -> Vec<String> {
        let entries = list.entries.iter().flatten();
        entries.map(|one| String::from_utf8_lossy(&one.name).into_owned()).collect()
    }

    #[test]
    fn setting_replaces_whatever_the_case_and_an_empty_value_removes() {
        let mut list = AttributeList::new(vec![attribute("a", b"1"), attribute("b", b"2")]);
        list.merge(&[attribute("B", b"3"), attribute("a", b""), attribute("c", b"4")]).expect("valid");
        assert_eq!(names(&list), ["B", "c"]);
        list.merge(&[attribute("A", b"5"), attribute("C", b""), attribute("c", b"6")]).expect("valid");
        assert_eq!(names(&list), ["B", "A", "c"]);
        assert_eq!(
            list.merge(&[attribute("", b"7")]).map_err(|error| error.to_string().is_empty()),
            Err(false)
        );
    }

    #[test]
    fn merging_65536_attributes_compares_each_name_about_once() {
        let set: Vec<_> = (0..65_536).map(|number| attribute(&format!("{number:05X}"), b"x")).collect();
        let mut list = AttributeList::default();
        COMPARISONS.with(|count| count.set(0));
        list.merge(&set).expect("valid names");
        list.merge(&set).expect("valid names");
        let compared = COMPARISONS.with(std::cell::Cell::get);
        assert!(compared <= 4 * set.len(), "{compared} comparisons");
        assert_eq!(list.pack(), Err(FsError::TooLarge));
    }

    #[test]
    fn a_list_of_65536_bytes_is_stored_and_one_more_is_not() {
        let value = vec![1; EXTENDED_ATTRIBUTE_BYTES_MAX - 2 * FULL_HEAD_BYTES - 2 - 12];
        let set = [attribute("ab", &[1]), attribute("b", &value), attribute("c", &[])];
        assert_eq!(check_extended_attributes(&set), Ok(()));
        let longest = vec![1; u16::MAX.into()];
        assert_eq!(check_extended_attributes(&[attribute("b", &longest)]), Err(FsError::TooLarge));
        let fits = vec![1; EXTENDED_ATTRIBUTE_BYTES_MAX - FULL_HEAD_BYTES - 1];
        assert_eq!(check_extended_attributes(&[attribute("b", &fits)]), Ok(()));
        let too_long = vec![1; EXTENDED_ATTRIBUTE_BYTES_MAX - FULL_HEAD_BYTES];
        assert_eq!(check_extended_attributes(&[attribute("b", &too_long)]), Err(FsError::TooLarge));
    }
}
