//! `cenote quickstart`: a whole server in one directory, for a first look.
//!
//! Owns the defaults of a first start. Promises: existing data is kept; a password is shown only if it
//! was generated here; nothing outside the data directory is written. Never listens beyond loopback
//! unless told to.

use crate::config::Config;
use crate::control::{CommandError, DataPlane, DataPlaneOptions};
use crate::daemon::{Daemon, DaemonError, DataDirectory, Listeners};
use crate::reload::InEffect;
use api::model::{Provisioning, Resiliency, VolumeStatus};
use api::requests::{
    AddDisk, AddUser, CreatePool, CreateShare, CreateVolume, FaultDomain, Grant, ImportPool, SetUser,
    ShareOptions,
};
use api::{Management, Role};
use cli::args::Quickstart;
use records::accounts::generated_password;
use records::shares::ShareAccess;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use sys::{ListenError, listen};
use types::size::show_size;

const POOL: &str = "pool";
const VOLUME: &str = "demo";
const SHARE: &str = "demo";
const ADMINISTRATORS: &str = "Administrators";

/// The ports to try without an argument, in order.
const SMB_PORTS: [u16; 2] = [445, 4455];

/// Runs the trial server until it is stopped.
///
/// # Errors
/// Why it does not start, or ended.
pub fn run(
    options: &Quickstart,
    data: &Path,
    start_data_plane: impl FnOnce(DataPlaneOptions) -> Result<DataPlane, CommandError>,
) -> Result<(), DaemonError> {
    let mut config = Config::default();
    let http = options.http.socket("--http").map_err(DaemonError::Setup)?;
    config.api.listen = http;
    // The disks are files of a file system that others keep busy too.
    config.limits.disk_timeout_ms = 30_000;
    config.smb.rdma_crc = !options.rdma_no_crc;
    config.smb.require_signing = !options.allow_unsigned;
    config.check().map_err(|error| DaemonError::Setup(error.to_string()))?;
    let directory = DataDirectory::open_or_create(data)?;
    directory.path().clone_into(&mut config.server.data_dir);
    let api = listen("HTTP", http)?;
    let (smb, address) = smb_listener(options)?;
    config.smb.listen = vec![address];
    let rdma = rdma_listener(options)?;
    let direct = rdma.as_ref().and_then(|listener| listener.local_addr().ok());
    config.smb.rdma_listen = direct.into_iter().collect();

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| DaemonError::Io { what: "event loop".into(), source })?;
    let listeners =
        Listeners { smb: vec![smb], rdma: rdma.into_iter().collect(), api, api_tls: None, cluster: None };
    let daemon = Daemon::start(InEffect::new(config), directory, listeners, start_data_plane)?;
    runtime.block_on(async {
        let password = match furnish(&daemon, options).await {
            Ok(password) => password,
            Err(error) => {
                daemon.stop().await;
                return Err(error);
            }
        };
        let places = Places { smb: address, direct, http };
        let mut lines = connect_lines(options, places, &password, daemon.directory().path());
        lines += &unserved_lines(&daemon).await;
        daemon.run(None, move || println!("{lines}ready")).await.map(|_| ())
    })
}

/// Opens SMB Direct's port: the requested one, or the usual one if it is free.
fn rdma_listener(options: &Quickstart) -> Result<Option<TcpListener>, DaemonError> {
    if let Some(place) = options.rdma {
        let address = place.socket("--rdma").map_err(DaemonError::Setup)?;
        return Ok(Some(listen("SMB Direct", address)?));
    }
    let address = SocketAddr::from(([127, 0, 0, 1], RDMA_PORT));
    match listen("SMB Direct", address) {
        Ok(listener) => Ok(Some(listener)),
        Err(ListenError { source, .. }) => {
            println!("port {RDMA_PORT} cannot be used ({source}): no SMB Direct, SMB over TCP only");
            Ok(None)
        }
    }
}

fn smb_listener(options: &Quickstart) -> Result<(TcpListener, SocketAddr), DaemonError> {
    if let Some(place) = options.smb {
        let address = place.socket("--smb").map_err(DaemonError::Setup)?;
        let listener = listen("SMB", address)?;
        let address = listener.local_addr().unwrap_or(address);
        return Ok((listener, address));
    }
    let mut last = None;
    for port in SMB_PORTS {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        match listen("SMB", address) {
            Ok(listener) => return Ok((listener, address)),
            Err(error) => {
                if port == SMB_PORTS[0] {
                    println!("port {port} cannot be used ({}): taking {}", error.source, SMB_PORTS[1]);
                }
                last = Some(error.into());
            }
        }
    }
    Err(last.unwrap_or_else(|| DaemonError::Setup("no port to listen on".into())))
}

/// IANA's smbdirect: the port that clients try for iWARP.
const RDMA_PORT: u16 = 5445;

