//! Furnishes a trial cluster at its first start: the cluster, a pool of all disks, a volume, a user, a share.
//!
//! Promises: uses the API as an administrator would, one step after the other; completed steps are not
//! repeated, so that the next start finishes an interrupted one.

use super::Plan;
use api::ErrorKind;
use api::cluster::{ClusterView, CreateCluster, JoinCluster, Joined, NewToken, NodeStatus};
use api::model::{Disk, Pool, Provisioning, Resiliency, Volume};
use api::requests::{
    AddDisk, AddUser, CreatePool, CreateShare, CreateVolume, Created, FaultDomain, Grant, SetUser,
    ShareOptions, ShareView, UserView,
};
use api_client::{Access, Client, Failure};
use cli::args::Quickstart;
use records::accounts::generated_password;
use records::shares::ShareAccess;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CLUSTER: &str = "trial";
const POOL: &str = "pool";
const VOLUME: &str = "demo";
const SHARE: &str = "demo";
const ADMINISTRATORS: &str = "Administrators";

/// Timeout of a step: servers form etcd, and disks are formatted, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);
/// One request.
const REQUEST_LIMIT: Duration = Duration::from_secs(90);

/// Result of the furnishing.
pub(super) struct Furnished {
    /// If it was generated now.
    pub password: Option<String>,
    pub share: String,
    /// The server that serves the volume.
    pub owner: String,
}

/// Blocks until the cluster serves, or `given_up` is set because nobody waits.
pub(super) fn furnish(
    options: &Quickstart,
    plans: &[Plan],
    given_up: &AtomicBool,
) -> Result<Furnished, Failure> {
    let work = Work { options, plans, given_up };
    work.form()?;
    work.make_pool()?;
    work.make_volume()?;
    let password = work.make_user()?;
    let first = work.client(&plans[0])?;
    let shares: Vec<ShareView> = first.get("/shares")?;
    if shares.is_empty() {
        let () = first.post("/shares", &work.share())?;
    }
    let owner = work.serving()?;
    Ok(Furnished { password, share: SHARE.into(), owner })
}

struct Work<'a> {
    options: &'a Quickstart,
    plans: &'a [Plan],
    given_up: &'a AtomicBool,
}

