//! Work that may take long, on threads of its own, so that connections do not wait for it.

use crate::fault::Fault;

/// Threads that tokenise, and that decode and parse large bodies.
pub(crate) const BLOCKING_THREADS: usize = 2;

/// Does the work. A panic ends its request only.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Fault::internal("panicked"))
}
