//! Files on SMB shares: sessions, files made and measured before a run, and opened for each thread.

use super::{TargetError, guard};
use crate::cli::{SmbOptions, SmbTransport};
use crate::profile::{CacheMode, Target, WriteContent, WriteThrough};
use smb_client::{
    Client, ClientError, Credentials, Encryption, Engine, File, Location, Logon, OpenOptions, Options,
    RDMA_PORT, RdmaDevice, Signing, Transport, Tree,
};
use std::path::Path;
use std::time::Duration;

const TCP_PORT: u16 = 445;
/// Written at once when a file is made.
const FILL_BYTES: usize = 4 << 20;
/// Time for which a session is tried to be set up anew if several servers may serve the share.
const RECONNECT: Duration = Duration::from_secs(60);
/// Logon and options of sessions.
#[derive(Clone)]
pub struct Access {
    logon: Logon,
    options: Options,
    transport: SmbTransport,
    busy_poll: Duration,
}

impl Access {
    /// # Errors
    /// When the credentials file cannot be read.
    pub fn new(options: &SmbOptions) -> Result<Self, TargetError> {
        let logon = match &options.credentials {
            Some(path) => {
                Logon::read(Path::new(path)).map_err(|error| TargetError::Other(format!("ERROR: {error}")))?
            }
            None => Logon::from_environment("DISKSPD_SMB"),
        };
        let client = Options {
            signing: if options.sign { Signing::Required } else { Signing::IfRequired },
            encryption: if options.seal { Encryption::Required } else { Encryption::IfRequired },
            transport: match options.transport {
                SmbTransport::Auto => Transport::Auto,
                SmbTransport::Tcp => Transport::Tcp,
                SmbTransport::Rdma => Transport::Rdma,
            },
            channels: usize::from(options.channels),
            rdma_crc: !options.no_crc,
            rdma_device: options.rdma_device.as_deref().map_or(RdmaDevice::Software, RdmaDevice::from),
            ..Options::default()
        };
        let busy_poll = Duration::from_micros(options.busy_poll_us);
        Ok(Self { logon, options: client, transport: options.transport, busy_poll })
    }

    /// A session of its own at the target's server.
    ///
    /// # Errors
    /// If the server is not there, or refuses.
    pub fn connect(&self, engine: &Engine, path: &Location) -> Result<Client, TargetError> {
        engine.busy_poll(self.busy_poll);
        let usual = if self.transport == SmbTransport::Rdma { RDMA_PORT } else { TCP_PORT };
        let port = path.port.unwrap_or(usual);
        let mut options = self.options.clone();
        if options.transport == Transport::Auto && port != TCP_PORT {
            // One of several servers on its host: nobody knows whose SMB Direct listens at the usual port there.
            options.transport = Transport::Tcp;
        }
        if !path.others.is_empty() {
            options.others.clone_from(&path.others);
            options.reconnect = RECONNECT;
        }
        let credentials = self.logon.credentials(path.user.as_deref(), &path.server);
        let is_anonymous = credentials.is_none();
        options.allow_guest |= is_anonymous;
        let credentials = credentials.unwrap_or(Credentials::Anonymous);
        Client::connect_on(engine, &path.server, port, credentials, options)
            .map_err(|error| failed(&path.server, port, is_anonymous, &error))
    }
}

fn failed(server: &str, port: u16, is_anonymous: bool, error: &ClientError) -> TargetError {
    let advice = match error {
        ClientError::Status { .. } | ClientError::Auth(_) if is_anonymous => {
            "\nno credentials were given: --smb-credentials FILE, or DISKSPD_SMB_USER and DISKSPD_SMB_PASSWORD"
        }
        ClientError::Status { .. } | ClientError::Auth(_) => "\ncheck user, password and domain",
        _ => "",
    };
    TargetError::Other(format!("ERROR: no SMB session at {server}, port {port}: {error}{advice}"))
}

/// As DiskSpd prints it, with the NTSTATUS.
fn opening(target: &Target, error: &ClientError) -> TargetError {
    TargetError::Open {
        path: target.path.clone(),
        number: error.status().map_or_else(|| "0".into(), |status| format!("{:#010x}", status.0)),
        detail: error.to_string(),
    }
}

/// Connects the target's share.
///
/// # Errors
/// As printed.
pub fn tree(client: &mut Client, target: &Target, path: &Location) -> Result<Tree, TargetError> {
    let tree = client.tree_connect(&path.share).map_err(|error| opening(target, &error))?;
    if tree.is_pipe {
        return Err(TargetError::Other(format!("ERROR: '{}' lies on no share of files", target.path)));
    }
    Ok(tree)
}

