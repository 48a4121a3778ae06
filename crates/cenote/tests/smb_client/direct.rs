//! SMB Direct: transfers by RDMA, transfers in messages, and work without it.

use crate::fixture::{Server, pattern, plain};
use smb::crypto::{CipherId, SigningAlgorithm};
use smb::wire::Dialect;
use smb_client::ping::{self, PingError};
use smb_client::{Client, Encryption, Engine, File, OpenOptions, Options, Reply, Signing, Token, Transport};
use std::time::{Duration, Instant};
use sys::{Buf, Payload};
use types::NtStatus;

const MIB: usize = 1 << 20;

/// Writes, reads back and compares: lengths around the threshold, a page and the largest operation.
fn carry(client: &mut Client, name: &str) {
    let largest = client.limits().write_bytes as usize;
    carry_up_to(client, name, largest);
}

fn carry_up_to(client: &mut Client, name: &str, largest: usize) {
    let tree = client.tree_connect("demo").unwrap();
    let file = client.open(tree, name, OpenOptions::overwrite()).unwrap();
    for len in [1, 4096, 4097, 65_536, 300_001, largest] {
        let data = pattern(len as u64, len);
        client.write_at(&file, 0, &data).unwrap();
        assert!(client.read_at(&file, 0, len).unwrap() == data, "{name}: {len} bytes came back otherwise");
    }
    assert_eq!(client.file_status(&file).unwrap().size_bytes, largest as u64);
    // The file's end lies within the range read, and before it.
    assert_eq!(client.read_at(&file, largest as u64 - 10_000, 40_000).unwrap().len(), 10_000);
    let behind = client.submit_read(&file, largest as u64, 65_536).unwrap();
    assert_eq!(client.wait(behind).unwrap().status(), NtStatus::END_OF_FILE);
    client.flush(&file).unwrap();
    client.close(file).unwrap();
}

/// Payload of more than 4 KiB goes by RDMA.
fn lending(options: Options) -> Options {
    Options { rdma_write_bytes_min: 4097, rdma_read_bytes_min: 4097, ..options }
}

#[test]
fn payload_goes_by_rdma_on_plain_sessions_and_comes_back_whole() {
    let server = Server::start_with(&["--allow-unsigned"]);
    for dialect in [Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
        for rdma_crc in [true, false] {
            let options = Options { oldest: dialect, newest: dialect, rdma_crc, ..plain(Transport::Rdma) };
            let mut client = server.connect(lending(options));
            assert!(client.is_rdma());
            carry(&mut client, "plain.bin");
            let counters = client.counters();
            assert!(counters.rdma_written_bytes > 8 << 20, "{counters:?}");
            assert!(counters.rdma_read_bytes > 8 << 20, "{counters:?}");
            // Requests, answers, and the payload under the threshold.
            assert!(counters.sent_bytes < 1 << 20 && counters.received_bytes < 1 << 20, "{counters:?}");
        }
    }
}

#[test]
fn what_is_signed_or_encrypted_goes_by_rdma_as_well_protected() {
    let server = Server::start();
    let algorithms = [SigningAlgorithm::AesGmac, SigningAlgorithm::AesCmac, SigningAlgorithm::HmacSha256];
    let ciphers = [CipherId::Aes128Gcm, CipherId::Aes256Ccm];
    let signed = algorithms.map(|algorithm| Options {
        signing: Signing::Required,
        signing_algorithms: vec![algorithm],
        ..plain(Transport::Rdma)
    });
    let sealed = ciphers.map(|cipher| Options {
        encryption: Encryption::Required,
        ciphers: vec![cipher],
        ..plain(Transport::Rdma)
    });
    for options in signed.into_iter().chain(sealed) {
        for channels in [1, 3] {
            let mut client = server.connect(lending(Options { channels, ..options.clone() }));
            assert_eq!(client.channel_count(), channels);
            carry_up_to(&mut client, "transformed.bin", 500_000);
            let counters = client.counters();
            // All bytes but those under the threshold.
            assert!(counters.rdma_written_bytes > 860_000, "{counters:?}");
            assert!(counters.rdma_read_bytes > 860_000, "{counters:?}");
            assert!(counters.sent_bytes < 50_000 && counters.received_bytes < 50_000, "{counters:?}");
        }
    }
}

