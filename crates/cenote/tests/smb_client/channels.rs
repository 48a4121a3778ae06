//! One session over several connections: spread, lost, made anew, and the session itself lost.

use crate::fixture::{Server, pattern, plain};
use smb::wire::Dialect;
use smb_client::{Client, Encryption, File, OpenOptions, Options, Signing, Transport};
use std::time::{Duration, Instant};
use sys::{Buf, Payload};
use types::NtStatus;

const BLOCK: usize = 16_384;
const BLOCKS: usize = 64;

fn data(round: u64, block: usize) -> Vec<u8> {
    pattern(round << 32 | block as u64, BLOCK)
}

fn open(client: &mut Client, name: &str) -> File {
    let tree = client.tree_connect("demo").unwrap();
    client.open(tree, name, OpenOptions::overwrite().durable()).unwrap()
}

/// Writes all blocks of a round, many in flight; calls `disturb` with the number of blocks requested.
fn write_round(client: &mut Client, file: &File, round: u64, mut disturb: impl FnMut(&mut Client, usize)) {
    let mut asked = 0;
    let mut done = 0;
    while done < BLOCKS {
        while asked < BLOCKS && asked - done < 24 {
            let payload = Payload::from(Buf::from(&data(round, asked)[..]));
            client.submit_write(file, (asked * BLOCK) as u64, payload).unwrap();
            asked += 1;
            disturb(client, asked);
        }
        let (_, reply) = client.next_reply().unwrap().expect("answers are missing");
        assert_eq!(reply.written_bytes().unwrap() as usize, BLOCK);
        done += 1;
    }
}

fn verify_round(client: &mut Client, file: &File, round: u64, mut disturb: impl FnMut(&mut Client, usize)) {
    let mut asked = Vec::new();
    for block in 0..BLOCKS {
        let token = client.submit_read(file, (block * BLOCK) as u64, BLOCK as u32).unwrap();
        asked.push((token, block));
        disturb(client, block);
    }
    for (token, block) in asked {
        let reply = client.wait(token).unwrap();
        assert!(reply.read_data().unwrap()[..] == data(round, block), "block {block} of round {round}");
    }
}

