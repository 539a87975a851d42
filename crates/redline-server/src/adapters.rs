//! Directories of adapters that requests may load: those below one root.

use std::fs;
use std::fs::FileType;
use std::path::{Component, Path, PathBuf};

use axum::http::StatusCode;
use redline_api::json::limits::MAX_ADAPTER_PATH;

use crate::fault::Fault;

/// Most files of an adapter's directory.
const MAX_FILES: usize = 1000;

/// The directory that a request names, if it is below the root and so are its files. A path is refused before it is opened, also if a
/// link leads out of the root.
pub(crate) fn confined(root: &Path, asked: &str) -> Result<PathBuf, Fault> {
    let relative = below(root, asked)?;
    let missing =
        |_| refused(StatusCode::BAD_REQUEST, "there is no such directory below the root of adapters");
    let root = root
        .canonicalize()
        .map_err(|_| refused(StatusCode::FORBIDDEN, "the root of adapters cannot be read"))?;
    let dir = root.join(relative).canonicalize().map_err(missing)?;
    inside(&root, &dir)?;
    if !dir.is_dir() {
        return Err(refused(StatusCode::BAD_REQUEST, "this is no directory"));
    }
    let files = fs::read_dir(&dir).map_err(missing)?;
    for (count, file) in files.enumerate() {
        let file = file.map_err(missing)?.path();
        if count == MAX_FILES {
            let fact = format!("the directory has more than {MAX_FILES} files");
            return Err(refused(StatusCode::BAD_REQUEST, &fact));
        }
        let link = |_| refused(StatusCode::FORBIDDEN, "a link in the directory leads nowhere");
        let target = file.canonicalize().map_err(link)?;
        inside(&root, &target)?;
        let kind = fs::metadata(&target).map_err(link)?.file_type();
        if !is_plain(kind) {
            return Err(refused(StatusCode::FORBIDDEN, "the directory has something that is no file"));
        }
    }
    Ok(dir)
}

/// Whether reading it ends: not a device or a pipe.
fn is_plain(kind: FileType) -> bool {
    kind.is_file() || kind.is_dir()
}

/// The path from the root, by its text alone.
fn below<'a>(root: &Path, asked: &'a str) -> Result<&'a Path, Fault> {
    let length = asked.chars().count();
    if !(1..=MAX_ADAPTER_PATH).contains(&length) {
        let fact = format!("the path has {length} characters, and may have 1 to {MAX_ADAPTER_PATH}");
        return Err(refused(StatusCode::BAD_REQUEST, &fact));
    }
    if asked.contains('\0') {
        return Err(refused(StatusCode::BAD_REQUEST, "the path has a character U+0000"));
    }
    let path = Path::new(asked);
    let path = if path.is_absolute() { path.strip_prefix(root).map_err(|_| outside())? } else { path };
    let plain = |component| matches!(component, Component::Normal(_) | Component::CurDir);
    if path.components().all(plain) { Ok(path) } else { Err(outside()) }
}

fn inside(root: &Path, path: &Path) -> Result<(), Fault> {
    if path.starts_with(root) { Ok(()) } else { Err(outside()) }
}

fn outside() -> Fault {
    refused(StatusCode::FORBIDDEN, "the path leads out of the root of adapters")
}

fn refused(status: StatusCode, fact: &str) -> Fault {
    let code = if status == StatusCode::FORBIDDEN { "forbidden_path" } else { "invalid_value" };
    let message = format!("{fact}; give the path of a directory from the root of adapters on");
    Fault::new(status, code, message).of_field("lora_path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_out_of_the_root_is_refused_by_its_text() {
        let of = |asked: &str| {
            below(Path::new("/srv/adapters"), asked).map(Path::to_owned).map_err(|fault| fault.code)
        };
        assert_eq!(of("tone"), Ok(PathBuf::from("tone")));
        assert_eq!(of("./a/b/"), Ok(PathBuf::from("./a/b/")));
        assert_eq!(of("/srv/adapters/tone"), Ok(PathBuf::from("tone")));
        for path in ["..", "../x", "a/../../x", "/srv/adapters/../x", "/etc", "/srv/adapters2", "/"] {
            assert_eq!(of(path), Err("forbidden_path"), "{path}");
        }
        for path in ["", "a\0b", &"é".repeat(MAX_ADAPTER_PATH + 1)] {
            assert_eq!(of(path), Err("invalid_value"), "{path:?}");
        }
        let longest = "é".repeat(MAX_ADAPTER_PATH);
        assert_eq!(of(&longest), Ok(PathBuf::from(&longest)));
    }
}
