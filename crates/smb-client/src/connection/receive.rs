//! From messages to answers: decryption, verification, compounds, credits.

use super::payload::Protection;
use super::{Connection, Event, Owner};
use crate::ClientError;
use crate::operation::Reply;
use smb::crypto::{CryptoError, TRANSFORM_HEADER_BYTES, TRANSFORM_PROTOCOL_ID, TransformHeader};
use smb::wire::{
    Command, Header, HeaderFlags, RDMA_TRANSFORM_ENCRYPTION, RDMA_TRANSFORM_SIGNING,
    READ_RESPONSE_RDMA_TRANSFORM, RdmaTransform, ReadResponse, split_compound,
};
use sys::{Buf, BufMut};
use types::NtStatus;

/// MessageId of unasked messages from the server (MS-SMB2 2.2.1.2).
const UNSOLICITED: u64 = u64::MAX;

impl Connection {
    /// Takes one whole message, without the length prefix of TCP.
    ///
    /// # Errors
    /// [`ClientError`]: the connection is then of no further use.
    pub fn handle_message(&mut self, mut message: Buf) -> Result<(), ClientError> {
        let is_encrypted = message.starts_with(&TRANSFORM_PROTOCOL_ID);
        if is_encrypted {
            message = self.open(message)?;
        }

        let mut elements = Vec::with_capacity(1);
        let mut start = 0;
        loop {
            let (element, rest) = split_compound(message.get(start..).unwrap_or_default())?;
            let end = start + element.len();
            elements.push(start..end);
            if rest.is_none() {
                break;
            }
            start = end;
        }
        for range in &elements {
            let element = message.get(range.clone()).ok_or(Self::fail("an element outside its message"))?;
            self.check(element, is_encrypted)?;
        }
        // The handshake's answers have to be verified with a key that only they lead to.
        if let [only] = &elements[..]
            && self.is_of_handshake(&message[only.clone()])
        {
            return self.take_handshake(&message);
        }
        for range in elements {
            self.take(message.slice(range))?;
        }
        self.check_credits()
    }

    /// Decrypts a message: in place, if nobody else has a view of its memory.
    fn open(&self, message: Buf) -> Result<Buf, ClientError> {
        let header = TransformHeader::parse(&message)?;
        let session = self.session.as_ref().ok_or(CryptoError::NotAuthentic)?;
        let ciphers = session.ciphers.as_ref().ok_or(CryptoError::NotAuthentic)?;
        if header.session_id != session.id {
            return Err(CryptoError::NotAuthentic.into());
        }
        match message.try_into_mut() {
            Ok(mut message) => {
                ciphers.open.open_in_place(&mut message)?;
                message.advance(TRANSFORM_HEADER_BYTES);
                message.truncate(header.original_len);
                Ok(message.freeze())
            }
            Err(shared) => {
                // No longer than the received message, or it is refused.
                let mut plain = BufMut::for_overwrite(header.original_len.min(shared.len()));
                ciphers.open.open_into(&shared, &mut plain)?;
                Ok(plain.freeze())
            }
        }
    }

    fn is_of_handshake(&self, element: &[u8]) -> bool {
        Header::parse(element)
            .ok()
            .and_then(|header| self.pending.get(&header.message_id.get()))
            .is_some_and(|pending| pending.owner == Owner::Handshake)
    }

    fn take_handshake(&mut self, message: &[u8]) -> Result<(), ClientError> {
        let header = *Header::parse(message)?;
        self.earn(&header);
        if let Some(pending) = self.pending.remove(&header.message_id.get()) {
            self.release_credits(&pending);
        }
        self.handshake_answer(message)?;
        self.check_credits()
    }

