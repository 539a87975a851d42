//! Signed models: a list of digests beside the files of a model, and a signature of that list.
//!
//! The list, `SHA256SUMS`, is the output of `sha256sum` for the files of the directory. Its signature, `SHA256SUMS.minisig`, is made
//! by `minisign -S`. Both can be made and checked without Redline. A directory is accepted only as a whole: every file in it is
//! listed, and every listed file exists with its digest, so weights, configuration, tokenizer and chat template belong together.
//! Files in the two folders of further chat templates and in those of the modules of an embedding model (`modules.json`) belong to it,
//! too, with the folder before their name; other folders inside the directory are never read, so they are ignored. Files are read again
//! after the check, so anyone who can write to the directory while a model is loaded must be trusted.

mod fault;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use minisign_verify::{PublicKey, Signature};

pub use self::fault::SignatureFault;
use self::fault::{LIST, SIGNATURE};
use crate::config::ConfigFile;
use crate::digest::Sha256Digest;
use crate::error::{Result, WeightsError};
use crate::file::{exists, is_plain_name, read_file};

/// Folders inside a model directory from which chat templates are read.
const TEMPLATE_FOLDERS: [&str; 2] = ["additional_chat_templates", "chat_templates"];
/// The list of the modules of an embedding model, whose files lie in folders.
const MODULES: &str = "modules.json";
/// Maximum bytes of a list; enough for thousands of files.
const MAX_LIST: u64 = 1 << 20;
/// Maximum bytes of a signature, whose comments are free text.
const MAX_SIGNATURE: u64 = 1 << 14;

/// A `minisign` public key that may sign models.
#[derive(Clone, Debug)]
pub struct SigningKey(PublicKey);

impl SigningKey {
    /// Parses a key in base64, or the content of a file with the key in its last line. `None` if it is not a valid
    /// key.
    pub fn parse(text: &str) -> Option<Self> {
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        PublicKey::from_base64(line).ok().map(Self)
    }
}

/// Checks that the owner of `key` signed the files in a model directory.
///
/// # Errors
/// [`WeightsError::Signed`] names the first file that does not match; [`WeightsError::Io`] a file that cannot be
/// read.
pub fn check_signed(dir: &Path, key: &SigningKey) -> Result<()> {
    let refuse = |fault| WeightsError::Signed { dir: dir.to_owned(), fault };
    let read = |name: &str, limit, absent| {
        let path = dir.join(name);
        if exists(&path)? { read_file(&path, limit) } else { Err(refuse(absent)) }
    };
    let list = read(LIST, MAX_LIST, SignatureFault::NoList)?;
    let signature = read(SIGNATURE, MAX_SIGNATURE, SignatureFault::NoSignature)?;
    verify(&list, &signature, key).map_err(refuse)?;
    let listed = parse(&list).map_err(refuse)?;
    for name in all_files(dir)? {
        if !is_own(&name) && !listed.contains_key(&name) {
            return Err(refuse(SignatureFault::Unlisted { name }));
        }
    }
    // A list cannot contain its own digest, but a list that was generated twice names itself.
    for (name, listed) in listed.into_iter().filter(|(name, _)| !is_own(name)) {
        let path = dir.join(&name);
        if !exists(&path)? {
            return Err(refuse(SignatureFault::Missing { name }));
        }
        let found = Sha256Digest::of_file(&path)?.to_string();
        if found != listed {
            return Err(refuse(SignatureFault::Digest { name, found, listed }));
        }
    }
    Ok(())
}

/// Whether the file is the list or its signature.
fn is_own(name: &str) -> bool {
    [LIST, SIGNATURE].contains(&name)
}

fn verify(list: &[u8], signature: &[u8], key: &SigningKey) -> Result<(), SignatureFault> {
    let bad = |message: String| SignatureFault::Signature { message };
    let text = std::str::from_utf8(signature).map_err(|error| bad(error.to_string()))?;
    let signature = Signature::decode(text).map_err(|error| bad(error.to_string()))?;
    // Early minisign versions sign the text itself instead of its hash. That is as good for a short list.
    key.0.verify(list, &signature, true).map_err(|error| bad(error.to_string()))
}

/// Parses names and digests from the output of `sha256sum`.
fn parse(list: &[u8]) -> Result<BTreeMap<String, String>, SignatureFault> {
    let mut listed = BTreeMap::new();
    for (at, line) in list.split(|&byte| byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let (digest, name) = entry(line).ok_or(SignatureFault::Line { line: at + 1 })?;
        if listed.insert(name.clone(), digest).is_some() {
            return Err(SignatureFault::Twice { name });
        }
    }
    Ok(listed)
}

