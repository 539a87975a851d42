//! Where a server listens: a port, or a Unix socket.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::ServerConfig;
#[cfg(unix)]
use crate::socket::{self, SocketFile};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// An address with a port.
    Port(SocketAddr),
    /// A Unix socket.
    Socket(PathBuf),
}

impl ServerAddress {
    /// Whether only this machine reaches it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Port(address) => address.ip().is_loopback(),
            Self::Socket(_) => true,
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(address) => address.fmt(f),
            Self::Socket(path) => path.display().fmt(f),
        }
    }
}

/// Both directions of a connection.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// An open port or socket. Connections wait until the server runs.
#[derive(Debug)]
pub(crate) enum Listener {
    Port(TcpListener),
    #[cfg(unix)]
    Socket(std::os::unix::net::UnixListener, SocketFile),
}

impl Listener {
    /// Opens the port, or the socket.
    pub(crate) fn bind(config: &ServerConfig) -> io::Result<(Self, ServerAddress)> {
        if let Some(path) = &config.unix_socket {
            return bind_socket(path.clone());
        }
        let host = config.host.trim_start_matches('[').trim_end_matches(']');
        let listener = TcpListener::bind((host, config.port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((Self::Port(listener), ServerAddress::Port(address)))
    }

    /// Accepts connections within the runtime.
    pub(crate) fn open(self) -> io::Result<OpenListener> {
        Ok(match self {
            Self::Port(listener) => OpenListener::Port(tokio::net::TcpListener::from_std(listener)?),
            #[cfg(unix)]
            Self::Socket(listener, file) => {
                OpenListener::Socket(tokio::net::UnixListener::from_std(listener)?, file)
            }
        })
    }
}

#[cfg(unix)]
fn bind_socket(path: PathBuf) -> io::Result<(Listener, ServerAddress)> {
    let (listener, file) = socket::bind(path.clone())?;
    Ok((Listener::Socket(listener, file), ServerAddress::Socket(path)))
}

#[cfg(not(unix))]
fn bind_socket(_: PathBuf) -> io::Result<(Listener, ServerAddress)> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
}

/// A listener within the runtime. The file of a socket is removed with it.
pub(crate) enum OpenListener {
    Port(tokio::net::TcpListener),
    #[cfg(unix)]
    Socket(tokio::net::UnixListener, #[expect(dead_code, reason = "dropped with the listener")] SocketFile),
}

impl OpenListener {
    /// Waits for the next connection.
    pub(crate) async fn accept(&self) -> io::Result<Box<dyn Transport>> {
        match self {
            Self::Port(listener) => {
                let (stream, _) = listener.accept().await?;
                // Without this, the last part of an answer waits for an acknowledgement.
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream))
            }
            #[cfg(unix)]
            Self::Socket(listener, _) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}
