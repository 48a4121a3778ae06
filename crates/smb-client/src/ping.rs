//! A check of the way to an SMB Direct server without logging on: the parameters that both ends agree on, and the time of messages.
//!
//! Owns a loop and a link of its own. Steps: TCP, RDMA (MPA), the SMB Direct negotiation, SMB2 NEGOTIATE, then SMB2 ECHO in messages of
//! 68 bytes and of 4 KiB. Every wait is bounded. Never sends a name or a password.

use crate::connection::negotiate_request;
use crate::{Options, RDMA_PORT};
use rdma::ConnectionInfo;
use serde::Serialize;
use smb::wire::{Command, Dialect, HEADER_BYTES, Header, NegotiateResponse, Put};
use smb_transport::client::{LinkOptions, Outgoing, RdmaLink};
use smb_transport::framing::HEADER_BYTES as TCP_PREFIX_BYTES;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use sys::driver::{Driver, DriverChoice};
use sys::{Buf, Payload, monotonic_now};

/// The longest sleep; the link's own deadlines come before it, if it has any.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Bytes of the larger message.
pub const LARGE_BYTES: usize = 4096;

#[derive(Debug, Clone)]
pub struct Settings {
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

/// The parameters and times that were found.
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

/// Reason why the server is not reached; the message says at which step, and what to do.
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
    link: RdmaLink,
    server: String,
    step_timeout: Duration,
    message_id: u64,
}

/// Does all steps.
///
/// # Errors
/// [`PingError`] names the step that failed.
pub fn ping(settings: &Settings) -> Result<Report, PingError> {
    let (address, stream, connect_tcp) = connect(settings)?;
    let mut ping = Ping::new(settings, address.to_string(), stream)?;
    let connect_rdma = ping.until("RDMA connection", |ping| ping.link.is_connected())?;
    let negotiate_smb_direct = ping.until("SMB Direct negotiation", |ping| ping.link.is_ready())?;
    let info = ping.info()?;
    let agreed = ping.link.agreed();
    let (negotiate_smb2, dialect, reads, writes) = ping.negotiate()?;
    let mut round_trips = Vec::new();
    for message_bytes in [HEADER_BYTES + 4, LARGE_BYTES] {
        round_trips.push(ping.round_trips(message_bytes, settings.count)?);
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
        send_bytes_max: agreed.send_bytes_max,
        receive_bytes_max: agreed.receive_bytes_max,
        read_write_bytes_max: agreed.read_write_bytes_max,
        send_credits: agreed.send_credits,
        negotiate_smb2_us: microseconds(negotiate_smb2),
        dialect,
        smb2_read_bytes_max: reads,
        smb2_write_bytes_max: writes,
        round_trips,
    })
}

fn local(error: &dyn std::fmt::Display) -> PingError {
    PingError::Local(error.to_string())
}

fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

fn connect(settings: &Settings) -> Result<(SocketAddr, TcpStream, Duration), PingError> {
    let host = &settings.host;
    let unresolved = |reason: String| PingError::Resolve { host: host.clone(), reason };
    // An address of IPv6 without port has colons of its own.
    let addresses = match host.to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(_) => (host.trim_matches(['[', ']']), RDMA_PORT)
            .to_socket_addrs()
            .map_err(|error| unresolved(error.to_string()))?,
    };
    let mut last = unresolved("none was found".to_owned());
    for address in addresses {
        let began = Instant::now();
        match TcpStream::connect_timeout(&address, settings.step_timeout) {
            Ok(stream) => return Ok((address, stream, began.elapsed())),
            Err(error) => last = PingError::Tcp { server: address.to_string(), reason: error.to_string() },
        }
    }
    Err(last)
}

impl Ping {
    fn new(settings: &Settings, server: String, stream: TcpStream) -> Result<Self, PingError> {
        let driver = Driver::new(DriverChoice::Automatic).map_err(|error| local(&error))?;
        let options = LinkOptions { timeout: settings.step_timeout, crc: settings.crc, device: None };
        let link = RdmaLink::by_software(&driver, stream, &options).map_err(|error| local(&error))?;
        Ok(Self { driver, link, server, step_timeout: settings.step_timeout, message_id: 0 })
    }

