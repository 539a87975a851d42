//! The cache, compared with the one that huggingface_hub writes (`layout.txt`, made by `make.py`).

use tempfile::tempdir;

use crate::{pull, tree};
use redline_testing::hub::{File, TestHub};

#[test]
fn the_cache_is_that_of_huggingface_hub() {
    let files = [
        File::small("additional_chat_templates/rag.jinja", b"{{ messages }}"),
        File::small("config.json", b"{\"architectures\": []}"),
        File::large("model.safetensors", b"weights"),
        File::small("tokenizer.json", b"{}"),
    ];
    let (hub, cache) = (TestHub::start(&files), tempdir().unwrap());
    pull(&hub, cache.path()).unwrap();
    let mut lines = tree(cache.path());
    // Locks may stay, as they do there.
    lines.retain(|line| !line.starts_with(".locks/"));
    let expect: Vec<_> = include_str!("layout.txt").lines().collect();
    assert_eq!(lines, expect);
}
