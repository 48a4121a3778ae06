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
const OBJECT: u8 = 0x80;

pub(super) mod fault {
    /// nca_s_op_rng_error
    pub(in crate::rpc) const OPERATION_RANGE: u32 = 0x1C01_0002;
    /// nca_s_unk_if
    pub(in crate::rpc) const UNKNOWN_INTERFACE: u32 = 0x1C01_0003;
    /// RPC_X_BAD_STUB_DATA
    pub(in crate::rpc) const BAD_STUB: u32 = 0x0000_06F7;
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
const NDR: Syntax = Syntax {
    uuid: [4, 0x5D, 0x88, 0x8A, 0xEB, 0x1C, 0xC9, 0x11, 0x9F, 0xE8, 8, 0, 0x2B, 0x10, 0x48, 0x60],
    version: 2,
};
/// 6cb71c2c-9812-4540 and a bitmap: bind-time feature negotiation (MS-RPCE 2.2.2.14).
const FEATURE_NEGOTIATION: [u8; 8] = [0x2C, 0x1C, 0xB7, 0x6C, 0x12, 0x98, 0x40, 0x45];

/// Bytes that are no PDU that can be answered: the pipe is of no further use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadPdu;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) flags: u8,
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
    pub(in crate::rpc) const CANCEL: u8 = 18;
    pub(in crate::rpc) const ORPHANED: u8 = 19;
}

