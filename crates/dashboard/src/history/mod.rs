//! The server's work in the last hour, day and month: one point per second, ten seconds and five minutes.
//!
//! A point's place follows from its time, and each carries its own checksum: so the file never grows,
//! needs no head, and a torn write costs only the points that it tore. The file:
//!
//! | bytes | |
//! |---|---|
//! | 0..64 | header: magic, version, number of series, checksum of what stands before it |
//! | 64.. | 3,600 points of a second, 8,640 of ten, 8,640 of 300, each [`POINT_BYTES`] |
//!
//! Version 1 had the first sixteen series. Its points are read, and the file is written anew in the present version when it is opened.
//!
//! A point: time (Unix seconds, 8 bytes), a value of 4 bytes for each series (not a number: none), checksum (CRC-64/NVME, 8 bytes) of what
//! stands before it. Numbers are little-endian.

mod keeper;

pub use keeper::Keeper;

use crate::rates::Sample;
use serde::Serialize;

/// The values of a point, in this order; units in names.
pub const SERIES: [&str; 21] = [
    "read_operations_per_s",
    "write_operations_per_s",
    "metadata_operations_per_s",
    "read_bytes_per_s",
    "write_bytes_per_s",
    "read_p50_us",
    "read_p99_us",
    "write_p50_us",
    "write_p99_us",
    "disk_read_bytes_per_s",
    "disk_write_bytes_per_s",
    "cache_hit_ratio",
    "rdma_bytes_per_s",
    "sessions",
    "read_p999_us",
    "write_p999_us",
    "allocated_bytes",
    "cpu_percent",
    "memory_used_bytes",
    "network_received_bytes_per_s",
    "network_sent_bytes_per_s",
];

pub const POINT_BYTES: usize = point_bytes(SERIES.len());
/// Number of series in version 1.
const SERIES_V1: usize = 16;
pub const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"CenoHist";
const VERSION: u32 = 2;
/// Size of the whole file.
pub const FILE_BYTES: usize =
    HEADER_BYTES + (Span::Hour.points() + Span::Day.points() + Span::Month.points()) * POINT_BYTES;

const fn point_bytes(series: usize) -> usize {
    8 + series * 4 + 8
}

/// A stretch of time up to now, and the time between its points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    Hour,
    Day,
    Month,
}

impl Span {
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Month];

    pub const fn step_s(self) -> u64 {
        match self {
            Self::Hour => 1,
            Self::Day => 10,
            Self::Month => 300,
        }
    }

    pub const fn points(self) -> usize {
        match self {
            Self::Hour => 3600,
            Self::Day | Self::Month => 8640,
        }
    }

    /// Points before its own in the file.
    const fn first(self) -> usize {
        match self {
            Self::Hour => 0,
            Self::Day => Self::Hour.points(),
            Self::Month => Self::Hour.points() + Self::Day.points(),
        }
    }

    const fn place(self, at_unix_s: u64) -> usize {
        (at_unix_s / self.step_s()) as usize % self.points()
    }

    pub fn named(name: &str) -> Option<Self> {
        match name {
            "hour" => Some(Self::Hour),
            "day" => Some(Self::Day),
            "month" => Some(Self::Month),
            _ => None,
        }
    }
}

/// Rates in the time that ends at the point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub at_unix_s: u64,
    /// Values by [`SERIES`]; NaN: none.
    pub values: [f32; SERIES.len()],
}

impl Point {
    pub fn new(at_unix_s: u64, sample: &Sample) -> Self {
        let Sample { read, write, metadata, machine, .. } = sample;
        let optional = |value: Option<f64>| value.unwrap_or(f64::NAN);
        let values = [
            read.operations_per_s,
            write.operations_per_s,
            metadata.operations_per_s,
            read.bytes_per_s,
            write.bytes_per_s,
            optional(read.latency.p50_us),
            optional(read.latency.p99_us),
            optional(write.latency.p50_us),
            optional(write.latency.p99_us),
            sample.disk_read_bytes_per_s,
            sample.disk_write_bytes_per_s,
            optional(sample.cache_hit_ratio),
            sample.rdma_bytes_per_s,
            sample.sessions as f64,
            optional(read.latency.p999_us),
            optional(write.latency.p999_us),
            optional(sample.allocated_bytes.map(|bytes| bytes as f64)),
            optional(machine.cpu_percent),
            optional(machine.memory_used_bytes.map(|bytes| bytes as f64)),
            optional(machine.received_bytes_per_s),
            optional(machine.sent_bytes_per_s),
        ];
        Self { at_unix_s, values: values.map(|value| value as f32) }
    }

