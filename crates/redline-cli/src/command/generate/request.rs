//! Converts flags to the engine's request.

use redline_api::jsonl::generate::{self, GenerateKeys, GenerateLine};
use redline_engine::GenerateRequest;

use super::GenerateArgs;
use crate::command::prompt;
use crate::command::template::Prompts;
use crate::message::{self, Failure};

/// The values that the flags give to all requests.
pub(super) fn defaults(args: &GenerateArgs) -> Result<GenerateLine, Failure> {
    Ok(GenerateLine {
        keys: GenerateKeys {
            max_new_tokens: Some(args.max_new_tokens),
            kv_cache: Some(!args.no_kv_cache),
            logprobs: args.logprobs,
            prompt_logprobs: args.prompt_logprobs,
            prompt_logprobs_from: Some(args.prompt_logprobs_from),
        },
        sampling: args.sampling.0.clone(),
        grammar: args.grammar.keys()?,
        options: args.adapters.options(args.timeout),
        ..GenerateLine::default()
    })
}

/// Completes these values with the prompt from the flags; it is an error if they give none.
pub(super) fn complete(
    args: &GenerateArgs,
    defaults: &GenerateLine,
    prompts: &Prompts,
) -> Result<GenerateRequest, Failure> {
    let text = args.text.as_deref().or(args.prompt.as_deref());
    let prompt = prompt::given("prompt", text, args.prompt_ids.as_ref())?;
    let request = generate::request(GenerateLine::default(), prompts.of_flags(prompt)?, defaults)?;
    request.check().map_err(Failure::senseless)?;
    if request.sampling.temperature == 0.0 && args.sampling.0.seed.is_some() && !args.quiet {
        message::note("--seed changes nothing without sampling; add --temperature 1");
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};
    use redline_engine::{AdapterChoice, Penalties, Prompt, PromptLogprobs, Sampling};

    use super::*;

    fn parsed(arguments: &[&str]) -> GenerateArgs {
        let command = GenerateArgs::augment_args(clap::Command::new("generate").no_binary_name(true));
        GenerateArgs::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    #[test]
    fn every_flag_of_the_command_reaches_the_request() {
        let request = |arguments: &[&str]| {
            let args = parsed(arguments);
            format!(
                "{:#?}",
                complete(&args, &defaults(&args).ok().unwrap(), &Prompts::unformatted()).unwrap()
            )
        };
        let line = "--prompt p --max-new-tokens 9 --stop x --stop y --ignore-eos --no-kv-cache --logprobs 3 --prompt-logprobs 2 \
                    --prompt-logprobs-from 4 --temperature 0.5 --top-k 7 --top-p 0.75 --min-p 0.125 --seed 5 --timeout 2.5 \
                    --typical-p 0.5 --repetition-penalty 1.5 --presence-penalty -0.5 --frequency-penalty 0.25 \
                    --logit-bias -3=1.5,7=-100 --min-tokens 3 --n 2 --best-of 4 --regex a+ --adapter tone=x --use tone:0.5";
        let expected = GenerateRequest {
            sampling: Sampling {
                temperature: 0.5,
                top_k: 7,
                top_p: 0.75,
                min_p: 0.125,
                typical_p: 0.5,
                seed: 5,
            },
            penalties: Penalties { repetition: 1.5, frequency: 0.25, presence: -0.5, min_tokens: 3 },
            logit_bias: vec![(-3, 1.5), (7, -100.0)],
            n: 2,
            best_of: Some(4),
            stop: vec!["x".to_owned(), "y".to_owned()],
            ignore_eos: true,
            grammar: Some(redline_engine::Grammar::new(redline_engine::GrammarKind::Regex, "a+")),
            logprobs: Some(3),
            prompt_logprobs: Some(PromptLogprobs { from: 4, top: 2 }),
            kv_cache: false,
            adapters: vec![AdapterChoice { name: "tone".to_owned(), scale: 0.5 }],
            timeout_s: Some(2.5),
            ..GenerateRequest::new(Prompt::Text("p".to_owned()), 9)
        };
        assert_eq!(request(&line.split(' ').collect::<Vec<_>>()), format!("{expected:#?}"));
        let bare = GenerateRequest::new(Prompt::Ids(vec![4]), 128);
        assert_eq!(request(&["--prompt-ids", "4"]), format!("{bare:#?}"));
    }
}
