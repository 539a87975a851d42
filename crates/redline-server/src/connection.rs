//! Accepts connections and serves HTTP/1.1 on each.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use crate::config::ServerLimits;
use crate::listener::{OpenListener, Transport};
use crate::metrics::Metrics;

/// The wait after an error of `accept`, such as too many open files.
const AFTER_ERROR: Duration = Duration::from_millis(50);
/// Longest time for refusing a connection.
const REFUSAL: Duration = Duration::from_secs(1);
/// The answer to a connection beyond the maximum.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-length: 136\r\n\r\n\
    {\"error\":{\"message\":\"all connections are taken; try again later\",\"type\":\"unavailable_error\",\"param\":null,\
    \"code\":\"too_many_connections\"}}";

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
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.send_time));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(ServerLimits::HEAD_BYTES)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stopped(&mut stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
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
    let refusal = async {
        stream.write_all(FULL).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(REFUSAL, refusal).await;
}

#[cfg(test)]
mod tests {
    use super::FULL;

    #[test]
    fn the_refusal_has_the_length_that_it_declares() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
