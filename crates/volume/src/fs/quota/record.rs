//! Stored records of quotas, byte for byte. As the other records: little-endian, behind a version;
//! decoding bytes of unknown origin may give `None`.

use types::FileTime;

use crate::fs::reader::Reader;

const VERSION: u8 = 1;
/// A limit or threshold that is none.
const NONE: u64 = u64::MAX;
/// The counts of all users are kept.
const COUNTED: u8 = 1;
/// Counts include descriptors and extended attributes; those of programs that knew no such charges do
/// not.
const COUNTED_WHOLE: u8 = 2;
/// Counts include names, of files, directories and streams, and further ones of files; older ones do
/// not.
const COUNTED_NAMES: u8 = 4;
/// Counts include blocks that descriptors and extended attributes begin, not only those that they fill;
/// older ones do not.
const COUNTED_BEGUN: u8 = 8;
const COUNTED_ALL: u8 = COUNTED | COUNTED_WHOLE | COUNTED_NAMES | COUNTED_BEGUN;

/// Whether use of space is counted, and whether limits hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QuotaMode {
    /// Space is not counted; no limits.
    #[default]
    Off,
    /// Space is counted; no limits.
    Track,
    /// Space is counted, and growth beyond an owner's limit is refused.
    Enforce,
}

/// A user's bounds in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaLimits {
    /// Usage above which the user is warned; `None`: never.
    pub threshold_bytes: Option<u64>,
    /// Usage above which the user is refused; `None`: never.
    pub limit_bytes: Option<u64>,
}

/// The volume's quota settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaSettings {
    /// Whether space is counted and limits hold.
    pub mode: QuotaMode,
    /// Limits of users without their own.
    pub defaults: QuotaLimits,
    /// FILE_VC_LOG_* (MS-FSCC 2.5.2), kept for clients.
    pub log_flags: u32,
    /// The counts of all users are those of the files. Counts without descriptors, extended attributes and names are not.
    pub counted: bool,
}

/// Stored record of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserRecord {
    pub used_blocks: u128,
    /// `None`: the volume's defaults hold.
    pub limits: Option<QuotaLimits>,
    /// Time of the last change of the limits.
    pub changed: FileTime,
}

fn push_limits(out: &mut Vec<u8>, limits: QuotaLimits) {
    for bytes in [limits.threshold_bytes, limits.limit_bytes] {
        out.extend_from_slice(&bytes.unwrap_or(NONE).to_le_bytes());
    }
}

fn limits(reader: &mut Reader<'_>) -> Option<QuotaLimits> {
    let mut bytes = || reader.u64().map(|bytes| (bytes != NONE).then_some(bytes));
    Some(QuotaLimits { threshold_bytes: bytes()?, limit_bytes: bytes()? })
}

impl QuotaSettings {
    /// Encodes the stored record of the settings: version 1, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let counted = if self.counted { COUNTED_ALL } else { 0 };
        let mut out = vec![VERSION, self.mode as u8, counted, 0];
        out.extend_from_slice(&self.log_flags.to_le_bytes());
        push_limits(&mut out, self.defaults);
        out
    }

    /// Decodes the stored record; `None` for another version, an unknown mode or a short input.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        (reader.u8()? == VERSION).then_some(())?;
        let mode = match reader.u8()? {
            0 => QuotaMode::Off,
            1 => QuotaMode::Track,
            2 => QuotaMode::Enforce,
            _ => return None,
        };
        let counted = reader.u8()? & COUNTED_ALL == COUNTED_ALL;
        reader.u8()?;
        Some(Self { mode, counted, log_flags: reader.u32()?, defaults: limits(&mut reader)? })
    }
}

impl UserRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.limits.is_some()), 0, 0];
        out.extend_from_slice(&self.used_blocks.to_le_bytes());
        push_limits(&mut out, self.limits.unwrap_or_default());
        out.extend_from_slice(&self.changed.0.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        (reader.u8()? == VERSION).then_some(())?;
        let has_limits = reader.u8()? & 1 != 0;
        reader.u16()?;
        let used_blocks = u128::from_le_bytes(reader.take(16)?.try_into().ok()?);
        let limits = limits(&mut reader)?;
        Some(Self { used_blocks, limits: has_limits.then_some(limits), changed: FileTime(reader.u64()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_records_come_back_as_they_were_stored() {
        let some = QuotaLimits { threshold_bytes: Some(7), limit_bytes: None };
        for mode in [QuotaMode::Off, QuotaMode::Track, QuotaMode::Enforce] {
            let settings = QuotaSettings { mode, defaults: some, log_flags: 0x30, counted: true };
            assert_eq!(QuotaSettings::decode(&settings.encode()), Some(settings));
        }
        for limits in [None, Some(some), Some(QuotaLimits::default())] {
            let user = UserRecord { used_blocks: 1 << 90, limits, changed: FileTime(9) };
            assert_eq!(UserRecord::decode(&user.encode()), Some(user));
            let bytes = user.encode();
            assert!((0..bytes.len()).all(|len| UserRecord::decode(&bytes[..len]).is_none()));
        }
        assert_eq!(QuotaSettings::decode(&[1, 9, 0, 0]), None);
        // Counts of a program that charged for less are made anew.
        for missing in [COUNTED_WHOLE, COUNTED_NAMES, COUNTED_BEGUN] {
            let mut older = QuotaSettings { counted: true, ..QuotaSettings::default() }.encode();
            older[2] &= !missing;
            assert_eq!(QuotaSettings::decode(&older).map(|settings| settings.counted), Some(false));
        }
    }
}
