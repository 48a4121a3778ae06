//! Extended attributes on the wire: lists to set (MS-FSCC 2.4.16) and to get (2.4.16.1), and the
//! answers.

use smb::wire::{FullEa, FullEas, Put, parse_get_ea_names, put_full_ea};
use std::collections::HashMap;
use types::NtStatus;
use volume::backend::ExtendedAttribute;
use volume::fs::{EXTENDED_ATTRIBUTE_BYTES_MAX, EaName};

/// Longest list in a request in bytes: it can remove all that a file has and set as much again.
const LIST_BYTES_MAX: usize = 2 * EXTENDED_ATTRIBUTE_BYTES_MAX;

/// The attributes that a request sets.
///
/// # Errors
/// EA_TOO_LARGE for a list that no file could have, `malformed` for one that is cut short.
pub(crate) fn read_eas(bytes: &[u8], malformed: NtStatus) -> Result<Vec<ExtendedAttribute>, NtStatus> {
    if bytes.len() > LIST_BYTES_MAX {
        return Err(NtStatus::EA_TOO_LARGE);
    }
    let owned =
        |ea: FullEa<'_>| ExtendedAttribute { flags: ea.flags, name: ea.name.into(), value: ea.value.into() };
    let list: Result<_, _> = FullEas::new(bytes).map(|ea| ea.map(owned)).collect();
    list.map_err(|_| malformed)
}

/// Parses the names in a request.
///
/// # Errors
/// INVALID_PARAMETER for a truncated list, or one longer than that of all names of a file.
pub(crate) fn read_ea_names(bytes: &[u8]) -> Result<Vec<Vec<u8>>, NtStatus> {
    if bytes.len() > LIST_BYTES_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(parse_get_ea_names(bytes)?.into_iter().map(<[u8]>::to_vec).collect())
}

/// An answer under construction.
#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    /// Place of the last attribute.
    last: Option<usize>,
    bytes_max: usize,
    overflow: bool,
}

impl Answer {
    /// Whether the attribute fitted.
    fn push(&mut self, ea: FullEa<'_>) -> bool {
        let (len, last) = (self.bytes.len(), self.last);
        put_full_ea(&mut self.bytes, &mut self.last, ea);
        if self.bytes.len() > self.bytes_max {
            self.bytes.truncate(len);
            if let Some(last) = last {
                self.bytes.patch_u32(last, 0);
            }
            self.last = last;
            self.overflow = true;
        }
        !self.overflow
    }
}

fn full(ea: &ExtendedAttribute) -> FullEa<'_> {
    FullEa { flags: ea.flags, name: &ea.name, value: &ea.value }
}

/// Lists a file's attributes with these `names` (FileFullEaInformation), in at most `bytes_max` bytes.
/// No `names`: all; `single`: the first one only.
pub(crate) fn list_eas(
    found: &[ExtendedAttribute],
    names: Option<&[Vec<u8>]>,
    single: bool,
    bytes_max: usize,
) -> Result<(NtStatus, Vec<u8>), NtStatus> {
    let mut answer = Answer { bytes_max, ..Answer::default() };
    match names {
        Some(names) => {
            let by_name: HashMap<_, _> = found.iter().map(|ea| (EaName::new(&ea.name), ea)).collect();
            let missing = |name| FullEa { flags: 0, name, value: &[] };
            for name in names {
                let ea = by_name.get(&EaName::new(name));
                if !answer.push(ea.map_or_else(|| missing(name), |ea| FullEa { name, ..full(ea) })) {
                    break;
                }
            }
        }
        None if found.is_empty() => return Err(NtStatus::NO_EAS_ON_FILE),
        None => {
            for ea in found {
                if !answer.push(full(ea)) || single {
                    break;
                }
            }
        }
    }
    if answer.overflow && answer.bytes.is_empty() {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let status = if answer.overflow { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
    Ok((status, answer.bytes))
}
