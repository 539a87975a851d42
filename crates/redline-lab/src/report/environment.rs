//! The environment of the measurements: machines, engines, commands.

use serde_json::Value;

use super::page::{Cell, Group, Section, Table};
use super::subject::{Entry, Subject, Subjects, UNKNOWN, cut, distinct, shown};
use crate::result::text;
use crate::run::Host;
use redline_system::number;

/// Rows of a machine's table: their names, and their paths in the document.
const MACHINE: &[(&str, &str)] = &[
    ("Processor", "/cpu/model_name"),
    ("Core design", "/cpu/microarchitecture"),
    ("Vendor", "/cpu/vendor"),
    ("Microcode", "/cpu/microcode"),
    ("Logical processors", "/topology/logical_cpus"),
    ("Physical cores", "/topology/physical_cores"),
    ("Sockets", "/topology/sockets"),
    ("NUMA nodes", "/topology/numa_nodes"),
    ("Usable processors", "/usable/cpus"),
    ("Usable cores", "/usable/cores"),
    ("Processor quota", "/usable/cpu_quota"),
    ("Huge pages", "/memory/transparent_huge_pages"),
    ("Operating system", "/os"),
    ("Kernel", "/kernel"),
    ("Hypervisor", "/hypervisor"),
    ("Clock driver", "/frequency/driver"),
    ("Governors", "/frequency/governors"),
    ("Boost", "/frequency/boost"),
    ("Fingerprint", "/fingerprint"),
];

/// Rows that are sizes in bytes.
const MACHINE_BYTES: &[(&str, &str)] = &[
    ("Memory", "/memory/total_bytes"),
    ("Memory limit", "/usable/memory_limit_bytes"),
    ("Swap", "/memory/swap_total_bytes"),
];

/// A table per machine, and a table of all runs.
pub(super) fn section(subjects: &Subjects<'_>) -> Section {
    let mut tables: Vec<Table> = (1..).zip(&subjects.machines).map(machine).collect();
    let columns = "run,lane,#machine,engine,version,commit,dirty,compiler,profile,threads,format,model,kernels,#rows,\
                   #runs per case,started";
    let rows = subjects.runs.iter().map(run).collect();
    tables.push(Table { rows, ..Table::new("Runs", columns) });
    let rows = subjects.runs.iter().map(reproduction).collect();
    tables.push(Table { rows, ..Table::new("To measure again", "run,command,environment variables") });
    let notes = vec!["What a run does not tell is left blank or shown as –: nothing is guessed.".to_owned()];
    let intro = "What the numbers hold for, and how to take them again.";
    let groups = vec![Group { tables, ..Group::default() }];
    Section { id: "environment", title: "Environment", intro, groups, notes }
}

fn machine((number, host): (usize, &&Host)) -> Table {
    let summary = shown(host.summary().unwrap_or(UNKNOWN));
    let mut table = Table::new(format!("Machine {number}: {summary}"), ",");
    let mut add = |name: &str, value: Option<String>| {
        table.rows.extend(value.map(|value| vec![name.into(), cut(&value, 200).into()]));
    };
    let document = serde_json::to_value(host).unwrap_or_default();
    let at = |pointer: &str| document.pointer(pointer).filter(|value| !value.is_null());
    for (name, pointer) in MACHINE {
        add(name, at(pointer).map(plain));
    }
    add("Caches", at("/caches").and_then(Value::as_array).map(|caches| list(caches)));
    for (name, pointer) in MACHINE_BYTES {
        add(name, at(pointer).and_then(Value::as_u64).map(number::bytes));
    }
    if table.rows.is_empty() {
        table.rows.push(vec!["".into(), "the runs tell nothing of their machine".into()]);
    }
    table
}

