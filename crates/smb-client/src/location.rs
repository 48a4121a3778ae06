//! Files of shares as people write them: `//server/share/path`, `\\server\share\path`, `smb://[user@]server[,server...][:port]/share/path`.

use std::fmt;

/// A file or directory of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Host name or address, without brackets.
    pub server: String,
    /// Servers of the same cluster to try after it, in this order; the port is that of all.
    pub others: Vec<String>,
    /// Of the transport that is used; `None`: its usual one.
    pub port: Option<u16>,
    /// User in front of an `@`, if there is one.
    pub user: Option<String>,
    /// Name of the share.
    pub share: String,
    /// Relative to the share, with backslashes; empty: its root.
    pub path: String,
}

/// Fault of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// Text with another beginning.
    #[error("it does not begin with //, \\\\ or smb://")]
    Scheme,
    /// No host name between scheme and share.
    #[error("the server is missing")]
    Server,
    /// No name behind the server's.
    #[error("the share is missing")]
    Share,
    /// `USER:PASSWORD@`, which other users of the machine could read.
    #[error("a password does not belong on a command line")]
    Password,
    /// Address of IPv6 without the bracket at its end.
    #[error("the address lacks its ']'")]
    Bracket,
    /// Port of other characters than digits, 0, or above 65535.
    #[error("the port is no port")]
    Port,
    /// Port of a server that others follow.
    #[error("the servers have one port, behind the last of them")]
    PortInFront,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "//{}", self.server)?;
        for other in &self.others {
            write!(f, ",{other}")?;
        }
        write!(f, "/{}/{}", self.share, self.path.replace('\\', "/"))
    }
}

fn without_scheme(text: &str) -> Option<(&str, bool)> {
    let (scheme, rest) = text.split_at_checked(6).unwrap_or((text, ""));
    if scheme.eq_ignore_ascii_case("smb://") {
        return Some((rest, true));
    }
    text.strip_prefix("//").or_else(|| text.strip_prefix("\\\\")).map(|rest| (rest, false))
}

/// A server and the port behind it, if there is one.
fn server_of(host: &str) -> Result<(&str, Option<&str>), LocationError> {
    let (server, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']').ok_or(LocationError::Bracket)?;
            (address, after.strip_prefix(':'))
        }
        None => host.split_once(':').map_or((host, None), |(server, port)| (server, Some(port))),
    };
    if server.is_empty() { Err(LocationError::Server) } else { Ok((server, port)) }
}

impl Location {
    /// Whether a name cannot be one of a local file: it begins with `\\` or `smb://`.
    pub fn is_meant(text: &str) -> bool {
        !text.starts_with('/') && without_scheme(text).is_some()
    }

    /// Either slash separates, but a URL has only its own.
    ///
    /// # Errors
    /// The part that is missing or wrong.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        let (rest, is_url) = without_scheme(text).ok_or(LocationError::Scheme)?;
        let separators: &[char] = if is_url { &['/'] } else { &['/', '\\'] };
        let mut parts = rest.splitn(3, separators);
        let authority = parts.next().unwrap_or_default();
        let share = parts.next().filter(|share| !share.is_empty());
        let path = parts.next().unwrap_or_default().replace('/', "\\");
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err(LocationError::Password);
        }
        let mut servers = Vec::new();
        let mut port = None;
        for one in host.split(',') {
            if port.is_some() {
                return Err(LocationError::PortInFront);
            }
            let (server, its_port) = server_of(one)?;
            servers.push(server.to_owned());
            port = its_port;
        }
        let mut servers = servers.into_iter();
        let number = |port: &str| port.parse().ok().filter(|port| *port > 0).ok_or(LocationError::Port);
        Ok(Self {
            server: servers.next().ok_or(LocationError::Server)?,
            others: servers.collect(),
            port: port.map(number).transpose()?,
            user: user.filter(|user| !user.is_empty()).map(str::to_owned),
            share: share.ok_or(LocationError::Share)?.to_owned(),
            path: path.trim_matches('\\').to_owned(),
        })
    }
}

#[cfg(test)]
mod tests;
