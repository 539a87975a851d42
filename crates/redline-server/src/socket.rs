//! A Unix socket with a file of its own.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// The file of a socket. It is removed in the end.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Opens a socket. One that a killed server left is replaced; any other file is an error.
pub(crate) fn bind(path: PathBuf) -> io::Result<(UnixListener, SocketFile)> {
    if fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket()) {
        match UnixStream::connect(&path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(&path)?,
            Err(error) => return Err(error),
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
        }
    }
    let listener = UnixListener::bind(&path)?;
    let file = SocketFile(path);
    listener.set_nonblocking(true)?;
    Ok((listener, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_replaces_one_that_nobody_listens_at_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = bind(path.clone()).unwrap();
        let error = bind(path.clone()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
        drop(first);
        assert!(!path.exists(), "the file is removed in the end");
        // As a killed server leaves it.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(bind(path.clone()).unwrap());
        fs::write(&path, "text").unwrap();
        assert_eq!(bind(path.clone()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    }
}
