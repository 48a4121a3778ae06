//! One open of a named pipe: bytes in, PDUs out.

use super::lsarpc::Policies;
use super::ndr::BadStub;
use super::pdu::{
    Bind, ContextResult, FIRST_FRAGMENT, FRAGMENT_BYTES, Header, LAST_FRAGMENT, Request, Syntax, bind_ack,
    bind_nak, fault, kind, responses,
};
use super::{Directory, RpcCaller, lsarpc, srvsvc, wkssvc};
use std::collections::VecDeque;
use types::NtStatus;

/// Most bytes of a request's stub, over all its fragments.
const STUB_BYTES_MAX: usize = 256 << 10;
/// Answers in bytes that may wait to be read before writing is refused: the longest one fits, and what a client asks ahead.
const WAITING_BYTES_MAX: usize = 512 << 10;
/// Calls that one write may make, so that no message costs more than these. Clients make one.
const CALLS_PER_WRITE_MAX: usize = 4;
/// Most contexts bound on one pipe.
const BOUND_MAX: usize = 64;

/// Why a pipe does not take bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PipeError {
    #[error("the bytes are no DCE/RPC PDU; the pipe is closed")]
    Protocol,
    #[error("too many answers wait to be read")]
    Full,
}

impl PipeError {
    pub const fn status(self) -> NtStatus {
        match self {
            Self::Protocol => NtStatus::PIPE_DISCONNECTED,
            Self::Full => NtStatus::PIPE_BUSY,
        }
    }
}

/// What a read gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipeRead {
    pub bytes: Vec<u8>,
    /// The message did not fit: its rest comes with the next read (STATUS_BUFFER_OVERFLOW).
    pub is_partial: bool,
}

/// An interface by its pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interface {
    Srvsvc,
    Wkssvc,
    Lsarpc,
}

impl Interface {
    const fn name(self) -> &'static str {
        match self {
            Self::Srvsvc => "srvsvc",
            Self::Wkssvc => "wkssvc",
            Self::Lsarpc => "lsarpc",
        }
    }

    const fn syntax(self) -> Syntax {
        match self {
            // 4b324fc8-1670-01d3-1278-5a47bf6ee188 3.0
            Self::Srvsvc => Syntax {
                uuid: [
                    0xC8, 0x4F, 0x32, 0x4B, 0x70, 0x16, 0xD3, 0x01, 0x12, 0x78, 0x5A, 0x47, 0xBF, 0x6E, 0xE1,
                    0x88,
                ],
                version: 3,
            },
            // 6bffd098-a112-3610-9833-46c3f87e345a 1.0
            Self::Wkssvc => Syntax {
                uuid: [
                    0x98, 0xD0, 0xFF, 0x6B, 0x12, 0xA1, 0x10, 0x36, 0x98, 0x33, 0x46, 0xC3, 0xF8, 0x7E, 0x34,
                    0x5A,
                ],
                version: 1,
            },
            // 12345778-1234-abcd-ef00-0123456789ab 0.0
            Self::Lsarpc => Syntax {
                uuid: [
                    0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xCD, 0xAB, 0xEF, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89,
                    0xAB,
                ],
                version: 0,
            },
        }
    }
}

/// A request whose last fragment has not come.
struct Partial {
    call_id: u32,
    context_id: u16,
    operation: u16,
    stub: Vec<u8>,
}

/// The server's end of one open of a pipe.
pub struct Pipe {
    interface: Interface,
    caller: RpcCaller,
    bound: Vec<u16>,
    fragment_len: u16,
    /// Bytes of a PDU that has not come whole.
    incoming: Vec<u8>,
    partial: Option<Partial>,
    outgoing: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Calls that the write at hand may still make.
    calls_left: usize,
    policies: Policies,
    is_broken: bool,
}

