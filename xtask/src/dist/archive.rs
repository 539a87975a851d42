//! Archives whose bytes depend on nothing but their content.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

/// A file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Whether it may be executed.
    pub(super) is_program: bool,
    pub(super) bytes: Vec<u8>,
}

impl From<Vec<u8>> for Entry {
    fn from(bytes: Vec<u8>) -> Self {
        Self { is_program: false, bytes }
    }
}

/// The files of an archive by their paths, which are the order in the archive.
pub(super) type Entries = BTreeMap<String, Entry>;

/// A `tar.gz` with these files below the folder `root`. All belong to user 0 and have the modification time `time`, in seconds since
/// 1970.
pub(super) fn pack(root: &str, entries: &Entries, time: u64) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, entry) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(if entry.is_program { 0o755 } else { 0o644 });
        header.set_size(entry.bytes.len() as u64);
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, format!("{root}/{path}"), entry.bytes.as_slice())?;
    }
    let archive = archive.into_inner()?;
    // Without a name and a time, the header of gzip is always the same.
    let mut packed = GzBuilder::new().write(Vec::new(), Compression::best());
    packed.write_all(&archive)?;
    Ok(packed.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn content_and_modes_are_unpacked_in_the_order_of_the_paths() {
        let program = Entry { is_program: true, bytes: b"\x7fELF".to_vec() };
        let files =
            [("redline", program), ("README.md", b"text".to_vec().into()), ("man/a.1", Vec::new().into())];
        let entries: Entries = files.into_iter().map(|(path, entry)| (path.to_owned(), entry)).collect();
        let packed = pack("redline-1", &entries, 1_700_000_000).unwrap();
        assert_eq!(packed, pack("redline-1", &entries, 1_700_000_000).unwrap());
        assert_ne!(packed, pack("redline-1", &entries, 1_700_000_001).unwrap());

        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let mut found = Vec::new();
        for file in archive.entries().unwrap() {
            let mut file = file.unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            let header = file.header();
            assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, 1_700_000_000));
            found.push(format!("{} {:o} {text}", file.path().unwrap().display(), header.mode().unwrap()));
        }
        assert_eq!(
            found,
            ["redline-1/README.md 644 text", "redline-1/man/a.1 644 ", "redline-1/redline 755 \x7fELF"]
        );
    }
}
