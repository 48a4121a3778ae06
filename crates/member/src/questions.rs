//! Requests of other servers on the cluster's port, and who may send them.
//!
//! Promises: a stranger may only join, or check whether it could, by a token; a removed server is a
//! stranger, and gets the answer that it was removed. Admissions, refusals and wrong tokens are in the
//! audit log and in the log, with the address.

use crate::admission::{self, Refused};
use crate::control::{ClusterControl, revocation_list};
use crate::failure::{ControlError, conflict, internal, off_the_loop};
use crate::join_token::{self, TokenRefused};
use crate::listener::Host;
use crate::preflight;
use crate::wire::{self, Admission, Ask, Secret, Target, Tell};
use api::audit::Outcome;
use api::cluster::{Carried, Errand};
use api::{ApiError, Caller, ErrorKind};
use records::clock::unix_now_s;
use records::nodes;
use records::{ClusterRecord, NodeRecord, Typed};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::{Duration, Instant};
use trust::authority::Fingerprint;
use types::PeerHost;

/// Wait of a question that changes nothing for the records: the caller waits for a second in all.
const RECORDS_PATIENCE: Duration = Duration::from_millis(300);

/// Length of a stranger's name in the audit log.
const TARGET_CHARS_MAX: usize = 64;

impl ClusterControl {
    async fn let_in(
        &self,
        token: String,
        secret: Secret,
        applicant: admission::Applicant,
    ) -> Result<Tell, ControlError> {
        let membership = self.in_cluster()?;
        let _alone = self.changing.lock().await;
        let (state, key, engine) = (self.state.clone(), self.key.clone(), self.engine());
        let authority = membership.authority();
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

    /// Returns the server of that name as last read, since the records may answer late when a server has
    /// just died.
    pub(crate) async fn node_named(&self, name: &str) -> Result<NodeRecord, ControlError> {
        let is_it = |node: &NodeRecord| node.name.eq_ignore_ascii_case(name);
        if let Some(node) = self.last_read().and_then(|read| read.members.into_iter().find(is_it)) {
            return Ok(node);
        }
        let found = self.members().await?.into_iter().find(is_it);
        found.ok_or_else(|| Refused::NoSuchNode(name.to_owned()).into())
    }

    /// As [`Self::demand_member`], for questions that change nothing: if the records do not answer soon,
    /// those read last count. So a server reports its state while etcd elects a leader.
    async fn demand_asker(&self, from: Option<Fingerprint>) -> Result<NodeRecord, ControlError> {
        if let Ok(told) = tokio::time::timeout(RECORDS_PATIENCE, self.demand_member(from)).await {
            match told {
                Err(ControlError(error)) if error.kind == ErrorKind::Unavailable => {}
                told => return told,
            }
        }
        let shown = from.map(|from| from.to_string()).unwrap_or_default();
        let known = self
            .last_read()
            .and_then(|read| read.members.into_iter().find(|node| node.has_certificate(&shown)));
        let why = "the cluster's records do not answer, and no server is known by this certificate";
        known.ok_or_else(|| ControlError(ApiError::new(ErrorKind::Unauthorized, why)))
    }

    /// Returns the server of the cluster that has this certificate, if one has.
    async fn member_of(&self, from: Option<Fingerprint>) -> Result<Option<NodeRecord>, ControlError> {
        let Some(from) = from else { return Ok(None) };
        let from = from.to_string();
        Ok(self.members().await?.into_iter().find(|node| node.has_certificate(&from)))
    }

    /// The certificate is that of a server which is still in the cluster.
    async fn demand_member(&self, from: Option<Fingerprint>) -> Result<NodeRecord, ControlError> {
        let stranger = || {
            ControlError(ApiError::new(ErrorKind::Unauthorized, "only servers of the cluster may ask that"))
        };
        self.member_of(from).await?.ok_or_else(stranger)
    }

    /// Reports to a server of the cluster, or a former one, whether it still is one, and if not, when it
    /// was removed.
    async fn standing(&self, from: Option<Fingerprint>) -> Result<Tell, ControlError> {
        let stranger = || {
            let why = "only servers that are, or were, of the cluster may ask that";
            ControlError(ApiError::new(ErrorKind::Unauthorized, why))
        };
        let from = from.ok_or_else(stranger)?.to_string();
        let state = self.state.clone();
        let found = off_the_loop(move || {
            let nodes = state.list::<NodeRecord>()?.into_iter().map(|node| node.value);
            let Some(node) = nodes.into_iter().find(|node| node.has_certificate(&from)) else {
                return Ok(None);
            };
            let cluster = ClusterRecord::find(&state)?;
            let revoked = cluster.and_then(|cluster| cluster.value.revoked_unix_s(&node.certificate_serial));
            let is_member = node.is_member();
            Ok(Some(Tell::Standing { is_member, removed_unix_s: revoked.filter(|_| !is_member) }))
        });
        found.await?.ok_or_else(stranger)
    }

    /// Does work for a stranger with a token, unless its host has shown too many wrong ones, and logs the
    /// outcome.
    async fn by_token(
        &self,
        peer: SocketAddr,
        (action, target): (&str, &str),
        (token, secret): (String, Secret),
        work: impl Future<Output = Result<Tell, ControlError>>,
    ) -> Result<Tell, ControlError> {
        let host = PeerHost::from(peer.ip());
        if !self.guesses.may_ask(host, Instant::now()) {
            let why = "too many tokens from this address were none: try again in a minute";
            return Err(ControlError(ApiError::new(ErrorKind::Conflict, why)));
        }
        let state = self.state.clone();
        let found = off_the_loop(move || Ok(join_token::find(&state, &token, &secret.0, unix_now_s())?));
        let answer = match found.await? {
            Err(unknown @ TokenRefused::Unknown) => {
                self.guesses.note_wrong(host, Instant::now());
                Err(Refused::Token(unknown).into())
            }
            _ => work.await,
        };
        let refused = answer.as_ref().err().map(|ControlError(error)| error.message.as_str());
        if refused.is_none() || self.guesses.may_tell(Instant::now()) {
            let shown: String = target.escape_debug().take(TARGET_CHARS_MAX).collect();
            if let Some(why) = refused {
                tracing::warn!(%peer, action, target = shown, why, "what came with a token was refused");
            }
            if let Some(runner) = self.runner.get() {
                let outcome = if refused.is_some() { Outcome::Refused } else { Outcome::Done };
                runner.audit(peer, action, &shown, outcome, refused.unwrap_or_default());
            }
        }
        answer
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
                let shown = (token.clone(), secret.clone());
                let work = self.let_in(token, secret, *applicant);
                self.by_token(peer, ("cluster join", &name), shown, work).await
            }
            Ask::Examine { token, secret } => {
                let shown = (token.clone(), secret.clone());
                self.by_token(peer, ("cluster test", ""), shown, self.examine(token, secret)).await
            }
            Ask::Standing => self.standing(from).await,
            Ask::Facts => {
                self.demand_member(from).await?;
                Ok(Tell::Facts(Box::new(self.facts().await?)))
            }
            Ask::Errand(wire::Errand { method, path, body, by }) => {
                let asker = match method.as_str() {
                    "GET" => self.demand_asker(from).await?,
                    _ => self.demand_member(from).await?,
                };
                // A witness votes, and administers nothing.
                if asker.is_witness {
                    let why = "a witness hands no requests on";
                    return Err(ControlError(ApiError::new(ErrorKind::Unauthorized, why)));
                }
                let Some(runner) = self.runner.get() else {
                    return Err(ControlError(conflict("this server has no API")));
                };
                let named = by.map(|by| Caller::of_token(&by.token, by.role));
                let caller = named.unwrap_or_else(Caller::of_token_file);
                let errand = Errand { method, path, body: body.0.clone() };
                let Carried { status, body } = runner.carry_out(peer, errand, caller).await;
                Ok(Tell::Done { status, body: Secret(body) })
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

impl Host for ClusterControl {
    fn is_member(&self, from: Fingerprint) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async move {
            // Membership gives a place only: each question is checked when it comes.
            let shown = from.to_string();
            let is_it = |node: &NodeRecord| node.has_certificate(&shown);
            self.last_read().is_some_and(|read| read.members.iter().any(is_it))
                || matches!(self.member_of(Some(from)).await, Ok(Some(_)))
        })
    }

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
