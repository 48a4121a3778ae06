//! Executes the API's requests on the cluster.
//!
//! Promises: changes of the cluster happen one at a time, and complete even if the client disconnects.
//! A joining server restarts as a part of the cluster, on [`ClusterControl`]'s signal; a founding
//! server keeps serving. A refused request has changed nothing, or its steps were undone. Never decides
//! about admission: `crate::admission` does.

use crate::admission::{self, Admitted, EtcdAddresses, Refused, proof_context};
use crate::applicant::{ClusterKeys, free_etcd_ports};
use crate::asking::{AskError, LOOK_TIMEOUT, ask, ask_node, clock_ms, see, target_of};
use crate::credentials::Credentials;
use crate::engine::{Engine, unfounded};
use crate::failure::{ControlError, conflict, internal, off_the_loop, refused};
use crate::guesses::Guesses;
use crate::handing_on::hand_on;
use crate::hearing::hear;
use crate::identity::{self, Facts as IdentityFacts, Identity, Papers};
use crate::issues::Issues;
use crate::join_token::{self, JoinToken, LIFE_S};
use crate::own_etcd::OwnEtcd;
use crate::possessions::demand_nothing;
use crate::preflight::{self, Seen};
use crate::removal::Removal;
use crate::surroundings::{ErrandRunner, OwnServer};
use crate::tls::{self, ClusterTlsError};
use crate::undoing::{Left, forget_founding, leave_founding};
use crate::unserved::unserved;
use crate::view::{Demand, LastRead};
use crate::wire::{Ask, Facts, Secret, Storage, Target, Tell};
use api::cluster::{
    Carried, ClusterFigures, ClusterView, CreateCluster, Errand, JoinCluster, Joined, NewToken,
    PreflightCheck, TestCluster, Unserved,
};
use api::model::HealthIssue;
use api::{Answer, ApiError, Caller, ClusterManagement, ErrorKind};
use records::clock::unix_now_s;
use records::nodes::{self, ClusterRecord};
use records::seal::SealKey;
use records::{DiskRecord, DiskState, NodeRecord, State, Typed};
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use trust::authority::{Authority, authority_ends_unix_s};
use types::NodeId;

/// Timeout of a join at the other side: it adds a member to etcd.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// See the module.
pub struct ClusterControl {
    pub(crate) data: PathBuf,
    pub(crate) keys: ClusterKeys,
    pub(crate) state: State,
    pub(crate) key: Arc<SealKey>,
    engine: RwLock<Arc<dyn Engine>>,
    pub(crate) server: Arc<dyn OwnServer>,
    /// None on a single server.
    membership: OnceLock<Arc<Credentials>>,
    /// Held while the cluster is founded, joined, or changed by this server.
    pub(crate) changing: tokio::sync::Mutex<()>,
    pub(crate) issues: Issues,
    pub(crate) own_etcd: OwnEtcd,
    /// The records that `cluster status` shows, as last read.
    pub(crate) last_read: Mutex<Option<LastRead>>,
    /// Number of revoked certificates in etcd's file, plus one; 0: not written yet.
    pub(crate) revoked_written: AtomicU64,
    pub(crate) runner: OnceLock<Arc<dyn ErrandRunner>>,
    pub(crate) guesses: Guesses,
    pub(crate) removal: Removal,
    restart: Arc<Notify>,
    entered: Arc<Notify>,
    me: Weak<Self>,
}

/// Everything that a [`ClusterControl`] works with.
pub struct ClusterParts {
    /// Data directory of the server, which holds the identity.
    pub data: PathBuf,
    /// This server's part in a cluster, as configured.
    pub keys: ClusterKeys,
    /// Handle of the records, the same before and after a founding or a join.
    pub state: State,
    /// Key that seals the secrets in the records.
    pub key: Arc<SealKey>,
    /// Engine that keeps the records now.
    pub engine: Arc<dyn Engine>,
    /// The rest of this server: disks, heartbeats, and its readiness to join.
    pub server: Arc<dyn OwnServer>,
}

