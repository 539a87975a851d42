//! Reads bytes at an offset, from an open file or from memory, without a shared cursor.

use std::fs::File;
use std::io;

/// The source of the bytes of one file.
pub(crate) enum Source {
    /// An open file; it stays readable when its name is removed.
    File(Positioned),
    /// Bytes embedded in the binary.
    Bytes(&'static [u8]),
}

impl Source {
    pub(crate) fn len(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => file.len(),
            Self::Bytes(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// The `length` bytes at `offset`. If they must be read, they are stored in `buffer`.
    pub(crate) fn read<'a>(
        &'a self,
        offset: u64,
        length: usize,
        buffer: &'a mut Vec<u8>,
    ) -> io::Result<&'a [u8]> {
        match self {
            Self::File(file) => {
                buffer.resize(length, 0);
                file.read_exact(offset, buffer)?;
                Ok(buffer)
            }
            Self::Bytes(bytes) => stretch(bytes, offset, length),
        }
    }

    /// The open file, if threads can read it at given offsets.
    pub(crate) fn file(&self) -> Option<&File> {
        match self {
            #[cfg(unix)]
            Self::File(file) => Some(&file.0),
            _ => None,
        }
    }

    /// Fills `out` with the bytes at `offset`.
    pub(crate) fn read_into(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact(offset, out),
            Self::Bytes(bytes) => stretch(bytes, offset, out.len()).map(|bytes| out.copy_from_slice(bytes)),
        }
    }
}

fn stretch(bytes: &[u8], offset: u64, length: usize) -> io::Result<&[u8]> {
    let from = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
    from.and_then(|from| from.get(..length)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// A file that any number of threads can read at given offsets.
#[cfg(unix)]
pub(crate) struct Positioned(File);

#[cfg(unix)]
impl Positioned {
    pub(crate) fn new(file: File) -> Self {
        Self(file)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.metadata().map(|about| about.len())
    }

    fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, buffer, offset)
    }
}

/// A file read at given offsets by one thread at a time, since threads share its cursor.
#[cfg(not(unix))]
pub(crate) struct Positioned(std::sync::Mutex<File>);

#[cfg(not(unix))]
impl Positioned {
    pub(crate) fn new(file: File) -> Self {
        Self(std::sync::Mutex::new(file))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, File> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn len(&self) -> io::Result<u64> {
        self.lock().metadata().map(|about| about.len())
    }

    fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = self.lock();
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(buffer)
    }
}
