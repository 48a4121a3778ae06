//! PDUs of connection-oriented DCE/RPC (C706 chapter 12, MS-RPCE 2.2.2).

/// Bytes of the common header.
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes before the stub of a response.
pub(super) const RESPONSE_HEADER_BYTES: usize = 24;
/// Fragment size in bytes that every client understands.
pub(super) const FRAGMENT_BYTES: u16 = 4280;
/// Smallest fragment that a peer must take (C706 12.6.3.7).
const FRAGMENT_BYTES_MIN: u16 = 1432;
/// Most presentation contexts in one bind.
const CONTEXTS_MAX: usize = 32;

pub(super) const FIRST_FRAGMENT: u8 = 1;
pub(super) const LAST_FRAGMENT: u8 = 2;
/// PFC_SUPPORT_HEADER_SIGN, in BIND and its answers (MS-RPCE 2.2.2.3).
pub(super) const HEADER_SIGNING: u8 = 4;
const OBJECT: u8 = 0x80;
/// Bytes of a security trailer (MS-RPCE 2.2.2.11).
pub(super) const TRAILER_BYTES: usize = 8;

pub(super) mod fault {
    /// nca_s_op_rng_error
    pub(in crate::rpc) const OPERATION_RANGE: u32 = 0x1C01_0002;
    /// nca_s_unk_if
    pub(in crate::rpc) const UNKNOWN_INTERFACE: u32 = 0x1C01_0003;
    /// RPC_X_BAD_STUB_DATA
    pub(in crate::rpc) const BAD_STUB: u32 = 0x0000_06F7;
    /// nca_s_fault_context_mismatch
    pub(in crate::rpc) const CONTEXT_MISMATCH: u32 = 0x1C00_001A;
    /// ERROR_ACCESS_DENIED: a logon in the pipe was refused, or a message is not what its signature says.
    pub(in crate::rpc) const ACCESS_DENIED: u32 = 5;
    /// nca_s_fault_remote_no_memory
    pub(in crate::rpc) const NO_MEMORY: u32 = 0x1C00_001B;
}

/// An interface or transfer syntax: UUID as it lies on the wire, and version (major in the low half).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Syntax {
    pub(super) uuid: [u8; 16],
    pub(super) version: u32,
}

/// 8a885d04-1ceb-11c9-9fe8-08002b104860 2.0
pub(super) const NDR: Syntax = Syntax {
    uuid: [4, 0x5D, 0x88, 0x8A, 0xEB, 0x1C, 0xC9, 0x11, 0x9F, 0xE8, 8, 0, 0x2B, 0x10, 0x48, 0x60],
    version: 2,
};
/// 6cb71c2c-9812-4540 and a bitmap: bind-time feature negotiation (MS-RPCE 2.2.2.14).
const FEATURE_NEGOTIATION: [u8; 8] = [0x2C, 0x1C, 0xB7, 0x6C, 0x12, 0x98, 0x40, 0x45];

/// Bytes that are no PDU that can be answered: the pipe is of no further use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadPdu;

/// The order of a peer's integers (C706 14.1): each side writes in its own, and reads in the other's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// A UUID as it lies on the wire of a little-endian peer: its first three fields are integers.
    pub(super) fn uuid(self, mut bytes: [u8; 16]) -> [u8; 16] {
        if self == Self::Big {
            bytes[..4].reverse();
            bytes[4..6].reverse();
            bytes[6..8].reverse();
        }
        bytes
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) order: Order,
    pub(super) fragment_len: usize,
    pub(super) auth_len: u16,
    pub(super) call_id: u32,
}

