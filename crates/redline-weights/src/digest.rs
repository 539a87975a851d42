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

/// Computes the digest of bytes that arrive in pieces, independent of where they are cut.
#[derive(Clone, Default)]
pub struct Sha256Hasher(Sha256);

impl Sha256Hasher {
    /// Adds further bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes.
    pub fn finish(self) -> Sha256Digest {
        Sha256Digest(self.0.finalize().into())
    }
}

impl Sha256Digest {
    /// The digest that consists of these bytes.
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of the bytes of these values, little-endian.
    pub fn of_values(values: &[f32]) -> Self {
        /// Values that are converted to bytes together.
        const TOGETHER: usize = 256;
        let mut bytes = [0; 4 * TOGETHER];
        let mut hash = Sha256::new();
        for values in values.chunks(TOGETHER) {
            let bytes = &mut bytes[..4 * values.len()];
            for (to, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
                *to = value.to_le_bytes();
            }
            hash.update(bytes);
        }
        Self(hash.finalize().into())
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

    /// The digest of a file.
    pub fn of_file(path: &Path) -> Result<Self> {
        let mut hash = Sha256::new();
        read_blocks(path, |block| hash.update(block))?;
        Ok(Self(hash.finalize().into()))
    }

    /// The digest of the files of a model directory that say how texts become tokens, and answers texts or vectors: names and contents of
    /// configuration, tokenizer, chat templates, and of the modules of sentence-transformers with their weights.
    pub fn of_text_files(dir: &Path) -> Result<Self> {
        let mut files = Vec::new();
        list_text_files(dir, None, &mut files)?;
        files.sort_unstable();
        let mut parts = Vec::new();
        for file in files {
            let name = file.strip_prefix(dir).unwrap_or(&file).to_string_lossy().into_owned();
            parts.extend([name, Self::of_file(&file)?.to_string()]);
        }
        Ok(Self::of_texts(parts))
    }
}

/// The names of files about texts.
const TEXT_FILES: [&str; 14] = [
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "config_sentence_transformers.json",
    "generation_config.json",
    "merges.txt",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
];

/// Adds the files of `dir` about texts, and those of its folders, of which `folder` is one.
fn list_text_files(dir: &Path, folder: Option<&str>, files: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |error| WeightsError::io("list the files", dir)(error);
    // A module of sentence-transformers: `1_Pooling`, and in a converted directory `1_Pooling.config.json`.
    let is_module =
        |name: &str| name.split_once('_').is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_template = |name| matches!(name, "additional_chat_templates" | "chat_templates");
        if path.is_dir() {
            if folder.is_none() && (is_module(name) || is_template(name)) {
                list_text_files(&path, Some(name), files)?;
            }
        } else if folder.is_some() || TEXT_FILES.contains(&name) || is_module(name) {
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
        assert_eq!(Sha256Digest::of_file(&path).unwrap().to_string(), abc);
        assert!(Sha256Digest::of_file(&path.join("none")).is_err());
        let values: Vec<f32> = (0..700).map(|i| i as f32 * 0.37 - 3.0).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(Sha256Digest::of_values(&values), Sha256Digest::of(&bytes));
        let mut pieces = Sha256Hasher::default();
        for piece in ["a", "", "bc"] {
            pieces.add(piece.as_bytes());
        }
        assert_eq!(pieces.finish().to_string(), abc);
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
        assert!(changes("2_Dense/model.safetensors", "1") && changes("2_Dense.model.safetensors", "1"));
        assert!(changes("chat_templates/tools.jinja", "1"));
        assert!(
            !changes("README.md", "1") && !changes("onnx/config.json", "1") && !changes("results.json", "1")
        );
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
        let whole = Sha256Digest::of_file(&path).unwrap();
        *bytes.last_mut().unwrap() = 8;
        fs::write(&path, &bytes).unwrap();
        assert_ne!(Sha256Digest::of_file(&path).unwrap(), whole);
    }
}
