//! `redline pull`: downloads a model from the Hugging Face hub into its local cache.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use redline_hub::{GgufChoice, Hub, HubError, HubOptions, PullEvent};
use redline_system::number;
use redline_weights::{Disk, HubId, WeightsError, cached_model, read_file};

use super::Context;
use crate::env::{self, Environment};
use crate::message::{self, Failure};
use crate::model::hub_roots;
use crate::progress::Bar;
use crate::spelling::spelled;
use crate::{output, value};

/// Maximum bytes of the file with the access token.
const MAX_TOKEN: u64 = 4096;
/// Maximum bytes of the file with root certificates.
const MAX_CERTIFICATES: u64 = 16 << 20;

/// Without a terminal, downloads of at least this many bytes have a line for each tenth.
const LONG: u64 = 128 << 20;

/// The files that are downloaded, for the help.
const FILES: &str = "Downloads what Redline reads: configuration, tokenizer, chat templates, and safetensors, or `pytorch_model.bin` if \
    there are none, with the folders that `modules.json` of an embedding model names. Of a repository with GGUF files and no others, or with \
    --file, it downloads one model. Prints the directory of the model, or the path of the GGUF file. The cache is the one that huggingface_hub uses: each finds what the other has \
    downloaded, and `--model ID` finds both. The hash of every file that is downloaded is checked; a file that the cache has, with \
    the name of the hash and the right length, is used unread. After an interruption the same command continues. A model that is \
    private or whose conditions must be accepted needs an access token: HF_TOKEN, or the one that `hf auth login` stores. A proxy \
    is taken from HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY.";

/// Flags of `pull`.
#[derive(Debug, Args)]
#[command(after_help = FILES)]
pub(super) struct PullArgs {
    /// The model on the hub: its id, `ORG/NAME` or such as `gpt2`; `@REVISION` after it is a branch, a tag or a commit
    #[arg(value_name = "ID[@REVISION]", value_parser = value::hub_id)]
    id: HubId,
    /// Of several models in GGUF files: the one of this name, or with this in its name, such as `Q4_K_M`; a split is downloaded whole
    #[arg(long, value_name = "NAME")]
    file: Option<String>,
}

