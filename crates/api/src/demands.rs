//! The role that an operation demands, in the API's document.

use records::api_tokens::Role;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::SecurityRequirement;

/// The security scheme of the document.
pub(crate) const SCHEME: &str = "token";

/// The role that an operation demands, in the document's form.
pub(crate) fn demand_of(role: Role) -> SecurityRequirement {
    SecurityRequirement::new(SCHEME, [role.name()])
}

/// The operations of a path, and whether each changes something.
pub(crate) fn operations(item: &mut PathItem) -> impl Iterator<Item = (bool, &mut Operation)> {
    let PathItem { get, post, put, patch, delete, .. } = item;
    let each = [(false, get), (true, post), (true, put), (true, patch), (true, delete)];
    each.into_iter().filter_map(|(changes, operation)| Some((changes, operation.as_mut()?)))
}
