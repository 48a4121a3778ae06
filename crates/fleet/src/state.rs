//! The fleet's description, `fleet.json` in the fleet's directory, made by `fleet new` for later steps.
//!
//! Promises: it is replaced whole or not at all; a file of another version or out of bounds is refused.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub const FILE: &str = "fleet.json";
/// Lines username= and password= of the user of the workers; mode 0600.
pub const CREDENTIALS_FILE: &str = "credentials";
const VERSION: u32 = 1;
const BYTES_MAX: u64 = 4 << 20;
pub const NODES_MAX: usize = 64;
/// VMFleet's own bound, of virtual machines of a node.
pub const WORKERS_PER_NODE_MAX: u32 = 4096;

/// How the API of a node is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ApiAccess {
    /// By the address and token in this directory of the running server.
    Data(PathBuf),
    /// ADDR:PORT on this machine, or https://HOST:PORT, with the token of a file.
    Address {
        address: String,
        #[serde(default)]
        token_file: Option<PathBuf>,
        #[serde(default)]
        ca_file: Option<PathBuf>,
    },
}

/// One node: a server, and the volume of its workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub name: String,
    /// HOST:PORT of SMB over TCP.
    pub smb: String,
    /// HOST:PORT of SMB Direct.
    #[serde(default)]
    pub rdma: Option<String>,
    #[serde(default)]
    pub api: Option<ApiAccess>,
    /// The share whose files the workers use; with `/` between names, a folder of it.
    pub share: String,
    /// The volume that was made for them, which `fleet remove` deletes.
    #[serde(default)]
    pub volume: Option<String>,
    /// The machine that its workers run on, as ssh knows it; none: this one.
    #[serde(default)]
    pub host: Option<String>,
}

/// How workers reach the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// SMB Direct if all nodes have it, else TCP
    #[default]
    Auto,
    /// TCP
    Tcp,
    /// SMB Direct and nothing else
    Rdma,
}

/// Resources of a worker: VMFleet's compute template.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    pub vcpus: f64,
    pub memory_bytes: u64,
}

/// VMFleet's templates by their names: virtual processors and GiB.
pub const TEMPLATES: [(&str, u32, u64); 7] = [
    ("A1v2", 1, 2),
    ("A2v2", 2, 4),
    ("A4v2", 4, 8),
    ("A8v2", 8, 16),
    ("A2mv2", 2, 16),
    ("A4mv2", 4, 32),
    ("A8mv2", 8, 64),
];

impl Template {
    pub fn named(name: &str) -> Option<Self> {
        let found = TEMPLATES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
        found.map(|(_, vcpus, gib)| Self { vcpus: f64::from(*vcpus), memory_bytes: gib << 30 })
    }
}

/// A machine with less than this does not hold its kernel, its initramfs and DiskSpd's buffers.
const MICROVM_BYTES_MIN: u64 = 256 << 20;

/// How QEMU runs a machine's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// On the host's processors
    #[default]
    Kvm,
    /// By emulation, for trials: figures are worth nothing
    Tcg,
}

/// Description of the machines of a fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Microvms {
    pub accelerator: Accelerator,
    /// A bzImage or vmlinux, on each machine that workers run on; `None`: the kernel that runs there.
    #[serde(default)]
    pub kernel: Option<PathBuf>,
    /// The directory of its modules, with modules.dep; `None` beside a kernel: it has all that is needed built in.
    #[serde(default)]
    pub modules: Option<PathBuf>,
}

/// Parameters of `fleet new` that only the making of the fleet goes by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Making {
    /// Copies that the volumes keep.
    pub resiliency: api::model::Resiliency,
    /// The existing share of each server; `None`: volumes are made.
    #[serde(default)]
    pub share: Option<String>,
}

