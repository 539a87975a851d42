//! The crate's error type: the message states the fact with numbers, then the place.

use redline_weights::WeightsError;

/// `Result` with [`HubError`].
pub(crate) type Result<T, E = HubError> = std::result::Result<T, E>;

/// Longest text of a server in a message.
const LONGEST: usize = 200;

/// A model of a repository in GGUF files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufChoice {
    /// The path of the file in the repository, or of the first part of a split.
    pub name: String,
    /// Number of files.
    pub files: usize,
    /// The sum of their lengths, if the hub says them.
    pub bytes: Option<u64>,
}

/// Why a model was not downloaded.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each message says what its fields are
pub enum HubError {
    #[error("`{endpoint}` is not the address of a hub: {problem}")]
    Endpoint { endpoint: String, problem: String },
    #[error("the access token has a character that is not visible ASCII")]
    Token,
    #[error("the certificates cannot be used: {problem}")]
    Certificates { problem: String },
    #[error(
        "this processor lacks the instructions that `https` needs here (AES, carry-less multiplication, AVX2)\n  in `{url}`"
    )]
    NoHttps { url: String },
    #[error("no connection: {cause}\n  in `{url}`")]
    Connection { cause: String, url: String },
    /// `code` is the hub's name of the reason (`RepoNotFound`, `GatedRepo`, ...), `message` its explanation; either may be
    /// empty.
    #[error("the hub answers with status {status}{}{}\n  in `{url}`", after(" ", code), after(": ", message))]
    Status { status: u16, code: String, message: String, url: String },
    #[error("the answer cannot be used: {problem}\n  in `{url}`")]
    Answer { problem: String, url: String },
    #[error("the download of `{file}` ended at byte {have} of {bytes}: {cause}\n  in `{url}`")]
    Broken { file: String, have: u64, bytes: u64, cause: String, url: String },
    #[error("the hash of `{file}` is {found}, but the hub names {expected}\n  in `{url}`")]
    Hash { file: String, expected: String, found: String, url: String },
    /// `files` are the first names of the repository.
    #[error("the repository has no {missing}; it has {files}\n  in `{id}`")]
    Unusable { id: String, missing: &'static str, files: String },
    /// `models` are all those of the repository.
    #[error("{fact}\n  in `{id}`")]
    Choice { id: String, fact: String, models: Vec<GgufChoice> },
    #[error(transparent)]
    Disk(#[from] WeightsError),
}

fn after(separator: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{separator}{text}") }
}

/// An address for a message: without a user name and a password, and without a query, which may be a signature.
pub(crate) fn address(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (host, path) = rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let separator = if scheme.is_empty() { "" } else { "://" };
    let path = path.map_or_else(String::new, |path| format!("/{path}"));
    format!("{scheme}{separator}{host}{path}")
}

/// The beginning of a text that a server sent, without control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_is_secret() {
        for (url, shown) in [
            ("https://cdn/a/b?Signature=s&Key=k", "https://cdn/a/b"),
            ("https://user:pw@host:80/x@y#z", "https://host:80/x@y"),
            ("https://user:pw@host", "https://host"),
            ("user:pw@host", "host"),
            ("/path?x", "/path"),
            ("", ""),
        ] {
            assert_eq!(address(url), shown, "{url}");
        }
    }
}
