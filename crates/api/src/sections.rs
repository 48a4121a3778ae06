//! Sections `[api]` and `[health]` of the configuration.
//!
//! Owns their keys, defaults and documentation, and refuses values that make no sense. Never opens anything.

use crate::health_watch::{Receivers, Webhook};
use crate::mail::{DELIVERED_WITHIN, Mail, Protection, check_address, host_and_port};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use ureq::http::Uri;

/// Section `[api]`; [`DOCUMENTATION`] has the help of each key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiSection {
    /// Listener without TLS, on loopback.
    pub listen: SocketAddr,
    /// Listeners with TLS; none by default.
    pub tls_listen: Vec<SocketAddr>,
    /// Certificate with its chain, in PEM form.
    pub tls_certificate: PathBuf,
    /// Private key of the certificate, in PEM form.
    pub tls_key: PathBuf,
}

/// Section `[health]`; [`DOCUMENTATION`] has the help of each key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthSection {
    /// URL of the webhook; empty: none.
    pub webhook: String,
    /// Authorities for the webhook, in PEM form; empty: the system's.
    pub webhook_ca_file: PathBuf,
    /// HOST or HOST:PORT of the SMTP server; empty: no mail.
    pub mail_server: String,
    /// Protection of mails and of the login.
    pub mail_protection: Protection,
    /// Address of the sender.
    pub mail_from: String,
    /// Addresses of the receivers.
    pub mail_to: Vec<String>,
    /// User of the login; empty: no login.
    pub mail_user: String,
    /// File with the password of the login.
    pub mail_password_file: PathBuf,
    /// Authorities for the SMTP server, in PEM form; empty: the system's.
    pub mail_ca_file: PathBuf,
}

/// Every key, as `section.key`, and its help.
pub const DOCUMENTATION: &[(&str, &str)] = &[
    ("api.listen", "Address and port of the management API for this machine. Loopback only."),
    (
        "api.tls_listen",
        "Addresses and ports of the management API for others, over TLS; needs certificate and key.",
    ),
    (
        "api.tls_certificate",
        "The certificate for it in PEM form, with those between it and an authority that clients trust.",
    ),
    (
        "api.tls_key",
        "Its key in PEM form, not readable by everybody. Both are read again when they have changed.",
    ),
    (
        "health.webhook",
        "URL (http or https) to which changes of health are posted as JSON; \"\": none. They go to the log in any case.",
    ),
    (
        "health.webhook_ca_file",
        "Authorities, in PEM form, that may vouch for the webhook's name; \"\": those that the system trusts.",
    ),
    (
        "health.mail_server",
        "HOST or HOST:PORT of the SMTP server that takes mails about changes of health; \"\": none.",
    ),
    (
        "health.mail_protection",
        "starttls (port 587): TLS by STARTTLS, and nothing is sent without; tls (port 465): TLS from the first byte; none (port 25): for a relay on \
         this machine, without a login.",
    ),
    ("health.mail_from", "The sender's address."),
    ("health.mail_to", "The receivers' addresses."),
    ("health.mail_user", "Name for the server's login; \"\": none."),
    ("health.mail_password_file", "File with the login's password, of mode 0600."),
    (
        "health.mail_ca_file",
        "Authorities, in PEM form, that may vouch for the mail server's name; \"\": those that the system trusts.",
    ),
];

/// A value that parses and makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadKey {
    /// Key, as `section.key`.
    pub key: &'static str,
    /// Reason, or the form that a value has.
    pub why: String,
}

fn bad(key: &'static str, why: impl Into<String>) -> Result<(), BadKey> {
    Err(BadKey { key, why: why.into() })
}

fn is_set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

impl Default for ApiSection {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9445)),
            tls_listen: Vec::new(),
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
        }
    }
}

impl ApiSection {
    /// # Errors
    /// [`BadKey`].
    pub fn check(&self) -> Result<(), BadKey> {
        if !self.listen.ip().is_loopback() {
            return bad(
                "api.listen",
                "it is served on loopback only, without TLS: take 127.0.0.1 or [::1]; api.tls_listen is for others",
            );
        }
        if self.tls_listen.is_empty() {
            return Ok(());
        }
        for (key, path) in [("api.tls_certificate", &self.tls_certificate), ("api.tls_key", &self.tls_key)] {
            if !is_set(path) {
                return bad(key, "api.tls_listen needs a certificate and its key");
            }
        }
        Ok(())
    }
}

/// Demands a URL to which a request can be sent, by the parser that makes the requests.
fn check_url(url: &str) -> Result<(), String> {
    let shown = url.escape_debug();
    if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(format!("'{shown}' is no URL of HTTP"));
    }
    let uri: Uri = url.parse().map_err(|why| format!("'{shown}': {why}"))?;
    let Some(host) = uri.host().filter(|host| !host.is_empty()) else {
        return Err(format!("'{shown}' names no server"));
    };
    // The parser takes any text as the port, and the requests would go to the scheme's port.
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let port = authority.rsplit('@').next().and_then(|place| place.strip_prefix(host)).unwrap_or_default();
    match port.is_empty() || uri.port_u16().is_some_and(|port| port != 0) {
        true => Ok(()),
        false => Err(format!("'{shown}': the port is a number from 1 to 65535")),
    }
}