    fn to_bytes(self) -> [u8; POINT_BYTES] {
        let mut bytes = [0; POINT_BYTES];
        let (body, checksum) = bytes.split_at_mut(POINT_BYTES - 8);
        let (time, values) = body.split_at_mut(8);
        time.copy_from_slice(&self.at_unix_s.to_le_bytes());
        for (place, value) in values.chunks_exact_mut(4).zip(self.values) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        let sum = codes::crc64(body);
        checksum.copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Parses a point of any version, from its bytes. `None`: it is damaged, or was never written.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
        let (time, values) = body.split_first_chunk::<8>()?;
        let is_whole = u64::from_le_bytes(checksum.try_into().ok()?) == codes::crc64(body);
        // A fuzzer does not guess checksums.
        if !is_whole && !cfg!(fuzzing) {
            return None;
        }
        let mut point = Self { at_unix_s: u64::from_le_bytes(*time), values: [f32::NAN; SERIES.len()] };
        for (value, bytes) in point.values.iter_mut().zip(values.chunks_exact(4)) {
            *value = f32::from_le_bytes(bytes.try_into().ok()?);
        }
        (point.at_unix_s > 0).then_some(point)
    }
}

/// The points of all spans.
pub struct History {
    points: Vec<Option<Point>>,
}

impl Default for History {
    fn default() -> Self {
        Self { points: vec![None; (FILE_BYTES - HEADER_BYTES) / POINT_BYTES] }
    }
}

/// A span's points as columns, the oldest first.
#[derive(Debug, Default, Serialize)]
pub struct Columns {
    pub step_s: u64,
    pub series: &'static [&'static str],
    pub at_unix_s: Vec<u64>,
    /// Values by series; `null`: none.
    pub values: Vec<Vec<Option<f32>>>,
}

