//! Converts flags and JSON lines to the engine's request.

use redline_engine::{GenerateRequest, PromptLogprobs, Sampling};
use redline_wire::GenerateLine;

use super::{GenerateArgs, SamplingFlags};
use crate::command::prompt;
use crate::report::{self, Failure};

/// The settings that the flags give, without a prompt.
#[derive(Clone, Debug)]
pub(super) struct Template {
    max_new_tokens: usize,
    sampling: Chosen,
    stop: Vec<String>,
    ignore_eos: bool,
    logprobs: Option<usize>,
    prompt_logprobs: Option<usize>,
    prompt_logprobs_from: usize,
    kv_cache: bool,
    timeout_s: Option<f64>,
}

/// Sampling parameters; `None` where a parameter was not given.
#[derive(Clone, Copy, Debug, Default)]
struct Chosen {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    seed: Option<u64>,
}

impl Chosen {
    fn of(flags: &SamplingFlags) -> Self {
        let &SamplingFlags { temperature, top_k, top_p, min_p, seed } = flags;
        Self { temperature, top_k, top_p, min_p, seed }
    }

    /// Greedy by default. A filter without a temperature samples at temperature 1.
    fn sampling(self) -> Sampling {
        let filtered = self.top_k.is_some() || self.top_p.is_some() || self.min_p.is_some();
        let default = Sampling::default();
        Sampling {
            temperature: self.temperature.unwrap_or(if filtered { 1.0 } else { default.temperature }),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            seed: self.seed.unwrap_or(default.seed),
        }
    }
}

/// Builds the template from the flags.
pub(super) fn template(args: &GenerateArgs) -> Template {
    Template {
        max_new_tokens: args.max_new_tokens,
        sampling: Chosen::of(&args.sampling),
        stop: args.stop.clone(),
        ignore_eos: args.ignore_eos,
        logprobs: args.logprobs,
        prompt_logprobs: args.prompt_logprobs,
        prompt_logprobs_from: args.prompt_logprobs_from,
        kv_cache: !args.no_kv_cache,
        timeout_s: args.timeout,
    }
}

/// Completes the template with the prompt from the flags; it is an error if they give none.
pub(super) fn complete(args: &GenerateArgs, template: Template) -> Result<GenerateRequest, Failure> {
    let prompt = prompt::given("prompt", args.prompt.as_deref(), args.prompt_ids.as_ref())?;
    let sampling = template.sampling.sampling();
    if sampling.temperature == 0.0 && template.sampling.seed.is_some() && !args.quiet {
        report::note("--seed changes nothing without sampling; add --temperature 1");
    }
    Ok(GenerateRequest {
        prompt,
        max_new_tokens: template.max_new_tokens,
        sampling,
        stop: template.stop,
        ignore_eos: template.ignore_eos,
        logprobs: template.logprobs,
        prompt_logprobs: of_prompt(template.prompt_logprobs, template.prompt_logprobs_from),
        kv_cache: template.kv_cache,
        cache_salt: String::new(),
        timeout_s: template.timeout_s,
    })
}

fn of_prompt(top: Option<usize>, from: usize) -> Option<PromptLogprobs> {
    top.map(|top| PromptLogprobs { from, top })
}

