//! Requests of the fleet to a node's API: counters, and the volume, the share and the user of the workers.

use crate::outcome::{Side, VolumeFigures};
use crate::state::ApiAccess;
use crate::table::Rates;
use api::fleet::FleetProgress;
use api::model::{OperationCounters, Performance, Pool, Provisioning, Resiliency};
use api::printed::{OperationSample, PerformanceSample};
use api::requests::{
    AddUser, CreateShare, CreateVolume, Created, Grant, SetUser, ShareOptions, ShareView, UserView,
};
use api::seconds::LastSecond;
use api::{ErrorKind, model};
use api_client::{Access, Client, Failure};
use serde_json::Value;
use std::time::Duration;

/// A node that does not answer within this is shown as away.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Client of a node's API.
pub struct Server(Client);

/// A reading of a node's counters.
#[derive(Debug, Clone, Copy)]
pub struct Counters {
    /// Totals of clients' work since the server's start.
    pub performance: Performance,
    /// Processor time of the server's process since its start.
    pub cpu_s: Option<f64>,
}

impl Server {
    /// # Errors
    /// There is no address or token.
    pub fn connect(access: &ApiAccess) -> Result<Self, String> {
        let access = match access {
            ApiAccess::Data(data) => Access { data: Some(data.clone()), ..Access::default() },
            ApiAccess::Address { address, token_file, ca_file } => Access {
                api: Some(address.clone()),
                token_file: token_file.clone(),
                ca_file: ca_file.clone(),
                ..Access::default()
            },
        };
        Client::find_within(&access, TIME_LIMIT).map(Self).map_err(told)
    }

    /// # Errors
    /// If the server does not answer.
    pub fn counters(&self) -> Result<Counters, String> {
        let performance = self.performance()?;
        let metrics = self.0.metrics().unwrap_or_default();
        let cpu_s = metrics.lines().find_map(|line| line.strip_prefix("process_cpu_seconds_total "));
        Ok(Counters { performance, cpu_s: cpu_s.and_then(|value| value.trim().parse().ok()) })
    }

    /// # Errors
    /// If the server does not answer.
    pub fn performance(&self) -> Result<Performance, String> {
        self.0.get("/perf?local=true").map_err(told)
    }

