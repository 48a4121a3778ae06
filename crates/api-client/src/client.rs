//! The API's client: finds address and token, sends requests, and turns refusals into messages.
//!
//! Promises: talks to nothing but the API; every error has a remedy.

use crate::args::Access;
use crate::data_files::{address_of, data_directory, demand_own};
use crate::failure::Failure;
use crate::listener::Listener;
use api::model::OpenFile;
pub use api::percent_encoded as escaped;
use api::{
    ApiError, ErrorKind, LOCK_FILE, MORE, TOKEN_FILE, Token, UNANSWERED, UNCONFIRMED, https, percent_encoded,
};
use rustix::fs::{major, minor};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use ureq::http::Response;
use ureq::{Agent, Body};

/// The longest request is one that formats disks.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Timeout for a server that starts, and the interval between attempts.
const START_LIMIT: Duration = Duration::from_secs(60);
const START_LOOK: Duration = Duration::from_millis(100);

/// A client of one server's API, which may hand requests on to servers of its cluster.
pub struct Client {
    agent: Agent,
    base: String,
    token: Token,
    /// Listener of a server of this machine that is reached without TLS.
    listener: Option<Listener>,
    /// Whether requests are for the asked server alone.
    is_local: bool,
}

impl Client {
    /// Waits for a server that is starting.
    ///
    /// # Errors
    /// If no server is found, or its token cannot be read.
    pub fn find(access: &Access) -> Result<Self, Failure> {
        if named(access).is_none() {
            let data = data_directory(access);
            demand_own(access, &data)?;
            demand_one_server(&data)?;
            await_start(&data);
        }
        Self::find_within(access, TIME_LIMIT)
    }

    /// As [`Client::find`], for a server that serves already; `time_limit` is the timeout of each request.
    ///
    /// # Errors
    /// As [`Client::find`].
    pub fn find_within(access: &Access, time_limit: Duration) -> Result<Self, Failure> {
        let data = data_directory(access);
        let named_token =
            access.token_file.clone().or_else(|| std::env::var_os("CENOTE_TOKEN_FILE").map(PathBuf::from));
        if named(access).is_none() || named_token.is_none() {
            demand_own(access, &data)?;
        }
        let server = match named(access) {
            Some(named) => server_of(&named)?,
            None => format!("http://{}", address_of(&data)?),
        };
        let token_file = named_token.unwrap_or_else(|| data.join(TOKEN_FILE));
        let token = Token::read(&token_file).map_err(|error| {
            Failure::new(format!(
                "the API's token {} cannot be read: {error}; run as the server's user or as root, or give --token-file",
                token_file.display()
            ))
        })?;
        let owner = std::fs::metadata(&token_file).map_err(|error| Failure::new(error.to_string()))?.uid();
        let address = server.strip_prefix("http://").and_then(|address| address.parse().ok());
        let listener = address.and_then(|address| Listener::of(address, owner));
        let authorities =
            access.ca_file.clone().or_else(|| std::env::var_os("CENOTE_CA_FILE").map(PathBuf::from));
        let is_https = server.starts_with("https:");
        let agent = https::agent(https::Receiver::Api, is_https, authorities.as_deref(), time_limit)
            .map_err(Failure::new)?;
        let base = format!("{server}/api/v1");
        Ok(Self { agent, base, token, listener, is_local: access.local })
    }

