//! HTTP server: the live page at `/`, its data under `/api/`, and `/metrics`, `/healthz`,
//! `/status`. It reads published views only, so no answer waits for a request; but for the places
//! of pages, which a thread of their own looks for. No request changes the device, but for the load
//! of `ftld demo`, which the page itself may change.
//!
//! A hostile or slow client costs one of [`CONNECTIONS`] for at most `DEADLINE`, 8 KiB for its
//! request, and the answer: some 200 KB at most, `/api/history`. When all connections are taken,
//! the client whose grace period ends first is dropped. A page of another site learns nothing: it
//! may not read answers (no CORS header), nor show them in a frame, nor use a name of its own
//! ([`Hosts`]).

use super::hosts::Hosts;
use super::render;
use crate::live_page::{PageSource, api, page};
use ftld_device::volume::WritesFailing;
use ftld_kit::failure::{Exit, Failure};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
};
use hyper::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinError, JoinSet};

const CONNECTIONS: usize = 64;
/// Connections that may wait to be accepted: more than the server could answer in 1 s.
const BACKLOG: i32 = 1024;
const BUFFER_BYTES: usize = 8 << 10;
/// Deadline of one connection, which is one request: a client that watches the page all day has no
/// connection between requests.
const DEADLINE: Duration = Duration::from_secs(2);
/// Time before a client may be dropped for another: while its request is awaited, and while it
/// reads the answer.
const GRACE: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];
/// Interval between two checks whether a taken address is free.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// Policy of all answers except the page: nothing is loaded or run.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";
const PATHS: &str = "there are /, /metrics, /healthz, /status, /api/device, /api/blocks, /api/events, /api/history, \
     /api/instances, /api/where, /api/block and /api/load\n";
/// Header of a request that changes something: a page of another site cannot send it unasked.
const OWN: &str = "x-ftld";

/// Binds the address before any other step, so that a taken port leaves no trace.
///
/// # Errors
/// Another process has the address, or it is not one of this machine.
pub fn bind(addr: SocketAddr) -> Result<std::net::TcpListener, Failure> {
    let listener = std::net::TcpListener::bind(addr).map_err(|error| {
        let failure = Failure::io(format!("metrics address {addr}"), &error);
        let way_out = "choose another with --metrics ADDR, or switch them off with --metrics off";
        let exit = if error.kind() == std::io::ErrorKind::AddrInUse {
            Exit::InUse
        } else {
            failure.exit
        };
        Failure::new(exit, format!("{}; {way_out}", failure.message))
    })?;
    if !addr.ip().is_loopback() {
        tracing::warn!("metrics on {addr} can be read from other machines");
    }
    Ok(listener)
}

/// Runs [`serve`] once the address is free.
///
/// # Errors
/// The listener does not work.
pub(crate) async fn serve_when_free(
    addr: SocketAddr,
    observed: Arc<dyn PageSource>,
    hosts: Arc<Hosts>,
) -> std::io::Result<()> {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Ok(listener) = bind(addr) {
            tracing::info!("{addr} is free: metrics are served");
            return serve(listener, observed, hosts).await;
        }
    }
}

