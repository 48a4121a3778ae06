//! Cuts a byte stream into SMB2 messages (MS-SMB2 2.1, direct TCP: a byte of zero, then the length in 24 bits, big-endian).
//!
//! Owns the place of received bytes, so that payload is not copied afterwards: a message begins such
//! that byte 112 of it (the data of a WRITE of every client, MS-SMB2 2.2.21) lies at a page boundary.
//! Small messages are received many at a time into a shared buffer. After a large message, the next
//! header is received alone or with the end of its predecessor, and its message then straight into a
//! buffer of its own. Sans-IO: the owner of the socket puts bytes into [`Framing::receive`]'s buffer.

use sys::{Buf, BufMut};

/// Bytes before each message.
pub const HEADER_BYTES: usize = 4;
/// The place of a WRITE's payload in the stream, counted from the message's header.
pub const PAYLOAD_AT: usize = HEADER_BYTES + 112;
/// Bytes received at a time while messages are small: capacity of one size class of buffers.
pub const BATCH_BYTES: usize = (36 * 1024 - 4096) + PAYLOAD_AT;
/// As [`BATCH_BYTES`], for an unauthenticated client, which sends one message at a time: NEGOTIATE and
/// SESSION_SETUP usually fit.
pub const GUEST_BATCH_BYTES: usize = 4096 + PAYLOAD_AT;
/// Size above which a message gets its own buffer, and the next header is read before more bytes are
/// received.
const LARGE_BYTES: usize = 16 * 1024;
/// Keeps NetBIOS sessions alive (RFC 1002 4.3.6); no message.
const KEEP_ALIVE: u8 = 0x85;

/// Why the stream cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// The first byte is none of a message.
    #[error("the peer sends something other than SMB messages")]
    NotAMessage,
    /// Longer than is allowed at this time.
    #[error("a message of {len_bytes} B is longer than is allowed")]
    TooLong { len_bytes: usize },
}

/// How much memory the message at the front may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Memory for the whole message.
    Whole,
    /// The part that fits a small buffer.
    Part,
}

/// A place for the next bytes.
#[derive(Debug)]
pub struct Target {
    /// Buffer that receives the bytes.
    pub into: BufMut,
    /// Bytes go to `into[at..]`.
    pub at: usize,
    /// `into` ends with the message in it: bytes beyond, up to [`PAYLOAD_AT`], may be received together
    /// with it.
    pub ends_with_message: bool,
}

/// The receiving side of one stream.
#[derive(Debug)]
pub struct Framing {
    /// Received and not yet cut: the first `filled` bytes. `None` if the socket's owner has the buffer, or
    /// there is none.
    buffer: Option<BufMut>,
    filled: usize,
    /// Length of the buffer that the message at the front needs if it does not fit the one it is in; else zero.
    needed: usize,
    /// Whether to read the next header before receiving more.
    peek: bool,
    message_bytes_max: usize,
    /// Length of small buffers.
    batch_bytes: usize,
}

impl Framing {
    /// Begins a stream in which messages have at most `message_bytes_max` bytes.
    pub fn new(message_bytes_max: usize) -> Self {
        Self { buffer: None, filled: 0, needed: 0, peek: false, message_bytes_max, batch_bytes: BATCH_BYTES }
    }

    /// Lets messages that begin later be this long.
    #[inline]
    pub fn set_message_bytes_max(&mut self, message_bytes_max: usize) {
        self.message_bytes_max = message_bytes_max;
    }

    /// Sets the length of later buffers for small messages: [`BATCH_BYTES`] or [`GUEST_BATCH_BYTES`].
    pub fn set_batch_bytes(&mut self, batch_bytes: usize) {
        self.batch_bytes = batch_bytes;
    }