impl Work<'_> {
    fn client(&self, plan: &Plan) -> Result<Client, Failure> {
        // Nothing of the user's environment may lead elsewhere.
        let access = Access {
            data: Some(plan.data.clone()),
            api: Some(plan.api.to_string()),
            token_file: Some(plan.data.join(api::TOKEN_FILE)),
            ..Access::default()
        };
        Client::find_within(&access, REQUEST_LIMIT)
    }

    /// Asks until an answer is good enough.
    fn until<T>(
        &self,
        what: &str,
        mut attempt: impl FnMut() -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + PATIENCE;
        let mut why = String::new();
        while Instant::now() < until && !self.given_up.load(Ordering::Acquire) {
            match attempt() {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(failure) => why = format!(": {}", failure.message),
            }
            std::thread::sleep(PAUSE);
        }
        Err(Failure::new(format!("{what} did not come about in {} s{why}", PATIENCE.as_secs())))
    }

    fn view(&self, plan: &Plan) -> Result<ClusterView, Failure> {
        self.client(plan)?.get("/cluster")
    }

    /// Waits until the server is up, and a part of the cluster.
    fn await_member(&self, plan: &Plan) -> Result<(), Failure> {
        self.until(&format!("{} in the cluster", plan.name), || {
            let view = self.view(plan)?;
            let is_up =
                |name: &str| view.nodes.iter().any(|node| node.name == name && node.state == NodeStatus::Up);
            Ok((view.name.is_some() && is_up(&plan.name)).then_some(()))
        })
    }

    /// The cluster with all servers in it.
    fn form(&self) -> Result<(), Failure> {
        let (first, others) = self.plans.split_first().ok_or_else(|| Failure::new("no servers"))?;
        let view = self.until(&first.name, || self.view(first).map(Some))?;
        if view.name.is_none() {
            let _: ClusterView =
                self.client(first)?.post("/cluster", &CreateCluster { name: CLUSTER.into() })?;
        }
        self.await_member(first)?;
        for plan in others {
            let view = self.until(&plan.name, || self.view(plan).map(Some))?;
            if view.name.is_none() {
                let token: NewToken = self.client(first)?.post("/cluster/tokens", &())?;
                let request = JoinCluster { address: None, token: token.token };
                let _: Joined = self.client(plan)?.post("/cluster/join", &request)?;
            }
            self.await_member(plan)?;
        }
        Ok(())
    }

    fn disk(&self, plan: &Plan, number: u32, pool: Option<String>) -> AddDisk {
        AddDisk {
            path: plan.data.join("disks").join(format!("disk-{number}.img")).display().to_string(),
            create_size_bytes: Some(self.options.disk_size),
            pool,
            fault_domain: FaultDomain { node: plan.name.clone(), ..FaultDomain::default() },
        }
    }

    /// Makes one pool of the disks of all servers; each adds its own. A server with disks of an earlier
    /// start keeps these, at any number requested now.
    fn make_pool(&self) -> Result<(), Failure> {
        let first = &self.plans[0];
        for plan in self.plans {
            let disks = plan.data.join("disks");
            std::fs::create_dir_all(&disks)
                .map_err(|error| Failure::new(format!("{}: {error}", disks.display())))?;
        }
        let pools: Vec<Pool> = self.client(first)?.get("/pools")?;
        if pools.is_empty() {
            let disks = (1..=self.options.disks).map(|number| self.disk(first, number, None)).collect();
            let request = CreatePool { name: POOL.into(), disks, reserve_disks: None };
            let _: Created = self.client(first)?.post("/pools", &request)?;
        }
        let has_volume = !self.client(first)?.get::<Vec<Volume>>("/volumes")?.is_empty();
        for plan in &self.plans[1..] {
            self.until(&format!("the pool at {}", plan.name), || {
                let pools: Vec<Pool> = self.client(plan)?.get("/pools")?;
                Ok((!pools.is_empty()).then_some(()))
            })?;
            let own = plan.data.join("disks");
            let known: Vec<Disk> = self.client(plan)?.get("/disks")?;
            if has_volume && known.iter().any(|disk| Path::new(&disk.path).starts_with(&own)) {
                continue;
            }
            for number in 1..=self.options.disks {
                let request = self.disk(plan, number, Some(POOL.into()));
                if !known.iter().any(|disk| disk.path == request.path) {
                    let _: Created = self.client(plan)?.post("/disks", &request)?;
                }
            }
        }
        if has_volume {
            return Ok(());
        }
        let all = self.options.disks as usize * self.plans.len();
        self.until(&format!("the pool's {all} disks at {}", first.name), || {
            let disks: Vec<Disk> = self.client(first)?.get("/disks")?;
            Ok((disks.len() >= all).then_some(()))
        })
    }

    fn make_volume(&self) -> Result<(), Failure> {
        let first = self.client(&self.plans[0])?;
        if !first.get::<Vec<Volume>>("/volumes")?.is_empty() {
            return Ok(());
        }
        let pools: Vec<Pool> = first.get("/pools")?;
        let pool = pools.first().ok_or_else(|| Failure::new("the pool is gone"))?;
        let (resiliency, copies) = match self.plans.len() {
            2 => (Resiliency::TwoWayMirror, 2),
            _ => (Resiliency::ThreeWayMirror, 3),
        };
        // Space for all copies, less two disks' worth for repair. Computed from the options, since not all
        // other servers' disks are known yet.
        let slab = pool.slab_bytes.max(1);
        let disks = u64::from(self.options.disks) * self.plans.len() as u64;
        let usable = self.options.disk_size / slab * slab * (disks - disks.min(2)).max(1);
        let size_bytes = usable / copies / slab * slab;
        let request = CreateVolume {
            name: VOLUME.into(),
            pool: Some(pool.name.clone()),
            resiliency,
            provisioning: Provisioning::Thin,
            size_bytes,
            warn_at_percent: None,
        };
        // Other servers' disks may still be joining the pool.
        self.until("the volume", || match first.post::<Created>("/volumes", &request) {
            Ok(_) => Ok(Some(())),
            Err(failure) if failure.kind == Some(ErrorKind::Conflict) => Ok(Some(())),
            Err(failure) => Err(failure),
        })
    }

    /// Answers a password that was generated.
    fn make_user(&self) -> Result<Option<String>, Failure> {
        let first = self.client(&self.plans[0])?;
        let (user, given) = (&self.options.user, &self.options.password);
        let users: Vec<UserView> = first.get("/users")?;
        if users.iter().any(|known| known.name.eq_ignore_ascii_case(user)) {
            if let Some(password) = given {
                let request = SetUser { password: Some(password.clone()), ..SetUser::default() };
                let () = first.patch(&format!("/users/{user}"), &request)?;
            }
            return Ok(None);
        }
        let generated = match given {
            Some(_) => None,
            None => Some(generated_password().map_err(|error| Failure::new(error.to_string()))?),
        };
        let request = AddUser {
            name: user.clone(),
            password: given.clone().or_else(|| generated.clone()).unwrap_or_default(),
            full_name: String::new(),
            groups: vec![ADMINISTRATORS.into()],
        };
        let () = first.post("/users", &request)?;
        Ok(generated)
    }

    fn share(&self) -> CreateShare {
        let grant = |who: &str| Grant { who: who.into(), access: ShareAccess::Full };
        let access = Some(vec![grant(ADMINISTRATORS), grant(&self.options.user)]);
        let options = ShareOptions { access, continuously_available: Some(true), ..ShareOptions::default() };
        CreateShare { name: SHARE.into(), volume: VOLUME.into(), path: String::new(), options }
    }

    /// Waits until all servers are up; the name of the one that serves the volume.
    fn serving(&self) -> Result<String, Failure> {
        self.until("all servers up, and one that serves the volume", || {
            let view = self.view(&self.plans[0])?;
            let up = view.nodes.iter().filter(|node| node.state == NodeStatus::Up).count();
            let owner = view.nodes.iter().find(|node| node.volumes.iter().any(|name| name == VOLUME));
            Ok(owner.filter(|_| up == self.plans.len()).map(|node| node.name.clone()))
        })
    }
}
