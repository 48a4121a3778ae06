//! The role that each route demands.
//!
//! Promises: a route cannot be added without a role ([`Routes`], [`Pages`]); the role is checked before
//! anything else of a request, also before another server gets it. The OpenAPI document names the
//! required roles.

use crate::caller::{Caller, Role};
use crate::demands::{demand_of, operations};
use crate::errands::hand_on;
use crate::leaving::GivenTo;
use crate::management::{ApiError, ErrorKind};
use crate::peer::Shared;
use crate::seats::Seat;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use std::sync::Arc;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

/// Lets a request through if its caller has the role.
async fn admit(role: Role, request: Request, next: Next) -> Response {
    let Some(caller) = request.extensions().get::<Caller>() else {
        return ApiError::new(ErrorKind::Unauthorized, "no token").into_response();
    };
    match caller.lacks(role) {
        None => {
            // A request may take minutes.
            if let (Some(seat), Some(GivenTo(token))) =
                (request.extensions().get::<Arc<Seat>>(), request.extensions().get::<GivenTo>())
            {
                seat.prove_by(*token);
            }
            next.run(request).await
        }
        Some(why) => ApiError::new(ErrorKind::Forbidden, why).into_response(),
    }
}

fn demanding<S: Clone + Send + Sync + 'static>(role: Role, methods: MethodRouter<S>) -> MethodRouter<S> {
    methods.route_layer(from_fn(move |request, next| admit(role, request, next)))
}

/// Routes of the API with their document.
pub(crate) struct Routes(OpenApiRouter<Shared>);

impl Routes {
    pub fn new() -> Self {
        Self(OpenApiRouter::new())
    }

    /// For all holders of a token: routes that change nothing and reveal no secrets.
    pub fn reader(self, routes: UtoipaMethodRouter<Shared>) -> Self {
        self.with(Role::Reader, routes)
    }

    /// For daily work on storage and shares.
    pub fn operator(self, routes: UtoipaMethodRouter<Shared>) -> Self {
        self.with(Role::Operator, routes)
    }

    /// For accounts, tokens, the cluster, secrets, and everything that deletes data or opens them to others.
    pub fn administrator(self, routes: UtoipaMethodRouter<Shared>) -> Self {
        self.with(Role::Administrator, routes)
    }

    fn with(self, role: Role, (schemas, mut paths, methods): UtoipaMethodRouter<Shared>) -> Self {
        for (_, operation) in paths.paths.values_mut().flat_map(operations) {
            operation.security = Some(vec![demand_of(role)]);
        }
        // The layer that is added last sees a request first.
        let methods = demanding(role, methods.route_layer(from_fn(hand_on)));
        Self(self.0.routes((schemas, paths, methods)))
    }

    pub fn merge(self, other: Self) -> Self {
        Self(self.0.merge(other.0))
    }

    pub fn into_inner(self) -> OpenApiRouter<Shared> {
        self.0
    }
}

/// Routes beside the API, under `/`, `/dashboard/` and `/api/v1/dashboard/`.
#[derive(Clone, Default)]
pub struct Pages(Router);

impl Pages {
    /// Adds a file that holds nothing of the server: everybody may load it.
    ///
    /// # Panics
    /// If the path is one of the API's.
    #[must_use]
    pub fn open(self, path: &str, methods: MethodRouter) -> Self {
        assert!(!path.starts_with("/api/"), "{path} demands no role");
        Self(self.0.route(path, methods))
    }

    /// Adds a route for callers with a role.
    #[must_use]
    pub fn demanding(self, role: Role, path: &str, methods: MethodRouter) -> Self {
        Self(self.0.route(path, demanding(role, methods)))
    }

    pub(crate) fn into_router(self) -> Router {
        self.0
    }
}
