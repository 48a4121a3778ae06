//! The bus as an independent reader sees it: Wireshark's dissector. If tshark is not installed the test
//! says so and passes.

use crate::operations::write;
use crate::world::{Carried, World, disk, peer_at};
use space::message::ReplicaOperation;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use types::{ChunkIndex, Lba};

/// Most bytes of one recorded segment.
const SEGMENT_BYTES: usize = 16 << 10;
const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 1], 50_000);
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 445);

/// Bytes in both directions, in order. `true`: to the server.
type Recording = Arc<Mutex<Vec<(bool, Vec<u8>)>>>;

fn copy(mut from: TcpStream, mut to: TcpStream, is_to_server: bool, recording: Recording) {
    let mut bytes = [0; 32 << 10];
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            break;
        }
        recording.lock().unwrap().push((is_to_server, bytes[..count].to_vec()));
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Records the one connection that comes.
fn record(listener: TcpListener, server: std::net::SocketAddr, recording: Recording) {
    let (client, _) = listener.accept().unwrap();
    let server = TcpStream::connect(server).unwrap();
    let (from, to, kept) = (client.try_clone().unwrap(), server.try_clone().unwrap(), recording.clone());
    std::thread::spawn(move || copy(from, to, true, kept));
    std::thread::spawn(move || copy(server, client, false, recording));
}

/// One segment of TCP in IPv4, without checksums, on which no reader insists.
fn segment(is_to_server: bool, sequence: u32, acknowledged: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let ((from, from_port), (to, to_port)) = if is_to_server { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
    let mut out = vec![0x45, 0];
    out.extend_from_slice(&(40 + bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
    out.extend_from_slice(&from);
    out.extend_from_slice(&to);
    out.extend_from_slice(&from_port.to_be_bytes());
    out.extend_from_slice(&to_port.to_be_bytes());
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(&acknowledged.to_be_bytes());
    out.extend_from_slice(&[0x50, flags, 0xFF, 0xFF, 0, 0, 0, 0]);
    out.extend_from_slice(bytes);
    out
}

/// The recording as a capture of raw IP (LINKTYPE_RAW).
fn capture(recording: &[(bool, Vec<u8>)]) -> Vec<u8> {
    const ACK: u8 = 0x10;
    const SYN: u8 = 2;
    let mut packets = vec![
        segment(true, 0, 0, SYN, &[]),
        segment(false, 0, 1, SYN | ACK, &[]),
        segment(true, 1, 1, ACK, &[]),
    ];
    let (mut sent, mut received) = (1_u32, 1_u32);
    for (is_to_server, bytes) in recording {
        for part in bytes.chunks(SEGMENT_BYTES) {
            let (mine, other) = if *is_to_server { (&mut sent, received) } else { (&mut received, sent) };
            packets.push(segment(*is_to_server, *mine, other, ACK, part));
            *mine += part.len() as u32;
        }
    }
    let mut out = Vec::new();
    for word in [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, 1 << 18, 101] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for (at, packet) in packets.iter().enumerate() {
        for word in [1, at as u32, packet.len() as u32, packet.len() as u32] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(packet);
    }
    out
}

#[test]
fn tshark_reads_the_bus() {
    if !Path::new("/usr/bin/tshark").exists() {
        eprintln!("skipped: tshark is not installed");
        return;
    }
    let mut world = World::new(2, Carried::Tcp);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let between = listener.local_addr().unwrap();
    let server = world.nodes[1].serving.as_ref().unwrap().address;
    let recording = Recording::default();
    let kept = recording.clone();
    std::thread::spawn(move || record(listener, server, kept));
    world.nodes[0].remote.set_peers(vec![peer_at(2, between)]);
    world.reach_peers(0);
    world.open(0, disk(2), 1, 5).unwrap();
    world.call(0, disk(2), 1, 5, ReplicaOperation::Allocate { chunk: ChunkIndex(0), append: false }).unwrap();
    world.call(0, disk(2), 1, 5, write(0, 16, 9)).unwrap();
    world.call(0, disk(2), 1, 5, ReplicaOperation::Read { lba: Lba(0), blocks: 16 }).unwrap();
    world.call(0, disk(2), 1, 4, ReplicaOperation::Promise).unwrap_err();

    let directory = std::env::temp_dir().join(format!("cenote-bus-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("bus.pcap");
    std::fs::write(&file, capture(&recording.lock().unwrap())).unwrap();
    let fields =
        ["smb2.cmd", "smb2.nt_status", "smb2.tree", "smb2.filename", "smb2.read_length", "smb2.write_length"];
    let mut tshark = Command::new("/usr/bin/tshark");
    tshark.arg("-r").arg(&file).args([
        "-Y",
        "smb2",
        "-T",
        "fields",
        "-E",
        "separator=;",
        "-e",
        "_ws.malformed",
    ]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().unwrap();
    let _ = std::fs::remove_dir_all(&directory);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(';').collect()).collect();
    let has = |what: &str, is_so: &dyn Fn(&[&str]) -> bool| {
        assert!(lines.iter().any(|line| is_so(line)), "{what}:\n{text}");
    };
    assert!(lines.iter().all(|line| line[0].is_empty()), "malformed:\n{text}");
    has("TREE_CONNECT of the share", &|line| line[1] == "3" && line[3].ends_with("bus$"));
    has("CREATE of the disk", &|line| line[1] == "5" && line[4].contains(&disk(2).to_string()));
    has("WRITE of 16 blocks", &|line| line[1] == "9" && line[6] == (16 * 4104 + 28).to_string());
    has("READ of 16 blocks", &|line| line[1] == "8" && line[5] == (16 * 4104).to_string());
    has("IOCTL", &|line| line[1] == "11");
    has("the refusal of an old epoch", &|line| line[1] == "11" && line[2] == "0xc000042a");
}
