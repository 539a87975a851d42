//! Conversions that are killed, and the bytes of conversions that complete.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Map, Value, json};

use crate::checkpoint;
use crate::harness::{command, finish, limited, redline, tiers, traced, tracing};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/llama-b");
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo");

/// System calls that change files or directories, or make a change durable.
const WRITES: &str =
    "write,pwrite64,writev,mkdir,mkdirat,rename,renameat,renameat2,link,linkat,fsync,fdatasync,ftruncate";

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|p| (p.file_name().unwrap().display().to_string(), fs::read(p).unwrap())).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().display().to_string());
    names.collect()
}

fn arguments(to: &Path) -> [&str; 7] {
    ["convert", GOLDEN, to.to_str().unwrap(), "--format", "w8", "--threads", "1"]
}

/// The files of an undisturbed conversion.
fn whole() -> BTreeMap<String, Vec<u8>> {
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("to");
    redline(&arguments(&to)).ok();
    files(&to)
}

#[test]
fn a_conversion_killed_at_a_size_leaves_nothing_and_the_next_one_is_whole() {
    let whole = whole();
    let largest = whole.values().map(Vec::len).max().unwrap();
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("to");
    // A block is 512 bytes or 1 KiB. A write beyond the limit ends the process with a signal.
    for blocks in [0, 1, 2, 8, 32, largest / 1024 - 1] {
        let output = limited(&format!("ulimit -c 0; ulimit -f {blocks};"), &arguments(&to));
        assert!(output.status.signal().is_some(), "{blocks} blocks: {:?}", output.status);
        let left = names(work.path());
        assert!(left.len() == 1 && left[0].starts_with(".to.tmp-"), "{blocks} blocks: {left:?}");
    }
    redline(&arguments(&to)).ok();
    assert!(files(&to) == whole, "the same bytes");
    assert_eq!(names(work.path()), ["to"], "what killed conversions left is gone");
}

#[test]
fn a_conversion_that_may_not_write_more_names_its_cause_and_leaves_nothing() {
    let largest = whole().values().map(Vec::len).max().unwrap();
    for blocks in [0, 1, 8, largest / 1024 - 1] {
        let work = tempfile::tempdir().unwrap();
        let to = work.path().join("to");
        // The signal is ignored, so the write fails.
        let run = finish(limited(&format!("trap '' XFSZ; ulimit -f {blocks};"), &arguments(&to)));
        run.failed(&["cannot write ", "File too large"]);
        assert_eq!(names(work.path()), [""; 0], "{blocks} blocks");
    }
}

#[test]
fn a_conversion_killed_at_any_system_call_leaves_nothing_or_everything() {
    let whole = whole();
    let (mut killed, mut finished) = (0, 0);
    for call in 1.. {
        let work = tempfile::tempdir().unwrap();
        let (to, seen) = (work.path().join("to"), work.path().join("seen"));
        // strace counts calls per thread, and one thread does all the writing.
        let kill = format!("{WRITES}:signal=KILL:when={call}");
        let Some(output) = traced(WRITES, Some(&kill), &seen, &arguments(&to)) else { return };
        if output.status.success() {
            break;
        }
        killed += 1;
        if to.exists() {
            finished += 1;
        } else {
            redline(&arguments(&to)).ok();
        }
        assert!(files(&to) == whole, "the bytes after call {call}");
        let mut left = names(work.path());
        left.sort();
        assert_eq!(left, ["seen", "to"], "call {call}");
    }
    assert!(killed > 30 && (1..=3).contains(&finished), "{killed} {finished}");
}

/// Waits for the temporary directory of a conversion, whose name ends with the id of the process, and sends a signal to it.
fn signal_when_begun(work: &Path, conversion: &mut Child, signal: &str) {
    let process = loop {
        let begun = names(work).iter().find_map(|name| Some(name.strip_prefix(".to.tmp-")?.to_owned()));
        if let Some(process) = begun {
            break process;
        }
        assert!(conversion.try_wait().unwrap().is_none(), "{signal}: it ended before it wrote");
    };
    let sent = Command::new("kill").args([format!("-{signal}"), process]).stderr(Stdio::null()).status();
    // The process may have ended.
    sent.unwrap();
}