    /// # Errors
    /// The API's refusal, or that it cannot be reached.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        answer(self.agent.get(self.url(path)).header("Authorization", self.bearer()?).call())
    }

    /// As [`Client::get`], for a list that every server of the cluster has a part of; with the names of
    /// those that did not answer.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn get_list<T: DeserializeOwned>(&self, path: &str) -> Result<(Vec<T>, Vec<String>), Failure> {
        self.get_with_missing(path)
    }

    /// As [`Client::get`], for an object that every server of the cluster has a part of; reports those that
    /// did not answer, and the meaning: `what`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn get_of_all<T: DeserializeOwned>(&self, path: &str, what: &str) -> Result<T, Failure> {
        let (whole, unanswered) = self.get_with_missing(path)?;
        if !unanswered.is_empty() {
            eprintln!("cenote: no answer from {}: {what}", unanswered.join(", "));
        }
        Ok(whole)
    }

    fn get_with_missing<T: DeserializeOwned>(&self, path: &str) -> Result<(T, Vec<String>), Failure> {
        let request = self.agent.get(self.url(path)).header("Authorization", self.bearer()?);
        let response = reached(request.call())?;
        let missing = response.headers().get(UNANSWERED).and_then(|names| names.to_str().ok());
        let missing = missing.map(|names| names.split(", ").map(str::to_owned).collect()).unwrap_or_default();
        Ok((answer(Ok(response))?, missing))
    }

    /// As [`Client::get_list`]; reports those that did not answer, and the meaning: `what`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn get_whole<T: DeserializeOwned>(&self, path: &str, what: &str) -> Result<Vec<T>, Failure> {
        self.get_of_all(path, what)
    }

    /// Lists all files that clients have open at all servers of the cluster, of which the API shows a part
    /// at a time. Reports servers that did not answer, and the meaning: `what`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn open_files(&self, what: &str) -> Result<Vec<OpenFile>, Failure> {
        let (mut files, mut more) = self.files_after("/files", what)?;
        while let Some(server) = more.pop() {
            let is_own = server == "-";
            let its = files.iter().filter(|file| is_own || file.server.as_deref() == Some(&*server));
            let Some(after) = its.map(|file| file.id).max() else { continue };
            let path = match is_own {
                true => format!("/files?after={after}"),
                false => format!("/files?after={after}&server={}", percent_encoded(&server)),
            };
            let (mut next, has_more) = self.files_after(&path, what)?;
            if !is_own {
                next.iter_mut().for_each(|file| file.server = Some(server.clone()));
            }
            // An empty part would be asked for again for ever.
            if !next.is_empty() && !has_more.is_empty() {
                more.push(server);
            }
            files.append(&mut next);
        }
        Ok(files)
    }

    /// A part of clients' opens, and the servers that have more.
    fn files_after(&self, path: &str, what: &str) -> Result<(Vec<OpenFile>, Vec<String>), Failure> {
        let request = self.agent.get(self.url(path)).header("Authorization", self.bearer()?);
        let response = reached(request.call())?;
        let named = |header: &str| -> Vec<String> {
            let names = response.headers().get(header).and_then(|names| names.to_str().ok());
            names.map(|names| names.split(", ").map(str::to_owned).collect()).unwrap_or_default()
        };
        let (unanswered, more) = (named(UNANSWERED), named(MORE));
        if !unanswered.is_empty() {
            eprintln!("cenote: no answer from {}: {what}", unanswered.join(", "));
        }
        Ok((answer(Ok(response))?, more))
    }

    /// As [`Client::get`], for an object that the API shows as text unless it is asked for JSON.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let request = self.agent.get(self.url(path)).header("Authorization", self.bearer()?);
        answer(request.header("Accept", "application/json").call())
    }

    /// # Errors
    /// As [`Client::get`].
    pub fn get_text(&self, path: &str) -> Result<String, Failure> {
        let mut response =
            reached(self.agent.get(self.url(path)).header("Authorization", self.bearer()?).call())?;
        response.body_mut().read_to_string().map_err(unreadable)
    }

    /// The text of `/metrics`, which is beside the API.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn metrics(&self) -> Result<String, Failure> {
        let server = self.base.trim_end_matches("/api/v1");
        let request = self.agent.get(format!("{server}/metrics")).header("Authorization", self.bearer()?);
        reached(request.call())?.body_mut().read_to_string().map_err(unreadable)
    }

    /// # Errors
    /// As [`Client::get`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        answer(self.agent.post(self.url(path)).header("Authorization", self.bearer()?).send_json(body))
    }

    /// # Errors
    /// As [`Client::get`].
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        answer(self.agent.patch(self.url(path)).header("Authorization", self.bearer()?).send_json(body))
    }

    /// # Errors
    /// As [`Client::get`].
    pub fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        answer(self.agent.put(self.url(path)).header("Authorization", self.bearer()?).send_json(body))
    }

    /// # Errors
    /// As [`Client::get`].
    pub fn delete(&self, path: &str) -> Result<(), Failure> {
        answer(self.agent.delete(self.url(path)).header("Authorization", self.bearer()?).call())
    }

    /// As [`Client::delete`], for requests whose answer has a body.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn delete_with_answer<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        answer(self.agent.delete(self.url(path)).header("Authorization", self.bearer()?).call())
    }

    /// The address of a page of the server's dashboard, for a user who may have the token: behind `path`.
    pub fn page(&self, path: &str) -> String {
        format!("{}{path}{}", self.base.trim_end_matches("/api/v1"), self.token.as_str())
    }

    fn url(&self, path: &str) -> String {
        match self.is_local && !path.contains('?') {
            true => format!("{}{path}?local=true", self.base),
            false => format!("{}{path}", self.base),
        }
    }

    /// The token for one more request. Checks the listener's user each time, since the server may have
    /// ended meanwhile.
    fn bearer(&self) -> Result<String, Failure> {
        self.listener.as_ref().map_or(Ok(()), Listener::demand_trusted)?;
        Ok(format!("Bearer {}", self.token.as_str()))
    }
}

