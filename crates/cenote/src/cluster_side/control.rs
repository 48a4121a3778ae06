//! What the API and other servers ask of the cluster, carried out.
//!
//! Promises: changes of the cluster happen one at a time; who joins or founds starts again as a part of the cluster, by [`ClusterControl`]'s
//! signal; what is refused changed nothing, or what it had begun is taken back. Never decides who is let in: `cluster::admission` does.

use super::applicant::{ClusterKeys, free_etcd_ports};
use super::asking::{AskError, ask};
use super::engine::Engine;
use super::failure::{ControlError, conflict, internal, off_the_loop, refused};
use super::listener::Host;
use super::liveness::Shared;
use super::preflight::{self, Seen};
use super::tls::{self, ClusterTlsError};
use crate::control::ControlHandle;
use api::ClusterManagement;
use api::cluster::{ClusterView, CreateCluster, JoinCluster, Joined, NewToken, PreflightCheck, TestCluster};
use api::{Answer, ApiError, ErrorKind};
use cluster::accounts::Accounts;
use cluster::admission::{self, Refused, proof_context};
use cluster::authority::{Authority, Fingerprint};
use cluster::clock::unix_now_s;
use cluster::identity::{self, Facts as IdentityFacts, Identity, Papers};
use cluster::join_token::{self, JoinToken, LIFE_S};
use cluster::nodes::{self, ClusterRecord};
use cluster::seal::SealKey;
use cluster::wire::{Admission, Ask, Facts, Secret, Target, Tell};
use cluster::{NodeRecord, Record, State, StateError, Stored, Transaction, Typed};
use rustls::ClientConfig;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use types::NodeId;

/// How long a server that is looked at may take to answer.
const LOOK_TIMEOUT: Duration = Duration::from_millis(700);
/// How long a join may take at the other side: it adds a member to etcd.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// This server's part in a cluster that it is in.
struct Membership {
    facts: IdentityFacts,
    authority: String,
    asking: Arc<ClientConfig>,
}

/// See the module.
pub struct ClusterControl {
    data: PathBuf,
    keys: ClusterKeys,
    state: State,
    key: Arc<SealKey>,
    engine: Arc<dyn Engine>,
    control: ControlHandle,
    heartbeats: Shared,
    membership: Option<Membership>,
    /// Held while the cluster is founded, joined, or changed by this server.
    changing: tokio::sync::Mutex<()>,
    restart: Arc<Notify>,
}

/// What a [`ClusterControl`] works with.
pub struct ClusterParts {
    pub data: PathBuf,
    pub keys: ClusterKeys,
    pub state: State,
    pub key: Arc<SealKey>,
    pub engine: Arc<dyn Engine>,
    pub control: ControlHandle,
    pub heartbeats: Shared,
}

impl ClusterControl {
    /// `identity`: of a server that is in a cluster.
    ///
    /// # Errors
    /// [`ClusterTlsError`].
    pub fn new(parts: ClusterParts, identity: Option<&Identity>) -> Result<Self, ClusterTlsError> {
        let ClusterParts { data, keys, state, key, engine, control, heartbeats } = parts;
        let membership = identity.map(|identity| {
            let asking = Arc::new(tls::asking(identity)?);
            Ok(Membership { facts: identity.facts.clone(), authority: identity.authority.clone(), asking })
        });
        Ok(Self {
            data,
            keys,
            state,
            key,
            engine,
            control,
            heartbeats,
            membership: membership.transpose()?,
            changing: tokio::sync::Mutex::default(),
            restart: Arc::default(),
        })
    }

    /// Fires when the server is to start again, as a part of a cluster.
    pub fn restart(&self) -> Arc<Notify> {
        self.restart.clone()
    }

    /// The state, if other servers change it too.
    pub fn shared_state(&self) -> Option<State> {
        self.membership.is_some().then(|| self.state.clone())
    }

    /// Has this server's member of etcd refuse certificates of servers that have left.
    ///
    /// # Errors
    /// Why it still takes them.
    pub fn follow_revocations(&self) -> Result<(), String> {
        let told = |ControlError(error): ControlError| error.message;
        let Some(cluster) = ClusterRecord::find(&self.state).map_err(|error| error.to_string())? else {
            return Ok(());
        };
        let list = revocation_list(&cluster.value, &self.key).map_err(told)?;
        let directory = self.data.join(identity::DIRECTORY);
        identity::write_revoked(&directory, &list).map_err(|error| error.to_string())
    }