/// Parses a lower-case digest and the name of a file in the directory or in a folder of it. The character before the name is `*`
/// for binary mode, which is the same on Unix.
fn entry(line: &[u8]) -> Option<(String, String)> {
    let (digest, name) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let name = name.strip_prefix([' ', '*'])?;
    let hexadecimal = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    (hexadecimal && is_signed_name(name)).then(|| (digest.to_ascii_lowercase(), name.to_owned()))
}

/// Whether a list of digests may have this name: a file in the model directory or in a folder of it.
pub fn is_signed_name(name: &str) -> bool {
    let is_in_folder = |(folder, file): (&str, &str)| is_plain_name(folder) && is_plain_name(file);
    is_plain_name(name) || name.split_once('/').is_some_and(is_in_folder)
}

/// The names of the files in a directory and in its folders that are read.
fn all_files(dir: &Path) -> Result<Vec<String>> {
    let mut names = files(dir)?;
    let mut folders: BTreeSet<String> = TEMPLATE_FOLDERS.map(str::to_owned).into();
    if exists(&dir.join(MODULES))? {
        for module in ConfigFile::open_list(&dir.join(MODULES))? {
            let path = Path::new(module.opt_str("path")?.unwrap_or_default());
            folders.extend(path.iter().next().map(|folder| folder.to_string_lossy().into_owned()));
        }
    }
    for folder in folders {
        if dir.join(&folder).is_dir() {
            names.extend(files(&dir.join(&folder))?.into_iter().map(|name| format!("{folder}/{name}")));
        }
    }
    Ok(names)
}

/// The sorted names in a directory, without folders.
fn files(dir: &Path) -> Result<Vec<String>> {
    let list = || {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // Links are followed, because the hub cache consists of links. A dangling link is not a folder.
            if !fs::metadata(entry.path()).is_ok_and(|about| about.is_dir()) {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort_unstable();
        io::Result::Ok(names)
    };
    list().map_err(WeightsError::io("list the files", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that nobody listed is found wherever it is read.
    #[test]
    fn files_of_modules_belong_to_the_model() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, contents: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        };
        write("config.json", "{}");
        write("1_Pooling/config.json", "{}");
        write("2_Dense/model.safetensors", "");
        write("onnx/model.onnx", "");
        assert_eq!(all_files(dir.path()).unwrap(), ["config.json"]);
        write(
            "modules.json",
            r#"[{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense/"}, {"path": "3_Normalize"}]"#,
        );
        let all = ["config.json", "modules.json", "1_Pooling/config.json", "2_Dense/model.safetensors"];
        assert_eq!(all_files(dir.path()).unwrap(), all);
        assert!(all.iter().all(|name| is_signed_name(name)));
        write("modules.json", "{");
        assert!(all_files(dir.path()).is_err());
    }

    #[test]
    fn lists_are_those_of_sha256sum() {
        let digest = "0123456789abcdef".repeat(4);
        let folder = TEMPLATE_FOLDERS[0];
        let all = format!(
            "{digest}  a b.json\n{} *model.safetensors\n{digest}  {folder}/a.jinja\n\n",
            digest.to_uppercase()
        );
        let listed = parse(all.as_bytes()).unwrap();
        let template = format!("{folder}/a.jinja");
        let expected =
            ["a b.json", "model.safetensors", &template].map(|name| (name.to_owned(), digest.clone()));
        assert_eq!(listed, BTreeMap::from(expected));
        for bad in [
            format!("{digest} a"),
            format!("{digest}  "),
            format!("{digest}  ../a"),
            format!("{digest}  {folder}/"),
            format!("{digest}  {folder}/../a"),
            format!("{digest}  {folder}/a/b"),
            format!("{digest}  /a"),
            format!("{}  a", &digest[1..]),
            format!("g{}  a", &digest[1..]),
            format!("\\{digest}  a"),
            "a".to_owned(),
        ] {
            let list = format!("{digest}  first\n{bad}\n");
            assert_eq!(parse(list.as_bytes()), Err(SignatureFault::Line { line: 2 }), "{bad:?}");
        }
        assert_eq!(parse(b"\xff\n"), Err(SignatureFault::Line { line: 1 }));
        let twice = format!("{digest}  a\n{digest}  a\n");
        assert_eq!(parse(twice.as_bytes()), Err(SignatureFault::Twice { name: "a".into() }));
    }
}
