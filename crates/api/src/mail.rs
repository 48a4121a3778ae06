//! Mails about health, by SMTP.
//!
//! Promises: a login and a mail are sent only under the configured protection, after the server has
//! proved its name; the whole dialogue is bounded in time and in bytes, for any server, and holds no
//! thread. The password is read from its file for each mail, and never logged.

use crate::model::HealthIssue;
use crate::pem::Authorities;
use crate::regular;
use lettre::Message;
use lettre::message::Mailbox;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, AsyncTokioStream, Certificate, CertificateStore, TlsParameters,
};
use lettre::transport::smtp::extension::ClientId;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

/// The time for a mail: from the connection to the server's last answer.
pub const DELIVERED_WITHIN: Duration = Duration::from_secs(30);
/// The time for the farewell, whose outcome does not count.
const FAREWELL_WITHIN: Duration = Duration::from_secs(1);
/// Bytes that the server may send, its certificates included.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Bytes of a password's file.
const PASSWORD_BYTES_MAX: u64 = 4096;
/// Issues that a mail lists in each of its parts.
const ISSUES_MAX: usize = 50;

/// Protection of mails and logins in transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// TLS from the command STARTTLS on (RFC 3207); a server without it is sent nothing.
    #[default]
    Starttls,
    /// TLS from the first byte (RFC 8314).
    Tls,
    /// For a relay on this machine.
    None,
}

impl Protection {
    /// The default port of the protection.
    const fn port(self) -> u16 {
        match self {
            Self::Starttls => 587,
            Self::Tls => 465,
            Self::None => 25,
        }
    }
}

/// The receivers of mails, and the server that takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Name or address of the SMTP server, as in its certificate.
    pub host: String,
    /// Port of the SMTP server.
    pub port: u16,
    /// Protection of the connection to the SMTP server.
    pub protection: Protection,
    /// Address of the sender, with or without a name.
    pub from: String,
    /// Addresses of the receivers, at least one.
    pub to: Vec<String>,
    /// User, and the file of the password.
    pub login: Option<(String, PathBuf)>,
    /// Authorities for the server's certificate; `None`: the system's.
    pub authorities: Option<PathBuf>,
    /// Time for a mail: [`DELIVERED_WITHIN`] but in tests.
    pub delivered_within: Duration,
}

/// Parses `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
///
/// # Errors
/// The text is none of them.
pub fn host_and_port(text: &str, protection: Protection) -> Result<(String, u16), String> {
    let bad = || format!("'{text}' is neither HOST nor HOST:PORT");
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().map_err(|_| bad())?)
        }
        Some(_) if !text.ends_with(']') => return Err(bad()),
        _ => (text, protection.port()),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_host =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:_".contains(&byte));
    if is_host && port > 0 { Ok((host.to_owned(), port)) } else { Err(bad()) }
}

/// Checks that a text is an address of mail, with or without a name.
///
/// # Errors
/// The text is none.
pub fn check_address(text: &str) -> Result<(), String> {
    mailbox(text).map(|_| ())
}

fn mailbox(text: &str) -> Result<Mailbox, String> {
    text.parse::<Mailbox>().map_err(|error| format!("'{text}' is no address of mail: {error}"))
}

/// Sends a letter: its first line is the subject.
///
/// # Errors
/// Why the server refused it, or that it did not accept within [`Mail::delivered_within`].
pub async fn send(mail: &Mail, letter: &str) -> Result<(), String> {
    let limit = mail.delivered_within;
    let delivered = tokio::time::timeout(limit, deliver(mail, letter)).await;
    let delivered =
        delivered.unwrap_or_else(|_| Err(format!("the mail was not taken within {} s", limit.as_secs_f32())));
    // The mail was accepted: if a missing farewell counted as a loss, it would be sent again.
    let _ = tokio::time::timeout(FAREWELL_WITHIN, delivered?.quit()).await;
    Ok(())
}

/// Returns the connection to the server that took the mail.
async fn deliver(mail: &Mail, letter: &str) -> Result<AsyncSmtpConnection, String> {
    let told = |error: lettre::transport::smtp::Error| error.to_string();
    let message = message(mail, letter)?;
    // The files may be on a file system that hangs.
    let files = mail.clone();
    let read = tokio::task::spawn_blocking(move || Read::of(&files)).await;
    let Read { authorities, password } = read.map_err(|_| "the server stops".to_owned())??;
    let host = mail.host.as_str();
    let stream = TcpStream::connect((host, mail.port)).await.map_err(|error| error.to_string())?;
    let peer = stream.peer_addr().map_err(|error| error.to_string())?;
    let stream = Bounded { inner: stream, peer, left: ANSWER_BYTES_MAX };
    let name = ClientId::default();
    let mut connection = match (mail.protection, authorities) {
        (Protection::Tls, Some(authorities)) => {
            let host = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
            let connector = TlsConnector::from(Arc::new(tls(&authorities)?));
            let inner = connector.connect(host, stream).await.map_err(|error| error.to_string())?;
            let stream = Bounded { inner, peer, left: ANSWER_BYTES_MAX };
            AsyncSmtpConnection::connect_with_transport(Box::new(stream), &name).await.map_err(told)?
        }
        (_, authorities) => {
            let connection = AsyncSmtpConnection::connect_with_transport(Box::new(stream), &name).await;
            let mut connection = connection.map_err(told)?;
            if let Some(authorities) = authorities {
                connection.starttls(starttls(&authorities, host)?, &name).await.map_err(told)?;
            }
            connection
        }
    };
    if let (Some((user, _)), Some(password)) = (&mail.login, password) {
        let credentials = Credentials::new(user.clone(), password.to_string());
        connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await.map_err(told)?;
    }
    connection.send(message.envelope(), &message.formatted()).await.map_err(told)?;
    Ok(connection)
}

