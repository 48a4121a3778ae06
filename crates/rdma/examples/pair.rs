//! Two ends of one RDMA connection, each by a provider of its choice: every verb once, every byte compared, with its speed.
//!
//! `pair serve iwarp|device ADDRESS:PORT` waits for one connection; `pair run iwarp|device ADDRESS:PORT [MIB]` makes it. The running end
//! sends messages, writes into the serving end's memory and reads it back, and ends with status 0 only if all of it was right; the
//! serving end only if its memory holds what was written. So iWARP in software is tried against a device's, on siw or a card.

use rdma::ibverbs::{IbverbsOptions, IbverbsProvider};
use rdma::iwarp::{IwarpOptions, IwarpProvider};
use rdma::providers::Providers;
use rdma::{
    Access, CloseReason, Completion, CompletionKind, Event, QueuePairId, RegionKey, Status, Verbs, WorkId,
};
use std::collections::VecDeque;
use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use sys::driver::{Driver, DriverChoice};
use sys::{Buf, BufMut, Payload, monotonic_now};

type Failure = Box<dyn Error>;

/// Of each Write and Read.
const BLOCK_BYTES: usize = 256 << 10;
/// Writes, and reads if the peer serves as many, that are outstanding at a time.
const DEPTH: usize = 8;
const ROUNDS: usize = 50;
const MESSAGE_BYTES: usize = 4096;
/// A step that takes longer failed.
const BOUND: Duration = Duration::from_secs(60);
const USAGE: &str =
    "usage: pair serve iwarp|device ADDRESS:PORT\n       pair run iwarp|device ADDRESS:PORT [MIB]";

struct End {
    driver: Driver,
    providers: Providers,
    events: Vec<Event>,
    requests: VecDeque<QueuePairId>,
    established: bool,
    done: VecDeque<Completion>,
    ended: Option<CloseReason>,
}

impl End {
    fn new(provider: &str) -> Result<Self, Failure> {
        let driver = Driver::new(DriverChoice::Automatic)?;
        let (state, mut count) = (RandomState::new(), 0u64);
        let names = Box::new(move || {
            count += 1;
            state.hash_one(count) as u32
        });
        let iwarp = IwarpProvider::new(&driver, IwarpOptions::default(), names);
        let devices = match provider {
            "iwarp" => None,
            "device" => Some(IbverbsProvider::new(&driver, IbverbsOptions::default())?),
            _ => return Err(USAGE.into()),
        };
        Ok(Self {
            driver,
            providers: Providers::new(iwarp, devices),
            events: Vec::new(),
            requests: VecDeque::new(),
            established: false,
            done: VecDeque::new(),
            ended: None,
        })
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Result<(), Failure> {
        let end = Instant::now() + BOUND;
        loop {
            let now = monotonic_now();
            let mut events = std::mem::take(&mut self.events);
            self.providers.poll(now, &mut events);
            let quiet = events.is_empty();
            for event in events.drain(..) {
                match event {
                    Event::ConnectRequest { queue_pair, .. } => self.requests.push_back(queue_pair),
                    Event::Established { .. } => self.established = true,
                    Event::Completion(done) => self.done.push_back(done),
                    Event::Disconnected { reason, .. } => self.ended = Some(reason),
                }
            }
            self.events = events;
            if holds(self) {
                return Ok(());
            }
            if let Some(reason) = &self.ended {
                return Err(format!("{what}: the connection ended: {reason}").into());
            }
            if Instant::now() >= end {
                return Err(format!("{what}: not within {BOUND:?}").into());
            }
            if quiet {
                let timeout = self.providers.next_timeout().map_or(BOUND, |at| at.since(monotonic_now()));
                self.driver.wait(Some(timeout.min(Duration::from_secs(1))))?;
            }
        }
    }

    /// The next completion of a kind, which has to be a success.
    fn take(&mut self, kind: CompletionKind) -> Result<Completion, Failure> {
        self.until(&format!("a completion of {kind:?}"), |end| {
            end.done.iter().any(|done| done.kind == kind)
        })?;
        let at = self.done.iter().position(|done| done.kind == kind).ok_or("gone")?;
        let done = self.done.remove(at).ok_or("gone")?;
        match done.status {
            Status::Success => Ok(done),
            status => Err(format!("{kind:?} ended with {status:?}").into()),
        }
    }

    fn send(&mut self, pair: QueuePairId, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.providers.post_send(pair, WorkId(0), Payload::from(Buf::from(bytes)), None)?)
    }

    fn message(&mut self) -> Result<Vec<u8>, Failure> {
        let done = self.take(CompletionKind::Receive)?;
        Ok(done.buffer.ok_or("a message without bytes")?.to_vec())
    }

    fn receive(&mut self, pair: QueuePairId) -> Result<(), Failure> {
        Ok(self.providers.post_receive(pair, WorkId(0), MESSAGE_BYTES)?)
    }
}