#[test]
fn a_write_that_fits_one_transfer_goes_in_it_and_a_longer_one_by_rdma() {
    let server = Server::start();
    for signing in [Signing::IfRequired, Signing::Required] {
        let mut client = server.connect(Options { signing, ..plain(Transport::Rdma) });
        let tree = client.tree_connect("demo").unwrap();
        let file = client.open(tree, "inline.bin", OpenOptions::overwrite()).unwrap();
        let mut expected = Vec::new();
        for len in [4096, 65_536, 65_537, MIB, MIB + 1] {
            let before = client.counters();
            let data = pattern(len as u64, len);
            client.write_at(&file, expected.len() as u64, &data).unwrap();
            expected.extend_from_slice(&data);
            let sent_bytes = (client.counters().sent_bytes - before.sent_bytes) as usize;
            let remote_bytes = (client.counters().rdma_written_bytes - before.rdma_written_bytes) as usize;
            assert_eq!(remote_bytes, if len > MIB { len } else { 0 });
            assert!((sent_bytes > len) == (len <= MIB) && sent_bytes < MIB + 500, "{len}: {sent_bytes}");
        }
        assert!(client.read_at(&file, 0, expected.len()).unwrap() == expected);
        client.close(file).unwrap();
    }
}

#[test]
fn a_read_comes_in_its_answer_as_far_as_one_transfer_holds_it_and_is_asked_to() {
    let server = Server::start();
    for (rdma_read_bytes_min, most_inline) in
        [(4097, 4096), (Options::default().rdma_read_bytes_min, 65_536), (u32::MAX, MIB)]
    {
        for signing in [Signing::IfRequired, Signing::Required] {
            let options = Options { signing, rdma_read_bytes_min, ..plain(Transport::Rdma) };
            let mut client = server.connect(options);
            let tree = client.tree_connect("demo").unwrap();
            let file = client.open(tree, "answers.bin", OpenOptions::overwrite()).unwrap();
            let data = pattern(1, MIB + 4096);
            client.write_at(&file, 0, &data).unwrap();
            for len in [1, 4096, 4097, 65_536, 65_537, MIB, MIB + 4096] {
                let before = client.counters();
                assert!(client.read_at(&file, 0, len).unwrap() == data[..len]);
                let remote_bytes = (client.counters().rdma_read_bytes - before.rdma_read_bytes) as usize;
                assert_eq!(
                    remote_bytes,
                    if len > most_inline { len } else { 0 },
                    "{rdma_read_bytes_min}: {len}"
                );
            }
            client.close(file).unwrap();
        }
    }
}

#[test]
fn of_many_long_writes_at_once_some_go_in_transfers_and_the_rest_by_rdma_or_later() {
    let server = Server::start();
    // Without transforms payload that is signed stays in messages.
    for (signing, rdma_transform) in [(Signing::IfRequired, true), (Signing::Required, false)] {
        let options = Options { signing, rdma_transform, ..plain(Transport::Rdma) };
        let mut client = server.connect(options);
        let tree = client.tree_connect("demo").unwrap();
        let file = client.open(tree, "many.bin", OpenOptions::overwrite()).unwrap();
        let blocks: Vec<Vec<u8>> = (0..100).map(|nth| pattern(nth, MIB)).collect();
        let mut tokens = Vec::new();
        for (nth, block) in blocks.iter().enumerate() {
            let payload = Payload::from(Buf::from(&block[..]));
            tokens.push(client.submit_write(&file, (nth * MIB) as u64, payload).unwrap());
        }
        for token in tokens {
            assert_eq!(client.wait(token).unwrap().written_bytes().unwrap() as usize, MIB);
        }
        let counters = client.counters();
        let remote_bytes = counters.rdma_written_bytes as usize;
        assert_eq!(remote_bytes, if rdma_transform { 68 * MIB } else { 0 }, "{counters:?}");
        assert_eq!(counters.channels_lost, 0);
        for (nth, block) in blocks.iter().enumerate() {
            assert!(client.read_at(&file, (nth * MIB) as u64, MIB).unwrap() == *block, "{nth}");
        }
        client.close(file).unwrap();
    }
}