/// Lists volumes out of clients' reach although the server is up.
async fn unserved_lines(daemon: &Daemon) -> String {
    let Ok(snapshot) = daemon.manager().figures().await else { return String::new() };
    let unserved = snapshot.volumes.iter().filter(|volume| volume.status == VolumeStatus::Detached);
    unserved
        .map(|volume| format!("volume '{}' is NOT SERVED: `cenote health` says why\n", volume.name))
        .collect()
}

/// Where a trial server is reached.
struct Places {
    smb: SocketAddr,
    direct: Option<SocketAddr>,
    http: SocketAddr,
}

/// Source of the user's password.
enum Password {
    Generated(String),
    Given,
    Kept,
}

/// Makes pool, volume, user and share if they are missing.
async fn furnish(daemon: &Daemon, options: &Quickstart) -> Result<Password, DaemonError> {
    let manager = daemon.manager();
    let failed = |error: api::ApiError| DaemonError::Setup(error.message);
    let disks = daemon.directory().join("disks");
    std::fs::create_dir_all(&disks)
        .map_err(|source| DaemonError::Io { what: disks.display().to_string(), source })?;
    if manager.figures().await.map_err(failed)?.pools.is_empty() {
        import(daemon, &disks).await?;
    }
    let snapshot = manager.figures().await.map_err(failed)?;
    if snapshot.pools.is_empty() {
        check_sizes(options)?;
        let disk = |number: u32| AddDisk {
            path: disks.join(format!("disk-{number}.img")).display().to_string(),
            create_size_bytes: Some(options.disk_size),
            pool: None,
            fault_domain: FaultDomain::default(),
        };
        let disks = (1..=options.disks).map(disk).collect();
        manager
            .create_pool(CreatePool { name: POOL.into(), disks, reserve_disks: None }, Role::Administrator)
            .await
            .map_err(failed)?;
    }
    let snapshot = manager.figures().await.map_err(failed)?;
    if snapshot.volumes.is_empty()
        && let Some(pool) = snapshot.pools.first()
    {
        let resiliency = if pool.disks < 2 { Resiliency::Simple } else { Resiliency::TwoWayMirror };
        // Space for all copies, less a disk's worth to repair into.
        let size_bytes = pool.size_bytes.saturating_sub(pool.reserve_bytes) / u64::from(resiliency.copies());
        let size_bytes = size_bytes / pool.slab_bytes.max(1) * pool.slab_bytes.max(1);
        let request = CreateVolume {
            name: VOLUME.into(),
            pool: Some(pool.name.clone()),
            resiliency,
            provisioning: Provisioning::Thin,
            size_bytes,
            warn_at_percent: None,
        };
        manager.create_volume(request).await.map_err(failed)?;
    }
    let password = furnish_user(daemon, options).await?;
    if manager.shares().await.map_err(failed)?.is_empty() {
        let grant = |who: &str| Grant { who: who.into(), access: ShareAccess::Full };
        let access = Some(vec![grant(ADMINISTRATORS), grant(&options.user)]);
        let request = CreateShare {
            name: SHARE.into(),
            volume: VOLUME.into(),
            path: String::new(),
            options: ShareOptions { access, ..ShareOptions::default() },
        };
        manager.create_share(request).await.map_err(failed)?;
    }
    Ok(password)
}

/// Refuses disks without space for the volume, before any is made.
fn check_sizes(options: &Quickstart) -> Result<(), DaemonError> {
    /// Steps of the search for a size that is enough.
    const STEP_BYTES: u64 = 64 << 20;
    let resiliency =
        if options.disks < 2 { records::Resiliency::Simple } else { records::Resiliency::TwoWay };
    let is_enough = |size_bytes: &u64| node::has_room_for_volume(options.disks, *size_bytes, resiliency);
    if is_enough(&options.disk_size) {
        return Ok(());
    }
    let enough = (1..64).map(|steps| steps * STEP_BYTES).find(is_enough);
    let enough =
        enough.map_or_else(String::new, |enough| format!(": --disk-size {} is enough", show_size(enough)));
    Err(DaemonError::Setup(format!(
        "disks of {} have no room for a volume with its copies and what is kept for repair{enough}",
        show_size(options.disk_size)
    )))
}

/// The state is missing, but disks may exist: their contents are kept.
async fn import(daemon: &Daemon, disks: &Path) -> Result<(), DaemonError> {
    let search = vec![disks.display().to_string()];
    let request = ImportPool { search, confirm: Some(POOL.into()), ..ImportPool::default() };
    match daemon.manager().import_pool(request).await {
        Ok(imported) => {
            print!("the server's state was not there; {}", cli::show_import(&imported));
            Ok(())
        }
        Err(error) if error.kind == api::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(DaemonError::Setup(error.message)),
    }
}

