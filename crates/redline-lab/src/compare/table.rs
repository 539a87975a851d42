//! Formats a comparison as a table and as JSON.

use super::{Comparison, Line, Side};
use crate::number;
use crate::table::Table;
use crate::verdict::{Effect, Verdict};

impl Comparison {
    /// The comparison as one JSON document, indented, with a line break at the end.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// Both runs, a line per case and metric, the result for outputs, and the counts of verdicts.
    pub fn table(&self) -> String {
        let head = [side("base", &self.base), side("new ", &self.new), self.rules()].concat();
        [head, self.lines(), self.outcome()].join("\n")
    }

    fn rules(&self) -> String {
        let mut text = format!(
            "differences from {} on matter; ratio above 1: new is better; {:.0} % intervals; finds: the smallest difference \
             seen in 4 of 5 such runs\n",
            number::percent(self.threshold),
            self.confidence * 100.0
        );
        if self.lines.iter().any(|line| line.effect.is_some_and(|effect| effect.steadied)) {
            text.push_str(
                "steadied: samples scaled to the same speed of the machine, which was read around each\n",
            );
        }
        for d in &self.differs {
            text.push_str(&format!("not comparable: {} is {} against {}\n", d.field, d.base, d.new));
        }
        text
    }

    fn lines(&self) -> String {
        let mut table = Table::new(&[
            ("case", false),
            ("metric", false),
            ("base", true),
            ("new", true),
            ("unit", false),
            ("ratio", true),
            ("interval", false),
            ("finds", true),
            ("over", false),
            ("verdict", false),
        ]);
        let mut last = "";
        for line in &self.lines {
            let case = if line.case == last { "" } else { &line.case };
            table.push([vec![case.to_owned()], cells(line)].concat());
            last = &line.case;
        }
        table.render()
    }

    fn outcome(&self) -> String {
        let mut text = String::new();
        if let Some(mean) = self.geometric_mean {
            text.push_str(&format!("geometric mean of {} ratios: {}\n", self.judged, number::short(mean)));
        }
        let o = &self.outputs;
        let named =
            if o.different.is_empty() { String::new() } else { format!(" ({})", o.different.join(", ")) };
        text.push_str(&format!(
            "outputs: {} equal, {} different{named}, {} unknown\n",
            o.equal.len(),
            o.different.len(),
            o.unknown.len()
        ));
        let count = |verdict: &Verdict| self.lines.iter().filter(|l| l.verdict == Some(*verdict)).count();
        let counts: Vec<String> = Verdict::BY_SEVERITY
            .iter()
            .map(|(verdict, _)| (count(verdict), verdict.name()))
            .filter(|(n, _)| *n > 0)
            .map(|(n, name)| format!("{n} {name}"))
            .collect();
        let counts = if counts.is_empty() { "nothing to compare".to_owned() } else { counts.join(", ") };
        text + &format!("result: {counts}; exit code {}\n", self.exit_code)
    }
}

fn side(name: &str, side: &Side) -> String {
    let open = (!side.finished).then(|| "NOT FINISHED".to_owned());
    let parts =
        [Some(side.engine.clone()), side.started_at.clone(), side.machine.clone(), side.run_id.clone(), open];
    format!("{name}  {}\n", parts.into_iter().flatten().collect::<Vec<_>>().join("  "))
}

/// All cells but the case.
fn cells(line: &Line) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), number::short);
    let e = line.effect.as_ref();
    let verdict = match (line.verdict, &line.why) {
        (None, _) => "told".to_owned(),
        (Some(verdict), None) => verdict.to_string(),
        (Some(verdict), Some(why)) => format!("{verdict}: {why}"),
    };
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    vec![
        text(&line.metric),
        number(line.base),
        number(line.new),
        text(&line.unit),
        number(e.map(|e| e.ratio)),
        e.and_then(interval).unwrap_or_default(),
        e.and_then(|e| e.detectable).map(number::percent).unwrap_or_default(),
        e.map(over).unwrap_or_default(),
        verdict,
    ]
}

fn interval(effect: &Effect) -> Option<String> {
    Some(format!("{} to {}", number::short(effect.low?), number::short(effect.high?)))
}

/// `4+4 processes`.
fn over(effect: &Effect) -> String {
    let steadied = if effect.steadied { ", steadied" } else { "" };
    format!("{}+{} {}{steadied}", effect.base_n, effect.new_n, effect.basis.name())
}