impl ClusterControl {
    /// `identity`: of a server that is in a cluster.
    ///
    /// # Errors
    /// [`ClusterTlsError`].
    pub fn new(parts: ClusterParts, identity: Option<Identity>) -> Result<Arc<Self>, ClusterTlsError> {
        let ClusterParts { data, keys, state, key, engine, server } = parts;
        let membership = identity.map(|identity| Credentials::new(identity).map(Arc::new)).transpose()?;
        Ok(Arc::new_cyclic(|me| Self {
            data,
            keys,
            state,
            key,
            engine: RwLock::new(engine),
            server,
            membership: membership.map_or_else(OnceLock::new, OnceLock::from),
            changing: tokio::sync::Mutex::default(),
            issues: Issues::default(),
            own_etcd: OwnEtcd::default(),
            last_read: Mutex::default(),
            revoked_written: AtomicU64::new(0),
            runner: OnceLock::new(),
            guesses: Guesses::default(),
            removal: Removal::default(),
            restart: Arc::default(),
            entered: Arc::default(),
            me: me.clone(),
        }))
    }

    /// Returns this server's credentials, if it is in a cluster.
    pub fn credentials(&self) -> Option<Arc<Credentials>> {
        self.membership.get().cloned()
    }

    /// Returns the engine that keeps the records.
    pub(crate) fn engine(&self) -> Arc<dyn Engine> {
        self.engine.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has errands of other servers carried out from now on.
    pub fn set_runner(&self, runner: Arc<dyn ErrandRunner>) {
        // A server has one API for life.
        let _ = self.runner.set(runner);
    }

    /// Fires when the server has to restart: as a part of a cluster, or as a removed one that only reports
    /// its removal.
    pub fn restart(&self) -> Arc<Notify> {
        self.restart.clone()
    }

    /// Fires when a single server has become the first of a cluster, without a pause: its work in a cluster
    /// begins.
    pub fn entered(&self) -> Arc<Notify> {
        self.entered.clone()
    }

    /// The state, if other servers change it too.
    pub fn shared_state(&self) -> Option<State> {
        self.membership.get().is_some().then(|| self.state.clone())
    }

    pub(crate) fn in_cluster(&self) -> Result<&Credentials, ApiError> {
        self.membership.get().map(AsRef::as_ref).ok_or_else(|| refused(Refused::NoCluster))
    }

    fn in_no_cluster(&self) -> Result<(), ApiError> {
        match self.membership.get() {
            Some(found) => Err(refused(Refused::InCluster(found.facts().cluster))),
            None => Ok(()),
        }
    }

    pub(crate) async fn members(&self) -> Result<Vec<NodeRecord>, ControlError> {
        let state = self.state.clone();
        off_the_loop(move || Ok(nodes::members(&state)?.into_iter().map(|node| node.value).collect())).await
    }

    /// Collects the facts that this server reports to others.
    pub(crate) async fn facts(&self) -> Result<Facts, ControlError> {
        let members = self.members().await?;
        let listen = self.keys.listen;
        let engine = self.engine();
        let etcd =
            tokio::task::spawn_blocking(move || engine.program_version().ok()).await.unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let own = self.membership.get().map(|found| found.facts());
        let storage = self.storage(own.as_ref()).await?;
        Ok(Facts {
            storage,
            name: self.keys.name.clone(),
            cluster: own.as_ref().map(|facts| facts.cluster.clone()).unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").into(),
            unix_ms: u64::try_from(now.as_millis()).unwrap_or_default(),
            pid: std::process::id(),
            mtu: listen.and_then(|listen| preflight::mtu_of(listen.ip())),
            receive_buffer_max: preflight::receive_buffer_max(),
            etcd,
            members: members.iter().map(target_of).collect(),
        })
    }

    /// Sums up the server's recorded disks; `None` for a witness and for a server that is in no cluster.
    async fn storage(&self, own: Option<&IdentityFacts>) -> Result<Option<Storage>, ControlError> {
        let Some(node) = own.filter(|facts| !facts.is_witness).map(|facts| facts.node) else {
            return Ok(None);
        };
        let state = self.state.clone();
        off_the_loop(move || {
            let disks = state.list::<DiskRecord>()?.into_iter().map(|disk| disk.value);
            let mut storage = Storage::default();
            for disk in disks.filter(|disk| disk.node == Some(node)) {
                storage.disks += 1;
                storage.size_bytes += disk.size_bytes;
                if matches!(disk.state, DiskState::Missing | DiskState::Failed) {
                    storage.failing.push(disk.path);
                }
            }
            Ok(Some(storage))
        })
        .await
    }

    /// Gets the facts of other servers of the cluster, concurrently.
    pub(crate) async fn look_at(&self, others: &[NodeRecord], within: Duration) -> Vec<Seen> {
        let Some(membership) = self.membership.get() else { return Vec::new() };
        let mut asked = Vec::new();
        for node in others {
            let (tls, node) = (membership.asking(), node.clone());
            asked.push(tokio::spawn(async move { see(tls, &node, within).await }));
        }
        let mut seen = Vec::new();
        for task in asked {
            seen.extend(task.await);
        }
        seen
    }

    /// Makes the view. `asks`: queries the other servers, too, which know more of themselves than
    /// heartbeats and records do.
    async fn view_now(&self, asks: bool) -> Result<ClusterView, ControlError> {
        let known = self.last_read().map(|read| read.members).unwrap_or_default();
        // Concurrently: each may take its whole timeout if a server or its etcd hangs.
        let (read, mut seen, heard) = tokio::join!(
            self.read_soon(),
            self.look_at_others(asks, &known, &[]),
            hear(self.engine(), self.issues.looked())
        );
        let (LastRead { cluster, members, holdings, at }, trouble) = read?;
        // Servers that have joined since the last reading.
        seen.extend(self.look_at_others(asks, &members, &known).await);
        let own = self.membership.get().map(|found| found.facts());
        let (name, id) = match &own {
            Some(facts) => (Some(facts.cluster.clone()), Some(facts.id.to_string())),
            None => (None, None),
        };
        let own = own.map(|facts| facts.node);
        // A data plane that has ended is no reason to show nothing.
        let bus = self.server.bus().await.unwrap_or_default();
        let (engine, server, unserved) = (self.engine(), self.server.clone(), self.unserved());
        off_the_loop(move || {
            let mut nodes = crate::view::nodes(&members, own, &seen, &*server, &holdings);
            for node in &mut nodes {
                node.bus = bus.iter().find(|peer| peer.node == node.id).cloned();
            }
            let mut engine = engine.view(&heard.members, &heard.alarms);
            engine.notes.extend(heard.remark);
            crate::view::note_members(&mut nodes, &engine);
            engine.notes.extend(trouble.map(|why| {
                let seconds = at.elapsed().as_secs();
                format!("disks, volumes and members are as they were {seconds} s ago; who is up is as heard now: {why}")
            }));
            let at_risk = crate::view::at_risk(&nodes, &engine, &holdings);
            let founded = cluster.filter(|_| own.is_some()).map(|cluster| cluster.created_unix_s);
            let authority_ends_unix_s = founded.map(authority_ends_unix_s);
            Ok(ClusterView { name, id, nodes, engine, at_risk, authority_ends_unix_s, unserved })
        })
        .await
    }

    /// Reads the records. If they do not answer soon, returns the last reading, and why.
    async fn read_soon(&self) -> Result<(LastRead, Option<String>), ControlError> {
        let state = self.state.clone();
        let mut reading = std::pin::pin!(off_the_loop(move || Ok(LastRead::now(&state)?)));
        let read = match (tokio::time::timeout(LOOK_TIMEOUT, &mut reading).await, self.last_read()) {
            (Ok(read), _) => read,
            (Err(_), Some(last)) => {
                let why = format!("they gave no answer within {} ms", LOOK_TIMEOUT.as_millis());
                return Ok((last, Some(why)));
            }
            (Err(_), None) => reading.await,
        };
        match read {
            Ok(read) => Ok((read, None)),
            // Without a majority the view matters all the more.
            Err(ControlError(error)) if error.kind == ErrorKind::Unavailable => {
                Ok((self.last_read().ok_or(ControlError(error.clone()))?, Some(error.message)))
            }
            Err(error) => Err(error),
        }
    }

    /// Gets the facts of those of `members` that are not in `asked`, if `asks`. Skips servers that are
    /// down.
    async fn look_at_others(&self, asks: bool, members: &[NodeRecord], asked: &[NodeRecord]) -> Vec<Seen> {
        let own = self.membership.get().map(|found| found.facts().node);
        let is_asked = |node: &&NodeRecord| {
            asks && Some(node.id) != own
                && self.server.is_up(node.id) != Some(false)
                && !asked.iter().any(|other| other.id == node.id)
        };
        let others: Vec<NodeRecord> = members.iter().filter(is_asked).cloned().collect();
        self.look_at(&others, LOOK_TIMEOUT).await
    }

    async fn create_now(&self, name: String) -> Result<ClusterView, ControlError> {
        let _alone = self.changing.lock().await;
        self.in_no_cluster()?;
        let listen = self.keys.listen().map_err(conflict)?;
        self.server.ready_to_join().await?;
        let founded = match self.found(name, listen).await {
            Ok(founded) => founded,
            Err(error) => {
                self.server.stay();
                return Err(error);
            }
        };
        let (cluster, node) = (founded.cluster.name, founded.node.name);
        if let Err(ControlError(error)) = self.enter().await {
            let (left, error) = leave_founding(&self.data, &self.state, &cluster, error).await;
            match left {
                Left::Single => self.server.stay(),
                Left::Founder => self.restart.notify_one(),
            }
            return Err(ControlError(error));
        }
        tracing::info!(
            cluster,
            node,
            "a cluster was made, and this server is its first; it has served all the time"
        );
        self.entered.notify_one();
        self.view_now(true).await
    }

    /// Moves the records of a single server to the cluster that it has founded, and makes its parts those
    /// of a node. Once the identity is on disk, a restart does the same ([`crate::open_state`]): at any
    /// interruption the records are whole in one of the two engines, and in use.
    async fn enter(&self) -> Result<(), ControlError> {
        let (engine, data) = (self.engine(), self.data.clone());
        let (identity, engine) = off_the_loop(move || {
            let identity = Identity::open(&data)?.ok_or_else(|| internal("the cluster's files are gone"))?;
            let engine = engine.carry(&identity).map_err(unfounded)?;
            Ok((identity, engine))
        })
        .await?;
        // The engine runs etcd, which must continue even if a later step fails.
        *self.engine.write().unwrap_or_else(PoisonError::into_inner) = engine;
        let facts = identity.facts.clone();
        let credentials = Credentials::new(identity).map_err(internal)?;
        self.server.join(facts).await?;
        // Only a founding sets it, one at a time.
        let _ = self.membership.set(Arc::new(credentials));
        Ok(())
    }

    /// Makes the records and the files of a cluster whose first server this one is.
    async fn found(&self, name: String, listen: SocketAddr) -> Result<Admitted, ControlError> {
        let (state, key, keys, data) =
            (self.state.clone(), self.key.clone(), self.keys.clone(), self.data.clone());
        let engine = self.engine();
        off_the_loop(move || {
            nodes::check_cluster_name(&name).map_err(Refused::from)?;
            engine.demand_free(&name).map_err(unfounded)?;
            let etcd = own_etcd(&keys, &*engine, listen)?;
            let node_key = identity::draft_key(&data)?;
            let proven = node_key.prove(&proof_context(&name)).map_err(internal)?;
            let applicant = keys.applicant(proven, etcd).map_err(conflict)?;
            forget_founding(&state)?;
            let founded = admission::found_cluster(&state, &key, &name, &applicant, unix_now_s())?;
            let member = founded.node.etcd.clone().into_iter().map(|member| (member.name, member.peer_url));
            let facts = IdentityFacts {
                cluster: founded.cluster.name.clone(),
                id: founded.cluster.id,
                node: founded.node.id,
                name: founded.node.name.clone(),
                server_guid: founded.node.server_guid,
                etcd,
                initial_members: member.collect(),
                founder: true,
                is_witness: false,
                endpoints: founded.node.etcd.iter().map(|member| member.client_url.clone()).collect(),
                certified_unix_s: unix_now_s(),
                unrecorded: None,
            };
            let papers = Papers {
                certificate: &founded.certificate,
                authority: &founded.cluster.authority_certificate,
                revoked: &revocation_list(&founded.cluster, &key)?,
            };
            if let Err(error) = identity::establish(&data, &facts, &papers, &key) {
                forget_founding(&state)?;
                return Err(error.into());
            }
            Ok(founded)
        })
        .await
    }

    /// Completes the work even if the caller stops waiting for the answer.
    async fn to_the_end<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, ControlError>
    where
        F: Future<Output = Result<T, ControlError>> + Send + 'static,
    {
        let me = self.me.upgrade().ok_or_else(|| internal("the server ends"))?;
        tokio::spawn(work(me)).await.map_err(internal)?
    }

    async fn new_token_now(&self) -> Result<NewToken, ControlError> {
        let membership = self.in_cluster()?;
        let authority = tls::fingerprint(&membership.authority())?;
        let members = self.members().await?;
        // This server first: it certainly answers.
        let mut addresses: Vec<SocketAddr> = members.iter().map(|node| node.cluster).collect();
        addresses.sort_by_key(|address| Some(*address) != self.keys.listen);
        let state = self.state.clone();
        let now = unix_now_s();
        let token = off_the_loop(move || Ok(join_token::create(&state, authority, &addresses, now)?)).await?;
        Ok(NewToken { token: token.to_string(), expires_unix_s: now + LIFE_S })
    }

    /// Returns the token, and the addresses to try first.
    fn token_and_addresses(
        token: &str,
        address: Option<&str>,
    ) -> Result<(JoinToken, Vec<SocketAddr>), ApiError> {
        let invalid = |why: String| ApiError::new(ErrorKind::Invalid, why);
        let token: JoinToken =
            token.parse().map_err(|error: join_token::BadToken| invalid(error.to_string()))?;
        let mut addresses = Vec::new();
        if let Some(address) = address {
            addresses.push(address.parse().map_err(|_| {
                invalid(format!(
                    "'{address}' is not ADDRESS:PORT of a server, such as 10.1.0.11:{}",
                    nodes::CLUSTER_PORT
                ))
            })?);
        }
        for known in &token.addresses {
            if !addresses.contains(known) {
                addresses.push(*known);
            }
        }
        Ok((token, addresses))
    }

    /// Asks the first server that it reaches.
    async fn ask_any(
        token: &JoinToken,
        addresses: &[SocketAddr],
        question: &Ask,
        within: Duration,
    ) -> Result<Tell, ControlError> {
        let tls = Arc::new(tls::joining(token.authority)?);
        let mut last = None;
        for address in addresses {
            match ask(tls.clone(), *address, question, within).await {
                Ok((told, _)) => return Ok(told),
                // A refusal decides for the cluster; a server that does not answer is not asked again.
                Err(error @ AskError::Refused(_)) => return Err(error.into()),
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) => Err(error.into()),
            None => {
                Err(ControlError(ApiError::new(ErrorKind::Invalid, "the token has no address: give one")))
            }
        }
    }

    async fn join_now(&self, request: JoinCluster) -> Result<Joined, ControlError> {
        let _alone = self.changing.lock().await;
        self.in_no_cluster()?;
        let (token, addresses) = Self::token_and_addresses(&request.token, request.address.as_deref())?;
        let listen = self.keys.listen().map_err(conflict)?;
        demand_nothing(&*self.server, &self.state, &self.key).await?;
        let engine = self.engine();
        let (keys, data, context) =
            (self.keys.clone(), self.data.clone(), proof_context(&token.id.to_string()));
        let applicant = off_the_loop(move || {
            // A server without etcd may be the fourth and later.
            let installed = engine.program_version().ok().filter(|_| !keys.uses_other_etcd);
            let etcd = installed.and_then(|_| free_etcd_ports(listen.ip()).ok());
            let proven = identity::draft_key(&data)?.prove(&context).map_err(internal)?;
            Ok(keys.applicant(proven, etcd).map_err(conflict)?)
        })
        .await?;
        let etcd = applicant.etcd;
        let question = Ask::Join {
            token: token.id.to_string(),
            secret: Secret(token.secret.to_hex()),
            applicant: Box::new(applicant),
        };
        let told = Self::ask_any(&token, &addresses, &question, JOIN_TIMEOUT).await?;
        let Tell::Admitted(admitted) = told else {
            return Err(ControlError(conflict("the server answered something else than was asked")));
        };
        let data = self.data.clone();
        let joined = off_the_loop(move || {
            let key = SealKey::from_hex(&admitted.seal_key.0).map_err(internal)?;
            let facts = IdentityFacts {
                cluster: admitted.cluster.clone(),
                id: admitted.id,
                node: admitted.node.id,
                name: admitted.node.name.clone(),
                server_guid: admitted.node.server_guid,
                etcd: etcd.filter(|_| admitted.node.etcd.is_some()),
                initial_members: admitted.members.clone(),
                founder: false,
                is_witness: admitted.node.is_witness,
                endpoints: admitted.endpoints.clone(),
                certified_unix_s: unix_now_s(),
                unrecorded: None,
            };
            let papers = Papers {
                certificate: &admitted.certificate,
                authority: &admitted.authority,
                revoked: &admitted.revoked,
            };
            identity::establish(&data, &facts, &papers, &key)?;
            Ok(Joined { cluster: facts.cluster, name: facts.name, id: facts.node })
        })
        .await?;
        tracing::info!(
            cluster = joined.cluster,
            node = joined.name,
            "joined; starting again as a part of the cluster"
        );
        self.restart.notify_one();
        Ok(joined)
    }

    async fn test_now(&self, request: TestCluster) -> Result<Vec<PreflightCheck>, ControlError> {
        let ours = self.facts().await?;
        let Some(token) = request.token else {
            return self.test_own(ours).await;
        };
        self.in_no_cluster()?;
        let (token, addresses) = Self::token_and_addresses(&token, request.address.as_deref())?;
        let question = Ask::Examine { token: token.id.to_string(), secret: Secret(token.secret.to_hex()) };
        let began = Instant::now();
        let told = Self::ask_any(&token, &addresses, &question, JOIN_TIMEOUT).await?;
        let Tell::Facts(facts) = told else {
            return Err(ControlError(conflict("the server answered something else than was asked")));
        };
        let targets = facts.members.clone();
        let mut checks = vec![crate::view::check_name(&ours, &facts)];
        let seen =
            Seen { name: facts.name.clone(), clock_ms: clock_ms(&facts, began.elapsed()), told: Ok(*facts) };
        checks.extend(preflight::judge_facts(&ours, &[seen]));
        let probes = tokio::task::spawn_blocking(move || preflight::probe(&targets)).await;
        checks.extend(preflight::judge_probes(&ours.name, &probes.map_err(internal)?));
        Ok(checks)
    }

    async fn test_own(&self, ours: Facts) -> Result<Vec<PreflightCheck>, ControlError> {
        let membership = self.in_cluster()?;
        let members = self.members().await?;
        let own = membership.facts().node;
        let others: Vec<NodeRecord> = members.iter().filter(|node| node.id != own).cloned().collect();
        let seen = self.look_at(&others, LOOK_TIMEOUT).await;
        let mut checks = preflight::judge_facts(&ours, &seen);
        let targets: Vec<Target> = others.iter().map(target_of).collect();
        let mine = tokio::task::spawn_blocking(move || preflight::probe(&targets)).await;
        checks.extend(preflight::judge_probes(&ours.name, &mine.map_err(internal)?));
        // Sequentially: concurrent measurements would disturb each other.
        for node in &others {
            let targets = members.iter().filter(|other| other.id != node.id).map(target_of).collect();
            let question = Ask::Probe { targets };
            if let Ok(Tell::Probed(probes)) =
                ask_node(membership.asking(), node, &question, JOIN_TIMEOUT).await
            {
                checks.extend(preflight::judge_probes(&node.name, &probes));
            }
        }
        Ok(checks)
    }
}

/// Returns the addresses of a founder's member of etcd; `None`: somebody else runs etcd.
fn own_etcd(
    keys: &ClusterKeys,
    engine: &dyn Engine,
    listen: SocketAddr,
) -> Result<Option<EtcdAddresses>, ControlError> {
    if keys.uses_other_etcd {
        return Ok(None);
    }
    engine.program_version().map_err(conflict)?;
    let found = free_etcd_ports(listen.ip()).map_err(|error| {
        conflict(format!("etcd cannot listen on {}: {error}; is it an address of this machine?", listen.ip()))
    })?;
    Ok(Some(found))
}

/// Makes the list of revoked certificates, in PEM.
pub(crate) fn revocation_list(cluster: &ClusterRecord, key: &SealKey) -> Result<String, ControlError> {
    let authority = Authority::open(cluster, key).map_err(internal)?;
    let number = cluster.revoked.len() as u64 + 1;
    Ok(authority.revocation_list(&cluster.revoked, number, unix_now_s()).map_err(internal)?)
}

fn plain<'a, T>(work: impl Future<Output = Result<T, ControlError>> + Send + 'a) -> Answer<'a, T> {
    Box::pin(async move { work.await.map_err(|ControlError(error)| error) })
}

