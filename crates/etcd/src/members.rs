//! etcd's members: their list, their leader, their sizes, and their faults.
//!
//! Owns the calls that change the members, one at a time as etcd wants it: a member is added as a learner, which has no vote until it
//! has all the data and is promoted. Promises: bounded time for each call.

use super::options::reason;
use super::protocol as wire;
use super::protocol::cluster_client::ClusterClient;
use super::protocol::maintenance_client::MaintenanceClient;
use super::requests::text_of;
use super::{EtcdState, Shared};
use records::StateError;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Response, Status};

/// Changing members waits for etcd's own checks of connections.
const PATIENCE: Duration = Duration::from_secs(10);
/// For which a question of all members may take: an election. A member that is stopped has a kernel that keeps its connections, and says nothing;
/// the next question goes to another one.
const READ_PATIENCE: Duration = Duration::from_secs(2);
/// For which a member may take to say how it is: several heartbeats and an election on a loaded machine.
const LOOK_PATIENCE: Duration = Duration::from_millis(1500);

/// How often two members must differ before that is believed, and the pause between: fields of one
/// report are not of one moment.
const DIFFERENCES: u32 = 3;
const DIFFERENCE_PAUSE: Duration = Duration::from_millis(50);

/// The first versions of a line that have the fix of etcd #17780, revisions that count down after a crash in a compaction.
const FIXED: [(u32, u32, u32); 2] = [(3, 4, 32), (3, 5, 14)];

/// A member of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdMember {
    pub id: u64,
    /// Empty until it was started for the first time.
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
    /// A learner has no vote yet.
    pub is_learner: bool,
}

/// A member's report of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdStatus {
    pub id: u64,
    pub version: String,
    /// The leader's id; `None`: it knows none.
    pub leader: Option<u64>,
    /// etcd's own revision, without the base of the cluster's.
    pub revision: u64,
    /// The last entry of the log that is in its database.
    pub applied: u64,
    /// The database's file, and how much of it is in use.
    pub file_bytes: u64,
    pub used_bytes: u64,
    pub is_learner: bool,
    pub errors: Vec<String>,
}

impl EtcdStatus {
    pub fn is_leader(&self) -> bool {
        self.leader == Some(self.id)
    }
}

/// A member as the majority has it, and as it says of itself when it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberHealth {
    pub member: EtcdMember,
    /// Or why it did not say.
    pub status: Result<EtcdStatus, String>,
    /// The leader's revision, if this member made another one of the same entries of the log: its data are not the others'.
    pub differs_from: Option<u64>,
}

impl MemberHealth {
    /// The member's name, or its peer URLs if it was never started.
    pub fn name(&self) -> String {
        match self.member.name.as_str() {
            "" => self.member.peer_urls.join(", "),
            name => name.to_owned(),
        }
    }

    /// Whether a process has ever run the member: such a member may have acknowledged commits that it has
    /// to keep.
    pub fn has_run(&self) -> bool {
        !self.member.name.is_empty() || !self.member.is_learner
    }

    /// Says why it does nothing for the majority; `None`: it votes.
    pub fn trouble(&self) -> Option<String> {
        match &self.status {
            Err(why) => Some(format!("it does not answer: {why}")),
            Ok(status) if status.id != self.member.id => {
                Some("it runs with the data of a member that was removed".into())
            }
            Ok(status) if self.differs_from.is_some() => Some(format!(
                "its data differ from those of the leader: of the same entries it made revision {}, and the leader {}",
                status.revision,
                self.differs_from.unwrap_or_default()
            )),
            Ok(_) if self.member.is_learner => Some("it has no vote yet".into()),
            Ok(status) if status.leader.is_none() => Some("it knows no leader".into()),
            Ok(_) => None,
        }
    }
}

/// Whether the members without `id` have a majority of their own that works, so that etcd continues if
/// it is removed.
pub fn have_majority_without(members: &[MemberHealth], id: u64) -> bool {
    let others = || members.iter().filter(|other| other.member.id != id && !other.member.is_learner);
    let working = others().filter(|other| other.trouble().is_none()).count();
    working > others().count() / 2
}

/// Whether a member of these has made the same of the log as the leader; `None`: one has more entries than the other, or does not answer.
pub fn agrees_with_leader(members: &[MemberHealth], member: &MemberHealth) -> Option<bool> {
    if member.differs_from.is_some() {
        return Some(false);
    }
    let own = member.status.as_ref().ok()?;
    let mut others = members.iter().filter_map(|other| other.status.as_ref().ok());
    // A difference seen once and not again came from answers of different moments.
    agree(own, others.find(|other| other.is_leader())?).filter(|agrees| *agrees)
}

