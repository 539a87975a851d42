//! Signed model directories: a golden checkpoint signed with minisign by `tests/golden/sign.sh`.

use std::fs;
use std::path::{Path, PathBuf};

use redline_weights::{SignatureFault, SigningKey, WeightsError, check_signed};
use tempfile::{TempDir, tempdir};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
const LIST: &str = "SHA256SUMS";
const SIGNATURE: &str = "SHA256SUMS.minisig";

fn golden(name: &str) -> PathBuf {
    Path::new(GOLDEN).join(name)
}

fn key() -> SigningKey {
    SigningKey::parse(&fs::read_to_string(golden("signed/minisign.pub")).unwrap()).unwrap()
}

/// A copy of the checkpoint with its list and signature.
fn signed() -> TempDir {
    let dir = tempdir().unwrap();
    for from in ["llama-b", "signed"] {
        for entry in fs::read_dir(golden(from)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != "minisign.pub" {
                fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
            }
        }
    }
    dir
}

/// The error for the directory after a change.
fn refused(change: impl FnOnce(&Path)) -> SignatureFault {
    let dir = signed();
    change(dir.path());
    match check_signed(dir.path(), &key()) {
        Err(WeightsError::Signed { dir: named, fault }) => {
            assert_eq!(named, dir.path());
            fault
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_minisign_signed_is_accepted() {
    let dir = signed();
    check_signed(dir.path(), &key()).unwrap();
    // Folders are not read.
    fs::create_dir(dir.path().join("onnx")).unwrap();
    fs::write(dir.path().join("onnx/model.onnx"), "x").unwrap();
    check_signed(dir.path(), &key()).unwrap();
}

#[test]
fn any_changed_byte_is_found() {
    for file in ["config.json", "model.safetensors", "reference.safetensors"] {
        let length = fs::read(golden("llama-b").join(file)).unwrap().len();
        for at in [0, length / 2, length - 1] {
            let fault = refused(|dir| {
                let mut bytes = fs::read(dir.join(file)).unwrap();
                bytes[at] ^= 1;
                fs::write(dir.join(file), bytes).unwrap();
            });
            let SignatureFault::Digest { name, found, listed } = fault else { panic!("{fault:?}") };
            assert_eq!(name, file);
            assert!(found != listed && found.len() == 64 && listed.len() == 64, "{found} {listed}");
        }
    }
}

#[test]
fn files_that_come_or_go_are_found() {
    let fault = refused(|dir| fs::write(dir.join("chat_template.jinja"), "{{ evil }}").unwrap());
    assert_eq!(fault, SignatureFault::Unlisted { name: "chat_template.jinja".into() });
    for folder in ["chat_templates", "additional_chat_templates"] {
        let fault = refused(|dir| {
            fs::create_dir(dir.join(folder)).unwrap();
            fs::write(dir.join(folder).join("tool_use.jinja"), "{{ evil }}").unwrap();
        });
        assert_eq!(fault, SignatureFault::Unlisted { name: format!("{folder}/tool_use.jinja") });
    }
    let fault = refused(|dir| fs::write(dir.join(".hidden"), "").unwrap());
    assert_eq!(fault, SignatureFault::Unlisted { name: ".hidden".into() });
    let fault = refused(|dir| fs::remove_file(dir.join("config.json")).unwrap());
    assert_eq!(fault, SignatureFault::Missing { name: "config.json".into() });
    assert_eq!(refused(|dir| fs::remove_file(dir.join(LIST)).unwrap()), SignatureFault::NoList);
    assert_eq!(refused(|dir| fs::remove_file(dir.join(SIGNATURE)).unwrap()), SignatureFault::NoSignature);
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_a_file_that_nobody_signed() {
    let fault = refused(|dir| std::os::unix::fs::symlink("/nowhere", dir.join("tokenizer.json")).unwrap());
    assert_eq!(fault, SignatureFault::Unlisted { name: "tokenizer.json".into() });
}

#[test]
fn a_changed_list_or_signature_is_found() {
    let fault = refused(|dir| {
        let list = fs::read_to_string(dir.join(LIST)).unwrap();
        let (_, rest) = list.split_once('\n').unwrap();
        fs::write(dir.join(LIST), rest).unwrap();
    });
    assert!(matches!(fault, SignatureFault::Signature { .. }), "{fault:?}");
    for line in 0..4 {
        let fault = refused(|dir| {
            let signature = fs::read_to_string(dir.join(SIGNATURE)).unwrap();
            let mut lines: Vec<String> = signature.lines().map(str::to_owned).collect();
            // The first comment is not signed.
            lines[line] = if line == 0 { String::new() } else { lines[line].replace(['a', 'e', '5'], "w") };
            fs::write(dir.join(SIGNATURE), lines.join("\n")).unwrap();
            if line == 0 {
                fs::write(dir.join(SIGNATURE), [0xff]).unwrap();
            }
        });
        assert!(matches!(fault, SignatureFault::Signature { .. }), "line {line}: {fault:?}");
    }
}

#[test]
fn the_key_of_somebody_else_is_refused() {
    // Another key made by minisign; its secret part was deleted.
    let other = SigningKey::parse("RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3").unwrap();
    let dir = signed();
    let error = check_signed(dir.path(), &other).unwrap_err();
    assert!(
        matches!(error, WeightsError::Signed { fault: SignatureFault::Signature { .. }, .. }),
        "{error:?}"
    );
    assert!(error.hint().is_some_and(|hint| hint.to_string().contains("another key")));
}

#[test]
fn keys_are_read_with_and_without_their_comment() {
    let file = fs::read_to_string(golden("signed/minisign.pub")).unwrap();
    let line = file.lines().last().unwrap();
    for text in [file.as_str(), line, &format!("  {line}\r\n\n")] {
        assert!(SigningKey::parse(text).is_some(), "{text:?}");
    }
    for text in ["", "untrusted comment: nothing", "RWQ", &line[1..]] {
        assert!(SigningKey::parse(text).is_none(), "{text:?}");
    }
}

#[test]
fn a_list_or_a_signature_that_is_too_long_is_not_read() {
    for (name, limit) in [(LIST, 1 << 20), (SIGNATURE, 1 << 14)] {
        let dir = signed();
        let file = fs::File::options().write(true).open(dir.path().join(name)).unwrap();
        file.set_len(limit + 1).unwrap();
        match check_signed(dir.path(), &key()) {
            Err(WeightsError::FileTooLarge { path, bytes, limit: most }) => {
                assert_eq!((path, bytes, most), (dir.path().join(name), limit + 1, limit));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Early versions of minisign sign a file itself and not its hash. This signature was made by Ed25519 directly; its secret key was
/// never stored.
#[test]
fn a_signature_of_the_list_itself_is_accepted() {
    let digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    let signature = "untrusted comment: signature\n\
        RWRSRURMSU5FMateDnqi/ib333BloL41PZrdJbYQCW59WdJwlAmkHxkrutvv/GAd5SnkNvBzI0gb1pGEujC1fd/EN+Zb+QBAoQg=\n\
        trusted comment: signed before minisign hashed first\n\
        5jBwQfCv5TBID99XX/Vw6fYT31A9cKNx6PGNPbZerS2VE1IZ/s5JOGliyBV2LUyVLIjXD41gTAzqxxai9k1nCA==\n";
    let key = SigningKey::parse("RWRSRURMSU5FMYFmSR5Qwx2Bb7GwU5DjK0RAnzW+ZkzIBJPtHYwJiRNJ").unwrap();
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    fs::write(dir.path().join(LIST), format!("{digest}  config.json\n")).unwrap();
    fs::write(dir.path().join(SIGNATURE), signature).unwrap();
    check_signed(dir.path(), &key).unwrap();
    fs::write(dir.path().join(LIST), format!("{digest} *config.json\n")).unwrap();
    let error = check_signed(dir.path(), &key).unwrap_err();
    assert!(
        matches!(error, WeightsError::Signed { fault: SignatureFault::Signature { .. }, .. }),
        "{error:?}"
    );
}
