//! SHA-256 digests of texts, bytes and files, as `sha256sum` prints them.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::error::{Result, WeightsError};
use crate::file::read_blocks;

/// A SHA-256 digest, written as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of texts in their order. Different lists of texts have different digests.
    pub fn of_texts<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        let mut hash = Sha256::new();
        for text in texts {
            // Each text is preceded by its length, so that different lists never hash the same bytes.
            hash.update((text.as_ref().len() as u64).to_le_bytes());
            hash.update(text.as_ref());
        }
        Self(hash.finalize().into())
    }

    /// The digest of a file, which is read in blocks; `read` gets the length of each.
    pub fn of_file(path: &Path, mut read: impl FnMut(usize)) -> Result<Self> {
        let mut hash = Sha256::new();
        read_blocks(path, |block| {
            hash.update(block);
            read(block.len());
        })?;
        Ok(Self(hash.finalize().into()))
    }

    /// The digest of the files of a model directory that are no weights, such as configuration, tokenizer and chat templates: of names
    /// and contents, those in its folders included.
    pub fn of_text_files(dir: &Path) -> Result<Self> {
        let mut files = Vec::new();
        list_text_files(dir, true, &mut files)?;
        files.sort_unstable();
        let mut parts = Vec::new();
        for file in files {
            let name = file.strip_prefix(dir).unwrap_or(&file).to_string_lossy().into_owned();
            parts.extend([name, Self::of_file(&file, |_| ())?.to_string()]);
        }
        Ok(Self::of_texts(parts))
    }
}

/// Adds the files of `dir` that say how texts are read and written; with `folders`, those in its folders too.
fn list_text_files(dir: &Path, folders: bool, files: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |error| WeightsError::io("list the files", dir)(error);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() {
            if folders {
                list_text_files(&path, false, files)?;
            }
        } else if matches!(ending, Some("json" | "jinja" | "txt" | "model"))
            && !path.to_string_lossy().ends_with(".index.json")
        {
            files.push(path);
        }
    }
    Ok(())
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_sha256sum_whatever_is_hashed() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Sha256Digest::of(b"abc").to_string(), abc);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        fs::write(&path, "abc").unwrap();
        let mut bytes = 0;
        assert_eq!(Sha256Digest::of_file(&path, |length| bytes += length).unwrap().to_string(), abc);
        assert_eq!(bytes, 3);
        assert!(Sha256Digest::of_file(&path.join("none"), drop).is_err());
    }

    #[test]
    fn text_files_are_those_of_tokenizer_and_templates() {
        let folder = tempfile::tempdir().unwrap();
        let digest = || Sha256Digest::of_text_files(folder.path()).unwrap();
        let mut seen = vec![digest()];
        let mut changes = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
            let now = digest();
            let is_new = !seen.contains(&now);
            seen.push(now);
            is_new
        };
        assert!(
            changes("tokenizer.json", "1") && changes("tokenizer.json", "2") && changes("vocab.txt", "2")
        );
        assert!(changes("1_Pooling/config.json", "1") && changes("chat_template.jinja", "1"));
        assert!(!changes("model.safetensors", "1") && !changes("model.safetensors.index.json", "1"));
        assert!(!changes("README.md", "1") && !changes("onnx/deeper/config.json", "1"));
    }

    #[test]
    fn where_texts_are_cut_matters() {
        let digests = [vec!["ab", "c"], vec!["a", "bc"], vec!["abc"], vec!["abc", ""]]
            .map(|texts| Sha256Digest::of_texts(texts).to_string());
        for (index, digest) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(digest), "{index}");
        }
    }

    #[test]
    fn a_digest_covers_a_large_file_to_its_last_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        // Two and a half reads.
        let mut bytes = vec![7_u8; 5 << 19];
        fs::write(&path, &bytes).unwrap();
        let whole = Sha256Digest::of_file(&path, |_| ()).unwrap();
        *bytes.last_mut().unwrap() = 8;
        fs::write(&path, &bytes).unwrap();
        assert_ne!(Sha256Digest::of_file(&path, |_| ()).unwrap(), whole);
    }
}
