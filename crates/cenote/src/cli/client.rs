//! The API's client: finds address and token, asks, and turns refusals into messages.
//!
//! Promises: talks to nothing but the API; every error says what to do next.

use crate::cli::args::Global;
use crate::daemon::{ADDRESS_FILE, TOKEN_FILE};
use crate::https;
use api::{ApiError, ErrorKind, Token};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

/// The longest request is one that formats disks.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// What the command line says, and its exit status.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub message: String,
    pub exit_status: u8,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_status: 1 }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::new(error.message)
    }
}

pub struct Client {
    agent: Agent,
    base: String,
    token: Token,
}

impl Client {
    /// # Errors
    /// If no server is found, or its token cannot be read.
    pub fn find(global: &Global) -> Result<Self, Failure> {
        let data = data_directory(global);
        let named = global.api.clone().or_else(|| std::env::var("CENOTE_API").ok());
        let server = match named {
            Some(named) => server_of(&named)?,
            None => format!("http://{}", address_of(&data)?),
        };
        let token_file = global
            .token_file
            .clone()
            .or_else(|| std::env::var_os("CENOTE_TOKEN_FILE").map(PathBuf::from))
            .unwrap_or_else(|| data.join(TOKEN_FILE));
        let token = Token::read(&token_file).map_err(|error| {
            Failure::new(format!(
                "the API's token {} cannot be read: {error}; run as the server's user or as root, or give --token-file",
                token_file.display()
            ))
        })?;
        let authorities =
            global.ca_file.clone().or_else(|| std::env::var_os("CENOTE_CA_FILE").map(PathBuf::from));
        let agent = https::agent(server.starts_with("https:"), authorities.as_deref(), TIME_LIMIT)
            .map_err(Failure::new)?;
        Ok(Self { agent, base: format!("{server}/api/v1"), token })
    }

    /// # Errors
    /// The API's refusal, or that it cannot be reached.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        answer(self.agent.get(self.url(path)).header("Authorization", self.bearer()).call())
    }

    /// As [`Client::get`], of what the API shows as text unless it is asked for JSON.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let request = self.agent.get(self.url(path)).header("Authorization", self.bearer());
        answer(request.header("Accept", "application/json").call())
    }

    /// # Errors
    /// As [`Client::get`].
    pub fn get_text(&self, path: &str) -> Result<String, Failure> {
        let mut response =
            reached(self.agent.get(self.url(path)).header("Authorization", self.bearer()).call())?;
        response.body_mut().read_to_string().map_err(unreadable)
    }

    /// # Errors
    /// As [`Client::get`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        answer(self.agent.post(self.url(path)).header("Authorization", self.bearer()).send_json(body))
    }

    /// # Errors
    /// As [`Client::get`].
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        answer(self.agent.patch(self.url(path)).header("Authorization", self.bearer()).send_json(body))
    }

    /// # Errors
    /// As [`Client::get`].
    pub fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        answer(self.agent.put(self.url(path)).header("Authorization", self.bearer()).send_json(body))
    }

    /// # Errors
    /// As [`Client::get`].
    pub fn delete(&self, path: &str) -> Result<(), Failure> {
        answer(self.agent.delete(self.url(path)).header("Authorization", self.bearer()).call())
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.token.as_str())
    }
}

/// The folder in which the running server keeps its files.
pub fn data_directory(global: &Global) -> PathBuf {
    if let Some(data) = &global.data {
        return data.clone();
    }
    if let Some(data) = std::env::var_os("CENOTE_DATA") {
        return data.into();
    }
    let near = PathBuf::from("cenote-data");
    if near.is_dir() { near } else { "/var/lib/cenote".into() }
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

fn address_of(data: &Path) -> Result<SocketAddr, Failure> {
    let file = data.join(ADDRESS_FILE);
    let not_running = |why: String| {
        Failure::new(format!(
            "no running server is found in {}: {why}; start it (cenote serve, or cenote quickstart), or say where it is \
             with --data DIR or --api ADDR:PORT",
            data.display()
        ))
    };
    let text = std::fs::read_to_string(&file).map_err(|error| not_running(error.to_string()))?;
    text.trim().parse().map_err(|_| not_running(format!("{} holds no address", file.display())))
}

fn reached(result: Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, Failure> {
    let mut response = result.map_err(|error| {
        Failure::new(format!("the API cannot be reached: {error}; is the server running?"))
    })?;
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

fn answer<T: DeserializeOwned>(result: Result<Response<Body>, ureq::Error>) -> Result<T, Failure> {
    reached(result)?.body_mut().with_config().limit(256 << 20).read_json().map_err(unreadable)
}

fn unreadable(error: ureq::Error) -> Failure {
    Failure::new(format!(
        "the API's answer is not understood: {error}; are server and command of one version?"
    ))
}

/// A name as part of a URL's path or query.
pub fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
