//! The engine of the records: redb on a single server, etcd in a cluster, and the members of etcd.
//!
//! Promises: the founder's records are in etcd, whole, before any other request to it; a server's own
//! member gets its vote automatically when it has caught up. A failed founding leaves the former single
//! server.

use crate::alone::open_identity;
use crate::failure::{conflict, internal};
use crate::identity::{Identity, IdentityError};
use crate::options::{OtherEtcd, etcd_options, may_start, process_options};
use crate::own_etcd::{OwnAnswer, OwnMember};
use crate::undoing::take_back;
use crate::waiting::{Waits, demand_not_removed, look as look_what_is_waited_for};
use api::cluster::StateEngine;
use api::{ApiError, ErrorKind};
use etcd::members::{EtcdAlarm, MemberHealth, agrees_with_leader, have_majority_without};
use etcd::process::{EtcdProcess, EtcdProcessError, EtcdProcessState, has_data, initial_members, version_of};
use etcd::{CarryError, Moved, carry};
use etcd::{EtcdOptions, EtcdState, TlsIdentity};
use records::nodes::ClusterRecord;
use records::{EngineState, NodeRecord, State, StateError, Typed};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time that a founder waits for its own etcd to answer.
pub const FOUNDING_PATIENCE: Duration = Duration::from_secs(60);
/// Time after which a founder abandons an etcd that keeps exiting, for lack of a port, space or
/// permission.
const ENDING_PATIENCE: Duration = Duration::from_secs(5);
/// etcd has one learner at a time, and changes its members only when they have been connected for five seconds.
const MEMBERS_PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(200);
/// Comparisons of a waiting member with the leader: half a minute.
const LOOKS_MAX: u32 = 150;
/// Between two questions whether a founder's etcd serves.
const FOUNDING_PAUSE: Duration = Duration::from_millis(50);
/// Interval between log entries that etcd does not answer yet.
const REMIND_EVERY: Duration = Duration::from_secs(10);

/// The engine as the cluster side uses it. Everything here may block for seconds.
pub trait Engine: Send + Sync + 'static {
    /// Describes etcd's members by their reports, or why there are none, and its alarms. Sends no requests.
    fn view(&self, members: &Result<Vec<MemberHealth>, String>, alarms: &[EtcdAlarm]) -> StateEngine;

    /// Refuses a cluster of that name that could not be founded, before any change.
    ///
    /// # Errors
    /// [`CarryError::Exists`]: the foreign etcd has one; or it does not answer.
    fn demand_free(&self, cluster: &str) -> Result<(), EngineError>;

    /// The version of the installed etcd.
    ///
    /// # Errors
    /// No etcd is installed, and what to install.
    fn program_version(&self) -> Result<String, String>;

    /// Adds the member of an admitted server. Returns names and peer URLs of all.
    ///
    /// # Errors
    /// Why etcd refused it.
    fn add_member(&self, node: &NodeRecord) -> Result<Vec<(String, String)>, String>;

    /// Removes the member of a server that has left.
    ///
    /// # Errors
    /// Why etcd still has it.
    fn remove_member(&self, node: &NodeRecord) -> Result<(), String>;

    /// Runs this server's member, which [`Engine::add_member`] has added.
    ///
    /// # Errors
    /// Why it does not run.
    fn run_member(&self, identity: &Identity) -> Result<(), String>;

    /// Other addresses and certificates from now on.
    ///
    /// # Errors
    /// Why they cannot be used; then those before are.
    fn reconfigure(&self, endpoints: Vec<String>, tls: TlsIdentity) -> Result<(), String>;

    /// Returns the alarms that etcd itself raised, as far as it answers.
    fn alarms(&self) -> Vec<EtcdAlarm>;

    /// Returns the members by etcd's majority, with each one's own report; none on a single server.
    ///
    /// # Errors
    /// The reason why etcd's majority did not answer.
    fn members(&self) -> Result<Vec<MemberHealth>, String>;

    /// As [`Engine::members`], with a timeout for each member's answer.
    ///
    /// # Errors
    /// As [`Engine::members`].
    fn members_within(&self, _patience: Duration) -> Result<Vec<MemberHealth>, String> {
        self.members()
    }

    /// Returns the state of this server's own member.
    fn own_member(&self) -> OwnMember;

    /// Returns the state of the own member's process, and its answer within a timeout; `None`: no process.
    fn ask_own(&self, _patience: Duration) -> Option<OwnAnswer> {
        None
    }

    /// Stops this server's member, keeping its data, or starts it again.
    ///
    /// # Errors
    /// The reason why it was not started.
    fn pause_member(&self, _pauses: bool) -> Result<(), String> {
        Ok(())
    }

    /// Ends this server's member; the caller removes its data.
    fn end_member(&self);

    /// Removes a member that does nothing for the majority.
    ///
    /// # Errors
    /// The others would have no majority without it, or etcd refused. The member is still there.
    fn drop_member(&self, member: &MemberHealth) -> Result<(), String>;

    /// Moves the records of this single server, which has founded a cluster, to the cluster's etcd; users
    /// of the handle continue with that. Returns the present engine.
    ///
    /// # Errors
    /// Why they did not move; a restart of the server finds out which engine has them.
    fn carry(&self, founder: &Identity) -> Result<Arc<dyn Engine>, EngineError>;
}

