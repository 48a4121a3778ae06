//! NDR transfer syntax 2.0 (C706 chapter 14): only what the interfaces here use. Read in the order of the client, written little-endian.

use super::pdu::Order;
use types::Sid;

/// The stub is not what the operation takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadStub;

/// Most UTF-16 units of one string in a request.
const STRING_UNITS_MAX: usize = 32 << 10;

/// Reads a request's stub.
pub(super) struct Reader<'a> {
    stub: &'a [u8],
    at: usize,
    order: Order,
}

impl<'a> Reader<'a> {
    pub(super) fn new(stub: &'a [u8], order: Order) -> Self {
        Self { stub, at: 0, order }
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], BadStub> {
        let end = self.at.checked_add(len).ok_or(BadStub)?;
        let bytes = self.stub.get(self.at..end).ok_or(BadStub)?;
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadStub> {
        self.bytes(N)?.try_into().map_err(|_| BadStub)
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    pub(super) fn u16(&mut self) -> Result<u16, BadStub> {
        self.align(2);
        Ok(self.order.u16(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, BadStub> {
        self.align(4);
        Ok(self.order.u32(self.array()?))
    }

    /// A pointer: whether something follows it.
    pub(super) fn pointer(&mut self) -> Result<bool, BadStub> {
        Ok(self.u32()? != 0)
    }

    /// The content of a conformant and varying array of UTF-16 units.
    pub(super) fn units(&mut self) -> Result<Vec<u16>, BadStub> {
        let max = self.u32()? as usize;
        let offset = self.u32()?;
        let count = self.u32()? as usize;
        if offset != 0 || count > max || count > STRING_UNITS_MAX {
            return Err(BadStub);
        }
        let (units, _) = self.bytes(2 * count)?.as_chunks::<2>();
        Ok(units.iter().map(|unit| self.order.u16(*unit)).collect())
    }

    /// The content of an array of this many RPC_UNICODE_STRINGs (MS-DTYP 2.3.10). The caller bounds their count.
    pub(super) fn unicode_strings(&mut self, count: usize) -> Result<Vec<String>, BadStub> {
        let mut present = Vec::with_capacity(count);
        for _ in 0..count {
            // Lengths, which the content says again.
            self.u32()?;
            present.push(self.pointer()?);
        }
        let mut strings = Vec::with_capacity(count);
        for is_present in present {
            let units = if is_present { self.units()? } else { Vec::new() };
            strings.push(String::from_utf16_lossy(&units));
        }
        Ok(strings)
    }

    /// A zero-terminated wide string.
    pub(super) fn string(&mut self) -> Result<String, BadStub> {
        let mut units = self.units()?;
        if units.pop() != Some(0) {
            return Err(BadStub);
        }
        String::from_utf16(&units).map_err(|_| BadStub)
    }

    /// A pointer to a zero-terminated wide string.
    pub(super) fn optional_string(&mut self) -> Result<Option<String>, BadStub> {
        if self.pointer()? { self.string().map(Some) } else { Ok(None) }
    }

    /// RPC_SID (MS-DTYP 2.4.2.3).
    pub(super) fn sid(&mut self) -> Result<Sid, BadStub> {
        let count = self.u32()? as usize;
        if count > Sid::SUB_AUTHORITIES_MAX {
            return Err(BadStub);
        }
        let [revision, counted, authority @ ..] = self.array::<8>()?;
        if revision != 1 || usize::from(counted) != count {
            return Err(BadStub);
        }
        let authority = authority.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
        let sub_authorities = (0..count).map(|_| self.u32()).collect::<Result<Vec<_>, _>>()?;
        Sid::new(authority, &sub_authorities).map_err(|_| BadStub)
    }

    /// A context handle (C706 14.2.15, ndr_context_handle): attributes and a UUID, as a little-endian client has it.
    pub(super) fn handle(&mut self) -> Result<[u8; 20], BadStub> {
        let attributes = self.u32()?.to_le_bytes();
        let uuid = self.order.uuid(self.array()?);
        let mut handle = [0; 20];
        handle[..4].copy_from_slice(&attributes);
        handle[4..].copy_from_slice(&uuid);
        Ok(handle)
    }

    /// RPC_UNICODE_STRING with its target behind it (MS-DTYP 2.3.10), as it lies at the top of a request; empty if it has none.
    pub(super) fn unicode_string(&mut self) -> Result<String, BadStub> {
        self.u32()?;
        let units = if self.pointer()? { self.units()? } else { Vec::new() };
        // Some clients count the zero at its end.
        let text = units.strip_suffix(&[0]).unwrap_or(&units);
        String::from_utf16(text).map_err(|_| BadStub)
    }
}

/// Writes a response's stub. Pointees of embedded pointers are written by the caller after the structure they belong to.
#[derive(Default)]
pub(super) struct Writer {
    stub: Vec<u8>,
    referents: u32,
}

impl Writer {
    pub(super) fn into_stub(self) -> Vec<u8> {
        self.stub
    }

    pub(super) fn len(&self) -> usize {
        self.stub.len()
    }

    fn align(&mut self, to: usize) {
        self.stub.resize(self.stub.len().next_multiple_of(to), 0);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.stub.extend_from_slice(bytes);
    }

    /// Bytes as a conformant array.
    pub(super) fn byte_array(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes(bytes);
    }

    /// Moves on to a place that may hold a number of four bytes.
    pub(super) fn u32_alignment(&mut self) {
        self.align(4);
    }

    /// Moves on to a place that may hold a number of eight bytes.
    pub(super) fn u64_alignment(&mut self) {
        self.align(8);
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.align(8);
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.align(2);
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.align(4);
        self.bytes(&value.to_le_bytes());
    }

    /// A count of things in memory.
    pub(super) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// A pointer to something.
    pub(super) fn pointer(&mut self) {
        self.referents += 1;
        let referent = 0x0002_0000 + 4 * self.referents;
        self.u32(referent);
    }

    pub(super) fn null(&mut self) {
        self.u32(0);
    }

    /// A pointer, null if there is nothing.
    pub(super) fn pointer_if(&mut self, is_there: bool) {
        if is_there { self.pointer() } else { self.null() }
    }

    /// A zero-terminated wide string, as a pointer's target.
    pub(super) fn string(&mut self, text: &str) {
        let units: Vec<u16> = text.encode_utf16().chain([0]).collect();
        self.units(&units);
    }

    fn units(&mut self, units: &[u16]) {
        self.count(units.len());
        self.u32(0);
        self.count(units.len());
        units.iter().for_each(|unit| self.u16(*unit));
    }

    /// The fixed part of RPC_UNICODE_STRING (MS-DTYP 2.3.10); [`Self::unicode_string_target`] follows later.
    pub(super) fn unicode_string(&mut self, text: &str) {
        let bytes = u16::try_from(2 * text.encode_utf16().count()).unwrap_or(u16::MAX - 1);
        self.align(4);
        self.u16(bytes);
        self.u16(bytes);
        self.pointer();
    }

    pub(super) fn unicode_string_target(&mut self, text: &str) {
        let units: Vec<u16> = text.encode_utf16().take(usize::from(u16::MAX / 2)).collect();
        self.units(&units);
    }

    /// RPC_SID, as a pointer's target.
    pub(super) fn sid(&mut self, sid: &Sid) {
        // Within RPC_SID nothing is longer than four bytes, but what stands before may have ended anywhere.
        self.align(4);
        self.count(sid.sub_authorities().len());
        sid.write_to(&mut self.stub);
    }
}