/// Downloads the model and prints its directory.
pub(super) fn run(args: &PullArgs, context: &Context) -> Result<ExitCode, Failure> {
    let environment = context.environment;
    let id = &args.id;
    let dir = if environment.is_on(env::HF_HUB_OFFLINE) {
        let dir = cached(id, environment)?;
        match &args.file {
            Some(file) => cached_file(&dir, file)?,
            None => dir,
        }
    } else {
        let options = options(environment)?;
        download(args, &options, environment)?
    };
    output::line(&dir.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// The directory of a model that the cache has.
fn cached(id: &HubId, environment: Environment) -> Result<PathBuf, Failure> {
    cached_model(id, &hub_roots(environment)).map_err(|error| {
        let hint = format!("nothing is downloaded while {} is set: unset it", env::HF_HUB_OFFLINE.name);
        Failure::failed(error.to_string(), Some(hint))
    })
}

/// A GGUF file of a model that the cache has, by its path.
fn cached_file(dir: &Path, file: &str) -> Result<PathBuf, Failure> {
    let path = dir.join(file);
    let is_inside = Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
    if is_inside && path.is_file() {
        return Ok(path);
    }
    let hint = format!("nothing is downloaded while {} is set: unset it", env::HF_HUB_OFFLINE.name);
    Err(Failure::failed(format!("there is no file `{file}`\n  in `{}`", dir.display()), Some(hint)))
}

fn download(args: &PullArgs, options: &HubOptions, environment: Environment) -> Result<PathBuf, Failure> {
    let id = &args.id;
    let Some(cache) = hub_roots(environment).caches().into_iter().next() else {
        let hint = format!("set {} to a directory", env::HF_HUB_CACHE.name);
        return Err(Failure::failed(
            "there is no place for the cache: no home directory is known",
            Some(hint),
        ));
    };
    let failed = |error: HubError| {
        let hint = hint(&error, id, options);
        Failure::failed(error.to_string(), hint)
    };
    let mut report = Report::new(id);
    let hub = Hub::new(options).map_err(failed)?;
    let pulled =
        hub.pull(id, args.file.as_deref(), &cache, Disk::default(), &mut |event| report.show(&event));
    report.bar.clear();
    pulled.map_err(failed)
}

/// How the hub is reached, from the environment.
fn options(environment: Environment) -> Result<HubOptions, Failure> {
    let text = |variable| environment.value(variable, |text| Ok(text.to_owned()));
    let mut options = HubOptions::default();
    if let Some(endpoint) = text(env::HF_ENDPOINT)? {
        options.endpoint = endpoint;
    }
    options.token = match text(env::HF_TOKEN)? {
        Some(token) => Some(token.trim().to_owned()),
        None => stored_token(environment)?,
    };
    if let Some(path) = environment.path(env::SSL_CERT_FILE) {
        let read = read_file(&path, MAX_CERTIFICATES);
        options.certificates = Some(read.map_err(|error| Failure::advised(&error, error.hint()))?);
    }
    Ok(options)
}

/// The token that `hf auth login` has stored, if there is one.
fn stored_token(environment: Environment) -> Result<Option<String>, Failure> {
    let file = environment.path(env::HF_TOKEN_PATH);
    let below = |variable, inner: &str| environment.path(variable).map(|root| root.join(inner));
    let file = file
        .or_else(|| below(env::HF_HOME, "token"))
        .or_else(|| below(env::XDG_CACHE_HOME, "huggingface/token"))
        .or_else(|| below(env::HOME, ".cache/huggingface/token"));
    let Some(file) = file else { return Ok(None) };
    match read_file(&file, MAX_TOKEN) {
        Ok(token) => Ok(Some(String::from_utf8_lossy(&token).trim().to_owned())),
        Err(WeightsError::Io { error, .. })
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(Failure::advised(&error, error.hint())),
    }
}

/// What the user can do about an error.
fn hint(error: &HubError, id: &HubId, options: &HubOptions) -> Option<String> {
    let again = format!("`redline pull {id}` continues where this download ended");
    Some(match error {
        HubError::Endpoint { .. } => {
            format!("{} is an address such as https://huggingface.co", env::HF_ENDPOINT.name)
        }
        HubError::Token => format!("copy the token for {} again from {}/settings/tokens", env::HF_TOKEN.name, options.endpoint),
        HubError::Certificates { .. } => {
            format!("{} names a file of root certificates in PEM format", env::SSL_CERT_FILE.name)
        }
        HubError::NoHttps { .. } => {
            format!("`hf download {id}` of the Python package huggingface_hub downloads into the same cache")
        }
        HubError::Connection { .. } => format!(
            "check the network; {} names another address of the hub, HTTPS_PROXY a proxy",
            env::HF_ENDPOINT.name
        ),
        HubError::Status { status, code, .. } => status_hint(*status, code, id, options)?,
        HubError::Answer { .. } => {
            format!("does {} name a Hugging Face hub? if so, try again later", env::HF_ENDPOINT.name)
        }
        HubError::Broken { .. } => again,
        HubError::Hash { .. } => "the file on the hub is damaged, or something on the way changes it: try again later".to_owned(),
        HubError::Choice { models, .. } => {
            let size = |model: &GgufChoice| model.bytes.map_or("of unknown size".to_owned(), number::bytes);
            let files = |model: &GgufChoice| {
                if model.files > 1 { format!(", {}", number::count(model.files, "file")) } else { String::new() }
            };
            let line = |model: &GgufChoice| format!("\n  {}  {}{}", model.name, size(model), files(model));
            let list: String = models.iter().map(line).collect();
            format!("`redline pull {id} --file NAME` downloads one of these:{list}")
        }
        HubError::Unusable { .. } => {
            "Redline reads models in the format of transformers, `config.json` with safetensors or PyTorch weights, and GGUF files"
                .to_owned()
        }
        HubError::Disk(WeightsError::Io { error, .. }) if message::is_full(error) => {
            format!("free some space, or name a directory elsewhere with {}; {again}", env::HF_HUB_CACHE.name)
        }
        HubError::Disk(error) => return spelled(error.hint()),
    })
}

/// What the user can do about a status. The hub answers 401 for a repository that does not exist too.
fn status_hint(status: u16, code: &str, id: &HubId, options: &HubOptions) -> Option<String> {
    let page = format!("{}/{}", options.endpoint.trim_end_matches('/'), id.model());
    let token = env::HF_TOKEN.name;
    let signed_in = options.token.as_ref().is_some_and(|token| !token.is_empty());
    Some(match (status, code) {
        (_, "GatedRepo") if signed_in => {
            format!("accept the conditions of this model on {page}, with the account of the token")
        }
        (_, "GatedRepo") => format!(
            "accept the conditions of this model on {page}, and set {token} to a token of that account"
        ),
        (404, "RevisionNotFound") => {
            format!("the model has no revision `{}`; {page}/tree/main lists them", id.revision())
        }
        (401 | 403, _) if signed_in => {
            format!(
                "check the spelling of `{}`; if the model is private, the token must be valid and allow to read it",
                id.model()
            )
        }
        (401 | 403, _) => {
            format!("check the spelling of `{}`; if the model is private, set {token}", id.model())
        }
        (404, _) => format!("check the spelling of `{}`", id.model()),
        (429, _) => format!("the hub limits the number of requests: wait some minutes, or set {token}"),
        (500.., _) => "the hub has a fault: try again later".to_owned(),
        _ => return None,
    })
}

/// Shows what happens: a bar on a terminal, else a line per file, and in a long download one for each tenth.
struct Report {
    bar: Bar,
    /// Whether the next bytes on disk were there before.
    found: bool,
    tenths: u64,
}

impl Report {
    fn new(id: &HubId) -> Self {
        Self { bar: Bar::of_bytes(id.to_string()), found: true, tenths: 0 }
    }

    fn show(&mut self, event: &PullEvent) {
        match event {
            PullEvent::Start { files, bytes } => {
                self.bar.line(&format!("{}, {}", number::count(*files, "file"), number::bytes(*bytes)));
            }
            PullEvent::Waiting { file } => {
                self.bar.note(&format!("{file}: waiting for another process, which downloads it"));
            }
            PullEvent::Progress { done, total } => self.progress(*done, *total),
            PullEvent::Retry { file, cause } => self.bar.note(&format!("{file}: {cause}; trying again")),
            PullEvent::Done { file, bytes, cached } => {
                let had = if *cached { ", was in the cache" } else { "" };
                self.bar.line(&format!("{file}: {}{had}", number::bytes(*bytes)));
                self.found = true;
            }
        }
    }

    fn progress(&mut self, done: u64, total: u64) {
        let tenths = done.saturating_mul(10).checked_div(total).unwrap_or_default();
        if self.found {
            self.bar.start_at(done, total);
        } else {
            self.bar.show(done, total);
            if total >= LONG && tenths > self.tenths && tenths < 10 {
                self.bar.line(&format!("{}0 % of {}", tenths, number::bytes(total)));
            }
        }
        self.found = false;
        self.tenths = tenths;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_way_in() {
        let id = HubId::parse("org/name@v2").unwrap();
        let hint = |status, code, token: Option<&str>| {
            let options = HubOptions { token: token.map(str::to_owned), ..HubOptions::default() };
            status_hint(status, code, &id, &options).unwrap_or_default()
        };
        let page = "https://huggingface.co/org/name";
        assert_eq!(
            hint(401, "GatedRepo", None),
            format!(
                "accept the conditions of this model on {page}, and set HF_TOKEN to a token of that account"
            )
        );
        assert!(hint(403, "GatedRepo", Some("t")).ends_with("with the account of the token"));
        assert!(hint(401, "RepoNotFound", None).ends_with("if the model is private, set HF_TOKEN"));
        assert!(hint(401, "RepoNotFound", Some("t")).contains("must be valid"));
        assert!(hint(404, "RevisionNotFound", None).contains("no revision `v2`"));
        assert_eq!(hint(404, "", None), "check the spelling of `org/name`");
        assert!(hint(429, "", None).contains("set HF_TOKEN") && hint(503, "", None).contains("later"));
        assert_eq!(hint(418, "", None), "");
    }

    #[test]
    fn a_full_disk_names_the_cache_and_how_to_continue() {
        let id = HubId::parse("org/name").unwrap();
        let full = |kind: io::ErrorKind| {
            let error = WeightsError::Io { action: "write the file", path: "x".into(), error: kind.into() };
            hint(&HubError::Disk(error), &id, &HubOptions::default())
        };
        let expect = "free some space, or name a directory elsewhere with HF_HUB_CACHE; \
                      `redline pull org/name` continues where this download ended";
        assert_eq!(full(io::ErrorKind::StorageFull).as_deref(), Some(expect));
        assert_eq!(full(io::ErrorKind::QuotaExceeded).as_deref(), Some(expect));
        assert_eq!(full(io::ErrorKind::PermissionDenied), None);
    }
}
