//! epmapper (C706 appendix O, MS-RPCE 2.2.1.2): on which pipe an interface is. Interfaces are on pipes alone.

use super::interface::{Interface, PIPES};
use super::ndr::{BadStub, Reader, Writer};

/// ept_s_not_registered
const NOT_REGISTERED: u32 = 0x16C9_A0D6;
/// Longest tower of a client in bytes: five floors of an address take some 80.
const TOWER_BYTES_MAX: usize = 2048;
/// Most entries of one answer.
const ENTRIES_MAX: u32 = 32;

/// Identifiers of protocols in towers (C706 appendix I).
mod protocol {
    pub(super) const UUID: u8 = 0x0D;
    pub(super) const CONNECTION_ORIENTED: u8 = 0x0B;
    pub(super) const NAMED_PIPE: u8 = 0x0F;
    pub(super) const NETBIOS: u8 = 0x11;
}

/// Answers one operation; `None` if it is not known. `server`: its name.
pub(super) fn call(
    operation: u16,
    reader: &mut Reader<'_>,
    server: &str,
) -> Option<Result<Vec<u8>, BadStub>> {
    Some(match operation {
        2 => lookup(reader, server),
        3 => map(reader, server),
        // ept_lookup_handle_free: handles are places in a list, and hold nothing.
        4 => Ok([0; 24].to_vec()),
        _ => return None,
    })
}

/// All interfaces with the first pipe that each is on.
fn registered() -> Vec<(Interface, &'static str)> {
    let all = PIPES.iter().flat_map(|(pipe, served)| served.iter().map(move |interface| (*interface, *pipe)));
    let mut found: Vec<(Interface, &str)> = Vec::new();
    for (interface, pipe) in all {
        if !found.iter().any(|(known, _)| *known == interface) {
            found.push((interface, pipe));
        }
    }
    found
}

/// The tower of an interface on a pipe: interface, NDR, connections, pipe and host.
fn tower(interface: Interface, pipe: &str, server: &str) -> Vec<u8> {
    let mut out = 5_u16.to_le_bytes().to_vec();
    let mut floor = |left: &[u8], right: &[u8]| {
        out.extend_from_slice(&(left.len() as u16).to_le_bytes());
        out.extend_from_slice(left);
        out.extend_from_slice(&(right.len() as u16).to_le_bytes());
        out.extend_from_slice(right);
    };
    for syntax in [interface.syntax(), super::pdu::NDR] {
        let [major, minor] = [syntax.version as u16, (syntax.version >> 16) as u16];
        let left = [&[protocol::UUID][..], &syntax.uuid, &major.to_le_bytes()].concat();
        floor(&left, &minor.to_le_bytes());
    }
    floor(&[protocol::CONNECTION_ORIENTED], &[0, 0]);
    floor(&[protocol::NAMED_PIPE], format!("\\pipe\\{pipe}\0").as_bytes());
    floor(&[protocol::NETBIOS], format!("\\\\{server}\0").as_bytes());
    out
}

/// twr_t as a pointer's target.
fn write_tower(out: &mut Writer, tower: &[u8]) {
    out.count(tower.len());
    out.byte_array(tower);
    out.u32_alignment();
}

/// The left side of a floor of a tower.
fn floor(tower: &[u8], wanted: usize) -> Option<&[u8]> {
    let mut at = 2;
    for number in 0..=wanted {
        let part = |at: usize| {
            let len = u16::from_le_bytes(*tower.get(at..)?.first_chunk()?);
            tower.get(at + 2..at + 2 + usize::from(len))
        };
        let left = part(at)?;
        if number == wanted {
            return Some(left);
        }
        at += 2 + left.len();
        at += 2 + part(at)?.len();
    }
    None
}

fn skip_uuid_pointer(reader: &mut Reader<'_>) -> Result<(), BadStub> {
    if reader.pointer()? {
        reader.bytes(16)?;
    }
    Ok(())
}

/// ept_map (C706 appendix O): the pipe of an interface, if the client asks for pipes.
fn map(reader: &mut Reader<'_>, server: &str) -> Result<Vec<u8>, BadStub> {
    skip_uuid_pointer(reader)?;
    let mut asked: &[u8] = &[];
    if reader.pointer()? {
        let len = reader.u32()? as usize;
        if len > TOWER_BYTES_MAX || reader.u32()? as usize != len {
            return Err(BadStub);
        }
        asked = reader.bytes(len)?;
    }
    reader.handle()?;
    let towers_max = reader.u32()?;
    let wants_pipe = floor(asked, 3).is_some_and(|left| left.first() == Some(&protocol::NAMED_PIPE));
    let interface = floor(asked, 0).and_then(|left| left.get(1..17));
    let found = registered().into_iter().find(|(known, _)| Some(&known.syntax().uuid[..]) == interface);
    let found = found.filter(|_| wants_pipe && towers_max > 0);
    let mut out = Writer::default();
    out.bytes(&[0; 20]);
    let count = u32::from(found.is_some());
    for value in [count, towers_max.min(ENTRIES_MAX), 0, count] {
        out.u32(value);
    }
    if let Some((interface, pipe)) = found {
        out.pointer();
        write_tower(&mut out, &tower(interface, pipe, server));
    }
    out.u32(if count > 0 { 0 } else { NOT_REGISTERED });
    Ok(out.into_stub())
}

/// ept_lookup (C706 appendix O): all interfaces; a client continues by a handle, which is a place in
/// the list. As in Windows, an answer with fewer entries than were asked for is the last one and says
/// so; after a full one the client has to ask once more, so it gets a handle even if nothing is left:
/// with none it would begin anew.
fn lookup(reader: &mut Reader<'_>, server: &str) -> Result<Vec<u8>, BadStub> {
    // The interface that the client asks for is ignored: the answer has all of them, and clients search
    // for theirs.
    reader.u32()?;
    skip_uuid_pointer(reader)?;
    if reader.pointer()? {
        reader.bytes(20)?;
    }
    reader.u32()?;
    let handle = reader.handle()?;
    let entries_max = reader.u32()?.min(ENTRIES_MAX) as usize;
    let from = usize::from(handle[4]);
    let all = registered();
    let rest = all.get(from..).unwrap_or_default();
    let shown = rest.get(..entries_max.min(rest.len())).unwrap_or_default();
    let is_last = shown.len() < entries_max || entries_max == 0;
    let next = if is_last { 0 } else { from + shown.len() };
    let mut out = Writer::default();
    let mut handle = [0; 20];
    handle[4] = next as u8;
    out.bytes(&handle);
    let count = shown.len() as u32;
    for value in [count, entries_max as u32, 0, count] {
        out.u32(value);
    }
    for _ in shown {
        // No object; a pointer to the tower; no annotation but the zero at its end.
        out.bytes(&[0; 16]);
        out.pointer();
        out.u32(0);
        out.u32(1);
        out.bytes(&[0]);
        out.u32_alignment();
    }
    for (interface, pipe) in shown {
        write_tower(&mut out, &tower(*interface, pipe, server));
    }
    out.u32(if is_last { NOT_REGISTERED } else { 0 });
    Ok(out.into_stub())
}