    /// Returns the server's counters of its last second, as its dashboard shows them.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn last_second(&self) -> Result<LastSecond, String> {
        self.0.get("/perf/second?local=true").map_err(told)
    }

    /// Reports a run to the dashboard.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn tell(&self, progress: &FleetProgress) -> Result<(), String> {
        self.0.post("/dashboard/fleet", progress).map_err(told)
    }

    /// Returns the output of `node list --json`; `None` if the server knows no nodes.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn cluster_nodes(&self) -> Result<Option<Value>, String> {
        match self.0.get::<Value>("/nodes") {
            Ok(nodes) => Ok(Some(nodes)),
            // A server without a cluster has no such path; its answer then is no list.
            Err(failure) if failure.kind.is_some() => Ok(None),
            Err(failure) => Err(told(failure)),
        }
    }

    /// All volumes, those of other servers of the cluster as well.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn volumes(&self) -> Result<Vec<model::Volume>, String> {
        self.0.get("/volumes").map_err(told)
    }

    /// # Errors
    /// If the server does not answer.
    pub fn shares(&self) -> Result<Vec<ShareView>, String> {
        self.0.get("/shares").map_err(told)
    }

    /// Refuses if a user, a volume or a share of these names exists: it is somebody else's, and `fleet
    /// remove` must not remove it.
    ///
    /// # Errors
    /// The name of the existing one; or the server does not answer.
    pub fn demand_free(&self, user: Option<&str>, volume: &str) -> Result<(), String> {
        let users: Vec<UserView> = self.0.get("/users").map_err(told)?;
        let is = |name: &str, wanted: &str| name.eq_ignore_ascii_case(wanted);
        if let Some(user) = user.filter(|user| users.iter().any(|found| is(&found.name, user))) {
            return Err(format!("there is a user '{user}' already: give the fleet another name (--name)"));
        }
        let is_taken = self.volumes()?.iter().any(|found| is(&found.name, volume))
            || self.shares()?.iter().any(|found| is(&found.name, volume));
        match is_taken {
            true => Err(format!(
                "there is a volume or share '{volume}' already: give the fleet another name (--name)"
            )),
            false => Ok(()),
        }
    }

    /// # Errors
    /// If the server does not answer.
    pub fn has_user(&self, name: &str) -> Result<bool, String> {
        let users: Vec<UserView> = self.0.get("/users").map_err(told)?;
        Ok(users.iter().any(|found| found.name.eq_ignore_ascii_case(name)))
    }

    /// # Errors
    /// The server's refusal.
    pub fn set_password(&self, user: &str, password: &str) -> Result<(), String> {
        let request =
            SetUser { name: None, password: Some(password.to_owned()), full_name: None, enabled: None };
        self.0.patch(&format!("/users/{user}"), &request).map_err(told)
    }

    /// Where the server listens: SMB, and SMB Direct if it does.
    ///
    /// # Errors
    /// If the server does not answer, or listens nowhere.
    pub fn listeners(&self) -> Result<(String, Option<String>), String> {
        let config: model::Configuration = self.0.get_json("/config").map_err(told)?;
        let first = |key: &str| {
            let listed = config.0.get("smb")?.get(key)?;
            listed.as_array()?.iter().find_map(Value::as_str).map(str::to_owned)
        };
        let smb = first("listen").ok_or("the server says of no address at which it serves SMB")?;
        Ok((reachable(&smb), first("rdma_listen").map(|address| reachable(&address))))
    }

    /// Bytes that new volumes of this resiliency may still be given.
    ///
    /// # Errors
    /// If the server does not answer, or has no pool.
    pub fn room_bytes(&self, resiliency: Resiliency) -> Result<u64, String> {
        let pools: Vec<Pool> = self.0.get("/pools").map_err(told)?;
        let room = |pool: &Pool| {
            // A pool of unknown allocation has no reliable free space.
            let taken = pool.allocated_bytes.unwrap_or(pool.size_bytes);
            pool.size_bytes.saturating_sub(taken).saturating_sub(pool.reserve_bytes)
                / u64::from(resiliency.copies())
        };
        pools.iter().map(room).max().ok_or_else(|| "the server has no pool".into())
    }

    /// Makes a volume, in the pool with the most free space.
    ///
    /// # Errors
    /// The server's refusal.
    pub fn create_volume(&self, name: &str, size_bytes: u64, resiliency: Resiliency) -> Result<(), String> {
        let pools: Vec<Pool> = self.0.get("/pools").map_err(told)?;
        let free =
            |pool: &Pool| pool.size_bytes.saturating_sub(pool.allocated_bytes.unwrap_or(pool.size_bytes));
        let pool = pools.iter().max_by_key(|pool| free(pool)).map(|pool| pool.name.clone());
        let request = CreateVolume {
            name: name.to_owned(),
            pool,
            resiliency,
            provisioning: Provisioning::Thin,
            size_bytes,
            warn_at_percent: Some(100),
        };
        self.0.post::<Created>("/volumes", &request).map(drop).map_err(told)
    }

    /// # Errors
    /// The server's refusal.
    pub fn create_share(&self, name: &str, volume: &str, user: &str) -> Result<(), String> {
        let access = vec![Grant { who: user.to_owned(), access: records::shares::ShareAccess::Full }];
        let options = ShareOptions {
            comment: Some("Workers of `fleet`".into()),
            access: Some(access),
            ..ShareOptions::default()
        };
        let request =
            CreateShare { name: name.to_owned(), volume: volume.to_owned(), path: String::new(), options };
        self.0.post("/shares", &request).map_err(told)
    }

    /// # Errors
    /// The server's refusal.
    pub fn create_user(&self, name: &str, password: &str) -> Result<(), String> {
        let request = AddUser {
            name: name.to_owned(),
            password: password.to_owned(),
            full_name: "Workers of fleet".into(),
            groups: Vec::new(),
        };
        self.0.post("/users", &request).map_err(told)
    }

    /// Deletes a share, a volume or a user (`kind` is the first word of its path); one that is gone already is fine.
    ///
    /// # Errors
    /// The server's refusal.
    pub fn delete(&self, kind: &str, name: &str) -> Result<(), String> {
        // Deletion wants the name once more. Names of fleets have no letters that a path would not take.
        let path = format!("/{kind}/{name}?confirm={name}");
        match self.0.delete(&path) {
            Err(failure) if failure.kind == Some(ErrorKind::NotFound) => Ok(()),
            done => done.map_err(told),
        }
    }
}

