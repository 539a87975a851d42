//! The report: runs as a self-contained HTML page, with figures as SVG and the numbers as data.
//!
//! A report is a pure function from runs to text. The page contains no script and makes no network request, and all text from
//! runs is escaped. Each figure has its own file. All figures produce the same few kinds of elements, which `page.html` lays
//! out.

mod data;
mod distribution;
mod environment;
mod forest;
mod page;
mod quantity;
mod roofline;
mod subject;
mod svg;
mod tables;

use std::fmt;

use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;

use crate::run::Run;
use crate::verdict::Verdict;
use page::{Fact, Page};
use subject::{Subjects, distinct};

/// Size limit of a report in bytes.
pub const LIMIT: usize = 1_000_000;

/// Options of a report.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// The title of the page.
    pub title: Option<String>,
    /// Runs with which every other run of the same lane is compared.
    pub base: Vec<Run>,
}

/// Why a report could not be made.
#[derive(Debug)]
pub struct ReportError(minijinja::Error);

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the page cannot be laid out: {}", self.0)
    }
}

impl std::error::Error for ReportError {}

/// How much of the data is drawn and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Detail {
    /// Maximum number of small charts of one kind.
    panels: usize,
    /// Maximum number of samples drawn per process.
    strokes: usize,
    /// Maximum number of samples stored per process.
    samples: usize,
}

impl Detail {
    const FULL: Self = Self { panels: 72, strokes: 120, samples: 256 };
    /// Levels from most to least detailed. The first one below [`LIMIT`] is used.
    const LEVELS: [Self; 4] = [
        Self::FULL,
        Self { panels: 48, strokes: 60, samples: 64 },
        Self { panels: 24, strokes: 40, samples: 16 },
        Self { panels: 12, strokes: 20, samples: 0 },
    ];
}

/// Renders the page for `runs`.
pub fn html(runs: &[Run], options: &ReportOptions) -> Result<String, ReportError> {
    let subjects = Subjects::new(runs);
    let mut page = String::new();
    for (level, detail) in Detail::LEVELS.into_iter().enumerate() {
        page = at_detail(&subjects, options, detail, level > 0)?;
        if page.len() < LIMIT {
            break;
        }
    }
    Ok(page)
}

fn at_detail(
    subjects: &Subjects<'_>,
    options: &ReportOptions,
    detail: Detail,
    reduced: bool,
) -> Result<String, ReportError> {
    let title = options.title.as_deref().unwrap_or("Redline benchmark report");
    let (comparison, verdicts) = forest::section(subjects, &options.base).unzip();
    let sections = [
        tables::marks(subjects),
        comparison,
        roofline::section(subjects),
        distribution::section(subjects, detail),
        Some(tables::section(subjects)),
        Some(environment::section(subjects)),
    ];
    let page = Page {
        title,
        css: include_str!("page.css"),
        facts: facts(subjects, &verdicts.unwrap_or_default()),
        span: span(subjects),
        sections: sections.into_iter().flatten().collect(),
        notes: notes(detail, reduced),
        data: data::json(subjects, title, detail),
    };
    let text = rendered(&page).map_err(ReportError)?;
    Ok(text.chars().map(visible).collect())
}

fn rendered(page: &Page<'_>) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    // Lines that contain only template statements produce no output.
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    // Because the name ends in `.html`, every value is escaped unless marked as safe.
    environment.add_template("page.html", include_str!("page.html"))?;
    environment.get_template("page.html")?.render(Serde(page))
}