/// Whether two members have made the same of the same entries of the log; `None`: one has more entries than the other, which says nothing.
fn agree(one: &EtcdStatus, other: &EtcdStatus) -> Option<bool> {
    (one.applied == other.applied).then_some(one.revision == other.revision)
}

/// The leader's revision if the member's data differs from it in every one of a few checks. One check
/// can differ without cause, when an entry is applied between two fields of one answer.
async fn differs(shared: &Arc<Shared>, of: &MemberHealth, leader: &MemberHealth) -> Option<u64> {
    let (mut one, mut other) = (of.status.clone(), leader.status.clone());
    let mut other_revision = None;
    for _ in 0..DIFFERENCES {
        let (Ok(own), Ok(leaders)) = (&one, &other) else { return None };
        if agree(own, leaders) != Some(false) {
            return None;
        }
        other_revision = Some(leaders.revision);
        tokio::time::sleep(DIFFERENCE_PAUSE).await;
        let url = |of: &MemberHealth| of.member.client_urls.first().cloned();
        one = status_at(shared, url(of).as_deref(), LOOK_PATIENCE).await;
        other = status_at(shared, url(leader).as_deref(), LOOK_PATIENCE).await;
    }
    other_revision
}

/// Something that etcd itself raised an alarm about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcdAlarm {
    /// The database reached its quota: etcd takes no more commits.
    NoSpace { member: u64 },
    /// A member's data differ from the others'.
    Corrupt { member: u64 },
}

/// Whether a version lacks the fix of etcd #17780. A version that does not parse is taken to lack it.
pub fn lacks_revision_fix(version: &str) -> bool {
    let number =
        |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().ok();
    let mut parts = version.trim_start_matches('v').splitn(3, '.').map(number);
    let (Some(Some(major)), Some(Some(minor)), Some(Some(patch))) =
        (parts.next(), parts.next(), parts.next())
    else {
        return true;
    };
    match FIXED.iter().find(|fixed| (fixed.0, fixed.1) == (major, minor)) {
        Some(fixed) => patch < fixed.2,
        None => (major, minor) < (FIXED[1].0, FIXED[1].1),
    }
}

/// Calls about members; they block.
pub struct Members<'a> {
    state: &'a EtcdState,
}

impl EtcdState {
    pub fn members(&self) -> Members<'_> {
        Members { state: self }
    }
}

