//! What other servers ask of this one on the cluster's port, and who of them may.
//!
//! Promises: a stranger may only join and look whether it could, by a token; a server that was removed is a stranger.

use crate::control::{ClusterControl, revocation_list};
use crate::failure::{ControlError, conflict, internal, off_the_loop};
use crate::listener::Host;
use crate::preflight;
use api::cluster::{Carried, Errand};
use api::{ApiError, ErrorKind};
use cluster::admission::{self, Refused};
use cluster::authority::Fingerprint;
use cluster::clock::unix_now_s;
use cluster::join_token;
use cluster::nodes;
use cluster::wire::{self, Admission, Ask, Secret, Target, Tell};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

impl ClusterControl {
    async fn let_in(
        &self,
        token: String,
        secret: Secret,
        applicant: admission::Applicant,
    ) -> Result<Tell, ControlError> {
        let membership = self.in_cluster()?;
        let _alone = self.changing.lock().await;
        let (state, key, engine) = (self.state.clone(), self.key.clone(), self.engine.clone());
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

    /// The certificate is that of a server which is still in the cluster.
    async fn demand_member(&self, from: Option<Fingerprint>) -> Result<(), ControlError> {
        let stranger = || {
            ControlError(ApiError::new(ErrorKind::Unauthorized, "only servers of the cluster may ask that"))
        };
        let from = from.ok_or_else(stranger)?.to_string();
        let members = self.members().await?;
        members.iter().any(|node| node.has_certificate(&from)).then_some(()).ok_or_else(stranger)
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
            Ask::Errand(wire::Errand { method, path, body }) => {
                self.demand_member(from).await?;
                let Some(runner) = self.runner.get() else {
                    return Err(ControlError(conflict("this server has no API")));
                };
                let errand = Errand { method, path, body: body.0.clone() };
                let Carried { status, body } = runner.carry_out(peer, errand).await;
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
