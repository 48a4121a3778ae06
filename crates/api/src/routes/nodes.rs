//! Routes of the cluster and its servers.

use super::{Body, Confirm, Json, Name, Query, Reply, audited, only, same};
use crate::access::Routes;
use crate::cluster::{
    ClusterView, CreateCluster, JoinCluster, Joined, NewToken, NodeView, PreflightCheck, TestCluster,
};
use crate::peer::{Peer, Shared};
use axum::extract::State;
use serde::Deserialize;
use utoipa_axum::routes;

/// Shows the cluster: its servers, the engine of its state, and the losses if one more server dies.
#[utoipa::path(get, path = "/cluster", responses((status = OK, description = "The cluster, or that this is a single server", body = ClusterView)))]
async fn cluster(State(m): State<Shared>) -> Reply<ClusterView> {
    Ok(Json(m.cluster().view().await?))
}

/// Makes this server the first of a new cluster; its data, accounts and shares stay.
#[utoipa::path(post, path = "/cluster", request_body = CreateCluster, responses((status = OK, description = "The new cluster", body = ClusterView)))]
async fn create_cluster(
    State(m): State<Shared>,
    peer: Peer,
    Body(body): Body<CreateCluster>,
) -> Reply<ClusterView> {
    let (cluster, name) = (m.cluster(), body.name.clone());
    audited(&m, peer, "cluster create", &name, cluster.create(body)).await
}

/// Makes a token that lets one server join within an hour.
#[utoipa::path(post, path = "/cluster/tokens", responses((status = OK, description = "The token, which is not shown again", body = NewToken)))]
async fn new_token(State(m): State<Shared>, peer: Peer) -> Reply<NewToken> {
    let cluster = m.cluster();
    audited(&m, peer, "cluster token", "", cluster.new_token()).await
}

/// Joins this server, which must hold nothing yet, to a cluster. It starts again as a part of it.
#[utoipa::path(post, path = "/cluster/join", request_body = JoinCluster, responses((status = OK, description = "What this server is in the cluster", body = Joined)))]
async fn join_cluster(State(m): State<Shared>, peer: Peer, Body(body): Body<JoinCluster>) -> Reply<Joined> {
    let (cluster, target) = (m.cluster(), body.address.clone().unwrap_or_default());
    audited(&m, peer, "cluster join", &target, cluster.join(body)).await
}

/// Checks that the servers fit together and reach each other; changes nothing.
#[utoipa::path(post, path = "/cluster/test", request_body = TestCluster, responses((status = OK, description = "The checks and their results", body = Vec<PreflightCheck>)))]
async fn test_cluster(
    State(m): State<Shared>,
    peer: Peer,
    Body(body): Body<TestCluster>,
) -> Reply<Vec<PreflightCheck>> {
    let (cluster, target) = (m.cluster(), body.address.clone().unwrap_or_default());
    audited(&m, peer, "cluster test", &target, cluster.test(body)).await
}

/// Lists the servers of the cluster.
#[utoipa::path(get, path = "/nodes", responses((status = OK, description = "All servers; none if this is a single one", body = Vec<NodeView>)))]
async fn nodes(State(m): State<Shared>) -> Reply<Vec<NodeView>> {
    Ok(Json(m.cluster().view().await?.nodes))
}

/// Shows one server of the cluster.
#[utoipa::path(get, path = "/nodes/{name}", params(("name" = String, Path)), responses((status = OK, description = "The server", body = NodeView)))]
async fn node(State(m): State<Shared>, Name(name): Name<String>) -> Reply<NodeView> {
    let all = m.cluster().view().await?.nodes;
    only(all, "server", &name, |one| same(&one.name, &name))
}

/// Takes a server out of the cluster for good; `confirm` must be its name.
#[utoipa::path(delete, path = "/nodes/{name}", params(("name" = String, Path), ("confirm" = String, Query)), responses((status = OK, description = "Done")))]
async fn remove_node(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Query(confirm): Query<Confirm>,
) -> Reply<()> {
    confirm.check(&m, &peer, "node remove", "server", &name)?;
    let cluster = m.cluster();
    audited(&m, peer, "node remove", &name, cluster.remove_node(name.clone())).await
}

/// `?force=true&confirm=NAME`: volumes that have copies on the server alone do not hold it up.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Force {
    #[serde(default)]
    force: bool,
    confirm: Option<String>,
}

/// Has a server's volumes move to others, one after the other; once it has none it is drained, and may be stopped. Refused if a volume would not be
/// served while the server is away, unless `force` is set and `confirm` is the server's name.
#[utoipa::path(post, path = "/nodes/{name}/drain", params(("name" = String, Path), ("force" = Option<bool>, Query), ("confirm" = Option<String>, Query)), responses((status = OK, description = "It begins; the server's state tells when it is done")))]
async fn drain_node(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Query(Force { force, confirm }): Query<Force>,
) -> Reply<()> {
    let cluster = m.cluster();
    if !force {
        return audited(&m, peer, "node drain", &name, cluster.set_draining(name.clone(), true)).await;
    }
    let action = "node drain --force";
    Confirm { confirm }.check(&m, &peer, action, "the service of volumes that have copies only on", &name)?;
    audited(&m, peer, action, &name, cluster.force_draining(name.clone())).await
}

/// Lets a server have volumes again that was drained, or drains.
#[utoipa::path(post, path = "/nodes/{name}/resume", params(("name" = String, Path)), responses((status = OK, description = "Done")))]
async fn resume_node(State(m): State<Shared>, peer: Peer, Name(name): Name<String>) -> Reply<()> {
    let cluster = m.cluster();
    audited(&m, peer, "node resume", &name, cluster.set_draining(name.clone(), false)).await
}

pub(super) fn router() -> Routes {
    Routes::new()
        .reader(routes!(cluster))
        .administrator(routes!(create_cluster))
        .administrator(routes!(new_token))
        .administrator(routes!(join_cluster))
        // The test connects to addresses of the caller's choice.
        .administrator(routes!(test_cluster))
        .reader(routes!(nodes))
        .reader(routes!(node))
        .administrator(routes!(remove_node))
        .operator(routes!(drain_node))
        .operator(routes!(resume_node))
}
