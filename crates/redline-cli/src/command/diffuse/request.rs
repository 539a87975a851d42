//! Converts flags and JSON lines to the engine's request.

use redline_engine::{DiffuseRequest, Prompt, Sampling};
use redline_wire::DiffuseLine;

use super::DiffuseArgs;
use crate::command::prompt;
use crate::report::Failure;

/// The request that the flags give, without a prompt.
#[derive(Clone, Debug)]
pub(super) struct Template(DiffuseRequest);

/// Builds the template from the flags.
pub(super) fn template(args: &DiffuseArgs) -> Template {
    let (schedule, flags) = (&args.schedule, &args.sampling);
    let sampling = Sampling {
        temperature: flags.temperature.unwrap_or(0.0),
        top_k: flags.top_k.unwrap_or(0),
        top_p: flags.top_p.unwrap_or(1.0),
        min_p: 0.0,
        seed: flags.seed.unwrap_or(0),
    };
    Template(DiffuseRequest {
        steps: schedule.steps,
        algorithm: schedule.algorithm,
        eps: schedule.eps.unwrap_or(DiffuseRequest::EPS),
        sampling,
        alg_temp: schedule.alg_temp.unwrap_or(0.0),
        block_length: schedule.block_length,
        cfg_scale: schedule.cfg_scale.unwrap_or(0.0),
        threshold: schedule.threshold,
        cache: schedule.cache.unwrap_or_default(),
        refresh: schedule.refresh,
        stop: args.stop.clone(),
        ignore_eos: args.ignore_eos,
        timeout_s: args.timeout,
        ..DiffuseRequest::new(Prompt::Text(String::new()), args.max_new_tokens)
    })
}

/// Completes the template with the prompt from the flags; it is an error if they give none.
pub(super) fn complete(args: &DiffuseArgs, template: Template) -> Result<DiffuseRequest, Failure> {
    let prompt = prompt::given("prompt", args.prompt.as_deref(), args.prompt_ids.as_ref())?;
    Ok(DiffuseRequest { prompt, ..template.0 })
}

/// Builds the request of a line. Keys that the line omits come from the template.
pub(super) fn from_line(line: DiffuseLine, Template(flags): &Template) -> DiffuseRequest {
    let flags = flags.clone();
    DiffuseRequest {
        prompt: prompt::of_line(line.prompt),
        max_new_tokens: line.max_new_tokens.unwrap_or(flags.max_new_tokens),
        steps: line.steps.or(flags.steps),
        algorithm: line.algorithm.or(flags.algorithm),
        eps: line.eps.unwrap_or(flags.eps),
        sampling: Sampling {
            temperature: line.temperature.unwrap_or(flags.sampling.temperature),
            top_k: line.top_k.unwrap_or(flags.sampling.top_k),
            top_p: line.top_p.unwrap_or(flags.sampling.top_p),
            min_p: 0.0,
            seed: line.seed.unwrap_or(flags.sampling.seed),
        },
        alg_temp: line.alg_temp.unwrap_or(flags.alg_temp),
        block_length: line.block_length.or(flags.block_length),
        cfg_scale: line.cfg_scale.unwrap_or(flags.cfg_scale),
        threshold: line.threshold.or(flags.threshold),
        cache: line.cache.unwrap_or(flags.cache),
        refresh: line.refresh.or(flags.refresh),
        stop: line.stop.map_or(flags.stop, |stop| stop.0),
        ignore_eos: line.ignore_eos.unwrap_or(flags.ignore_eos),
        savings: flags.savings,
        timeout_s: line.timeout_s.or(flags.timeout_s),
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::{Algorithm, BlockCache};

    use super::*;

    #[test]
    fn a_line_wins_over_the_flags() {
        let flags = DiffuseRequest {
            steps: Some(8),
            algorithm: Some(Algorithm::Origin),
            cache: BlockCache::Dual,
            stop: vec![".".into()],
            ..DiffuseRequest::new(Prompt::Text(String::new()), 16)
        };
        let template = Template(flags);
        let line = |json: &str| from_line(serde_json::from_str(json).unwrap(), &template);
        let bare = line(r#"{"prompt":"p"}"#);
        assert_eq!(
            (bare.steps, bare.algorithm, bare.cache),
            (Some(8), Some(Algorithm::Origin), BlockCache::Dual)
        );
        assert_eq!((bare.max_new_tokens, bare.stop.len(), bare.prompt), (16, 1, Prompt::Text("p".into())));
        let full = line(
            r#"{"prompt":[4],"max_new_tokens":2,"steps":1,"algorithm":"low-confidence","cache":"none","stop":[],
            "temperature":0.5,"seed":5,"threshold":0.5,"eps":0.5,"alg_temp":1,"block_length":2,"cfg_scale":3,"refresh":4}"#,
        );
        assert_eq!((full.max_new_tokens, full.steps, full.cache), (2, Some(1), BlockCache::None));
        assert_eq!((full.algorithm, full.stop.len()), (Some(Algorithm::LowConfidence), 0));
        assert_eq!((full.sampling.temperature, full.sampling.seed), (0.5, 5));
        assert_eq!((full.threshold, full.eps, full.alg_temp), (Some(0.5), 0.5, 1.0));
        assert_eq!((full.block_length, full.cfg_scale, full.refresh), (Some(2), 3.0, Some(4)));
    }

    #[test]
    fn every_key_of_a_line_and_every_flag_reaches_the_request() {
        let flags = DiffuseRequest {
            steps: Some(8),
            algorithm: Some(Algorithm::Origin),
            eps: 0.25,
            sampling: Sampling { temperature: 0.5, top_k: 3, top_p: 0.75, min_p: 0.0, seed: 1 },
            alg_temp: 0.125,
            block_length: Some(4),
            cfg_scale: 1.5,
            threshold: Some(0.25),
            cache: BlockCache::Dual,
            refresh: Some(2),
            stop: vec![".".into()],
            ignore_eos: true,
            timeout_s: Some(2.0),
            ..DiffuseRequest::new(Prompt::Text("p".into()), 16)
        };
        let template = Template(DiffuseRequest { prompt: Prompt::Text(String::new()), ..flags.clone() });
        let line = |json: &str| format!("{:#?}", from_line(serde_json::from_str(json).unwrap(), &template));
        assert_eq!(line(r#"{"prompt":"p"}"#), format!("{flags:#?}"));
        let keys = DiffuseRequest {
            steps: Some(1),
            algorithm: Some(Algorithm::TopkMargin),
            eps: 0.5,
            sampling: Sampling { temperature: 0.75, top_k: 5, top_p: 0.5, min_p: 0.0, seed: 9 },
            alg_temp: 1.0,
            block_length: Some(2),
            cfg_scale: 3.0,
            threshold: Some(0.5),
            cache: BlockCache::Prefix,
            refresh: Some(4),
            stop: vec!["x".into(), "y".into()],
            ignore_eos: false,
            timeout_s: Some(3.0),
            ..DiffuseRequest::new(Prompt::Ids(vec![4]), 2)
        };
        let json = r#"{"prompt":[4],"max_new_tokens":2,"steps":1,"algorithm":"topk-margin","eps":0.5,"temperature":0.75,
            "top_k":5,"top_p":0.5,"seed":9,"alg_temp":1,"block_length":2,"cfg_scale":3,"threshold":0.5,"cache":"prefix",
            "refresh":4,"stop":["x","y"],"ignore_eos":false,"timeout_s":3}"#;
        assert_eq!(line(json), format!("{keys:#?}"));
    }
}
