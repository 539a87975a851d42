//! Downloads from a hub on this machine: the layout of the cache, broken connections, and hostile answers.

mod broken;
mod hostile;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod https;
mod layout;
mod pull;
mod token;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redline_hub::{Hub, HubError, HubOptions, PullEvent};
use redline_weights::{Disk, HubId, HubRoots, WeightsError, resolve_model};

use redline_testing::hub::{File, ID, TestHub};

/// A model with the names of real files: two small ones, one large one, and some that are not downloaded.
fn model() -> Vec<File> {
    let weights: Vec<u8> = (0..100_000_u32).map(|i| (i.wrapping_mul(i) >> 3) as u8).collect();
    vec![
        File::small(".gitattributes", b"* -text"),
        File::small("README.md", b"# A model"),
        File::small("config.json", b"{\"architectures\": []}"),
        File::large("model.safetensors", &weights),
        File::small("modeling_x.py", b"raise SystemExit"),
        File::large("pytorch_model.bin", b"the same weights"),
        File::small("tokenizer.json", b"{}"),
    ]
}

fn options(endpoint: &str) -> HubOptions {
    HubOptions {
        endpoint: endpoint.to_owned(),
        proxy_of_environment: false,
        stall: Duration::from_secs(5),
        retry_pause: Duration::ZERO,
        ..HubOptions::default()
    }
}

/// Pulls the model and returns the directory, with what happened as lines without the progress.
fn pull_with(
    options: &HubOptions,
    id: &str,
    cache: &Path,
    disk: Disk,
) -> (Result<PathBuf, HubError>, Vec<String>) {
    pull_file(options, (id, None), cache, disk)
}

/// As [`pull_with`], with the name of a GGUF file.
fn pull_file(
    options: &HubOptions,
    (id, file): (&str, Option<&str>),
    cache: &Path,
    disk: Disk,
) -> (Result<PathBuf, HubError>, Vec<String>) {
    let mut lines = Vec::new();
    let id = HubId::parse(id).expect("an id");
    let result = Hub::new(options).and_then(|hub| {
        hub.pull(&id, file, cache, disk, &mut |event| {
            if !matches!(event, PullEvent::Progress { .. }) {
                lines.push(format!("{event:?}"));
            }
        })
    });
    (result, lines)
}

fn pull(hub: &TestHub, cache: &Path) -> Result<PathBuf, HubError> {
    pull_with(&options(&hub.endpoint), ID, cache, Disk::default()).0
}

/// The directory that the name of the model means.
fn resolved(cache: &Path) -> Result<PathBuf, WeightsError> {
    resolve_model(ID, &HubRoots { hub_cache: Some(cache.to_owned()), ..HubRoots::default() })
}

/// The message of an error, in which `HUB` stands for the address of the hub.
fn message<T>(result: Result<T, HubError>, hub: &TestHub) -> String {
    let Err(error) = result else { panic!("no error") };
    error.to_string().replace(&hub.endpoint, "HUB")
}

/// All files and links below a directory, sorted: `path`, `path = short content`, `path -> target`.
fn tree(dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(dir).expect("below it").display().to_string();
            if let Ok(target) = fs::read_link(&path) {
                lines.push(format!("{name} -> {}", target.display()));
            } else if path.is_dir() {
                open.push(path);
            } else if name.contains("refs/") {
                lines.push(format!("{name} = {}", fs::read_to_string(&path).expect("text")));
            } else {
                lines.push(name);
            }
        }
    }
    lines.sort();
    lines
}
