//! The message that comes in fragments (MS-SMBD 3.1.5.8).
//!
//! Promise: it holds at most [`GROWTH`] times the bytes that have come, and [`FIRST_BYTES`]: neither the length that its first fragment
//! announces nor the number of its fragments makes it larger. A message of one transfer is not copied.

use sys::{Buf, BufMut};

/// The first fragment of an ordinary transfer fits.
const FIRST_BYTES: usize = 8192;
/// Memory as a multiple of the bytes that have come. With more, a peer holds more memory than it pays
/// for; with less, long messages are copied more often. With this, a third of their bytes are copied
/// twice.
const GROWTH: usize = 4;

/// The fragments do not make a message, or one that is longer than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotAMessage;

/// See the module.
#[derive(Default)]
pub(crate) struct Reassembly {
    /// The message's first bytes are the first `filled` of it.
    buffer: Option<BufMut>,
    filled: usize,
    /// Bytes still to come, as the last fragment said.
    remaining_bytes: u32,
}

impl Reassembly {
    /// Takes the data of one transfer, of which there is some; gives the message that is whole with it.
    ///
    /// # Errors
    /// See [`NotAMessage`]; nothing more can be taken then.
    pub fn push(
        &mut self,
        data: Buf,
        remaining_bytes: u32,
        message_bytes_max: u32,
    ) -> Result<Option<Buf>, NotAMessage> {
        let whole = self.filled as u64 + data.len() as u64 + u64::from(remaining_bytes);
        let announced = u64::from(self.remaining_bytes);
        let adds_up = self.filled == 0 || announced == data.len() as u64 + u64::from(remaining_bytes);
        if whole > u64::from(message_bytes_max) || !adds_up {
            return Err(NotAMessage);
        }
        if self.filled == 0 && remaining_bytes == 0 {
            return Ok(Some(data));
        }
        let end = self.filled + data.len();
        let buffer = self.make_room(end, whole as usize);
        buffer[end - data.len()..end].copy_from_slice(&data);
        (self.filled, self.remaining_bytes) = (end, remaining_bytes);
        if remaining_bytes > 0 {
            return Ok(None);
        }
        self.filled = 0;
        Ok(self.buffer.take().map(|mut buffer| {
            buffer.truncate(end);
            buffer.freeze()
        }))
    }

    /// The buffer, with room for the first `end` bytes of the message.
    fn make_room(&mut self, end: usize, whole_bytes: usize) -> &mut BufMut {
        let filled = self.filled;
        let buffer = self.buffer.get_or_insert_with(|| BufMut::for_overwrite(0));
        if buffer.len() < end {
            let mut larger = BufMut::for_overwrite((end * GROWTH).max(FIRST_BYTES).min(whole_bytes));
            larger[..filled].copy_from_slice(&buffer[..filled]);
            *buffer = larger;
        }
        buffer
    }

    /// Memory that it holds, in bytes.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u32 = 1 << 20;

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| ((at * 7) ^ (at >> 9)) as u8).collect()
    }

    fn push(to: &mut Reassembly, data: &[u8], remaining_bytes: usize) -> Result<Option<Buf>, NotAMessage> {
        to.push(Buf::from(data), remaining_bytes as u32, MAX)
    }

    #[test]
    fn fragments_of_any_size_make_the_message() {
        for (len, fragment) in [(2, 1), (9000, 1), (100_000, 8168), (1 << 20, 8168), (70_000, 69_999)] {
            let (message, mut reassembly) = (pattern(len), Reassembly::default());
            for _ in 0..2 {
                let mut whole = None;
                for (nth, data) in message.chunks(fragment).enumerate() {
                    let remaining = len - nth * fragment - data.len();
                    whole = push(&mut reassembly, data, remaining).expect("adds up");
                    assert_eq!(whole.is_some(), remaining == 0);
                }
                assert!(whole.is_some_and(|whole| whole[..] == message[..]), "{len} by {fragment}");
                assert_eq!(reassembly.held_bytes(), 0);
            }
        }
    }

    #[test]
    fn what_is_held_grows_with_what_came_not_with_what_was_announced_or_how_often() {
        let mut reassembly = Reassembly::default();
        let len = 1 << 20;
        for came in 1..20_000 {
            assert_eq!(push(&mut reassembly, &[7], len - came), Ok(None));
            let most = (came * GROWTH).max(FIRST_BYTES);
            assert!(reassembly.held_bytes() <= most, "{} of {came}", reassembly.held_bytes());
        }
    }

    #[test]
    fn a_message_of_one_transfer_is_not_copied() {
        let data = Buf::from(&b"whole"[..]);
        let at = data.as_ptr();
        let whole = Reassembly::default().push(data, 0, MAX).expect("fits").expect("is whole");
        assert_eq!(whole.as_ptr(), at);
    }

    #[test]
    fn what_does_not_add_up_or_is_too_long_is_no_message() {
        let mut reassembly = Reassembly::default();
        assert_eq!(push(&mut reassembly, &[1; 10], 5), Ok(None));
        assert_eq!(push(&mut reassembly, &[1; 3], 3), Err(NotAMessage));
        assert_eq!(push(&mut Reassembly::default(), &[1; 10], MAX as usize), Err(NotAMessage));
        let data = Buf::from(&[1; 11][..]);
        assert_eq!(Reassembly::default().push(data, 0, 10), Err(NotAMessage), "also in one transfer");
    }
}
