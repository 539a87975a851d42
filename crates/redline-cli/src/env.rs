//! The process environment. Only this file reads variables and arguments of the process.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::message::Failure;
use crate::value::BadValue;

/// One environment variable.
#[derive(Debug)]
pub(crate) struct Variable {
    /// The name of the variable.
    pub(crate) name: &'static str,
    /// The flag or setting it provides.
    pub(crate) help: &'static str,
}

/// Default of `--model`.
pub(crate) const MODEL: &Variable = &Variable { name: "REDLINE_MODEL", help: "--model" };
/// Default of `--api-key`. A secret: no document of a run lists it.
pub(crate) const API_KEY: &Variable = &Variable { name: "REDLINE_API_KEY", help: "--api-key (serve)" };
/// Key that must have signed every model directory.
pub(crate) const REQUIRE_SIGNED: &Variable =
    &Variable { name: "REDLINE_REQUIRE_SIGNED", help: "--require-signed" };
/// Default of `--threads`.
pub(crate) const THREADS: &Variable = &Variable { name: "REDLINE_THREADS", help: "--threads" };
/// Default of `--isa`.
pub(crate) const ISA: &Variable = &Variable { name: "REDLINE_ISA", help: "--isa" };
/// Default of `--format`.
pub(crate) const FORMAT: &Variable = &Variable { name: "REDLINE_FORMAT", help: "--format" };
/// Default of `--kv-format`.
pub(crate) const KV_FORMAT: &Variable = &Variable { name: "REDLINE_KV_FORMAT", help: "--kv-format" };
/// Default of `--max-context`.
pub(crate) const MAX_CONTEXT: &Variable = &Variable { name: "REDLINE_MAX_CONTEXT", help: "--max-context" };
/// Default of `--memory`.
pub(crate) const MEMORY: &Variable = &Variable { name: "REDLINE_MEMORY", help: "--memory" };
/// Default of `--prefix-cache`.
pub(crate) const PREFIX_CACHE: &Variable = &Variable { name: "REDLINE_PREFIX_CACHE", help: "--prefix-cache" };
/// Default of `--prefix-cache-dir`.
pub(crate) const PREFIX_CACHE_DIR: &Variable =
    &Variable { name: "REDLINE_PREFIX_CACHE_DIR", help: "--prefix-cache-dir" };
/// Default of `--prefix-cache-disk`.
pub(crate) const PREFIX_CACHE_DISK: &Variable =
    &Variable { name: "REDLINE_PREFIX_CACHE_DISK", help: "--prefix-cache-disk" };
/// Default of `--tp`.
pub(crate) const TP: &Variable = &Variable { name: "REDLINE_TP", help: "--tp" };
/// Default of `--device`.
pub(crate) const DEVICE: &Variable = &Variable { name: "REDLINE_DEVICE", help: "--device" };
/// Default of `--plan-cache`.
pub(crate) const PLAN_CACHE: &Variable = &Variable { name: "REDLINE_PLAN_CACHE", help: "--plan-cache" };
/// Default of `--plan-policy`.
pub(crate) const PLAN_POLICY: &Variable = &Variable { name: "REDLINE_PLAN_POLICY", help: "--plan-policy" };
/// Default of `--log-plans`.
pub(crate) const LOG_PLANS: &Variable = &Variable { name: "REDLINE_LOG_PLANS", help: "--log-plans" };
/// Default of `--max-chunk`.
pub(crate) const MAX_CHUNK: &Variable = &Variable { name: "REDLINE_MAX_CHUNK", help: "--max-chunk" };
/// File for the precision trace, which describes the residual stream.
pub(crate) const PRECISION_TRACE: &Variable =
    &Variable { name: "REDLINE_PRECISION_TRACE", help: "--precision-trace" };
/// File for the profile trace, which shows where the time goes.
pub(crate) const PROFILE_TRACE: &Variable =
    &Variable { name: "REDLINE_PROFILE_TRACE", help: "--profile-trace" };
/// The minimum speedup of the native tokenizer.
const TOKENIZER_MIN_SPEEDUP: &Variable =
    &Variable { name: "REDLINE_TOKENIZER_MIN_SPEEDUP", help: "--min-speedup (bench tokenizer)" };
/// The Hugging Face model cache.
pub(crate) const HF_HUB_CACHE: &Variable =
    &Variable { name: "HF_HUB_CACHE", help: "where downloaded models lie (first of four places looked at)" };
/// The Hugging Face home directory.
pub(crate) const HF_HOME: &Variable = &Variable { name: "HF_HOME", help: "models in its folder `hub`" };
/// The address of the hub.
pub(crate) const HF_ENDPOINT: &Variable =
    &Variable { name: "HF_ENDPOINT", help: "the hub of `pull`; default: https://huggingface.co" };
