//! `redline precompile`: makes a plan for every pass size, so that no request waits for one.

use std::process::ExitCode;

use clap::Args;
use redline_api::documents::plan::{Manifest, ManifestCounters, ManifestEntry};
use redline_api::json::finite::Finite;
use redline_api::json::version::SchemaVersion;
use redline_api::model::LoadedModel;
use redline_engine::PlanEntry;

use super::Context;
use crate::message::{self, Failure};
use crate::model::{MachineFlags, ModelFlag};
use crate::value::{self, Sizes};
use crate::{output, table};

/// Flags of `precompile`.
#[derive(Debug, Args)]
#[command(
    after_help = "Missing plans are measured and stored, whatever REDLINE_PLAN_POLICY says; --plan-policy selects another \
    policy. The output lists a plan for every size of pass at which this model can run with these settings. If a plan cannot be \
    stored, there is no output, and the exit code is 1."
)]
pub(super) struct PrecompileArgs {
    #[command(flatten)]
    model: ModelFlag,
    #[command(flatten)]
    machine: MachineFlags,
    /// The same as --plan-tokens
    #[arg(long, value_name = "N,..", value_parser = value::sizes, conflicts_with = "plan_tokens")]
    tokens: Option<Sizes>,
    /// The same as --plan-rows
    #[arg(long, value_name = "N,..", value_parser = value::sizes, conflicts_with = "plan_rows")]
    rows: Option<Sizes>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Makes the plans and prints the manifest.
pub(super) fn run(args: &PrecompileArgs, context: &Context) -> Result<ExitCode, Failure> {
    let name = args.model.resolve(context.environment)?;
    let machine = args.machine.for_plans(args.tokens.clone(), args.rows.clone());
    let settings = machine.resolve(context.environment, &context.clock)?;
    if !settings.stores_plans() {
        let fact = "no plan would be stored: there is no directory for them, or the policy is not tune";
        message::say(format_args!("warning: {fact}\n"));
    }
    let start = context.clock.now_ns();
    let LoadedModel { engine, name } = settings.load(&name, context.environment)?;
    let load_s = context.clock.elapsed_ns(start) as f64 * 1e-9;
    let start = context.clock.now_ns();
    let entries = engine.precompile()?;
    let seconds = context.clock.elapsed_ns(start) as f64 * 1e-9;
    let counters = engine.plan_counters();
    if counters.not_stored > 0 {
        let fact = format!("{} of {} plans could not be stored", counters.not_stored, entries.len());
        let hint = "`--plan-cache DIR` names a directory that may be written; the warning above says why this one may not";
        return Err(Failure::failed(fact, Some(hint.to_owned())));
    }
    let manifest = Manifest {
        object: "plan_manifest".into(),
        schema: SchemaVersion,
        model: name,
        kernel_path: engine.info().kernel_path.clone(),
        threads: engine.info().threads,
        tp: engine.info().tp,
        plans: entries.iter().map(entry).collect(),
        counters: ManifestCounters {
            misses: counters.misses,
            compiles: counters.compiles,
            measurements: counters.measurements,
            loads: counters.loads,
        },
        load_s: Finite(load_s),
        precompile_s: Finite(seconds),
    };
    if args.json {
        output::line(&output::json(&manifest)?)?;
    } else {
        output::piece(&text(&manifest))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn entry(entry: &PlanEntry) -> ManifestEntry {
    ManifestEntry {
        plan: entry.bucket.to_string(),
        origin: entry.origin.name().into(),
        choices: entry.choices.iter().map(|(site, variant)| ((*site).into(), (*variant).into())).collect(),
        gain: entry.gain.map(Finite),
        activation_bytes: entry.activation_bytes,
        seconds: Finite(entry.seconds),
    }
}

fn text(manifest: &Manifest) -> String {
    let titles = ["plan", "from", "ms", "gain", "layers"].map(str::to_owned);
    let mut rows = vec![titles.to_vec()];
    for plan in &manifest.plans {
        let choices: Vec<String> =
            plan.choices.iter().map(|(site, variant)| format!("{site} {variant}")).collect();
        let gain = plan.gain.map_or_else(|| "-".to_owned(), |gain| format!("{:.2}x", gain.0));
        let ms = format!("{:.1}", plan.seconds.0 * 1e3);
        rows.push(vec![plan.plan.clone(), plan.origin.clone(), ms, gain, choices.join(", ")]);
    }
    let ManifestCounters { misses, compiles, measurements, loads } = manifest.counters;
    format!(
        "{}{} plans in {:.2} s beyond {:.2} s of loading: {loads} stored, {compiles} measured ({measurements} timings), \
         {misses} misses\n",
        table::align(&rows, 4),
        manifest.plans.len(),
        manifest.precompile_s.0,
        manifest.load_s.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(plan: &str, origin: &str, seconds: f64, gain: Option<f64>, variants: &[&str]) -> ManifestEntry {
        ManifestEntry {
            plan: plan.to_owned(),
            origin: origin.to_owned(),
            choices: ["down", "qkv"]
                .into_iter()
                .zip(variants)
                .map(|(s, v)| (s.into(), (*v).into()))
                .collect(),
            gain: gain.map(Finite),
            activation_bytes: 0,
            seconds: Finite(seconds),
        }
    }

    #[test]
    fn plans_read_as_a_table_and_its_sum() {
        let manifest = Manifest {
            object: "plan_manifest".to_owned(),
            schema: SchemaVersion,
            model: "m".to_owned(),
            kernel_path: "scalar".to_owned(),
            threads: 1,
            tp: 1,
            plans: vec![
                plan("pass/1", "measured", 0.0125, Some(1.5), &["blocked", "dot"]),
                plan("logits/64", "stored", 0.000_26, None, &[]),
            ],
            counters: ManifestCounters { misses: 6, compiles: 4, measurements: 5, loads: 3 },
            load_s: Finite(1.25),
            precompile_s: Finite(0.5),
        };
        let expected = "\
plan           from    ms   gain  layers
pass/1     measured  12.5  1.50x  down blocked, qkv dot
logits/64    stored   0.3      -
2 plans in 0.50 s beyond 1.25 s of loading: 3 stored, 4 measured (5 timings), 6 misses
";
        assert_eq!(text(&manifest), expected);
    }
}