/// Where the engine and its parts are.
#[derive(Debug, Clone)]
pub struct EnginePlaces {
    /// The state of the single server that this is, or was.
    pub file: PathBuf,
    /// Path of etcd's program; empty: `etcd` in PATH.
    pub program: PathBuf,
    /// An etcd that somebody else runs; without endpoints: the servers run their own.
    pub other: OtherEtcd,
}

impl EnginePlaces {
    fn program(&self) -> Option<PathBuf> {
        (!self.program.as_os_str().is_empty()).then(|| self.program.clone())
    }

    fn uses_other(&self) -> bool {
        !self.other.endpoints.is_empty()
    }
}

/// Reason why the state cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The records cannot be opened or read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The process of this server's member of etcd cannot be started.
    #[error(transparent)]
    Process(#[from] EtcdProcessError),
    /// The records could not be copied from the file to etcd.
    #[error("the records of this server could not be moved to etcd: {0}")]
    Carry(#[from] CarryError),
    /// The files of the cluster cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The process of etcd keeps ending; the text is the last reason.
    #[error("etcd does not run: {0}")]
    Ends(String),
    /// A cluster is to be founded, and the server is in one.
    #[error("this server is in a cluster already")]
    InCluster,
    /// A recovery was begun and not finished: the records are incomplete.
    #[error(
        "a recovery of the cluster was begun on this server (`cenote cluster recover`) and was interrupted, so its records \
         are incomplete: give the command again to finish it, then start the server"
    )]
    Recovering,
}

/// Why no cluster is founded, in the API's kinds.
pub(crate) fn unfounded(error: EngineError) -> ApiError {
    match error {
        EngineError::Carry(error @ CarryError::Exists(_)) => {
            conflict(format!("{error}; choose another name"))
        }
        EngineError::State(StateError::Unknown(_) | StateError::NotApplied(_)) | EngineError::Ends(_) => {
            ApiError::new(ErrorKind::Unavailable, error.to_string())
        }
        error => internal(error),
    }
}

/// Opens the state of this server or of its cluster. May take a founding back: open the identity again then.
///
/// # Errors
/// [`EngineError`].
pub fn open_state(
    identity: Option<&Identity>,
    places: &EnginePlaces,
) -> Result<(State, Arc<dyn Engine>), EngineError> {
    let Some(identity) = identity else {
        return Ok(single_server(State::open(&places.file)?, places));
    };
    if identity.is_recovering() {
        return Err(EngineError::Recovering);
    }
    let is_founding = identity.facts.founder && identity.is_founding() && places.file.exists();
    let is_unmoved = is_founding && !has_begun_to_move(&places.file)?;
    if is_unmoved {
        // etcd does not start any more if its first start was cut off at certain points.
        identity.remove_etcd()?;
    }
    match open_clusters(identity, places, is_unmoved) {
        Err(error) if is_founding && has_not_moved(&error, &places.file)? => {
            tracing::warn!(
                cluster = identity.facts.cluster,
                %error,
                "the cluster that this server was making cannot be made: this server is a single server again, as before"
            );
            let state = open_own(&places.file)?;
            take_back(identity.directory.parent().unwrap_or(Path::new(".")), &state)?;
            Ok(single_server(state, places))
        }
        opened => opened,
    }
}

fn single_server(state: State, places: &EnginePlaces) -> (State, Arc<dyn Engine>) {
    let engine = SingleServer { state: state.clone(), places: places.clone() };
    (state, Arc::new(engine))
}

