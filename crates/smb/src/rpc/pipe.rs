//! One open of a named pipe: bytes in, PDUs out.

use super::handles::Handles;
use super::interface::{self, Interface};
use super::ndr::{BadStub, Reader};
use super::pdu::{
    Bind, Bound, ContextResult, FIRST_FRAGMENT, FRAGMENT_BYTES, HEADER_SIGNING, Header, LAST_FRAGMENT, Order,
    Request, Trailer, bind_nak, fault, kind, responses,
};
use super::protection::{Progress, Protection};
use super::srvsvc::write_file_security;
use super::{Answer, Directory, RpcCaller, RpcChange, RpcDone, RpcRefusal, Win32, dispatch};
use std::collections::VecDeque;
use types::NtStatus;

/// Most bytes of a request's stub, over all its fragments.
const STUB_BYTES_MAX: usize = 256 << 10;
/// Answers in bytes that may wait to be read before writing is refused: the longest one fits, and a
/// client's requests ahead.
const WAITING_BYTES_MAX: usize = 512 << 10;
/// Calls that one write may make, so that no message costs more than these. Clients make one.
const CALLS_PER_WRITE_MAX: usize = 4;
/// Most contexts bound on one pipe.
const BOUND_MAX: usize = 64;
/// Memory in bytes that a logon in a pipe takes: keys, and the messages that it keeps until it is over.
const PROTECTION_BYTES: usize = 4 << 10;

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

/// Result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipeRead {
    pub bytes: Vec<u8>,
    /// The message did not fit: its rest comes with the next read (STATUS_BUFFER_OVERFLOW).
    pub is_partial: bool,
}

/// A request whose last fragment has not come.
struct Partial {
    call_id: u32,
    context_id: u16,
    operation: u16,
    order: Order,
    stub: Vec<u8>,
}

/// A call that is answered when a change was made.
struct Pending {
    call_id: u32,
    context_id: u16,
    before_status: Vec<u8>,
    not_found: Win32,
    /// Until the pipe's owner takes it.
    change: Option<RpcChange>,
}

/// The server's end of one open of a pipe.
pub struct Pipe {
    name: &'static str,
    /// The interfaces that the pipe has, beside that of every pipe.
    served: &'static [Interface],
    caller: RpcCaller,
    bound: Vec<(u16, Interface)>,
    /// A logon in the pipe, if the client has begun one.
    protection: Option<Box<Protection>>,
    /// Whether anything but a BIND has come.
    is_in_use: bool,
    fragment_len: u16,
    /// Bytes of a PDU that has not come whole.
    incoming: Vec<u8>,
    partial: Option<Partial>,
    outgoing: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Calls that the write at hand may still make.
    calls_left: usize,
    handles: Handles,
    pending: Option<Box<Pending>>,
    is_broken: bool,
}

impl Pipe {
    /// Opens the pipe of that name (without `\PIPE\`, any case); `None` if there is none.
    pub fn open(name: &str, caller: RpcCaller) -> Option<Self> {
        let (name, served) = interface::find(name.trim_start_matches('\\'))?;
        Some(Self {
            name,
            served,
            caller,
            bound: Vec::new(),
            protection: None,
            is_in_use: false,
            fragment_len: FRAGMENT_BYTES,
            incoming: Vec::new(),
            partial: None,
            outgoing: VecDeque::new(),
            waiting_bytes: 0,
            calls_left: 0,
            handles: Handles::default(),
            pending: None,
            is_broken: false,
        })
    }

    /// The pipe's name, as FILE_NAME_INFORMATION shows it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Bytes that wait to be read.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Bytes of memory that it keeps: requests that are not whole, answers that wait.
    pub fn held_bytes(&self) -> usize {
        let stub = self.partial.as_ref().map_or(0, |partial| partial.stub.capacity());
        let logon = if self.protection.is_some() { PROTECTION_BYTES } else { 0 };
        self.incoming.capacity() + stub + self.waiting_bytes + logon
    }

