//! Paths as clients send them: names between backslashes, a stream after a colon (MS-FSCC 2.1.5).
//!
//! MS-FSCC 2.1.5.1 says that clients do not send `..`, and MS-FSA 2.1.5.1 names no status for it. The
//! rule here is Samba's: `..` removes the name before it, whether a directory or not, and answers
//! OBJECT_PATH_SYNTAX_BAD if there is none. So a path is a list of names below a root before any
//! lookup, and nothing in it leads out of there.

use crate::backend::WideString;
use types::NtStatus;

const BACKSLASH: u16 = b'\\' as u16;
const COLON: u16 = b':' as u16;
const PARENT: [u16; 2] = [b'.' as u16; 2];
/// Longest name and longest stream name in UTF-16 code units.
const NAME_UNITS_MAX: usize = 255;
/// Longest path in UTF-16 code units.
const PATH_UNITS_MAX: usize = 32_767;
/// Most names of a path. The root below which they are walked was reached by such a path too: files that clients open lie no deeper
/// than the file layer finds its way back up from.
const NAMES_MAX: usize = crate::fs::DEPTH_MAX / 2;

/// A path below some root, taken apart; borrows the client's units. None of its names is `.` or `..`: only [`parse`] makes one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedPath<'a> {
    /// Names of directories, and last the file's own; none for the root.
    names: Vec<&'a [u16]>,
    /// Of each name, how many units of the path lie behind it.
    units_behind: Vec<usize>,
    /// The named stream; `None` for the unnamed one.
    pub stream: Option<&'a [u16]>,
    /// Whether the path names `::$DATA`: a directory will not do.
    pub data_type: bool,
    /// Whether the path names `:$I30:$INDEX_ALLOCATION`, or ends in a backslash: only a directory will do.
    pub directory_type: bool,
}

impl<'a> ParsedPath<'a> {
    /// Returns the names from the root on, each of an entry of the directory before it.
    pub fn names(&self) -> &[&'a [u16]] {
        &self.names
    }

    /// Returns the length in bytes of the client's path behind the name at `index`: further names with the
    /// backslash before each, and a stream (UnparsedPathLength of MS-SMB2 2.2.2.2.1).
    pub fn bytes_behind(&self, index: usize) -> u16 {
        let units = self.units_behind.get(index).copied().unwrap_or_default();
        // A path has at most `PATH_UNITS_MAX` units.
        u16::try_from(2 * units).unwrap_or(u16::MAX)
    }
}

/// The path of a file in the case of the names as stored: from the volume's root, for locks and notifications that concern everybody,
/// and below its caller's root, for that caller to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPath {
    whole: Vec<u16>,
    /// The part that leads to the caller's root.
    root_units: usize,
}

impl StoredPath {
    /// Begins at a caller's root, whose own path is `path`.
    pub fn of_root(path: WideString) -> Self {
        Self { root_units: path.len(), whole: path.into_vec() }
    }

    /// Continues with an entry.
    pub fn enter(&mut self, name: &[u16]) {
        if !self.whole.is_empty() {
            self.whole.push(BACKSLASH);
        }
        self.whole.extend_from_slice(name);
    }

    pub fn with_stream(mut self, stream: &[u16]) -> Self {
        self.whole.push(COLON);
        self.whole.extend_from_slice(stream);
        self
    }

    /// Returns the path from the volume's root.
    pub fn whole(&self) -> &[u16] {
        &self.whole
    }

    /// Returns the path below the caller's root.
    pub fn below_root(&self) -> &[u16] {
        let below = &self.whole[self.root_units..];
        below.strip_prefix(&[BACKSLASH]).unwrap_or(below)
    }
}

/// Makes the slashes of other systems backslashes, up to where a stream begins.
pub fn with_backslashes(path: &[u16]) -> Box<[u16]> {
    let mut path: Box<[u16]> = path.into();
    for unit in path.iter_mut().take_while(|unit| **unit != COLON) {
        if *unit == u16::from(b'/') {
            *unit = BACKSLASH;
        }
    }
    path
}