impl Members<'_> {
    /// # Errors
    /// As all calls here: [`StateError::Unknown`] if etcd does not answer or refuses, with its words.
    pub fn list(&self) -> Result<Vec<EtcdMember>, StateError> {
        let answered = self.call(READ_PATIENCE, None, |channel| async {
            let request = wire::MemberListRequest { linearizable: true };
            ClusterClient::new(channel).member_list(request).await
        });
        Ok(answered?.members.into_iter().map(member).collect())
    }

    /// Adds a member that is not running yet, as a learner.
    pub fn add_learner(&self, peer_url: &str) -> Result<EtcdMember, StateError> {
        let request = wire::MemberAddRequest { peer_ur_ls: vec![peer_url.to_owned()], is_learner: true };
        let answered = self.cluster(move |mut client| async move { client.member_add(request).await })?;
        answered.member.map(member).ok_or_else(|| StateError::Unknown("etcd named no member".into()))
    }

    /// Gives a learner its vote; refused until it has caught up.
    pub fn promote(&self, id: u64) -> Result<(), StateError> {
        let request = wire::MemberPromoteRequest { id };
        self.cluster(move |mut client| async move { client.member_promote(request).await }).map(|_| ())
    }

    /// Removes a member, running or not.
    pub fn remove(&self, id: u64) -> Result<(), StateError> {
        let request = wire::MemberRemoveRequest { id };
        self.cluster(move |mut client| async move { client.member_remove(request).await }).map(|_| ())
    }

    /// Asks one member, by its client's URL, of itself.
    pub fn status(&self, client_url: &str) -> Result<EtcdStatus, StateError> {
        let request = wire::StatusRequest {};
        let status = self
            .maintenance(Some(client_url), move |mut client| async move { client.status(request).await })?;
        Ok(status_of(status))
    }

    /// As [`Members::status`], with a timeout.
    ///
    /// # Errors
    /// Why there was no answer.
    pub fn status_within(&self, client_url: &str, patience: Duration) -> Result<EtcdStatus, String> {
        let (shared, url) = (self.state.shared.clone(), client_url.to_owned());
        let asked = async move { Ok(status_at(&shared, Some(&url), patience).await) };
        self.state.wait_for(asked).map_err(|error| error.to_string())?
    }

    /// Lists the members and asks each of itself, all at once and in bounded time.
    pub fn look(&self) -> Result<Vec<MemberHealth>, StateError> {
        self.look_within(LOOK_PATIENCE)
    }

    /// As [`Members::look`], with a timeout for each member.
    pub fn look_within(&self, patience: Duration) -> Result<Vec<MemberHealth>, StateError> {
        let listed = self.list()?;
        let shared = self.state.shared.clone();
        self.state.wait_for(async move {
            let mut asked = Vec::new();
            for member in listed {
                let (shared, url) = (shared.clone(), member.client_urls.first().cloned());
                let status = async move { status_at(&shared, url.as_deref(), patience).await };
                asked.push((member, tokio::spawn(status)));
            }
            let mut found = Vec::new();
            for (member, status) in asked {
                let status = status.await.unwrap_or_else(|error| Err(error.to_string()));
                found.push(MemberHealth { member, status, differs_from: None });
            }
            found.sort_by_key(MemberHealth::name);
            let leads = |found: &&MemberHealth| found.status.as_ref().is_ok_and(EtcdStatus::is_leader);
            let Some(leader) = found.iter().find(leads).cloned() else { return Ok(found) };
            for of in &mut found {
                of.differs_from = differs(&shared, of, &leader).await;
            }
            Ok(found)
        })
    }

    /// Alarms that are raised.
    pub fn alarms(&self) -> Result<Vec<EtcdAlarm>, StateError> {
        let request = wire::AlarmRequest {
            action: wire::alarm_request::AlarmAction::Get.into(),
            member_id: 0,
            alarm: wire::AlarmType::None.into(),
        };
        let answered = self.call(READ_PATIENCE, None, move |channel| async move {
            MaintenanceClient::new(channel).alarm(request).await
        })?;
        Ok(answered.alarms.iter().filter_map(alarm).collect())
    }

    /// Hands leadership to another member; only the leader itself, at `leader_url`, takes this.
    pub fn move_leader(&self, leader_url: &str, to: u64) -> Result<(), StateError> {
        let request = wire::MoveLeaderRequest { target_id: to };
        self.maintenance(Some(leader_url), move |mut client| async move { client.move_leader(request).await })
            .map(|_| ())
    }

    /// Gives unused space in the file of one member's database back; the member answers nothing meanwhile.
    pub fn defragment(&self, client_url: &str) -> Result<(), StateError> {
        let request = wire::DefragmentRequest {};
        self.maintenance(Some(client_url), move |mut client| async move { client.defragment(request).await })
            .map(|_| ())
    }

    fn cluster<T, F>(
        &self,
        call: impl FnOnce(ClusterClient<Channel>) -> F + Send + 'static,
    ) -> Result<T, StateError>
    where
        T: Send + 'static,
        F: Future<Output = Result<Response<T>, Status>> + Send,
    {
        self.call(PATIENCE, None, |channel| call(ClusterClient::new(channel)))
    }

    fn maintenance<T, F>(
        &self,
        url: Option<&str>,
        call: impl FnOnce(MaintenanceClient<Channel>) -> F + Send + 'static,
    ) -> Result<T, StateError>
    where
        T: Send + 'static,
        F: Future<Output = Result<Response<T>, Status>> + Send,
    {
        self.call(PATIENCE, url, |channel| call(MaintenanceClient::new(channel)))
    }

    /// Calls the member at `url`, or the one that is in use. If that one does not answer in time the next call goes to another one.
    fn call<T, F>(
        &self,
        patience: Duration,
        url: Option<&str>,
        call: impl FnOnce(Channel) -> F + Send + 'static,
    ) -> Result<T, StateError>
    where
        T: Send + 'static,
        F: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let (shared, url) = (self.state.shared.clone(), url.map(str::to_owned));
        self.state.wait_for(async move {
            let mut used = None;
            let work = async {
                let channel = match &url {
                    Some(url) => channel_at(&shared, url).await?,
                    None => {
                        let connection = shared.channels.connection().await.map_err(StateError::Unknown)?;
                        used.insert(connection).channel.clone()
                    }
                };
                let answered = call(channel).await;
                answered
                    .map(Response::into_inner)
                    .map_err(|status| StateError::Unknown(format!("etcd: {}", text_of(&status))))
            };
            match tokio::time::timeout(patience, work).await {
                Ok(answered) => answered,
                Err(_) => {
                    used.iter().for_each(|connection| shared.channels.failed(connection));
                    Err(StateError::Unknown("etcd: no answer in time".into()))
                }
            }
        })
    }
}

