//! Answers API requests while a server waits for the cluster's state: 503, with the reason.
//!
//! Promises: answers only once the wait has lasted, so as not to disturb an ordinary start; one request
//! at a time, each within a second, of bounded size. Needs no token, as it reveals only what `/healthz`
//! does.

use crate::identity::Identity;
use crate::waiting::look;
use api::{ADDRESS_FILE, ApiError, ErrorKind};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A start that lasts longer waits for other servers.
const ORDINARY: Duration = Duration::from_secs(5);
/// Interval between checks of the reason.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);
/// Timeout of a client's request, and of taking the answer.
const CLIENT_TIME: Duration = Duration::from_secs(1);
/// Writes the API's address into a file.
type LeaveAddress = fn(&Path, SocketAddr) -> io::Result<()>;

/// Bytes of a request that are read.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Answers until it is dropped.
pub struct Waiting {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Answering {
    listener: TcpListener,
    identity: Identity,
    address_file: PathBuf,
    leave_address: LeaveAddress,
    ended: Arc<AtomicBool>,
}

impl Waiting {
    /// Begins to answer on the API's socket. `None`: a single server has no wait.
    pub fn begin(listener: &TcpListener, data: &Path, leave_address: LeaveAddress) -> Option<Self> {
        let identity = Identity::open(data).ok()??;
        let listener = listener.try_clone().ok()?;
        let (ended, address_file) = (Arc::new(AtomicBool::new(false)), data.join(ADDRESS_FILE));
        let answering = Answering { listener, identity, address_file, leave_address, ended: ended.clone() };
        let thread = std::thread::Builder::new().name("waiting".into());
        let thread = thread.spawn(move || {
            if let Err(error) = answering.run() {
                tracing::warn!(%error, "the API cannot say what this server waits for");
            }
        });
        Some(Self { ended, thread: thread.ok() })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Answering {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn run(&self) -> io::Result<()> {
        let began = Instant::now();
        while began.elapsed() < ORDINARY {
            if self.has_ended() {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        let address: SocketAddr = self.listener.local_addr()?;
        self.listener.set_nonblocking(true)?;
        (self.leave_address)(&self.address_file, address)?;
        let mut looked: Option<(Instant, String)> = None;
        while !self.has_ended() {
            match self.listener.accept() {
                Ok((client, _)) => {
                    let is_due = looked.as_ref().is_none_or(|(at, _)| at.elapsed() >= LOOK_EVERY);
                    if is_due {
                        let waits = look(&self.identity);
                        looked = Some((Instant::now(), waits.in_words(&self.identity)));
                    }
                    let why = looked.as_ref().map_or("", |(_, why)| why);
                    // A client without a request, or one that disconnects, gets no answer.
                    let _ = answer(client, why);
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        // A serving server writes the address again.
        let _ = std::fs::remove_file(&self.address_file);
        Ok(())
    }
}

/// Reads a request's head, and answers it.
fn answer(mut client: TcpStream, why: &str) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_write_timeout(Some(CLIENT_TIME))?;
    let (mut head, until) = (Vec::new(), Instant::now() + CLIENT_TIME);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < REQUEST_BYTES_MAX {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        let mut piece = [0; 1024];
        match client.read(&mut piece)? {
            0 => break,
            bytes => head.extend_from_slice(&piece[..bytes]),
        }
    }
    client.write_all(refusal(&head, why).as_bytes())
}

/// The answer: plain text to `/healthz`, and the API's form of an error to all else.
fn refusal(head: &[u8], why: &str) -> String {
    let is_health = head.split(|byte| *byte == b' ').nth(1).is_some_and(|path| path.starts_with(b"/healthz"));
    let (kind, body) = match is_health {
        true => ("text/plain; charset=utf-8", format!("{why}\n")),
        false => {
            let error = ApiError::new(ErrorKind::Unavailable, why);
            ("application/json", serde_json::to_string(&error).unwrap_or_default())
        }
    };
    format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_a_server_that_waits_is_told_for_whom() {
        let told = refusal(b"GET /healthz HTTP/1.1\r\n\r\n", "it waits for node-2");
        assert!(
            told.starts_with("HTTP/1.1 503 ") && told.ends_with("\r\n\r\nit waits for node-2\n"),
            "{told}"
        );
        let told = refusal(b"GET /api/v1/cluster HTTP/1.1\r\n\r\n", "it waits for node-2");
        let (_, body) = told.split_once("\r\n\r\n").expect("a body");
        let error: ApiError = serde_json::from_str(body).expect("the API's form");
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Unavailable, "it waits for node-2"));
        assert!(told.contains(&format!("Content-Length: {}\r\n", body.len())));
        assert!(refusal(b"rubbish", "it waits").starts_with("HTTP/1.1 503 "));
    }

    #[test]
    fn a_client_that_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let silent = TcpStream::connect(listener.local_addr().expect("it")).expect("connected");
        let (client, _) = listener.accept().expect("it");
        assert!(answer(client, "it waits").is_err());
        drop(silent);
    }
}