    fn info(&self) -> Result<ConnectionInfo, PingError> {
        self.link.info().ok_or_else(|| self.end("connection", "it is gone".to_owned()))
    }

    fn end(&self, step: &'static str, reason: String) -> PingError {
        let server = self.server.clone();
        if self.link.is_connected() {
            PingError::Ended { server, step, reason }
        } else {
            PingError::Rdma { server, reason }
        }
    }

    /// Works until the condition holds; gives the time that took.
    fn until(&mut self, step: &'static str, holds: impl Fn(&Self) -> bool) -> Result<Duration, PingError> {
        let began = Instant::now();
        loop {
            if self.turn(step)?.is_some() {
                return Err(PingError::NoSmb2 { server: self.server.clone(), step });
            }
            if holds(self) {
                return Ok(began.elapsed());
            }
            self.sleep(step, began)?;
        }
    }

    /// Works until a message comes; gives the time that took, too.
    fn next_message(&mut self, step: &'static str) -> Result<(Buf, Duration), PingError> {
        let began = Instant::now();
        loop {
            if let Some(message) = self.turn(step)? {
                return Ok((message, began.elapsed()));
            }
            self.sleep(step, began)?;
        }
    }

    /// Carries what there is, and gives a message if one came.
    fn turn(&mut self, step: &'static str) -> Result<Option<Buf>, PingError> {
        self.link.poll(monotonic_now());
        self.link.receive().map_err(|error| self.end(step, error.to_string()))
    }

    /// Sleeps until something may have come, in a step that began at `began`.
    fn sleep(&self, step: &'static str, began: Instant) -> Result<(), PingError> {
        let Some(left) = self.step_timeout.checked_sub(began.elapsed()) else {
            let (server, seconds) = (self.server.clone(), self.step_timeout.as_secs());
            return Err(PingError::TimedOut { server, step, seconds });
        };
        let due = self.link.next_timeout().map_or(SLEEP_MAX, |at| at.since(monotonic_now()));
        self.driver.wait(Some(due.min(left).min(SLEEP_MAX))).map_err(|error| local(&error))
    }

    /// Sends one request and waits for its answer.
    fn call(
        &mut self,
        step: &'static str,
        command: Command,
        body: &[u8],
    ) -> Result<(Buf, Duration), PingError> {
        let mut header = Header::new(command);
        header.message_id = self.message_id.into();
        header.credits = 16.into();
        header.credit_charge = 1.into();
        self.message_id += 1;
        let mut head = vec![0; TCP_PREFIX_BYTES];
        head.put(&header);
        head.extend_from_slice(body);
        let sent = self.link.send(Outgoing { head, payload: Payload::new() });
        sent.map_err(|error| self.end(step, error.to_string()))?;
        let (answer, time) = self.next_message(step)?;
        match Header::parse(&answer) {
            Ok(header) if header.is_response() => Ok((answer, time)),
            _ => Err(PingError::NoSmb2 { server: self.server.clone(), step }),
        }
    }

    /// Negotiates SMB2; gives the time, the dialect, and the largest READ and WRITE.
    fn negotiate(&mut self) -> Result<(Duration, String, u32, u32), PingError> {
        let step = "SMB2 negotiation";
        // Constant bytes do: no key comes from them, since nobody logs on.
        let options = Options { oldest: Dialect::Smb300, client_guid: [0x52; 16], ..Options::default() };
        let request = negotiate_request(&options, None, &[0x52; 32]);
        let (answer, time) = self.call(step, Command::Negotiate, &request)?;
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
            // Bytes behind the request's body mean nothing (MS-SMB2 2.2.28).
            let mut body = vec![4, 0, 0, 0];
            body.resize(message_bytes - HEADER_BYTES, 0);
            let (_, time) = self.call("round trip", Command::Echo, &body)?;
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
