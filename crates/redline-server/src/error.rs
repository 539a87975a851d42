//! Errors of the server itself. Those of requests are in `fault.rs`.

use std::io;
use std::path::PathBuf;

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port, or the socket, cannot be opened.
    #[error("{reason}\n  in `{address}`")]
    Bind {
        /// The address and the port, or the path of the socket.
        address: String,
        /// The system's message.
        reason: io::Error,
    },
    /// The certificate, or its key, cannot be used.
    #[error("{problem}\n  in `{}`", .path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A model cannot be loaded.
    #[error("{0}")]
    Model(String),
    /// The threads or the signals cannot be set up.
    #[error("the server cannot start: {0}")]
    Start(#[from] io::Error),
}