async fn channel_at(shared: &Arc<Shared>, url: &str) -> Result<Channel, StateError> {
    let endpoint = shared.options().endpoint(url)?;
    endpoint.connect().await.map_err(|error| StateError::Unknown(format!("{url}: {}", reason(&error))))
}

/// The report of the member at `url`, or the reason why there is none.
async fn status_at(
    shared: &Arc<Shared>,
    url: Option<&str>,
    patience: Duration,
) -> Result<EtcdStatus, String> {
    let Some(url) = url else { return Err("it was never started".into()) };
    let work = async {
        let channel = channel_at(shared, url).await.map_err(|error| error.to_string())?;
        let answered = MaintenanceClient::new(channel).status(wire::StatusRequest {}).await;
        answered.map(|status| status_of(status.into_inner())).map_err(|status| text_of(&status))
    };
    let late = || Err(format!("{url} gave no answer within {} ms", patience.as_millis()));
    tokio::time::timeout(patience, work).await.unwrap_or_else(|_| late())
}

fn status_of(status: wire::StatusResponse) -> EtcdStatus {
    let header = status.header.unwrap_or_default();
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    EtcdStatus {
        id: header.member_id,
        version: status.version,
        leader: (status.leader != 0).then_some(status.leader),
        revision: unsigned(header.revision),
        applied: status.raft_applied_index,
        file_bytes: unsigned(status.db_size),
        used_bytes: unsigned(status.db_size_in_use),
        is_learner: status.is_learner,
        errors: status.errors,
    }
}

fn member(member: wire::Member) -> EtcdMember {
    EtcdMember {
        id: member.id,
        name: member.name,
        peer_urls: member.peer_ur_ls,
        client_urls: member.client_ur_ls,
        is_learner: member.is_learner,
    }
}

fn alarm(raised: &wire::AlarmMember) -> Option<EtcdAlarm> {
    match raised.alarm() {
        wire::AlarmType::None => None,
        wire::AlarmType::Nospace => Some(EtcdAlarm::NoSpace { member: raised.member_id }),
        wire::AlarmType::Corrupt => Some(EtcdAlarm::Corrupt { member: raised.member_id }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(id: u64, is_learner: bool, works: bool) -> MemberHealth {
        let member = EtcdMember {
            id,
            name: format!("node-{id}"),
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner,
        };
        let status = EtcdStatus {
            id,
            version: "3.4.23".into(),
            leader: Some(1),
            revision: 1,
            applied: 1,
            file_bytes: 0,
            used_bytes: 0,
            is_learner,
            errors: Vec::new(),
        };
        let status = if works { Ok(status) } else { Err("silence".into()) };
        MemberHealth { member, status, differs_from: None }
    }

    #[test]
    fn a_member_goes_only_if_the_others_have_a_majority_that_works() {
        let three = [health(1, false, true), health(2, false, true), health(3, false, false)];
        assert!(have_majority_without(&three, 3));
        assert!(!have_majority_without(&three, 2), "one of two is no majority");
        assert!(!have_majority_without(&three[..1], 1), "the last one stays");
        let with_learner = [health(1, false, true), health(2, false, false), health(3, true, true)];
        assert!(have_majority_without(&with_learner, 2));
        assert!(!have_majority_without(&with_learner, 1), "a learner has no vote");
    }

    #[test]
    fn a_member_works_only_if_it_says_so_itself() {
        assert_eq!(health(1, false, true).trouble(), None);
        assert!(health(1, false, false).trouble().unwrap().contains("does not answer"));
        assert!(health(1, true, true).trouble().unwrap().contains("no vote"));
        let mut other = health(1, false, true);
        other.member.id = 7;
        assert!(other.trouble().unwrap().contains("was removed"));
        let differing = MemberHealth { differs_from: Some(7), ..health(1, false, true) };
        assert!(differing.trouble().unwrap().contains("differ"));
        let status = |applied, revision| {
            let status = health(1, false, true).status.unwrap();
            EtcdStatus { applied, revision, ..status }
        };
        assert_eq!(agree(&status(7, 3), &status(7, 3)), Some(true));
        assert_eq!(agree(&status(7, 3), &status(7, 4)), Some(false));
        assert_eq!(agree(&status(8, 3), &status(7, 4)), None, "it has more entries");
    }
}
