//! The configuration file: listeners, paths and limits. Everything else is in the cluster state.
//!
//! Owns the keys, their defaults and their documentation. Promises: an unknown key, a wrong type or a value out of range is
//! refused with its name and line; the effective configuration, printed, reads back as itself. Never opens anything.

use crate::control::SmbPolicy;
use crate::limits::Limits;
use crate::rdma_devices::AUTO;
use api::sections::{self, ApiSection, BadKey, HealthSection};
use machine::interfaces::InterfaceRule;
use machine::places::DiskPlaces;
use member::section::{self, ClusterSection};
use records::accounts::{GENERATED_PASSWORD_CHARS, PasswordPolicy};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::size::deserialize_size;

/// The whole configuration; a missing section or key has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Section `[server]`.
    pub server: Server,
    /// Section `[smb]`.
    pub smb: Smb,
    /// Section `[api]`.
    pub api: ApiSection,
    /// Section `[health]`.
    pub health: HealthSection,
    /// Section `[cluster]`.
    pub cluster: ClusterSection,
    /// Section `[disks]`.
    pub disks: Disks,
    /// Section `[accounts]`.
    pub accounts: AccountKeys,
    /// Section `[limits]`.
    pub limits: LimitKeys,
    /// Section `[log]`.
    pub log: Log,
}

/// Section `[server]`: the server itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Data directory, of mode 0700.
    pub data_dir: PathBuf,
    /// NetBIOS-style name: at most 15 letters, digits and `-`.
    pub name: String,
    /// Seconds that requests in work have to end in after SIGTERM.
    pub drain_s: u64,
}

/// Section `[smb]`: listeners, and demands on clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Smb {
    /// Addresses and ports of SMB by TCP.
    pub listen: Vec<SocketAddr>,
    /// Addresses and ports of SMB Direct over iWARP in software.
    pub rdma_listen: Vec<SocketAddr>,
    /// `auto`, or addresses with ports, of SMB Direct by RDMA devices; none: no such device.
    pub rdma_devices: Vec<String>,
    /// SMB Direct in software has a CRC in every frame.
    pub rdma_crc: bool,
    /// Interfaces or subnets offered to clients for multichannel; none: all.
    pub interfaces: Vec<String>,
    /// Requests that are not signed are refused.
    pub require_signing: bool,
    /// Further names of this server for clients; `*`: any.
    pub names: Vec<String>,
    /// Logons for servers of other names are refused.
    pub refuse_other_names: bool,
    /// Clients that do not encrypt are refused.
    pub require_encryption: bool,
}

/// Section `[disks]`: places of disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Disks {
    /// Directories, files and devices in which labelled disks are searched.
    pub search: Vec<PathBuf>,
    /// Directories in which files may be disks for operators too.
    pub directories: Vec<PathBuf>,
}

/// Section `[accounts]`: rules for passwords.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccountKeys {
    /// Fewest characters of a new password.
    pub password_characters_min: u32,
}

/// Section `[limits]`: bounds on clients, memory and disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitKeys {
    /// Connections at a time, by TCP and by SMB Direct each.
    pub connections: u32,
    /// Connections at a time of one address, or IPv6 network of 64 bits.
    pub connections_per_host: u32,
    /// Sessions at a time.
    pub sessions: u32,
    /// Opens at a time, durable ones whose clients are away included.
    pub opens: u32,
    /// Byte-range locks that one open holds or waits for.
    pub locks_per_open: u32,
    /// Requests in work of one connection; the most credits that it is granted.
    pub requests_per_connection: u32,
    /// Bytes of requests and answers in work over all connections.
    #[serde(deserialize_with = "deserialize_size")]
    pub bytes_in_flight: u64,
    /// Bytes of RAM for cached reads, buffered writes and metadata.
    #[serde(deserialize_with = "deserialize_size")]
    pub cache_bytes: u64,
    /// Milliseconds in which a disk must answer.
    pub disk_timeout_ms: u64,
    /// Seconds that a disk may be away before its data is rebuilt on others.
    pub repair_delay_s: u64,
    /// Period in seconds in which every block is verified once; 0: never.
    pub scrub_period_s: u64,
    /// Bytes a second that a scrub reads at most.
    #[serde(deserialize_with = "deserialize_size")]
    pub scrub_bytes_per_s: u64,
    /// Microseconds, at most 10,000, for which the loop polls before it sleeps; 0: none.
    pub busy_poll_us: u64,
}