impl ClusterManagement for ClusterControl {
    fn own(&self) -> Option<NodeId> {
        self.membership.get().map(|found| found.facts().node)
    }
    fn view(&self) -> Answer<'_, ClusterView> {
        plain(self.view_now(true))
    }
    fn known(&self) -> Answer<'_, ClusterView> {
        plain(self.view_now(false))
    }
    fn is_up(&self, node: NodeId) -> Option<bool> {
        self.server.is_up(node)
    }
    fn servers(&self) -> Vec<(NodeId, String)> {
        let members = self.last_read().map(|read| read.members).unwrap_or_default();
        let servers = members.into_iter().filter(|node| !node.is_witness);
        servers.map(|node| (node.id, node.name)).collect()
    }
    fn removed(&self) -> Option<String> {
        self.removal.words()
    }
    fn unserved(&self) -> Option<Unserved> {
        let own = self.own()?;
        let members = self.last_read().map(|read| read.members).unwrap_or_default();
        unserved(&members, own, &self.server.standing()?)
    }
    fn create(&self, request: CreateCluster) -> Answer<'_, ClusterView> {
        plain(self.to_the_end(|me| async move { me.create_now(request.name).await }))
    }
    fn new_token(&self) -> Answer<'_, NewToken> {
        plain(self.new_token_now())
    }
    fn join(&self, request: JoinCluster) -> Answer<'_, Joined> {
        plain(self.to_the_end(|me| async move { me.join_now(request).await }))
    }
    fn test(&self, request: TestCluster) -> Answer<'_, Vec<PreflightCheck>> {
        plain(self.test_now(request))
    }
    fn remove_node(&self, name: String) -> Answer<'_, ()> {
        plain(self.remove_now(name))
    }
    fn set_draining(&self, name: String, is_draining: bool) -> Answer<'_, ()> {
        plain(self.set_draining_now(name, is_draining, Demand::Service))
    }
    fn force_draining(&self, name: String) -> Answer<'_, ()> {
        plain(self.set_draining_now(name, true, Demand::Nothing))
    }
    fn issues(&self) -> Vec<HealthIssue> {
        self.current_issues()
    }
    fn figures(&self) -> Option<ClusterFigures> {
        self.current_figures()
    }
    fn send_for(&self, name: String, errand: Errand, caller: Caller) -> Answer<'_, Carried> {
        plain(async move {
            let tls = self.in_cluster()?.asking();
            let node = self.node_named(&name).await?;
            hand_on(tls, &node, (errand, &caller), || self.server.is_up(node.id)).await
        })
    }
}
