//! NDR transfer syntax 2.0, little-endian (C706 chapter 14): only what the interfaces here use.

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
}

impl<'a> Reader<'a> {
    pub(super) fn new(stub: &'a [u8]) -> Self {
        Self { stub, at: 0 }
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
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, BadStub> {
        self.align(4);
        self.array().map(u32::from_le_bytes)
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
        Ok(units.iter().map(|unit| u16::from_le_bytes(*unit)).collect())
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
        let bytes = self.bytes(8 + 4 * count)?;
        if bytes.get(1).map(|&c| usize::from(c)) != Some(count) {
            return Err(BadStub);
        }
        Sid::parse(bytes).map_err(|_| BadStub)
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
        self.count(sid.sub_authorities().len());
        sid.write_to(&mut self.stub);
    }
}
