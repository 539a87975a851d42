//! `report`: a page from real runs, and inputs that are no runs.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::redline;

/// A quick run of a lane into `DIR/NAME`.
#[track_caller]
fn bench(dir: &Path, name: &str, arguments: &[&str]) -> String {
    let path = dir.join(name).to_str().unwrap().to_owned();
    let run = redline(&[&["bench"], arguments, &["--threads", "1", "--portable", "-o", &path]].concat());
    // The verdict on two arms may be any: the exit code is that of the document.
    let text = fs::read_to_string(dir.join(name).join("run.json")).unwrap_or_else(|_| panic!("{}", run.err));
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["comparison"]["exit_code"].as_i64().unwrap_or(0), i64::from(run.code), "{}", run.err);
    path
}

/// Runs of several lanes, one of them with two arms, as `DIR/LANE`.
pub(crate) fn real_runs(dir: &Path) {
    let gemm = ["gemm", "--m", "1,3", "--n", "40", "--k", "96", "--weights-mib", "1", "--repeats", "6"];
    bench(dir, "gemm", &[&gemm[..], &["--formats", "f32,w8g0"]].concat());
    bench(dir, "versus", &[&gemm[..], &["--formats", "w8g0", "--versus", "--formats w4"]].concat());
    bench(dir, "limits", &["limits", "--streams", "1", "--buffer-mib", "4", "--repeats", "2"]);
    let forward = ["forward", "--model", "demo", "--batch", "1,2", "--length", "3,7", "--trials", "6"];
    bench(dir, "forward", &forward);
}

/// Writes the report of `runs` and parses it.
#[track_caller]
pub(crate) fn report(runs: &[&str], to: &Path, flags: &[&str]) -> String {
    let to = to.to_str().unwrap();
    let run = redline(&[&["report"], runs, &["-o", to], flags].concat()).ok();
    assert_eq!((run.out.as_str(), run.err.as_str()), ("", ""));
    fs::read_to_string(to).unwrap()
}

/// A run document, as any engine's driver would write it.
pub(crate) fn document(engine: &str, samples: &[f64]) -> Value {
    let latency = json!({"unit": "ms", "direction": "lower", "samples": samples});
    json!({
        "schema": "redline.bench.run/1", "engine": {"name": engine, "git": engine}, "lane": "score",
        "machine": {"fingerprint": "f", "summary": "a machine"}, "started_at": "2026-11-20T00:00:00Z",
        "rows": [{"case": "score/b1", "checked": true, "params": {"batch_size": 1, "num_labels": 2}, "metrics": {"latency": latency}}]
    })
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let dir = dir.join(name);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("run.json"), text).unwrap();
    dir.to_str().unwrap().to_owned()
}

#[test]
fn real_runs_become_one_page() {
    let folder = tempfile::tempdir().unwrap();
    let all = folder.path().join("all");
    real_runs(&all);
    let file = folder.path().join("report.html");
    // A directory of runs stands for all of them. Naming one of them again changes nothing.
    let gemm = all.join("gemm");
    let page = report(&[all.to_str().unwrap()], &file, &["--title", "A <title>"]);
    assert_eq!(
        page,
        report(&[all.to_str().unwrap(), gemm.to_str().unwrap()], &file, &["--title", "A <title>"])
    );
    assert!(page.len() < 1_000_000, "{}", page.len());
    let document = roxmltree::Document::parse(page.strip_prefix("<!doctype html>\n").unwrap()).unwrap();
    let find = |name: &'static str| document.descendants().filter(move |node| node.has_tag_name(name));
    assert_eq!(find("title").find_map(|node| node.text()), Some("A <title>"));
    let sections: Vec<_> = find("section").filter_map(|node| node.attribute("id")).collect();
    for id in ["comparison", "roofline", "distributions", "results", "environment"] {
        assert!(sections.contains(&id), "{id} of {sections:?}");
    }
    // Every chart has a text description, and every case is in the data table.
    let pictures = || find("svg").filter(|node| node.attribute("aria-hidden").is_none());
    assert!(pictures().count() > 10);
    assert!(
        pictures()
            .all(|node| node.attribute("role") == Some("img") && node.attribute("aria-label").is_some())
    );
    let data = find("script").find_map(|node| node.text()).unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    let rows = data["runs"].as_array().unwrap().iter().flat_map(|run| run["rows"].as_array().unwrap());
    let cases: Vec<&str> = rows.clone().filter_map(|row| row["case"].as_str()).collect();
    assert!(cases.contains(&"gemm/w8g0/m3/n40/k96/t1") && cases.contains(&"forward/b2/l7/t1"), "{cases:?}");
    let gemm = rows.clone().find(|row| row["case"] == "gemm/f32/m1/n40/k96/t1").unwrap();
    assert_eq!(
        (&gemm["work"]["operations"], &gemm["ceilings"]["arithmetic"]),
        (&(2.0 * 40.0 * 96.0).into(), &"f32".into())
    );
    assert!(gemm["ceilings"]["bandwidth"].as_f64().unwrap() > 0.0);
    let ceilings: Vec<_> = find("text").filter(|node| node.attribute("class") == Some("roofname")).collect();
    for name in ["read ", "f32 ", "int8 "] {
        assert!(ceilings.iter().any(|node| node.text().is_some_and(|text| text.starts_with(name))), "{name}");
    }
}

