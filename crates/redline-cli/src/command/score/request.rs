//! Converts flags to the engine's request.

use redline_engine::{Prompt, ScoreRequest};

use super::ScoreArgs;
use crate::command::prompt;
use crate::command::template::Prompts;
use crate::message::Failure;
use crate::text;

/// The values that the flags give to all requests.
pub(super) fn defaults(args: &ScoreArgs) -> ScoreRequest {
    let (query, labels) = (Prompt::Text(String::new()), args.labels.0.clone());
    ScoreRequest {
        long_labels: args.long_labels,
        softmax: args.softmax,
        item_first: args.item_first,
        full_logprobs: args.full_logprobs,
        tokenization: args.tokenization,
        truncate: args.truncate,
        item_errors: args.item_errors,
        return_token_ids: args.return_token_ids,
        mc_samples: args.mc_samples,
        seed: args.seed,
        adapters: args.adapters.choices(),
        timeout_s: args.timeout,
        ..ScoreRequest::new(query, Vec::new(), labels)
    }
}

/// Completes these values with the query, items and labels, which the flags must give.
pub(super) fn complete(
    args: &ScoreArgs,
    defaults: ScoreRequest,
    prompts: &Prompts,
) -> Result<ScoreRequest, Failure> {
    let query = prompt::given("query", args.query.as_deref(), args.query_ids.as_ref())?;
    if args.item.is_empty() && args.item_ids.is_empty() && args.items_file.is_none() {
        let hint = if query.is_text() {
            "`--item TEXT` for each item (`--item ''` scores the query alone), or `--items-file FILE`"
        } else {
            "`--item-ids 4,5` for each item (`--item-ids ''` scores the query alone)"
        };
        return Err(Failure::usage("no item given", hint));
    }
    if defaults.labels.is_empty() {
        let hint = "`--label ' yes'` or `--label-id 7` for each label, at least one";
        return Err(Failure::usage("no label given", hint));
    }
    Ok(ScoreRequest { query: prompts.of_flags(query)?, items: items(args)?, ..defaults })
}

fn items(args: &ScoreArgs) -> Result<Vec<Prompt>, Failure> {
    if let Some(path) = &args.items_file {
        return Ok(text::read_lines(path)?.into_iter().map(Prompt::Text).collect());
    }
    let texts = args.item.iter().map(|text| Prompt::Text(text.clone()));
    let ids = args.item_ids.iter().map(|ids| Prompt::Ids(ids.0.clone()));
    Ok(texts.chain(ids).collect())
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};
    use redline_engine::{Label, LongLabels, Tokenization, Truncate};

    use super::*;

    fn parsed(arguments: &[&str]) -> ScoreArgs {
        let command = ScoreArgs::augment_args(clap::Command::new("score").no_binary_name(true));
        ScoreArgs::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    #[test]
    fn every_flag_of_the_command_reaches_the_request() {
        let request = |line: &str| {
            let args = parsed(&line.split(' ').collect::<Vec<_>>());
            format!("{:#?}", complete(&args, defaults(&args), &Prompts::unformatted()).unwrap())
        };
        let text = |text: &str| Prompt::Text(text.to_owned());
        let labels = vec![Label::Text("x".to_owned()), Label::Ids(vec![9, 8])];
        let expected = ScoreRequest {
            long_labels: LongLabels::Mean,
            softmax: true,
            item_first: true,
            full_logprobs: true,
            tokenization: Tokenization::Separate,
            truncate: Some(Truncate::Right),
            item_errors: true,
            return_token_ids: true,
            mc_samples: Some(8),
            seed: Some(3),
            timeout_s: Some(2.5),
            ..ScoreRequest::new(text("q"), vec![text("a"), text("b")], labels)
        };
        let line = "--query q --item a --item b --label x --label-id 9,8 --long-labels mean --softmax --item-first \
                    --full-logprobs --tokenization separate --truncate right --item-errors --return-token-ids \
                    --mc-samples 8 --seed 3 --timeout 2.5";
        assert_eq!(request(line), format!("{expected:#?}"));
        let ids = |id| Prompt::Ids(vec![id]);
        let bare = ScoreRequest::new(ids(1), vec![ids(2)], vec![Label::Ids(vec![3])]);
        assert_eq!(request("--query-ids 1 --item-ids 2 --label-id 3"), format!("{bare:#?}"));
    }
}
