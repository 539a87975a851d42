//! Requests to continue a prompt: invalid requests are refused here.

use std::collections::BTreeSet;

use redline_settings::{Setting, hint};

use super::receipt::{completing_generation, signed};
use super::{Engine, checked_timeout, some_tokens};
use crate::answer::outcome::GenerateOutcome;
use crate::answer::ticket::{GenerateTicket, Ticket};
use crate::answer::transcript::Transcript;
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::front::prompt::Limits;
use crate::mode::autoregressive::guide::{Constraint, Guides};
use crate::mode::autoregressive::{GenerateJob, GenerateTask};
use crate::mode::sampler;
use crate::receipt::ReceiptRequest;
use crate::request::{GenerateRequest, Prompt, Queueing};

/// Maximum number of tokens per position whose log-probabilities are returned.
const MAX_LOGPROBS: usize = 1 << 14;
/// Maximum number of tokens in an answer: new ones, and those whose log-probabilities are returned. Each takes up to a hundred
/// bytes until the answer is written.
const MAX_RETURNED: usize = 1 << 23;
/// Largest absolute value of a bias.
const MAX_BIAS: f32 = 100.0;

impl GenerateRequest {
    /// Refuses requests that are invalid for every model. [`Engine::generate`] checks this too.
    pub fn check(&self) -> Result<(), EngineError> {
        sampler::check(&self.sampling)?;
        sampler::check_penalties(&self.penalties)?;
        check_continuations(self)?;
        some_tokens(self.max_new_tokens)?;
        checked_timeout(self.timeout_s)?;
        check_logprobs(self)?;
        if self.stop.iter().any(String::is_empty) {
            return Err(EngineError::request("a stop string is empty", "leave it out"));
        }
        Ok(())
    }
}

impl Engine {
    /// Continues a prompt. `on_text` receives the text of a single continuation as it becomes final.
    pub fn generate(
        &self,
        request: GenerateRequest,
        cancel: &Cancel,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<GenerateOutcome, EngineError> {
        let single = request.continuations() == 1;
        let ticket = self.submit_generate(request, cancel)?;
        if !single {
            return ticket.wait();
        }
        ticket.wait_with(|piece| {
            if !piece.text.is_empty() {
                on_text(&piece.text);
            }
        })
    }

    /// Starts to continue a prompt. Other requests may be submitted before this one is finished.
    pub fn submit_generate(
        &self,
        request: GenerateRequest,
        cancel: &Cancel,
    ) -> Result<GenerateTicket, EngineError> {
        self.submit_guided(request, Guides::default(), cancel)
    }

    /// The same with drafts of the tokens, and constraints on them. A receipt cannot tell of constraints, so there is none with them.
    pub fn submit_guided(
        &self,
        mut request: GenerateRequest,
        guides: Guides<'_>,
        cancel: &Cancel,
    ) -> Result<GenerateTicket, EngineError> {
        self.check_predicts_next()?;
        request.check()?;
        if request.receipt.is_some() && guides.constraint.is_some() {
            let fact = "a receipt was asked for with constraints on the tokens, which it cannot tell of";
            return Err(EngineError::field("receipt", fact.to_owned(), "ask for one of them"));
        }
        if request.grammar.is_some() && guides.constraint.is_some() {
            let fact = "a grammar and constraints on the tokens are given".to_owned();
            return Err(EngineError::field("grammar", fact, "give one of them"));
        }
        if !request.stop.is_empty() && self.tokenizer.is_none() {
            return Err(EngineError::NoTokenizer(self.info.name.clone()));
        }
        let limits = self.limits();
        let logit_bias = limits.logit_bias(&request.logit_bias)?;
        let stop_ids = limits.ids("stop_token_ids", &request.stop_ids)?;
        let least = if request.fit_context { 1 } else { request.max_new_tokens };
        let prompt = limits.prompt(&request.prompt, request.prompt_tokens, least)?;
        if request.fit_context {
            request.max_new_tokens =
                request.max_new_tokens.min(self.room_after(prompt.len(), request.continuations() > 1));
        }
        check_returned(&request, prompt.len(), self.info.vocab)?;
        let total = prompt.len() + request.max_new_tokens;
        let resident = self.resident(prompt.len(), total, request.continuations() > 1);
        // Of several continuations, the earliest can always run beside the held prompt, with which it shares all pages but one.
        self.check_room(format_args!("the prompt and its continuation"), &[resident], 1)?;
        let draft = self.receipt_draft(request.receipt.as_ref(), &request.adapters, || {
            ReceiptRequest::Generate(Box::new(GenerateRequest {
                prompt: Prompt::Ids(signed(&prompt)),
                fit_context: false,
                cache_salt: String::new(),
                adapters: Vec::new(),
                timeout_s: None,
                queueing: Queueing::default(),
                receipt: None,
                ..request.clone()
            }))
        })?;
        let job = GenerateJob {
            prompt,
            max_new_tokens: request.max_new_tokens,
            sampling: request.sampling,
            penalties: request.penalties,
            logit_bias,
            n: request.n,
            continuations: request.continuations(),
            end_ids: if request.ignore_eos { stop_ids } else { [&self.end_ids[..], &stop_ids].concat() },
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs,
            kv_cache: request.kv_cache,
            cache_salt: request.cache_salt,
            kernel_path: self.info.kernel_path.clone(),
        };
        let grammar = request.grammar.as_ref();
        let matcher = grammar.map(|grammar| self.matcher(grammar, request.timeout_s)).transpose()?;
        let matcher = matcher.map(|matcher| matcher.ending_with(&job.end_ids));
        let of_grammar =
            matcher.map(|matcher| move |_: usize| -> Box<dyn Constraint> { Box::new(matcher.clone()) });
        let of_grammar = of_grammar.as_ref().map(|make| make as &dyn Fn(usize) -> Box<dyn Constraint>);
        let guides = Guides { constraint: of_grammar.or(guides.constraint), ..guides };
        let transcript = Transcript::new(self.tokenizer.clone(), request.stop);
        let (completion, recorder) = completing_generation(draft);
        Ticket::begin(cancel, |mut reply, cancels| {
            reply.complete_with(completion);
            let task = GenerateTask::new(job, self.simd, transcript, reply).guided(guides);
            self.run(task, cancels, request.timeout_s, request.queueing, &request.adapters, recorder)
        })
    }
}

impl Limits<'_> {
    /// Checks ids and values of biases.
    fn logit_bias(&self, of: &[(i64, f32)]) -> Result<Vec<(u32, f32)>, EngineError> {
        let ids = self.ids("logit_bias", &of.iter().map(|(id, _)| *id).collect::<Vec<_>>())?;
        let mut seen = BTreeSet::new();
        for (&id, &(_, bias)) in ids.iter().zip(of) {
            if !(-MAX_BIAS..=MAX_BIAS).contains(&bias) {
                let hint = format!("a bias is from -{MAX_BIAS} to {MAX_BIAS}");
                let fact = format!("the bias of token {id} is {bias}");
                return Err(EngineError::field("logit_bias", fact, hint));
            }
            if !seen.insert(id) {
                let fact = format!("token {id} has more than one bias");
                return Err(EngineError::field("logit_bias", fact, "name each token once"));
            }
        }
        Ok(ids.into_iter().zip(of.iter().map(|(_, bias)| *bias)).collect())
    }
}