/// Section `[log]`: the log on standard error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `off`, `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
}

const BUSY_POLL_US_MAX: u64 = 10_000;

/// Keys, as `section.key`, and their help: those before the sections of other crates.
const DOCUMENTATION_BEFORE: &[(&str, &str)] = &[
    (
        "server.data_dir",
        "Where the cluster state, the key file, the API token and the audit log are. Mode 0700.",
    ),
    (
        "server.name",
        "The server's name as clients see it in NTLM and in listings: at most 15 letters, digits and -.",
    ),
    ("server.drain_s", "Seconds that requests in work have to end in after SIGTERM."),
    (
        "smb.listen",
        "Addresses and ports of the SMB server; \"[::]:445\": all addresses, of IPv4 and of IPv6.",
    ),
    ("smb.rdma_listen", "Addresses and ports of SMB Direct over iWARP in software; clients use port 5445."),
    (
        "smb.rdma_devices",
        "SMB Direct by RDMA devices: \"auto\" for each address of smb.listen that leads to one, or addresses with ports; [] for none.",
    ),
    (
        "smb.rdma_crc",
        "SMB Direct in software: a CRC in every frame. false: only where the client wants one; for loopback and networks that are trusted.",
    ),
    (
        "smb.interfaces",
        "Interfaces (\"eth0\", \"eth*\") or subnets (\"10.1.0.0/16\") that clients may be told for multichannel; none: all that are \
         listened on. \"...,speed_mbps=N\" where the kernel does not know the link's speed.",
    ),
    (
        "smb.require_signing",
        "Refuse requests that are not signed. false: for clients that cannot sign, and for SMB Direct of clients that move no signed \
         payload by RDMA; whoever a user's client talks to can then use that user's logon here.",
    ),
    (
        "smb.names",
        "Names by which clients reach this server besides server.name and its addresses, such as an alias in DNS, the cluster's name, or the address of a \
         port forwarding; \"*\": any.",
    ),
    (
        "smb.refuse_other_names",
        "Refuse logons that a client meant for a server of another name (as SmbServerNameHardeningLevel 1 of Windows). false: only if signing is not \
         required; else they are told in the log.",
    ),
    ("smb.require_encryption", "Refuse clients that do not encrypt."),
];

/// Those behind them.
const DOCUMENTATION_BEHIND: &[(&str, &str)] = &[
    (
        "disks.search",
        "Directories, files and devices where labelled disks are looked for: those that are not where they were, and those of a \
         pool to import.",
    ),
    (
        "disks.directories",
        "Directories in which files may be disks, for operators too; none: an administrator names any but those of the operating system, and \
         operators name devices only. Never the server's own, beside DATA/disks.",
    ),
    (
        "accounts.password_characters_min",
        "Characters that a new password has at least; those that are set already stay. 1: any.",
    ),
    (
        "limits.connections",
        "Connections at a time, by TCP and by SMB Direct each. If there would be more, those on which nobody has logged on make room.",
    ),
    (
        "limits.connections_per_host",
        "Connections at a time of one client address, or IPv6 network of 64 bits.",
    ),
    (
        "limits.sessions",
        "Sessions at a time; at most half of those that others leave for one user, or one address.",
    ),
    (
        "limits.opens",
        "Open files at a time, durable ones whose clients are away included. One user has no more than are free, so half at most; \
         one session a quarter.",
    ),
    (
        "limits.locks_per_open",
        "Byte-range locks that one open file holds or waits for; a session has at most 65,536 of them.",
    ),
    ("limits.requests_per_connection", "Requests in work of one connection; the most credits it is granted."),
    (
        "limits.bytes_in_flight",
        "Bytes of requests and answers being received, worked on or sent. One host has no more than are free, so half at most.",
    ),
    (
        "limits.cache_bytes",
        "Bytes of RAM for cached reads, buffered writes and metadata, over all volumes; by default a quarter of the memory.",
    ),
    ("limits.disk_timeout_ms", "Milliseconds in which a disk must answer, or it is taken out."),
    ("limits.repair_delay_s", "Seconds a disk may stay away before its data is made anew on others."),
    (
        "limits.scrub_period_s",
        "Seconds in which every block on every disk is read and verified once; 0: never.",
    ),
    (
        "limits.scrub_bytes_per_s",
        "Bytes a second that a scrub reads at most; one disk is scrubbed at a time.",
    ),
    (
        "limits.busy_poll_us",
        "Microseconds that the server looks for work before it sleeps, while work keeps coming: answers sooner. What is idle does not look. 0: never.",
    ),
    ("log.level", "off, error, warn, info, debug or trace; the log goes to standard error."),
];