impl Pipe {
    /// Opens the pipe of that name (without `\PIPE\`, any case); `None` if there is none.
    pub fn open(name: &str, caller: RpcCaller) -> Option<Self> {
        let interface = match name.trim_start_matches('\\').to_ascii_lowercase().as_str() {
            "srvsvc" => Interface::Srvsvc,
            "wkssvc" => Interface::Wkssvc,
            "lsarpc" | "lsass" => Interface::Lsarpc,
            _ => return None,
        };
        Some(Self {
            interface,
            caller,
            bound: Vec::new(),
            fragment_len: FRAGMENT_BYTES,
            incoming: Vec::new(),
            partial: None,
            outgoing: VecDeque::new(),
            waiting_bytes: 0,
            calls_left: 0,
            policies: Policies::default(),
            is_broken: false,
        })
    }

    /// The pipe's name, as FILE_NAME_INFORMATION shows it.
    pub fn name(&self) -> &'static str {
        self.interface.name()
    }

    /// Bytes that wait to be read.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Bytes of memory that it keeps: requests that are not whole, answers that wait.
    pub fn held_bytes(&self) -> usize {
        let stub = self.partial.as_ref().map_or(0, |partial| partial.stub.capacity());
        self.incoming.capacity() + stub + self.waiting_bytes
    }

    /// Takes the client's bytes, which may hold several PDUs or a part of one, and works through those that are whole.
    ///
    /// # Errors
    /// [`PipeError`]; after [`PipeError::Protocol`] the pipe stays closed.
    pub fn write(&mut self, bytes: &[u8], directory: &dyn Directory) -> Result<(), PipeError> {
        if self.is_broken {
            return Err(PipeError::Protocol);
        }
        if self.waiting_bytes > WAITING_BYTES_MAX {
            return Err(PipeError::Full);
        }
        let mut buffer = std::mem::take(&mut self.incoming);
        buffer.extend_from_slice(bytes);
        self.calls_left = CALLS_PER_WRITE_MAX;
        let mut at = 0;
        while let Some(pdu) = self.whole_pdu(buffer.get(at..).unwrap_or_default())? {
            if self.waiting_bytes > WAITING_BYTES_MAX {
                return self.break_down();
            }
            at += pdu.len();
            self.dispatch(pdu, directory)?;
        }
        // A part of one PDU is left, at most 64 KiB; not the capacity that a long write needed.
        self.incoming = buffer.get(at..).unwrap_or_default().to_vec();
        Ok(())
    }

    /// The next bytes of the oldest answer, at most `max`; `None` if nothing waits. A read never crosses two PDUs.
    pub fn read(&mut self, max: usize) -> Option<PipeRead> {
        let mut message = self.outgoing.pop_front()?;
        let is_partial = message.len() > max;
        if is_partial {
            let rest = message.split_off(max);
            self.outgoing.push_front(rest);
        }
        self.waiting_bytes -= message.len();
        Some(PipeRead { bytes: message, is_partial })
    }

    /// Writes and reads the answer in one go (FSCTL_PIPE_TRANSCEIVE); `None` if the request is not whole yet.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn transact(
        &mut self,
        bytes: &[u8],
        max: usize,
        directory: &dyn Directory,
    ) -> Result<Option<PipeRead>, PipeError> {
        self.write(bytes, directory)?;
        Ok(self.read(max))
    }

    /// Ends the pipe, which keeps nothing any more.
    pub fn abandon(&mut self) {
        self.is_broken = true;
        (self.incoming, self.partial) = (Vec::new(), None);
        self.outgoing.clear();
        self.waiting_bytes = 0;
    }

    fn break_down<T>(&mut self) -> Result<T, PipeError> {
        self.is_broken = true;
        self.incoming = Vec::new();
        self.partial = None;
        Err(PipeError::Protocol)
    }

    fn header(&mut self, bytes: &[u8]) -> Result<Option<Header>, PipeError> {
        match Header::parse(bytes) {
            Ok(header) => Ok(header),
            Err(_) => self.break_down(),
        }
    }

    /// The PDU at the front, if it is whole.
    fn whole_pdu<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>, PipeError> {
        Ok(self.header(bytes)?.and_then(|header| bytes.get(..header.fragment_len)))
    }

    fn answer(&mut self, pdu: Vec<u8>) {
        self.waiting_bytes += pdu.len();
        self.outgoing.push_back(pdu);
    }

    fn dispatch(&mut self, pdu: &[u8], directory: &dyn Directory) -> Result<(), PipeError> {
        let Some(header) = self.header(pdu)? else { return self.break_down() };
        match header.kind {
            kind::BIND | kind::ALTER_CONTEXT => self.bind(&header, pdu),
            kind::REQUEST => self.request(&header, pdu, directory),
            kind::CANCEL | kind::ORPHANED => {
                self.partial.take_if(|partial| partial.call_id == header.call_id);
                Ok(())
            }
            _ => self.break_down(),
        }
    }

    fn bind(&mut self, header: &Header, pdu: &[u8]) -> Result<(), PipeError> {
        // The pipe is as authentic and as secret as the SMB session below it; nothing is protected twice.
        if header.auth_len != 0 {
            self.answer(bind_nak(header.call_id));
            return Ok(());
        }
        let Ok(bind) = Bind::parse(pdu) else { return self.break_down() };
        if header.kind == kind::BIND {
            self.fragment_len = bind.receive_len.min(FRAGMENT_BYTES);
        }
        let mut results = Vec::with_capacity(bind.contexts.len());
        for context in &bind.contexts {
            let ours = self.interface.syntax();
            // Minor versions are compatible; the major one lies in the low half.
            let is_known = context.interface.uuid == ours.uuid
                && context.interface.version & 0xFFFF == ours.version
                && self.bound.len() < BOUND_MAX;
            let result = context.judge(is_known);
            if result == ContextResult::Accepted && !self.bound.contains(&context.id) {
                self.bound.push(context.id);
            }
            results.push(result);
        }
        self.answer(bind_ack(
            header.kind,
            header.call_id,
            self.fragment_len,
            self.interface.name(),
            &results,
        ));
        Ok(())
    }

    fn request(&mut self, header: &Header, pdu: &[u8], directory: &dyn Directory) -> Result<(), PipeError> {
        let Ok(request) = Request::parse(header, pdu) else { return self.break_down() };
        if header.auth_len != 0 {
            return self.break_down();
        }
        let mut partial = match self.partial.take() {
            Some(partial) if header.flags & FIRST_FRAGMENT == 0 && partial.call_id == header.call_id => {
                partial
            }
            None if header.flags & FIRST_FRAGMENT != 0 => Partial {
                call_id: header.call_id,
                context_id: request.context_id,
                operation: request.operation,
                stub: Vec::new(),
            },
            _ => return self.break_down(),
        };
        if partial.stub.len() + request.stub.len() > STUB_BYTES_MAX {
            self.answer(fault(header.call_id, request.context_id, fault::NO_MEMORY));
            return self.break_down();
        }
        partial.stub.extend_from_slice(request.stub);
        if header.flags & LAST_FRAGMENT == 0 {
            self.partial = Some(partial);
            return Ok(());
        }
        if self.calls_left == 0 {
            return self.break_down();
        }
        self.calls_left -= 1;
        let outcome = if self.bound.contains(&partial.context_id) {
            self.call(partial.operation, &partial.stub, directory)
        } else {
            Err(fault::UNKNOWN_INTERFACE)
        };
        match outcome {
            Ok(stub) => responses(partial.call_id, partial.context_id, &stub, self.fragment_len)
                .into_iter()
                .for_each(|pdu| self.answer(pdu)),
            Err(status) => self.answer(fault(partial.call_id, partial.context_id, status)),
        }
        Ok(())
    }

    fn call(&mut self, operation: u16, stub: &[u8], directory: &dyn Directory) -> Result<Vec<u8>, u32> {
        let outcome = match self.interface {
            Interface::Srvsvc => srvsvc::call(operation, stub, &self.caller, directory),
            Interface::Wkssvc => wkssvc::call(operation, stub, directory),
            Interface::Lsarpc => lsarpc::call(operation, stub, &mut self.policies, &self.caller, directory),
        };
        match outcome {
            Some(Ok(stub)) => Ok(stub),
            Some(Err(BadStub)) => Err(fault::BAD_STUB),
            None => Err(fault::OPERATION_RANGE),
        }
    }
}