/// The access token for the hub.
pub(crate) const HF_TOKEN: &Variable = &Variable { name: "HF_TOKEN", help: "access token for `pull`" };
/// The file with the access token.
pub(crate) const HF_TOKEN_PATH: &Variable =
    &Variable { name: "HF_TOKEN_PATH", help: "file with that token; default: `token` in HF_HOME" };
/// Whether nothing is downloaded.
pub(crate) const HF_HUB_OFFLINE: &Variable =
    &Variable { name: "HF_HUB_OFFLINE", help: "1: `pull` opens no connection and only looks in the cache" };
/// Root certificates.
pub(crate) const SSL_CERT_FILE: &Variable =
    &Variable { name: "SSL_CERT_FILE", help: "root certificates for `pull` (PEM), in place of Mozilla's" };
/// The XDG cache directory.
pub(crate) const XDG_CACHE_HOME: &Variable = &Variable {
    name: "XDG_CACHE_HOME",
    help: "models in its folder `huggingface/hub`, plans in `redline/plans`",
};
/// The home directory.
pub(crate) const HOME: &Variable = &Variable {
    name: "HOME",
    help: "models in its folder `.cache/huggingface/hub`, plans in `.cache/redline/plans`",
};

/// All variables that are read.
pub(crate) const VARIABLES: &[&Variable] = &[
    MODEL,
    API_KEY,
    REQUIRE_SIGNED,
    THREADS,
    ISA,
    FORMAT,
    KV_FORMAT,
    MAX_CONTEXT,
    MEMORY,
    PREFIX_CACHE,
    PREFIX_CACHE_DIR,
    PREFIX_CACHE_DISK,
    TP,
    DEVICE,
    PLAN_CACHE,
    PLAN_POLICY,
    LOG_PLANS,
    MAX_CHUNK,
    PRECISION_TRACE,
    PROFILE_TRACE,
    TOKENIZER_MIN_SPEEDUP,
    HF_HUB_CACHE,
    HF_HOME,
    HF_ENDPOINT,
    HF_TOKEN,
    HF_TOKEN_PATH,
    HF_HUB_OFFLINE,
    SSL_CERT_FILE,
    XDG_CACHE_HOME,
    HOME,
];

/// The variable that sets a flag of a lane, if there is one.
pub(crate) fn of_lane(lane: &str, flag: &str) -> Option<&'static Variable> {
    let name = format!("REDLINE_{lane}_{flag}").to_uppercase().replace('-', "_");
    VARIABLES.iter().copied().find(|variable| variable.name == name)
}

/// The list of variables for `redline --help`.
pub(crate) fn help() -> String {
    let mut text =
        "Environment variables (a flag overrides its variable; an empty variable counts as not set):\n"
            .to_owned();
    let width = VARIABLES.iter().map(|variable| variable.name.len()).max().unwrap_or(0);
    for variable in VARIABLES {
        let _ = writeln!(text, "  {:<width$} {}", variable.name, variable.help);
    }
    text
}

/// The arguments of the process.
pub(crate) fn arguments() -> Vec<OsString> {
    std::env::args_os().collect()
}

/// The path that starts this binary again, even if its file was replaced, and the path of its file.
pub(crate) fn binary() -> (PathBuf, PathBuf) {
    let path = std::env::current_exe().unwrap_or_else(|_| "redline".into());
    let running = PathBuf::from("/proc/self/exe");
    (if running.exists() { running } else { path.clone() }, path)
}

/// Where variables are looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Environment {
    get: fn(&str) -> Option<OsString>,
}

impl Environment {
    /// The environment of this process.
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the environment")]
    pub(crate) fn of_process() -> Self {
        Self { get: |name| std::env::var_os(name) }
    }

    /// The project's own variables that are set, by name, but for the one with a secret.
    pub(crate) fn set(self) -> impl Iterator<Item = (String, String)> {
        let is_ours = |name: &str| name.starts_with("REDLINE_") && name != API_KEY.name;
        let ours = VARIABLES.iter().filter(move |variable| is_ours(variable.name));
        ours.filter_map(move |variable| {
            let value = (self.get)(variable.name).filter(|value| !value.is_empty())?;
            Some((variable.name.to_owned(), value.to_string_lossy().into_owned()))
        })
    }

