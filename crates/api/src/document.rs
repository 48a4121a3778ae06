//! The OpenAPI document: the routes' own descriptions, and everything that holds for all routes.
//!
//! Promises: declares every answer of the server, with one schema for errors, and also the schemas of
//! the command line's own output.

use crate::demands::{SCHEME, demand_of, operations};
use crate::management::{ApiError, ErrorKind};
use crate::peer::Shared;
use crate::planned::Plan;
use crate::printed::{
    AddedUser, DashboardLink, DiskInspection, Message, PerformanceSample, RdmaCounterSets, RdmaPing,
    RemoteFile,
};
use crate::routes::router;
use axum::Router;
use records::api_tokens::Role;
use utoipa::ToSchema;
use utoipa::openapi::path::{HttpMethod, Operation, OperationBuilder, Parameter, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, License, OpenApi, Ref, RefOr, Response, ResponseBuilder,
};

/// License of the code, and of this document.
const LICENSE: &str = env!("CARGO_PKG_LICENSE");

/// The first word of a path, the tag of the paths below it, and the tag's description.
const TAGS: [(&str, &str, &str); 16] = [
    ("disks", "disks", "Physical disks"),
    ("disk-erasures", "disks", ""),
    ("pools", "pools", "Pools of disks"),
    ("pool-imports", "pools", ""),
    ("volumes", "volumes", "Volumes: virtual disks with files on them"),
    ("shares", "shares", "Shares, and the access lists of their files"),
    ("users", "accounts", "Users and groups, and tokens of this API"),
    ("groups", "accounts", ""),
    ("tokens", "accounts", ""),
    ("sessions", "clients", "Sessions and open files of clients"),
    ("files", "clients", ""),
    ("rdma", "rdma", "SMB Direct"),
    ("cluster", "cluster", "The cluster and its servers"),
    ("nodes", "cluster", ""),
    ("jobs", "jobs", "Storage jobs: resync, rebuild, rebalance, scrub, check"),
    ("", "server", "Health, performance and configuration of the server"),
];

/// The API's routes with the document that describes them.
pub fn documented() -> (Router<Shared>, OpenApi) {
    let (api, mut document) = router().into_inner().split_for_parts();
    document.info = InfoBuilder::new()
        .title("Cenote")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Pools, volumes, shares and accounts of a Cenote server. Units stand in names; times are seconds since 1970-01-01 00:00 \
             UTC (`_unix_s`). Names are the same whatever their case.",
        ))
        .license(Some(license()))
        .build();
    document.tags = Some(
        TAGS.iter()
            .filter(|(.., about)| !about.is_empty())
            .map(|(_, tag, about)| TagBuilder::new().name(*tag).description(Some(*about)).build())
            .collect(),
    );
    let paths = std::mem::take(&mut document.paths.paths);
    for (path, mut item) in paths {
        for (changes, operation) in operations(&mut item) {
            complete(&path, changes, operation);
        }
        document.paths.paths.insert(format!("/api/v1{path}"), item);
    }
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.security_schemes.insert(SCHEME.into(), RefOr::T(SecurityScheme::Http(bearer)));
    let mut schemas = Vec::new();
    add::<ApiError>(components, &mut schemas);
    add::<Message>(components, &mut schemas);
    add::<AddedUser>(components, &mut schemas);
    add::<DashboardLink>(components, &mut schemas);
    add::<PerformanceSample>(components, &mut schemas);
    add::<RemoteFile>(components, &mut schemas);
    add::<RdmaCounterSets>(components, &mut schemas);
    add::<RdmaPing>(components, &mut schemas);
    add::<DiskInspection>(components, &mut schemas);
    add::<Plan>(components, &mut schemas);
    components.schemas.extend(schemas);
    document.security = Some(vec![SecurityRequirement::new(SCHEME, Vec::<String>::new())]);
    document.paths.paths.insert("/healthz".into(), PathItem::new(HttpMethod::Get, healthz()));
    document.paths.paths.insert("/metrics".into(), PathItem::new(HttpMethod::Get, metrics()));
    (api, document)
}

fn license() -> License {
    let mut license = License::new(LICENSE);
    license.identifier = Some(LICENSE.to_owned());
    license
}

type Schemas = Vec<(String, RefOr<utoipa::openapi::schema::Schema>)>;

