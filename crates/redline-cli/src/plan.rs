//! Flags for planning passes, and the messages about plans while requests run.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use redline_engine::{Buckets, PlanEvent, PlanOptions, PlanPolicy};

use crate::env::{self, Environment, or_else};
use crate::message::{self, Failure};
use crate::value::{self, PlanDir, Sizes};

/// How passes are planned.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Plans")]
pub(crate) struct PlanFlags {
    /// Where plans are stored: a directory, or off; default: `redline/plans` in the user's cache [env: REDLINE_PLAN_CACHE]
    #[arg(long, value_name = "DIR", value_parser = value::plan_dir)]
    plan_cache: Option<PlanDir>,
    /// What to do for a pass without a plan: tune (measure and store one), estimate (default), or forbid (an error); off: plans
    /// are neither looked for nor kept [env: REDLINE_PLAN_POLICY]
    #[arg(long, value_name = "POLICY", value_parser = value::named::<PlanPolicy>)]
    plan_policy: Option<PlanPolicy>,
    /// Sizes of passes, in tokens, that have a plan; default: 64,128,256,512,1024,2048,4096,8192, as far as --max-chunk allows
    #[arg(long, value_name = "N,..", value_parser = value::sizes)]
    plan_tokens: Option<Sizes>,
    /// Numbers of sequences that decode together, and of rows of logits, that have a plan; default: 1,2,4,8,16,32,64,128,256
    #[arg(long, value_name = "N,..", value_parser = value::sizes)]
    plan_rows: Option<Sizes>,
    /// Maximum number of tokens in a pass; default 512, and for small encoders 512 per thread, as far as 8192 and --memory allow
    /// [env: REDLINE_MAX_CHUNK]
    #[arg(long, value_name = "N", value_parser = value::chunk)]
    max_chunk: Option<usize>,
    /// Report every pass that had no plan, and how its key differs from the stored ones: on (also without a value) or off [env:
    /// REDLINE_LOG_PLANS]
    #[arg(
        long,
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        value_parser = value::on_off
    )]
    log_plans: Option<bool>,
}

impl PlanFlags {
    /// These flags for making plans: plans are measured unless a flag names another policy. Given sizes replace the default ones.
    pub(crate) fn making(self, tokens: Option<Sizes>, rows: Option<Sizes>) -> Self {
        let plan_policy = self.plan_policy.or(Some(PlanPolicy::Tune));
        let (plan_tokens, plan_rows) = (tokens.or(self.plan_tokens), rows.or(self.plan_rows));
        Self { plan_policy, plan_tokens, plan_rows, ..self }
    }

    /// The plan directory that the flag or the environment names, if there is one.
    pub(crate) fn named_dir(&self, environment: Environment) -> Result<Option<PathBuf>, Failure> {
        Ok(self.given_dir(environment)?.and_then(|dir| dir.0))
    }

    fn given_dir(&self, environment: Environment) -> Result<Option<PlanDir>, Failure> {
        or_else(self.plan_cache.clone(), || environment.value(env::PLAN_CACHE, value::plan_dir))
    }

    /// Fills in the values that no flag gave, from the environment.
    pub(crate) fn resolve(&self, environment: Environment) -> Result<PlanOptions, Failure> {
        let cache = self.given_dir(environment)?.map_or_else(|| default_dir(environment), |dir| dir.0);
        let named =
            or_else(self.plan_policy, || environment.value(env::PLAN_POLICY, value::named::<PlanPolicy>))?;
        let max_chunk = or_else(self.max_chunk, || environment.value(env::MAX_CHUNK, value::chunk))?;
        let loud = or_else(self.log_plans, || environment.value(env::LOG_PLANS, value::on_off))?;
        let tokens = self.plan_tokens.as_ref().map_or(Buckets::TOKENS, |sizes| &sizes.0);
        let rows = self.plan_rows.as_ref().map_or(Buckets::ROWS, |sizes| &sizes.0);
        Ok(PlanOptions {
            policy: named.unwrap_or_default(),
            cache,
            buckets: match max_chunk {
                Some(max_chunk) => Buckets::new(tokens, rows, max_chunk),
                None => Buckets::automatic(tokens, rows),
            },
            tells_misses: loud.unwrap_or(false),
            log: Arc::new(say),
        })
    }
}

/// The plan folder in the user's cache, if there is one.
fn default_dir(environment: Environment) -> Option<PathBuf> {
    let cache = environment.path(env::XDG_CACHE_HOME);
    let cache = cache.or_else(|| environment.path(env::HOME).map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("redline").join("plans"))
}

fn say(event: &PlanEvent) {
    match event {
        PlanEvent::Miss { bucket, differs } => {
            let why = if differs.is_empty() { "nothing is stored".to_owned() } else { differs.clone() };
            message::say(format_args!("plan: {bucket} missing: {why}\n"));
        }
        PlanEvent::Dropped { path, reason } => {
            message::say(format_args!(
                "warning: a stored plan is not used: {reason}\n  in `{}`\n",
                path.display()
            ));
        }
        PlanEvent::Busy { bucket } => {
            message::say(format_args!(
                "warning: other processes kept cores busy while {bucket} was measured; its plan is the estimate\n\n\
                 hint: remove the stored plans and measure again when the machine is quiet\n"
            ));
        }
        PlanEvent::NotStored { dir, reason } => {
            message::say(format_args!("warning: a plan is not stored: {reason}\n  in `{}`\n", dir.display()));
        }
    }
}