    /// Longest message that may begin now, in bytes.
    #[inline]
    pub fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }

    /// Says whether part of a message has been received.
    #[inline]
    pub fn in_mid_message(&self) -> bool {
        self.filled > 0
    }

    /// Says whether the stream carries large messages at this time: more of it is probably there already.
    pub fn is_large(&self) -> bool {
        self.needed > 0 || self.peek
    }

    /// Says whether `count` more bytes fill the target.
    pub fn fills(&self, into: &BufMut, count: usize) -> bool {
        self.filled + count >= into.len()
    }

    /// Returns the memory that the next call of [`Framing::receive`] with [`Room::Whole`] takes for one
    /// large message; zero if none.
    pub fn wanted_bytes(&self) -> usize {
        self.needed
    }

    /// Says whether the received part of the front message fills a small buffer: then [`Room::Part`] cannot
    /// receive more.
    pub fn fills_batch(&self) -> bool {
        self.filled >= self.batch_bytes
    }

    /// Returns the buffer for the next bytes. Return it through [`Framing::received`] or
    /// [`Framing::not_received`].
    pub fn receive(&mut self, room: Room) -> Target {
        let at = self.filled;
        let needed = match room {
            Room::Whole => std::mem::take(&mut self.needed),
            Room::Part => self.batch_bytes.min(self.needed),
        };
        let into = match self.buffer.take() {
            Some(front) if needed > front.len() => {
                let mut into = BufMut::with_aligned(needed, PAYLOAD_AT);
                into[..at].copy_from_slice(&front[..at]);
                into
            }
            Some(into) => into,
            None => BufMut::with_aligned(if self.peek { PAYLOAD_AT } else { self.batch_bytes }, PAYLOAD_AT),
        };
        let header = self.parse(&into[..at]).ok().flatten();
        let ends_with_message = header.is_some_and(|header| header.end() == into.len());
        Target { into, at, ends_with_message }
    }

    /// Takes the target back without new bytes.
    pub fn not_received(&mut self, into: BufMut) {
        if self.filled > 0 {
            self.buffer = Some(into);
        }
    }

    /// Takes the target back with `count` more bytes and, if it is full and ends with its message, the bytes that came `beyond`. Whole
    /// messages go to `messages`, without their headers.
    ///
    /// # Errors
    /// If the stream carries no messages, or a longer one than allowed; nothing more can be received then.
    pub fn received(
        &mut self,
        into: BufMut,
        count: usize,
        beyond: &[u8],
        messages: &mut Vec<Buf>,
    ) -> Result<(), FramingError> {
        let filled = (self.filled + count).min(into.len());
        let Some(first) = self.parse(&into[..filled])? else {
            self.keep(into, filled);
            return Ok(());
        };
        if first.end() > into.len() {
            // A small message's buffer has space for its successors; a large one's ends with it.
            self.needed =
                if first.len > LARGE_BYTES { first.end() } else { first.end().max(self.batch_bytes) };
            self.keep(into, filled);
            return Ok(());
        }
        if filled < first.end() {
            self.keep(into, filled);
            return Ok(());
        }
        self.peek = first.len > LARGE_BYTES;
        self.filled = 0;
        let (whole, mut start) = (into.freeze(), 0);
        while let Some(message) = self.parse(&whole[start..filled])? {
            if start + message.end() > filled {
                break;
            }
            if message.is_message {
                self.peek = message.len > LARGE_BYTES;
                messages.push(whole.slice(start + HEADER_BYTES..start + message.end()));
            }
            start += message.end();
        }
        let rest = &whole[start..filled];
        if !rest.is_empty() {
            // Bytes of a buffer longer than the present ones may need a longer one, too.
            let buffer_bytes = self.batch_bytes.max(rest.len());
            let mut buffer = BufMut::with_aligned(buffer_bytes, PAYLOAD_AT);
            buffer[..rest.len()].copy_from_slice(rest);
            self.needed =
                self.parse(rest)?.map(|message| message.end()).filter(|&end| end > buffer_bytes).unwrap_or(0);
            self.keep(buffer, rest.len());
        } else if !beyond.is_empty() {
            // If bytes came beyond, the buffer ended with its message.
            let mut buffer = BufMut::with_aligned(self.batch_bytes, PAYLOAD_AT);
            buffer[..beyond.len()].copy_from_slice(beyond);
            return self.received(buffer, beyond.len(), &[], messages);
        }
        Ok(())
    }

    fn keep(&mut self, buffer: BufMut, filled: usize) {
        self.buffer = Some(buffer);
        self.filled = filled;
    }

    fn parse(&self, front: &[u8]) -> Result<Option<Header>, FramingError> {
        Header::parse(front, self.message_bytes_max)
    }
}

/// The bytes before a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    /// Length of the message in bytes.
    pub len: usize,
    /// A keepalive is none.
    pub is_message: bool,
}

impl Header {
    /// Parses the header at the front, if it has arrived whole.
    #[inline]
    pub fn parse(front: &[u8], message_bytes_max: usize) -> Result<Option<Self>, FramingError> {
        let Some(&[kind, high, middle, low]) = front.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let len = u32::from_be_bytes([0, high, middle, low]) as usize;
        match kind {
            0 if len > message_bytes_max => Err(FramingError::TooLong { len_bytes: len }),
            0 => Ok(Some(Self { len, is_message: true })),
            KEEP_ALIVE if len == 0 => Ok(Some(Self { len, is_message: false })),
            _ => Err(FramingError::NotAMessage),
        }
    }