/// Returns the content of a block by its number.
fn block(number: usize) -> Vec<u8> {
    let mut state = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    while bytes.len() < BLOCK_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

fn memory(bytes: &[u8]) -> BufMut {
    let mut memory = BufMut::for_overwrite(bytes.len());
    memory.copy_from_slice(bytes);
    memory
}

fn serve(provider: &str, address: SocketAddr) -> Result<(), Failure> {
    let mut end = End::new(provider)?;
    match &mut end.providers.devices {
        Some(devices) => println!("listening on {:?}", devices.listen(address)?),
        None => println!("listening on {}", end.providers.iwarp.listen(TcpListener::bind(address)?)?),
    }
    // As long as it takes until somebody comes: the caller bounds it.
    while end.requests.is_empty() {
        let _ = end.until("a request", |end| !end.requests.is_empty());
    }
    let pair = end.requests.pop_front().ok_or("gone")?;
    for _ in 0..4 {
        end.receive(pair)?;
    }
    end.providers.accept(pair, b"")?;
    end.until("a connection", |end| end.established)?;
    println!("connected: {:?}", end.providers.info(pair).ok_or("gone")?);
    // The running end speaks first (RFC 5044, 7.1.2), and says how many blocks it wants.
    let count = u32::from_le_bytes(end.message()?.try_into().map_err(|_| "no count of blocks")?) as usize;
    let access = Access { remote_read: true, remote_write: true, ..Access::default() };
    let target = end.providers.register(BufMut::zeroed(count * BLOCK_BYTES), access, pair)?;
    let mut answer = target.0.to_le_bytes().to_vec();
    answer.extend_from_slice(&end.providers.remote_offset(target).to_le_bytes());
    end.send(pair, &answer)?;
    loop {
        end.receive(pair)?;
        let message = end.message()?;
        end.send(pair, &message)?;
        end.take(CompletionKind::Send)?;
        if message == b"bye" {
            break;
        }
    }
    // The other end goes first: everything sent to it has arrived.
    end.until("the end", |end| end.ended.is_some())?;
    let held = end.providers.deregister(target).ok_or("the memory is gone")?;
    for (number, got) in held.chunks(BLOCK_BYTES).enumerate() {
        if got != block(number) {
            return Err(format!("block {number} is not what was written").into());
        }
    }
    println!("{count} blocks hold what was written");
    Ok(())
}

fn run(provider: &str, address: SocketAddr, mib: usize) -> Result<(), Failure> {
    let mut end = End::new(provider)?;
    let pair = if end.providers.devices.is_some() {
        end.providers.connect_by_device(address, b"", monotonic_now())?
    } else {
        end.providers.iwarp.connect(TcpStream::connect(address)?, b"", monotonic_now())?
    };
    end.until("a connection", |end| end.established)?;
    let info = end.providers.info(pair).ok_or("gone")?;
    println!("connected: {info:?}");
    let count = (mib << 20) / BLOCK_BYTES;
    end.receive(pair)?;
    end.send(pair, &(count as u32).to_le_bytes())?;
    let answer = end.message()?;
    let (key, offset) = answer.split_at_checked(4).ok_or("a short answer")?;
    let key = RegionKey(u32::from_le_bytes(key.try_into()?));
    let offset = u64::from_le_bytes(offset.try_into()?);

    let began = Instant::now();
    for round in 0..ROUNDS {
        let said = &block(round)[..MESSAGE_BYTES];
        end.receive(pair)?;
        end.send(pair, said)?;
        if end.message()? != said {
            return Err("another message came back".into());
        }
    }
    println!(
        "send: {ROUNDS} round trips of {MESSAGE_BYTES} bytes, {:?} each",
        began.elapsed() / ROUNDS as u32
    );

    let began = Instant::now();
    let place = |number: usize| (key, offset + (number * BLOCK_BYTES) as u64);
    for number in 0..count {
        if number >= DEPTH {
            end.take(CompletionKind::Write)?;
        }
        let payload = Payload::from(Buf::from(&block(number)[..]));
        end.providers.post_write(pair, WorkId(0), payload, place(number))?;
    }
    for _ in 0..count.min(DEPTH) {
        end.take(CompletionKind::Write)?;
    }
    // A message is delivered after what was written before it.
    end.receive(pair)?;
    end.send(pair, b"written")?;
    end.message()?;
    show("write", count, began.elapsed());

    let began = Instant::now();
    let depth = DEPTH.min(usize::from(info.outbound_read_depth)).max(1);
    let mut sinks = VecDeque::new();
    for number in 0..count + depth {
        if number >= depth {
            end.take(CompletionKind::Read)?;
            let sink = sinks.pop_front().ok_or("gone")?;
            let got = end.providers.deregister(sink).ok_or("the memory is gone")?;
            if got[..] != block(number - depth) {
                return Err(format!("block {} comes back as another", number - depth).into());
            }
        }
        if number < count {
            let sink = end.providers.register(memory(&[0; BLOCK_BYTES]), Access::default(), pair)?;
            sinks.push_back(sink);
            end.providers.post_read(pair, WorkId(0), (sink, 0), BLOCK_BYTES as u32, place(number))?;
        }
    }
    show("read", count, began.elapsed());

    end.receive(pair)?;
    end.send(pair, b"bye")?;
    end.message()?;
    end.providers.disconnect(pair);
    end.until("the end", |end| end.ended.is_some())?;
    println!("everything was right");
    Ok(())
}

fn show(what: &str, blocks: usize, took: Duration) {
    let mib = (blocks * BLOCK_BYTES) as f64 / f64::from(1 << 20);
    println!("{what}: {mib} MiB, {:.1} MiB/s", mib / took.as_secs_f64().max(1e-9));
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", provider, address] => serve(provider, address.parse()?),
        ["run", provider, address] => run(provider, address.parse()?, 8),
        ["run", provider, address, mib] => {
            run(provider, address.parse()?, mib.parse::<usize>()?.clamp(1, 1024))
        }
        _ => Err(USAGE.into()),
    }
}