/// Replaces characters that are invalid in a document, or that change the text direction.
fn visible(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => {
            char::REPLACEMENT_CHARACTER
        }
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

/// The counts at the top; those of problems and verdicts only if there are any.
fn facts(subjects: &Subjects<'_>, verdicts: &[Verdict]) -> Vec<Fact> {
    let entries = || subjects.entries();
    let engines = distinct(subjects.runs.iter().map(|subject| subject.run.engine.one_line())).len();
    let invalid = entries().filter(|entry| entry.row.invalid().is_some()).count();
    let missed: usize = entries().map(|entry| entry.row.missed().len()).sum();
    let all = [
        (subjects.runs.len(), "run"),
        (distinct(subjects.runs.iter().map(|subject| &subject.run.lane)).len(), "lane"),
        (engines, "build"),
        (subjects.machines.len(), "machine"),
        (entries().count(), "row"),
    ];
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let all =
        all.map(|(number, noun)| Fact { number, noun: format!("{noun}{}", plural(number)), bad: false });
    let problems = [
        Fact { number: invalid, noun: "not to be believed".to_owned(), bad: true },
        Fact { number: missed, noun: format!("gate{} missed", plural(missed)), bad: true },
    ];
    let of_verdict = |(verdict, _): &(Verdict, u8)| Fact {
        number: verdicts.iter().filter(|known| *known == verdict).count(),
        noun: verdict.to_string(),
        bad: forest::tone(*verdict) == "bad",
    };
    let if_any = problems.into_iter().chain(Verdict::BY_SEVERITY.iter().map(of_verdict));
    all.into_iter().chain(if_any.filter(|fact| fact.number > 0)).collect()
}

/// The time span from the first start to the last.
fn span(subjects: &Subjects<'_>) -> Option<String> {
    let starts = || subjects.runs.iter().filter_map(|subject| subject.run.started_at.as_deref());
    let (first, last) = starts().min().zip(starts().max())?;
    let day = |at: &str| at.strip_suffix('Z').map_or(at.to_owned(), |at| at.replace('T', " ") + " UTC");
    let (first, last) = (day(first), day(last));
    Some(if first == last { format!("Measured {first}") } else { format!("Measured {first} to {last}") })
}

fn notes(detail: Detail, reduced: bool) -> Vec<String> {
    let raw = match detail.samples {
        0 => "no raw samples".to_owned(),
        most => format!(
            "the raw samples of every judged metric (of more than {most} in a process that many, evenly chosen)"
        ),
    };
    let mut notes = vec![format!(
        "This file is whole: it holds no script, asks for nothing over a network, and its last element is the data as JSON (schema {}) \
         with {raw}, rounded to six digits.",
        data::SCHEMA
    )];
    if reduced {
        notes.push(format!(
            "To stay below {LIMIT} bytes it draws fewer charts and keeps fewer samples than it could; run.json holds all."
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::result::Row;
    use crate::{Direction, Samples};

    /// A checked row with one rate.
    pub(super) fn row(case: &str, values: &[f64]) -> Row {
        let rate = Samples::new("tokens/s", Direction::Higher, values.to_vec()).unwrap();
        Row { checked: true, ..Row::new(case).metric("rate", rate) }
    }

    /// A run of one engine on one machine.
    pub(super) fn run(lane: &str, rows: Vec<Row>) -> Run {
        let document = json!({
            "schema": crate::run::SCHEMA, "engine": {"name": "engine"}, "lane": lane, "rows": [],
            "machine": {"fingerprint": "f", "summary": "a machine"}
        });
        Run { rows, ..Run::parse(&document.to_string()).unwrap() }
    }

    #[test]
    fn a_page_is_well_formed_whatever_runs_hold() {
        let hostile = "</script><script>alert(1)</script>'\"&\u{202e}\u{7}\u{0}]]>{{ page.css }}";
        let with_length = |row: Row, length: i32| row.param("batch", 2).param("length", length);
        let first = with_length(row(hostile, &[1.0, 2.0]).param(hostile, hostile), 3);
        let second = Row {
            arm: Some(hostile.into()),
            limit: Some(hostile.into()),
            ..with_length(row("x", &[3.0, 4.0]), 4)
        };
        let mut bad = run(hostile, vec![first, second]);
        bad.engine.name = hostile.into();
        bad.engine.version = Some("\u{627}\u{644}".repeat(4000));
        bad.started_at = Some(hostile.into());
        bad.command = vec![hostile.into()];
        bad.comparison = json!({"lines": [{"case": hostile, "metric": hostile, "verdict": "same", "why": hostile, "ratio": 1.0}]});
        let runs = [bad.clone(), bad];
        let options = ReportOptions { title: Some(hostile.into()), base: Vec::new() };
        let page = html(&runs, &options).unwrap();
        let body = page.strip_prefix("<!doctype html>\n").unwrap();
        let document = roxmltree::Document::parse(body).unwrap_or_else(|e| panic!("{e}"));
        let scripts: Vec<_> = document.descendants().filter(|node| node.has_tag_name("script")).collect();
        assert_eq!(scripts.len(), 1);
        assert_eq!(scripts[0].attribute("type"), Some("application/json"));
        let data: serde_json::Value = serde_json::from_str(scripts[0].text().unwrap()).unwrap();
        assert_eq!(data["runs"][1]["lane"], hostile);
        assert!(!page.contains('\u{202e}') && !page.contains('\u{0}'));
        // Text is escaped, and not interpreted as a template.
        let mut texts = document.descendants().filter_map(|node| node.text());
        assert!(texts.any(|text| text.contains("alert(1)") && text.contains("{{ page.css }}")));
        let handler = |node: roxmltree::Node<'_, '_>| node.attributes().any(|a| a.name().starts_with("on"));
        assert!(!document.descendants().any(handler));
    }

    #[test]
    fn nothing_is_asked_of_a_network() {
        let page = html(&[run("score", vec![row("a", &[1.0, 2.0])])], &ReportOptions::default()).unwrap();
        let forbidden = ["http://", "https://", "url(", "@import", "src=", "<img", "<iframe", "javascript:"];
        for forbidden in forbidden {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn many_runs_stay_below_the_limit() {
        let values: Vec<f64> = (0..100).map(|i| 1.0 + f64::from(i) / 977.0).collect();
        let timed = |i: usize| {
            let samples = Samples::new("s", Direction::Lower, values.clone()).unwrap();
            row(&format!("case/{i}"), &values).metric("seconds", samples)
        };
        let mut runs = ["score", "gemm"].map(|lane| run(lane, (0..240).map(timed).collect()));
        let first = html(&runs, &ReportOptions::default()).unwrap();
        assert!(first.len() < LIMIT, "{}", first.len());
        assert!(first.contains("To stay below 1000000 bytes"));
        runs[0].rows.truncate(3);
        runs[1].rows.truncate(3);
        let small = html(&runs, &ReportOptions::default()).unwrap();
        assert!(small.len() < first.len() && !small.contains("To stay below"));
    }

    #[test]
    fn equal_runs_give_equal_pages() {
        let runs = [run("score", vec![row("a", &[1.0, 2.0])])];
        let page = || html(&runs, &ReportOptions::default()).unwrap();
        assert_eq!(page(), page());
        assert!(html(&[], &ReportOptions::default()).unwrap().contains("<b>0</b> runs"));
    }

    #[test]
    fn every_missed_gate_and_every_invalid_row_is_counted() {
        let twice = row("a", &[1.0]).gate("rate", 2.0).at_most("rate", 0.5);
        let unchecked = Row { checked: false, ..row("b", &[1.0]) };
        let runs = [run("score", vec![twice, unchecked])];
        let facts = facts(&Subjects::new(&runs), &[Verdict::Slower, Verdict::Same, Verdict::Slower]);
        let told: Vec<String> = facts.iter().map(|fact| format!("{} {}", fact.number, fact.noun)).collect();
        assert_eq!(told[..5], ["1 run", "1 lane", "1 build", "1 machine", "2 rows"]);
        assert_eq!(told[5..], ["1 not to be believed", "2 gates missed", "2 ✗ slower", "1 = same"]);
        let bad: Vec<bool> = facts[5..].iter().map(|fact| fact.bad).collect();
        assert_eq!(bad, [true, true, true, false]);
    }

    #[test]
    fn the_span_is_from_the_first_start_to_the_last() {
        let mut runs = ["a", "b", "c"].map(|lane| run(lane, Vec::new()));
        let told = |runs: &[Run]| span(&Subjects::new(runs)).unwrap_or_default();
        assert_eq!(told(&runs), "");
        runs[2].started_at = Some("2026-11-20T01:02:03Z".into());
        assert_eq!(told(&runs), "Measured 2026-11-20 01:02:03 UTC");
        runs[0].started_at = Some("2026-11-22T00:00:00Z".into());
        assert_eq!(told(&runs), "Measured 2026-11-20 01:02:03 UTC to 2026-11-22 00:00:00 UTC");
    }
}
