//! Names of files on SMB shares: `\\server\share\path` and `smb://[user@]server[:port]/share/path`.

/// A file of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmbPath {
    pub server: String,
    /// Of the transport that is used; `None`: its usual one.
    pub port: Option<u16>,
    pub user: Option<String>,
    pub share: String,
    /// Relative to the share, with backslashes.
    pub path: String,
}

/// Whether a target's name is meant as SMB.
pub fn looks_like(name: &str) -> bool {
    name.starts_with("\\\\") || name.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("smb://"))
}

impl SmbPath {
    /// # Errors
    /// What is missing or wrong.
    pub fn parse(name: &str) -> Result<Self, &'static str> {
        if let Some(rest) = name.strip_prefix("\\\\") {
            let mut parts = rest.splitn(3, ['\\', '/']);
            return Self::from_parts(None, parts.next(), None, parts.next(), parts.next());
        }
        let rest = name.get(6..).ok_or("it is no address")?;
        let mut parts = rest.splitn(3, '/');
        let authority = parts.next().unwrap_or_default();
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err("a password does not belong on a command line: use --smb-credentials");
        }
        let (server, port) = match host.strip_prefix('[') {
            Some(rest) => {
                let (address, after) = rest.split_once(']').ok_or("the address lacks its ']'")?;
                (address, after.strip_prefix(':'))
            }
            None => match host.split_once(':') {
                Some((server, port)) => (server, Some(port)),
                None => (host, None),
            },
        };
        let port = match port {
            Some(port) => {
                Some(port.parse::<u16>().ok().filter(|port| *port > 0).ok_or("the port is no port")?)
            }
            None => None,
        };
        Self::from_parts(user, Some(server), port, parts.next(), parts.next())
    }

    fn from_parts(
        user: Option<&str>,
        server: Option<&str>,
        port: Option<u16>,
        share: Option<&str>,
        path: Option<&str>,
    ) -> Result<Self, &'static str> {
        let there = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let path = there(path).ok_or("the path of the file is missing")?.replace('/', "\\");
        let path = path.trim_matches('\\').to_owned();
        if path.is_empty() {
            return Err("the path of the file is missing");
        }
        Ok(Self {
            server: there(server).ok_or("the server is missing")?,
            port,
            user: user.filter(|user| !user.is_empty()).map(str::to_owned),
            share: there(share).ok_or("the share is missing")?,
            path,
        })
    }
}