/// Answers requests until the runtime ends.
///
/// # Errors
/// The listener does not work.
pub async fn serve(
    listener: std::net::TcpListener,
    observed: Arc<dyn PageSource>,
    hosts: Arc<Hosts>,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    nix::sys::socket::listen(&listener, ftld_device::sys::queue_length(BACKLOG))?;
    let listener = TcpListener::from_std(listener)?;
    let (mut clients, mut newcomer) = (Clients::default(), None);
    loop {
        let wait = newcomer.as_ref().and_then(|_| clients.crowded());
        if wait.is_none()
            && let Some(stream) = newcomer.take()
        {
            clients.admit(stream, observed.clone(), hosts.clone());
        }
        tokio::select! {
            biased;
            Some(ended) = clients.tasks.join_next_with_id() => clients.release(&ended),
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            accepted = listener.accept(), if wait.is_none() => match accepted {
                Ok((stream, _)) => newcomer = Some(stream),
                Err(error) => {
                    tracing::warn!("metrics: accept: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

/// Connected clients, in order of arrival.
#[derive(Default)]
struct Clients {
    tasks: JoinSet<()>,
    all: Vec<Client>,
}

struct Client {
    task: AbortHandle,
    since: Instant,
    /// Whether its request has arrived.
    asked: Arc<AtomicBool>,
}

impl Client {
    /// Returns when the client may be dropped for another.
    fn grace_ends(&self) -> Instant {
        self.since + GRACE[usize::from(self.asked.load(Relaxed))]
    }
}

impl Clients {
    /// Returns how long a new client has to wait until another may be dropped; `None` if it need
    /// not wait.
    fn crowded(&self) -> Option<Duration> {
        if self.all.len() < CONNECTIONS {
            return None;
        }
        let first = self.all.iter().map(Client::grace_ends).min()?;
        first.checked_duration_since(Instant::now())
    }

    fn admit(&mut self, stream: TcpStream, observed: Arc<dyn PageSource>, hosts: Arc<Hosts>) {
        if self.all.len() >= CONNECTIONS {
            let goes = (0..self.all.len())
                .min_by_key(|at| self.all[*at].grace_ends())
                .expect("there are some");
            self.all.remove(goes).task.abort();
        }
        assert!(
            self.all.len() < CONNECTIONS,
            "{} connections and a new one, limited to {CONNECTIONS}",
            self.all.len()
        );
        let asked = Arc::<AtomicBool>::default();
        let answered = connection(stream, observed, hosts, asked.clone());
        let task = self
            .tasks
            .spawn(async move { drop(tokio::time::timeout(DEADLINE, answered).await) });
        self.all.push(Client {
            task,
            since: Instant::now(),
            asked,
        });
    }

    fn release(&mut self, ended: &Result<(tokio::task::Id, ()), JoinError>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        self.all.retain(|client| client.task.id() != id);
        assert!(
            self.all.len() <= self.tasks.len(),
            "{} connections, and {} tasks that serve them",
            self.all.len(),
            self.tasks.len()
        );
    }
}

async fn connection(
    stream: TcpStream,
    observed: Arc<dyn PageSource>,
    hosts: Arc<Hosts>,
    asked: Arc<AtomicBool>,
) {
    let answer = service_fn(move |request: Request<Incoming>| {
        asked.store(true, Relaxed);
        let (observed, hosts) = (observed.clone(), hosts.clone());
        let waits = api::waits(request.uri().path());
        let answer = move || {
            let host = request
                .headers()
                .get(HOST)
                .map(|host| host.to_str().unwrap_or_default());
            let is_own = request.headers().contains_key(OWN);
            let asked = Asked {
                method: request.method(),
                uri: request.uri(),
                host,
                is_own,
            };
            answer(&asked, &*observed, &hosts)
        };
        async move {
            match waits {
                true => tokio::task::spawn_blocking(answer).await,
                false => Ok(answer()),
            }
        }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    let server = server
        .keep_alive(false)
        .max_buf_size(BUFFER_BYTES)
        .max_headers(64);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), answer).await {
        tracing::debug!("metrics: {error}");
    }
}

/// A request, without the headers that do not matter.
struct Asked<'a> {
    method: &'a Method,
    uri: &'a Uri,
    /// Header `Host`; a browser always sends one.
    host: Option<&'a str>,
    /// Whether it has the header [`OWN`].
    is_own: bool,
}

/// Answers one request and counts it.
fn answer(asked: &Asked<'_>, observed: &dyn PageSource, hosts: &Hosts) -> Response<Full<Bytes>> {
    let response = respond(asked, observed, hosts);
    observed.service().note_http(response.status().as_str());
    response
}

fn respond(asked: &Asked<'_>, observed: &dyn PageSource, hosts: &Hosts) -> Response<Full<Bytes>> {
    let &Asked {
        method,
        uri,
        host,
        is_own,
    } = asked;
    if let Some(host) = host.filter(|host| !hosts.allow(host)) {
        let text = format!(
            "this instance does not go by the name {host:?}: ask by IP address or localhost, or start ftld with \
             --metrics-host NAME\n"
        );
        return reply(StatusCode::MISDIRECTED_REQUEST, TEXT, text);
    }
    if method == Method::POST && uri.path() == "/api/load" && is_own {
        return set_load(uri.query().unwrap_or_default(), observed);
    }
    if method != Method::GET && method != Method::HEAD {
        let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let since = || uri.query().and_then(api::since);
    match uri.path() {
        "/" => {
            let mut response = reply(
                StatusCode::OK,
                "text/html; charset=utf-8",
                page::PAGE.html.as_str(),
            );
            let policy = HeaderValue::from_str(&page::PAGE.policy).expect("a policy of ASCII");
            response
                .headers_mut()
                .insert(CONTENT_SECURITY_POLICY, policy);
            response
        }
        "/api/device" => reply(StatusCode::OK, JSON, api::device(observed)),
        "/api/blocks" => reply(StatusCode::OK, JSON, api::blocks(observed, since())),
        "/api/events" => reply(StatusCode::OK, JSON, api::events(observed, since())),
        "/api/history" => reply(StatusCode::OK, JSON, api::history(observed, since())),
        "/api/load" => load(observed),
        "/api/instances" => reply(StatusCode::OK, JSON, api::instances(observed)),
        "/api/where" | "/api/block" => {
            match api::places(uri.path(), uri.query().unwrap_or_default(), observed) {
                Ok(json) => reply(StatusCode::OK, JSON, json),
                Err(why) => reply(api::code_of(&why), TEXT, why.message + "\n"),
            }
        }
        "/metrics" => reply(
            StatusCode::OK,
            "text/plain; version=0.0.4; charset=utf-8",
            render::render(&observed.view()),
        ),
        "/healthz" => health(observed),
        "/status" => reply(
            StatusCode::OK,
            JSON,
            format!("{:#}\n", observed.view().status().json()),
        ),
        _ => reply(StatusCode::NOT_FOUND, TEXT, PATHS),
    }
}

/// Returns the load of the daemon's own, and the names of those that there are.
fn load(observed: &dyn PageSource) -> Response<Full<Bytes>> {
    match observed.load() {
        Some(load) => reply(StatusCode::OK, JSON, api::load(load)),
        None => reply(
            StatusCode::NOT_FOUND,
            TEXT,
            "only `ftld demo` has a load of its own\n",
        ),
    }
}

/// Changes the load of the daemon's own.
fn set_load(query: &str, observed: &dyn PageSource) -> Response<Full<Bytes>> {
    let Some(own) = observed.load() else {
        return load(observed);
    };
    let Some(setting) = own.setting().changed(query) else {
        let text = "pattern=NAME, rate=REQUESTS-PER-SECOND, or both with & between them\n";
        return reply(StatusCode::BAD_REQUEST, TEXT, text);
    };
    own.set(setting);
    load(observed)
}

fn health(observed: &dyn PageSource) -> Response<Full<Bytes>> {
    let view = observed.view();
    match view
        .failure
        .clone()
        .or_else(|| view.writes_failing.map(WritesFailing::text))
    {
        None => reply(StatusCode::OK, TEXT, format!("{}\n", view.state())),
        Some(why) => reply(
            StatusCode::SERVICE_UNAVAILABLE,
            TEXT,
            format!("{}: {why}\n", view.state()),
        ),
    }
}

fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    const HEADERS: [(HeaderName, &str); 5] = [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, NOTHING),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ];
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
pub(crate) fn get(
    target: &str,
    host: Option<&str>,
    observed: &dyn PageSource,
) -> Response<Full<Bytes>> {
    ask(&Method::GET, target, host, false, observed)
}

#[cfg(test)]
pub(crate) fn ask(
    method: &Method,
    target: &str,
    host: Option<&str>,
    is_own: bool,
    observed: &dyn PageSource,
) -> Response<Full<Bytes>> {
    let uri = target.parse().expect("a target");
    let asked = Asked {
        method,
        uri: &uri,
        host,
        is_own,
    };
    answer(&asked, observed, &Hosts::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::Still;

    #[test]
    fn only_names_of_ours_are_answered_and_the_message_says_what_to_do() {
        for path in [
            "/",
            "/metrics",
            "/status",
            "/healthz",
            "/api/blocks",
            "/api/events",
            "/api/history",
            "/api/instances",
            "/api/device",
        ] {
            for host in [None, Some("localhost:9917"), Some("192.0.2.1")] {
                assert_eq!(
                    get(path, host, &Still::default()).status(),
                    StatusCode::OK,
                    "{path} {host:?}"
                );
            }
            let refused = get(path, Some("rebound.example:9917"), &Still::default());
            assert_eq!(refused.status(), StatusCode::MISDIRECTED_REQUEST, "{path}");
            let body = format!("{:?}", refused.body());
            assert!(
                body.contains("rebound.example") && body.contains("--metrics-host NAME"),
                "{body}"
            );
        }
    }

    #[test]
    fn nothing_but_get_and_head_and_nothing_may_be_framed_or_guessed() {
        let still = Still::default();
        for method in [
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::OPTIONS,
            Method::PATCH,
            Method::TRACE,
        ] {
            let refused = ask(&method, "/", None, true, &still);
            assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
        }
        let load = "/api/load?pattern=zipf";
        let [own, foreign] = [true, false].map(|own| ask(&Method::POST, load, None, own, &still));
        assert_eq!(foreign.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(own.status(), StatusCode::NOT_FOUND, "no demo");
        for path in ["/", "/metrics", "/api/blocks?since=1", "/nowhere"] {
            let response = get(path, None, &still);
            let header = |name| response.headers()[name].to_str().unwrap();
            assert_eq!(
                (header("x-content-type-options"), header("x-frame-options")),
                ("nosniff", "DENY"),
                "{path}"
            );
            let policy = header("content-security-policy");
            assert!(
                policy.starts_with("default-src 'none'")
                    && policy.contains("frame-ancestors 'none'"),
                "{policy}"
            );
            assert!(
                !response
                    .headers()
                    .contains_key("access-control-allow-origin")
            );
        }
        assert_eq!(
            get("/nowhere", None, &still).status(),
            StatusCode::NOT_FOUND
        );
    }

    #[test]
    fn every_answer_is_counted_by_its_code() {
        let mut still = Still::default();
        for path in ["/", "/metrics", "/healthz"] {
            get(path, None, &still);
        }
        get("/nowhere", None, &still);
        get("/", Some("rebound.example"), &still);
        ask(&Method::POST, "/", None, false, &still);
        still.view.failure = Some("sync failed".into());
        get("/healthz", None, &still);
        assert_eq!(still.service.view().http, [3, 0, 1, 1, 1, 1]);
    }
}