#[test]
fn without_transforms_what_is_signed_or_encrypted_stays_in_messages() {
    let server = Server::start();
    for (signing, encryption) in
        [(Signing::Required, Encryption::IfRequired), (Signing::IfRequired, Encryption::Required)]
    {
        let options = Options { signing, encryption, rdma_transform: false, ..plain(Transport::Rdma) };
        let mut client = server.connect(options);
        carry(&mut client, "protected.bin");
        let counters = client.counters();
        assert_eq!((counters.rdma_read_bytes, counters.rdma_written_bytes), (0, 0));
        assert!(counters.sent_bytes > 400_000, "{counters:?}");
    }
}

#[test]
fn a_dialect_without_rdma_goes_in_messages() {
    let server = Server::start();
    let options = Options { oldest: Dialect::Smb210, newest: Dialect::Smb210, ..plain(Transport::Rdma) };
    let mut client = server.connect(options);
    carry(&mut client, "old.bin");
    assert_eq!(client.counters().rdma_read_bytes, 0);
}

#[test]
fn a_payload_in_many_parts_is_fetched_part_by_part() {
    let server = Server::start();
    let mut client = server.connect(plain(Transport::Rdma));
    let tree = client.tree_connect("demo").unwrap();
    let file = client.open(tree, "parts.bin", OpenOptions::overwrite()).unwrap();
    for parts in [2, 16, 40] {
        let whole = pattern(parts, 10_007 * parts as usize);
        let mut payload = Payload::new();
        whole.chunks(10_007).for_each(|part| payload.push(Buf::from(part)));
        let token = client.submit_write(&file, 0, payload).unwrap();
        assert_eq!(client.wait(token).unwrap().written_bytes().unwrap() as usize, whole.len());
        assert!(client.read_at(&file, 0, whole.len()).unwrap() == whole);
    }
}

/// Reads in flight on several clients of one loop, until each has had `count` answers that are right.
fn read_on_all(engine: &Engine, clients: &mut [(Client, File)], count: u64) {
    const LEN: u32 = 32_768;
    let mut asked: Vec<Vec<(Token, u64)>> = clients.iter().map(|_| Vec::new()).collect();
    let mut left: Vec<u64> = clients.iter().map(|_| count).collect();
    let expected = pattern(7, 64 * LEN as usize);
    let mut answers: Vec<(Token, Reply)> = Vec::new();
    let start = Instant::now();
    while left.iter().any(|&left| left > 0) || asked.iter().any(|asked| !asked.is_empty()) {
        assert!(start.elapsed() < Duration::from_secs(60), "reads stand still");
        let mut moved = false;
        for (index, (client, file)) in clients.iter_mut().enumerate() {
            while left[index] > 0 && asked[index].len() < 16 {
                left[index] -= 1;
                let offset = left[index] % 64 * u64::from(LEN);
                asked[index].push((client.submit_read(file, offset, LEN).unwrap(), offset));
            }
            client.poll(&mut answers).unwrap();
            for (token, reply) in answers.drain(..) {
                moved = true;
                let at = asked[index].iter().position(|(asked, _)| *asked == token).expect("was asked");
                let offset = asked[index].swap_remove(at).1 as usize;
                assert!(reply.read_data().unwrap()[..] == expected[offset..offset + LEN as usize]);
            }
        }
        if !moved {
            engine.wait(Duration::from_secs(1)).unwrap();
        }
    }
}

