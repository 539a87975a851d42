//! Converts flags to the engine's request.

use redline_engine::{DiffuseRequest, Prompt, Sampling};

use super::DiffuseArgs;
use crate::command::prompt;
use crate::command::template::Prompts;
use crate::message::Failure;

/// The values that the flags give to all requests.
pub(super) fn defaults(args: &DiffuseArgs) -> DiffuseRequest {
    let (schedule, flags) = (&args.schedule, &args.sampling);
    let sampling = Sampling {
        temperature: flags.temperature.unwrap_or(0.0),
        top_k: flags.top_k.unwrap_or(0),
        top_p: flags.top_p.unwrap_or(1.0),
        seed: flags.seed.unwrap_or(0),
        ..Sampling::default()
    };
    DiffuseRequest {
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
        adapters: args.adapters.choices(),
        timeout_s: args.timeout,
        ..DiffuseRequest::new(Prompt::Text(String::new()), args.max_new_tokens)
    }
}

/// Completes these values with the prompt from the flags; it is an error if they give none.
pub(super) fn complete(
    args: &DiffuseArgs,
    defaults: DiffuseRequest,
    prompts: &Prompts,
) -> Result<DiffuseRequest, Failure> {
    let text = args.text.as_deref().or(args.prompt.as_deref());
    let prompt = prompt::given("prompt", text, args.prompt_ids.as_ref())?;
    Ok(DiffuseRequest { prompt: prompts.of_flags(prompt)?, ..defaults })
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};
    use redline_engine::{Algorithm, BlockCache};

    use super::*;

    fn parsed(arguments: &[&str]) -> DiffuseArgs {
        let command = DiffuseArgs::augment_args(clap::Command::new("diffuse").no_binary_name(true));
        DiffuseArgs::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    #[test]
    fn every_flag_of_the_command_reaches_the_request() {
        let request = |line: &str| {
            let args = parsed(&line.split(' ').collect::<Vec<_>>());
            format!("{:#?}", complete(&args, defaults(&args), &Prompts::unformatted()).unwrap())
        };
        let expected = DiffuseRequest {
            steps: Some(8),
            algorithm: Some(Algorithm::Origin),
            eps: 0.25,
            sampling: Sampling {
                temperature: 0.75,
                top_k: 3,
                top_p: 0.5,
                min_p: 0.0,
                typical_p: 1.0,
                seed: 9,
            },
            alg_temp: 0.125,
            block_length: Some(4),
            cfg_scale: 1.5,
            threshold: Some(0.625),
            cache: BlockCache::Dual,
            refresh: Some(2),
            stop: vec![".".into()],
            ignore_eos: true,
            timeout_s: Some(2.5),
            ..DiffuseRequest::new(Prompt::Text("p".into()), 16)
        };
        let line = "--prompt p --max-new-tokens 16 --steps 8 --algorithm origin --eps 0.25 --temperature 0.75 --top-k 3 \
                    --top-p 0.5 --seed 9 --alg-temp 0.125 --block-length 4 --cfg-scale 1.5 --threshold 0.625 --cache dual \
                    --refresh 2 --stop . --ignore-eos --timeout 2.5";
        assert_eq!(request(line), format!("{expected:#?}"));
        let bare = DiffuseRequest::new(Prompt::Ids(vec![4]), 128);
        assert_eq!(request("--prompt-ids 4"), format!("{bare:#?}"));
    }
}
