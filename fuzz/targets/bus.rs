//! Messages of nodes on the storage bus: every parser, and a whole share of disks that a node speaks to.
#![no_main]

use bus::{Exports, wire};
use libfuzzer_sys::fuzz_target;
use records::{FaultDomain, MemoryClient, MemoryState, Provisioning, Resiliency, Typed, VolumeRecord};
use smb::wire::fsctl;
use space::coordinator::Config;
use space::fake_store::FakeStore;
use space::local::LocalSpace;
use std::sync::Arc;
use std::time::Duration;
use sys::{Buf, Payload};
use types::{DiskId, Epoch, Monotonic, PoolId, Sid, VolumeId};
use volume::backend::{
    AccessToken, Backend, ByteRange, Caller, Event, OpenDevice, OpenId, Operation, OperationId, Privileges,
    Reply, SessionId, ShareOptions, ShareRoot, Standing,
};

const DISK: DiskId = DiskId::from_bytes([2; 16]);

fn parse(input: &[u8]) {
    let _ = wire::parse_session(input);
    let _ = wire::parse_opened(input);
    let _ = wire::parse_read(&Buf::from(input), u32::from(input.first().copied().unwrap_or(0) & 3));
    for code in (fsctl::BUS_PROMISE..=fsctl::BUS_STATUS).step_by(4) {
        if let Ok((epoch, operation)) = wire::parse_control(code, input) {
            let (again, bytes, _) = wire::control_of(epoch, &operation).expect("it was an FSCTL");
            assert_eq!(again, code);
            assert!(wire::parse_control(code, &bytes).is_ok());
        }
    }
    if let Ok(chunks) = wire::parse_chunks(input) {
        let mut bytes = Vec::new();
        wire::put_chunks(&mut bytes, &chunks);
        assert_eq!(bytes, input);
    }
    if let Ok(regions) = wire::parse_regions(input) {
        assert_eq!(wire::put_regions(&regions), input);
    }
    if let Ok(error) = wire::parse_refusal(input) {
        assert!(wire::put_refusal(&error).0.is_error());
    }
    if let Ok(reports) = wire::parse_status(input) {
        assert_eq!(
            wire::put_status(&reports, true, input.len()).expect("as much as came").len(),
            input.len()
        );
    }
    if let Ok(question) = wire::parse_status_request(input) {
        // The asker's own part takes 24 bytes.
        assert!(wire::put_status_request(&question.cursors).len() <= input.len() + 24);
    }
}

fn caller(session: u64) -> Caller {
    let token = AccessToken {
        user: Sid::cluster_nodes().child(2).expect("a node"),
        primary_group: Sid::cluster_nodes(),
        groups: vec![Sid::cluster_nodes()],
        privileges: Privileges::empty(),
    };
    Caller {
        session: SessionId(session),
        client: [0; 16],
        token: Arc::new(token),
        root: ShareRoot::VOLUME,
        share_access: u32::MAX,
        share: ShareOptions::default(),
        standing: Standing::none(),
    }
}

/// The next request of the input, of one of two peers, on one of the existing opens.
fn request(kind: u8, which: u8, bytes: &[u8], opens: &[OpenId]) -> Operation {
    let open =
        opens.get(usize::from(which) % opens.len().max(1)).copied().unwrap_or(OpenId(u64::from(which)));
    let number = u64::from(which);
    match kind % 8 {
        0 => Operation::OpenDevice(Box::new(OpenDevice {
            caller: caller(number & 1),
            path: DISK.to_string().encode_utf16().collect(),
            context: bytes.to_vec(),
        })),
        1 => Operation::Read {
            open,
            range: ByteRange { offset: number * 4096, len_bytes: bytes.len() as u64 * 4104 },
            unbuffered: false,
        },
        2 => {
            // A WRITE is long: the input is its end.
            let mut data = Payload::from(Buf::from(&[7_u8; 8192][..usize::from(which & 3) * 2730]));
            data.push(Buf::from(bytes));
            Operation::Write { open, offset: number * 4096, data, write_through: true, unbuffered: false }
        }
        3 => Operation::Close { open, query: false },
        4 => Operation::EndSession { session: SessionId(number & 1) },
        5 => Operation::Flush { open },
        _ => Operation::Control {
            open,
            code: fsctl::BUS_PROMISE + 4 * u32::from(which & 7),
            input: bytes.to_vec(),
            output_bytes_max: 4096,
        },
    }
}

fn serve(mut input: &[u8]) {
    let state = MemoryState::new();
    let (volume, pool) = (VolumeId::from_bytes([0; 16]), PoolId::from_bytes([1; 16]));
    let mut record =
        VolumeRecord::new(volume, pool, "v", Resiliency::Simple, 1 << 30, Provisioning::Thin, vec![DISK], 0);
    record.epoch = Epoch(1 << 20);
    state.write(&record, 0).expect("a record");
    let space: LocalSpace<FakeStore, MemoryClient> =
        LocalSpace::new(state.client(), Config::default(), 1024, 0, Monotonic(1));
    space.attach_disk(DISK, FakeStore::new(1024, 4), FaultDomain::default()).expect("a disk");
    let mut exports = Exports::new(space);
    let (mut now, mut asked, mut answered) = (Monotonic(1), 0, 0);
    let (mut opens, mut events) = (Vec::new(), Vec::new());
    while let [kind, which, len, rest @ ..] = input {
        let (bytes, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        input = rest;
        asked += 1;
        exports.submit(OperationId(asked), request(*kind, *which, bytes, &opens), now);
        exports.poll(&mut events);
        for event in events.drain(..) {
            let Event::Done { result, .. } = event else { continue };
            answered += 1;
            if let Ok(Reply::DeviceOpened { open, .. }) = result {
                opens.push(open);
            }
        }
    }
    // Unanswered requests are given up in time.
    now = now.after(Duration::from_secs(100));
    exports.handle_timeout(now);
    exports.poll(&mut events);
    let done = |event: &&Event| matches!(event, Event::Done { .. });
    answered += events.iter().filter(done).count() as u64;
    assert_eq!(asked, answered, "every request is answered, and once");
}

fuzz_target!(|input: &[u8]| {
    parse(input);
    serve(input);
});
