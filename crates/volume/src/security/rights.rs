//! Access rights of files and directories (MS-SMB2 2.2.13.1) and the mapping of generic rights onto them.

pub const READ_DATA: u32 = 0x0000_0001;
pub const LIST_DIRECTORY: u32 = READ_DATA;
pub const WRITE_DATA: u32 = 0x0000_0002;
pub const ADD_FILE: u32 = WRITE_DATA;
pub const APPEND_DATA: u32 = 0x0000_0004;
pub const ADD_SUBDIRECTORY: u32 = APPEND_DATA;
pub const READ_EA: u32 = 0x0000_0008;
pub const WRITE_EA: u32 = 0x0000_0010;
pub const EXECUTE: u32 = 0x0000_0020;
pub const TRAVERSE: u32 = EXECUTE;
pub const DELETE_CHILD: u32 = 0x0000_0040;
pub const READ_ATTRIBUTES: u32 = 0x0000_0080;
pub const WRITE_ATTRIBUTES: u32 = 0x0000_0100;
pub const DELETE: u32 = 0x0001_0000;
pub const READ_CONTROL: u32 = 0x0002_0000;
pub const WRITE_DAC: u32 = 0x0004_0000;
pub const WRITE_OWNER: u32 = 0x0008_0000;
pub const SYNCHRONIZE: u32 = 0x0010_0000;
pub const ACCESS_SYSTEM_SECURITY: u32 = 0x0100_0000;
pub const MAXIMUM_ALLOWED: u32 = 0x0200_0000;
pub const GENERIC_ALL: u32 = 0x1000_0000;
pub const GENERIC_EXECUTE: u32 = 0x2000_0000;
pub const GENERIC_WRITE: u32 = 0x4000_0000;
pub const GENERIC_READ: u32 = 0x8000_0000;
/// Any of the four generic rights.
pub const GENERIC: u32 = GENERIC_ALL | GENERIC_EXECUTE | GENERIC_WRITE | GENERIC_READ;

pub const FILE_ALL: u32 = 0x001F_01FF;
pub const FILE_GENERIC_READ: u32 = 0x0012_0089;
pub const FILE_GENERIC_WRITE: u32 = 0x0012_0116;
pub const FILE_GENERIC_EXECUTE: u32 = 0x0012_00A0;
/// The rights that Windows calls "Modify".
pub const FILE_MODIFY: u32 = 0x0013_01BF;

/// Every bit that may be asked for.
pub const VALID: u32 = FILE_ALL | ACCESS_SYSTEM_SECURITY | MAXIMUM_ALLOWED | GENERIC;

/// Replaces generic rights by those of files.
pub const fn map_generic(mask: u32) -> u32 {
    let mut mapped = mask & !GENERIC;
    if mask & GENERIC_ALL != 0 {
        mapped |= FILE_ALL;
    }
    if mask & GENERIC_READ != 0 {
        mapped |= FILE_GENERIC_READ;
    }
    if mask & GENERIC_WRITE != 0 {
        mapped |= FILE_GENERIC_WRITE;
    }
    if mask & GENERIC_EXECUTE != 0 {
        mapped |= FILE_GENERIC_EXECUTE;
    }
    mapped
}

/// Windows' own words for the usual masks.
const WORDS: [(&str, u32); 5] = [
    ("full", FILE_ALL),
    ("modify", FILE_MODIFY),
    ("read_execute", FILE_GENERIC_READ | FILE_GENERIC_EXECUTE),
    ("read", FILE_GENERIC_READ),
    ("write", FILE_GENERIC_WRITE),
];

/// Reads an access mask as people write it: one of Windows' words, or a number such as `0x1200a9`.
///
/// # Errors
/// Why the word is no access.
pub fn access_mask(word: &str) -> Result<u32, String> {
    if let Some((_, mask)) = WORDS.iter().find(|(known, _)| *known == word) {
        return Ok(*mask);
    }
    let number = word.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
    number.filter(|mask| *mask != 0).ok_or_else(|| {
        format!("'{word}' is no access: full, modify, read_execute, read, write, or a mask such as 0x1200a9")
    })
}

/// Writes an access mask so that [`access_mask`] reads it.
pub fn access_word(mask: u32) -> String {
    let word = WORDS.iter().find(|(_, known)| *known == mask);
    word.map_or_else(|| format!("{mask:#x}"), |(word, _)| (*word).to_owned())
}
