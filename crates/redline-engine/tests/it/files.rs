//! Model files that change while the model runs. Weights are copied at load and no file is mapped, so later changes of the
//! files cannot affect an answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redline_engine::{Cancel, Engine, GenerateOutcome, Label, Options};
use redline_kernels::{Exec, Format, Simd, Team};
use redline_models::{ConvertOptions, convert};

use crate::models::{demo_dir, generation, options, request, text};

/// The change that is made to every file of a model directory.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// Truncated to zero length, so that a page of a mapped file would no longer exist.
    Truncated,
    /// Other bytes written to the same file.
    Overwritten,
    /// Deleted.
    Unlinked,
    /// Replaced by another file with the same name.
    Replaced,
}

const ALL: [Damage; 4] = [Damage::Truncated, Damage::Overwritten, Damage::Unlinked, Damage::Replaced];

impl Damage {
    fn inflict(self, dir: &Path) {
        let files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= 4, "{files:?}");
        for path in files {
            let length = fs::metadata(&path).unwrap().len() as usize;
            match self {
                Self::Truncated => fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap(),
                Self::Overwritten => fs::write(&path, vec![0xa5; length]).unwrap(),
                Self::Unlinked => fs::remove_file(&path).unwrap(),
                Self::Replaced => {
                    let other = path.with_extension("other");
                    fs::write(&other, vec![0x5a; length]).unwrap();
                    fs::rename(&other, &path).unwrap();
                }
            }
        }
    }
}

/// Copies the demo model's files to a separate directory.
fn checkpoint(dir: &Path) -> PathBuf {
    let to = dir.join("checkpoint");
    fs::create_dir(&to).unwrap();
    for name in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(demo_dir().join(name), to.join(name)).unwrap();
    }
    to
}

/// The same, converted.
fn converted(dir: &Path) -> PathBuf {
    let (team, to) = (Team::new(2).unwrap(), dir.join("converted"));
    let exec = Exec { simd: Simd::best(), team: &team };
    let options = ConvertOptions { format: Format::W8 { group: 128 }, outliers: 0.0 };
    convert(exec, &demo_dir(), &to, options, &mut |_| Ok(())).unwrap();
    to
}

/// Continues a prompt; `event` happens in pass number `at`, on the engine's thread, and so between two tokens.
fn disturbed(dir: &Path, at: usize, event: impl Fn() + Send + Sync + 'static) -> (Engine, GenerateOutcome) {
    let passes = AtomicUsize::new(0);
    let trace = Arc::new(move |_: &[_]| {
        if passes.fetch_add(1, Ordering::Relaxed) == at {
            event();
        }
    });
    let engine = Engine::load(Options { trace: Some(trace), ..options(dir) }).unwrap();
    let outcome =
        engine.generate(generation(text("And the LORD said unto"), 40), &Cancel::new(), &mut |_| ());
    (engine, outcome.unwrap())
}

#[test]
fn files_that_change_while_tokens_come_change_no_token() {
    for make in [checkpoint, converted] {
        let folder = tempfile::tempdir().unwrap();
        let (undisturbed, expected) = disturbed(&make(folder.path()), usize::MAX, || ());
        assert_eq!(expected.token_ids.len(), 40);
        for damage in ALL {
            let folder = tempfile::tempdir().unwrap();
            let dir = make(folder.path());
            let (files, happened) = (dir.clone(), Arc::new(AtomicUsize::new(0)));
            let seen = Arc::clone(&happened);
            let (engine, outcome) = disturbed(&dir, 5, move || {
                damage.inflict(&files);
                seen.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(happened.load(Ordering::Relaxed), 1, "it happened while tokens came");
            assert_eq!(
                (&outcome.token_ids, &outcome.text),
                (&expected.token_ids, &expected.text),
                "{damage:?}"
            );
            // Nothing is read lazily either: other words and other modes still work.
            assert_eq!(later(&engine), later(&undisturbed), "{damage:?}");
        }
    }
}

/// An engine's answer to words that it has not seen before.
fn later(engine: &Engine) -> (Vec<u32>, String) {
    let again = generation(text("Unseen: 1914, \u{e9}t\u{e9} & other words"), 8);
    let generated = engine.generate(again, &Cancel::new(), &mut |_| ()).unwrap();
    let scored = request(text("Nowhere else said"), vec![text(" follow")], vec![Label::Ids(vec![7])]);
    let scored = engine.score(scored).unwrap();
    (generated.token_ids, format!("{:?}", scored.items))
}

#[test]
fn files_that_changed_before_they_were_loaded_are_refused() {
    for make in [checkpoint, converted] {
        for damage in ALL {
            let folder = tempfile::tempdir().unwrap();
            let dir = make(folder.path());
            damage.inflict(&dir);
            let error = Engine::load(options(&dir)).err().expect("a refusal").to_string();
            assert!(error.contains("\n  in `"), "{damage:?}: {error}");
        }
    }
}