/// Every key and its help, in the order in which the configuration is printed.
fn documentation() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    DOCUMENTATION_BEFORE
        .iter()
        .chain(sections::DOCUMENTATION)
        .chain(section::DOCUMENTATION)
        .chain(DOCUMENTATION_BEHIND)
}

impl Default for Server {
    fn default() -> Self {
        Self { data_dir: "/var/lib/cenote".into(), name: "CENOTE".into(), drain_s: 30 }
    }
}

impl Default for Smb {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 445))],
            rdma_listen: Vec::new(),
            rdma_devices: vec![AUTO.into()],
            rdma_crc: true,
            interfaces: Vec::new(),
            require_signing: true,
            names: Vec::new(),
            refuse_other_names: false,
            require_encryption: false,
        }
    }
}

impl Default for Disks {
    fn default() -> Self {
        Self { search: vec!["/dev/disk/by-id".into()], directories: Vec::new() }
    }
}

impl Default for AccountKeys {
    /// NIST SP 800-63B, 5.1.1, demands this for passwords that people choose.
    fn default() -> Self {
        Self { password_characters_min: 8 }
    }
}

impl Default for LimitKeys {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            connections: limits.connections,
            connections_per_host: limits.connections_per_host,
            sessions: limits.sessions,
            opens: limits.opens,
            locks_per_open: limits.locks_per_open,
            requests_per_connection: limits.requests_per_connection,
            bytes_in_flight: limits.bytes_in_flight,
            cache_bytes: limits.cache_bytes,
            disk_timeout_ms: u64::try_from(limits.disk_timeout.as_millis()).unwrap_or(u64::MAX),
            repair_delay_s: limits.repair_delay.as_secs(),
            scrub_period_s: limits.scrub_period.as_secs(),
            scrub_bytes_per_s: limits.scrub_rate,
            busy_poll_us: limits.busy_poll.as_micros() as u64,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into() }
    }
}

/// Keys of a file that was read again and differ from those in effect.
#[derive(Debug, PartialEq, Eq)]
pub struct TakenUp {
    /// Keys, as `section.key`, whose new values are in force now.
    pub in_force: Vec<&'static str>,
    /// In force after a restart.
    pub restart: Vec<&'static str>,
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file at `path` cannot be read.
    #[error("configuration file {path}: {source}")]
    Read { path: String, source: std::io::Error },
    /// The file is not TOML, or has an unknown key or a wrong type, in `line`.
    #[error("configuration file {path}, {line}: {why}")]
    Parse { path: String, line: String, why: String },
    /// The value of `key` is out of range or contradicts another.
    #[error("configuration key {key}: {why}")]
    Value { key: &'static str, why: String },
}

impl From<BadKey> for ConfigError {
    fn from(BadKey { key, why }: BadKey) -> Self {
        Self::Value { key, why }
    }
}

impl Config {
    /// # Errors
    /// [`ConfigError`] with path, line and key.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::of_file(path, std::fs::read_to_string(path))
    }

    /// As [`Config::read`], of a regular file only: a pipe would hold a running server's reader for ever.
    pub fn read_again(path: &Path) -> Result<Self, ConfigError> {
        Self::of_file(path, api::regular::read_text(path, 1 << 20))
    }

    fn of_file(path: &Path, text: std::io::Result<String>) -> Result<Self, ConfigError> {
        let path = path.display().to_string();
        match text {
            Ok(text) => Self::parse(&text, &path),
            Err(source) => Err(ConfigError::Read { path, source }),
        }
    }