    /// Takes the client's bytes, which may hold several PDUs or a part of one, and works through those that are whole.
    ///
    /// # Errors
    /// [`PipeError`]; after [`PipeError::Protocol`] the pipe stays closed.
    pub fn write(&mut self, bytes: &[u8], directory: &dyn Directory) -> Result<(), PipeError> {
        if self.is_broken {
            return Err(PipeError::Protocol);
        }
        if self.waiting_bytes > WAITING_BYTES_MAX || self.pending.is_some() {
            return Err(PipeError::Full);
        }
        let mut buffer = std::mem::take(&mut self.incoming);
        buffer.extend_from_slice(bytes);
        self.calls_left = CALLS_PER_WRITE_MAX;
        let mut at = 0;
        while let Some(len) = self.whole_pdu(buffer.get(at..).unwrap_or_default())? {
            // Clients wait for an answer before they ask again.
            if self.waiting_bytes > WAITING_BYTES_MAX || self.pending.is_some() || self.is_broken {
                return self.break_down();
            }
            let pdu = buffer.get_mut(at..at + len).unwrap_or_default();
            at += len;
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

    /// Takes the change that the pipe waits for; [`Self::finish`] takes its outcome.
    pub fn take_change(&mut self) -> Option<RpcChange> {
        self.pending.as_mut()?.change.take()
    }

    /// Whether a call waits for a change.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Answers the call that waits for a change, if one does.
    pub fn finish(&mut self, outcome: Result<RpcDone, RpcRefusal>) {
        let Some(pending) = self.pending.take() else { return };
        let Pending { call_id, context_id, mut before_status, not_found, change: _ } = *pending;
        let stub = match outcome {
            Ok(RpcDone::SecurityDescriptor(descriptor)) => write_file_security(&descriptor),
            Ok(RpcDone::Changed) => {
                before_status.extend_from_slice(&Win32::SUCCESS.0.to_le_bytes());
                before_status
            }
            Err(refusal) => {
                before_status.extend_from_slice(&refusal.win32(not_found).0.to_le_bytes());
                before_status
            }
        };
        self.respond(call_id, context_id, &stub);
    }

    /// Ends the pipe, which keeps nothing any more.
    pub fn abandon(&mut self) {
        self.is_broken = true;
        (self.incoming, self.partial) = (Vec::new(), None);
        (self.pending, self.protection) = (None, None);
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

    /// Bytes of the PDU at the front, if it is whole.
    fn whole_pdu(&mut self, bytes: &[u8]) -> Result<Option<usize>, PipeError> {
        Ok(self.header(bytes)?.map(|header| header.fragment_len).filter(|len| *len <= bytes.len()))
    }

    fn answer(&mut self, pdu: Vec<u8>) {
        self.waiting_bytes += pdu.len();
        self.outgoing.push_back(pdu);
    }

    /// Answers a call by a stub, protected as it was agreed.
    fn respond(&mut self, call_id: u32, context_id: u16, stub: &[u8]) {
        let security = self.protection.as_ref().and_then(|protection| protection.of_answers());
        for mut pdu in responses(call_id, context_id, stub, self.fragment_len, security) {
            if let Some(protection) = self.protection.as_mut().filter(|_| security.is_some()) {
                protection.close(&mut pdu);
            }
            self.answer(pdu);
        }
    }

    fn dispatch(&mut self, pdu: &mut [u8], directory: &dyn Directory) -> Result<(), PipeError> {
        let Some(header) = self.header(pdu)? else { return self.break_down() };
        match header.kind {
            kind::BIND | kind::ALTER_CONTEXT => self.bind(&header, pdu, directory),
            kind::AUTH3 => self.third_token(&header, pdu, directory),
            kind::REQUEST => self.request(&header, pdu, directory),
            kind::CANCEL | kind::ORPHANED => {
                self.partial.take_if(|partial| partial.call_id == header.call_id);
                Ok(())
            }
            _ => self.break_down(),
        }
    }

    fn bind(&mut self, header: &Header, pdu: &[u8], directory: &dyn Directory) -> Result<(), PipeError> {
        let is_first = header.kind == kind::BIND;
        let Ok(trailer) = Trailer::parse(header, pdu) else { return self.break_down() };
        if is_first && self.is_in_use {
            return self.break_down();
        }
        let mut token = None;
        if let Some(trailer) = &trailer {
            if is_first {
                let signs_headers = header.flags & HEADER_SIGNING != 0;
                self.protection = Protection::begin(trailer, signs_headers, directory).map(Box::new);
            }
            let Some(protection) = &mut self.protection else {
                self.answer(bind_nak(header.call_id));
                return Ok(());
            };
            match protection.step(trailer, &self.caller, directory) {
                Progress::Token(next) => token = Some((protection.terms(), next)),
                Progress::Refused if is_first => {
                    self.protection = None;
                    self.answer(bind_nak(header.call_id));
                    return Ok(());
                }
                Progress::Refused => {
                    self.answer(fault(header.call_id, 0, fault::ACCESS_DENIED));
                    return Ok(());
                }
            }
        }
        let Ok(bind) = Bind::parse(header.order, pdu) else { return self.break_down() };
        if is_first {
            self.is_in_use = true;
            self.fragment_len = bind.receive_len.min(FRAGMENT_BYTES);
        }
        let results = self.judge(&bind);
        let signs_headers = self.protection.as_ref().is_some_and(|protection| protection.signs_headers);
        let bound = Bound {
            answered: header.kind,
            call_id: header.call_id,
            signs_headers,
            fragment_len: self.fragment_len,
            pipe: self.name,
            results: &results,
            token: token.as_ref().map(|(terms, token)| (*terms, token.as_slice())),
        };
        let ack = bound.write();
        self.answer(ack);
        Ok(())
    }

    /// Binds those of the proposed contexts that are of the pipe's interfaces.
    fn judge(&mut self, bind: &Bind) -> Vec<ContextResult> {
        let mut results = Vec::with_capacity(bind.contexts.len());
        for context in &bind.contexts {
            // Minor versions are compatible; the major one lies in the low half.
            let is_meant = |interface: &&Interface| {
                let ours = interface.syntax();
                context.interface.uuid == ours.uuid && context.interface.version & 0xFFFF == ours.version
            };
            let interface = self.served.iter().chain([&Interface::Management]).find(is_meant).copied();
            let mut result = context.judge(interface.is_some());
            if let (ContextResult::Accepted, Some(interface)) = (result, interface) {
                let is_full = self.bound.len() >= BOUND_MAX;
                match self.bound.iter_mut().find(|(id, _)| *id == context.id) {
                    Some(known) => known.1 = interface,
                    None if is_full => result = ContextResult::TooMany,
                    None => self.bound.push((context.id, interface)),
                }
            }
            results.push(result);
        }
        results
    }

    /// Takes the last token of a logon, which has no answer (MS-RPCE 2.2.2.10): if it is refused, calls are.
    fn third_token(
        &mut self,
        header: &Header,
        pdu: &[u8],
        directory: &dyn Directory,
    ) -> Result<(), PipeError> {
        let Ok(Some(trailer)) = Trailer::parse(header, pdu) else { return self.break_down() };
        let Some(protection) = &mut self.protection else { return self.break_down() };
        protection.step(&trailer, &self.caller, directory);
        Ok(())
    }

    /// Returns the place of a request's stub, after checking its protection. `None`: it may not be taken.
    fn stub_of(&mut self, header: &Header, pdu: &mut [u8], stub_at: usize) -> Option<std::ops::Range<usize>> {
        match &mut self.protection {
            Some(protection) => protection.open(header, pdu, stub_at),
            None => (header.auth_len == 0).then_some(stub_at..pdu.len()),
        }
    }

    fn request(
        &mut self,
        header: &Header,
        pdu: &mut [u8],
        directory: &dyn Directory,
    ) -> Result<(), PipeError> {
        let Ok(request) = Request::parse(header, pdu) else { return self.break_down() };
        self.is_in_use = true;
        let Some(stub) = self.stub_of(header, pdu, request.stub_at) else {
            // Messages behind one that was changed cannot be read, as the keys have gone on. The client still reads the reason.
            self.answer(fault(header.call_id, request.context_id, fault::ACCESS_DENIED));
            self.is_broken = true;
            return Ok(());
        };
        let stub = pdu.get(stub).unwrap_or_default();
        let mut partial = match self.partial.take() {
            Some(partial) if header.flags & FIRST_FRAGMENT == 0 && partial.call_id == header.call_id => {
                partial
            }
            None if header.flags & FIRST_FRAGMENT != 0 => Partial {
                call_id: header.call_id,
                context_id: request.context_id,
                operation: request.operation,
                order: header.order,
                stub: Vec::new(),
            },
            _ => return self.break_down(),
        };
        if partial.stub.len() + stub.len() > STUB_BYTES_MAX {
            self.answer(fault(header.call_id, request.context_id, fault::NO_MEMORY));
            return self.break_down();
        }
        partial.stub.extend_from_slice(stub);
        if header.flags & LAST_FRAGMENT == 0 {
            self.partial = Some(partial);
            return Ok(());
        }
        if self.calls_left == 0 {
            return self.break_down();
        }
        self.calls_left -= 1;
        self.call(&partial, directory);
        Ok(())
    }

    /// Makes a call that has come whole, and answers it, or leaves it pending.
    fn call(&mut self, partial: &Partial, directory: &dyn Directory) {
        let Partial { call_id, context_id, operation, order, stub } = partial;
        let (call_id, context_id) = (*call_id, *context_id);
        let bound = self.bound.iter().find(|(id, _)| *id == context_id);
        let Some((_, interface)) = bound else {
            return self.answer(fault(call_id, context_id, fault::UNKNOWN_INTERFACE));
        };
        if dispatch::is_mismatched(*interface, *operation, Reader::new(stub, *order), &self.handles) {
            return self.answer(fault(call_id, context_id, fault::CONTEXT_MISMATCH));
        }
        let mut reader = Reader::new(stub, *order);
        let by = (&self.caller, self.served);
        match dispatch::call(*interface, *operation, &mut reader, &mut self.handles, by, directory) {
            Some(Ok(Answer::Stub(stub))) => self.respond(call_id, context_id, &stub),
            Some(Ok(Answer::Later { change, before_status, not_found })) => {
                let change = Some(change);
                self.pending =
                    Some(Box::new(Pending { call_id, context_id, before_status, not_found, change }));
            }
            Some(Err(BadStub)) => self.answer(fault(call_id, context_id, fault::BAD_STUB)),
            None => self.answer(fault(call_id, context_id, fault::OPERATION_RANGE)),
        }
    }
}