impl HealthSection {
    /// # Errors
    /// [`BadKey`].
    pub fn check(&self) -> Result<(), BadKey> {
        if !self.webhook.is_empty()
            && let Err(why) = check_url(&self.webhook)
        {
            return bad("health.webhook", format!("{why}; http://SERVER/PATH or https://SERVER/PATH"));
        }
        self.check_mail()
    }

    fn check_mail(&self) -> Result<(), BadKey> {
        if self.mail_server.is_empty() {
            return match self.mail_to.is_empty() {
                true => Ok(()),
                false => bad("health.mail_server", "health.mail_to needs it"),
            };
        }
        if let Err(why) = host_and_port(&self.mail_server, self.mail_protection) {
            return bad("health.mail_server", why);
        }
        if let Err(why) = check_address(&self.mail_from) {
            return bad("health.mail_from", why);
        }
        if self.mail_to.is_empty() {
            return bad("health.mail_to", "at least one address is needed");
        }
        if let Some(why) = self.mail_to.iter().find_map(|address| check_address(address).err()) {
            return bad("health.mail_to", why);
        }
        if self.mail_user.is_empty() == is_set(&self.mail_password_file) {
            return bad("health.mail_password_file", "health.mail_user and it belong together");
        }
        if self.mail_protection == Protection::None && !self.mail_user.is_empty() {
            return bad(
                "health.mail_protection",
                "a password is not sent in the clear: take starttls or tls",
            );
        }
        Ok(())
    }

    /// The receivers of changes of health.
    pub fn receivers(&self) -> Receivers {
        let file = |path: &PathBuf| is_set(path).then(|| path.clone());
        let webhook = (!self.webhook.is_empty())
            .then(|| Webhook { url: self.webhook.clone(), authorities: file(&self.webhook_ca_file) });
        let server = host_and_port(&self.mail_server, self.mail_protection).ok();
        let mail = server.map(|(host, port)| Mail {
            host,
            port,
            protection: self.mail_protection,
            from: self.mail_from.clone(),
            to: self.mail_to.clone(),
            login: file(&self.mail_password_file).map(|file| (self.mail_user.clone(), file)),
            authorities: file(&self.mail_ca_file),
            delivered_within: DELIVERED_WITHIN,
        });
        Receivers { webhook, mail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mails() -> HealthSection {
        HealthSection {
            mail_server: "mail.example.com".into(),
            mail_from: "filer@example.com".into(),
            mail_to: vec!["ann@example.com".into()],
            mail_user: "filer".into(),
            mail_password_file: "/etc/cenote/mail.password".into(),
            ..HealthSection::default()
        }
    }

    #[test]
    fn a_webhook_is_a_url_to_which_a_request_can_be_sent() {
        let check = |url: &str| HealthSection { webhook: url.into(), ..HealthSection::default() }.check();
        for url in [
            "http://ho st/x",
            "http://[::1/x",
            "http:// /x",
            "http://h:port/x",
            "http://127.0.0.1:99999/x",
            "http://h:0/x",
            "http://h:/x",
            "http://",
            "https:///x",
            "http://user@/x",
            "hooks.example",
            "ftp://h/x",
            "http://h/a b",
        ] {
            let refused = check(url).expect_err(url);
            assert!(
                refused.key == "health.webhook" && refused.why.contains("http://SERVER/PATH"),
                "{refused:?}"
            );
        }
        for url in [
            "http://hooks.example",
            "https://hooks.example:8443/x?token=a",
            "http://[::1]:9/x",
            "http://[fd00::1]/x",
            "http://user:word@hooks.example:80/x",
            "",
        ] {
            check(url).expect(url);
        }
    }

    #[test]
    fn a_password_for_mails_goes_protected_only() {
        let section = mails();
        section.check().unwrap();
        let mail = section.receivers().mail.unwrap();
        assert_eq!((mail.host.as_str(), mail.port), ("mail.example.com", 587));
        assert_eq!(mail.protection, Protection::Starttls);
        let open = HealthSection { mail_protection: Protection::None, ..section };
        assert_eq!(open.check().unwrap_err().key, "health.mail_protection");
    }

    #[test]
    fn mails_that_could_not_be_sent_are_refused_by_key() {
        let wrong = |change: fn(&mut HealthSection), key| {
            let mut section = mails();
            change(&mut section);
            assert_eq!(section.check().unwrap_err().key, key);
        };
        wrong(|section| section.mail_server = String::new(), "health.mail_server");
        wrong(|section| section.mail_server = "a:b".into(), "health.mail_server");
        wrong(|section| section.mail_from = "filer".into(), "health.mail_from");
        wrong(|section| section.mail_to.clear(), "health.mail_to");
        wrong(|section| section.mail_to.push("ann".into()), "health.mail_to");
        wrong(|section| section.mail_user.clear(), "health.mail_password_file");
        wrong(|section| section.mail_password_file = PathBuf::new(), "health.mail_password_file");
    }
}
