//! Converts a comparison to JSON, and to a table for people.

use redline_api::documents::parity::{Parity, ParityChoice, ParityLine, ParityMeta, ParityTop};
use redline_api::json::finite::Finite;
use redline_api::json::version::SchemaVersion;
use redline_api::model::LoadedModel;
use redline_parity::{ComparedActivation, ParityReport, RowChoice, TopChoice};

use super::Described;
use crate::table;

/// Number of diverging activations listed by default.
const SHOWN: usize = 8;

/// Builds the JSON document.
pub(super) fn document(
    loaded: &LoadedModel,
    described: &Described,
    found: &ParityReport,
    all: bool,
) -> Parity {
    let info = loaded.engine.info();
    let first = found.first_divergence().and_then(|at| found.lines.get(at));
    let listed = found.lines.iter().filter(|line| all || found.diverges(line));
    Parity {
        object: "parity".to_owned(),
        schema: SchemaVersion,
        model: loaded.name.clone(),
        within: first.is_none(),
        tolerance: Finite(found.tolerance),
        steps: found.steps(),
        compared: found.lines.len(),
        diverging: diverging(found).count(),
        first_divergence: first.map(|line| shown(found, line)),
        worst: found.worst().map(|line| shown(found, line)),
        top1: tops(found).map(|(step, top)| top1(step, top)).collect(),
        activations: listed.map(|line| shown(found, line)).collect(),
        meta: ParityMeta {
            reference: described.source.clone(),
            versions: described.versions.clone(),
            format: info.format.to_string(),
            kv_format: info.kv_format.name().to_owned(),
            kernel_path: info.kernel_path.clone(),
            threads: info.threads,
        },
    }
}

fn diverging(found: &ParityReport) -> impl Iterator<Item = &ComparedActivation> {
    found.lines.iter().filter(|line| found.diverges(line))
}

fn tops(found: &ParityReport) -> impl Iterator<Item = (usize, &TopChoice)> {
    found.lines.iter().filter_map(|line| Some((line.step, line.top.as_ref()?)))
}

fn finite(value: f64) -> Option<Finite<f64>> {
    value.is_finite().then_some(Finite(value))
}

fn shown(found: &ParityReport, line: &ComparedActivation) -> ParityLine {
    let difference = &line.difference;
    ParityLine {
        step: line.step,
        activation: line.id.to_string(),
        within: !found.diverges(line),
        nmse: finite(difference.nmse()),
        cosine: difference.cosine().map(Finite),
        max_error: finite(difference.max_error),
        row: difference.max_place.row,
        column: difference.max_place.column,
        non_finite: difference.non_finite,
    }
}

fn top1(step: usize, top: &TopChoice) -> ParityTop {
    let choice = |choice: RowChoice| ParityChoice {
        row: choice.row,
        reference: choice.reference,
        reference_margin: Finite(choice.reference_margin),
        own: choice.own,
        own_margin: Finite(choice.own_margin),
    };
    ParityTop {
        step,
        rows: top.rows,
        agree: top.agree,
        closest: top.closest.map(choice),
        first_other: top.first_other.map(choice),
    }
}

/// The first activations that diverge, or all of them, and the result.
pub(super) fn table(found: &ParityReport, all: bool) -> String {
    let first = found.first_divergence();
    let listed: Vec<(usize, &ComparedActivation)> =
        found.lines.iter().enumerate().filter(|(_, line)| all || found.diverges(line)).collect();
    let most = if all { listed.len() } else { SHOWN.min(listed.len()) };
    let mut text = String::new();
    if most > 0 {
        let header = ["step", "activation", "NMSE", "cosine", "max error", "row", "column", ""];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(listed[..most].iter().map(|&(at, line)| cells(found, line, first == Some(at))));
        text.push_str(&table::align(&rows, header.len() - 1));
    }
    if listed.len() > most {
        text.push_str(&format!("{} more diverge; `--all` lists them\n", listed.len() - most));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text + &verdict(found) + &tops(found).map(|(step, top)| top_line(step, top)).collect::<String>()
}

fn cells(found: &ParityReport, line: &ComparedActivation, first: bool) -> Vec<String> {
    let difference = &line.difference;
    let place = difference.max_place;
    let mark = match (first, found.diverges(line), difference.non_finite) {
        (true, _, 0) => "<- first divergence".to_owned(),
        (true, _, n) => format!("<- first divergence, {n} values are no numbers"),
        (false, true, _) => "diverges".to_owned(),
        (false, false, _) => String::new(),
    };
    vec![
        line.step.to_string(),
        line.id.to_string(),
        format!("{:.2e}", difference.nmse()),
        difference.cosine().map_or("-".to_owned(), |cosine| format!("{cosine:.9}")),
        format!("{:.2e}", difference.max_error),
        place.row.to_string(),
        place.column.to_string(),
        mark,
    ]
}

fn verdict(found: &ParityReport) -> String {
    let (compared, steps, tolerance) = (found.lines.len(), found.steps(), found.tolerance);
    let worst = found.worst().map_or_else(String::new, |line| {
        format!("; largest NMSE {:.2e} in step {} {}", line.difference.nmse(), line.step, line.id)
    });
    let beyond = diverging(found).count();
    let how = if beyond == 0 { "within".to_owned() } else { format!("{beyond} beyond") };
    format!("{compared} activations in {steps} steps: {how} {tolerance:e}{worst}\n")
}

fn top_line(step: usize, top: &TopChoice) -> String {
    let closest = top.closest.map_or_else(String::new, |choice| {
        let (reference, own) = (choice.reference_margin, choice.own_margin);
        format!("; smallest margin {reference:.3e} (here {own:.3e}), in row {}", choice.row)
    });
    let other = top.first_other.map_or_else(String::new, |choice| {
        format!("; first other choice in row {}: {} instead of {}", choice.row, choice.own, choice.reference)
    });
    format!("top-1 of step {step}: {} of {} rows agree{closest}{other}\n", top.agree, top.rows)
}