/// `is_unmoved`: no record has begun to move to etcd, so that a founder's that does not run is not needed.
fn open_clusters(
    identity: &Identity,
    places: &EnginePlaces,
    is_unmoved: bool,
) -> Result<(State, Arc<dyn Engine>), EngineError> {
    let (etcd, process) = begin_etcd(identity, places)?;
    // Only during the founding: later, a founder whose etcd lost its data would recreate the state from
    // that of the old single server.
    let state = if identity.facts.founder && identity.is_founding() {
        founders_state(&etcd, process.as_ref().filter(|_| is_unmoved), &places.file)?
    } else {
        State::from(etcd.clone())
    };
    let engine = Etcd::of(identity, etcd.clone(), process, places)?;
    // After a power cut all servers start together, and none has the state before most of them run.
    await_state(&state, &etcd, identity);
    // In an etcd that somebody else runs another server may have the name: check before anything is written.
    if ClusterRecord::find(&state)?.is_none_or(|found| found.value.id != identity.facts.id) {
        return Err(CarryError::Exists(identity.facts.cluster.clone()).into());
    }
    identity.end_founding()?;
    Ok((state, Arc::new(engine)))
}

/// Whether records of the single server that the founder was may be in etcd.
fn has_begun_to_move(file: &Path) -> Result<bool, StateError> {
    Ok(open_own(file)?.read::<Moved>(Moved::ID)?.is_some())
}

/// Whether etcd is known not to have the cluster of a founder that could not open it, and not to get it
/// later.
fn has_not_moved(error: &EngineError, file: &Path) -> Result<bool, StateError> {
    match error {
        EngineError::Carry(CarryError::Exists(_) | CarryError::State(_)) => Ok(true),
        EngineError::Carry(CarryError::Done | CarryError::Undecided(_)) => Ok(false),
        _ => Ok(!has_begun_to_move(file)?),
    }
}

/// Opens the state of the single server that the founder was.
fn open_own(file: &Path) -> Result<State, StateError> {
    let until = Instant::now() + FOUNDING_PATIENCE;
    loop {
        match State::open(file) {
            // Threads of the former single server may need a moment to close the file.
            Err(_) if Instant::now() < until => std::thread::sleep(PAUSE),
            opened => return opened,
        }
    }
}

/// Starts this server's member of etcd, if it runs one, and begins to use the cluster's etcd.
fn begin_etcd(
    identity: &Identity,
    places: &EnginePlaces,
) -> Result<(EtcdState, Option<EtcdProcess>), EngineError> {
    let process = identity
        .facts
        .etcd
        .filter(|_| may_start(identity))
        .map(|_| EtcdProcess::start(process_options(identity, places.program())));
    let process = process.transpose()?;
    let options = match places.uses_other() && identity.facts.etcd.is_none() {
        true => places.other.options(&identity.facts.cluster)?,
        false => etcd_options(identity),
    };
    let options = EtcdOptions { writer: Some(identity.facts.node), ..options };
    Ok((EtcdState::connect(options)?, process))
}

