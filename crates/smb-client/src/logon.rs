//! Credentials for a logon: from a file as mount.cifs reads it, or from the environment, never from a
//! command line.

use crate::Credentials;
use smb::auth::NtHash;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;

/// A credentials file is a few lines.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Any access of group and others, and execution.
const OTHERS: u32 = 0o177;

/// A user with a password; both may be missing.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Logon {
    pub user: Option<String>,
    pub password: Zeroizing<String>,
    pub domain: String,
}

/// Why a credentials file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogonError {
    #[error("credentials file {path} cannot be read: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("credentials file {path} has more than {FILE_BYTES_MAX} bytes")]
    TooLong { path: String },
    #[error("credentials file {path} may be read by others (its mode is {mode:04o}): chmod 600 {path}")]
    Exposed { path: String, mode: u32 },
    #[error("credentials file {path}: line {line} is not username=, password= or domain=")]
    Line { path: String, line: usize },
}

impl Logon {
    /// Reads lines `username=`, `password=` and `domain=`: blanks before a key, and lines of other keys or comments, mean
    /// nothing; a password is all that follows the sign. `DOMAIN\user` is taken apart.
    ///
    /// # Errors
    /// The number of a line without a sign.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut logon = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            let (key, value) = line.split_once('=').ok_or(number + 1)?;
            match key.trim_end() {
                "username" | "user" => logon.user = Some(value.to_owned()),
                "password" | "pass" => logon.password = Zeroizing::new(value.to_owned()),
                "domain" | "dom" | "workgroup" => value.clone_into(&mut logon.domain),
                _ => {}
            }
        }
        let apart = logon.user.as_ref().and_then(|user| user.split_once('\\'));
        if let Some((domain, user)) = apart.map(|(domain, user)| (domain.to_owned(), user.to_owned())) {
            (logon.domain, logon.user) = (domain, Some(user));
        }
        Ok(logon)
    }

    /// Reads a file that only its owner may read.
    ///
    /// # Errors
    /// [`LogonError`].
    pub fn read(path: &Path) -> Result<Self, LogonError> {
        let name = || path.display().to_string();
        let failed = |source| LogonError::Read { path: name(), source };
        let mut file = std::fs::File::open(path).map_err(failed)?;
        // Mode of the file that is read: its name may lead elsewhere a moment later.
        let found = file.metadata().map_err(failed)?;
        let mode = found.mode() & 0o7777;
        if mode & OTHERS != 0 {
            return Err(LogonError::Exposed { path: name(), mode });
        }
        if found.len() > FILE_BYTES_MAX {
            return Err(LogonError::TooLong { path: name() });
        }
        let mut text = Zeroizing::new(String::new());
        file.by_ref().take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        Self::parse(&text).map_err(|line| LogonError::Line { path: name(), line })
    }

    /// `PREFIX_USER`, `PREFIX_PASSWORD` and `PREFIX_DOMAIN`.
    pub fn from_environment(prefix: &str) -> Self {
        let variable = |name: &str| std::env::var(format!("{prefix}_{name}")).ok();
        Self {
            user: variable("USER"),
            password: Zeroizing::new(variable("PASSWORD").unwrap_or_default()),
            domain: variable("DOMAIN").unwrap_or_default(),
        }
    }

    /// As the session setup takes them; `user` goes before the logon's own. `None`: nobody is named.
    pub fn credentials(&self, user: Option<&str>, server: &str) -> Option<Credentials> {
        let user = user.or(self.user.as_deref())?;
        Some(Credentials::User {
            user: user.to_owned(),
            domain: self.domain.clone(),
            workstation: String::new(),
            hash: NtHash::from_password(&self.password),
            target_name: format!("cifs/{server}"),
        })
    }
}

#[cfg(test)]
mod tests;
