//! `cenote quickstart --nodes N`: a trial cluster on this machine, one process for each server.
//!
//! Owns the processes, and sets up the first start by the same API that an administrator uses.
//! Promises: everything stops at any end of this process; a server that dies restarts after the
//! requested time; nothing outside the data directory is written, and nothing listens beyond the
//! addresses given.

mod furnishing;
mod processes;

use crate::config::Config;
use crate::daemon::{DaemonError, DataDirectory};
use crate::service_manager::StopSignals;
use cli::args::{ListenPlace, Quickstart};
use furnishing::{Furnished, furnish};
use processes::Processes;
use records::nodes::CLUSTER_PORT;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SMB_PORT: u16 = 445;
/// SMB's port if the usual one is in use.
const OTHER_SMB_PORT: u16 = 4455;
const RDMA_PORT: u16 = 5445;
/// Last byte of the first server's address, without an argument.
const FIRST_HOST: u8 = 11;
/// Interval between checks of the servers.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One server of the trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub name: String,
    pub data: PathBuf,
    pub config: PathBuf,
    pub address: IpAddr,
    pub smb: SocketAddr,
    pub rdma: SocketAddr,
    pub api: SocketAddr,
}

/// Runs the trial cluster until it is stopped.
///
/// # Errors
/// Why it does not start, or ended.
pub fn run(options: &Quickstart, data: &Path) -> Result<(), DaemonError> {
    let setup = DaemonError::Setup;
    etcd::process::version_of(None).map_err(|error| setup(error.to_string()))?;
    let directory = DataDirectory::open_or_create(data)?;
    let plans = plan(options, directory.path()).map_err(setup)?;
    for plan in &plans {
        write_config(options, plan, plans.len())?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| DaemonError::Io { what: "event loop".into(), source })?;
    let restart_after = (options.restart_after > 0).then(|| Duration::from_secs(options.restart_after));
    let mut processes = Processes::start(&plans, restart_after)?;
    let done = runtime.block_on(attend(options, &plans, &mut processes));
    processes.stop();
    done
}

/// Furnishes the cluster, then watches its servers until SIGTERM or SIGINT.
async fn attend(options: &Quickstart, plans: &[Plan], processes: &mut Processes) -> Result<(), DaemonError> {
    let mut stop =
        StopSignals::listen().map_err(|source| DaemonError::Io { what: "SIGTERM".into(), source })?;
    let given_up = Arc::new(AtomicBool::new(false));
    let (task_options, task_plans, gives_up) = (options.clone(), plans.to_vec(), given_up.clone());
    let mut furnishing =
        Some(tokio::task::spawn_blocking(move || furnish(&task_options, &task_plans, &gives_up)));
    let ended = loop {
        tokio::select! {
            () = stop.come() => break Ok(()),
            furnished = async { match furnishing.as_mut() {
                Some(task) => task.await,
                None => std::future::pending().await,
            } } => {
                furnishing = None;
                match furnished {
                    Ok(Ok(furnished)) => println!("{}ready", lines(options, plans, &furnished, processes)),
                    Ok(Err(failure)) => break Err(DaemonError::Setup(failure.message)),
                    Err(_) => break Err(DaemonError::Setup("the setting up was interrupted".into())),
                }
            }
            () = tokio::time::sleep(LOOK_EVERY) => {
                if let Err(error) = processes.look(furnishing.is_none()) {
                    break Err(error);
                }
            }
        }
    };
    // Furnishing holds nothing, but waits for servers that are about to end.
    given_up.store(true, Ordering::Release);
    ended
}

/// Which server is where. Changes nothing.
fn plan(options: &Quickstart, data: &Path) -> Result<Vec<Plan>, String> {
    let count = options.nodes.unwrap_or_default();
    let addresses: Vec<IpAddr> = if options.addresses.is_empty() {
        (0..count as u8).map(|number| Ipv4Addr::new(127, 0, 0, FIRST_HOST + number).into()).collect()
    } else {
        options.addresses.clone()
    };
    if addresses.len() != count as usize {
        return Err(format!("--addresses has {} addresses for {count} servers", addresses.len()));
    }
    if let Some(twice) = addresses.iter().enumerate().find(|(at, ip)| addresses[..*at].contains(ip)) {
        return Err(format!("--addresses has {} twice", twice.1));
    }
    if let Some(ip) = addresses.iter().find(|ip| !ip.is_loopback()) {
        return Err(format!(
            "--addresses has {ip}: a trial cluster stays on this machine, with addresses of 127.0.0.0/8; docs/CLUSTER.md says how to form one in earnest"
        ));
    }
    let smb = match options.smb {
        Some(place) => place.port("--smb")?,
        None if TcpListener::bind((addresses[0], SMB_PORT)).is_ok() => SMB_PORT,
        None => OTHER_SMB_PORT,
    };
    let rdma = options.rdma.map_or(Ok(RDMA_PORT), |place| place.port("--rdma"))?;
    let http = match options.http {
        // The default of one server is the default here, too.
        ListenPlace::Socket(address) if address.to_string() == "127.0.0.1:9445" => address.port(),
        place => place.port("--http")?,
    };
    let one = |(number, address): (usize, IpAddr)| {
        let name = format!("node-{}", number + 1);
        Plan {
            data: data.join(&name),
            config: data.join(format!("{name}.toml")),
            address,
            smb: SocketAddr::new(address, smb),
            rdma: SocketAddr::new(address, rdma),
            api: SocketAddr::new(address, http),
            name,
        }
    };
    Ok(addresses.into_iter().enumerate().map(one).collect())
}