    /// # Errors
    /// As [`Config::read`]; `name` is that of the file.
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        let refused = |error: &toml::de::Error, key: &str| {
            let line = error.span().map_or_else(String::new, |span| {
                let before = text.get(..span.start).unwrap_or_default();
                format!("line {}", before.matches('\n').count() + 1)
            });
            let why = format!("{key}{}", in_plain_words(error.message()));
            ConfigError::Parse { path: name.to_owned(), line, why }
        };
        let keys = toml::Deserializer::parse(text).map_err(|error| refused(&error, ""))?;
        let config: Self = serde_path_to_error::deserialize(keys).map_err(|error| {
            let key = error.path().to_string();
            // The message names a key that is unknown.
            let is_named = key == "." || error.inner().message().starts_with("unknown field");
            refused(error.inner(), &if is_named { String::new() } else { format!("{key}: ") })
        })?;
        config.check()?;
        Ok(config)
    }

    /// Values that parse and make no sense.
    ///
    /// # Errors
    /// [`ConfigError::Value`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let bad = |key, why: &str| Err(ConfigError::Value { key, why: why.to_owned() });
        let name = &self.server.name;
        if name.is_empty() || name.len() > 15 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        {
            return bad("server.name", "at most 15 letters, digits and -");
        }
        if self.server.data_dir.as_os_str().is_empty() {
            return bad("server.data_dir", "it is empty");
        }
        if self.smb.listen.is_empty() {
            return bad("smb.listen", "at least one ADDRESS:PORT is needed");
        }
        for rule in &self.smb.interfaces {
            if let Err(why) = rule.parse::<InterfaceRule>() {
                return bad("smb.interfaces", &why);
            }
        }
        for device in &self.smb.rdma_devices {
            if device != AUTO && device.parse::<SocketAddr>().is_err() {
                return bad("smb.rdma_devices", &format!("{device} is neither auto nor ADDRESS:PORT"));
            }
        }
        self.cluster.check()?;
        self.api.check()?;
        self.health.check()?;
        if !["off", "error", "warn", "info", "debug", "trace"].contains(&self.log.level.as_str()) {
            return bad("log.level", "off, error, warn, info, debug or trace");
        }
        self.check_numbers()
    }

    fn check_numbers(&self) -> Result<(), ConfigError> {
        let bad = |key, why: &str| Err(ConfigError::Value { key, why: why.to_owned() });
        let characters = self.accounts.password_characters_min as usize;
        if !(1..=GENERATED_PASSWORD_CHARS).contains(&characters) {
            let why = format!("1 to {GENERATED_PASSWORD_CHARS}, which is what generated passwords have");
            return bad("accounts.password_characters_min", &why);
        }
        let limits = &self.limits;
        for (key, value, least) in [
            ("limits.connections", u64::from(limits.connections), 1),
            ("limits.connections_per_host", u64::from(limits.connections_per_host), 1),
            ("limits.sessions", u64::from(limits.sessions), 1),
            ("limits.opens", u64::from(limits.opens), 16),
            ("limits.locks_per_open", u64::from(limits.locks_per_open), 1),
            ("limits.requests_per_connection", u64::from(limits.requests_per_connection), 8),
            ("limits.bytes_in_flight", limits.bytes_in_flight, 16 << 20),
            ("limits.cache_bytes", limits.cache_bytes, 8 << 20),
            ("limits.disk_timeout_ms", limits.disk_timeout_ms, 100),
            ("limits.scrub_bytes_per_s", limits.scrub_bytes_per_s, 1 << 20),
        ] {
            if value < least {
                return bad(key, &format!("at least {least}"));
            }
        }
        if limits.busy_poll_us > BUSY_POLL_US_MAX {
            return bad("limits.busy_poll_us", &format!("at most {BUSY_POLL_US_MAX}"));
        }
        Ok(())
    }

    /// Returns TOML with every key, its value in effect and its meaning.
    pub fn documented(&self) -> String {
        let Ok(toml::Value::Table(sections)) = toml::Value::try_from(self) else { return String::new() };
        let mut text = String::new();
        let mut current = "";
        for (path, help) in documentation() {
            let Some((section, key)) = path.split_once('.') else { continue };
            let Some(value) = sections.get(section).and_then(|section| section.get(key)) else { continue };
            if section != current {
                let gap = if current.is_empty() { "" } else { "\n" };
                let _ = writeln!(text, "{gap}[{section}]");
                current = section;
            }
            let _ = writeln!(text, "# {help}\n{key} = {value}");
        }
        text
    }

    /// Returns the limits in the units that the data plane works with.
    pub fn limits(&self) -> Limits {
        let keys = &self.limits;
        Limits {
            connections: keys.connections,
            connections_per_host: keys.connections_per_host,
            sessions: keys.sessions,
            opens: keys.opens,
            locks_per_open: keys.locks_per_open,
            requests_per_connection: keys.requests_per_connection,
            bytes_in_flight: keys.bytes_in_flight,
            cache_bytes: keys.cache_bytes,
            disk_timeout: Duration::from_millis(keys.disk_timeout_ms),
            repair_delay: Duration::from_secs(keys.repair_delay_s),
            scrub_period: Duration::from_secs(keys.scrub_period_s),
            scrub_rate: keys.scrub_bytes_per_s,
            busy_poll: Duration::from_micros(keys.busy_poll_us),
        }
    }

    /// Applies the values of a reloaded file that a running server can change. Returns the keys now in
    /// force, and those of the others that differ.
    pub fn take_up(&mut self, new: &Self) -> TakenUp {
        let before = self.differing(new);
        self.health.clone_from(&new.health);
        self.accounts.clone_from(&new.accounts);
        self.log.clone_from(&new.log);
        let restart = self.differing(new);
        let in_force = before.into_iter().filter(|key| !restart.contains(key)).collect();
        TakenUp { in_force, restart }
    }

    /// The keys that have another value in the other configuration.
    fn differing(&self, other: &Self) -> Vec<&'static str> {
        let tables = [self, other].map(|config| toml::Value::try_from(config).ok());
        let value = |table: &Option<toml::Value>, path: &str| {
            let (section, key) = path.split_once('.')?;
            table.as_ref()?.get(section)?.get(key).cloned()
        };
        let [own, others] = &tables;
        documentation()
            .map(|(path, _)| *path)
            .filter(|path| value(own, path) != value(others, path))
            .collect()
    }

    /// Returns the places for disks in files, as configured.
    pub fn disk_places(&self) -> DiskPlaces {
        let (api, cluster, health) = (&self.api, &self.cluster, &self.health);
        let taken = [
            &api.tls_certificate,
            &api.tls_key,
            &health.webhook_ca_file,
            &health.mail_ca_file,
            &health.mail_password_file,
            &cluster.etcd_ca_file,
            &cluster.etcd_certificate,
            &cluster.etcd_key,
        ];
        DiskPlaces {
            data: self.server.data_dir.clone(),
            directories: self.disks.directories.clone(),
            taken: taken.into_iter().cloned().collect(),
        }
    }

    /// Returns the rule for new passwords.
    pub fn password_policy(&self) -> PasswordPolicy {
        PasswordPolicy { characters_min: self.accounts.password_characters_min }
    }

    /// Returns the SMB server's demands; the interfaces are added later.
    pub fn smb_policy(&self) -> SmbPolicy {
        SmbPolicy {
            server_name: self.server.name.clone(),
            require_signing: self.smb.require_signing,
            names: self.smb.names.clone(),
            refuse_other_names: self.smb.refuse_other_names,
            require_encryption: self.smb.require_encryption,
            rdma_crc_optional: !self.smb.rdma_crc,
            interfaces: Vec::new(),
        }
    }

    /// Returns the rules for the interfaces that clients may learn of.
    pub fn interface_rules(&self) -> Vec<InterfaceRule> {
        self.smb.interfaces.iter().filter_map(|rule| rule.parse().ok()).collect()
    }
}

/// A message of the format, without the names that this language has for types.
fn in_plain_words(message: &str) -> String {
    let words = [
        ("expected u64", "expected a number, 0 or more"),
        ("expected u32", "expected a number, 0 or more"),
        ("expected a boolean", "expected true or false"),
        ("expected socket address", "expected \"ADDRESS:PORT\""),
        ("invalid socket address syntax", "expected \"ADDRESS:PORT\""),
        ("expected a sequence", "expected a list: [...]"),
    ];
    words.iter().fold(message.to_owned(), |message, (theirs, ours)| message.replace(theirs, ours))
}

#[cfg(test)]
mod tests;