/// The address that was given, if any.
fn named(access: &Access) -> Option<String> {
    access.api.clone().or_else(|| std::env::var("CENOTE_API").ok())
}

/// The directory of a trial cluster has those of its servers, and is held by the process that runs them: nobody serves there, however long one waits.
fn demand_one_server(data: &Path) -> Result<(), Failure> {
    let first = data.join("node-1");
    if data.join(api::ADDRESS_FILE).exists() || !first.is_dir() {
        return Ok(());
    }
    let message =
        format!("{} holds several servers: choose one, such as --data {}", data.display(), first.display());
    Err(Failure::new(message))
}

/// A server has its data directory to itself some time before it serves: it replays journals. Waits until it does, or has ended.
fn await_start(data: &Path) {
    let until = Instant::now() + START_LIMIT;
    let mut is_told = false;
    while !serves(data) && Instant::now() < until && is_held(&data.join(LOCK_FILE)) {
        if !is_told {
            eprintln!("cenote: the server in {} is starting", data.display());
            is_told = true;
        }
        std::thread::sleep(START_LOOK);
    }
}

/// Tells whether something listens at the address in the data directory; the file may be that of a
/// killed server.
fn serves(data: &Path) -> bool {
    address_of(data).is_ok_and(|address| TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
}

/// Tells whether a process holds the lock. Looks it up, since to try it could keep a server from starting.
fn is_held(lock: &Path) -> bool {
    let Ok(found) = std::fs::metadata(lock) else { return false };
    std::fs::read_to_string("/proc/locks").is_ok_and(|locks| holds(&locks, found.dev(), found.ino()))
}

/// Whether the kernel's list of locks (proc_locks(5)) has an exclusive one of flock(2) on a file with this inode. File systems without a
/// device of their own (btrfs, overlays) show another number there than to stat(2): of these the inode alone is compared.
fn holds(locks: &str, device: u64, inode: u64) -> bool {
    let own = (u64::from(major(device)), u64::from(minor(device)));
    let is_file = |text: &str| {
        let mut numbers = text.split(':');
        let mut hexadecimal = || u64::from_str_radix(numbers.next()?, 16).ok();
        let found = (hexadecimal()?, hexadecimal()?);
        Some(numbers.next()?.parse() == Ok(inode) && (found == own || own.0 == 0))
    };
    locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1) == Some(&"FLOCK")
            && words.get(3) == Some(&"WRITE")
            && words.get(5).copied().and_then(is_file) == Some(true)
    })
}

