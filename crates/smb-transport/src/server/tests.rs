//! Clients of both transports at one service, over loopback.

use super::held::{Held, Verdict};
use super::smb_direct::{SmbDirect, SmbDirectLimits};
use super::tcp::{Tcp, TcpLimits};
use super::{Carrier, Clients, Origin, Outgoing, Service};
use crate::client::{Link, LinkError, LinkOptions, Way};
use rdma::iwarp::{IwarpOptions, IwarpProvider};
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use sys::driver::{Driver, DriverChoice};
use sys::{Buf, Payload, monotonic_now};
use types::Monotonic;

const PATIENCE: Duration = Duration::from_secs(20);

/// Answers each message with the same bytes, while it is willing.
#[derive(Default)]
struct Echo {
    is_busy: bool,
    /// The number of messages until it is busy.
    patience: Option<usize>,
    opened: Vec<(u64, Carrier)>,
    closed: Vec<u64>,
    handled: Vec<(u64, Vec<u8>)>,
    answers: BTreeMap<u64, VecDeque<Buf>>,
    to_transmit: Vec<u64>,
    to_close: Vec<u64>,
    /// Each answer is sent so often.
    repeats: usize,
    unsent: BTreeMap<u64, usize>,
}

impl Service for Echo {
    type Connection = u64;

    fn connection_opened(&mut self, origin: Origin, _: Monotonic) -> Option<u64> {
        let name = self.opened.len() as u64 + 1;
        self.opened.push((name, origin.carrier));
        Some(name)
    }

    fn connection_closed(&mut self, connection: u64, _: Monotonic) {
        self.closed.push(connection);
    }

    fn wants_messages(&self, _: u64) -> bool {
        !self.is_busy && self.patience != Some(0)
    }

    fn handle_message(&mut self, connection: u64, message: Buf, _: Monotonic) {
        assert!(self.wants_messages(connection), "a message that is not wanted");
        self.patience = self.patience.map(|left| left - 1);
        self.handled.push((connection, message.to_vec()));
        let answers = self.answers.entry(connection).or_default();
        answers.extend(std::iter::repeat_n(message, 1 + self.repeats));
        self.to_transmit.push(connection);
    }

    fn take_remote_read(&mut self, _: u64, _: u64, _: Option<Buf>, _: Monotonic) {
        unreachable!("nothing is read");
    }

    fn take_transmitters(&mut self, out: &mut Vec<u64>) {
        out.append(&mut self.to_transmit);
    }

    fn take_closing(&mut self, out: &mut Vec<u64>) {
        out.append(&mut self.to_close);
    }

    fn poll_message(&mut self, connection: u64) -> Option<Payload> {
        self.answers.get_mut(&connection)?.pop_front().map(Payload::from)
    }

    fn poll_outgoing(&mut self, connection: u64) -> Option<Outgoing> {
        let payload = self.poll_message(connection)?;
        Some(Outgoing::Message { payload, invalidate: None })
    }

    fn set_unsent(&mut self, connection: u64, bytes: usize) -> bool {
        self.unsent.insert(connection, bytes).is_some_and(|before| before > 0)
    }

    fn message_bytes_max(&self, _: u64) -> usize {
        1 << 20
    }

    fn user(&self, _: u64) -> Option<&str> {
        Some("ana")
    }
}

struct Bench {
    driver: Driver,
    clients: Clients<u64, IwarpProvider>,
    echo: Echo,
    tcp: SocketAddr,
    direct: SocketAddr,
}

impl Bench {
    fn new() -> Self {
        let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
        let bind = || TcpListener::bind("127.0.0.1:0").expect("a port");
        let listener = bind();
        let tcp = listener.local_addr().expect("an address");
        let mut provider = IwarpProvider::new(&driver, IwarpOptions::default(), rdma::random_names());
        let direct = provider.listen(bind()).expect("an address");
        let clients = Clients::new(
            Tcp::new(&driver, vec![listener], TcpLimits::default()).expect("listens"),
            SmbDirect::new(provider, smbdirect::Config::default(), SmbDirectLimits::default()),
        );
        Self { driver, clients, echo: Echo::default(), tcp, direct }
    }