    /// The value of a variable that names a file or a folder.
    pub(crate) fn path(self, variable: &Variable) -> Option<PathBuf> {
        (self.get)(variable.name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// Whether a variable of the Hugging Face tools is on, in the words that they accept.
    pub(crate) fn is_on(self, variable: &Variable) -> bool {
        let value = (self.get)(variable.name).and_then(|value| value.into_string().ok()).unwrap_or_default();
        ["1", "on", "yes", "true"].iter().any(|on| value.eq_ignore_ascii_case(on))
    }

    /// Parses the value of a variable. A bad value is a usage error that names the variable.
    pub(crate) fn value<T>(
        self,
        variable: &Variable,
        parse: impl Fn(&str) -> Result<T, BadValue>,
    ) -> Result<Option<T>, Failure> {
        let Some(raw) = (self.get)(variable.name).filter(|value| !value.is_empty()) else { return Ok(None) };
        let Some(text) = raw.to_str() else {
            let fact =
                format!("`{}` is not UTF-8\n  in environment variable `{}`", raw.display(), variable.name);
            return Err(Failure::usage(fact, format!("unset it, or give `{}`", variable.help)));
        };
        parse(text).map(Some).map_err(|bad| {
            let fact =
                format!("invalid value `{text}`: {bad}\n  in environment variable `{}`", variable.name);
            Failure::usage(fact, format!("{}; a flag `{}` wins over the variable", bad.hint, variable.help))
        })
    }
}

/// The value of a flag, or what the environment or a default gives if the flag is absent.
pub(crate) fn or_else<T>(
    flag: Option<T>,
    other: impl FnOnce() -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Failure> {
    if flag.is_some() { Ok(flag) } else { other() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn the_list_is_whole_and_shown() {
        let shown = help();
        for (at, variable) in VARIABLES.iter().enumerate() {
            assert!(shown.contains(variable.name), "{}", variable.name);
            assert!(
                VARIABLES[..at].iter().all(|other| other.name != variable.name),
                "{} twice",
                variable.name
            );
            if variable.name.starts_with("REDLINE_") {
                let flag =
                    format!("--{}", variable.name["REDLINE_".len()..].to_lowercase().replace('_', "-"));
                let lane = variable.help.split_once(" (bench ").map(|(flag, lane)| {
                    let lane = lane.trim_end_matches(')');
                    assert_eq!(of_lane(lane, &flag[2..]).map(|found| found.name), Some(variable.name));
                    format!("--{lane}-{}", &flag[2..])
                });
                let named = lane.as_deref().unwrap_or(variable.help.trim_end_matches(" (serve)"));
                assert_eq!(named, flag, "a variable is named after its flag");
            }
        }
    }

    #[test]
    fn a_bad_value_names_its_variable() {
        let environment = Environment { get: |name| (name == "REDLINE_THREADS").then(|| "many".into()) };
        let Err(Failure::Usage(message)) = environment.value(THREADS, value::threads) else {
            panic!("not refused")
        };
        assert!(message.fact.contains("invalid value `many`") && message.fact.contains("REDLINE_THREADS"));
        assert!(environment.value(ISA, value::isa).unwrap().is_none());
    }

    #[test]
    fn our_own_variables_that_are_set_are_listed() {
        let environment = Environment { get: |name| (name != "REDLINE_ISA").then(|| "2".into()) };
        let set: Vec<_> = environment.set().collect();
        assert!(set.contains(&("REDLINE_THREADS".to_owned(), "2".to_owned())));
        assert!(set.iter().all(|(name, _)| name.starts_with("REDLINE_") && name != "REDLINE_ISA"), "{set:?}");
        assert!(set.iter().all(|(name, _)| name != API_KEY.name), "a secret is listed: {set:?}");
    }

    #[test]
    fn a_switch_is_on_in_four_words() {
        let on = |get| Environment { get }.is_on(HF_HUB_OFFLINE);
        assert!(on(|_| Some("1".into())) && on(|_| Some("TRUE".into())) && on(|_| Some("on".into())));
        assert!(on(|_| Some("Yes".into())));
        assert!(!on(|_| Some("0".into())) && !on(|_| Some("".into())) && !on(|_| None));
    }

    #[test]
    fn an_empty_variable_is_not_set() {
        let environment = Environment { get: |_| Some(OsString::new()) };
        assert!(environment.value(THREADS, value::threads).unwrap().is_none());
        assert!(environment.path(HF_HOME).is_none());
        assert_eq!(environment.set().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_value_that_is_not_utf8_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let environment = Environment { get: |_| Some(OsString::from_vec(vec![0xff])) };
        let Err(Failure::Usage(message)) = environment.value(FORMAT, value::format) else {
            panic!("not refused")
        };
        assert!(message.fact.contains("not UTF-8") && message.fact.contains("REDLINE_FORMAT"));
    }
}