/// A value as text; booleans become yes and no.
fn plain(value: &Value) -> String {
    match value {
        Value::Bool(value) => yes_no(*value).to_owned(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        value => text(value),
    }
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

/// `32 KiB L1 data x2, 1 MiB L2 unified x2`.
fn list(caches: &[Value]) -> String {
    let one = |cache: &Value| {
        let number = |field: &str| cache.get(field).and_then(Value::as_u64);
        let size = number("size_bytes").map_or("?".to_owned(), number::bytes);
        let level = number("level").map_or("?".to_owned(), |level| level.to_string());
        let kind = cache.get("kind").and_then(Value::as_str).unwrap_or_default();
        let instances = number("instances").map(|n| format!(" x{n}")).unwrap_or_default();
        format!("{size} L{level} {kind}{instances}")
    };
    caches.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn run(subject: &Subject<'_>) -> Vec<Cell> {
    let run = subject.run;
    let known = |text: &Option<String>| text.as_deref().map_or("–".to_owned(), shown);
    let params = |name: &str| {
        let values = distinct(run.rows.iter().filter_map(|row| row.params.get(name)).map(text));
        cut(&values.join(", "), 120)
    };
    let kernels = distinct(run.rows.iter().filter_map(|row| row.kernel_path.as_deref()));
    vec![
        subject.name.clone().into(),
        shown(&run.lane).into(),
        (subject.machine + 1).to_string().into(),
        shown(&run.engine.name).into(),
        known(&run.engine.version).into(),
        run.engine.git.as_deref().map_or("–".to_owned(), |git| cut(git, 13)).into(),
        run.engine.dirty.map_or("–", yes_no).into(),
        known(&run.engine.rustc).into(),
        known(&run.engine.profile).into(),
        params("threads").into(),
        params("format").into(),
        params("model").into(),
        cut(&kernels.join(", "), 160).into(),
        run.rows.len().to_string().into(),
        repetitions(subject).into(),
        known(&run.started_at).into(),
    ]
}

/// The smallest and largest number of samples of a judged metric.
fn repetitions(subject: &Subject<'_>) -> String {
    let judged = subject.run.rows.iter().flat_map(|row| Entry { subject, row }.judged());
    let counts: Vec<usize> = judged.map(|measured| measured.samples.n()).collect();
    match counts.iter().min().zip(counts.iter().max()) {
        None => "–".to_owned(),
        Some((least, most)) if least == most => least.to_string(),
        Some((least, most)) => format!("{least}–{most}"),
    }
}

/// The command of a run, quoted for a shell, and its environment variables.
fn reproduction(subject: &Subject<'_>) -> Vec<Cell> {
    let word = |word: &String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
        let quote = || format!("'{}'", word.replace('\'', "'\\''"));
        if !word.is_empty() && word.chars().all(plain) { word.clone() } else { quote() }
    };
    let command = subject.run.command.iter().map(word).collect::<Vec<_>>().join(" ");
    let set = subject.run.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let set = set.collect::<Vec<_>>().join(" ");
    let code = |text: &str, most: usize| Cell { text: cut(text, most), tone: "code", line: false };
    vec![subject.name.clone().into(), code(&command, 600), code(&set, 400)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{row, run};

    #[test]
    fn machine_engine_and_command_are_told() {
        let mut run = run("score", vec![row("a", &[1.0, 2.0]).param("threads", 2).param("format", "w8")]);
        run.machine = serde_json::from_value(serde_json::json!({
            "summary": "A CPU", "fingerprint": "f", "cpu": {"model_name": "A CPU @ 2 GHz"}, "kernel": "6.1", "hypervisor": true,
            "memory": {"total_bytes": 1_u64 << 34},
            "caches": [{"level": 2, "kind": "unified", "size_bytes": 1 << 20, "instances": 2}]
        }))
        .unwrap();
        run.command = ["redline", "bench", "it's", ""].map(Into::into).to_vec();
        let runs = [run];
        let section = section(&Subjects::new(&runs));
        let cells = section.groups[0].tables.iter().flat_map(|table| table.rows.iter().flatten());
        let cells: Vec<&str> = cells.map(|cell| cell.text.as_str()).collect();
        let machine = ["A CPU @ 2 GHz", "6.1", "yes", "16 GiB", "1 MiB L2 unified x2"];
        for text in machine.into_iter().chain(["w8", "redline bench 'it'\\''s' ''"]) {
            assert!(cells.contains(&text), "{text}: {cells:?}");
        }
    }

    #[test]
    fn a_machine_that_is_not_told_is_said_to_be_unknown() {
        let mut run = run("score", Vec::new());
        run.machine = crate::run::Host::default();
        let runs = [run];
        let section = section(&Subjects::new(&runs));
        assert!(section.groups[0].tables[0].rows[0][1].text.contains("tell nothing"));
    }

    #[test]
    fn the_fewest_and_the_most_runs_of_a_case_are_told() {
        let of = |rows: Vec<crate::Row>| {
            let runs = [run("score", rows)];
            repetitions(&Subjects::new(&runs).runs[0])
        };
        assert_eq!(of(vec![row("a", &[1.0, 2.0]), row("b", &[1.0]), row("c", &[1.0; 4])]), "1–4");
        assert_eq!(of(vec![row("a", &[1.0, 2.0])]), "2");
        assert_eq!(of(Vec::new()), "–");
    }
}
