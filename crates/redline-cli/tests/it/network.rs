//! A run makes no connection, starts no other program, and opens no code shipped with a model.

use std::fs;
use std::path::Path;

use crate::harness::traced;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo");

/// File types of a model directory that are read as data.
const DATA: &[&str] = &["json", "safetensors", "txt", "jinja", "bin"];

#[test]
fn a_run_makes_no_connection_and_opens_no_code() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    for name in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(Path::new(DEMO).join(name), model.join(name)).unwrap();
    }
    // Other files that a model repository may contain, and that must not be opened.
    for name in ["modeling_llama.py", "tokenizer.py", "libop.so", "model.pt", "setup.sh", "unpickle.pkl"] {
        fs::write(model.join(name), "raise SystemExit").unwrap();
    }
    let (dir, to) = (model.to_str().unwrap(), folder.path().join("to"));
    let score = ["--query", "In the beginning", "--item", " God", "--label-id", "7"];
    let commands: [&[&str]; 5] = [
        &["demo"],
        &["doctor"],
        &["generate", "--model", dir, "--prompt", "And the LORD", "--max-new-tokens", "4"],
        &[&["score", "--model", dir], &score[..]].concat(),
        &["convert", dir, to.to_str().unwrap(), "--format", "w8"],
    ];
    for arguments in commands {
        let seen = folder.path().join("seen");
        let trace = "%network,execve,execveat,openat,open,openat2";
        let Some(output) = traced(trace, None, &seen, arguments) else { return };
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let seen = fs::read_to_string(&seen).unwrap();
        // A line is `PID call(..) = result`. An interrupted call has two lines, the second without arguments.
        let calls: Vec<&str> =
            seen.lines().filter_map(|line| Some(line.split_once(' ')?.1.trim_start())).collect();
        let of = |names: &[&str]| -> Vec<&str> {
            let called = |line: &&&str| names.iter().any(|name| line.starts_with(&format!("{name}(")));
            calls.iter().filter(called).copied().collect()
        };
        let network = ["socket", "connect", "bind", "listen", "sendto", "sendmsg", "recvfrom", "getaddrinfo"];
        assert_eq!(of(&network), [""; 0], "{arguments:?}");
        assert_eq!(of(&["execve", "execveat"]).len(), 1, "{arguments:?}: {seen}");
        let opened = of(&["open", "openat", "openat2"]);
        assert!(!opened.is_empty(), "{seen}");
        for call in opened {
            let Some(path) = call.split('"').nth(1).filter(|path| path.starts_with(dir)) else { continue };
            let extension = Path::new(path).extension().and_then(|e| e.to_str());
            assert!(path == dir || DATA.contains(&extension.unwrap_or_default()), "{arguments:?}: {call}");
        }
    }
}
