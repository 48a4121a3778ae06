//! The file of the dashboard's history.
#![no_main]

use dashboard::history::{FILE_BYTES, HEADER_BYTES, History, POINT_BYTES, SERIES, Span};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    check(input);
    // Behind a header that is ours, in the first places and in the last ones.
    let mut bytes = History::header().to_vec();
    bytes.extend(input);
    check(&bytes);
    let mut old = History::header_v1().to_vec();
    old.extend(input);
    check(&old);
    bytes.truncate(HEADER_BYTES);
    bytes.resize(FILE_BYTES - input.len().min(FILE_BYTES - HEADER_BYTES) / POINT_BYTES * POINT_BYTES, 0);
    bytes.extend(input);
    check(&bytes);
});

fn check(bytes: &[u8]) {
    let history = History::parse(bytes);
    for span in Span::ALL {
        for now_unix_s in [0, 1_800_000_000, u64::MAX] {
            let columns = history.columns(span, now_unix_s);
            assert!(columns.at_unix_s.len() <= span.points());
            assert!(columns.at_unix_s.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(columns.at_unix_s.iter().all(|at| *at <= now_unix_s));
            assert_eq!(columns.values.len(), SERIES.len());
            assert!(columns.values.iter().all(|values| values.len() == columns.at_unix_s.len()));
        }
    }
}