pub(super) mod kind {
    pub(in crate::rpc) const REQUEST: u8 = 0;
    pub(in crate::rpc) const RESPONSE: u8 = 2;
    pub(in crate::rpc) const FAULT: u8 = 3;
    pub(in crate::rpc) const BIND: u8 = 11;
    pub(in crate::rpc) const BIND_ACK: u8 = 12;
    pub(in crate::rpc) const BIND_NAK: u8 = 13;
    pub(in crate::rpc) const ALTER_CONTEXT: u8 = 14;
    pub(in crate::rpc) const ALTER_CONTEXT_RESPONSE: u8 = 15;
    pub(in crate::rpc) const AUTH3: u8 = 16;
    pub(in crate::rpc) const CANCEL: u8 = 18;
    pub(in crate::rpc) const ORPHANED: u8 = 19;
}

/// A field that is a fixed number of bytes, at a fixed place.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], BadPdu> {
    bytes.get(at..).and_then(|tail| tail.first_chunk()).copied().ok_or(BadPdu)
}

fn u16_at(order: Order, bytes: &[u8], at: usize) -> Result<u16, BadPdu> {
    field(bytes, at).map(|bytes| order.u16(bytes))
}

fn u32_at(order: Order, bytes: &[u8], at: usize) -> Result<u32, BadPdu> {
    field(bytes, at).map(|bytes| order.u32(bytes))
}

impl Header {
    /// Reads the header at the front; `None` if it has not come whole.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, BadPdu> {
        let Some(header) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
        let [5, 0 | 1, kind, flags, representation, ..] = *header else { return Err(BadPdu) };
        // Characters are ASCII: EBCDIC is not met in the field.
        let order = match representation {
            0x10 => Order::Little,
            0 => Order::Big,
            _ => return Err(BadPdu),
        };
        let fragment_len = usize::from(u16_at(order, header, 8)?);
        if fragment_len < HEADER_BYTES {
            return Err(BadPdu);
        }
        Ok(Some(Self {
            kind,
            flags,
            order,
            fragment_len,
            auth_len: u16_at(order, header, 10)?,
            call_id: u32_at(order, header, 12)?,
        }))
    }

    /// A PDU whose last `auth_len` bytes are its authentication value.
    fn write(kind: u8, flags: u8, call_id: u32, auth_len: usize, body: &[u8]) -> Vec<u8> {
        let len = HEADER_BYTES + body.len();
        let mut out = Vec::with_capacity(len);
        out.extend_from_slice(&[5, 0, kind, flags, 0x10, 0, 0, 0]);
        out.extend_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&u16::try_from(auth_len).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&call_id.to_le_bytes());
        out.extend_from_slice(body);
        out
    }
}

/// The security trailer of a PDU, and the authentication value behind it (MS-RPCE 2.2.2.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trailer<'a> {
    /// Place of the trailer in its PDU.
    pub(super) at: usize,
    pub(super) kind: u8,
    pub(super) level: u8,
    /// Bytes before it that belong to no stub.
    pub(super) padding: u8,
    pub(super) context_id: u32,
    pub(super) value: &'a [u8],
}

impl<'a> Trailer<'a> {
    /// Reads the trailer that the header announces; `None` if it announces none.
    pub(super) fn parse(header: &Header, pdu: &'a [u8]) -> Result<Option<Self>, BadPdu> {
        let value_len = usize::from(header.auth_len);
        if value_len == 0 {
            return Ok(None);
        }
        let at = pdu.len().checked_sub(value_len + TRAILER_BYTES).filter(|at| *at >= HEADER_BYTES);
        let at = at.ok_or(BadPdu)?;
        let [kind, level, padding, _] = field(pdu, at)?;
        let value = pdu.get(at + TRAILER_BYTES..).ok_or(BadPdu)?;
        Ok(Some(Self { at, kind, level, padding, context_id: u32_at(header.order, pdu, at + 4)?, value }))
    }
}

/// The answer's security trailer, without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Security {
    pub(super) kind: u8,
    pub(super) level: u8,
    pub(super) context_id: u32,
}

impl Security {
    pub(super) fn trailer(self, padding: u8) -> [u8; TRAILER_BYTES] {
        let [a, b, c, d] = self.context_id.to_le_bytes();
        [self.kind, self.level, padding, 0, a, b, c, d]
    }
}