/// A field that is a fixed number of bytes, at a fixed place.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], BadPdu> {
    bytes.get(at..).and_then(|tail| tail.first_chunk()).copied().ok_or(BadPdu)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, BadPdu> {
    field(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, BadPdu> {
    field(bytes, at).map(u32::from_le_bytes)
}

impl Header {
    /// Reads the header at the front; `None` if it has not come whole.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, BadPdu> {
        let Some(header) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
        let [5, 0 | 1, kind, flags, representation, ..] = *header else { return Err(BadPdu) };
        let fragment_len = usize::from(u16_at(header, 8)?);
        // Integers little-endian, characters ASCII: nothing else is met in the field.
        if representation != 0x10 || fragment_len < HEADER_BYTES {
            return Err(BadPdu);
        }
        Ok(Some(Self {
            kind,
            flags,
            fragment_len,
            auth_len: u16_at(header, 10)?,
            call_id: u32_at(header, 12)?,
        }))
    }

    fn write(kind: u8, flags: u8, call_id: u32, body: &[u8]) -> Vec<u8> {
        let len = HEADER_BYTES + body.len();
        let mut out = Vec::with_capacity(len);
        out.extend_from_slice(&[5, 0, kind, flags, 0x10, 0, 0, 0]);
        out.extend_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&call_id.to_le_bytes());
        out.extend_from_slice(body);
        out
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

/// What becomes of one proposed context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContextResult {
    Accepted,
    UnknownInterface,
    UnknownTransferSyntax,
    /// No optional feature is spoken.
    FeaturesNone,
}

impl Bind {
    pub(super) fn parse(pdu: &[u8]) -> Result<Self, BadPdu> {
        let receive_len = u16_at(pdu, 18)?.max(FRAGMENT_BYTES_MIN);
        let [count] = field(pdu, 24)?;
        if usize::from(count) > CONTEXTS_MAX {
            return Err(BadPdu);
        }
        let mut at = 28;
        let syntax = |at: usize| -> Result<Syntax, BadPdu> {
            Ok(Syntax { uuid: field(pdu, at)?, version: u32_at(pdu, at + 16)? })
        };
        let mut contexts = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let id = u16_at(pdu, at)?;
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

/// BIND_ACK or ALTER_CONTEXT_RESPONSE.
pub(super) fn bind_ack(
    answered: u8,
    call_id: u32,
    fragment_len: u16,
    pipe: &str,
    results: &[ContextResult],
) -> Vec<u8> {
    let is_bind = answered == kind::BIND;
    let mut body = Vec::new();
    body.extend_from_slice(&fragment_len.to_le_bytes());
    body.extend_from_slice(&fragment_len.to_le_bytes());
    // One association group for all: handles are per pipe.
    body.extend_from_slice(&0x5343_4E45_u32.to_le_bytes());
    let address = if is_bind { format!("\\PIPE\\{pipe}\0") } else { String::new() };
    body.extend_from_slice(&(address.len() as u16).to_le_bytes());
    body.extend_from_slice(address.as_bytes());
    body.resize(body.len().next_multiple_of(4), 0);
    body.extend_from_slice(&[results.len() as u8, 0, 0, 0]);
    for result in results {
        let (code, reason, syntax) = match result {
            ContextResult::Accepted => (0_u16, 0_u16, Some(NDR)),
            ContextResult::UnknownInterface => (2, 1, None),
            ContextResult::UnknownTransferSyntax => (2, 2, None),
            ContextResult::FeaturesNone => (3, 0, None),
        };
        body.extend_from_slice(&code.to_le_bytes());
        body.extend_from_slice(&reason.to_le_bytes());
        let Syntax { uuid, version } = syntax.unwrap_or(Syntax { uuid: [0; 16], version: 0 });
        body.extend_from_slice(&uuid);
        body.extend_from_slice(&version.to_le_bytes());
    }
    let kind = if is_bind { kind::BIND_ACK } else { kind::ALTER_CONTEXT_RESPONSE };
    Header::write(kind, FIRST_FRAGMENT | LAST_FRAGMENT, call_id, &body)
}

/// BIND_NAK: the authentication type is not recognised (MS-RPCE 2.2.2.5).
pub(super) fn bind_nak(call_id: u32) -> Vec<u8> {
    Header::write(kind::BIND_NAK, FIRST_FRAGMENT | LAST_FRAGMENT, call_id, &[8, 0, 1, 5, 0])
}

pub(super) fn fault(call_id: u32, context_id: u16, status: u32) -> Vec<u8> {
    let mut body = vec![0; 16];
    body[4..6].copy_from_slice(&context_id.to_le_bytes());
    body[8..12].copy_from_slice(&status.to_le_bytes());
    Header::write(kind::FAULT, FIRST_FRAGMENT | LAST_FRAGMENT, call_id, &body)
}

/// One REQUEST fragment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) context_id: u16,
    pub(super) operation: u16,
    pub(super) stub: &'a [u8],
}

impl<'a> Request<'a> {
    pub(super) fn parse(header: &Header, pdu: &'a [u8]) -> Result<Self, BadPdu> {
        let stub_at = if header.flags & OBJECT == 0 { 24 } else { 40 };
        Ok(Self {
            context_id: u16_at(pdu, 20)?,
            operation: u16_at(pdu, 22)?,
            stub: pdu.get(stub_at..).ok_or(BadPdu)?,
        })
    }
}

/// A stub as RESPONSE fragments of at most `fragment_len` bytes each.
pub(super) fn responses(call_id: u32, context_id: u16, stub: &[u8], fragment_len: u16) -> Vec<Vec<u8>> {
    let room = usize::from(fragment_len).saturating_sub(RESPONSE_HEADER_BYTES).max(8) & !7;
    let count = stub.len().div_ceil(room).max(1);
    (0..count)
        .map(|i| {
            let part = &stub[i * room..((i + 1) * room).min(stub.len())];
            let mut body = Vec::with_capacity(8 + part.len());
            body.extend_from_slice(&((stub.len() - i * room) as u32).to_le_bytes());
            body.extend_from_slice(&context_id.to_le_bytes());
            body.extend_from_slice(&[0, 0]);
            body.extend_from_slice(part);
            let first = if i == 0 { FIRST_FRAGMENT } else { 0 };
            let last = if i + 1 == count { LAST_FRAGMENT } else { 0 };
            Header::write(kind::RESPONSE, first | last, call_id, &body)
        })
        .collect()
}
