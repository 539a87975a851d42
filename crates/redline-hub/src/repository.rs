//! The list of files of a revision.

use redline_weights::HubId;
use serde_json::Value;

use crate::client::{Client, escaped};
use crate::error::{HubError, Result};

/// Maximum bytes of the answer that lists the files.
const LIST: u64 = 64 << 20;

/// The files of a commit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Repository {
    /// 40 hexadecimal digits.
    pub(crate) commit: String,
    pub(crate) files: Vec<RemoteFile>,
}

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteFile {
    /// The path in the repository.
    pub(crate) name: String,
    /// The SHA-256 of the content, or the SHA-1 of its git blob, in lower-case hexadecimal digits, and the length in bytes.
    pub(crate) content: Option<(String, u64)>,
}

impl Repository {
    /// Requests the list of files.
    pub(crate) fn of(client: &Client, id: &HubId) -> Result<Self> {
        let revision = escaped(id.revision());
        let path = format!("/api/models/{}/revision/{revision}?blobs=true", id.model());
        let mut answer = client.get(&path, 0)?;
        let bad = |problem: String| HubError::Answer { problem, url: client.url(&path) };
        let json =
            answer.body.with_config().limit(LIST).read_to_vec().map_err(|error| bad(error.to_string()))?;
        let json = serde_json::from_slice(&json).map_err(|error| bad(format!("not JSON: {error}")))?;
        Self::parse(&json).map_err(bad)
    }

    fn parse(json: &Value) -> Result<Self, String> {
        let commit = json["sha"].as_str().filter(|commit| is_hexadecimal(commit, 40));
        let commit = commit.ok_or("`sha` is not a commit of 40 hexadecimal digits")?.to_owned();
        let siblings = json["siblings"].as_array().ok_or("`siblings` is not a list")?;
        let files: Option<Vec<_>> = siblings.iter().map(RemoteFile::parse).collect();
        Ok(Self { commit, files: files.ok_or("a file in `siblings` has no `rfilename`")? })
    }

    /// The file of this name.
    pub(crate) fn file(&self, name: &str) -> Option<&RemoteFile> {
        self.files.iter().find(|file| file.name == name)
    }
}

impl RemoteFile {
    fn parse(json: &Value) -> Option<Self> {
        let lfs = &json["lfs"];
        let hash = lfs["sha256"].as_str().or_else(|| json["blobId"].as_str().filter(|_| lfs.is_null()));
        let bytes = lfs["size"].as_u64().or_else(|| json["size"].as_u64());
        let name = json["rfilename"].as_str()?.to_owned();
        Some(Self { name, content: hash.filter(|hash| is_hash(hash)).map(str::to_owned).zip(bytes) })
    }
}

/// Whether this is a SHA-1 or a SHA-256 in lower-case hexadecimal digits.
pub(crate) fn is_hash(text: &str) -> bool {
    is_hexadecimal(text, 40) || is_hexadecimal(text, 64)
}

fn is_hexadecimal(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hashes_and_lengths_are_those_of_the_content() {
        let (commit, blob, sha256) = ("c".repeat(40), "b".repeat(40), "a".repeat(64));
        let list = json!({"sha": commit, "siblings": [
            {"rfilename": "config.json", "blobId": blob, "size": 7},
            // The blob of a file in LFS is its pointer.
            {"rfilename": "model.safetensors", "blobId": blob, "size": 9, "lfs": {"sha256": sha256, "size": 9}},
            {"rfilename": "without"},
            {"rfilename": "hostile", "blobId": "../../../../x", "size": 7},
        ]});
        let repository = Repository::parse(&list).unwrap();
        let content: Vec<_> = repository.files.iter().map(|file| file.content.clone()).collect();
        assert_eq!(content, [Some((blob, 7)), Some((sha256, 9)), None, None]);
    }

    #[test]
    fn a_list_without_a_commit_or_names_is_refused() {
        let commit = "c".repeat(40);
        for list in [
            json!([]),
            json!({"siblings": []}),
            json!({"sha": "../../x", "siblings": []}),
            json!({"sha": "C".repeat(40), "siblings": []}),
            json!({"sha": commit}),
            json!({"sha": commit, "siblings": [{}]}),
        ] {
            assert!(Repository::parse(&list).is_err(), "{list}");
        }
    }
}