fn message(mail: &Mail, letter: &str) -> Result<Message, String> {
    let (subject, text) = letter.split_once('\n').unwrap_or((letter, ""));
    let generated = HeaderName::new_from_ascii_str("Auto-Submitted");
    let mut message = Message::builder()
        .from(mailbox(&mail.from)?)
        .subject(subject)
        .header(ContentType::TEXT_PLAIN)
        // No answers of absent people (RFC 3834).
        .raw_header(HeaderValue::new(generated, "auto-generated".into()));
    for receiver in &mail.to {
        message = message.to(mailbox(receiver)?);
    }
    message.body(text.to_owned()).map_err(|error| error.to_string())
}

/// The files that a mail needs, read for each mail: they may be exchanged at any time.
struct Read {
    /// `None`: nothing is protected.
    authorities: Option<Authorities>,
    password: Option<Zeroizing<String>>,
}

impl Read {
    fn of(mail: &Mail) -> Result<Self, String> {
        let authorities = match mail.protection {
            Protection::None => None,
            _ => Some(Authorities::configured(mail.authorities.as_deref())?),
        };
        let password = mail.login.as_ref().map(|(_, file)| password(file)).transpose()?;
        Ok(Self { authorities, password })
    }
}

/// Settings for TLS from the command STARTTLS on.
fn starttls(authorities: &Authorities, host: &str) -> Result<TlsParameters, String> {
    let failed = |error: lettre::transport::smtp::Error| authorities.unusable(&error.to_string());
    let mut settings = TlsParameters::builder(host.to_owned()).certificate_store(CertificateStore::None);
    for authority in &authorities.certificates {
        settings = settings.add_root_certificate(Certificate::from_der(authority.to_vec()).map_err(failed)?);
    }
    settings.build().map_err(failed)
}

/// Settings for TLS from the first byte on.
fn tls(authorities: &Authorities) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for authority in &authorities.certificates {
        roots.add(authority.clone()).map_err(|error| authorities.unusable(&error.to_string()))?;
    }
    let config = ClientConfig::builder_with_provider(crate::tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// A connection with a bounded number of received bytes: a server, or an attacker on the way, could
/// answer without an end.
///
/// It returns them one by one, so that its reader never buffers bytes behind a line: answers that an
/// attacker appends to the one to STARTTLS reach the TLS handshake, which they break, and do not count
/// as those of the authenticated server.
#[derive(Debug)]
struct Bounded<S> {
    inner: S,
    peer: SocketAddr,
    left: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            let why = format!("the mail server answered more than {ANSWER_BYTES_MAX} bytes");
            return Poll::Ready(Err(io::Error::other(why)));
        }
        let mut part = buffer.take(1);
        std::task::ready!(Pin::new(&mut self.inner).poll_read(context, &mut part))?;
        let bytes = part.filled().len();
        // `part` wrote to the front of the unfilled part of `buffer`.
        let beginning = buffer.initialize_unfilled_to(bytes).len();
        buffer.advance(beginning);
        self.left -= bytes;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin + std::fmt::Debug> AsyncTokioStream for Bounded<S> {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

fn password(file: &Path) -> Result<Zeroizing<String>, String> {
    let failed = |why: String| format!("the mail password's file {} cannot be used: {why}", file.display());
    let open = regular::open(file).map_err(|error| failed(error.to_string()))?;
    let mode = open.metadata().map_err(|error| failed(error.to_string()))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(failed(format!("it has mode {mode:03o}, so others can read it: chmod 600")));
    }
    let mut text = Zeroizing::new(String::new());
    let read = open.take(PASSWORD_BYTES_MAX + 1).read_to_string(&mut text);
    if read.map_err(|error| failed(error.to_string()))? as u64 > PASSWORD_BYTES_MAX {
        return Err(failed(format!("it has more than {PASSWORD_BYTES_MAX} bytes")));
    }
    Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
}

/// Lists issues under a heading, if there are any.
pub(crate) fn list(text: &mut String, heading: &str, issues: &[&HealthIssue]) {
    if issues.is_empty() {
        return;
    }
    let _ = writeln!(text, "{heading}:\n");
    for issue in issues.iter().take(ISSUES_MAX) {
        let server = issue.server.as_deref().map(|server| format!(" ({server})")).unwrap_or_default();
        let HealthIssue { what, meaning, action, .. } = issue;
        let _ = writeln!(text, "* {what}{server}\n  {meaning}\n  {action}\n");
    }
    if let Some(more) = issues.len().checked_sub(ISSUES_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "... and {more} more: `cenote health` lists all\n");
    }
}

#[cfg(test)]
mod tests;
