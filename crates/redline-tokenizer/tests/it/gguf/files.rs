//! Vocabularies of real models, if the build names their folder: `models/` of llama.cpp, whose files `ggml-vocab-NAME.gguf`
//! come with texts (`.inp`) and the ids that the reference tokenizers gave (`.out`). They take 60 MB, so they are not here:
//! `REDLINE_GGUF_VOCABULARIES=DIR cargo test -p redline-tokenizer gguf -- --nocapture`

use super::reader;
use redline_tokenizer::{Encoder, Tokenizer};
use std::path::Path;

const FOLDER: Option<&str> = option_env!("REDLINE_GGUF_VOCABULARIES");

/// The texts of an `.inp` file with the ids of its `.out` file.
fn cases(path: &Path) -> Option<Vec<(String, Vec<u32>)>> {
    let beside = |end: &str| std::fs::read_to_string(format!("{}.{end}", path.display())).ok();
    let (texts, ids) = (beside("inp")?, beside("out")?);
    let texts = texts.split("\n__ggml_vocab_test__\n");
    let ids = ids.lines().map(|line| line.split_whitespace().map(|id| id.parse().unwrap()).collect());
    Some(texts.map(str::to_owned).zip(ids).collect())
}

/// The texts with other ids than expected.
fn differences(tokenizer: &Tokenizer, cases: &[(String, Vec<u32>)]) -> Vec<String> {
    let show =
        |ids: &[u32]| ids.iter().map(|id| tokenizer.token(*id).unwrap_or_default()).collect::<Vec<_>>();
    let different = cases.iter().filter_map(|(text, expected)| {
        let ids = tokenizer.encode(text, false).unwrap();
        (ids != *expected).then(|| format!("{text:?}: {:?} instead of {:?}", show(&ids), show(expected)))
    });
    different.collect()
}

#[test]
fn gguf_files_of_real_vocabularies() {
    let Some(folder) = FOLDER else {
        redline_testing::skip("REDLINE_GGUF_VOCABULARIES was not set when this test was built");
        return;
    };
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "gguf")).collect();
    files.sort();
    assert!(!files.is_empty(), "no vocabularies in {folder}");
    let mut faults = Vec::new();
    for path in files {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let vocabulary = reader::vocabulary(&reader::metadata(&std::fs::read(&path).unwrap()));
        let tokenizer = match vocabulary.tokenizer(&name) {
            Ok(tokenizer) => tokenizer,
            Err(error) => {
                faults.push(format!("{name}: {error}"));
                continue;
            }
        };
        let how = match tokenizer.encoder() {
            Encoder::Native => "native".to_owned(),
            Encoder::Library => format!("library: {}", tokenizer.fallback().unwrap_or("")),
        };
        let cases = cases(&path);
        let found = differences(&tokenizer, cases.as_deref().unwrap_or_default());
        let texts = cases.map_or(0, |cases| cases.len());
        let ends = vocabulary.end_ids(&name).unwrap();
        let ends: Vec<_> = ends.iter().map(|id| tokenizer.token(*id).unwrap_or_default()).collect();
        println!("{name}: {texts} texts, {} differences; {how}; ends {ends:?}", found.len());
        faults.extend(found.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
