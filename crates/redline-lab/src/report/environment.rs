//! The environment of the measurements: machines, engines, commands.

use serde_json::Value;

use super::page::{Cell, Group, Section, Table};
use super::subject::{Host, Subject, Subjects, cut, distinct, shown, text};
use crate::number;
use crate::result::Metric;

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
    let machines = subjects.machines.iter().map(machine).collect();
    let mut tables: Vec<Table> = machines;
    tables.push(runs(subjects));
    tables.push(reproduction(subjects));
    let notes = vec!["What a run does not tell is left blank or shown as –: nothing is guessed.".to_owned()];
    let intro = "What the numbers hold for, and how to take them again.".to_owned();
    let groups = vec![Group { tables, ..Group::default() }];
    Section { id: "environment", title: "Environment", intro, groups, notes }
}

fn machine(host: &Host<'_>) -> Table {
    let mut table =
        Table::new(format!("{}: {}", host.name, shown(&host.summary)), &[("", false), ("", false)]);
    let mut tell = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            table.rows.push(vec![name.into(), cut(&value, 200).into()]);
        }
    };
    let at = |pointer: &str| host.told.pointer(pointer).filter(|value| !value.is_null());
    for (name, pointer) in MACHINE {
        tell(name, at(pointer).map(plain));
    }
    tell("Caches", at("/caches").and_then(Value::as_array).map(|caches| list(caches)));
    for (name, pointer) in MACHINE_BYTES {
        tell(name, at(pointer).and_then(Value::as_u64).map(number::bytes));
    }
    if table.rows.is_empty() {
        table.rows.push(vec!["".into(), "the runs tell nothing of their machine".into()]);
    }
    table
}

/// A value as text; booleans become yes and no.
fn plain(value: &Value) -> String {
    match value {
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        value => text(value),
    }
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

fn runs(subjects: &Subjects<'_>) -> Table {
    let columns = [
        ("run", false),
        ("lane", false),
        ("machine", true),
        ("engine", false),
        ("version", false),
        ("commit", false),
        ("dirty", false),
        ("compiler", false),
        ("profile", false),
        ("threads", false),
        ("format", false),
        ("model", false),
        ("kernels", false),
        ("rows", true),
        ("runs per case", true),
        ("started", false),
    ];
    let mut table = Table::new("Runs", &columns);
    table.rows = subjects.runs.iter().map(run).collect();
    table
}

fn run(subject: &Subject<'_>) -> Vec<Cell> {
    let run = subject.run;
    let told = |text: &Option<String>| text.as_deref().map_or("–".to_owned(), shown);
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
        told(&run.engine.version).into(),
        run.engine.git.as_deref().map_or("–".to_owned(), |git| cut(git, 13)).into(),
        run.engine.dirty.map_or("–", |dirty| if dirty { "yes" } else { "no" }).into(),
        told(&run.engine.rustc).into(),
        told(&run.engine.profile).into(),
        params("threads").into(),
        params("format").into(),
        params("model").into(),
        cut(&kernels.join(", "), 160).into(),
        run.rows.len().to_string().into(),
        repetitions(subject).into(),
        told(&run.started_at).into(),
    ]
}

/// The smallest and largest number of samples of a judged metric.
fn repetitions(subject: &Subject<'_>) -> String {
    let metrics = subject.run.rows.iter().flat_map(|row| row.metrics.iter()).map(|(_, metric)| metric);
    let judged = metrics.map(Metric::samples).filter(|s| s.direction() != crate::Direction::Info);
    let counts: Vec<usize> = judged.map(crate::Samples::n).collect();
    match counts.iter().min().zip(counts.iter().max()) {
        None => "–".to_owned(),
        Some((least, most)) if least == most => least.to_string(),
        Some((least, most)) => format!("{least}–{most}"),
    }
}

fn reproduction(subjects: &Subjects<'_>) -> Table {
    let columns = [("run", false), ("command", false), ("environment variables", false)];
    let mut table = Table::new("To measure again", &columns);
    for subject in &subjects.runs {
        let word = |word: &String| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
            let quote = || format!("'{}'", word.replace('\'', "'\\''"));
            if !word.is_empty() && word.chars().all(plain) { word.clone() } else { quote() }
        };
        let command = subject.run.command.iter().map(word).collect::<Vec<_>>().join(" ");
        let set = subject.run.environment.iter().map(|(name, value)| format!("{name}={value}"));
        table.rows.push(vec![
            subject.name.clone().into(),
            Cell { text: cut(&command, 600), tone: "code" },
            Cell { text: cut(&set.collect::<Vec<_>>().join(" "), 400), tone: "code" },
        ]);
    }
    table
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
        let cells: Vec<&str> = section.groups[0]
            .tables
            .iter()
            .flat_map(|table| table.rows.iter().flatten())
            .map(|cell| cell.text.as_str())
            .collect();
        let expected = [
            "A CPU @ 2 GHz",
            "6.1",
            "yes",
            "16 GiB",
            "1 MiB L2 unified x2",
            "w8",
            "redline bench 'it'\\''s' ''",
        ];
        for text in expected {
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
}
