//! The HTTP server of the API.
//!
//! Owns connections and authentication. Promises: at most [`crate::seats::CONNECTIONS_MAX`] connections
//! a listener, each with bounded headers, body and time (I7); everything under `/api/` needs the token,
//! and over TLS everything but `/healthz` and the dashboard's files; refusals are in the audit log, in
//! bounded numbers. Never listens: it gets open sockets.

use crate::access::Pages;
use crate::caller::Caller;
use crate::changes::{Changes, complete};
use crate::document::documented;
use crate::errands::{BODY_BYTES_MAX, MayHandOn, is_change};
use crate::leaving::{GivenTo, Leaving, in_parts};
use crate::lists::whole;
use crate::management::{ApiError, ErrorKind, Management};
use crate::metrics::{self, OfCluster};
use crate::pacing::Pacing;
use crate::peer::{PeerAddress, Shared};
use crate::refusals::{MINUTE, Refusals};
use crate::revocable::Revocable;
use crate::seats::{Seat, Seats};
use crate::tls::Identity;
use crate::token::Token;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use records::api_tokens::TokenHash;
use records::clock::unix_now_s;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_rustls::TlsAcceptor;
use utoipa::openapi::OpenApi;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks that a client takes its answer.
const STALL_LOOK: Duration = Duration::from_secs(2);
/// The longest request is one that formats disks.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Paths that are served without the token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// Everything that is not under `/api/`.
    AllButApi,
    /// Health, and the dashboard's files, which reveal nothing about this server.
    HealthAndPages,
}

impl Open {
    fn covers(self, path: &str) -> bool {
        match self {
            Self::AllButApi => !path.starts_with("/api/"),
            Self::HealthAndPages => matches!(path, "/healthz" | "/") || path.starts_with("/dashboard/"),
        }
    }
}

/// Serves in the clear, for loopback, until the task is dropped.
pub async fn serve(listener: TcpListener, management: Arc<dyn Management>, token: Arc<Token>, pages: Pages) {
    let refusals = Refusals::new(management.clone());
    let app = app(management, token, Open::AllButApi, refusals.clone(), pages);
    accept(listener, app, None, refusals).await;
}

/// Serves over TLS until the task is dropped.
pub async fn serve_tls(
    listener: TcpListener,
    identity: Arc<Identity>,
    management: Arc<dyn Management>,
    token: Arc<Token>,
    pages: Pages,
) {
    let config = match identity.server_config() {
        Ok(config) => Arc::new(config),
        Err(error) => return tracing::error!(%error, "the API cannot serve TLS"),
    };
    let refusals = Refusals::new(management.clone());
    let app = app(management, token, Open::HealthAndPages, refusals.clone(), pages);
    accept(listener, app, Some(config.into()), refusals).await;
}

async fn accept(listener: TcpListener, app: Router, tls: Option<TlsAcceptor>, refusals: Arc<Refusals>) {
    let seats = Seats::new();
    let mut minutes = tokio::time::interval(MINUTE);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = minutes.tick() => {
                refusals.turn();
                continue;
            }
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: give connections time to end.
                tracing::warn!(%error, "the API cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // One of IPv4 as such, also on a socket that listens for both versions of IP.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let Some(seat) = seats.take(peer) else {
            tracing::warn!(%peer, "an API connection was refused: too many");
            continue;
        };
        let seat = Arc::new(seat);
        let app = app.clone().layer(axum::Extension(PeerAddress(peer))).layer(axum::Extension(seat.clone()));
        let (tls, refusals, its_seat) = (tls.clone(), refusals.clone(), seat.clone());
        let task = tokio::spawn(async move {
            // The task holds the seat: it becomes free when the connection has ended, not when its last
            // request has.
            let Some(tls) = tls else { return converse(stream, app, peer, &its_seat).await };
            let handshake = Handshake { refusals: &refusals, peer, has_ended: false };
            let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await;
            handshake.end();
            match accepted {
                Ok(Ok(stream)) => converse(stream, app, peer, &its_seat).await,
                // Opened and closed: a check that the port answers.
                Ok(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    tracing::debug!(%peer, %error, "API connection without TLS");
                }
                Ok(Err(error)) => {
                    refusals.note(peer, "connect", "", &format!("the TLS handshake failed: {error}"));
                }
                Err(_) => refusals.note(peer, "connect", "", "no TLS handshake in time"),
            }
        });
        seat.is_of(task.abort_handle());
    }
}

