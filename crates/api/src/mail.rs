//! Mails about health, by SMTP.
//!
//! Promises: a login and a mail leave only by the protection that is set; the server has proved its name by then; each step of the conversation
//! is bounded in time. The password is read from its file for each mail, and is never logged.

use crate::https::SYSTEM_AUTHORITIES;
use crate::model::HealthIssue;
use lettre::message::Mailbox;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{Message, SmtpTransport, Transport};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// Timeout of each of the server's answers.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a password's file.
const PASSWORD_BYTES_MAX: u64 = 4096;
/// Issues that a mail lists in each of its parts.
const ISSUES_MAX: usize = 50;

/// Protection of mails and logins on their way.
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
    pub host: String,
    pub port: u16,
    pub protection: Protection,
    pub from: String,
    pub to: Vec<String>,
    /// User, and the file of the password.
    pub login: Option<(String, PathBuf)>,
    /// May vouch for the server's name; `None`: those the system trusts.
    pub authorities: Option<PathBuf>,
    /// Time for each step, [`ANSWER_WITHIN`] but in tests.
    pub answer_within: Duration,
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

/// Sends a letter: its first line is the subject. Blocks.
///
/// # Errors
/// Why it was not taken.
pub fn send(mail: &Mail, letter: &str) -> Result<(), String> {
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
    let message = message.body(text.to_owned()).map_err(|error| error.to_string())?;
    let mut transport = SmtpTransport::builder_dangerous(mail.host.clone())
        .port(mail.port)
        .timeout(Some(mail.answer_within))
        .tls(protection(mail)?);
    if let Some((user, file)) = &mail.login {
        let password = password(file)?;
        transport = transport.credentials(Credentials::new(user.clone(), password.to_string()));
    }
    transport.build().send(&message).map(|_| ()).map_err(|error| error.to_string())
}

fn protection(mail: &Mail) -> Result<Tls, String> {
    if mail.protection == Protection::None {
        return Ok(Tls::None);
    }
    let file = mail.authorities.clone().unwrap_or_else(|| PathBuf::from(SYSTEM_AUTHORITIES));
    let failed =
        |why: String| format!("the authorities' certificates {} cannot be used: {why}", file.display());
    let text = std::fs::read(&file).map_err(|error| failed(error.to_string()))?;
    let authorities = Certificate::from_pem(&text).map_err(|error| failed(error.to_string()))?;
    let parameters = TlsParameters::builder(mail.host.clone())
        .certificate_store(CertificateStore::None)
        .add_root_certificate(authorities)
        .build()
        .map_err(|error| failed(error.to_string()))?;
    Ok(match mail.protection {
        Protection::Tls => Tls::Wrapper(parameters),
        _ => Tls::Required(parameters),
    })
}

fn password(file: &Path) -> Result<Zeroizing<String>, String> {
    let failed = |why: String| format!("the mail password's file {} cannot be used: {why}", file.display());
    let open = File::open(file).map_err(|error| failed(error.to_string()))?;
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