#[test]
fn engines_commits_and_a_base_stand_in_one_report() {
    let folder = tempfile::tempdir().unwrap();
    let base = write(folder.path(), "base", &document("one", &[10.0, 10.1, 9.9, 10.0]).to_string());
    let mut later = document("one", &[8.0, 8.1, 7.9, 8.0]);
    later["started_at"] = "2026-11-21T00:00:00Z".into();
    later["engine"]["git"] = "later".into();
    let later = write(folder.path(), "later", &later.to_string());
    let other = write(folder.path(), "other", &document("other", &[20.0, 20.1, 19.9, 20.0]).to_string());
    let page = report(&[&later, &other], &folder.path().join("r.html"), &["--base", &base]);
    for text in ["✓", "faster", "✗", "slower", "1.250 [", "0.5000 ["] {
        assert!(page.contains(text), "{text}");
    }
    let to_stdout = redline(&["report", &later, &other, "--base", &base, "-o", "-"]).ok();
    assert_eq!((to_stdout.out, to_stdout.err), (page, String::new()));
}

#[test]
fn what_cannot_be_reported_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let good = write(folder.path(), "all/good", &document("one", &[1.0, 2.0]).to_string());
    let out = path("r.html");
    redline(&["report", &path("nowhere"), "-o", &out]).usage(&["No such file", "nowhere"]);
    fs::create_dir(path("empty")).unwrap();
    redline(&["report", &path("empty"), "-o", &out]).usage(&["no `run.json`", "empty"]);
    redline(&["report", &good, "--base", &path("empty"), "-o", &out]).usage(&["no `run.json`", "empty"]);
    // If one of several runs cannot be read, it is named, and nothing is written.
    write(folder.path(), "all/cut", "{\"schema\": ");
    redline(&["report", &path("all"), "-o", &out]).usage(&["EOF while parsing", "cut/run.json"]);
    assert!(!folder.path().join("r.html").exists());
    redline(&["report", &good]).usage(&["--output"]);
    redline(&["report", "-o", &out]).usage(&["DIR"]);
    let unwritable = redline(&["report", &good, "-o", &path("missing/r.html")]);
    unwritable.failed(&["No such file", "missing/r.html", "hint: "]);
    let onto_a_directory = redline(&["report", &good, "-o", &path("empty")]);
    onto_a_directory.failed(&["empty"]);
}

/// The reason is no column at the end of a wide table, which narrow windows would not show.
#[test]
fn what_is_wrong_with_a_row_stands_on_a_line_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut bad = document("e", &[1.0, 2.0]);
    bad["rows"][0]["checked"] = false.into();
    let run = write(folder.path(), "bad", &bad.to_string());
    let page = report(&[&run], &folder.path().join("page.html"), &[]);
    let document = roxmltree::Document::parse(page.strip_prefix("<!doctype html>\n").unwrap()).unwrap();
    let results = document.descendants().find(|node| node.attribute("id") == Some("results")).unwrap();
    let columns = results.descendants().filter(|node| node.has_tag_name("th")).count().to_string();
    let mut across = results.descendants().filter(|node| node.attribute("colspan").is_some());
    let line = across.next().unwrap();
    assert_eq!((line.attribute("colspan"), across.next()), (Some(&*columns), None));
    let text = line.descendants().find_map(|node| node.text());
    assert_eq!(text, Some("INVALID: not checked"));
}