    /// Refuses what is not protected as its request was.
    fn check(&self, element: &[u8], is_encrypted: bool) -> Result<(), ClientError> {
        let header = *Header::parse(element)?;
        if !header.is_response() {
            return Err(Self::fail("a request from a server"));
        }
        let Some(session) = self.session.as_ref().filter(|_| self.handshake.is_none()) else { return Ok(()) };
        if is_encrypted {
            return Ok(());
        }
        let message_id = header.message_id.get();
        let pending = self.pending.get(&message_id);
        if session.must_encrypt || pending.is_some_and(|pending| pending.is_encrypted) {
            return Err(CryptoError::NotAuthentic.into());
        }
        // Interim answers and notifications are not signed (MS-SMB2 3.3.4.1.1).
        let is_exempt = message_id == UNSOLICITED || header.status() == NtStatus::PENDING;
        match &session.signing {
            Some(key) if header.flags().contains(HeaderFlags::SIGNED) => {
                Ok(key.verify(&[element], message_id, true, false)?)
            }
            Some(_) if !is_exempt && pending.is_some_and(|pending| pending.is_signed) => {
                Err(CryptoError::NotAuthentic.into())
            }
            _ => Ok(()),
        }
    }

    fn earn(&mut self, header: &Header) {
        self.credits += u32::from(header.credits.get());
    }

    fn take(&mut self, element: Buf) -> Result<(), ClientError> {
        let header = *Header::parse(&element)?;
        self.earn(&header);
        let message_id = header.message_id.get();
        if message_id == UNSOLICITED {
            if header.command() == Some(Command::OplockBreak) {
                self.events.push_back(Event::Break(element));
            }
            return Ok(());
        }
        let pending =
            self.pending.get_mut(&message_id).ok_or(Self::fail("an answer to nothing that was asked"))?;
        if header.command() != Some(pending.command) {
            return Err(Self::fail("an answer to another command"));
        }
        if header.status() == NtStatus::PENDING && header.flags().contains(HeaderFlags::ASYNC_COMMAND) {
            pending.async_id = Some(header.async_id());
            return Ok(());
        }
        let Some(pending) = self.pending.remove(&message_id) else { return Ok(()) };
        self.release_credits(&pending);
        if let Owner::Caller(token) = pending.owner {
            let mut reply = Reply::new(pending.command, header.status(), header.tree_id.get(), element);
            if header.status() == NtStatus::FILE_NOT_AVAILABLE {
                // Not done, because of another channel's work: a client with several channels asks again.
                reply.set_refused(pending.request);
            }
            self.events.push_back(Event::Completed { token, reply });
        }
        Ok(())
    }

    /// A client without credits and without hope for more would wait for ever.
    fn check_credits(&self) -> Result<(), ClientError> {
        if self.credits == 0 && self.pending.is_empty() {
            return Err(Self::fail("it grants no credits"));
        }
        Ok(())
    }

    /// Checks and decrypts what the server placed for a READ that it answered with success.
    ///
    /// # Errors
    /// The status to use in place of the answer's if the payload is not protected as the request was.
    pub(crate) fn open_payload(
        &self,
        protection: Protection,
        reply: &Reply,
        room: Buf,
    ) -> Result<Buf, NtStatus> {
        let mismatch = match protection {
            Protection::Encrypted => NtStatus::AUTH_TAG_MISMATCH,
            _ => NtStatus::INVALID_SIGNATURE,
        };
        let response = ReadResponse::parse(reply.message()).map_err(|_| mismatch)?;
        let is_transformed = response.flags.get() & READ_RESPONSE_RDMA_TRANSFORM != 0;
        let len = response.data_remaining.get() as usize;
        if protection == Protection::Plain || len == 0 && !is_transformed {
            return Ok(room);
        }
        if !is_transformed || len > room.len() {
            return Err(mismatch);
        }
        let transform = response.data().and_then(RdmaTransform::parse).map_err(|_| mismatch)?;
        let placed = room.slice(..len);
        let session = self.session.as_ref().ok_or(mismatch)?;
        match (protection, transform.transform_type) {
            (Protection::Encrypted, RDMA_TRANSFORM_ENCRYPTION) => {
                let ciphers = session.ciphers.as_ref().ok_or(mismatch)?;
                let mut plain = BufMut::for_overwrite(len);
                let opened =
                    ciphers.open.open_payload(transform.nonce, transform.signature, &placed, &mut plain);
                opened.map(|()| plain.freeze()).map_err(|_| mismatch)
            }
            (Protection::Signed, RDMA_TRANSFORM_SIGNING) => {
                let key = session.signing.as_ref().ok_or(mismatch)?;
                let verified = key.verify_payload(&[&placed], transform.nonce, transform.signature);
                verified.map(|()| placed).map_err(|_| mismatch)
            }
            _ => Err(mismatch),
        }
    }
}
