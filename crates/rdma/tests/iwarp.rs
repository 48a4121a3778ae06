//! The provider in software over real sockets on loopback, on both backends of the loop, as a server uses it (`Providers`).

mod conformance;

use conformance::{Bench, conformance};
use rdma::iwarp::{IwarpOptions, IwarpProvider};
use rdma::providers::Providers;
use rdma::{CloseReason, RegionKey, Verbs, WorkId};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use sys::driver::{Driver, DriverChoice};
use sys::{Buf, Payload};

fn bench(choice: DriverChoice) -> Option<(Bench<Providers>, SocketAddr)> {
    let driver = Driver::new(choice).ok()?;
    let mut seed = 0x1357_9BDFu32;
    let random = Box::new(move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed
    });
    let mut provider = IwarpProvider::new(&driver, IwarpOptions::default(), random);
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = provider.listen(listener).expect("has an address");
    let begin = move |providers: &mut Providers, private_data: &[u8], now| {
        let stream = TcpStream::connect(address).expect("listens");
        providers.iwarp.connect(stream, private_data, now).expect("is taken")
    };
    let counts = |providers: &Providers| (providers.iwarp.queue_pair_count(), providers.iwarp.registered().1);
    Some((Bench::new(driver, Providers::new(provider, None), Box::new(begin), counts), address))
}

fn with_address(run: impl Fn(Bench<Providers>, SocketAddr)) {
    let mut ran = 0;
    for choice in [DriverChoice::IoUring, DriverChoice::Fallback] {
        if let Some((bench, address)) = bench(choice) {
            run(bench, address);
            ran += 1;
        }
    }
    assert!(ran > 0, "no backend works here");
}

fn on_both(run: impl Fn(Bench<Providers>)) {
    with_address(|bench, _| run(bench));
}

conformance!(on_both);

#[test]
fn the_end_that_was_wrong_and_the_end_that_found_out_say_so() {
    on_both(|mut bench| {
        let (client, server) = bench.connect();
        let payload = Payload::from(Buf::from(&b"x"[..]));
        bench.subject.post_write(client, WorkId(1), payload, (RegionKey(7), 0)).expect("is open");
        bench.until("both ends", |bench| bench.disconnected.len() == 2);
        for (queue_pair, reason) in &bench.disconnected {
            match reason {
                CloseReason::TerminatedByPeer(_) => assert_eq!(*queue_pair, client),
                CloseReason::Terminated(_) => assert_eq!(*queue_pair, server),
                other => panic!("{other}"),
            }
        }
    });
}

#[test]
fn bytes_that_are_no_mpa_close_the_connection_without_an_event_for_the_owner_to_answer() {
    with_address(|mut bench, address| {
        let mut stream = TcpStream::connect(address).expect("listens");
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("is sent");
        bench.until("end", |bench| bench.disconnected.len() == 1);
        assert!(bench.requests.is_empty());
        assert_eq!(bench.counts().0, 0);
    });
}
