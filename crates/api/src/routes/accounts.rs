//! Routes of users and groups.

use super::{Body, Confirm, Json, Name, Query, Reply, audited, only, same};
use crate::access::Routes;
use crate::peer::{Peer, Shared};
use crate::requests::{AddGroup, AddUser, GroupView, SetGroup, SetUser, UserView};
use axum::extract::State;
use utoipa_axum::routes;

/// Lists the users.
#[utoipa::path(get, path = "/users", responses((status = OK, description = "All users", body = Vec<UserView>)))]
async fn users(State(m): State<Shared>) -> Reply<Vec<UserView>> {
    m.users().await.map(Json)
}

/// Shows one user.
#[utoipa::path(get, path = "/users/{name}", params(("name" = String, Path)), responses((status = OK, description = "The user", body = UserView)))]
async fn user(State(m): State<Shared>, Name(name): Name<String>) -> Reply<UserView> {
    let all = m.users().await?;
    only(all, "user", &name, |one| same(&one.name, &name))
}

/// Adds a user.
#[utoipa::path(post, path = "/users", request_body = AddUser, responses((status = OK, description = "Done")))]
async fn add_user(State(m): State<Shared>, peer: Peer, Body(body): Body<AddUser>) -> Reply<()> {
    let name = body.name.clone();
    audited(&m, peer, "user add", &name, m.add_user(body)).await
}

/// Changes a user.
#[utoipa::path(patch, path = "/users/{name}", params(("name" = String, Path)), request_body = SetUser, responses((status = OK, description = "Done")))]
async fn set_user(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Body(body): Body<SetUser>,
) -> Reply<()> {
    let (action, target) = match &body.name {
        Some(new_name) => ("user rename", format!("{name} to {new_name}")),
        None => ("user set", name.clone()),
    };
    audited(&m, peer, action, &target, m.set_user(name, body)).await
}

/// Deletes a user for good. `confirm` must be its name.
#[utoipa::path(delete, path = "/users/{name}", params(("name" = String, Path), ("confirm" = String, Query)), responses((status = OK, description = "Done")))]
async fn delete_user(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Query(confirm): Query<Confirm>,
) -> Reply<()> {
    confirm.check(&m, &peer, "user delete", "user", &name)?;
    audited(&m, peer, "user delete", &name, m.delete_user(name.clone())).await
}

/// Lists the groups.
#[utoipa::path(get, path = "/groups", responses((status = OK, description = "All groups", body = Vec<GroupView>)))]
async fn groups(State(m): State<Shared>) -> Reply<Vec<GroupView>> {
    m.groups().await.map(Json)
}

/// Shows one group.
#[utoipa::path(get, path = "/groups/{name}", params(("name" = String, Path)), responses((status = OK, description = "The group", body = GroupView)))]
async fn group(State(m): State<Shared>, Name(name): Name<String>) -> Reply<GroupView> {
    let all = m.groups().await?;
    only(all, "group", &name, |one| same(&one.name, &name))
}

/// Adds a group.
#[utoipa::path(post, path = "/groups", request_body = AddGroup, responses((status = OK, description = "Done")))]
async fn add_group(State(m): State<Shared>, peer: Peer, Body(body): Body<AddGroup>) -> Reply<()> {
    let name = body.name.clone();
    audited(&m, peer, "group add", &name, m.add_group(body)).await
}

/// Changes the members of a group.
#[utoipa::path(patch, path = "/groups/{name}", params(("name" = String, Path)), request_body = SetGroup, responses((status = OK, description = "Done")))]
async fn set_group(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Body(body): Body<SetGroup>,
) -> Reply<()> {
    audited(&m, peer, "group set", &name, m.set_group(name.clone(), body)).await
}

/// Deletes a group, and its grants. `confirm` must be its name.
#[utoipa::path(delete, path = "/groups/{name}", params(("name" = String, Path), ("confirm" = String, Query)), responses((status = OK, description = "Done")))]
async fn delete_group(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Query(confirm): Query<Confirm>,
) -> Reply<()> {
    confirm.check(&m, &peer, "group delete", "group", &name)?;
    audited(&m, peer, "group delete", &name, m.delete_group(name.clone())).await
}

/// Reads accounts, groups, shares and tokens anew from the cluster's records. In force here once it is answered,
/// for all who are connected; servers have one another do so after each change.
#[utoipa::path(get, path = "/accounts/in-force", responses((status = OK, description = "In force as recorded")))]
async fn follow_now(State(m): State<Shared>) -> Reply<()> {
    m.follow_now().await.map(Json)
}

pub(super) fn router() -> Routes {
    Routes::new()
        .reader(routes!(users))
        .administrator(routes!(add_user))
        .reader(routes!(user))
        .administrator(routes!(set_user, delete_user))
        .reader(routes!(groups))
        .administrator(routes!(add_group))
        .reader(routes!(group))
        .administrator(routes!(set_group, delete_group))
        .administrator(routes!(follow_now))
}
