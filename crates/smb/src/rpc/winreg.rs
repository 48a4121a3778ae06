//! winreg (MS-RRP), for reading: the few keys that tools ask for, for administrators. Nothing here is
//! stored: the answers are those that this server's registry would give.

use super::handles::{Handles, Object, close_answer, open_answer};
use super::ndr::{BadStub, Reader, Writer};
use super::{Directory, INVALID_HANDLE, RpcCaller, Win32};

/// REG_SZ and REG_DWORD
const TEXT: u32 = 1;
const NUMBER: u32 = 4;
/// ERROR_NO_MORE_ITEMS
const NO_MORE_ITEMS: u32 = 259;
/// Longest data of a value in bytes that a client may bring along.
const DATA_BYTES_MAX: usize = 64 << 10;
/// Version of the registry that Windows has reported since Windows 2000.
const VERSION: u32 = 5;

const MACHINE: &str = "HKLM";
const USERS: &str = "HKU";
const CLASSES: &str = "HKCR";
const CURRENT_USER: &str = "HKCU";

/// Content of a value.
#[derive(Clone, Copy)]
enum Data {
    Text(&'static str),
    Number(u32),
    ComputerName,
}

/// Keys with a value: path, name and data. Keys above them are there as well.
const VALUES: &[(&str, &str, Data)] = &[
    (r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion", "CurrentVersion", Data::Text("6.3")),
    (r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion", "ProductName", Data::Text("Cenote")),
    (r"HKLM\SYSTEM\CurrentControlSet\Control\ComputerName\ComputerName", "ComputerName", Data::ComputerName),
    (
        r"HKLM\SYSTEM\CurrentControlSet\Control\ComputerName\ActiveComputerName",
        "ComputerName",
        Data::ComputerName,
    ),
    (r"HKLM\SYSTEM\CurrentControlSet\Control\ProductOptions", "ProductType", Data::Text("ServerNT")),
    (
        r"HKLM\SYSTEM\CurrentControlSet\Services\LanmanServer\Parameters",
        "EnableSecuritySignature",
        Data::Number(1),
    ),
    (r"HKLM\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters", "Hostname", Data::ComputerName),
];
const ROOTS: [&str; 4] = [MACHINE, USERS, CLASSES, CURRENT_USER];

/// Answers one operation; `None` if it is not known.
pub(super) fn call(
    operation: u16,
    reader: &mut Reader<'_>,
    handles: &mut Handles,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Option<Result<Vec<u8>, BadStub>> {
    let root = |handles: &mut Handles, root| {
        let is_allowed = caller.is_administrator;
        Ok(if is_allowed { open(handles, Some(root)) } else { refused(20, Win32::ACCESS_DENIED.0) })
    };
    Some(match operation {
        0 => root(handles, CLASSES),
        1 => root(handles, CURRENT_USER),
        2 => root(handles, MACHINE),
        4 => root(handles, USERS),
        5 => reader.handle().map(|handle| close_answer(handles, handle, INVALID_HANDLE)),
        // BaseRegCreateKey: no handle, no disposition.
        6 => Ok(refused(24, Win32::ACCESS_DENIED.0)),
        // BaseRegDeleteKey, DeleteValue, LoadKey, ReplaceKey, RestoreKey, SaveKey, SetKeySecurity, SetValue, UnLoadKey.
        7 | 8 | 13 | 18..=23 => Ok(refused(0, Win32::ACCESS_DENIED.0)),
        9 => enumerate_key(reader, handles),
        10 => enumerate_value(reader, handles, directory),
        // BaseRegFlushKey: there is nothing to flush.
        11 => reader.handle().map(|handle| refused(0, status_of(handles, handle))),
        15 => open_key(reader, handles),
        16 => query_key(reader, handles, directory),
        17 => query_value(reader, handles, directory),
        26 => version(reader, handles),
        _ => return None,
    })
}

fn refused(zeros: usize, status: u32) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes(&vec![0; zeros]);
    out.u32(status);
    out.into_stub()
}

fn open(handles: &mut Handles, key: Option<&'static str>) -> Vec<u8> {
    match key {
        Some(key) => open_answer(handles, Object::Key(key), Win32::NOT_ENOUGH_MEMORY.0),
        None => refused(20, Win32::FILE_NOT_FOUND.0),
    }
}

fn key_of(handles: &Handles, handle: [u8; 20]) -> Option<&'static str> {
    match handles.find(handle) {
        Some(Object::Key(key)) => Some(key),
        _ => None,
    }
}

fn status_of(handles: &Handles, handle: [u8; 20]) -> u32 {
    if key_of(handles, handle).is_some() { 0 } else { INVALID_HANDLE }
}

/// Finds a key by its path, ignoring case: one with values, or one above such.
fn find(path: &str) -> Option<&'static str> {
    let all = VALUES.iter().map(|(key, _, _)| *key).chain(ROOTS);
    all.filter_map(|key| key.get(..path.len()).map(|head| (key, head)))
        .find(|(key, head)| {
            let rest = key.as_bytes().get(path.len());
            head.eq_ignore_ascii_case(path) && matches!(rest, None | Some(b'\\'))
        })
        .map(|(_, head)| head)
}

/// The names of the keys in a key.
fn keys_in(key: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> = VALUES
        .iter()
        .filter_map(|(path, _, _)| path.strip_prefix(key)?.strip_prefix('\\')?.split('\\').next())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn values_in(key: &str) -> Vec<(&'static str, Data)> {
    VALUES.iter().filter(|(path, _, _)| *path == key).map(|(_, name, data)| (*name, *data)).collect()
}

impl Data {
    const fn kind(self) -> u32 {
        match self {
            Self::Text(_) | Self::ComputerName => TEXT,
            Self::Number(_) => NUMBER,
        }
    }

    fn bytes(self, directory: &dyn Directory) -> Vec<u8> {
        let wide = |text: &str| text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        match self {
            Self::Text(text) => wide(text),
            Self::ComputerName => wide(&directory.server().name),
            Self::Number(number) => number.to_le_bytes().to_vec(),
        }
    }
}

/// BaseRegOpenKey (MS-RRP 3.1.5.15).
fn open_key(reader: &mut Reader<'_>, handles: &mut Handles) -> Result<Vec<u8>, BadStub> {
    let handle = reader.handle()?;
    let name = reader.unicode_string()?;
    let Some(key) = key_of(handles, handle) else { return Ok(refused(20, INVALID_HANDLE)) };
    let name = name.trim_matches('\\');
    let path = if name.is_empty() { key.to_owned() } else { format!("{key}\\{name}") };
    Ok(open(handles, find(&path)))
}

/// Skips a client's buffer for a name: its fixed part, and its content.
fn skip_buffer(reader: &mut Reader<'_>) -> Result<(), BadStub> {
    reader.u32()?;
    if reader.pointer()? {
        reader.units()?;
    }
    Ok(())
}

/// RRP_UNICODE_STRING with its zero counted (MS-RRP 2.2.4).
fn name_with_zero(out: &mut Writer, name: &str) {
    let text = format!("{name}\0");
    out.unicode_string(&text);
    out.unicode_string_target(&text);
}

/// BaseRegEnumKey (MS-RRP 3.1.5.10).
fn enumerate_key(reader: &mut Reader<'_>, handles: &Handles) -> Result<Vec<u8>, BadStub> {
    let handle = reader.handle()?;
    let index = reader.u32()? as usize;
    skip_buffer(reader)?;
    let has_class = reader.pointer()?;
    if has_class {
        skip_buffer(reader)?;
    }
    let has_time = reader.pointer()?;
    let found = key_of(handles, handle).map(|key| keys_in(key).get(index).copied());
    let (name, status) = match found {
        None => ("", INVALID_HANDLE),
        Some(None) => ("", NO_MORE_ITEMS),
        Some(Some(name)) => (name, 0),
    };
    let mut out = Writer::default();
    name_with_zero(&mut out, name);
    out.pointer_if(has_class);
    if has_class {
        name_with_zero(&mut out, "");
    }
    out.pointer_if(has_time);
    if has_time {
        out.u32(0);
        out.u32(0);
    }
    out.u32(status);
    Ok(out.into_stub())
}

/// A client's request for a value's data: whether it wants the type, how much data it can take, and its two lengths.
struct Wanted {
    kind: bool,
    room: Option<usize>,
    size: Option<u32>,
    length: bool,
}

impl Wanted {
    fn read(reader: &mut Reader<'_>) -> Result<Self, BadStub> {
        let kind = reader.pointer()?;
        if kind {
            reader.u32()?;
        }
        let room = if reader.pointer()? {
            let (max, offset, len) = (reader.u32()? as usize, reader.u32()?, reader.u32()? as usize);
            if max > DATA_BYTES_MAX || len > max || offset != 0 {
                return Err(BadStub);
            }
            reader.bytes(len)?;
            Some(max)
        } else {
            None
        };
        let size = if reader.pointer()? { Some(reader.u32()?) } else { None };
        let length = reader.pointer()?;
        Ok(Self { kind, room, size, length })
    }

    /// Writes type, data and lengths, and answers the status.
    fn write(&self, out: &mut Writer, found: Option<(u32, Vec<u8>)>, missing: u32) -> u32 {
        let (kind, data) = found.clone().unwrap_or_default();
        let room = self.size.map_or(0, |size| size as usize).min(self.room.unwrap_or(0));
        let fits = data.len() <= room;
        out.pointer_if(self.kind);
        if self.kind {
            out.u32(kind);
        }
        out.pointer_if(self.room.is_some());
        if self.room.is_some() {
            let shown: &[u8] = if fits { &data } else { &[] };
            // As long as the size beside it.
            out.count(data.len());
            out.u32(0);
            out.count(shown.len());
            out.bytes(shown);
        }
        out.pointer_if(self.size.is_some());
        if self.size.is_some() {
            out.count(data.len());
        }
        out.pointer_if(self.length);
        if self.length {
            out.count(if fits || self.room.is_none() { data.len() } else { 0 });
        }
        match found {
            None => missing,
            Some(_) if self.room.is_some() && !fits => Win32::MORE_DATA.0,
            Some(_) => 0,
        }
    }
}

/// BaseRegEnumValue (MS-RRP 3.1.5.11).
fn enumerate_value(
    reader: &mut Reader<'_>,
    handles: &Handles,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    let handle = reader.handle()?;
    let index = reader.u32()? as usize;
    skip_buffer(reader)?;
    let wanted = Wanted::read(reader)?;
    let key = key_of(handles, handle);
    let found = key.and_then(|key| values_in(key).get(index).copied());
    let mut out = Writer::default();
    name_with_zero(&mut out, found.map_or("", |(name, _)| name));
    let missing = if key.is_some() { NO_MORE_ITEMS } else { INVALID_HANDLE };
    let data = found.map(|(_, data)| (data.kind(), data.bytes(directory)));
    let status = wanted.write(&mut out, data, missing);
    out.u32(status);
    Ok(out.into_stub())
}

/// BaseRegQueryValue (MS-RRP 3.1.5.17).
fn query_value(
    reader: &mut Reader<'_>,
    handles: &Handles,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    let handle = reader.handle()?;
    let name = reader.unicode_string()?;
    let wanted = Wanted::read(reader)?;
    let key = key_of(handles, handle);
    let values = key.map(values_in).unwrap_or_default();
    let found = values.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name));
    let missing = if key.is_some() { Win32::FILE_NOT_FOUND.0 } else { INVALID_HANDLE };
    let mut out = Writer::default();
    let data = found.map(|(_, data)| (data.kind(), data.bytes(directory)));
    let status = wanted.write(&mut out, data, missing);
    out.u32(status);
    Ok(out.into_stub())
}

