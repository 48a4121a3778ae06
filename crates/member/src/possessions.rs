//! Data of a joining server that would be lost, or out of reach.
//!
//! Promises: the refusal names it; nothing is deleted here.

use crate::failure::{ControlError, conflict, internal, off_the_loop};
use crate::surroundings::OwnServer;
use records::accounts::Accounts;
use records::api_tokens;
use records::clock::unix_now_s;
use records::seal::SealKey;
use records::shares::Share;
use records::{State, Typed};
use std::sync::Arc;

/// Refuses a server that has a pool, users, shares or tokens of the API.
///
/// # Errors
/// Which it has.
pub async fn demand_nothing(
    server: &dyn OwnServer,
    state: &State,
    key: &Arc<SealKey>,
) -> Result<(), ControlError> {
    if let Some(pool) = server.pools().await?.first() {
        return Err(ControlError(conflict(format!(
            "this server has pool '{pool}', and a server that joins holds nothing: export or delete the pool first, or make this server \
             the cluster's first (`cenote cluster create`)"
        ))));
    }
    let (state, key) = (state.clone(), key.clone());
    off_the_loop(move || {
        let users = Accounts::new(&state, &key).users().map_err(internal)?.len();
        let count = users + state.list::<Share>()?.len();
        if count > 0 {
            return Err(ControlError(conflict(format!(
                "this server has {count} users and shares of its own, which would be lost: delete them first (the cluster's \
                 own users and shares are on all of its servers)"
            ))));
        }
        demand_no_tokens(&state)
    })
    .await
}

/// Refuses tokens that only this server knows: the cluster would refuse their holders.
fn demand_no_tokens(state: &State) -> Result<(), ControlError> {
    let now_unix_s = unix_now_s();
    let good = api_tokens::list(state)?.into_iter().filter(|token| !token.is_expired(now_unix_s));
    let names: Vec<String> = good.map(|token| token.name).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(ControlError(conflict(format!(
        "this server has API tokens of its own ({}), which would admit nobody any more: delete them first (`cenote token delete NAME`), and make \
         new ones once it has joined (the cluster's are good at all of its servers)",
        names.join(", ")
    ))))
}
