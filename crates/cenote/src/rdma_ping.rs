//! A check of the way to an SMB Direct server without logging on: what both ends agree on, and how long messages take.
//!
//! Owns its own loop, sockets and connection. Steps: TCP, RDMA (MPA), the SMB Direct negotiation, SMB2 NEGOTIATE, then SMB2 ECHO in messages of
//! 64 bytes and of 4 KiB. Every wait is bounded. Never sends a name or a password.

use rdma::iwarp::{IwarpOptions, IwarpProvider};
use rdma::{
    CloseReason, CompletionKind, ConnectionInfo, Event, QueuePairId, RegionKey, Status, Verbs, WorkId,
};
use serde::Serialize;
use smb::wire::{
    CONTEXT_PREAUTH_INTEGRITY, Command, Dialect, HEADER_BYTES, Header, NegotiateRequestBody,
    NegotiateResponse, PreauthIntegrity, put_context, write_negotiate_request,
};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use sys::driver::{Driver, DriverChoice};
use sys::{Buf, Payload};
use types::Monotonic;
use zerocopy::IntoBytes;

/// Where SMB Direct over iWARP listens.
pub const PORT: u16 = 5445;
/// Bytes of the larger message.
pub const LARGE_BYTES: usize = 4096;

#[derive(Debug, Clone)]
pub struct Options {
    /// HOST or HOST:PORT.
    pub host: String,
    /// Round trips of each size.
    pub count: u32,
    pub step_timeout: Duration,
    pub crc: bool,
}

/// Times of round trips in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RoundTrips {
    pub message_bytes: usize,
    pub count: u32,
    pub min_us: f64,
    pub median_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub server: SocketAddr,
    pub transport: &'static str,
    pub crc: bool,
    /// RDMA Reads that this end serves at a time, and that the server serves.
    pub inbound_read_depth: u16,
    pub outbound_read_depth: u16,
    pub connect_tcp_us: f64,
    pub connect_rdma_us: f64,
    /// With the time for which the first message is held back for siw's sake.
    pub negotiate_smb_direct_us: f64,
    pub send_bytes_max: u32,
    pub receive_bytes_max: u32,
    pub read_write_bytes_max: u32,
    pub send_credits: u16,
    pub negotiate_smb2_us: f64,
    pub dialect: String,
    pub smb2_read_bytes_max: u32,
    pub smb2_write_bytes_max: u32,
    pub round_trips: Vec<RoundTrips>,
}