/// Waits until the cluster's state answers.
///
/// # Errors
/// The state's, after `patience`.
pub fn await_answer(state: &State, patience: Duration) -> Result<(), StateError> {
    let began = Instant::now();
    while let Err(error) = has_answered(state) {
        if began.elapsed() > patience {
            return Err(error);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn has_answered(state: &State) -> Result<(), StateError> {
    match ClusterRecord::find(state)? {
        Some(_) => Ok(()),
        None => Err(StateError::Open("etcd has no records of this cluster".into())),
    }
}

/// Waits without a limit until the cluster's state answers, since starting servers wait for each other; logs
/// the reason. Remakes a certificate that ends meanwhile, or could not be remade before: etcd takes no other.
fn await_state(state: &State, etcd: &EtcdState, identity: &Identity) {
    let mut reminded = Instant::now();
    while let Err(error) = has_answered(state).and_then(|()| demand_not_removed(state, identity)) {
        if reminded.elapsed() > REMIND_EVERY {
            let waits = look_what_is_waited_for(identity);
            let why = waits.in_words(identity);
            match waits {
                Waits::Removed { .. } => tracing::error!(%error, "{why}"),
                Waits::For(_) => tracing::warn!(%error, "{why}"),
            }
            renew_waiting(etcd, identity);
            reminded = Instant::now();
        }
        std::thread::sleep(PAUSE);
    }
}

/// Makes a server that waits another certificate if the time of the one on its disk is over, and shows that one to etcd.
fn renew_waiting(etcd: &EtcdState, identity: &Identity) {
    let Some(data) = identity.directory.parent() else { return };
    // `open_identity` logs why there is none.
    let Ok(Some(found)) = open_identity(data) else { return };
    if found.facts.certified_unix_s != identity.facts.certified_unix_s
        && let EtcdOptions { endpoints, tls, .. } = etcd_options(&found)
        && let Err(error) = etcd.reconfigure(endpoints, tls)
    {
        tracing::warn!(%error, "etcd cannot be shown the certificate that was made anew");
    }
}

/// The founder's etcd has the records of the single server that it was, from the first start on. `process`: see [`await_formed`].
fn founders_state(
    etcd: &EtcdState,
    process: Option<&EtcdProcess>,
    file: &Path,
) -> Result<State, EngineError> {
    if !await_formed(etcd, process)? {
        let state = open_own(file)?;
        carry(&state, etcd)?;
        return Ok(state);
    }
    Ok(State::from(etcd.clone()))
}

/// Waits until etcd, which is starting or in an election, reports whether it has the cluster. Gives up
/// if its `process` keeps exiting.
fn await_formed(etcd: &EtcdState, process: Option<&EtcdProcess>) -> Result<bool, EngineError> {
    let began = Instant::now();
    loop {
        let error = match etcd.is_formed() {
            Err(error) => error,
            Ok(answer) => return Ok(answer),
        };
        let ended = process.map(EtcdProcess::state).and_then(|state| match state {
            EtcdProcessState::Restarting { why } => Some(why),
            _ => None,
        });
        match ended {
            Some(why) if began.elapsed() > ENDING_PATIENCE => return Err(EngineError::Ends(why)),
            _ if began.elapsed() > FOUNDING_PATIENCE => return Err(error.into()),
            _ => std::thread::sleep(FOUNDING_PAUSE),
        }
    }
}

fn begin_to_seek_vote(
    etcd: &EtcdState,
    process: &EtcdProcess,
    ended: &Arc<AtomicBool>,
) -> std::io::Result<()> {
    let (etcd, url, ended) = (etcd.clone(), process.options().peer_url(), ended.clone());
    let vote = std::thread::Builder::new().name("cluster-vote".into());
    vote.spawn(move || seek_vote(&etcd, &url, &ended)).map(|_| ())
}

/// Requests the own member's vote until it has one: not before its state equals the leader's at one
/// entry. If entries come so fast that this never happens, the request is made after [`LOOKS_MAX`]
/// comparisons.
fn seek_vote(etcd: &EtcdState, peer_url: &str, ended: &AtomicBool) {
    let mut looks = 0;
    while !ended.load(Ordering::Acquire) {
        let members = etcd.members().look().unwrap_or_default();
        let own = members.iter().find(|member| member.member.peer_urls.iter().any(|url| url == peer_url));
        match own.map(|own| (own, agrees_with_leader(&members, own))) {
            Some((own, _)) if !own.member.is_learner => return,
            // The member differs from the leader: its seat has another one made in its place.
            Some((_, Some(false))) => looks = 0,
            Some((_, None)) if looks < LOOKS_MAX => looks += 1,
            // Refused until it has caught up.
            Some((own, _)) if etcd.members().promote(own.member.id).is_ok() => {
                tracing::info!("this server's member of etcd has its vote");
                return;
            }
            _ => {}
        }
        std::thread::sleep(PAUSE);
    }
}

/// A single server's own state.
struct SingleServer {
    state: State,
    places: EnginePlaces,
}

impl Engine for SingleServer {
    fn view(&self, _: &Result<Vec<MemberHealth>, String>, _: &[EtcdAlarm]) -> StateEngine {
        StateEngine {
            name: "redb".into(),
            version: None,
            revision: self.state.revision(),
            members: Vec::new(),
            members_down: Vec::new(),
            quorum: 1,
            notes: Vec::new(),
        }
    }

    fn demand_free(&self, cluster: &str) -> Result<(), EngineError> {
        if !self.places.uses_other() {
            return Ok(());
        }
        // Connects for queries only: others' revisions are theirs to compact.
        let options = EtcdOptions { kept_revisions: None, ..self.places.other.options(cluster)? };
        match EtcdState::connect(options)?.is_formed()? {
            true => Err(CarryError::Exists(cluster.to_owned()).into()),
            false => Ok(()),
        }
    }

    fn program_version(&self) -> Result<String, String> {
        version_of(self.places.program().as_deref()).map_err(|error| error.to_string())
    }

    fn add_member(&self, _: &NodeRecord) -> Result<Vec<(String, String)>, String> {
        Err("this server is in no cluster".into())
    }

    fn remove_member(&self, _: &NodeRecord) -> Result<(), String> {
        Err("this server is in no cluster".into())
    }

    fn run_member(&self, _: &Identity) -> Result<(), String> {
        Err("this server is in no cluster".into())
    }

    fn reconfigure(&self, _: Vec<String>, _: TlsIdentity) -> Result<(), String> {
        Err("this server is in no cluster".into())
    }

    fn alarms(&self) -> Vec<EtcdAlarm> {
        Vec::new()
    }

    fn members(&self) -> Result<Vec<MemberHealth>, String> {
        Ok(Vec::new())
    }

    fn own_member(&self) -> OwnMember {
        OwnMember::Absent
    }

    fn end_member(&self) {}

    fn drop_member(&self, _: &MemberHealth) -> Result<(), String> {
        Err("this server is in no cluster".into())
    }

    fn carry(&self, founder: &Identity) -> Result<Arc<dyn Engine>, EngineError> {
        let (etcd, process) = begin_etcd(founder, &self.places)?;
        if await_formed(&etcd, process.as_ref())? {
            return Err(CarryError::Exists(etcd.cluster()).into());
        }
        let engine = Etcd::of(founder, etcd.clone(), process, &self.places)?;
        carry(&self.state, &etcd)?;
        await_answer(&self.state, FOUNDING_PATIENCE)?;
        founder.end_founding()?;
        Ok(Arc::new(engine))
    }
}

/// A cluster's state, with this server's member if it runs one.
struct Etcd {
    etcd: EtcdState,
    process: Mutex<Option<EtcdProcess>>,
    program: Option<PathBuf>,
    /// This server's.
    name: String,
    ended: Arc<AtomicBool>,
    /// Whether the etcd is foreign.
    uses_other: bool,
}

impl Etcd {
    /// # Errors
    /// [`StateError::Open`]: the thread cannot be started.
    fn of(
        identity: &Identity,
        etcd: EtcdState,
        process: Option<EtcdProcess>,
        places: &EnginePlaces,
    ) -> Result<Self, StateError> {
        let ended = Arc::new(AtomicBool::new(false));
        if let Some(process) = &process {
            begin_to_seek_vote(&etcd, process, &ended)
                .map_err(|error| StateError::Open(format!("no thread for etcd's vote: {error}")))?;
        }
        let (process, program) = (Mutex::new(process), places.program());
        let (name, uses_other) = (identity.facts.name.clone(), places.uses_other());
        Ok(Self { etcd, process, program, name, ended, uses_other })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
    }
}

impl Engine for Etcd {
    fn view(&self, members: &Result<Vec<MemberHealth>, String>, alarms: &[EtcdAlarm]) -> StateEngine {
        let mut notes = Vec::new();
        let members = match members {
            Ok(members) => members.as_slice(),
            Err(error) => {
                notes.push(format!("etcd's members are not known: {error}"));
                &[]
            }
        };
        notes.extend(self.etcd.trouble().map(|trouble| format!("etcd does not answer: {}", trouble.why)));
        for alarm in alarms {
            notes.push(format!("etcd raised an alarm: {alarm:?}"));
        }
        for member in members {
            let trouble = member.trouble();
            notes.extend(trouble.map(|why| format!("the member of etcd of {}: {why}", member.name())));
        }
        let version = {
            let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
            process.as_ref().map(|process| process.version().to_owned())
        };
        let version = version
            .or_else(|| members.iter().find_map(|member| Some(member.status.as_ref().ok()?.version.clone())));
        let voters = || members.iter().filter(|member| !member.member.is_learner);
        let down = voters().filter(|member| member.trouble().is_some());
        StateEngine {
            name: "etcd".into(),
            version,
            revision: self.etcd.revision(),
            quorum: u32::try_from(voters().count() / 2 + 1).unwrap_or(u32::MAX),
            members: voters().map(MemberHealth::name).collect(),
            members_down: down.map(MemberHealth::name).collect(),
            notes,
        }
    }

    fn demand_free(&self, _: &str) -> Result<(), EngineError> {
        Err(EngineError::InCluster)
    }

    fn program_version(&self) -> Result<String, String> {
        version_of(self.program.as_deref()).map_err(|error| error.to_string())
    }

    fn add_member(&self, node: &NodeRecord) -> Result<Vec<(String, String)>, String> {
        let Some(wanted) = &node.etcd else { return Ok(Vec::new()) };
        let until = Instant::now() + MEMBERS_PATIENCE;
        loop {
            let listed = self.etcd.members().list().map_err(|error| error.to_string())?;
            if listed.iter().any(|member| member.peer_urls.contains(&wanted.peer_url)) {
                return Ok(initial_members(&listed, &wanted.name, &wanted.peer_url));
            }
            match self.etcd.members().add_learner(&wanted.peer_url) {
                Ok(_) => {
                    tracing::info!(node = node.name, "a member of etcd was added, without a vote so far")
                }
                Err(_) if Instant::now() < until => std::thread::sleep(PAUSE),
                Err(error) => return Err(format!("{}: etcd did not take a member: {error}", self.name)),
            }
        }
    }

    fn remove_member(&self, node: &NodeRecord) -> Result<(), String> {
        let Some(member) = &node.etcd else { return Ok(()) };
        let until = Instant::now() + MEMBERS_PATIENCE;
        loop {
            let listed = self.etcd.members().list().map_err(|error| error.to_string())?;
            let found = listed.iter().find(|other| other.peer_urls.contains(&member.peer_url));
            let Some(found) = found else { return Ok(()) };
            match self.etcd.members().remove(found.id) {
                Ok(()) => return Ok(()),
                Err(_) if Instant::now() < until => std::thread::sleep(PAUSE),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn run_member(&self, identity: &Identity) -> Result<(), String> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if process.is_some() {
            return Ok(());
        }
        let started = EtcdProcess::start(process_options(identity, self.program.clone()))
            .map_err(|error| error.to_string())?;
        begin_to_seek_vote(&self.etcd, &started, &self.ended).map_err(|error| error.to_string())?;
        *process = Some(started);
        Ok(())
    }

    fn reconfigure(&self, endpoints: Vec<String>, tls: TlsIdentity) -> Result<(), String> {
        if self.uses_other {
            return Ok(());
        }
        self.etcd.reconfigure(endpoints, Some(tls)).map_err(|error| error.to_string())
    }

    fn alarms(&self) -> Vec<EtcdAlarm> {
        self.etcd.members().alarms().unwrap_or_default()
    }

    fn members(&self) -> Result<Vec<MemberHealth>, String> {
        self.etcd.members().look().map_err(|error| error.to_string())
    }

    fn members_within(&self, patience: Duration) -> Result<Vec<MemberHealth>, String> {
        self.etcd.members().look_within(patience).map_err(|error| error.to_string())
    }

    fn ask_own(&self, patience: Duration) -> Option<OwnAnswer> {
        let (process, url) = {
            let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
            let process = process.as_ref()?;
            (process.state(), process.options().client_url())
        };
        Some(OwnAnswer { process, status: self.etcd.members().status_within(&url, patience) })
    }

    fn own_member(&self) -> OwnMember {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        match process.as_ref().map(EtcdProcess::state) {
            None => OwnMember::Absent,
            Some(EtcdProcessState::Removed) => OwnMember::Removed,
            Some(_) => OwnMember::Runs,
        }
    }

    fn pause_member(&self, pauses: bool) -> Result<(), String> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        // A member that has lost its data never runs again under its number.
        process.take_if(|process| !pauses && !has_data(&process.options().directory));
        let done = process.as_mut().map(|process| process.set_paused(pauses)).transpose();
        done.map(|_| ()).map_err(|error| error.to_string())
    }

    fn end_member(&self) {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(process) = process {
            process.stop();
        }
    }

    fn drop_member(&self, member: &MemberHealth) -> Result<(), String> {
        // The present list: the caller's may be old.
        let members = self.members()?;
        let id = member.member.id;
        if !members.iter().any(|other| other.member.id == id) {
            return Ok(());
        }
        if !have_majority_without(&members, id) {
            return Err(format!(
                "the member of etcd of {} does nothing for the majority, and cannot be exchanged before most of the others work",
                member.name()
            ));
        }
        self.etcd.members().remove(id).map_err(|error| error.to_string())
    }

    fn carry(&self, _: &Identity) -> Result<Arc<dyn Engine>, EngineError> {
        Err(EngineError::InCluster)
    }
}
