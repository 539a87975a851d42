//! Formats a comparison as a table and as JSON.

use super::{ComparedMetric, Comparison, Side};
use crate::verdict::{Effect, Verdict};
use redline_system::number;
use redline_system::table::{Table, or_blank, or_dash};

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
            "differences from {} on matter; base and new: geometric means of processes, or of samples; ratio above 1: new is \
             better; {:.0} % intervals; finds: the smallest difference seen in 4 of 5 such runs\n",
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
        let mut table = Table::new("case|metric|>base|>new|unit|>ratio|interval|>finds|over|verdict");
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
        let different = o.different.join(", ");
        let different = if different.is_empty() { different } else { format!(" ({different})") };
        let [equal, unequal, unknown] = [&o.equal, &o.different, &o.unknown].map(Vec::len);
        text.push_str(&format!(
            "outputs: {equal} equal, {unequal} different{different}, {unknown} unknown\n"
        ));
        let count = |verdict: Verdict| self.lines.iter().filter(|l| l.verdict == Some(verdict)).count();
        let counts = Verdict::BY_SEVERITY.iter().map(|&(verdict, _)| (count(verdict), verdict.name()));
        let counts = counts.filter(|(n, _)| *n > 0).map(|(n, name)| format!("{n} {name}"));
        let counts: Vec<String> = counts.collect();
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
fn cells(line: &ComparedMetric) -> Vec<String> {
    let e = line.effect.as_ref();
    let verdict = match (line.verdict, &line.why) {
        (None, _) => "reported".to_owned(),
        (Some(verdict), None) => verdict.to_string(),
        (Some(verdict), Some(why)) => format!("{verdict}: {why}"),
    };
    vec![
        or_blank(line.metric.as_ref()),
        or_dash(line.base),
        or_dash(line.new),
        or_blank(line.unit.as_ref()),
        or_dash(e.map(|e| e.ratio)),
        or_blank(e.and_then(interval)),
        or_blank(e.and_then(|e| e.detectable).map(number::percent)),
        or_blank(e.map(over)),
        verdict,
    ]
}

fn interval(effect: &Effect) -> Option<String> {
    Some(format!("{} to {}", number::short(effect.low?), number::short(effect.high?)))
}

/// `4+4 processes`.
fn over(effect: &Effect) -> String {
    let steadied = if effect.steadied { ", steadied" } else { "" };
    format!("{}+{} {}{steadied}", effect.base_n, effect.new_n, effect.basis)
}