#[test]
fn clients_of_either_transport_share_one_loop() {
    let server = Server::start();
    let engine = Engine::new().unwrap();
    let mut clients = Vec::new();
    for transport in [Transport::Rdma, Transport::Tcp, Transport::Rdma] {
        let mut client = server.connect_on(&engine, lending(plain(transport))).unwrap();
        let tree = client.tree_connect("demo").unwrap();
        let file = client.open(tree, "shared.bin", OpenOptions::write()).unwrap();
        if clients.is_empty() {
            client.write_at(&file, 0, &pattern(7, 64 * 32_768)).unwrap();
        }
        clients.push((client, file));
    }
    read_on_all(&engine, &mut clients, 200);
    assert!(clients[0].0.counters().rdma_read_bytes >= 200 * 32_768);
    assert_eq!(clients[1].0.counters().rdma_read_bytes, 0);
}

#[test]
fn without_a_listener_the_automatic_choice_is_tcp_and_says_why() {
    let server = Server::start();
    let auto = Options { rdma_port: server.rdma_port, ..plain(Transport::Auto) };
    let client = server.connect(auto.clone());
    assert!(client.is_rdma() && client.fallback().is_none());
    // A port where nobody listens, and one where nobody speaks MPA.
    for rdma_port in [1, server.smb_port] {
        let mut client = server.connect(Options { rdma_port, ..auto.clone() });
        assert!(!client.is_rdma());
        assert!(client.fallback().is_some());
        client.echo().unwrap();
    }
    let none = Client::connect("127.0.0.1", 1, Server::credentials(), plain(Transport::Rdma));
    assert!(none.is_err_and(|error| error.is_fatal()));
}

#[test]
fn smb_direct_of_another_server_on_the_same_host_is_not_taken_for_the_one_that_was_named() {
    let (named, other) = (Server::start(), Server::start());
    let auto = Options { rdma_port: other.rdma_port, ..plain(Transport::Auto) };
    let mut client = named.connect(auto);
    assert!(!client.is_rdma());
    assert!(client.fallback().is_some_and(|why| why.contains("another one")), "{:?}", client.fallback());
    let tree = client.tree_connect("demo").unwrap();
    client.open(tree, "here.bin", OpenOptions::write()).unwrap();
    let mut there = other.connect(plain(Transport::Tcp));
    let tree = there.tree_connect("demo").unwrap();
    assert!(there.open(tree, "here.bin", OpenOptions::read()).is_err());
}

#[test]
fn nobody_is_asked_at_the_port_of_smb_direct_unless_the_server_tells_of_it() {
    // Not at the address that clients come by.
    let server = Server::start_at("127.0.0.2", &[]);
    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    let rdma_port = stranger.local_addr().unwrap().port();
    let client = server.connect(Options { rdma_port, ..plain(Transport::Auto) });
    assert!(!client.is_rdma() && client.fallback().is_some());
    assert!(stranger.accept().is_err(), "the stranger was called");
}

#[test]
fn the_way_to_a_server_is_checked_without_a_logon() {
    let server = Server::start();
    let settings = |port| ping::Settings {
        host: format!("127.0.0.1:{port}"),
        count: 20,
        step_timeout: Duration::from_secs(10),
        crc: true,
    };
    let report = ping::ping(&settings(server.rdma_port)).unwrap();
    assert_eq!((report.dialect.as_str(), report.crc), ("3.1.1", true));
    assert!(report.smb2_read_bytes_max as usize >= MIB && report.read_write_bytes_max as usize >= MIB);
    let counts: Vec<(usize, u32)> =
        report.round_trips.iter().map(|times| (times.message_bytes, times.count)).collect();
    assert_eq!(counts, [(68, 20), (4096, 20)]);
    let error = ping::ping(&settings(server.smb_port)).unwrap_err();
    assert!(matches!(error, PingError::Rdma { .. }), "{error}");
}
