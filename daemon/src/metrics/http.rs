//! The HTTP side: `GET /metrics`, `/healthz`, `/status`. Reads published views only, so a scrape never waits for a request.
//!
//! A hostile or slow client costs one of a few connections for a few seconds, and 8 KiB.

use super::render;
use crate::failure::{Exit, Failure};
use crate::status::Observed;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

const CONNECTIONS: usize = 16;
const BUFFER_BYTES: usize = 8 << 10;
/// One connection, however many requests.
const DEADLINE: Duration = Duration::from_secs(2);

/// Takes the address, before anything else is touched, so that a taken port leaves no trace.
pub fn bind(addr: SocketAddr) -> Result<std::net::TcpListener, Failure> {
    let listener = std::net::TcpListener::bind(addr).map_err(|error| {
        let failure = Failure::io(format!("metrics address {addr}"), &error);
        let way_out = "choose another with --metrics ADDR, or switch them off with --metrics off";
        let exit = if error.kind() == std::io::ErrorKind::AddrInUse { Exit::InUse } else { failure.exit };
        Failure::new(exit, format!("{}; {way_out}", failure.message))
    })?;
    if !addr.ip().is_loopback() {
        tracing::warn!("metrics on {addr} can be read from other machines");
    }
    Ok(listener)
}

/// Answers until the runtime ends.
pub async fn serve(listener: std::net::TcpListener, observed: Arc<dyn Observed>) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, _)) => {
                let observed = observed.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(DEADLINE, connection(stream, observed)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!("metrics: accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, observed: Arc<dyn Observed>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let response = answer(request.method(), request.uri().path(), &*observed);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    let server = server.max_buf_size(BUFFER_BYTES).max_headers(64);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), answer).await {
        tracing::debug!("metrics: {error}");
    }
}

fn answer(method: &Method, path: &str, observed: &dyn Observed) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n".into());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/metrics" => {
            text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", render::render(&observed.view()))
        }
        "/healthz" => health(observed),
        "/status" => text(StatusCode::OK, "application/json", format!("{:#}\n", observed.view().json())),
        _ => text(StatusCode::NOT_FOUND, "text/plain", "there are /metrics, /healthz and /status\n".into()),
    }
}

fn health(observed: &dyn Observed) -> Response<Full<Bytes>> {
    let view = observed.view();
    match view.trouble.as_deref() {
        None => text(StatusCode::OK, "text/plain", format!("{}\n", view.state())),
        Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", format!("failed: {why}\n")),
    }
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