/// BaseRegQueryInfoKey (MS-RRP 3.1.5.16).
fn query_key(
    reader: &mut Reader<'_>,
    handles: &Handles,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    let handle = reader.handle()?;
    skip_buffer(reader)?;
    let key = key_of(handles, handle);
    let (keys, values) = (key.map(keys_in).unwrap_or_default(), key.map(values_in).unwrap_or_default());
    let bytes = |name: &str| 2 * name.len();
    let mut out = Writer::default();
    name_with_zero(&mut out, "");
    out.count(keys.len());
    out.count(keys.iter().map(|name| bytes(name)).max().unwrap_or(0));
    // No classes.
    out.u32(0);
    out.count(values.len());
    out.count(values.iter().map(|(name, _)| bytes(name)).max().unwrap_or(0));
    out.count(values.iter().map(|(_, data)| data.bytes(directory).len()).max().unwrap_or(0));
    // No security descriptor, and no time of a change.
    [0; 3].into_iter().for_each(|zero| out.u32(zero));
    out.u32(status_of(handles, handle));
    Ok(out.into_stub())
}

/// BaseRegGetVersion (MS-RRP 3.1.5.24).
fn version(reader: &mut Reader<'_>, handles: &Handles) -> Result<Vec<u8>, BadStub> {
    let status = status_of(handles, reader.handle()?);
    let mut out = Writer::default();
    out.u32(if status == 0 { VERSION } else { 0 });
    out.u32(status);
    Ok(out.into_stub())
}