fn write_config(options: &Quickstart, plan: &Plan, count: usize) -> Result<(), DaemonError> {
    let mut config = Config::default();
    config.server.data_dir.clone_from(&plan.data);
    config.server.name.clone_from(&plan.name);
    config.smb.listen = vec![plan.smb];
    config.smb.rdma_listen = vec![plan.rdma];
    config.smb.rdma_devices = Vec::new();
    config.smb.rdma_crc = !options.rdma_no_crc;
    config.smb.require_signing = !options.allow_unsigned;
    config.api.listen = plan.api;
    config.cluster.listen = SocketAddr::new(plan.address, CLUSTER_PORT).to_string();
    // The servers share the machine's memory, and their disks with others.
    config.limits.cache_bytes /= count as u64;
    config.limits.disk_timeout_ms = 30_000;
    config.log.level = "info".into();
    config.check().map_err(|error| DaemonError::Setup(error.to_string()))?;
    let what = plan.config.display().to_string();
    std::fs::write(&plan.config, config.documented()).map_err(|source| DaemonError::Io { what, source })
}

/// The lines to connect with.
fn lines(options: &Quickstart, plans: &[Plan], furnished: &Furnished, processes: &Processes) -> String {
    let user = &options.user;
    let mut text = String::new();
    for plan in plans {
        let pid = processes.pid(&plan.name).map(|pid| pid.to_string()).unwrap_or_default();
        text += &format!(
            "{:8} pid {pid:<8} SMB {}  SMB Direct {} (iWARP)  API http://{}\n",
            plan.name, plan.smb, plan.rdma, plan.api
        );
    }
    let shown = match (&furnished.password, &options.password) {
        (Some(password), _) => {
            text += &format!("user     {user}\npassword {password}   (shown only this once)\n");
            password.as_str()
        }
        (None, Some(password)) => password.as_str(),
        (None, None) => "PASSWORD",
    };
    text += &format!("share    {} on {}\n\n", furnished.share, furnished.owner);
    let port = plans[0].smb.port();
    for plan in plans {
        text += &format!(
            "{:8} smbclient //{}/{} -p {port} -U '{user}%{shown}'\n",
            plan.name, plan.address, furnished.share
        );
    }
    text += &format!(
        "cluster  cenote node list --data {}\ndashboard {}\n\n",
        plans[0].data.display(),
        crate::quickstart::dashboard_link(plans[0].api, &plans[0].data)
    );
    text
}

/// Makes this process stop when its standard input ends: a server of a trial does not outlive its
/// parent.
///
/// # Errors
/// If the thread cannot start.
pub fn end_with_stdin() -> Result<(), DaemonError> {
    let wait = || {
        let mut rest = [0; 64];
        let mut input = std::io::stdin().lock();
        while input.read(&mut rest).is_ok_and(|read| read > 0) {}
        // As by a signal to stop: work in progress is finished.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
    };
    let thread = std::thread::Builder::new().name("parent-watch".into()).spawn(wait);
    thread.map(|_| ()).map_err(|source| DaemonError::Io { what: "a thread".into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn options(words: &[&str]) -> Quickstart {
        let line = ["cenote", "quickstart"].iter().chain(words);
        match cli::args::Cli::try_parse_from(line).unwrap().command {
            cli::args::Command::Own(cli::args::Own::Quickstart(options)) => options,
            _ => panic!(),
        }
    }

    #[test]
    fn each_server_has_an_address_of_its_own_and_the_same_ports() {
        let words = ["--nodes", "3", "--smb", "4460", "--rdma", "4461", "--http", "4462"];
        let plans = plan(&options(&words), Path::new("/d")).unwrap();
        let smb: Vec<String> = plans.iter().map(|plan| plan.smb.to_string()).collect();
        assert_eq!(smb, ["127.0.0.11:4460", "127.0.0.12:4460", "127.0.0.13:4460"]);
        assert_eq!(plans[2].api.to_string(), "127.0.0.13:4462");
        assert_eq!(plans[1].data, Path::new("/d/node-2"));
        let words = [&words[..], &["--addresses", "127.0.0.41,127.0.0.42,127.0.0.43"]].concat();
        assert_eq!(plan(&options(&words), Path::new("/d")).unwrap()[0].smb.to_string(), "127.0.0.41:4460");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        let refused = |words: &[&str]| plan(&options(words), Path::new("/d")).unwrap_err();
        let told = refused(&["--nodes", "2", "--smb", "127.0.0.1:4455"]);
        assert!(
            told.contains("each server has an address of its own") && told.contains("--smb 4455"),
            "{told}"
        );
        let told = refused(&["--nodes", "2", "--smb", "4455", "--addresses", "127.0.0.11"]);
        assert!(told.contains("1 addresses for 2 servers"), "{told}");
        let told = refused(&["--nodes", "2", "--smb", "4455", "--addresses", "127.0.0.1,127.0.0.1"]);
        assert!(told.contains("twice"), "{told}");
        let told = refused(&["--nodes", "2", "--smb", "4455", "--addresses", "127.0.0.1,10.1.0.1"]);
        assert!(told.contains("stays on this machine"), "{told}");
    }

    #[test]
    fn the_configuration_of_each_server_is_one() {
        let data = tempfile::tempdir().unwrap();
        let options = options(&["--nodes", "2", "--smb", "4455"]);
        for plan in plan(&options, data.path()).unwrap() {
            write_config(&options, &plan, 2).unwrap();
            let config = Config::read(&plan.config).unwrap();
            assert_eq!(config.cluster.listen_address().unwrap().unwrap().ip(), plan.address);
        }
    }
}
