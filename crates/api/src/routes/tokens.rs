//! Routes of the API's named tokens.

use super::{Body, Json, Name, Reply, audited};
use crate::access::Routes;
use crate::peer::{Peer, Shared};
use crate::requests::{CreateToken, CreatedToken, TokenView};
use axum::extract::State;
use utoipa_axum::routes;

/// Lists the tokens of the API.
#[utoipa::path(get, path = "/tokens", responses((status = OK, description = "All named tokens, expired ones too", body = Vec<TokenView>)))]
async fn tokens(State(m): State<Shared>) -> Reply<Vec<TokenView>> {
    m.tokens().await.map(Json)
}

/// Makes a token for the API. In a cluster it is good at every server.
#[utoipa::path(post, path = "/tokens", request_body = CreateToken, responses((status = OK, description = "The token, which is not shown again", body = CreatedToken)))]
async fn create_token(
    State(m): State<Shared>,
    peer: Peer,
    Body(body): Body<CreateToken>,
) -> Reply<CreatedToken> {
    let target = format!("{} ({})", body.name, body.role);
    audited(&m, peer, "token create", &target, m.create_token(body)).await
}

/// Deletes a token: its holder is refused from then on.
#[utoipa::path(delete, path = "/tokens/{name}", params(("name" = String, Path)), responses((status = OK, description = "Done")))]
async fn delete_token(State(m): State<Shared>, peer: Peer, Name(name): Name<String>) -> Reply<()> {
    audited(&m, peer, "token delete", &name, m.delete_token(name.clone())).await
}

pub(super) fn router() -> Routes {
    Routes::new()
        .administrator(routes!(tokens))
        .administrator(routes!(create_token))
        .administrator(routes!(delete_token))
}
