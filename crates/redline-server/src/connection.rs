//! Accepts connections and serves HTTP/1.1 on each.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response, Version};
use axum::{BoxError, Router};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use crate::client_stream::{ClientStream, OpenRequest, closing};
use crate::config::ServerLimits;
use crate::fault::Fault;
use crate::listener::{OpenListener, Transport};
use crate::metrics::Metrics;

/// The wait after an error of `accept`, such as too many open files.
const AFTER_ERROR: Duration = Duration::from_millis(50);
/// Longest time for refusing a connection.
const REFUSAL: Duration = Duration::from_secs(1);

/// Accepts connections until `stop` changes. Returns the connections that are open then; each ends after its request.
pub(crate) async fn accept(
    listener: OpenListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: ServerLimits,
    metrics: Arc<Metrics>,
    mut stop: watch::Receiver<bool>,
) -> JoinSet<()> {
    let places = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            biased;
            () = stopped(&mut stop) => return connections,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => match accepted {
                Ok(stream) => stream,
                Err(_) => {
                    tokio::time::sleep(AFTER_ERROR).await;
                    continue;
                }
            },
        };
        match places.clone().try_acquire_owned() {
            Ok(place) => {
                let (tls, router, stop) = (tls.clone(), router.clone(), stop.clone());
                let open = metrics.connect();
                connections.spawn(async move {
                    serve(stream, tls, router, limits, stop).await;
                    drop((place, open));
                });
            }
            Err(_) => {
                metrics.refuse_connection();
                // To a client that expects TLS, an answer that is not encrypted says nothing.
                if tls.is_none() {
                    connections.spawn(refuse(stream));
                }
            }
        }
    }
}

/// Waits until the server is told to end.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that nobody can tell it any more.
    let _ = stop.wait_for(|&stopped| stopped).await;
}

/// Serves one connection. Errors of a connection concern nobody else.
async fn serve(
    stream: Box<dyn Transport>,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: ServerLimits,
    mut stop: watch::Receiver<bool>,
) {
    let stream = match tls {
        None => stream,
        Some(tls) => tokio::select! {
            encrypted = encrypt(&tls, stream, limits.head_time) => match encrypted {
                Some(stream) => stream,
                None => return,
            },
            () = stopped(&mut stop) => return,
        },
    };
    let open = OpenRequest::default();
    let mut stream = TimeoutStream::new(ClientStream::new(stream, open.clone()));
    stream.set_write_timeout(Some(limits.send_time));
    let router = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(ServerLimits::HEAD_BYTES)
        .serve_connection(
            TokioIo::new(Box::pin(stream)),
            service_fn(|request| respond(&router, &open, request)),
        );
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stopped(&mut stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Answers a request, and notes which part of the answer is open. A client of HTTP/1.0 cannot be probed, so it must keep its half open.
fn respond(
    router: &TowerToHyperService<Router>,
    open: &OpenRequest,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Body>, Infallible>> + use<> {
    let open = (request.version() >= Version::HTTP_11).then(|| open.clone());
    let (upload, rest) = open.map(|OpenRequest { upload, head, answer }| (upload, (head, answer))).unzip();
    let response = router.call(request.map(|body| holding(body, upload)));
    async move {
        let response = response.await?;
        let answer = rest.map(|(_, answer)| answer);
        Ok(response.map(|body| holding(body, answer)))
    }
}

/// A body that keeps this until it is dropped.
fn holding<B>(body: B, part: Option<Arc<()>>) -> Body
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Body::new(body.map_err(move |error| {
        let _ = &part;
        error
    }))
}

/// Agrees with the client on keys.
async fn encrypt(
    tls: &TlsAcceptor,
    stream: Box<dyn Transport>,
    time: Duration,
) -> Option<Box<dyn Transport>> {
    let stream = tokio::time::timeout(time, tls.accept(stream)).await.ok()?.ok()?;
    Some(Box::new(stream))
}

/// Tells a client that there are too many connections.
async fn refuse(mut stream: Box<dyn Transport>) {
    let message = "all connections are taken; try again later";
    let full = Fault::unavailable("too_many_connections", message);
    let refusal = async {
        stream.write_all(&closing(full)).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(REFUSAL, refusal).await;
}