/// A TLS handshake. If it is dropped before its end, its connection was evicted, and the audit log
/// counts that.
struct Handshake<'a> {
    refusals: &'a Refusals,
    peer: SocketAddr,
    has_ended: bool,
}

impl Handshake<'_> {
    fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Handshake<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.refusals.note(self.peer, "connect", "", "no TLS handshake when its place was needed");
        }
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, app: Router, peer: SocketAddr, seat: &Seat) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut connection = std::pin::pin!(connection);
    let mut looks = tokio::time::interval(STALL_LOOK);
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "API connection ended");
                }
                return;
            }
            _ = looks.tick() => {
                if seat.is_stalled(Instant::now()) {
                    return tracing::warn!(%peer, "an API connection was ended: its client does not take its answer");
                }
            }
        }
    }
}

/// The OpenAPI document, and everything that is served.
fn app(
    management: Arc<dyn Management>,
    token: Arc<Token>,
    open: Open,
    refusals: Arc<Refusals>,
    pages: Pages,
) -> Router {
    let (api, document) = documented();
    let (guard, pulse) = (
        Guard { refusals, token, open, management: management.clone(), pacing: Arc::default() },
        Pulse::default(),
    );
    let document = document.to_json().unwrap_or_default();
    Router::new()
        .nest("/api/v1", api)
        .route("/healthz", get(move |State(management)| healthz(pulse, management)))
        .route("/metrics", get(scrape))
        .route(
            "/openapi.json",
            get(move || async { ([(header::CONTENT_TYPE, "application/json")], document) }),
        )
        .merge(pages.into_router().with_state(()))
        .fallback(async || ApiError::new(ErrorKind::NotFound, "no such path; /openapi.json lists them"))
        .layer(axum::Extension(MayHandOn(management.clone())))
        .layer(from_fn_with_state(Arc::<Changes>::default(), complete))
        .layer(from_fn_with_state(guard, authenticate))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(axum::middleware::from_fn(bounded_time))
        .layer(from_fn_with_state(Arc::new(Leaving::default()), in_parts))
        .with_state(management)
}

/// The OpenAPI document, for tools.
pub fn openapi() -> OpenApi {
    documented().1
}

#[derive(Clone)]
struct Guard {
    refusals: Arc<Refusals>,
    token: Arc<Token>,
    open: Open,
    management: Shared,
    pacing: Arc<Pacing>,
}

impl Guard {
    /// `given`: the value of an Authorization header.
    fn caller(&self, given: &[u8]) -> Result<(Caller, Option<TokenHash>), String> {
        if self.token.admits(given) {
            return Ok((Caller::of_token_file(), None));
        }
        let text = given.strip_prefix(b"Bearer ").unwrap_or_default();
        let hash = TokenHash::of(text);
        let named = self.management.token_of(hash).ok_or("wrong token")?;
        if named.is_expired(unix_now_s()) {
            return Err(format!("token '{}' has expired", named.name));
        }
        Ok((Caller::of_token(&named.name, named.role), Some(hash)))
    }

