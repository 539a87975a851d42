//! Work that may take long, on threads of its own, so that connections do not wait for it.

use crate::fault::Fault;

/// Does the work. A panic ends its request only.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Fault::internal("panicked"))
}