/// Every write takes 20 ms, so the conversion is under way when the signal arrives.
#[test]
fn a_conversion_that_is_ended_by_a_signal_leaves_nothing() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let work = tempfile::tempdir().unwrap();
        let (to, seen) = (work.path().join("to"), work.path().join("seen"));
        let slow = format!("{WRITES}:delay_enter=20000");
        let Some(mut strace) = tracing(WRITES, Some(&slow), &seen, &arguments(&to)) else { return };
        let mut child = strace.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        signal_when_begun(work.path(), &mut child, signal);
        let run = finish(child.wait_with_output().unwrap());
        assert_eq!((run.code, &*run.err), (code, "cancelled: nothing is written\n"), "{signal}");
        assert_eq!(names(work.path()), ["seen"], "{signal}");
    }
}

/// The model is 700 MB (w8: 350 MB), so that it is being written when the signal arrives.
#[test]
fn a_random_model_that_is_ended_by_a_signal_leaves_nothing() {
    for (format, signal, code) in [("bf16", "INT", 130), ("w8", "TERM", 143)] {
        let work = tempfile::tempdir().unwrap();
        let to = work.path().join("to");
        let mut synth = command(&["synth", "medium", to.to_str().unwrap(), "--format", format]);
        let mut child = synth.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        signal_when_begun(work.path(), &mut child, signal);
        let run = finish(child.wait_with_output().unwrap());
        assert_eq!((run.code, &*run.err), (code, "cancelled: nothing is written\n"), "{format}");
        assert_eq!(names(work.path()), [""; 0], "{format}");
    }
}

/// A model whose embedding and head are 300 MB of zeros each, which the file does not store, and the path of an adapter for it.
fn large_model(dir: &Path) -> String {
    const VOCAB: u64 = 1 << 20;
    fs::create_dir(dir).unwrap();
    let golden = Path::new(GOLDEN).with_file_name("llama-a");
    let mut config: Value = serde_json::from_slice(&fs::read(golden.join("config.json")).unwrap()).unwrap();
    config["vocab_size"] = VOCAB.into();
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let (mut header, mut end) = (Map::new(), 0);
    for shard in ["00001", "00002", "00003"] {
        let bytes = fs::read(golden.join(format!("model-{shard}-of-00003.safetensors"))).unwrap();
        for mut tensor in checkpoint::read(&bytes) {
            if ["model.embed_tokens.weight", "lm_head.weight"].contains(&tensor.name.as_str()) {
                tensor.shape[0] = VOCAB;
            }
            let begin = end;
            end += 4 * tensor.shape.iter().product::<u64>();
            let entry = json!({"dtype": "F32", "shape": tensor.shape, "data_offsets": [begin, end]});
            header.insert(tensor.name, entry);
        }
    }
    let header = Value::Object(header).to_string();
    let path = dir.join("model.safetensors");
    fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(8 + header.len() as u64 + end).unwrap();
    Path::new(GOLDEN).with_file_name("adapters/llama-plain").display().to_string()
}

/// Half a gigabyte is being written when the signal arrives.
#[test]
fn a_merge_that_is_ended_by_a_signal_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    let adapter = large_model(&model);
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let work = tempfile::tempdir().unwrap();
        let to = work.path().join("to");
        let (model, to) = (model.to_str().unwrap(), to.to_str().unwrap());
        let mut merge = command(&["adapter", "merge", model, &adapter, to]);
        let mut child = merge.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        signal_when_begun(work.path(), &mut child, signal);
        let run = finish(child.wait_with_output().unwrap());
        assert_eq!((run.code, &*run.err), (code, "cancelled: nothing is written\n"), "{signal}");
        assert_eq!(names(work.path()), [""; 0], "{signal}");
    }
}

/// `nohup` has a command ignore the signal that the end of its terminal sends.
#[test]
fn a_conversion_that_ignores_hangups_goes_on() {
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("to");
    let slow = ["convert", DEMO, to.to_str().unwrap(), "--format", "w4", "--threads", "1", "--isa", "scalar"];
    let mut shell = Command::new("sh");
    shell
        .env_clear()
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_redline")])
        .args(slow);
    let mut child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    signal_when_begun(work.path(), &mut child, "HUP");
    finish(child.wait_with_output().unwrap()).ok();
    assert!(to.join("infq.json").exists());
}

