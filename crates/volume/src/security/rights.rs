//! Access rights of files and directories (MS-SMB2 2.2.13.1) and the mapping of generic rights onto them.

/// FILE_READ_DATA (MS-SMB2 2.2.13.1.1).
pub const READ_DATA: u32 = 0x0000_0001;
/// FILE_LIST_DIRECTORY: READ_DATA of a directory (MS-SMB2 2.2.13.1.2).
pub const LIST_DIRECTORY: u32 = READ_DATA;
/// FILE_WRITE_DATA (MS-SMB2 2.2.13.1.1).
pub const WRITE_DATA: u32 = 0x0000_0002;
/// FILE_ADD_FILE: WRITE_DATA of a directory (MS-SMB2 2.2.13.1.2).
pub const ADD_FILE: u32 = WRITE_DATA;
/// FILE_APPEND_DATA (MS-SMB2 2.2.13.1.1).
pub const APPEND_DATA: u32 = 0x0000_0004;
/// FILE_ADD_SUBDIRECTORY: APPEND_DATA of a directory (MS-SMB2 2.2.13.1.2).
pub const ADD_SUBDIRECTORY: u32 = APPEND_DATA;
/// FILE_READ_EA: reads extended attributes.
pub const READ_EA: u32 = 0x0000_0008;
/// FILE_WRITE_EA: changes extended attributes.
pub const WRITE_EA: u32 = 0x0000_0010;
/// FILE_EXECUTE: runs the file as a program (MS-SMB2 2.2.13.1.1).
pub const EXECUTE: u32 = 0x0000_0020;
/// FILE_TRAVERSE: EXECUTE of a directory (MS-SMB2 2.2.13.1.2).
pub const TRAVERSE: u32 = EXECUTE;
/// FILE_DELETE_CHILD: deletes any entry of a directory, without DELETE on the entry.
pub const DELETE_CHILD: u32 = 0x0000_0040;
/// FILE_READ_ATTRIBUTES: reads times, sizes and FILE_ATTRIBUTE bits.
pub const READ_ATTRIBUTES: u32 = 0x0000_0080;
/// FILE_WRITE_ATTRIBUTES: changes times and FILE_ATTRIBUTE bits.
pub const WRITE_ATTRIBUTES: u32 = 0x0000_0100;
/// Deletes or renames the file itself (standard right).
pub const DELETE: u32 = 0x0001_0000;
/// Reads the descriptor but its SACL (standard right).
pub const READ_CONTROL: u32 = 0x0002_0000;
/// Changes the DACL (standard right).
pub const WRITE_DAC: u32 = 0x0004_0000;
/// Changes owner and group (standard right).
pub const WRITE_OWNER: u32 = 0x0008_0000;
/// Asked for by clients that wait on the handle; without effect on a server (standard right).
pub const SYNCHRONIZE: u32 = 0x0010_0000;
/// Reads and changes the SACL: granted by SeSecurityPrivilege, not by a DACL.
pub const ACCESS_SYSTEM_SECURITY: u32 = 0x0100_0000;
/// Asks for every right that the caller can get (MS-SMB2 2.2.13.1).
pub const MAXIMUM_ALLOWED: u32 = 0x0200_0000;
/// Stands for [`FILE_ALL`].
pub const GENERIC_ALL: u32 = 0x1000_0000;
/// Stands for [`FILE_GENERIC_EXECUTE`].
pub const GENERIC_EXECUTE: u32 = 0x2000_0000;
/// Stands for [`FILE_GENERIC_WRITE`].
pub const GENERIC_WRITE: u32 = 0x4000_0000;
/// Stands for [`FILE_GENERIC_READ`].
pub const GENERIC_READ: u32 = 0x8000_0000;
/// Any of the four generic rights.
pub const GENERIC: u32 = GENERIC_ALL | GENERIC_EXECUTE | GENERIC_WRITE | GENERIC_READ;

/// FILE_ALL_ACCESS: all specific and standard rights of a file, and [`SYNCHRONIZE`].
pub const FILE_ALL: u32 = 0x001F_01FF;
/// FILE_GENERIC_READ: data, attributes, extended attributes, READ_CONTROL and SYNCHRONIZE.
pub const FILE_GENERIC_READ: u32 = 0x0012_0089;
/// FILE_GENERIC_WRITE: data, appending, attributes, extended ones, READ_CONTROL, SYNCHRONIZE.
pub const FILE_GENERIC_WRITE: u32 = 0x0012_0116;
/// FILE_GENERIC_EXECUTE: EXECUTE, READ_ATTRIBUTES, READ_CONTROL and SYNCHRONIZE.
pub const FILE_GENERIC_EXECUTE: u32 = 0x0012_00A0;
/// The rights that Windows calls "Modify".
pub const FILE_MODIFY: u32 = 0x0013_01BF;

/// Every bit of a valid access mask.
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

/// Parses an access mask in text form: one of Windows' words, or a number such as `0x1200a9`.
///
/// # Errors
/// Why the word is no access mask.
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