/// The server that `--api` names, as the beginning of a URL. Without TLS the token goes to this machine only.
fn server_of(named: &str) -> Result<String, Failure> {
    if let Some(host) = named.strip_prefix("https://") {
        let host = host.trim_end_matches('/');
        if host.is_empty() || host.contains(['/', '?', '#', '@', ' ']) {
            return Err(Failure::new(format!("{named} is not https://HOST:PORT")));
        }
        return Ok(format!("https://{host}"));
    }
    match named.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(format!("http://{address}")),
        Ok(address) => Err(Failure::new(format!(
            "{address} is not this machine, and the API's token is sent elsewhere over TLS only: give \
             --api https://HOST:PORT, where HOST:PORT is one of the server's api.tls_listen"
        ))),
        Err(_) => {
            Err(Failure::new(format!("the API's address {named} is neither ADDR:PORT nor https://HOST:PORT")))
        }
    }
}

fn reached(result: Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, Failure> {
    let mut response = result.map_err(|error| {
        let message = format!("the API cannot be reached: {error}; is the server running?");
        Failure { kind: Some(ErrorKind::Unavailable), ..Failure::new(message) }
    })?;
    if let Some(note) =
        response.headers().get(UNCONFIRMED).and_then(|names| names.to_str().ok()).map(unconfirmed)
    {
        eprintln!("cenote: {note}");
    }
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let error = response.body_mut().read_json::<ApiError>().unwrap_or_else(|_| {
        ApiError::new(
            ErrorKind::Internal,
            format!("the API answered {status}; is it a Cenote server of this version?"),
        )
    });
    Err(error.into())
}

/// Says what it means that these servers have not confirmed a change.
fn unconfirmed(servers: &str) -> String {
    let (have, they) = if servers.contains(", ") { ("have", "they read") } else { ("has", "it reads") };
    format!(
        "the change is made, but {servers} {have} not confirmed it and may go on by the old accounts and shares until {they} the cluster's records; to \
         cut somebody off there at once, stop the server"
    )
}

fn answer<T: DeserializeOwned>(result: Result<Response<Body>, ureq::Error>) -> Result<T, Failure> {
    reached(result)?.body_mut().with_config().limit(256 << 20).read_json().map_err(unreadable)
}

fn unreadable(error: ureq::Error) -> Failure {
    Failure::new(format!(
        "the API's answer is not understood: {error}; are server and command of one version?"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;
    use std::fs::File;

    #[test]
    fn a_directory_of_several_servers_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        demand_one_server(data).expect("it may be a server that starts");
        std::fs::create_dir(data.join("node-1")).unwrap();
        let refused = demand_one_server(data).expect_err("nobody serves there").message;
        assert!(refused.contains("node-1"), "{refused}");
    }

    #[test]
    fn servers_that_have_not_confirmed_a_change_are_named_with_the_remedy() {
        assert!(unconfirmed("node-2").contains("node-2 has not confirmed it"), "{}", unconfirmed("node-2"));
        let several = unconfirmed("node-2, node-3");
        assert!(
            several.contains("node-2, node-3 have not") && several.ends_with("stop the server"),
            "{several}"
        );
    }

    #[test]
    fn a_lock_is_found_in_the_kernels_list() {
        let list = "1: POSIX  ADVISORY  WRITE 10 00:31:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 11 fe:00:42 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 12 fe:00:43 0 EOF\n3: FLOCK ADVISORY READ 13 fe:00:44 0 EOF\n4: FLOCK\n";
        let of = |device, inodes: [u64; 4]| -> Vec<u64> {
            inodes.into_iter().filter(|inode| holds(list, device, *inode)).collect()
        };
        assert_eq!(of(makedev(0xFE, 0), [7, 42, 43, 44]), [42]);
        assert_eq!(of(makedev(8, 1), [7, 42, 43, 44]), [0; 0], "the same number of another file system");
        assert_eq!(of(makedev(0, 35), [7, 42, 43, 44]), [42]);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        assert!(!is_held(&path));
        let lock = File::create(&path).unwrap();
        assert!(!is_held(&path));
        lock.try_lock().unwrap();
        assert!(is_held(&path));
        // Not by closing: a test beside this one may start a process at this moment, which has the file open
        // until it runs another program.
        lock.unlock().unwrap();
        assert!(!is_held(&path));
    }
}