/// Why the server is not reached; the message says at which step, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PingError {
    #[error("{host} has no address: {reason}")]
    Resolve { host: String, reason: String },
    #[error(
        "{server} does not answer over TCP: {reason}; does its SMB Direct listen there, and does a firewall let port 5445 through?"
    )]
    Tcp { server: String, reason: String },
    #[error("this machine lacks what is needed: {0}")]
    Local(String),
    #[error("{server} takes TCP but speaks no iWARP (MPA): {reason}; is that port SMB Direct over iWARP?")]
    Rdma { server: String, reason: String },
    #[error("{server} ended the connection in the {step}: {reason}")]
    Ended { server: String, step: &'static str, reason: String },
    #[error("{server} gave no answer in the {step} within {seconds} s")]
    TimedOut { server: String, step: &'static str, seconds: u64 },
    #[error("{server} answers the {step} with what is no SMB2")]
    NoSmb2 { server: String, step: &'static str },
}

struct Ping {
    driver: Driver,
    provider: IwarpProvider,
    pair: QueuePairId,
    smbd: smbdirect::Connection,
    server: String,
    began: Instant,
    step_timeout: Duration,
    established: bool,
    negotiated: bool,
    ended: Option<String>,
    messages: Vec<Buf>,
    events: Vec<Event>,
    message_id: u64,
}

/// Does all steps.
///
/// # Errors
/// [`PingError`] names the step that failed.
pub fn ping(options: &Options) -> Result<Report, PingError> {
    let (address, stream, connect_tcp) = connect(options)?;
    let mut ping = Ping::new(options, address.to_string(), stream)?;
    let connect_rdma = ping.until("RDMA connection", |ping| ping.established)?;
    let negotiate_smb_direct = ping.until("SMB Direct negotiation", |ping| ping.negotiated)?;
    let info = ping.info()?;
    let (negotiate_smb2, dialect, reads, writes) = ping.negotiate()?;
    let mut round_trips = Vec::new();
    for message_bytes in [HEADER_BYTES + 4, LARGE_BYTES] {
        round_trips.push(ping.round_trips(message_bytes, options.count)?);
    }
    Ok(Report {
        server: address,
        transport: "iWARP",
        crc: info.crc,
        inbound_read_depth: info.inbound_read_depth,
        outbound_read_depth: info.outbound_read_depth,
        connect_tcp_us: microseconds(connect_tcp),
        connect_rdma_us: microseconds(connect_rdma),
        negotiate_smb_direct_us: microseconds(negotiate_smb_direct),
        send_bytes_max: ping.smbd.send_bytes_max(),
        receive_bytes_max: ping.smbd.receive_bytes_max(),
        read_write_bytes_max: ping.smbd.read_write_bytes_max(),
        send_credits: ping.smbd.send_credits(),
        negotiate_smb2_us: microseconds(negotiate_smb2),
        dialect,
        smb2_read_bytes_max: reads,
        smb2_write_bytes_max: writes,
        round_trips,
    })
}

fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

fn connect(options: &Options) -> Result<(SocketAddr, TcpStream, Duration), PingError> {
    let host = &options.host;
    let unresolved = |reason: String| PingError::Resolve { host: host.clone(), reason };
    // An address of IPv6 without port has colons of its own.
    let addresses = match host.to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(_) => (host.trim_matches(['[', ']']), PORT)
            .to_socket_addrs()
            .map_err(|error| unresolved(error.to_string()))?,
    };
    let mut last = unresolved("none was found".to_owned());
    for address in addresses {
        let began = Instant::now();
        match TcpStream::connect_timeout(&address, options.step_timeout) {
            Ok(stream) => return Ok((address, stream, began.elapsed())),
            Err(error) => last = PingError::Tcp { server: address.to_string(), reason: error.to_string() },
        }
    }
    Err(last)
}

impl Ping {
    fn new(options: &Options, server: String, stream: TcpStream) -> Result<Self, PingError> {
        let local = |error: std::io::Error| PingError::Local(error.to_string());
        let driver = Driver::new(DriverChoice::Automatic).map_err(local)?;
        let crc = if options.crc { iwarp::CrcPolicy::On } else { iwarp::CrcPolicy::OffUnlessAsked };
        let random = Box::new(|| {
            let mut bytes = [0; 4];
            // Nothing is registered here, so that nothing can be guessed.
            let _ = getrandom::fill(&mut bytes);
            u32::from_le_bytes(bytes)
        });
        let mut provider =
            IwarpProvider::new(&driver, IwarpOptions { crc, ..IwarpOptions::default() }, random);
        let began = Instant::now();
        let pair = provider.connect(stream, b"", Monotonic(0)).map_err(local)?;
        let config =
            smbdirect::Config { negotiate_timeout: options.step_timeout, ..smbdirect::Config::default() };
        Ok(Self {
            driver,
            provider,
            pair,
            smbd: smbdirect::Connection::connect(config, Monotonic(0)),
            server,
            began,
            step_timeout: options.step_timeout,
            established: false,
            negotiated: false,
            ended: None,
            messages: Vec::new(),
            events: Vec::new(),
            message_id: 0,
        })
    }

    fn info(&self) -> Result<ConnectionInfo, PingError> {
        self.provider.info(self.pair).ok_or_else(|| self.end("connection", "it is gone".to_owned()))
    }

    fn end(&self, step: &'static str, reason: String) -> PingError {
        let server = self.server.clone();
        if self.established {
            PingError::Ended { server, step, reason }
        } else {
            PingError::Rdma { server, reason }
        }
    }

    /// Works until the condition holds; gives the time that took.
    fn until(&mut self, step: &'static str, holds: impl Fn(&Self) -> bool) -> Result<Duration, PingError> {
        let began = Instant::now();
        loop {
            self.turn();
            if holds(self) {
                return Ok(began.elapsed());
            }
            if let Some(reason) = self.ended.take() {
                return Err(self.end(step, reason));
            }
            let Some(left) = self.step_timeout.checked_sub(began.elapsed()) else {
                let (server, seconds) = (self.server.clone(), self.step_timeout.as_secs());
                return Err(PingError::TimedOut { server, step, seconds });
            };
            if !self.provider.wants_poll() {
                // The provider's own deadlines are tens of milliseconds at the start, seconds later.
                let sleep = left.min(Duration::from_millis(if self.negotiated { 1000 } else { 5 }));
                self.driver.wait(Some(sleep)).map_err(|error| PingError::Local(error.to_string()))?;
            }
        }
    }

    fn turn(&mut self) {
        let now = Monotonic(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let mut events = std::mem::take(&mut self.events);
        self.provider.poll(now, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Established { .. } => self.established = true,
                Event::Completion(done)
                    if done.kind == CompletionKind::Receive && done.status == Status::Success =>
                {
                    if let Some(buffer) = done.buffer {
                        self.messages.extend(self.smbd.handle_receive(buffer, now));
                    }
                }
                Event::Disconnected { reason, .. } => {
                    self.ended.get_or_insert(match reason {
                        CloseReason::Peer => "it closed the connection".to_owned(),
                        reason => reason.to_string(),
                    });
                }
                Event::Completion(_) | Event::ConnectRequest { .. } => {}
            }
        }
        self.events = events;
        self.smbd.handle_timeout(now);
        while let Some(event) = self.smbd.poll_event() {
            match event {
                smbdirect::Event::PostReceives(count) => {
                    let size = self.smbd.receive_bytes_max() as usize;
                    for _ in 0..count {
                        if self.provider.post_receive(self.pair, WorkId(0), size).is_err() {
                            return;
                        }
                    }
                    self.smbd.receives_posted(count);
                }
                smbdirect::Event::Established => self.negotiated = true,
                smbdirect::Event::Closed(reason) => {
                    self.ended.get_or_insert(reason.to_string());
                }
            }
        }
        if !self.established {
            return;
        }
        while let Some(out) = self.smbd.poll_transmit() {
            let invalidate = out.invalidate.map(RegionKey);
            if self
                .provider
                .post_send_with_head(self.pair, WorkId(0), &out.head, out.payload, invalidate)
                .is_err()
            {
                return;
            }
        }
    }

    /// Sends one request and waits for its answer.
    fn call(&mut self, step: &'static str, message: &[u8]) -> Result<(Buf, Duration), PingError> {
        let sent = self.smbd.send(Payload::from(Buf::from(message)), None);
        sent.map_err(|error| self.end(step, error.to_string()))?;
        let time = self.until(step, |ping| !ping.messages.is_empty())?;
        let answer = self.messages.remove(0);
        match Header::parse(&answer) {
            Ok(header) if header.is_response() => Ok((answer, time)),
            _ => Err(PingError::NoSmb2 { server: self.server.clone(), step }),
        }
    }

    fn header(&mut self, command: Command) -> Vec<u8> {
        let mut header = Header::new(command);
        header.message_id = self.message_id.into();
        header.credits = 16.into();
        header.credit_charge = 1.into();
        self.message_id += 1;
        header.as_bytes().to_vec()
    }

    /// (time, dialect, largest READ, largest WRITE).
    fn negotiate(&mut self) -> Result<(Duration, String, u32, u32), PingError> {
        let step = "SMB2 negotiation";
        let mut message = self.header(Command::Negotiate);
        let body = NegotiateRequestBody {
            security_mode: 1.into(),
            client_guid: [0x52; 16],
            ..NegotiateRequestBody::default()
        };
        let contexts = [put_context(CONTEXT_PREAUTH_INTEGRITY, &PreauthIntegrity::build(&[0x52; 32]))];
        let mut tail = Vec::new();
        write_negotiate_request(&mut tail, body, &[0x0300, 0x0302, 0x0311], &contexts);
        message.extend_from_slice(&tail);
        let (answer, time) = self.call(step, &message)?;
        let no_smb2 = || PingError::NoSmb2 { server: self.server.clone(), step };
        let response = NegotiateResponse::parse(&answer).map_err(|_| no_smb2())?;
        let dialect = match Dialect::from_wire(response.dialect_revision.get()) {
            Some(dialect) => dialect_name(dialect).to_owned(),
            None => format!("{:#06x}", response.dialect_revision.get()),
        };
        Ok((time, dialect, response.max_read_size.get(), response.max_write_size.get()))
    }

    fn round_trips(&mut self, message_bytes: usize, count: u32) -> Result<RoundTrips, PingError> {
        let mut times = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let mut message = self.header(Command::Echo);
            message.extend_from_slice(&[4, 0, 0, 0]);
            // What follows the request's body means nothing (MS-SMB2 2.2.28).
            message.resize(message_bytes, 0);
            let (_, time) = self.call("round trip", &message)?;
            times.push(microseconds(time));
        }
        times.sort_by(f64::total_cmp);
        let at =
            |part: f64| times.get(((times.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(0.0);
        Ok(RoundTrips {
            message_bytes,
            count,
            min_us: at(0.0),
            median_us: at(0.5),
            p99_us: at(0.99),
            max_us: at(1.0),
        })
    }
}

fn dialect_name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Smb202 => "2.0.2",
        Dialect::Smb210 => "2.1",
        Dialect::Smb300 => "3.0",
        Dialect::Smb302 => "3.0.2",
        Dialect::Smb311 => "3.1.1",
    }
}
