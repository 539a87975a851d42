//! The division of the work among workers, and who has which share.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::str::FromStr;

use redline_weights::Disk;

use crate::error::BatchError;

/// One of several equal shares of the parts: `2/4` is the second of four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1 to `count`.
    index: usize,
    count: usize,
}

impl Shard {
    /// All parts.
    pub const ALL: Self = Self { index: 1, count: 1 };

    /// The share with this number, from 1 to `count`.
    pub fn new(index: usize, count: usize) -> Option<Self> {
        (1 <= index && index <= count).then_some(Self { index, count })
    }

    /// Whether the part with this number, from 0 on, belongs to the share.
    pub(crate) fn has(self, part: usize) -> bool {
        part % self.count == self.index - 1
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// A text that names no share.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no shard; write I/N, from 1/N to N/N")]
pub struct BadShard(String);

impl FromStr for Shard {
    type Err = BadShard;

    fn from_str(text: &str) -> Result<Self, BadShard> {
        let numbers =
            text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        numbers.and_then(|(index, count)| Self::new(index, count)).ok_or_else(|| BadShard(text.to_owned()))
    }
}

/// The right to work on a share, which ends with the process that has it.
pub(super) struct Claim {
    /// Locked as long as it is open.
    _file: File,
}

impl Claim {
    /// Takes the right, unless another process of this machine, or of one with which it shares the file system's locks, has it. Where
    /// there are no locks, two workers do the same work and write the same bytes.
    pub(super) fn take(disk: &Disk, own: &Path, shard: Shard, output: &Path) -> Result<Self, BatchError> {
        let path = own.join(format!("shard-{}-of-{}.lock", shard.index, shard.count));
        let mut file = disk.lock_file(&path).map_err(BatchError::file("open the lock", &path))?;
        match file.try_lock() {
            Ok(()) => {
                // The content is for messages only.
                let _ = file.set_len(0).and_then(|()| write!(file, "process {}", std::process::id()));
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.rewind().and_then(|()| file.read_to_string(&mut holder).map(drop));
                let holder = if holder.is_empty() { "another process".to_owned() } else { holder };
                let (shard, path) = (shard.to_string(), output.to_owned());
                return Err(BatchError::Locked { shard, holder, path });
            }
            Err(TryLockError::Error(_)) => {}
        }
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_counted_from_one_and_share_all_parts() {
        let read = |text: &str| text.parse::<Shard>().map(|shard| shard.to_string()).ok();
        assert_eq!([read("1/1"), read("2/4"), read("4/4")].map(Option::unwrap), ["1/1", "2/4", "4/4"]);
        for wrong in ["", "1", "0/4", "5/4", "0/0", "1/", "/1", "a/b", "-1/2", "1/2/3"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        for count in 1..5 {
            for part in 0..20 {
                let holders = (1..=count).filter(|index| Shard::new(*index, count).unwrap().has(part));
                assert_eq!(holders.count(), 1, "part {part} of {count} shards");
            }
        }
    }

    #[test]
    fn a_shard_has_one_worker() {
        let folder = tempfile::tempdir().unwrap();
        let take = |shard: &str| {
            Claim::take(&Disk::default(), folder.path(), shard.parse().unwrap(), Path::new("out"))
        };
        let held = take("1/2").unwrap();
        let other = take("2/2").unwrap();
        let refused = take("1/2").err().unwrap().to_string();
        let expected = format!("process {} works on shard 1/2\n  in `out`", std::process::id());
        assert_eq!(refused, expected);
        drop(held);
        assert!(take("1/2").is_ok());
        drop(other);
    }
}