/// Builds the request of a line. Keys that the line omits come from the template.
pub(super) fn from_line(line: GenerateLine, template: &Template) -> GenerateRequest {
    let flags = template.sampling;
    let sampling = Chosen {
        temperature: line.temperature.or(flags.temperature),
        top_k: line.top_k.or(flags.top_k),
        top_p: line.top_p.or(flags.top_p),
        min_p: line.min_p.or(flags.min_p),
        seed: line.seed.or(flags.seed),
    };
    GenerateRequest {
        prompt: prompt::of_line(line.prompt),
        max_new_tokens: line.max_new_tokens.unwrap_or(template.max_new_tokens),
        sampling: sampling.sampling(),
        stop: line.stop.map_or_else(|| template.stop.clone(), |stop| stop.0),
        ignore_eos: line.ignore_eos.unwrap_or(template.ignore_eos),
        logprobs: line.logprobs.or(template.logprobs),
        prompt_logprobs: of_prompt(
            line.prompt_logprobs.or(template.prompt_logprobs),
            line.prompt_logprobs_from.unwrap_or(template.prompt_logprobs_from),
        ),
        kv_cache: line.kv_cache.unwrap_or(template.kv_cache),
        cache_salt: line.cache_salt.unwrap_or_default(),
        timeout_s: line.timeout_s.or(template.timeout_s),
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::Prompt;

    use super::*;

    #[test]
    fn greedy_unless_asked_otherwise() {
        let check = |chosen: Chosen, temperature: f32| assert_eq!(chosen.sampling().temperature, temperature);
        check(Chosen::default(), 0.0);
        check(Chosen { seed: Some(7), ..Chosen::default() }, 0.0);
        check(Chosen { top_k: Some(5), ..Chosen::default() }, 1.0);
        check(Chosen { top_p: Some(0.5), ..Chosen::default() }, 1.0);
        check(Chosen { min_p: Some(0.1), ..Chosen::default() }, 1.0);
        check(Chosen { temperature: Some(0.0), top_k: Some(5), ..Chosen::default() }, 0.0);
        check(Chosen { temperature: Some(0.7), ..Chosen::default() }, 0.7);
    }

    /// Flags that all differ from their defaults.
    fn template(sampling: Chosen) -> Template {
        Template {
            max_new_tokens: 9,
            sampling,
            stop: vec![".".to_owned()],
            ignore_eos: true,
            logprobs: Some(2),
            prompt_logprobs: Some(1),
            prompt_logprobs_from: 4,
            kv_cache: false,
            timeout_s: Some(2.0),
        }
    }

    #[test]
    fn a_line_wins_over_the_flags() {
        let template = template(Chosen { top_k: Some(3), seed: Some(1), ..Chosen::default() });
        let line = |json: &str| from_line(serde_json::from_str(json).unwrap(), &template);
        let bare = line(r#"{"prompt":"p"}"#);
        assert_eq!((bare.max_new_tokens, bare.sampling.top_k, bare.sampling.temperature), (9, 3, 1.0));
        assert_eq!(
            (bare.stop.len(), bare.ignore_eos, bare.logprobs, bare.kv_cache),
            (1, true, Some(2), false)
        );
        assert_eq!(
            (bare.timeout_s, line(r#"{"prompt":"p","timeout_s":9}"#).timeout_s),
            (Some(2.0), Some(9.0))
        );
        assert_eq!(bare.prompt_logprobs, Some(PromptLogprobs { from: 4, top: 1 }));
        let full = line(
            r#"{"prompt":[4],"max_new_tokens":2,"temperature":0,"top_k":1,"seed":5,"stop":[],"ignore_eos":false,
            "kv_cache":true,"logprobs":0}"#,
        );
        assert_eq!((full.max_new_tokens, full.sampling.top_k, full.sampling.temperature), (2, 1, 0.0));
        assert_eq!((full.sampling.seed, full.stop.len(), full.ignore_eos), (5, 0, false));
        assert_eq!((full.logprobs, full.kv_cache, full.prompt), (Some(0), true, Prompt::Ids(vec![4])));
    }

    #[test]
    fn every_key_of_a_line_and_every_flag_reaches_the_request() {
        let template = template(Chosen {
            temperature: Some(0.25),
            top_k: Some(3),
            top_p: Some(0.5),
            min_p: Some(0.125),
            seed: Some(1),
        });
        // Compared as text, because requests do not implement `PartialEq`.
        let line = |json: &str| format!("{:#?}", from_line(serde_json::from_str(json).unwrap(), &template));
        let flags = GenerateRequest {
            sampling: Sampling { temperature: 0.25, top_k: 3, top_p: 0.5, min_p: 0.125, seed: 1 },
            stop: vec![".".to_owned()],
            ignore_eos: true,
            logprobs: Some(2),
            prompt_logprobs: Some(PromptLogprobs { from: 4, top: 1 }),
            kv_cache: false,
            cache_salt: String::new(),
            timeout_s: Some(2.0),
            ..GenerateRequest::new(Prompt::Text("p".to_owned()), 9)
        };
        assert_eq!(line(r#"{"prompt":"p"}"#), format!("{flags:#?}"));
        let keys = GenerateRequest {
            sampling: Sampling { temperature: 0.5, top_k: 7, top_p: 0.75, min_p: 0.0625, seed: 5 },
            stop: vec!["x".to_owned(), "y".to_owned()],
            ignore_eos: false,
            logprobs: Some(6),
            prompt_logprobs: Some(PromptLogprobs { from: 11, top: 8 }),
            kv_cache: true,
            cache_salt: "tenant".to_owned(),
            timeout_s: Some(3.0),
            ..GenerateRequest::new(Prompt::Ids(vec![4]), 2)
        };
        let json = r#"{"prompt":[4],"max_new_tokens":2,"temperature":0.5,"top_k":7,"top_p":0.75,"min_p":0.0625,"seed":5,
            "stop":["x","y"],"ignore_eos":false,"logprobs":6,"prompt_logprobs":8,"prompt_logprobs_from":11,
            "kv_cache":true,"cache_salt":"tenant","timeout_s":3}"#;
        assert_eq!(line(json), format!("{keys:#?}"));
    }
}