/// BIND or ALTER_CONTEXT.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bind {
    /// Bytes of a fragment that the client takes.
    pub(super) receive_len: u16,
    pub(super) contexts: Vec<Context>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) id: u16,
    pub(super) interface: Syntax,
    transfers: Vec<Syntax>,
}

/// Outcome of one proposed context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContextResult {
    Accepted,
    UnknownInterface,
    UnknownTransferSyntax,
    /// No optional feature is spoken.
    FeaturesNone,
    /// More contexts than one pipe may have.
    TooMany,
}

impl Bind {
    pub(super) fn parse(order: Order, pdu: &[u8]) -> Result<Self, BadPdu> {
        let receive_len = u16_at(order, pdu, 18)?.max(FRAGMENT_BYTES_MIN);
        let [count] = field(pdu, 24)?;
        if usize::from(count) > CONTEXTS_MAX {
            return Err(BadPdu);
        }
        let mut at = 28;
        let syntax = |at: usize| -> Result<Syntax, BadPdu> {
            Ok(Syntax { uuid: order.uuid(field(pdu, at)?), version: u32_at(order, pdu, at + 16)? })
        };
        let mut contexts = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let id = u16_at(order, pdu, at)?;
            let [transfers] = field(pdu, at + 2)?;
            let interface = syntax(at + 4)?;
            at += 24;
            let list = (0..usize::from(transfers)).map(|i| syntax(at + 20 * i)).collect::<Result<_, _>>()?;
            at += 20 * usize::from(transfers);
            contexts.push(Context { id, interface, transfers: list });
        }
        Ok(Self { receive_len, contexts })
    }
}

impl Context {
    pub(super) fn judge(&self, is_known: bool) -> ContextResult {
        if self.transfers.iter().any(|syntax| syntax.uuid.starts_with(&FEATURE_NEGOTIATION)) {
            ContextResult::FeaturesNone
        } else if !is_known {
            ContextResult::UnknownInterface
        } else if self.transfers.contains(&NDR) {
            ContextResult::Accepted
        } else {
            ContextResult::UnknownTransferSyntax
        }
    }
}

/// Content and terms of a BIND_ACK or ALTER_CONTEXT_RESPONSE.
pub(super) struct Bound<'a> {
    pub(super) answered: u8,
    pub(super) call_id: u32,
    /// Whether headers are signed from now on.
    pub(super) signs_headers: bool,
    pub(super) fragment_len: u16,
    pub(super) pipe: &'a str,
    pub(super) results: &'a [ContextResult],
    /// The next token of the logon.
    pub(super) token: Option<(Security, &'a [u8])>,
}

impl Bound<'_> {
    pub(super) fn write(&self) -> Vec<u8> {
        let is_bind = self.answered == kind::BIND;
        let mut body = Vec::new();
        body.extend_from_slice(&self.fragment_len.to_le_bytes());
        body.extend_from_slice(&self.fragment_len.to_le_bytes());
        // One association group for all: handles are per pipe.
        body.extend_from_slice(&0x5343_4E45_u32.to_le_bytes());
        let address = if is_bind { format!("\\PIPE\\{}\0", self.pipe) } else { String::new() };
        body.extend_from_slice(&(address.len() as u16).to_le_bytes());
        body.extend_from_slice(address.as_bytes());
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend_from_slice(&[self.results.len() as u8, 0, 0, 0]);
        for result in self.results {
            let (code, reason, syntax) = match result {
                ContextResult::Accepted => (0_u16, 0_u16, Some(NDR)),
                ContextResult::UnknownInterface => (2, 1, None),
                ContextResult::UnknownTransferSyntax => (2, 2, None),
                ContextResult::TooMany => (2, 3, None),
                ContextResult::FeaturesNone => (3, 0, None),
            };
            body.extend_from_slice(&code.to_le_bytes());
            body.extend_from_slice(&reason.to_le_bytes());
            let Syntax { uuid, version } = syntax.unwrap_or(Syntax { uuid: [0; 16], version: 0 });
            body.extend_from_slice(&uuid);
            body.extend_from_slice(&version.to_le_bytes());
        }
        let mut auth_len = 0;
        if let Some((security, token)) = self.token {
            // The body begins at a multiple of four, and only has such parts.
            body.extend_from_slice(&security.trailer(0));
            body.extend_from_slice(token);
            auth_len = token.len();
        }
        let kind = if is_bind { kind::BIND_ACK } else { kind::ALTER_CONTEXT_RESPONSE };
        let signing = if self.signs_headers { HEADER_SIGNING } else { 0 };
        Header::write(kind, FIRST_FRAGMENT | LAST_FRAGMENT | signing, self.call_id, auth_len, &body)
    }
}