fn told(failure: Failure) -> String {
    failure.message
}

/// An address to connect to, of one to listen at: any address is this machine.
fn reachable(address: &str) -> String {
    address.replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:")
}

/// This machine's name, in letters that a node's name may have.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let kept: String =
        name.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').take(15).collect();
    if kept.is_empty() { "node-1".into() } else { kept }
}

fn side(sample: &OperationSample) -> Side {
    Side { iops: sample.operations_per_s, bytes_per_s: sample.bytes_per_s }
}

/// Computes a node's figures between two readings of its counters. `processors`: of the node's machine,
/// if they are known.
pub fn figures(before: &Counters, after: &Counters, processors: Option<usize>) -> VolumeFigures {
    let sample = PerformanceSample::between(&before.performance, &after.performance);
    let cpu = before.cpu_s.zip(after.cpu_s).zip(processors).map(|((before, after), processors)| {
        (after - before).max(0.0) / sample.interval_s / processors as f64 * 100.0
    });
    VolumeFigures {
        read: side(&sample.read),
        write: side(&sample.write),
        read_ms: sample.read.mean_latency_us.map(|us| us / 1000.0),
        write_ms: sample.write.mean_latency_us.map(|us| us / 1000.0),
        cpu_percent: cpu,
    }
}

/// Makes a row of the watch table from two readings of a node's counters.
pub fn rates(before: &Performance, after: &Performance) -> Rates {
    let sample = PerformanceSample::between(before, after);
    let measured = |now: &OperationCounters, then: &OperationCounters| {
        let count = now.measured_operations.saturating_sub(then.measured_operations);
        (count as f64, now.latency_us.saturating_sub(then.latency_us) as f64)
    };
    let (reads, read_us) = measured(&after.read, &before.read);
    let (writes, write_us) = measured(&after.write, &before.write);
    let ms = |us: Option<f64>| us.map(|us| us / 1000.0);
    Rates {
        read_iops: sample.read.operations_per_s,
        write_iops: sample.write.operations_per_s,
        read_bytes_per_s: sample.read.bytes_per_s,
        write_bytes_per_s: sample.write.bytes_per_s,
        read_ms: ms(sample.read.mean_latency_us),
        write_ms: ms(sample.write.mean_latency_us),
        volume_ms: (reads + writes > 0.0).then(|| (read_us + write_us) / (reads + writes) / 1000.0),
        worker_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_give_rates_latencies_and_the_servers_cpu() {
        let counters = |operations, latency_us, uptime_us, cpu_s| {
            let read = OperationCounters {
                operations,
                bytes: operations * 4096,
                measured_operations: operations,
                latency_us,
                ..OperationCounters::default()
            };
            Counters {
                performance: Performance { uptime_us, read, ..Performance::default() },
                cpu_s: Some(cpu_s),
            }
        };
        let (before, after) = (counters(0, 0, 1_000_000, 1.0), counters(2000, 500_000, 3_000_000, 2.0));
        let figures = figures(&before, &after, Some(2));
        assert_eq!((figures.read.iops, figures.read_ms), (1000.0, Some(0.25)));
        assert_eq!((figures.write_ms, figures.cpu_percent), (None, Some(25.0)));
        let rates = rates(&before.performance, &after.performance);
        assert_eq!((rates.read_iops, rates.volume_ms), (1000.0, Some(0.25)));
    }

    #[test]
    fn an_address_for_all_is_reached_at_loopback() {
        assert_eq!(reachable("0.0.0.0:445"), "127.0.0.1:445");
        assert_eq!(reachable("[::]:445"), "[::1]:445");
        assert_eq!(reachable("10.0.0.1:445"), "10.0.0.1:445");
    }
}