impl History {
    /// Reads a file's bytes: damaged points are left out, and all of them if the header is another one's.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut history = Self::default();
        let Some((header, points)) = bytes.split_at_checked(HEADER_BYTES) else { return history };
        let series = match header {
            header if header == Self::header() => SERIES.len(),
            header if header == Self::header_v1() => SERIES_V1,
            _ => return history,
        };
        for span in Span::ALL {
            let own =
                points.chunks_exact(point_bytes(series)).enumerate().skip(span.first()).take(span.points());
            for (place, bytes) in own {
                // A point in another's place was misdirected.
                let parsed =
                    Point::parse(bytes).filter(|point| span.first() + span.place(point.at_unix_s) == place);
                if let Some(kept) = history.points.get_mut(place) {
                    *kept = parsed;
                }
            }
        }
        history
    }

    pub fn header() -> [u8; HEADER_BYTES] {
        Self::header_of(VERSION, SERIES.len())
    }

    pub fn header_v1() -> [u8; HEADER_BYTES] {
        Self::header_of(1, SERIES_V1)
    }

    fn header_of(version: u32, series: usize) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&version.to_le_bytes());
        header[12..16].copy_from_slice(&(series as u32).to_le_bytes());
        let checksum = codes::crc64(&header[..HEADER_BYTES - 8]);
        header[HEADER_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// The whole file in the present version.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; FILE_BYTES];
        let (header, points) = bytes.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&Self::header());
        for (place, point) in points.chunks_exact_mut(POINT_BYTES).zip(&self.points) {
            if let Some(point) = point {
                place.copy_from_slice(&point.to_bytes());
            }
        }
        bytes
    }

    /// Takes a point, and returns the bytes to write to the file, and their offset.
    pub fn put(&mut self, span: Span, point: Point) -> (u64, [u8; POINT_BYTES]) {
        let place = span.first() + span.place(point.at_unix_s);
        self.points[place] = Some(point);
        ((HEADER_BYTES + place * POINT_BYTES) as u64, point.to_bytes())
    }

    /// The points of the span that ends now.
    pub fn columns(&self, span: Span, now_unix_s: u64) -> Columns {
        let from = now_unix_s.saturating_sub(span.step_s() * span.points() as u64);
        let own = self.points.iter().skip(span.first()).take(span.points()).flatten();
        let mut points: Vec<&Point> =
            own.filter(|point| point.at_unix_s > from && point.at_unix_s <= now_unix_s).collect();
        points.sort_unstable_by_key(|point| point.at_unix_s);
        let column = |series: usize| {
            let values = points.iter().map(|point| point.values[series]);
            values.map(|value| value.is_finite().then_some(value)).collect()
        };
        Columns {
            step_s: span.step_s(),
            series: &SERIES,
            at_unix_s: points.iter().map(|point| point.at_unix_s).collect(),
            values: (0..SERIES.len()).map(column).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_800_000_000;

    fn point(at_unix_s: u64, value: f32) -> Point {
        Point { at_unix_s, values: [value; SERIES.len()] }
    }

    /// A file of these points of a second.
    fn file(points: impl Iterator<Item = Point>) -> Vec<u8> {
        let mut bytes = vec![0; FILE_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&History::header());
        let mut history = History::default();
        for point in points {
            let (at, written) = history.put(Span::Hour, point);
            bytes[at as usize..][..POINT_BYTES].copy_from_slice(&written);
        }
        bytes
    }

    #[test]
    fn an_hour_is_kept_and_what_is_older_is_written_over() {
        let bytes = file((0..5000).map(|second| point(NOW - 5000 + second, second as f32)));
        let columns = History::parse(&bytes).columns(Span::Hour, NOW);
        assert_eq!((columns.at_unix_s.len(), columns.step_s), (3599, 1));
        assert_eq!(columns.at_unix_s.last(), Some(&(NOW - 1)));
        assert!(columns.at_unix_s.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(columns.values[3].last(), Some(&Some(4999.0)));
    }

    #[test]
    fn a_torn_write_costs_the_point_that_it_tore() {
        let mut bytes = file((0..100).map(|second| point(NOW - 100 + second, 1.0)));
        let torn = HEADER_BYTES + Span::Hour.place(NOW - 50) * POINT_BYTES + 20;
        bytes[torn..torn + 12].fill(0xff);
        let columns = History::parse(&bytes).columns(Span::Hour, NOW);
        assert_eq!(columns.at_unix_s.len(), 99);
        assert!(!columns.at_unix_s.contains(&(NOW - 50)));
    }

    #[test]
    fn a_point_in_anothers_place_is_left_out() {
        let mut bytes = file([point(NOW - 7, 1.0)].into_iter());
        let at = HEADER_BYTES + Span::Hour.place(NOW - 7) * POINT_BYTES;
        bytes.copy_within(at..at + POINT_BYTES, at + POINT_BYTES);
        assert_eq!(History::parse(&bytes).columns(Span::Hour, NOW).at_unix_s, [NOW - 7]);
    }

    #[test]
    fn points_of_the_future_are_not_shown() {
        let bytes = file([point(NOW + 60, 1.0), point(NOW, 2.0)].into_iter());
        assert_eq!(History::parse(&bytes).columns(Span::Hour, NOW).at_unix_s, [NOW]);
    }

    #[test]
    fn spans_do_not_share_places() {
        let mut history = History::default();
        for span in Span::ALL {
            history.put(span, point(NOW, span.step_s() as f32));
        }
        for span in Span::ALL {
            let columns = history.columns(span, NOW);
            assert_eq!(columns.values[0], [Some(span.step_s() as f32)]);
        }
    }

    #[test]
    fn a_file_of_another_version_or_length_holds_nothing() {
        let bytes = file([point(NOW, 1.0)].into_iter());
        let mut other = bytes.clone();
        other[8] = 9;
        for bytes in [&other[..], &bytes[..10], &[]] {
            assert!(History::parse(bytes).columns(Span::Hour, NOW).at_unix_s.is_empty());
        }
        assert!(!History::parse(&bytes[..FILE_BYTES - 1]).columns(Span::Hour, NOW).at_unix_s.is_empty());
    }

    #[test]
    fn a_file_of_version_1_keeps_its_points_and_lacks_what_it_did_not_have() {
        let old = |at_unix_s: u64| {
            let mut bytes = point(at_unix_s, 7.0).to_bytes()[..8 + SERIES_V1 * 4].to_vec();
            let checksum = codes::crc64(&bytes);
            bytes.extend(checksum.to_le_bytes());
            bytes
        };
        let mut bytes =
            vec![0; HEADER_BYTES + (FILE_BYTES - HEADER_BYTES) / POINT_BYTES * point_bytes(SERIES_V1)];
        bytes[..HEADER_BYTES].copy_from_slice(&History::header_v1());
        for span in Span::ALL {
            let at = HEADER_BYTES + (span.first() + span.place(NOW)) * point_bytes(SERIES_V1);
            bytes[at..at + point_bytes(SERIES_V1)].copy_from_slice(&old(NOW));
        }
        let read = History::parse(&bytes);
        // Written in the present version it is the same.
        for history in [&read, &History::parse(&read.to_bytes())] {
            for span in Span::ALL {
                let columns = history.columns(span, NOW);
                assert_eq!((columns.at_unix_s[..].to_vec(), columns.values[15][0]), (vec![NOW], Some(7.0)));
                assert_eq!(columns.values[16], [None]);
            }
        }
    }

    #[test]
    fn what_is_not_a_number_is_none() {
        let bytes = file([point(NOW, f32::NAN)].into_iter());
        assert_eq!(History::parse(&bytes).columns(Span::Hour, NOW).values[5], [None]);
    }

    proptest! {
        #[test]
        fn any_damage_leaves_points_in_order(damage in proptest::collection::vec((0..FILE_BYTES, any::<u8>()), 0..64)) {
            let mut bytes = file((0..50).map(|second| point(NOW - 50 + second, 1.0)));
            for (at, byte) in damage {
                bytes[at] = byte;
            }
            let columns = History::parse(&bytes).columns(Span::Hour, NOW);
            prop_assert!(columns.at_unix_s.len() <= 50);
            prop_assert!(columns.at_unix_s.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