    /// Bytes of header and message.
    fn end(&self) -> usize {
        HEADER_BYTES + self.len
    }
}

/// Length in bytes of an outgoing message, within its header's range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageLength(u32);

impl MessageLength {
    /// Longest message: the header has 24 bits for it.
    pub const MAX: usize = (1 << 24) - 1;

    /// `None`: longer than [`Self::MAX`].
    pub fn new(bytes: usize) -> Option<Self> {
        u32::try_from(bytes).ok().filter(|_| bytes <= Self::MAX).map(Self)
    }

    /// The header of a message of this length.
    pub fn header(self) -> [u8; HEADER_BYTES] {
        // The high byte is zero, as in every message.
        self.0.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds a stream in pieces of these sizes, repeatedly, and returns the messages and the number of
    /// receives.
    fn cut(stream: &[u8], pieces: &[usize], limit: usize) -> Result<(Vec<Buf>, usize), FramingError> {
        cut_beyond(stream, pieces, 0, limit)
    }

    /// As [`cut`]; `beyond` further bytes arrive with the end of a large message.
    fn cut_beyond(
        stream: &[u8],
        pieces: &[usize],
        beyond: usize,
        limit: usize,
    ) -> Result<(Vec<Buf>, usize), FramingError> {
        let mut framing = Framing::new(limit);
        let (mut messages, mut rest, mut receives) = (Vec::new(), stream, 0);
        for piece in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let Target { mut into, at, ends_with_message } = framing.receive(Room::Whole);
            let count = (*piece).min(rest.len()).min(into.len() - at);
            assert!(count > 0, "no room to receive");
            into[at..at + count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            receives += 1;
            let (next, later) = rest.split_at(if ends_with_message && at + count == into.len() {
                rest.len().min(beyond).min(PAYLOAD_AT)
            } else {
                0
            });
            rest = later;
            framing.received(into, count, next, &mut messages)?;
        }
        assert!(!framing.in_mid_message());
        Ok((messages, receives))
    }

    fn stream(lens: &[usize]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let messages: Vec<Vec<u8>> = lens
            .iter()
            .enumerate()
            .map(|(nth, &len)| (0..len).map(|at| (at * 13 + nth) as u8 ^ (at >> 8) as u8).collect())
            .collect();
        let mut bytes = Vec::new();
        for message in &messages {
            bytes.extend_from_slice(&header(message.len()));
            bytes.extend_from_slice(message);
        }
        (bytes, messages)
    }

    fn header(len: usize) -> [u8; HEADER_BYTES] {
        MessageLength::new(len).expect("a length that can be said").header()
    }

    #[test]
    fn a_length_that_the_header_cannot_say_has_no_header() {
        assert_eq!(header(0x0012_3456), [0, 0x12, 0x34, 0x56]);
        assert_eq!(header(MessageLength::MAX), [0, 0xff, 0xff, 0xff]);
        for bytes in [1 << 24, (1 << 24) + 100, 1 << 32, usize::MAX] {
            assert_eq!(MessageLength::new(bytes), None, "{bytes}");
        }
    }

    const LENS: [usize; 12] = [117, 100, 0, 4208, 4208, 4208, 70_000, 117, 1_048_688, 1_048_688, 33_000, 20];

    #[test]
    fn messages_come_out_whole_whatever_the_pieces() {
        let (bytes, expected) = stream(&LENS);
        for pieces in [&[1 << 20][..], &[1000], &[3, 1, 7000], &[4, 113, 65_536], &[4097]] {
            let (messages, _) = cut(&bytes, pieces, 2 << 20).expect("a good stream");
            assert_eq!(messages.len(), expected.len());
            assert!(messages.iter().zip(&expected).all(|(got, want)| got[..] == want[..]), "{pieces:?}");
            for beyond in [1, 3, 4, 5, PAYLOAD_AT] {
                let (messages, _) = cut_beyond(&bytes, pieces, beyond, 2 << 20).expect("a good stream");
                assert_eq!(messages.len(), expected.len());
                assert!(
                    messages.iter().zip(&expected).all(|(got, want)| got[..] == want[..]),
                    "{pieces:?} and {beyond} beyond"
                );
            }
        }
    }

    #[test]
    fn messages_come_out_whole_when_large_ones_get_their_memory_late_and_buffers_change_their_length() {
        let (bytes, expected) = stream(&LENS);
        for (batch_bytes, piece) in
            [(BATCH_BYTES, 1000), (GUEST_BATCH_BYTES, 1 << 20), (BATCH_BYTES, 1 << 20)]
        {
            let mut framing = Framing::new(2 << 20);
            let (mut messages, mut rest) = (Vec::new(), &bytes[..]);
            for turn in 0.. {
                if rest.is_empty() {
                    break;
                }
                framing.set_batch_bytes(if turn % 3 == 2 { GUEST_BATCH_BYTES } else { batch_bytes });
                let room = if framing.wanted_bytes() > 0 && !framing.fills_batch() {
                    Room::Part
                } else {
                    Room::Whole
                };
                let Target { mut into, at, .. } = framing.receive(room);
                let count = rest.len().min(into.len() - at).min(piece);
                assert!(count > 0, "no room to receive");
                into[at..at + count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                framing.received(into, count, &[], &mut messages).expect("a good stream");
            }
            assert_eq!(messages.len(), expected.len());
            assert!(messages.iter().zip(&expected).all(|(got, want)| got[..] == want[..]));
        }
    }

    #[test]
    fn messages_come_out_byte_by_byte() {
        let (bytes, expected) = stream(&[5, 0, 200]);
        let (messages, _) = cut(&bytes, &[1], 1000).expect("a good stream");
        assert!(messages.iter().zip(&expected).all(|(got, want)| got[..] == want[..]));
    }

    #[test]
    fn the_payload_of_large_writes_is_aligned_and_received_in_two_steps() {
        let len = 112 + (1 << 20);
        let (bytes, _) = stream(&[len; 4]);
        let (messages, receives) = cut(&bytes, &[4 << 20], 2 << 20).expect("a good stream");
        assert!(messages.iter().all(|message| message[112..].as_ptr().addr().is_multiple_of(4096)));
        assert_eq!(receives, 8);
        let (messages, receives) =
            cut_beyond(&bytes, &[4 << 20], PAYLOAD_AT, 2 << 20).expect("a good stream");
        assert!(messages.iter().all(|message| message[112..].as_ptr().addr().is_multiple_of(4096)));
        assert_eq!(receives, 5, "the first header, and each message with the next one's");
    }

    #[test]
    fn small_messages_are_received_many_at_a_time() {
        let (bytes, _) = stream(&[117; 256]);
        let (messages, receives) = cut(&bytes, &[4 << 20], 1 << 20).expect("a good stream");
        assert_eq!(messages.len(), 256);
        assert_eq!(receives, 1);
    }

    #[test]
    fn a_message_above_the_limit_and_what_is_no_message_end_the_stream() {
        let (bytes, _) = stream(&[1001]);
        assert_eq!(cut(&bytes, &[8], 1000).err(), Some(FramingError::TooLong { len_bytes: 1001 }));
        assert_eq!(cut(b"GET / HTTP/1.1", &[4], 1000).err(), Some(FramingError::NotAMessage));
        let (mut second, _) = stream(&[10]);
        second.extend_from_slice(b"GET /");
        assert_eq!(cut(&second, &[100], 1000).err(), Some(FramingError::NotAMessage));
    }

    #[test]
    fn a_keep_alive_is_no_message() {
        let mut bytes = vec![KEEP_ALIVE, 0, 0, 0];
        bytes.extend(stream(&[10]).0);
        assert_eq!(cut(&bytes, &[2], 1000).expect("a good stream").0.len(), 1);
        assert_eq!(cut(&bytes, &[50], 1000).expect("a good stream").0.len(), 1);
    }

    #[test]
    fn a_buffer_that_comes_back_empty_is_given_up_and_a_started_one_kept() {
        let mut framing = Framing::new(1000);
        let target = framing.receive(Room::Whole);
        framing.not_received(target.into);
        assert!(!framing.in_mid_message());
        let mut target = framing.receive(Room::Whole);
        target.into[..4].copy_from_slice(&header(2));
        let mut messages = Vec::new();
        framing.received(target.into, 4, &[], &mut messages).expect("a header");
        let target = framing.receive(Room::Whole);
        assert_eq!(target.at, 4);
        framing.not_received(target.into);
        let mut target = framing.receive(Room::Whole);
        target.into[4..6].copy_from_slice(b"ok");
        framing.received(target.into, 2, &[], &mut messages).expect("a message");
        assert_eq!(&messages[0][..], b"ok");
    }
}
