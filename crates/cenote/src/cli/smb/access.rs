//! Whom to ask, as whom: addresses of files, credentials, the session.

use super::Failure;
use crate::cli::args::{SmbOptions, SmbTransport};
use smb_client::{Client, Credentials, Encryption, NtHash, Options, RDMA_PORT, Signing, Transport};
use std::fmt;
use std::path::Path;
use std::time::Duration;
use zeroize::Zeroizing;

const TCP_PORT: u16 = 445;
/// A credentials file is a few lines.
const CREDENTIALS_BYTES_MAX: u64 = 64 << 10;
/// How long a lost session is worth setting up anew.
const RECONNECT: Duration = Duration::from_secs(30);

/// A file or directory of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub server: String,
    /// Of the transport; `None`: its usual one.
    pub port: Option<u16>,
    pub user: Option<String>,
    pub share: String,
    /// Relative to the share, with backslashes; empty: its root.
    pub path: String,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "//{}/{}/{}", self.server, self.share, self.path.replace('\\', "/"))
    }
}

impl Location {
    /// # Errors
    /// What is wrong with it, and how it should look.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        Self::take_apart(text).map_err(|problem| {
            Failure::new(format!(
                "'{text}' is no place on a server ({problem}): write //SERVER/SHARE/PATH or smb://[USER@]SERVER[:PORT]/SHARE/PATH"
            ))
        })
    }

    fn take_apart(text: &str) -> Result<Self, &'static str> {
        let text = text.replace('\\', "/");
        let rest = text.strip_prefix("smb://").or_else(|| text.strip_prefix("//"));
        let mut parts = rest.ok_or("it does not begin with // or smb://")?.splitn(3, '/');
        let authority = parts.next().unwrap_or_default();
        let share = parts.next().filter(|share| !share.is_empty()).ok_or("it names no share")?;
        let path = parts.next().unwrap_or_default().trim_matches('/').replace('/', "\\");
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err("a password does not belong on a command line");
        }
        let (server, port) = match host.strip_prefix('[') {
            Some(rest) => {
                let (address, after) = rest.split_once(']').ok_or("the address lacks its ']'")?;
                (address, after.strip_prefix(':'))
            }
            None => host.split_once(':').map_or((host, None), |(server, port)| (server, Some(port))),
        };
        if server.is_empty() {
            return Err("it names no server");
        }
        let port =
            port.map(|port| port.parse().map_err(|_| "the port is no number of a port")).transpose()?;
        Ok(Self {
            server: server.to_owned(),
            port,
            user: user.map(str::to_owned),
            share: share.to_owned(),
            path,
        })
    }
}

/// Who logs on.
#[derive(Default)]
struct Logon {
    user: Option<String>,
    password: Zeroizing<String>,
    domain: String,
}

impl Logon {
    /// Lines `username=`, `password=` and `domain=`, as mount.cifs reads them.
    fn from_file(path: &Path) -> Result<Self, Failure> {
        let failed = |problem: String| {
            Failure::new(format!("credentials file {} cannot be used: {problem}", path.display()))
        };
        let len = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
        if len > CREDENTIALS_BYTES_MAX {
            return Err(failed("it is too long".into()));
        }
        let text = Zeroizing::new(std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?);
        let mut logon = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || failed(format!("line {} is not username=, password= or domain=", number + 1));
            let (key, value) = line.split_once('=').ok_or_else(wrong)?;
            match key.trim_end() {
                "username" | "user" => logon.user = Some(value.to_owned()),
                "password" | "pass" => logon.password = Zeroizing::new(value.to_owned()),
                "domain" | "dom" | "workgroup" => value.clone_into(&mut logon.domain),
                _ => return Err(wrong()),
            }
        }
        Ok(logon)
    }

    fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        Self {
            user: variable("CENOTE_SMB_USER"),
            password: Zeroizing::new(variable("CENOTE_SMB_PASSWORD").unwrap_or_default()),
            domain: variable("CENOTE_SMB_DOMAIN").unwrap_or_default(),
        }
    }
}

/// A session at the place's server.
///
/// # Errors
/// Why there is none, and what to do.
pub fn connect(place: &Location, how: &SmbOptions) -> Result<Client, Failure> {
    let logon = match &how.credentials {
        Some(path) => Logon::from_file(path)?,
        None => Logon::from_environment(),
    };
    let user = place.user.clone().or(logon.user).ok_or_else(|| {
        Failure::new(
            "nobody to log on as: give --credentials FILE (lines username= and password=), or set CENOTE_SMB_USER and \
             CENOTE_SMB_PASSWORD",
        )
    })?;
    let credentials = Credentials::User {
        user,
        domain: logon.domain,
        workstation: String::new(),
        hash: NtHash::from_password(&logon.password),
        target_name: format!("cifs/{}", place.server),
    };
    let (transport, usual) = match how.transport {
        SmbTransport::Auto => (Transport::Auto, TCP_PORT),
        SmbTransport::Tcp => (Transport::Tcp, TCP_PORT),
        SmbTransport::Rdma => (Transport::Rdma, RDMA_PORT),
    };
    let options = Options {
        transport,
        rdma_port: how.rdma_port.unwrap_or(RDMA_PORT),
        channels: how.channels,
        // What RDMA moves neither signature nor encryption protects: whoever asks for protection gives that up.
        signing: if how.sign { Signing::Required } else { Signing::IfRequired },
        encryption: if how.seal { Encryption::Required } else { Encryption::IfRequired },
        reconnect: RECONNECT,
        ..Options::default()
    };
    let port = place.port.unwrap_or(usual);
    Client::connect(&place.server, port, credentials, options)
        .map_err(|error| Failure::new(format!("{}, port {port}: {error}", place.server)))
}