/// Checks the numbers of continuations.
fn check_continuations(request: &GenerateRequest) -> Result<(), EngineError> {
    let (n, count) = (request.n, request.continuations());
    let most = GenerateRequest::MAX_CONTINUATIONS;
    if n == 0 || count > most {
        let fact = format!("{} continuations were asked for", if n == 0 { 0 } else { count });
        return Err(EngineError::request(fact, format!("ask for 1 to {most}")));
    }
    if count < n {
        let fact = format!("{n} continuations of the best {count} were asked for");
        let hint = hint!["give ", Setting::BestOf, " at least ", n.to_string(), ", or leave it out"];
        return Err(EngineError::request(fact, hint));
    }
    if count > 1 && request.sampling.temperature == 0.0 {
        let fact = format!("{count} greedy continuations are all the same");
        return Err(EngineError::request(
            fact,
            hint!["sample, for example with ", Setting::Temperature.to(1)],
        ));
    }
    Ok(())
}

/// Checks how many log-probabilities are returned per token.
fn check_logprobs(request: &GenerateRequest) -> Result<(), EngineError> {
    let most = request.logprobs.max(request.prompt_logprobs.map(|wanted| wanted.top));
    let Some(n) = most.filter(|&n| n > MAX_LOGPROBS) else { return Ok(()) };
    let hint = format!("ask for at most {MAX_LOGPROBS}");
    Err(EngineError::request(format!("{n} log-probabilities per token were asked for"), hint))
}

/// Refuses a request whose answer could exceed the memory for one request. The prompt has `prompt` tokens.
fn check_returned(request: &GenerateRequest, prompt: usize, vocab: usize) -> Result<(), EngineError> {
    let with_top = |top: usize| 1 + top.min(vocab);
    let of_prompt = request
        .prompt_logprobs
        .map_or(0, |wanted| prompt.saturating_sub(wanted.from).saturating_mul(with_top(wanted.top)));
    let of_token = request.logprobs.map_or(1, with_top);
    let new = request.continuations().saturating_mul(request.max_new_tokens).saturating_mul(of_token);
    let tokens = new.saturating_add(of_prompt);
    if tokens <= MAX_RETURNED {
        return Ok(());
    }
    let fact = format!(
        "the answer may have {tokens} tokens, with those whose log-probabilities are returned: more than {MAX_RETURNED}"
    );
    let hint = hint![
        "ask for fewer continuations, fewer ",
        Setting::MaxNewTokens,
        ", or fewer log-probabilities per token"
    ];
    Err(EngineError::request(fact, hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Prompt, PromptLogprobs};

    #[test]
    fn an_answer_is_no_larger_than_memory() {
        let request = |n, logprobs, top| GenerateRequest {
            n,
            logprobs,
            prompt_logprobs: Some(PromptLogprobs { from: 4, top }),
            ..GenerateRequest::new(Prompt::Ids(vec![1]), 1 << 16)
        };
        let check = |request: &GenerateRequest, prompt| {
            check_returned(request, prompt, 1 << 15).map_err(|error| error.to_string())
        };
        // A prompt whose log-probabilities begin after it has none.
        assert_eq!(check(&request(128, None, 0), 3), Ok(()));
        let refused = check(&request(128, None, 0), 5).unwrap_err();
        assert!(refused.starts_with("the answer may have 8388609 tokens"), "{refused}");
        assert_eq!(check(&request(1, Some(126), 0), 4 + (1 << 16)), Ok(()));
        assert!(check(&request(1, Some(127), 0), 4 + (1 << 16)).is_err());
        assert_eq!(check(&request(1, None, 126), 4 + (1 << 16)), Ok(()));
        assert!(check(&request(1, None, 127), 4 + (1 << 16)).is_err());
        // A position has no more log-probabilities than the vocabulary has tokens.
        let few = GenerateRequest { max_new_tokens: 100, ..request(1, Some(usize::MAX), 0) };
        assert_eq!(check(&few, 5), Ok(()));
        assert!(check(&GenerateRequest { n: usize::MAX, ..few }, 5).is_err());
    }
}