    /// Carries out a caller's request.
    async fn serve(
        &self,
        peer: SocketAddr,
        (caller, named): (Caller, Option<TokenHash>),
        mut request: Request,
        next: Next,
    ) -> Response {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let actor = caller.actor();
        if let Some(why) = self.management.cluster().removed() {
            if is_change(&method) {
                let detail = "this server was removed from its cluster";
                self.refusals.note_by(&actor, peer, method.as_str(), &path, detail);
            }
            return ApiError::new(ErrorKind::Unavailable, why).into_response();
        }
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(GivenTo(named));
        let seat = request.extensions().get::<Arc<Seat>>().cloned();
        if let Some(named) = named.filter(|_| is_change(&method)) {
            let wait = self.pacing.wait(named, Instant::now());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
        let mut response = next.run(request).await;
        response.extensions_mut().insert(GivenTo(named));
        let is_refused = response.status() == StatusCode::FORBIDDEN;
        if is_refused {
            self.refusals.note_by(&actor, peer, method.as_str(), &path, "the token's role does not reach");
        }
        match seat {
            Some(seat) if is_refused => seat.unprove(),
            Some(seat) => seat.prove_by(named),
            None => {}
        }
        match named {
            Some(hash) => response.map(|body| Body::new(Revocable::new(body, self.management.clone(), hash))),
            None => response,
        }
    }
}

async fn authenticate(
    State(guard): State<Guard>,
    axum::Extension(PeerAddress(peer)): axum::Extension<PeerAddress>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let tells_of_server = !Open::HealthAndPages.covers(path);
    let is_meant = !tells_of_server || names_this_machine(request.headers().get(header::HOST));
    if guard.open.covers(path) && is_meant {
        return next.run(request).await;
    }
    let given = request.headers().get(header::AUTHORIZATION);
    let detail = match given.map(|given| guard.caller(given.as_bytes())) {
        Some(Ok(caller)) => return guard.serve(peer, caller, request, next).await,
        Some(Err(why)) => why,
        None if is_meant => "no token".to_owned(),
        None => "no token, and the Host header does not name this machine".to_owned(),
    };
    if let Some(seat) = request.extensions().get::<Arc<Seat>>() {
        seat.unprove();
    }
    guard.refusals.note(peer, request.method().as_str(), request.uri().path(), &detail);
    let message = format!(
        "{detail}: send the token file's content, or a token of `cenote token create`, as `Authorization: Bearer TOKEN`"
    );
    let mut refusal = ApiError::new(ErrorKind::Unauthorized, message).into_response();
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    refusal
}

/// Returns whether an unencrypted request over loopback names this machine. A browser whose page's name
/// resolves here (DNS rebinding) sends that name. Without a header the peer is no browser.
fn names_this_machine(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host else { return true };
    let Ok(host) = host.to_str() else { return false };
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let without_port = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    let name = without_port.map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| name.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

async fn bounded_time(request: Request<Body>, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => ApiError::new(
            ErrorKind::Unavailable,
            "no answer in five minutes; the work may go on: look at the jobs and at health",
        )
        .into_response(),
    }
}

/// Caches whether the data plane answers. Anybody may ask; one caller at a time queries the data plane,
/// and at most once in [`Pulse::LASTS_FOR`].
#[derive(Clone, Default)]
struct Pulse(Arc<Mutex<Option<(Instant, bool)>>>);

impl Pulse {
    const LASTS_FOR: Duration = Duration::from_secs(1);
    const PATIENCE: Duration = Duration::from_secs(5);

    async fn feel(&self, management: &dyn Management) -> bool {
        let mut last = self.0.lock().await;
        if let Some((felt_at, answers)) = *last
            && felt_at.elapsed() < Self::LASTS_FOR
        {
            return answers;
        }
        let answers = tokio::time::timeout(Self::PATIENCE, management.figures())
            .await
            .is_ok_and(|answer| answer.is_ok());
        *last = Some((Instant::now(), answers));
        answers
    }
}

/// 200 while the data plane answers, and may.
async fn healthz(pulse: Pulse, management: Shared) -> (StatusCode, Cow<'static, str>) {
    let cluster = management.cluster();
    if let Some(why) = cluster.removed().or_else(|| Some(cluster.unserved()?.sentence)) {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n").into());
    }
    if pulse.feel(&*management).await {
        (StatusCode::OK, "ok\n".into())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the data plane does not answer\n".into())
    }
}

async fn scrape(State(management): State<Shared>) -> Result<impl IntoResponse, ApiError> {
    let snapshot = management.figures().await?;
    let of_cluster = match management.cluster().figures() {
        Some(figures) => {
            let whole = match &figures.shared {
                Some(_) => whole(&management).await,
                None => None,
            };
            Some(OfCluster { figures, whole })
        }
        None => None,
    };
    let text = metrics::text(&snapshot, of_cluster.as_ref());
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}
