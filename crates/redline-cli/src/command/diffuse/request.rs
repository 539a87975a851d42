//! Converts flags to the engine's request.

use redline_api::jsonl::diffuse::{self, DiffuseLine};
use redline_engine::DiffuseRequest;

use super::DiffuseArgs;
use crate::command::prompt;
use crate::command::template::Prompts;
use crate::message::Failure;

/// The values that the flags give to all requests.
pub(super) fn defaults(args: &DiffuseArgs) -> DiffuseLine {
    DiffuseLine {
        max_new_tokens: Some(args.max_new_tokens),
        sampling: args.sampling.0.clone(),
        diffusion: args.order.0.clone(),
        options: args.adapters.options(args.timeout),
        ..DiffuseLine::default()
    }
}

/// Completes these values with the prompt from the flags; it is an error if they give none.
pub(super) fn complete(
    args: &DiffuseArgs,
    defaults: &DiffuseLine,
    prompts: &Prompts,
) -> Result<DiffuseRequest, Failure> {
    let text = args.text.as_deref().or(args.prompt.as_deref());
    let prompt = prompt::given("prompt", text, args.prompt_ids.as_ref())?;
    Ok(diffuse::request(DiffuseLine::default(), prompts.of_flags(prompt)?, defaults)?)
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};
    use redline_engine::{Algorithm, BlockCache, Prompt, Sampling};

    use super::*;

    fn parsed(arguments: &[&str]) -> DiffuseArgs {
        let command = DiffuseArgs::augment_args(clap::Command::new("diffuse").no_binary_name(true));
        DiffuseArgs::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    #[test]
    fn every_flag_of_the_command_reaches_the_request() {
        let request = |line: &str| {
            let args = parsed(&line.split(' ').collect::<Vec<_>>());
            format!("{:#?}", complete(&args, &defaults(&args), &Prompts::unformatted()).unwrap())
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
