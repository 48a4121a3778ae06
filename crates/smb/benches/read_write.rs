//! Measures the wire cost of one READ or WRITE: request parsed, header and body of the answer built.
//!
//! `cargo bench -p cenote-smb` prints nanoseconds per operation. `--count KIND N` runs N operations of a kind and nothing else: the
//! difference between two counts under callgrind is the instructions of an operation.

use smb::wire::{
    Command, FileId, Header, HeaderFlags, ReadRequest, ReadRequestBody, ResponseTo, WriteRequest,
    WriteRequestBody, read_response_head, split_compound, write_read_request, write_response,
    write_write_request,
};
use std::hint::black_box;
use std::time::Instant;
use types::NtStatus;
use zerocopy::IntoBytes;

const BLOCK_BYTES: u32 = 4096;
const ROUNDS: usize = 9;
const OPERATIONS: u64 = 2_000_000;

fn request(command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut header = Header::new(command);
    header.credit_charge = 1.into();
    header.credits = 1.into();
    header.message_id = 77.into();
    header.session_id = 0x1_0000_0009.into();
    header.tree_id = 5.into();
    let mut out = header.as_bytes().to_vec();
    let mut tail = Vec::new();
    body(&mut tail);
    out.extend_from_slice(&tail);
    out
}

fn file_id() -> FileId {
    FileId { persistent: 3.into(), volatile: 4.into() }
}

fn answer_to(header: &Header, command: Command) -> Header {
    let to = ResponseTo {
        command,
        message_id: header.message_id.get(),
        session_id: header.session_id.get(),
        tree_id: header.tree_id.get(),
        credit_charge: header.credit_charge.get(),
        flags: header.flags() & HeaderFlags::RELATED_OPERATIONS,
    };
    to.header(NtStatus::SUCCESS, header.credits.get())
}

/// As the server does it: the element cut out of its chain, header, body, and the head of the answer.
fn read(message: &[u8]) -> [u8; 80] {
    let (element, _) = split_compound(message).expect("a good chain");
    let header = Header::parse(element).expect("a good header");
    let request = ReadRequest::parse(element).expect("a good request");
    black_box((request.offset.get(), request.file_id, request.minimum_count.get(), request.channel.get()));
    read_response_head(&answer_to(header, Command::Read), request.length.get())
}

fn write(message: &[u8]) -> [u8; 81] {
    let (element, _) = split_compound(message).expect("a good chain");
    let header = Header::parse(element).expect("a good header");
    let request = WriteRequest::parse(element).expect("a good request");
    black_box((
        request.offset.get(),
        request.file_id,
        request.flags.get(),
        request.data_range().expect("its data"),
    ));
    write_response(&answer_to(header, Command::Write), request.length.get())
}

fn main() {
    let length = BLOCK_BYTES.into();
    let read_message = request(Command::Read, |out| {
        write_read_request(out, ReadRequestBody { length, file_id: file_id(), ..Default::default() }, &[]);
    });
    let write_message = request(Command::Write, |out| {
        write_write_request(out, WriteRequestBody { length, file_id: file_id(), ..Default::default() }, &[]);
        out.resize(out.len() + BLOCK_BYTES as usize, 7);
    });
    let run = |kind: &str, count: u64| {
        for _ in 0..count {
            match kind {
                "read" => drop(black_box(read(black_box(&read_message)))),
                _ => drop(black_box(write(black_box(&write_message)))),
            }
        }
    };
    let words: Vec<String> = std::env::args().collect();
    if let Some(at) = words.iter().position(|word| word == "--count") {
        let (kind, count) = (&words[at + 1], words[at + 2].parse().expect("a number"));
        return run(kind, count);
    }
    for kind in ["read", "write"] {
        run(kind, OPERATIONS / 10);
        let mut nanoseconds: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                run(kind, OPERATIONS);
                start.elapsed().as_secs_f64() * 1e9 / OPERATIONS as f64
            })
            .collect();
        nanoseconds.sort_by(f64::total_cmp);
        println!(
            "{kind:5}: parsed and answered in {:.1} ns (median of {ROUNDS}; least {:.1})",
            nanoseconds[ROUNDS / 2],
            nanoseconds[0]
        );
    }
}