    /// One client of each transport.
    fn links(&mut self) -> [Link; 2] {
        let options = LinkOptions { timeout: PATIENCE, crc: true, device: None };
        let stream = |address| TcpStream::connect(address).expect("listens");
        let ways = [Way::Tcp(stream(self.tcp)), Way::Iwarp(stream(self.direct))];
        let mut links = ways.map(|way| Link::new(&self.driver, way, &options).expect("a link"));
        self.until(&mut links, |bench, links| {
            links.iter().all(Link::is_ready) && bench.echo.opened.len() == 2
        });
        links
    }

    fn turn(&mut self, links: &mut [Link]) {
        let now = monotonic_now();
        self.clients.hear(&mut self.echo, now);
        self.clients.transmit(&mut self.echo);
        self.clients.put_on_wire(now);
        links.iter_mut().for_each(|link| link.poll(now));
        self.driver.wait(Some(Duration::from_millis(1))).expect("the loop");
    }

    fn until(&mut self, links: &mut [Link], mut holds: impl FnMut(&Self, &mut [Link]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self, links) {
            assert!(Instant::now() < deadline, "does not come");
            self.turn(links);
        }
    }

    fn rest(&mut self, links: &mut [Link]) {
        for _ in 0..50 {
            self.turn(links);
        }
    }
}

fn say(link: &mut Link, text: &str) {
    let len = crate::framing::MessageLength::new(text.len()).expect("is short");
    let head = [&len.header()[..], text.as_bytes()].concat();
    link.send(crate::client::Outgoing { head, payload: Payload::new() }).expect("is open");
}

/// Answers of both links, in the order of links.
fn hear(bench: &mut Bench, links: &mut [Link], count: usize) -> Vec<Vec<String>> {
    let mut heard = vec![Vec::new(); links.len()];
    bench.until(links, |_, links| {
        for (link, heard) in links.iter_mut().zip(&mut heard) {
            while let Some(message) = link.receive().expect("goes on") {
                heard.push(String::from_utf8(message.to_vec()).expect("is text"));
            }
        }
        heard.iter().all(|heard| heard.len() >= count)
    });
    heard
}

#[test]
fn both_transports_carry_messages_to_one_service_and_answers_to_their_senders() {
    let mut bench = Bench::new();
    let mut links = bench.links();
    let mut carriers: Vec<Carrier> = bench.echo.opened.iter().map(|(_, carrier)| *carrier).collect();
    carriers.sort_by_key(|carrier| *carrier == Carrier::SmbDirect);
    assert_eq!(carriers, [Carrier::Tcp, Carrier::SmbDirect]);
    say(&mut links[0], "by tcp");
    say(&mut links[1], "by rdma");
    assert_eq!(hear(&mut bench, &mut links, 1), [["by tcp"], ["by rdma"]]);
}

#[test]
fn messages_that_the_service_does_not_want_wait_in_order_by_either_transport() {
    let mut bench = Bench::new();
    let mut links = bench.links();
    bench.echo.is_busy = true;
    let texts: Vec<String> = (0..20).map(|number| format!("message {number}")).collect();
    for link in &mut links {
        texts.iter().for_each(|text| say(link, text));
    }
    bench.rest(&mut links);
    assert!(bench.clients.has_held() && bench.echo.handled.is_empty());
    // Some of them, and then all.
    (bench.echo.is_busy, bench.echo.patience) = (false, Some(7));
    bench.rest(&mut links);
    assert_eq!(bench.echo.handled.len(), 7);
    assert!(bench.clients.has_held());
    bench.echo.patience = None;
    let heard = hear(&mut bench, &mut links, 20);
    assert!(heard.iter().all(|heard| *heard == texts), "{heard:?}");
    assert!(!bench.clients.has_held());
}

#[test]
fn connections_that_the_service_closes_or_that_end_while_held_leave_nothing() {
    let mut bench = Bench::new();
    let mut links = bench.links();
    bench.echo.is_busy = true;
    links.iter_mut().for_each(|link| say(link, "is held"));
    bench.until(&mut links, |bench, _| bench.clients.has_held());
    bench.rest(&mut links);
    bench.echo.to_close = vec![1, 2];
    bench.until(&mut links, |bench, _| bench.echo.closed.len() == 2);
    assert!(!bench.clients.has_held() && bench.echo.handled.is_empty());
    bench.until(&mut links, |_, links| links.iter_mut().all(|link| link.receive().is_err()));
}