/// Opens a target for one thread.
///
/// # Errors
/// As printed; a block size over the server's limit.
pub fn open(client: &mut Client, tree: Tree, target: &Target, path: &Location) -> Result<File, TargetError> {
    let writes = target.write_percent > 0;
    // An existing file: a missing one is an error, as for local ones.
    let mut options = OpenOptions::read();
    if writes {
        options = options.with_access(READ_WRITE_ACCESS);
    }
    if target.cache == CacheMode::DisableOsCache {
        options = options.unbuffered();
    }
    if target.write_through == WriteThrough::On {
        options = options.write_through();
    }
    // Of several servers one may die: the file then stays open at the next one.
    if !path.others.is_empty() {
        options = options.persistent();
    }
    if target.hint_random {
        options = options.random_access();
    }
    if target.hint_sequential {
        options = options.sequential_only();
    }
    let file = client.open(tree, &path.path, options).map_err(|error| opening(target, &error))?;
    let limits = client.limits();
    for (is_used, limit) in [(target.write_percent < 100, limits.read_bytes), (writes, limits.write_bytes)] {
        if is_used && target.block_bytes > limit {
            return Err(TargetError::Other(format!(
                "ERROR: block size {} is over the server's limit of {limit} bytes: '{}'",
                target.block_bytes, target.path
            )));
        }
    }
    Ok(file)
}

/// FILE_READ_DATA, FILE_READ_ATTRIBUTES, FILE_WRITE_DATA, FILE_WRITE_ATTRIBUTES, READ_CONTROL, SYNCHRONIZE.
const READ_WRITE_ACCESS: u32 = 0x0012_0183;

/// Makes the file of `-c`: its size set, and every byte written once.
///
/// # Errors
/// The server's; if the file holds data that is not to be lost.
pub fn create(
    client: &mut Client,
    tree: Tree,
    target: &Target,
    path: &Location,
    size_bytes: u64,
    overwrite: bool,
    stop: &dyn Fn() -> bool,
) -> Result<(), TargetError> {
    let failed = |error: &ClientError| opening(target, error);
    if !overwrite && !may_overwrite(client, tree, path).map_err(|error| failed(&error))? {
        return Err(guard::refusal(&target.path, "holds data that -c did not make"));
    }
    let file = client.open(tree, &path.path, OpenOptions::overwrite()).map_err(|error| failed(&error))?;
    client.set_size(&file, size_bytes).map_err(|error| failed(&error))?;
    let mut bytes = vec![0; FILL_BYTES];
    if target.content != WriteContent::Zero {
        super::local::pattern(&mut bytes);
    }
    let mut at = 0;
    while at < size_bytes {
        if stop() {
            return Err(TargetError::Other(format!("ERROR: creating '{}' was interrupted", target.path)));
        }
        let len = usize::try_from(size_bytes - at).unwrap_or(FILL_BYTES).min(FILL_BYTES);
        client.write_at(&file, at, bytes.get(..len).unwrap_or_default()).map_err(|error| failed(&error))?;
        at += len as u64;
    }
    let mark = format!("{}{}", path.path, guard::STREAM);
    // If the server has no streams, the content decides.
    if let Ok(stream) = client.open(tree, &mark, OpenOptions::write()) {
        client.close(stream).map_err(|error| failed(&error))?;
    }
    // The run then neither waits for nor competes with the writing of this.
    client.flush(&file).and_then(|()| client.close(file)).map_err(|error| failed(&error))
}

/// Whether a file's mark or data, or that no file is there, lets it be written to.
fn may_overwrite(client: &mut Client, tree: Tree, path: &Location) -> Result<bool, ClientError> {
    let file = match client.open(tree, &path.path, OpenOptions::read()) {
        Ok(file) => file,
        Err(error) if error.status() == Some(types::NtStatus::OBJECT_NAME_NOT_FOUND) => return Ok(true),
        Err(error) => return Err(error),
    };
    match client.open(tree, &format!("{}{}", path.path, guard::STREAM), OpenOptions::read()) {
        Ok(stream) => {
            client.close(stream)?;
            client.close(file)?;
            return Ok(true);
        }
        Err(error) if error.is_fatal() => return Err(error),
        Err(_) => {}
    }
    let mut is_ours = true;
    if file.status.size_bytes > 0 {
        for offset in guard::samples(file.status.size_bytes) {
            let bytes = client.read_at(&file, offset, guard::SAMPLE_BYTES)?;
            is_ours &= guard::is_ours(&bytes);
            if !is_ours {
                break;
            }
        }
    }
    client.close(file)?;
    Ok(is_ours)
}

/// Measures a target: its size, and whether it may be written to.
///
/// # Errors
/// As printed.
pub fn measure(
    client: &mut Client,
    tree: Tree,
    target: &Target,
    path: &Location,
    overwrite: bool,
) -> Result<u64, TargetError> {
    let status = client.stat(tree, &path.path).map_err(|error| opening(target, &error))?;
    if status.is_directory() {
        return Err(TargetError::Other(format!(
            "ERROR: target size could not be determined\n'{}' is a directory",
            target.path
        )));
    }
    if target.write_percent > 0 && !overwrite {
        let may = may_overwrite(client, tree, path).map_err(|error| opening(target, &error))?;
        if !may {
            return Err(guard::refusal(&target.path, "holds data that -c did not make"));
        }
    }
    Ok(status.size_bytes)
}