/// BIND_NAK: the authentication type is not recognised (MS-RPCE 2.2.2.5).
pub(super) fn bind_nak(call_id: u32) -> Vec<u8> {
    Header::write(kind::BIND_NAK, FIRST_FRAGMENT | LAST_FRAGMENT, call_id, 0, &[8, 0, 1, 5, 0])
}

pub(super) fn fault(call_id: u32, context_id: u16, status: u32) -> Vec<u8> {
    let mut body = vec![0; 16];
    body[4..6].copy_from_slice(&context_id.to_le_bytes());
    body[8..12].copy_from_slice(&status.to_le_bytes());
    Header::write(kind::FAULT, FIRST_FRAGMENT | LAST_FRAGMENT, call_id, 0, &body)
}

/// One REQUEST fragment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) context_id: u16,
    pub(super) operation: u16,
    /// Place of the stub in the PDU, without its padding and the trailer.
    pub(super) stub_at: usize,
}

impl Request {
    pub(super) fn parse(header: &Header, pdu: &[u8]) -> Result<Self, BadPdu> {
        let stub_at = if header.flags & OBJECT == 0 { 24 } else { 40 };
        if pdu.len() < stub_at {
            return Err(BadPdu);
        }
        Ok(Self {
            context_id: u16_at(header.order, pdu, 20)?,
            operation: u16_at(header.order, pdu, 22)?,
            stub_at,
        })
    }
}

/// Splits a stub into RESPONSE fragments of at most `fragment_len` bytes each. `security`: fragments end with this trailer and space for a
/// signature of this many bytes.
pub(super) fn responses(
    call_id: u32,
    context_id: u16,
    stub: &[u8],
    fragment_len: u16,
    security: Option<(Security, usize)>,
) -> Vec<Vec<u8>> {
    let around = RESPONSE_HEADER_BYTES + security.map_or(0, |(_, len)| TRAILER_BYTES + len);
    // A multiple of 16, so that no fragment but the last needs padding before its trailer.
    let room = usize::from(fragment_len).saturating_sub(around).max(16) & !15;
    let count = stub.len().div_ceil(room).max(1);
    (0..count)
        .map(|i| {
            let part = &stub[i * room..((i + 1) * room).min(stub.len())];
            let mut body = Vec::with_capacity(around + part.len());
            body.extend_from_slice(&((stub.len() - i * room) as u32).to_le_bytes());
            body.extend_from_slice(&context_id.to_le_bytes());
            body.extend_from_slice(&[0, 0]);
            body.extend_from_slice(part);
            let mut auth_len = 0;
            if let Some((security, signature_len)) = security {
                let padding = part.len().next_multiple_of(16) - part.len();
                body.resize(body.len() + padding, 0);
                body.extend_from_slice(&security.trailer(padding as u8));
                body.resize(body.len() + signature_len, 0);
                auth_len = signature_len;
            }
            let first = if i == 0 { FIRST_FRAGMENT } else { 0 };
            let last = if i + 1 == count { LAST_FRAGMENT } else { 0 };
            Header::write(kind::RESPONSE, first | last, call_id, auth_len, &body)
        })
        .collect()
}
