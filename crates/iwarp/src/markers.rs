//! Markers (RFC 5044 section 4.3): a sender puts one into every 512 bytes of the stream if its peer asks for them at start-up.
//!
//! Only what is sent: this end never asks for markers. Bytes are copied here, since a marker may fall into payload; hardware that asks
//! for markers is of the time of RDMAC.

use crate::crc::Crc32c;
use crate::framing::{CRC_BYTES, Outgoing};
use sys::{Buf, Payload};

/// Bytes from the start of one marker to the start of the next.
const INTERVAL_BYTES: usize = 512;
const MARKER_BYTES: usize = 4;

/// Longest ULPDU whose FPDU fits the effective maximum segment size with markers in it (RFC 5044 section 5).
pub const fn ulpdu_bytes_for_segment(segment_bytes: usize) -> usize {
    let markers = segment_bytes.div_ceil(INTERVAL_BYTES) * MARKER_BYTES;
    crate::framing::ulpdu_bytes_for_segment(segment_bytes.saturating_sub(markers))
}

/// Where the stream stands between two markers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Markers {
    /// Bytes until the next one; the first stands before the first FPDU.
    until_next: usize,
}

impl Markers {
    /// A stream that has come this many bytes past its first FPDU's beginning.
    pub fn at(position: u64) -> Self {
        let past = (position % INTERVAL_BYTES as u64) as usize;
        Self { until_next: if past == 0 { 0 } else { INTERVAL_BYTES - past } }
    }

    /// FPDUs as they stand in the stream. A marker counts in the CRC of the FPDU that it falls into; one between two belongs to the
    /// second.
    pub fn join(&mut self, fpdus: &Outgoing, crc: bool) -> Payload {
        let plain: usize = fpdus
            .parts()
            .map(|(front, payload, trailer)| {
                front.len() + payload.map(<[u8]>::len).sum::<usize>() + trailer.len()
            })
            .sum();
        let mut out =
            Vec::with_capacity(plain + (plain / (INTERVAL_BYTES - MARKER_BYTES) + 2) * MARKER_BYTES);
        for (front, payload, trailer) in fpdus.parts() {
            let first = out.len();
            self.mark(&mut out, first);
            let start = out.len();
            self.put(&mut out, front, start);
            for part in payload {
                self.put(&mut out, part, start);
            }
            self.put(&mut out, &trailer[..trailer.len() - CRC_BYTES], start);
            self.mark(&mut out, start);
            let mut sum = [0; CRC_BYTES];
            if crc {
                let mut digest = Crc32c::default();
                digest.update(&out[first..]);
                sum = digest.wire_bytes();
            }
            self.put(&mut out, &sum, start);
        }
        Payload::from(Buf::from(&out[..]))
    }

    /// Puts a marker if one is due; it points back to the FPDU's length field at `start`.
    fn mark(&mut self, out: &mut Vec<u8>, start: usize) {
        if self.until_next == 0 {
            let pointer = (out.len() - start) as u16;
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&pointer.to_be_bytes());
            self.until_next = INTERVAL_BYTES - MARKER_BYTES;
        }
    }

    fn put(&mut self, out: &mut Vec<u8>, mut bytes: &[u8], start: usize) {
        while !bytes.is_empty() {
            self.mark(out, start);
            let (now, later) = bytes.split_at(bytes.len().min(self.until_next));
            out.extend_from_slice(now);
            self.until_next -= now.len();
            bytes = later;
        }
    }
}