/// The supervising process of a running fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Running {
    pub pid: u32,
    /// Field 22 of /proc/PID/stat: distinguishes the process from a later one of the same number.
    pub started_ticks: u64,
    pub label: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub version: u32,
    pub name: String,
    pub nodes: Vec<Node>,
    /// The nodes are of one cluster, in which a volume may go from one to another.
    #[serde(default)]
    pub is_cluster: bool,
    pub workers_per_node: u32,
    /// Size of a worker's data file.
    pub data_bytes: u64,
    #[serde(default)]
    pub transport: Transport,
    /// `None`: workers are not held to anything.
    #[serde(default)]
    pub template: Option<Template>,
    /// Workers run in machines of their own; `None`: as processes.
    #[serde(default)]
    pub microvms: Option<Microvms>,
    /// Operations a second of a worker; 0: no limit.
    #[serde(default)]
    pub qos: u32,
    /// Percent of the workers that run; others rest.
    pub running_percent: u32,
    /// Workers of one process; 0: as many as keep the processes of a machine few.
    #[serde(default)]
    pub workers_per_process: u32,
    /// Percent of the workers that run at the node that their volume was made for.
    #[serde(default = "aligned")]
    pub alignment_percent: u32,
    /// The user that was made for the workers, which `fleet remove` deletes.
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub running: Option<Running>,
    /// Until the fleet is made whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub making: Option<Making>,
}

const fn aligned() -> u32 {
    100
}

/// Reason why there is no usable fleet.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("there is no fleet in {0}: `fleet new` makes one")]
    None(PathBuf),
    #[error(
        "the fleet in {0} is made in part: give the `fleet new` that began it again, which goes on, or take it away by `fleet remove`"
    )]
    Unfinished(PathBuf),
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    #[error("{0} is no description of a fleet: {1}")]
    Wrong(PathBuf, String),
}

impl State {
    pub fn new(name: String, nodes: Vec<Node>, workers_per_node: u32, data_bytes: u64) -> Self {
        Self {
            version: VERSION,
            name,
            nodes,
            is_cluster: false,
            workers_per_node,
            data_bytes,
            transport: Transport::Auto,
            template: Template::named("A1v2"),
            microvms: None,
            qos: 0,
            running_percent: 100,
            workers_per_process: 0,
            alignment_percent: aligned(),
            user: None,
            running: None,
            making: None,
        }
    }

    /// # Errors
    /// [`StateError`].
    pub fn load(directory: &Path) -> Result<Self, StateError> {
        let path = directory.join(FILE);
        let mut text = String::new();
        match fs::File::open(&path) {
            Ok(file) => file.take(BYTES_MAX).read_to_string(&mut text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StateError::None(directory.to_owned()));
            }
            Err(error) => Err(error),
        }
        .map_err(|error| StateError::Io(path.clone(), error))?;
        Self::parse(&text).map_err(|why| StateError::Wrong(path, why))
    }

    /// Loads a fleet that is made whole.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn load_made(directory: &Path) -> Result<Self, StateError> {
        let state = Self::load(directory)?;
        if state.making.is_some() { Err(StateError::Unfinished(directory.to_owned())) } else { Ok(state) }
    }

    /// Parses a description.
    ///
    /// # Errors
    /// The reason why it does not parse.
    pub fn parse(text: &str) -> Result<Self, String> {
        let state: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        state.check()?;
        Ok(state)
    }

    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("its version is {}, this program knows {VERSION}", self.version));
        }
        if self.nodes.is_empty() || self.nodes.len() > NODES_MAX {
            return Err(format!("a fleet has 1 to {NODES_MAX} nodes"));
        }
        if !(1..=WORKERS_PER_NODE_MAX).contains(&self.workers_per_node) {
            return Err(format!("a node has 1 to {WORKERS_PER_NODE_MAX} workers"));
        }
        if !(1..=100).contains(&self.running_percent) {
            return Err("1 to 100 % of the workers run".into());
        }
        if self.alignment_percent > 100 {
            return Err("0 to 100 % of the workers run where their volume is".into());
        }
        if self.microvms.is_some() {
            match self.template {
                None => return Err("microVMs take a template: it says how large they are".into()),
                Some(template) if template.vcpus.fract() != 0.0 => {
                    return Err("a microVM has whole processors: --vcpus 1, 2, ...".into());
                }
                Some(template) if template.memory_bytes < MICROVM_BYTES_MIN => {
                    return Err("a microVM has 256MiB of memory at least".into());
                }
                Some(_) => {}
            }
        }
        let mut names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err("two nodes have one name".into());
        }
        let is_bad =
            |host: &String| host.is_empty() || host.starts_with('-') || host.contains(char::is_whitespace);
        if self.nodes.iter().filter_map(|node| node.host.as_ref()).any(is_bad) {
            return Err("a node's host is no name that ssh would take".into());
        }
        Ok(())
    }

    /// Replaces the description.
    ///
    /// # Errors
    /// Errors of [`State::load`].
    pub fn save(&self, directory: &Path) -> Result<(), StateError> {
        let path = directory.join(FILE);
        self.check().map_err(|why| StateError::Wrong(path.clone(), why))?;
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| StateError::Wrong(path.clone(), error.to_string()))?;
        replace(&path, text.as_bytes(), 0o644).map_err(|error| StateError::Io(path, error))
    }

    /// Workers of a node that run.
    pub fn running_workers(&self) -> u32 {
        (u64::from(self.workers_per_node) * u64::from(self.running_percent)).div_ceil(100) as u32
    }
}