/// Takes a path apart.
///
/// # Errors
/// INVALID_PARAMETER for a leading backslash, OBJECT_NAME_INVALID for names or streams that cannot be and for more than
/// [`NAMES_MAX`] of them, OBJECT_PATH_SYNTAX_BAD for a `..` without a name before it.
pub fn parse(path: &[u16]) -> Result<ParsedPath<'_>, NtStatus> {
    let mut parsed = ParsedPath::default();
    if path.is_empty() {
        return Ok(parsed);
    }
    if path[0] == BACKSLASH {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if path.len() > PATH_UNITS_MAX {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    let whole_units = path.len();
    let path = match path.strip_suffix(&[BACKSLASH]) {
        Some(rest) => {
            parsed.directory_type = true;
            rest
        }
        None => path,
    };
    // Backslashes end where a stream begins: stream names cannot hold them.
    let (names, stream) = match path.iter().position(|&unit| unit == COLON) {
        Some(at) => (&path[..at], Some(&path[at + 1..])),
        None => (path, None),
    };
    if !names.is_empty() {
        // One less than none: no backslash precedes the first name.
        let mut units_behind = whole_units + 1;
        for name in names.split(|&unit| unit == BACKSLASH) {
            units_behind -= 1 + name.len();
            if name == PARENT {
                parsed.names.pop().ok_or(NtStatus::OBJECT_PATH_SYNTAX_BAD)?;
                parsed.units_behind.pop();
                continue;
            }
            check_name(name)?;
            if parsed.names.len() == NAMES_MAX {
                return Err(NtStatus::OBJECT_NAME_INVALID);
            }
            parsed.names.push(name);
            parsed.units_behind.push(units_behind);
        }
    }
    if let Some(stream) = stream {
        if parsed.directory_type {
            return Err(NtStatus::OBJECT_NAME_INVALID);
        }
        parse_stream(stream, &mut parsed)?;
    }
    Ok(parsed)
}

fn parse_stream<'a>(stream: &'a [u16], parsed: &mut ParsedPath<'a>) -> Result<(), NtStatus> {
    let invalid = NtStatus::OBJECT_NAME_INVALID;
    let mut parts = stream.split(|&unit| unit == COLON);
    let (Some(name), kind, None) = (parts.next(), parts.next(), parts.next()) else { return Err(invalid) };
    if kind.is_some_and(|kind| is(kind, "$INDEX_ALLOCATION")) {
        if !(name.is_empty() || is(name, "$I30")) {
            return Err(invalid);
        }
        parsed.directory_type = true;
        return Ok(());
    }
    if kind.is_some_and(|kind| !is(kind, "$DATA")) {
        return Err(invalid);
    }
    if name.is_empty() {
        parsed.data_type = true;
        return if kind.is_some() { Ok(()) } else { Err(invalid) };
    }
    check_stream_name(name)?;
    parsed.stream = Some(name);
    Ok(())
}

/// Parses a stream name in the form of FileRenameInformation: `:name` or `:name:$DATA`; empty for the
/// unnamed stream.
///
/// # Errors
/// OBJECT_NAME_INVALID.
pub fn parse_stream_target(target: &[u16]) -> Result<&[u16], NtStatus> {
    let mut parsed = ParsedPath::default();
    let stream = target.strip_prefix(&[COLON]).ok_or(NtStatus::OBJECT_NAME_INVALID)?;
    parse_stream(stream, &mut parsed)?;
    if parsed.directory_type {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    Ok(parsed.stream.unwrap_or(&[]))
}

/// Checks that a file can have this name (MS-FSCC 2.1.5.2).
///
/// # Errors
/// OBJECT_NAME_INVALID.
pub fn check_name(name: &[u16]) -> Result<(), NtStatus> {
    const DOT: u16 = b'.' as u16;
    let forbidden =
        |unit: &u16| *unit < 0x20 || u8::try_from(*unit).is_ok_and(|c| b"\"*/:<>?\\|".contains(&c));
    match name {
        [] | [DOT] | [DOT, DOT] => Err(NtStatus::OBJECT_NAME_INVALID),
        _ if name.len() > NAME_UNITS_MAX || name.iter().any(forbidden) => Err(NtStatus::OBJECT_NAME_INVALID),
        _ => Ok(()),
    }
}

/// Checks the name of a stream: it may hold characters that a file name may not, wildcards included (MS-FSCC 2.1.5.3).
fn check_stream_name(name: &[u16]) -> Result<(), NtStatus> {
    let forbidden = |unit: &u16| *unit == 0 || *unit == u16::from(b'/') || *unit == BACKSLASH;
    if name.len() > NAME_UNITS_MAX || name.iter().any(forbidden) {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    Ok(())
}

fn is(units: &[u16], ascii: &str) -> bool {
    units.len() == ascii.len()
        && units
            .iter()
            .zip(ascii.bytes())
            .all(|(&unit, byte)| u8::try_from(unit).is_ok_and(|unit| unit.eq_ignore_ascii_case(&byte)))
}

/// Returns the part of a path before the first name in it that is empty, of a path that does not begin with one; `None` if none is.
pub fn before_empty_name(path: &[u16]) -> Option<&[u16]> {
    let at = path.windows(2).position(|pair| pair == [BACKSLASH; 2])?;
    let before = &path[..at];
    (!before.is_empty() && !before.contains(&COLON)).then_some(before)
}

/// Joins `directory` and `name` with a backslash between, if there is a directory.
pub fn join(directory: &[u16], name: &[u16]) -> Box<[u16]> {
    let mut path = Vec::with_capacity(directory.len() + 1 + name.len());
    path.extend_from_slice(directory);
    if !directory.is_empty() {
        path.push(BACKSLASH);
    }
    path.extend_from_slice(name);
    path.into()
}

/// Splits a path into its directory and its last name.
pub fn split_last(path: &[u16]) -> (&[u16], &[u16]) {
    match path.iter().rposition(|&unit| unit == BACKSLASH) {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Returns the part of `path` that a caller with the root at `root` sees: of a file that has been moved out of the root, its own name
/// only.
pub fn seen_from<'a>(path: &'a [u16], root: &[u16]) -> &'a [u16] {
    if let Some(below) = strip_directory(path, root) {
        return below;
    }
    match path.strip_prefix(root) {
        Some(stream @ [COLON, ..]) => stream,
        _ => split_last(path).1,
    }
}

/// Returns the rest of `path` below `directory`: empty if they are the same; `None` if it is outside.
pub fn strip_directory<'a>(path: &'a [u16], directory: &[u16]) -> Option<&'a [u16]> {
    if directory.is_empty() {
        return Some(path);
    }
    match path.strip_prefix(directory)? {
        [] => Some(&[]),
        [BACKSLASH, rest @ ..] => Some(rest),
        _ => None,
    }
}
