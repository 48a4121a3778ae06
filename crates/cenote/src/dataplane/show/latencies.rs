//! Latencies of requests and disk operations, for the control plane.

use crate::dataplane::clients::SmbServer;
use api::model::Latency;
use node::disk_slot::DiskSlot;
use node::disks::Disks;
use smb_server::RequestKind;
use std::cell::RefCell;
use types::LatencyHistogram;

/// Shows the times of requests by kind, and of each disk's operations.
pub(super) fn show_latencies(server: &SmbServer, disks: &Disks) -> Vec<Latency> {
    let requests = RequestKind::ALL.map(|kind| Latency {
        name: "smb_request".to_owned(),
        help: "From a request's arrival to its answer, without requests that wait for another client."
            .to_owned(),
        labels: vec![("operation".to_owned(), request_kind(kind).to_owned())],
        histogram: *server.latency(kind),
    });
    let slots = disks.slots();
    requests.into_iter().chain(slots.values().flat_map(of_disk)).collect()
}

fn of_disk(slot: &DiskSlot) -> [Latency; 3] {
    let of = |operation: &str, histogram: &RefCell<LatencyHistogram>| Latency {
        name: "disk_io".to_owned(),
        help: "From an operation's submission to the disk's answer.".to_owned(),
        labels: vec![
            ("disk".to_owned(), slot.record.id.to_string()),
            ("operation".to_owned(), operation.to_owned()),
        ],
        histogram: *histogram.borrow(),
    };
    let counters = &slot.counters;
    [
        of("read", &counters.read_latency),
        of("write", &counters.write_latency),
        of("flush", &counters.flush_latency),
    ]
}

const fn request_kind(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Read => "read",
        RequestKind::Write => "write",
        RequestKind::Metadata => "metadata",
    }
}