#[test]
fn a_full_disk_at_any_system_call_leaves_no_debris() {
    let source = files(Path::new(GOLDEN));
    let whole = whole();
    let mut failed = 0;
    for call in 1.. {
        let work = tempfile::tempdir().unwrap();
        let (to, seen) = (work.path().join("to"), work.path().join("seen"));
        let full = format!("{WRITES}:error=ENOSPC:when={call}");
        let Some(output) = traced(WRITES, Some(&full), &seen, &arguments(&to)) else { return };
        let run = finish(output);
        if run.code == 0 {
            break;
        }
        failed += 1;
        assert_eq!(run.code, 1, "call {call}: {}", run.err);
        // The first write of the main thread is the message. The message is lost, but the exit code is not.
        let seen = fs::read_to_string(&seen).unwrap();
        let told = !seen.lines().any(|line| line.contains("write(2,") && line.contains("(INJECTED)"));
        if told {
            let (fact, _) = run.err.strip_prefix("error: ").and_then(|e| e.split_once('\n')).expect("a fact");
            assert!(fact.contains("No space left on device"), "call {call}: {}", run.err);
        }
        // After the rename the directory is complete; only syncing or reporting it failed.
        if to.exists() {
            assert!(files(&to) == whole, "call {call}");
        } else {
            assert_eq!(names(work.path()), ["seen"], "call {call}");
        }
    }
    assert!(failed > 30, "{failed}");
    assert!(files(Path::new(GOLDEN)) == source, "the source is untouched");
}

#[test]
fn the_same_conversion_gives_the_same_bytes() {
    let work = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    for (model, flags) in [
        (GOLDEN, &["--format", "w4", "--group", "32", "--outliers", "0.1"][..]),
        (DEMO, &["--format", "w8"]),
        (DEMO, &["--format", "bf16"]),
    ] {
        let made = |name: &str, ways: &[&str], environment: &[(&str, &str)], cwd: &Path| {
            let to = elsewhere.path().join(name);
            let mut convert = command(&[&["convert", model, to.to_str().unwrap()], flags, ways].concat());
            convert.envs(environment.iter().copied()).current_dir(cwd);
            finish(convert.output().unwrap()).ok();
            let made = files(&to);
            fs::remove_dir_all(&to).unwrap();
            made
        };
        let first = made("first", &[], &[], work.path());
        assert!(first.len() >= 3);
        let again = |name: &str, ways: &[&str], environment: &[(&str, &str)], cwd: &Path| {
            let same = made(name, ways, environment, cwd) == first;
            assert!(same, "{model} {flags:?}: {name} {ways:?} {environment:?} {}", cwd.display());
        };
        again("again", &[], &[], work.path());
        for threads in ["1", "2", "3", "7"] {
            again("threads", &["--threads", threads], &[], work.path());
            again("threads", &[], &[("REDLINE_THREADS", threads)], work.path());
        }
        for tier in tiers() {
            again("tier", &["--isa", tier], &[], work.path());
        }
        again("cwd", &[], &[], Path::new("/"));
        for zone in ["Pacific/Kiritimati", "UTC+12", "XYZ-14:30"] {
            again("zone", &[], &[("TZ", zone), ("LC_ALL", "tr_TR.UTF-8"), ("HOME", "/")], work.path());
        }
        // The output does not depend on the times and modes of the source files either.
        let copy = work.path().join("copy");
        fs::create_dir_all(&copy).unwrap();
        for (name, bytes) in files(Path::new(model)) {
            fs::write(copy.join(name), bytes).unwrap();
        }
        let to = elsewhere.path().join("copied");
        redline(&[&["convert", copy.to_str().unwrap(), to.to_str().unwrap()], flags].concat()).ok();
        assert!(files(&to) == first, "{model} {flags:?}: from a copy");
        fs::remove_dir_all(&copy).unwrap();
        fs::remove_dir_all(&to).unwrap();
    }
}