/// Writes a file whole or not at all, and makes its directory if there is none.
///
/// # Errors
/// The system's error.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    records::replacing::replace(path, bytes, mode)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn node(name: &str) -> Node {
        Node {
            name: name.into(),
            smb: "127.0.0.1:4455".into(),
            rdma: Some("127.0.0.1:5445".into()),
            api: Some(ApiAccess::Data("cenote-data".into())),
            share: format!("fleet-{name}"),
            volume: Some(format!("fleet-{name}")),
            host: None,
        }
    }

    pub fn state() -> State {
        State::new("fleet".into(), vec![node("one"), node("two")], 44, 8 << 20)
    }

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(State::load(directory.path()), Err(StateError::None(_))));
        let state = state();
        state.save(directory.path()).unwrap();
        assert_eq!(State::load(directory.path()).unwrap(), state);
    }

    #[test]
    fn descriptions_out_of_bounds_are_refused() {
        let wrong = |change: fn(&mut State)| {
            let mut state = state();
            change(&mut state);
            State::parse(&serde_json::to_string(&state).unwrap()).unwrap_err()
        };
        assert!(wrong(|state| state.version = 2).contains("version"));
        assert!(wrong(|state| state.nodes.clear()).contains("nodes"));
        assert!(wrong(|state| state.workers_per_node = 0).contains("workers"));
        assert!(wrong(|state| state.alignment_percent = 101).contains("where their volume is"));
        assert!(wrong(|state| state.nodes[1].name = "one".into()).contains("one name"));
        assert!(wrong(|state| state.nodes[0].host = Some("-oProxyCommand=x".into())).contains("ssh"));
        let machines = |change: fn(&mut State)| {
            let mut state = State { microvms: Some(Microvms::default()), ..state() };
            change(&mut state);
            state.check()
        };
        assert_eq!(machines(|_| {}), Ok(()));
        assert!(machines(|state| state.template = None).unwrap_err().contains("template"));
        let half = |state: &mut State| state.template = Some(Template { vcpus: 0.5, memory_bytes: 1 << 30 });
        assert!(machines(half).unwrap_err().contains("whole processors"));
        let small = |state: &mut State| state.template = Some(Template { vcpus: 1.0, memory_bytes: 1 << 20 });
        assert!(machines(small).unwrap_err().contains("256MiB"));
        assert!(State::parse("{}").is_err());
        assert!(State::parse("{\"version\": 1, \"more\": 2}").is_err());
    }

    #[test]
    fn a_share_of_the_workers_runs_and_at_least_one() {
        let of = |running_percent| State { running_percent, ..state() }.running_workers();
        assert_eq!([of(100), of(25), of(1)], [44, 11, 1]);
    }

    #[test]
    fn templates_are_vmfleets() {
        let template = Template::named("a4V2").unwrap();
        assert_eq!((template.vcpus, template.memory_bytes), (4.0, 8 << 30));
        assert_eq!(Template::named("B2ms"), None);
    }
}