    fn in_cluster(&self) -> Result<&Membership, ApiError> {
        self.membership.as_ref().ok_or_else(|| refused(Refused::NoCluster))
    }

    fn in_no_cluster(&self) -> Result<(), ApiError> {
        match &self.membership {
            Some(found) => Err(refused(Refused::InCluster(found.facts.cluster.clone()))),
            None => Ok(()),
        }
    }

    async fn members(&self) -> Result<Vec<NodeRecord>, ControlError> {
        let state = self.state.clone();
        off_the_loop(move || Ok(nodes::members(&state)?.into_iter().map(|node| node.value).collect())).await
    }

    /// What this server tells others of itself.
    async fn facts(&self) -> Result<Facts, ControlError> {
        let members = self.members().await?;
        let listen = self.keys.listen;
        let engine = self.engine.clone();
        let etcd =
            tokio::task::spawn_blocking(move || engine.program_version().ok()).await.unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Facts {
            name: self.keys.name.clone(),
            cluster: self.membership.as_ref().map(|found| found.facts.cluster.clone()).unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").into(),
            unix_ms: u64::try_from(now.as_millis()).unwrap_or_default(),
            pid: std::process::id(),
            mtu: listen.and_then(|listen| preflight::mtu_of(listen.ip())),
            receive_buffer_max: preflight::receive_buffer_max(),
            etcd,
            members: members.iter().map(target_of).collect(),
        })
    }

    /// Asks other servers of the cluster for their facts, all at once.
    async fn look_at(&self, others: &[NodeRecord], within: Duration) -> Vec<Seen> {
        let Some(membership) = &self.membership else { return Vec::new() };
        let mut asked = Vec::new();
        for node in others {
            let (tls, address, name) = (membership.asking.clone(), node.cluster, node.name.clone());
            let fingerprint = node.certificate_sha256.clone();
            asked.push(tokio::spawn(async move {
                see(tls, address, name, Some(fingerprint), &Ask::Facts, within).await
            }));
        }
        let mut seen = Vec::new();
        for task in asked {
            seen.extend(task.await);
        }
        seen
    }

    /// `asks`: the other servers, too, which tells more of them than heartbeats and records do.
    async fn view_now(&self, asks: bool) -> Result<ClusterView, ControlError> {
        let members = self.members().await?;
        let own = self.membership.as_ref().map(|found| found.facts.node);
        let is_asked = |node: &&NodeRecord| asks && Some(node.id) != own;
        let others: Vec<NodeRecord> = members.iter().filter(is_asked).cloned().collect();
        let seen = self.look_at(&others, LOOK_TIMEOUT).await;
        let (state, engine, heartbeats) = (self.state.clone(), self.engine.clone(), self.heartbeats.clone());
        let name = self.membership.as_ref().map(|found| found.facts.cluster.clone());
        let id = self.membership.as_ref().map(|found| found.facts.id.to_string());
        off_the_loop(move || {
            let holdings = super::view::Holdings::read(&state)?;
            let nodes = super::view::nodes(&members, own, &seen, &heartbeats, &holdings);
            let engine = engine.view();
            let at_risk = super::view::at_risk(&nodes, &engine, &holdings);
            Ok(ClusterView { name, id, nodes, engine, at_risk })
        })
        .await
    }

    async fn create_now(&self, name: String) -> Result<ClusterView, ControlError> {
        self.in_no_cluster()?;
        let _alone = self.changing.lock().await;
        let listen = self.keys.listen().map_err(conflict)?;
        let (state, key, keys, data) =
            (self.state.clone(), self.key.clone(), self.keys.clone(), self.data.clone());
        let engine = self.engine.clone();
        let founded = off_the_loop(move || {
            engine.program_version().map_err(conflict)?;
            let etcd = free_etcd_ports(listen.ip()).map_err(|error| {
                conflict(format!(
                    "etcd cannot listen on {}: {error}; is it an address of this machine?",
                    listen.ip()
                ))
            })?;
            let node_key = identity::draft_key(&data)?;
            let proven = node_key.prove(&proof_context(&name)).map_err(internal)?;
            let applicant = keys.applicant(proven, Some(etcd)).map_err(conflict)?;
            forget_founding(&state)?;
            let founded = admission::found_cluster(&state, &key, &name, &applicant, unix_now_s())?;
            let member = founded.node.etcd.clone().into_iter().map(|member| (member.name, member.peer_url));
            let facts = IdentityFacts {
                cluster: founded.cluster.name.clone(),
                id: founded.cluster.id,
                node: founded.node.id,
                name: founded.node.name.clone(),
                server_guid: founded.node.server_guid,
                etcd: Some(etcd),
                initial_members: member.collect(),
                founder: true,
                endpoints: founded.node.etcd.iter().map(|member| member.client_url.clone()).collect(),
                certified_unix_s: unix_now_s(),
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
        .await?;
        tracing::info!(
            cluster = founded.cluster.name,
            node = founded.node.name,
            "a cluster was made; starting again as its first server"
        );
        let mut view = self.view_now(true).await?;
        view.name = Some(founded.cluster.name);
        view.id = Some(founded.cluster.id.to_string());
        self.restart.notify_one();
        Ok(view)
    }

    async fn new_token_now(&self) -> Result<NewToken, ControlError> {
        let membership = self.in_cluster()?;
        let authority = tls::fingerprint(&membership.authority)?;
        let members = self.members().await?;
        // This server first: it is the one that is known to answer.
        let mut addresses: Vec<SocketAddr> = members.iter().map(|node| node.cluster).collect();
        addresses.sort_by_key(|address| Some(*address) != self.keys.listen);
        let state = self.state.clone();
        let now = unix_now_s();
        let token = off_the_loop(move || Ok(join_token::create(&state, authority, &addresses, now)?)).await?;
        Ok(NewToken { token: token.to_string(), expires_unix_s: now + LIFE_S })
    }

    /// The token, and where to ask first.
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

    /// Asks the first server that can be reached.
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
                // Whoever answers decides for the cluster; whoever does not is not asked again.
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
        self.in_no_cluster()?;
        let _alone = self.changing.lock().await;
        let (token, addresses) = Self::token_and_addresses(&request.token, request.address.as_deref())?;
        let listen = self.keys.listen().map_err(conflict)?;
        self.demand_empty().await?;
        let engine = self.engine.clone();
        let (keys, data, context) =
            (self.keys.clone(), self.data.clone(), proof_context(&token.id.to_string()));
        let applicant = off_the_loop(move || {
            // A server without etcd may be the fourth and later.
            let etcd = engine.program_version().ok().and_then(|_| free_etcd_ports(listen.ip()).ok());
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
                endpoints: admitted.endpoints.clone(),
                certified_unix_s: unix_now_s(),
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

    /// What a server has of its own would be out of reach once it is a part of the cluster.
    async fn demand_empty(&self) -> Result<(), ControlError> {
        let snapshot = self.control.snapshot().await.map_err(internal)?;
        if let Some(pool) = snapshot.pools.first() {
            return Err(ControlError(conflict(format!(
                "this server has pool '{}', and a server that joins holds nothing: export or delete the pool first, or make this server \
                 the cluster's first (`cenote cluster create`)",
                pool.name
            ))));
        }
        let (state, key) = (self.state.clone(), self.key.clone());
        let count = off_the_loop(move || {
            let users = Accounts::new(&state, &key).users().map_err(internal)?.len();
            Ok(users + state.list::<cluster::shares::Share>()?.len())
        });
        match count.await? {
            0 => Ok(()),
            count => Err(ControlError(conflict(format!(
                "this server has {count} users and shares of its own, which would be lost: delete them first (the cluster's hold on all of \
                 its servers)"
            )))),
        }
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
        let mut checks = vec![super::view::check_name(&ours, &facts)];
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
        let own = membership.facts.node;
        let others: Vec<NodeRecord> = members.iter().filter(|node| node.id != own).cloned().collect();
        let seen = self.look_at(&others, LOOK_TIMEOUT).await;
        let mut checks = preflight::judge_facts(&ours, &seen);
        let targets: Vec<Target> = others.iter().map(target_of).collect();
        let mine = tokio::task::spawn_blocking(move || preflight::probe(&targets)).await;
        checks.extend(preflight::judge_probes(&ours.name, &mine.map_err(internal)?));
        // One after the other: two at once would measure each other.
        for node in &others {
            let targets = members.iter().filter(|other| other.id != node.id).map(target_of).collect();
            let question = Ask::Probe { targets };
            if let Ok((Tell::Probed(probes), _)) =
                ask(membership.asking.clone(), node.cluster, &question, JOIN_TIMEOUT).await
            {
                checks.extend(preflight::judge_probes(&node.name, &probes));
            }
        }
        Ok(checks)
    }

    async fn remove_now(&self, name: String) -> Result<(), ControlError> {
        let membership = self.in_cluster()?;
        let _alone = self.changing.lock().await;
        if membership.facts.name.eq_ignore_ascii_case(&name) {
            return Err(ControlError(conflict(format!(
                "'{name}' is this server: remove it through another one"
            ))));
        }
        let (state, engine) = (self.state.clone(), self.engine.clone());
        off_the_loop(move || {
            let found = nodes::member_named(&state, &name)?.ok_or(Refused::NoSuchNode(name.clone()))?;
            super::view::Holdings::read(&state)?.demand_nothing_on(&found.value).map_err(conflict)?;
            let removed = admission::remove(&state, &name, unix_now_s())?;
            // The server is out, whatever etcd says: the records decide.
            engine.remove_member(&found.value).map_err(|why| {
                conflict(format!(
                    "{} is out of the cluster, but its member of etcd is still there and counts for the majority: {why}; remove it with \
                     etcdctl member remove",
                    removed.name
                ))
            })?;
            Ok(())
        })
        .await
    }

    async fn let_in(
        &self,
        token: String,
        secret: Secret,
        applicant: admission::Applicant,
    ) -> Result<Tell, ControlError> {
        let membership = self.in_cluster()?;
        let _alone = self.changing.lock().await;
        let (state, key, engine) = (self.state.clone(), self.key.clone(), self.engine.clone());
        let authority = membership.authority.clone();
        off_the_loop(move || {
            let version = env!("CARGO_PKG_VERSION");
            let admitted =
                admission::admit(&state, &key, (&token, &secret.0), &applicant, version, unix_now_s())?;
            let members = match &admitted.node.etcd {
                Some(_) => engine.add_member(&admitted.node).map_err(conflict)?,
                None => Vec::new(),
            };
            let endpoints = nodes::members(&state)?.into_iter().filter_map(|node| {
                // A new member does not answer yet.
                let is_new = node.value.id == admitted.node.id;
                node.value.etcd.filter(|_| !is_new).map(|member| member.client_url)
            });
            tracing::info!(node = admitted.node.name, id = admitted.node.id.0, "a server joined");
            let revoked = revocation_list(&admitted.cluster, &key)?;
            Ok(Tell::Admitted(Box::new(Admission {
                cluster: admitted.cluster.name,
                id: admitted.cluster.id,
                certificate: admitted.certificate,
                authority,
                revoked,
                seal_key: Secret(key.to_hex().to_string()),
                endpoints: endpoints.collect(),
                members,
                node: admitted.node,
            })))
        })
        .await
    }

    async fn examine(&self, token: String, secret: Secret) -> Result<Tell, ControlError> {
        let state = self.state.clone();
        off_the_loop(move || {
            join_token::find(&state, &token, &secret.0, unix_now_s())?.map_err(Refused::Token)?;
            Ok(())
        })
        .await?;
        Ok(Tell::Facts(Box::new(self.facts().await?)))
    }

    /// The certificate is that of a server which is still in the cluster.
    async fn demand_member(&self, from: Option<Fingerprint>) -> Result<(), ControlError> {
        let stranger = || {
            ControlError(ApiError::new(ErrorKind::Unauthorized, "only servers of the cluster may ask that"))
        };
        let from = from.ok_or_else(stranger)?.to_string();
        let members = self.members().await?;
        members.iter().any(|node| node.certificate_sha256 == from).then_some(()).ok_or_else(stranger)
    }

    async fn answer_now(
        &self,
        peer: SocketAddr,
        from: Option<Fingerprint>,
        question: Ask,
    ) -> Result<Tell, ControlError> {
        match question {
            Ask::Join { token, secret, applicant } => {
                let name = applicant.name.clone();
                let answer = self.let_in(token, secret, *applicant).await;
                if let Err(ControlError(why)) = &answer {
                    tracing::debug!(%peer, name, %why, "a server was not let in");
                }
                answer
            }
            Ask::Examine { token, secret } => self.examine(token, secret).await,
            Ask::Facts => {
                self.demand_member(from).await?;
                Ok(Tell::Facts(Box::new(self.facts().await?)))
            }
            Ask::Probe { targets } => {
                self.demand_member(from).await?;
                let targets: Vec<Target> = targets.into_iter().take(nodes::NODES_MAX).collect();
                let probes = tokio::task::spawn_blocking(move || preflight::probe(&targets)).await;
                Ok(Tell::Probed(probes.map_err(internal)?))
            }
        }
    }
}

/// Asks one server for its facts.
async fn see(
    tls: Arc<ClientConfig>,
    address: SocketAddr,
    name: String,
    fingerprint: Option<String>,
    question: &Ask,
    within: Duration,
) -> Seen {
    let began = Instant::now();
    let told = match ask(tls, address, question, within).await {
        Ok((Tell::Facts(_), who)) if fingerprint.is_some_and(|known| known != who.to_string()) => {
            Err(format!("{address} shows the certificate of another server"))
        }
        Ok((Tell::Facts(facts), _)) => Ok(*facts),
        Ok(_) => Err(format!("{address} answered something else than was asked")),
        Err(error) => Err(error.to_string()),
    };
    let clock_ms = told.as_ref().map(|facts| clock_ms(facts, began.elapsed())).unwrap_or_default();
    Seen { name, told, clock_ms }
}

/// How far the clock of a server is ahead that answered within `took`.
fn clock_ms(facts: &Facts, took: Duration) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let then = i64::try_from((now.saturating_sub(took / 2)).as_millis()).unwrap_or_default();
    i64::try_from(facts.unix_ms).unwrap_or(i64::MAX).saturating_sub(then)
}

fn target_of(node: &NodeRecord) -> Target {
    Target { name: node.name.clone(), cluster: node.cluster, smb: node.smb, rdma: node.rdma }
}

/// Certificates that are no longer good, in PEM.
fn revocation_list(cluster: &ClusterRecord, key: &SealKey) -> Result<String, ControlError> {
    let authority = Authority::open(cluster, key).map_err(internal)?;
    let number = cluster.revoked.len() as u64 + 1;
    Ok(authority.revocation_list(&cluster.revoked, number, unix_now_s()).map_err(internal)?)
}

/// Takes back a founding that was not finished: this server is in no cluster, whatever its own state says.
fn forget_founding(state: &State) -> Result<(), StateError> {
    let mut transaction = Transaction::default();
    if let Some(Stored { revision, value }) = ClusterRecord::find(state)? {
        transaction = transaction.when(value.key(), revision).delete(value.key());
    }
    for Stored { revision, value } in state.list::<NodeRecord>()? {
        transaction = transaction.when(value.key(), revision).delete(value.key());
    }
    if transaction.changes.is_empty() {
        return Ok(());
    }
    state.commit(transaction).map(|_| ())
}

impl Host for ClusterControl {
    fn answer(
        &self,
        peer: SocketAddr,
        from: Option<Fingerprint>,
        question: Ask,
    ) -> Pin<Box<dyn Future<Output = Tell> + Send + '_>> {
        Box::pin(async move {
            let told = self.answer_now(peer, from, question).await;
            told.unwrap_or_else(|ControlError(error)| Tell::Refused { reason: error.message })
        })
    }
}

fn plain<'a, T>(work: impl Future<Output = Result<T, ControlError>> + Send + 'a) -> Answer<'a, T> {
    Box::pin(async move { work.await.map_err(|ControlError(error)| error) })
}

impl ClusterManagement for ClusterControl {
    fn view(&self) -> Answer<'_, ClusterView> {
        plain(self.view_now(true))
    }
    fn known(&self) -> Answer<'_, ClusterView> {
        plain(self.view_now(false))
    }
    fn is_up(&self, node: NodeId) -> Option<bool> {
        self.heartbeats.is_up(node)
    }
    fn create(&self, request: CreateCluster) -> Answer<'_, ClusterView> {
        plain(self.create_now(request.name))
    }
    fn new_token(&self) -> Answer<'_, NewToken> {
        plain(self.new_token_now())
    }
    fn join(&self, request: JoinCluster) -> Answer<'_, Joined> {
        plain(self.join_now(request))
    }
    fn test(&self, request: TestCluster) -> Answer<'_, Vec<PreflightCheck>> {
        plain(self.test_now(request))
    }
    fn remove_node(&self, name: String) -> Answer<'_, ()> {
        plain(self.remove_now(name))
    }
}