fn until_channels(client: &mut Client, count: usize) {
    let start = Instant::now();
    while client.channel_count() != count {
        assert!(start.elapsed() < Duration::from_secs(20), "the connections are not made anew");
        client.echo().unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn one_session_goes_over_many_connections_whatever_protects_it() {
    let server = Server::start();
    for dialect in [Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
        for transport in [Transport::Tcp, Transport::Rdma] {
            for (signing, encryption) in [
                (Signing::IfRequired, Encryption::IfRequired),
                (Signing::Required, Encryption::IfRequired),
                (Signing::IfRequired, Encryption::Required),
            ] {
                let mut client = server.connect(Options {
                    oldest: dialect,
                    newest: dialect,
                    signing,
                    encryption,
                    channels: 3,
                    ..plain(transport)
                });
                assert_eq!(client.channel_count(), 3, "{dialect:?} {transport:?}");
                let file = open(&mut client, "spread.bin");
                write_round(&mut client, &file, 1, |_, _| {});
                verify_round(&mut client, &file, 1, |_, _| {});
                client.close(file).unwrap();
            }
        }
    }
}

#[test]
fn a_dialect_without_channels_has_one_connection() {
    let server = Server::start();
    let dialect = Dialect::Smb210;
    let options = Options { oldest: dialect, newest: dialect, channels: 4, ..plain(Transport::Tcp) };
    let mut client = server.connect(options);
    assert_eq!(client.channel_count(), 1);
    client.echo().unwrap();
    assert!(client.add_channel(Transport::Tcp, server.smb_port).is_err());
}

#[test]
fn payload_takes_the_rdma_connection_of_a_session_that_has_one() {
    let server = Server::start();
    let mut client = server.connect(Options {
        rdma_write_bytes_min: 4097,
        rdma_read_bytes_min: 4097,
        ..plain(Transport::Tcp)
    });
    let file = open(&mut client, "mixed.bin");
    client.add_channel(Transport::Rdma, server.rdma_port).unwrap();
    write_round(&mut client, &file, 1, |_, _| {});
    verify_round(&mut client, &file, 1, |_, _| {});
    assert_eq!(client.counters().rdma_written_bytes as usize, BLOCK * BLOCKS);
    // Without it TCP continues, and it returns.
    verify_round(&mut client, &file, 1, |client, block| {
        if block == 20 {
            client.kill_channel(1);
        }
    });
    assert_eq!(client.counters().channels_lost, 1);
    until_channels(&mut client, 2);
    assert!(client.is_rdma());
}

#[test]
fn requests_of_a_connection_that_dies_are_answered_over_the_others() {
    let server = Server::start();
    for transport in [Transport::Tcp, Transport::Rdma] {
        for signing in [Signing::IfRequired, Signing::Required] {
            let mut client = server.connect(Options { signing, channels: 3, ..plain(transport) });
            let file = open(&mut client, "killed.bin");
            for round in 0..4 {
                // The first connection of the session too.
                let victim = round as usize % 3;
                write_round(&mut client, &file, round, |client, asked| {
                    if asked == 40 {
                        client.kill_channel(victim);
                    }
                });
                verify_round(&mut client, &file, round, |client, block| {
                    if block == 30 {
                        client.kill_channel(victim);
                    }
                });
                until_channels(&mut client, 3);
            }
            let counters = client.counters();
            // In reading there may be fewer to kill: the one before is not made anew yet.
            assert!((4..=8).contains(&counters.channels_lost), "{counters:?}");
            assert_eq!(counters.reconnects, 0, "{counters:?}");
            assert!(counters.requests_repeated > 0, "{counters:?}");
            client.close(file).unwrap();
        }
    }
}

#[test]
fn a_durable_file_outlives_all_connections_and_what_was_not_answered_is_done() {
    let server = Server::start();
    for transport in [Transport::Tcp, Transport::Rdma] {
        let reconnect = Duration::from_secs(20);
        let mut client = server.connect(Options { channels: 2, reconnect, ..plain(transport) });
        let file = open(&mut client, "durable.bin");
        assert!(file.is_durable);
        for round in 0..3 {
            write_round(&mut client, &file, round, |client, asked| {
                if asked == 40 {
                    client.kill_channel(0);
                    client.kill_channel(1);
                }
            });
            verify_round(&mut client, &file, round, |_, _| {});
            until_channels(&mut client, 2);
        }
        let counters = client.counters();
        assert_eq!((counters.reconnects, counters.channels_lost), (3, 6), "{counters:?}");
        client.close(file).unwrap();
    }
}

#[test]
fn without_reconnect_the_end_of_the_last_connection_is_said_again_and_again() {
    let server = Server::start();
    let mut client = server.connect(plain(Transport::Tcp));
    let file = open(&mut client, "lost.bin");
    client.kill_channel(0);
    for _ in 0..3 {
        assert!(client.read_at(&file, 0, 100).is_err_and(|error| error.is_fatal()));
    }
}

/// A later session may call another file as a lost one called this one, so nothing that names a file of a lost session reaches the server.
#[test]
fn a_file_that_ended_with_its_session_answers_so_and_touches_no_other() {
    let server = Server::start();
    let mut client = server.connect(Options { reconnect: Duration::from_secs(20), ..plain(Transport::Tcp) });
    let tree = client.tree_connect("demo").unwrap();
    let kept = open(&mut client, "kept.bin");
    let gone = client.open(tree, "gone.bin", OpenOptions::overwrite()).unwrap();
    client.write_at(&kept, 0, &data(1, 0)).unwrap();
    client.write_at(&gone, 0, &data(2, 0)).unwrap();
    client.kill_channel(0);
    // One on its way when the connection ended, one after.
    for _ in 0..2 {
        let error = client.write_at(&gone, 0, &data(3, 0)).unwrap_err();
        assert_eq!(error.status(), Some(NtStatus::CONNECTION_DISCONNECTED), "{error}");
    }
    // In the present session's names, by the tree of the first one.
    let other = client.open(tree, "other.bin", OpenOptions::overwrite()).unwrap();
    client.write_at(&other, 0, &data(4, 0)).unwrap();
    client.kill_channel(0);
    assert!(client.flush(&other).is_err_and(|error| !error.is_fatal()));
    assert!(client.read_at(&kept, 0, BLOCK).unwrap() == data(1, 0));
    for (name, round) in [("gone.bin", 2), ("other.bin", 4)] {
        let file = client.open(tree, name, OpenOptions::read()).unwrap();
        assert!(client.read_at(&file, 0, BLOCK).unwrap() == data(round, 0), "{name}");
        client.close(file).unwrap();
    }
    client.close(kept).unwrap();
    assert_eq!(client.counters().reconnects, 2);
}