/// Adds a schema, and those that it refers to.
fn add<T: ToSchema>(components: &mut Components, schemas: &mut Schemas) {
    components.schemas.insert(T::name().into_owned(), T::schema());
    T::schemas(schemas);
}

/// Completes an operation by its path and its shape.
fn complete(path: &str, changes: bool, operation: &mut Operation) {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let tag =
        TAGS.iter().find(|(word, ..)| *word == first).or(TAGS.last()).map(|(_, tag, _)| (*tag).to_owned());
    operation.tags = tag.map(|tag| vec![tag]);
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response
            && response.content.is_empty()
        {
            let null = ObjectBuilder::new().schema_type(SchemaType::new(Type::Null)).build();
            let content = ContentBuilder::new().schema(Some(null)).build();
            response.content.insert("application/json".into(), RefOr::T(content));
        }
    }
    let shape = Shape {
        is_for_all: operation.security.as_deref() == Some(&[demand_of(Role::Reader)]),
        is_given_something: operation.parameters.is_some() || operation.request_body.is_some(),
        names_something: path.contains('{'),
        changes,
        destroys: is_confirmed(path, operation),
        takes_room: changes && ["/disks", "/pools", "/volumes"].iter().any(|noun| path.starts_with(noun)),
    };
    for (kind, description, applies) in FAILURES {
        if applies(&shape) {
            let status = kind.http_status().to_string();
            operation.responses.responses.insert(status, RefOr::T(failure(description)));
        }
    }
}

/// Properties of an operation that decide how it may fail.
struct Shape {
    /// Whether every role may send it.
    is_for_all: bool,
    is_given_something: bool,
    names_something: bool,
    changes: bool,
    /// Whether the caller has to confirm by the name of the object to destroy.
    destroys: bool,
    takes_room: bool,
}

fn is_confirmed(path: &str, operation: &Operation) -> bool {
    let confirm =
        |parameter: &RefOr<Parameter>| matches!(parameter, RefOr::T(found) if found.name == "confirm");
    operation.parameters.iter().flatten().any(confirm) || path.ends_with("/check")
}

type Applies = fn(&Shape) -> bool;

/// One of each status: the kind in the answer's body is more precise.
const FAILURES: [(ErrorKind, &str, Applies); 9] = [
    (ErrorKind::Invalid, "The request is wrong", |shape| shape.is_given_something),
    (ErrorKind::Unauthorized, "No token, or a wrong one", |_| true),
    (ErrorKind::Forbidden, "The token's role does not reach", |shape| !shape.is_for_all),
    (ErrorKind::NotFound, "What it names is not there", |shape| shape.names_something || shape.changes),
    (ErrorKind::Conflict, "The state of things forbids it", |shape| shape.changes),
    (ErrorKind::ConfirmationNeeded, "It needs the name of what it destroys", |shape| shape.destroys),
    (ErrorKind::Internal, "Something is damaged, or failed", |_| true),
    (ErrorKind::Unavailable, "The data plane does not answer, or too few copies can be reached", |_| true),
    (ErrorKind::NoSpace, "There is no room for it", |shape| shape.takes_room),
];

fn failure(description: &str) -> Response {
    let error = Ref::from_schema_name(ApiError::name());
    let content = ContentBuilder::new().schema(Some(error)).build();
    ResponseBuilder::new().description(description).content("application/json", content).build()
}

fn plain(description: &str) -> Response {
    let text = ObjectBuilder::new().schema_type(SchemaType::new(Type::String)).build();
    let content = ContentBuilder::new().schema(Some(text)).build();
    ResponseBuilder::new().description(description).content("text/plain", content).build()
}

fn healthz() -> Operation {
    OperationBuilder::new()
        .tag("server")
        .operation_id(Some("healthz"))
        .summary(Some("Tells whether the data plane answers; needs no token."))
        // Callers need no token.
        .security(SecurityRequirement::default())
        .response("200", plain("It answers"))
        .response("503", plain("It does not answer"))
        .build()
}

fn metrics() -> Operation {
    OperationBuilder::new()
        .tag("server")
        .operation_id(Some("metrics"))
        .summary(Some("Figures for Prometheus; need no token on loopback."))
        .security(SecurityRequirement::default())
        .security(SecurityRequirement::new(SCHEME, Vec::<String>::new()))
        .response("200", plain("Exposition format 0.0.4"))
        .response("401", failure("No token, or a wrong one"))
        .response("503", failure("The data plane does not answer"))
        .build()
}
