//! CRC32c as MPA uses it (RFC 5044 section 4.1): over the ULPDU length, the ULPDU and the pad; least significant byte first.
//!
//! A server sends pages of its cache again and again: the CRC of a whole page stays beside the page
//! ([`Buf::page_words`]), and is put behind the CRC of earlier bytes by arithmetic, without reading the
//! bytes.

use crc_fast::{CrcAlgorithm, Digest};
use std::ops::Range;
use std::sync::atomic::Ordering;
use sys::{ALIGN_BYTES as PAGE_BYTES, Buf};

/// A CRC32c under way.
pub struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// As [`Self::update`] of a part of a buffer; whole pages that were sent before are not read again.
    /// Returns how many bytes were.
    pub fn update_shared(&mut self, whole: &Buf, range: Range<usize>) -> usize {
        let bytes = &whole[range.clone()];
        let Some(words) = whole.page_words_in(range) else {
            self.update(bytes);
            return bytes.len();
        };
        let (mut crc, mut looked_at) = (self.0.finalize() as u32, 0);
        for (word, page) in words.iter().zip(bytes.chunks_exact(PAGE_BYTES)) {
            // Relaxed: the word stands for bytes that this thread may read already, and says nothing of others.
            let mut of_page = word.load(Ordering::Relaxed);
            if of_page == 0 {
                of_page = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, page) as u32;
                word.store(of_page, Ordering::Relaxed);
                looked_at += PAGE_BYTES;
            }
            crc = behind_a_page(crc) ^ of_page;
        }
        self.0 = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
        looked_at
    }

    /// The four bytes as they stand on the wire.
    pub fn wire_bytes(&self) -> [u8; 4] {
        (self.0.finalize() as u32).to_le_bytes()
    }
}

/// The CRC of one piece, as it stands on the wire.
pub fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc32c::default();
    crc.update(bytes);
    crc.wire_bytes()
}

/// Returns the share of a CRC in that of the same bytes and a page behind them: its remainder, multiplied by x to the power of the
/// page's bits.
fn behind_a_page(crc: u32) -> u32 {
    let [first, second, third, fourth] = crc.to_le_bytes();
    let [by_first, by_second, by_third, by_fourth] = &BEHIND_A_PAGE;
    by_first[usize::from(first)]
        ^ by_second[usize::from(second)]
        ^ by_third[usize::from(third)]
        ^ by_fourth[usize::from(fourth)]
}

/// [`behind_a_page`] by byte of the CRC and its value.
static BEHIND_A_PAGE: [[u32; 256]; 4] = {
    /// The polynomial 0x1EDC6F41, reflected.
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    // One bit: what becomes of each bit of the remainder. Squared, it is two bits, then four.
    let mut bits = [0_u32; 32];
    bits[0] = POLYNOMIAL;
    let mut bit = 1;
    while bit < 32 {
        bits[bit] = 1 << (bit - 1);
        bit += 1;
    }
    let mut length = 1;
    while length < PAGE_BYTES * 8 {
        let mut twice = [0; 32];
        let mut bit = 0;
        while bit < 32 {
            twice[bit] = apply(&bits, bits[bit]);
            bit += 1;
        }
        bits = twice;
        length *= 2;
    }
    let mut table = [[0; 256]; 4];
    let mut at = 0;
    while at < 4 * 256 {
        table[at / 256][at % 256] = apply(&bits, (at as u32 % 256) << (at / 256 * 8));
        at += 1;
    }
    table
};

/// The sum of what becomes of the bits that are set.
const fn apply(bits: &[u32; 32], value: u32) -> u32 {
    let (mut sum, mut bit) = (0, 0);
    while bit < 32 {
        if value >> bit & 1 == 1 {
            sum ^= bits[bit];
        }
        bit += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::BufMut;

    fn of(parts: &[&Buf]) -> [u8; 4] {
        let mut crc = Crc32c::default();
        for part in parts {
            crc.update_shared(part, 0..part.len());
        }
        crc.wire_bytes()
    }

    #[test]
    fn pages_that_are_known_give_the_same_crc_as_pages_that_are_read() {
        let mut seed = 1_u32;
        let mut buf = BufMut::zeroed(64 << 10);
        for byte in buf.iter_mut() {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (seed >> 24) as u8;
        }
        let whole = buf.freeze();
        let head = Buf::from(&b"header"[..]);
        for range in [0..61_440, 4096..8192, 0..65_536, 61_440..65_536, 100..5000, 4096..4100, 4000..61_440] {
            let part = whole.slice(range);
            let expected = crc32c(&[&head[..], &part, &head].concat());
            // Twice: the second time the pages are known.
            for _ in 0..2 {
                assert_eq!(of(&[&head, &part, &head]), expected);
            }
        }
    }

    #[test]
    fn bytes_that_were_written_since_have_their_own_crc() {
        let first = BufMut::zeroed(32 << 10).freeze();
        assert_eq!(of(&[&first]), crc32c(&first));
        let mut again = first.try_into_mut().expect("nobody else has it");
        again[5000] = 1;
        let second = again.freeze();
        assert_eq!(of(&[&second]), crc32c(&second));
        drop(second);
        // The memory of the same size is taken again.
        let third = BufMut::zeroed(32 << 10).freeze();
        assert_eq!(of(&[&third]), crc32c(&third));
    }

    #[test]
    fn a_page_whose_crc_is_zero_is_no_exception() {
        // The last four bytes make up for the CRC of those before (RFC 3385 gives the arithmetic); here by search in its linearity.
        let mut page = vec![0_u8; PAGE_BYTES];
        let crc = |page: &[u8]| u32::from_le_bytes(crc32c(page));
        let base = crc(&page);
        // Each bit of the last four bytes changes the CRC by a value of its own; solve for the sum that is `base`.
        let mut rows: Vec<(u32, u32)> = (0..32)
            .map(|bit| {
                let mut one = page.clone();
                one[PAGE_BYTES - 4 + bit / 8] ^= 1 << (bit % 8);
                (crc(&one) ^ base, 1 << bit)
            })
            .collect();
        let (mut left, mut chosen) = (base, 0);
        for bit in 0..32 {
            let at = rows.iter().position(|row| row.0 >> bit & 1 == 1).expect("the bits are independent");
            let pivot = rows.swap_remove(at);
            for row in &mut rows {
                if row.0 >> bit & 1 == 1 {
                    *row = (row.0 ^ pivot.0, row.1 ^ pivot.1);
                }
            }
            if left >> bit & 1 == 1 {
                left ^= pivot.0;
                chosen ^= pivot.1;
            }
        }
        for bit in 0..32 {
            page[PAGE_BYTES - 4 + bit / 8] ^= ((chosen >> bit & 1) as u8) << (bit % 8);
        }
        assert_eq!(crc(&page), 0);
        let shared = Buf::from(&[&page[..]; 4].concat()[..]);
        assert_eq!(of(&[&shared]), crc32c(&shared));
        assert_eq!(of(&[&shared]), crc32c(&shared));
    }
}