#[test]
fn nobody_is_let_in_while_the_server_drains() {
    let mut bench = Bench::new();
    let mut links = bench.links();
    bench.clients.drain();
    bench.rest(&mut links);
    let options = LinkOptions { timeout: PATIENCE, crc: true, device: None };
    let way = Way::Iwarp(TcpStream::connect(bench.direct).expect("the provider listens on"));
    let mut late = [Link::new(&bench.driver, way, &options).expect("a link")];
    let mut ended: Option<LinkError> = None;
    bench.until(&mut late, |_, late| {
        ended = ended.take().or_else(|| late[0].receive().err());
        ended.is_some()
    });
    assert_eq!(bench.echo.opened.len(), 2);
}

#[test]
fn a_connection_that_sends_without_end_is_given_up_and_its_later_messages_are_dropped() {
    let (mut held, mut echo, now) = (Held::default(), Echo::default(), Monotonic(0));
    let message = Buf::from(&vec![0u8; 1 << 20][..]);
    echo.is_busy = true;
    assert_eq!(held.offer(&mut echo, 1, message.clone(), now), Verdict::Hold { is_first: true });
    for _ in 1..40 {
        assert_eq!(held.offer(&mut echo, 1, message.clone(), now), Verdict::Hold { is_first: false });
    }
    assert_eq!(held.offer(&mut echo, 1, message.clone(), now), Verdict::Close);
    echo.is_busy = false;
    assert_eq!(held.offer(&mut echo, 1, message.clone(), now), Verdict::GoOn);
    assert_eq!(held.offer(&mut echo, 2, message, now), Verdict::GoOn);
    let mut resumed = Vec::new();
    held.resume(&mut echo, now, &mut resumed);
    assert_eq!((resumed.len(), echo.handled.len()), (0, 1), "only of the other connection");
    held.forget(1);
    assert!(held.is_empty());
}

#[test]
fn answers_that_a_client_does_not_read_are_told_by_either_transport_until_it_reads_them() {
    let mut bench = Bench::new();
    let mut links = bench.links();
    links.iter_mut().for_each(|link| say(link, "is let in"));
    hear(&mut bench, &mut links, 1);
    (bench.echo.repeats, bench.echo.is_busy) = (40, true);
    let long = "x".repeat(400_000);
    links.iter_mut().for_each(|link| say(link, &long));
    let kept = |bench: &Bench| [bench.clients.tcp().kept_bytes(), bench.clients.direct().kept_bytes()];
    bench.until(&mut links, |bench, _| kept(bench) == [400_000; 2]);
    // Both are answered when nobody reads any more: the messages on their way fit into no buffer.
    bench.echo.is_busy = false;
    bench.until(&mut [], |bench, _| [1, 2].iter().all(|name| bench.echo.unsent.get(name) > Some(&(1 << 20))));
    let heard = hear(&mut bench, &mut links, 41);
    assert!(heard.iter().flatten().all(|text| *text == long));
    bench.until(&mut links, |bench, _| bench.echo.unsent.values().all(|bytes| *bytes == 0));
}

#[test]
fn messages_that_are_held_are_counted_by_either_transport_until_the_service_takes_them() {
    let mut bench = Bench::new();
    let mut links = bench.links();
    links.iter_mut().for_each(|link| say(link, "is let in"));
    hear(&mut bench, &mut links, 1);
    bench.echo.is_busy = true;
    let long = "x".repeat(400_000);
    links.iter_mut().for_each(|link| say(link, &long));
    let kept = |bench: &Bench| [bench.clients.tcp().kept_bytes(), bench.clients.direct().kept_bytes()];
    bench.until(&mut links, |bench, _| kept(bench) == [400_000; 2]);
    bench.echo.is_busy = false;
    hear(&mut bench, &mut links, 1);
    bench.until(&mut links, |bench, _| kept(bench) == [0; 2]);
    // An ending connection drops its held messages.
    bench.echo.is_busy = true;
    links.iter_mut().for_each(|link| say(link, &long));
    bench.until(&mut links, |bench, _| kept(bench) == [400_000; 2]);
    bench.echo.to_close = vec![1, 2];
    bench.until(&mut links, |bench, _| bench.echo.closed.len() == 2);
    assert_eq!(kept(&bench), [0; 2]);
}