async fn furnish_user(daemon: &Daemon, options: &Quickstart) -> Result<Password, DaemonError> {
    let manager = daemon.manager();
    let failed = |error: api::ApiError| DaemonError::Setup(error.message);
    let users = manager.users().await.map_err(failed)?;
    let known = users.iter().find(|user| user.name.to_lowercase() == options.user.to_lowercase());
    match (&options.password, known) {
        (None, Some(user)) if user.password_lost => {
            let password = generated_password()
                .map_err(|source| DaemonError::Io { what: "random numbers".into(), source })?;
            let request = SetUser { password: Some(password.clone()), ..SetUser::default() };
            manager.set_user(options.user.clone(), request).await.map_err(failed)?;
            return Ok(Password::Generated(password));
        }
        (None, Some(_)) => return Ok(Password::Kept),
        (Some(password), Some(_)) => {
            let request = SetUser { password: Some(password.clone()), ..SetUser::default() };
            manager.set_user(options.user.clone(), request).await.map_err(failed)?;
            return Ok(Password::Given);
        }
        (_, None) => {}
    }
    let generated = match &options.password {
        Some(_) => None,
        None => Some(
            generated_password()
                .map_err(|source| DaemonError::Io { what: "random numbers".into(), source })?,
        ),
    };
    let password = options.password.clone().or_else(|| generated.clone()).unwrap_or_default();
    let request = AddUser {
        name: options.user.clone(),
        password,
        full_name: String::new(),
        groups: vec![ADMINISTRATORS.into()],
    };
    manager.add_user(request).await.map_err(failed)?;
    Ok(generated.map_or(Password::Given, Password::Generated))
}

/// Makes the link to a server's page that logs in: it contains the token, so it must not be logged.
pub(crate) fn dashboard_link(http: SocketAddr, data: &Path) -> String {
    let token =
        std::io::stdout().is_terminal().then(|| std::fs::read_to_string(data.join(api::TOKEN_FILE)).ok());
    link_with(http, token.flatten().as_deref(), data)
}

fn link_with(http: SocketAddr, token: Option<&str>, data: &Path) -> String {
    let port = http.port();
    let host = match http.ip() {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    match token.map(str::trim) {
        Some(token) => format!("http://{host}:{port}/#token={token}"),
        None => format!(
            "http://{host}:{port}/   (cenote dashboard --data {} prints a link that logs in)",
            data.display()
        ),
    }
}

fn connect_lines(
    options: &Quickstart,
    Places { smb: address, direct, http }: Places,
    password: &Password,
    data: &Path,
) -> String {
    let user = &options.user;
    let host = match address.ip() {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        ip => ip.to_string(),
    };
    let port = address.port();
    let shown = match password {
        Password::Generated(password) => password.as_str(),
        Password::Given | Password::Kept => "PASSWORD",
    };
    let (smb_port, mount_port) = if port == 445 {
        (String::new(), String::new())
    } else {
        (format!(" -p {port}"), format!(",port={port}"))
    };
    let mut text = format!(
        "data       {}\nSMB        {address}\nAPI        http://{}\ndashboard  {}\nshare      {SHARE}\nuser       {user}\n",
        data.display(),
        http,
        dashboard_link(http, data),
    );
    if let Some(direct) = direct {
        text += &format!("SMB Direct {direct} (iWARP)\n");
    }
    text += &match password {
        Password::Generated(password) => format!("password   {password}   (shown only this once)\n"),
        Password::Given => "password   as given\n".to_owned(),
        Password::Kept => format!(
            "password   as before; to set a new one: cenote user set {user} --password NEW --data {}\n",
            data.display()
        ),
    };
    text += &format!(
        "\nsmbclient  smbclient //{host}/{SHARE}{smb_port} -U '{user}%{shown}'\n\
         Linux      mount -t cifs //{host}/{SHARE} /mnt -o username={user},password={shown},vers=3.1.1{mount_port}\n"
    );
    if let Some(direct) = direct {
        // cifs.ko takes port 5445 of itself if the device is an iWARP one.
        let port =
            if direct.port() == RDMA_PORT { String::new() } else { format!(",port={}", direct.port()) };
        text += &format!(
            "  by RDMA  mount -t cifs //{host}/{SHARE} /mnt -o rdma,username={user},password={shown},vers=3.1.1{port}   \
             (on an iWARP NIC, or siw)\n"
        );
    }
    text += &if port == 445 {
        format!("Windows    net use Z: \\\\{host}\\{SHARE} /user:{user} {shown}\n")
    } else {
        format!(
            "Windows    only reaches port 445 (Windows 11 24H2 and Server 2025: net use Z: \\\\{host}\\{SHARE} \
             /tcpport:{port} /user:{user} {shown})\n"
        )
    };
    if address.ip().is_loopback() {
        text += "           from other machines: start with --smb [::]:445 and use this machine's address\n";
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboards_link_logs_in_at_a_terminal_and_has_no_token_elsewhere() {
        let link = |http: &str, token| link_with(http.parse().unwrap(), token, Path::new("/d"));
        assert_eq!(link("127.0.0.1:9445", Some("12ab\n")), "http://127.0.0.1:9445/#token=12ab");
        assert_eq!(link("0.0.0.0:9445", Some("12ab")), "http://127.0.0.1:9445/#token=12ab");
        let told = link("[::1]:9445", None);
        assert!(
            told.starts_with("http://[::1]:9445/ ") && told.contains("cenote dashboard --data /d"),
            "{told}"
        );
    }
}
