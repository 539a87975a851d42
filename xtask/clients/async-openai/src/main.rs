//! The crate async-openai: models, completions, chat, responses and decisions, streamed and not, one by one and many at once.
//! `redline-client-async-openai URL` fails if an answer is not what the client's users would expect.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;

use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::types::chat::{
    ChatCompletionRequestMessage, ChatCompletionRequestMessageContentPartText,
    ChatCompletionRequestSystemMessage, ChatCompletionRequestUserMessage,
    ChatCompletionRequestUserMessageContent, ChatCompletionRequestUserMessageContentPart,
    ChatCompletionStreamOptions, ChatCompletionTool, ChatCompletionTools, CompletionFinishReason,
    CreateChatCompletionRequest, CreateChatCompletionRequestArgs, FunctionObjectArgs, Prompt, Role,
};
use async_openai::types::completions::CreateCompletionRequestArgs;
use async_openai::types::decisions::{
    AnswerResource, ChoiceOptionParam, ChoiceValueParam, ChoiceValueResource, DecisionRequestArgs,
    QuestionParam, QuestionParamChoice, QuestionParamInstructions, QuestionParamPredicate,
    QuestionParamScore, ScoreLevelParam,
};
use async_openai::types::responses::{
    CreateResponseArgs, EasyInputMessage, InputItem, Item, MessageItem, OutputItem, ResponseStreamEvent,
    Status,
};
use futures::TryStreamExt;
use futures::future::try_join_all;

type Client = async_openai::Client<OpenAIConfig>;
type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: ChatCompletionStreamOptions =
    ChatCompletionStreamOptions { include_usage: Some(true), include_obfuscation: None };

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let url = std::env::args().nth(1).ok_or("the URL of the server is missing")?;
    let config = OpenAIConfig::new().with_api_base(format!("{url}/v1")).with_api_key("none");
    let client = Client::with_config(config);
    let models = client.models().list().await?;
    assert_eq!(models.data.iter().map(|model| &model.id).collect::<Vec<_>>(), ["demo"]);
    completions(&client).await?;
    chat(&client).await?;
    responses(&client).await?;
    decisions(&client).await?;
    errors(&client).await?;
    at_once(&client).await
}

async fn completions(client: &Client) -> Outcome<()> {
    let prompts = ["In the beginning", "And God said"].map(str::to_string).to_vec();
    let mut request = CreateCompletionRequestArgs::default()
        .model("demo")
        .prompt(Prompt::StringArray(prompts))
        .max_tokens(12_u32)
        .build()?;
    let whole = client.completions().create(request.clone()).await?;
    assert_eq!(whole.choices.len(), 2);
    request.stream_options = Some(USAGE);
    let parts: Vec<_> = client.completions().create_stream(request).await?.try_collect().await?;
    for choice in &whole.choices {
        let all = parts.iter().flat_map(|part| &part.choices);
        let own: Vec<_> = all.filter(|part| part.index == choice.index).collect();
        assert!(!choice.text.is_empty());
        assert_eq!(own.iter().map(|part| part.text.as_str()).collect::<String>(), choice.text);
        assert_eq!(choice.finish_reason, Some(CompletionFinishReason::Length));
        assert_eq!(own.last().and_then(|part| part.finish_reason), choice.finish_reason);
    }
    let used = whole.usage.map(|usage| usage.total_tokens);
    assert!(used.is_some());
    assert_eq!(parts.last().and_then(|part| part.usage.as_ref()).map(|usage| usage.total_tokens), used);
    Ok(())
}

fn messages() -> Vec<ChatCompletionRequestMessage> {
    let part = ChatCompletionRequestMessageContentPartText::from("Who is king?");
    let content = vec![ChatCompletionRequestUserMessageContentPart::Text(part)];
    let user = ChatCompletionRequestUserMessage {
        content: ChatCompletionRequestUserMessageContent::Array(content),
        name: None,
    };
    vec![ChatCompletionRequestSystemMessage::from("Be brief.").into(), user.into()]
}

/// A request for sampled text.
fn sampled(new_tokens: u32, seed: i64) -> Result<CreateChatCompletionRequest, OpenAIError> {
    CreateChatCompletionRequestArgs::default()
        .model("demo")
        .messages(messages())
        .max_completion_tokens(new_tokens)
        .temperature(1.0)
        .seed(seed)
        .build()
}

async fn chat(client: &Client) -> Outcome<()> {
    let request = CreateChatCompletionRequest {
        n: Some(2),
        logprobs: Some(true),
        top_logprobs: Some(2),
        ..sampled(12, 3)?
    };
    let whole = client.chat().create(request.clone()).await?;
    assert_eq!(whole.choices.len(), 2);
    let request = CreateChatCompletionRequest { stream_options: Some(USAGE), ..request };
    let parts: Vec<_> = client.chat().create_stream(request).await?.try_collect().await?;
    for choice in &whole.choices {
        let all = parts.iter().flat_map(|part| &part.choices);
        let own: Vec<_> = all.filter(|part| part.index == choice.index).collect();
        assert_eq!(own[0].delta.role, Some(Role::Assistant));
        let text: String = own.iter().filter_map(|part| part.delta.content.as_deref()).collect();
        assert_eq!(Some(text), choice.message.content);
        assert_eq!(own.last().and_then(|part| part.finish_reason), choice.finish_reason);
        let lists = own.iter().filter_map(|part| part.logprobs.as_ref()?.content.clone());
        let tokens: Vec<_> = lists.flatten().collect();
        assert!(!tokens.is_empty());
        assert_eq!(Some(tokens), choice.logprobs.as_ref().and_then(|logprobs| logprobs.content.clone()));
    }
    let used = whole.usage.map(|usage| usage.total_tokens);
    assert!(used.is_some());
    assert_eq!(parts.last().and_then(|part| part.usage.as_ref()).map(|usage| usage.total_tokens), used);
    Ok(())
}

async fn responses(client: &Client) -> Outcome<()> {
    let question = InputItem::from(EasyInputMessage::from("Who is king?"));
    let request = CreateResponseArgs::default()
        .model("demo")
        .input(vec![question.clone()])
        .instructions("Be brief.")
        .max_output_tokens(12_u32)
        .metadata(HashMap::from([("a".to_string(), "b".to_string())]))
        .build()?;
    let whole = client.responses().create(request.clone()).await?;
    assert!(matches!(whole.status, Status::Completed | Status::Incomplete), "{:?}", whole.status);
    assert_eq!(whole.metadata, request.metadata);
    let text = whole.output_text().ok_or("the response has no text")?;
    let events: Vec<_> = client.responses().create_stream(request).await?.try_collect().await?;
    assert!(matches!(events.first(), Some(ResponseStreamEvent::ResponseCreated(_))));
    for (number, event) in events.iter().enumerate() {
        assert_eq!(serde_json::to_value(event)?["sequence_number"], number);
    }
    let deltas = events.iter().filter_map(|event| match event {
        ResponseStreamEvent::ResponseOutputTextDelta(event) => Some(event.delta.as_str()),
        _ => None,
    });
    assert_eq!(deltas.collect::<String>(), text);
    let last = match events.last() {
        Some(ResponseStreamEvent::ResponseCompleted(event)) => &event.response,
        Some(ResponseStreamEvent::ResponseIncomplete(event)) => &event.response,
        other => return Err(format!("the last event is {other:?}").into()),
    };
    assert_eq!((&last.status, last.output_text()), (&whole.status, Some(text)));
    let used = whole.usage.map(|usage| usage.total_tokens);
    assert!(used.is_some());
    assert_eq!(last.usage.as_ref().map(|usage| usage.total_tokens), used);
    let mut turns = vec![question];
    for item in whole.output {
        let OutputItem::Message(message) = item else { return Err("the output is no message".into()) };
        turns.push(Item::Message(MessageItem::Output(message)).into());
    }
    turns.push(EasyInputMessage::from("Why?").into());
    let request =
        CreateResponseArgs::default().model("demo").input(turns).max_output_tokens(4_u32).build()?;
    client.responses().create(request).await?;
    Ok(())
}

fn questions() -> [QuestionParam; 3] {
    let instructions = |text: &str| QuestionParamInstructions::Text(text.to_string());
    let level = |label: &str| ScoreLevelParam { label: label.to_string(), description: None };
    let billing = ChoiceOptionParam {
        value: ChoiceValueParam::Text("billing".to_string()),
        description: Some("payments".to_string()),
    };
    let yes = ChoiceOptionParam { value: ChoiceValueParam::Boolean(true), description: None };
    [
        QuestionParam::Predicate(QuestionParamPredicate {
            name: Some("refund".to_string()),
            instructions: instructions("A refund is due."),
        }),
        QuestionParam::Choice(QuestionParamChoice {
            name: Some("team".to_string()),
            instructions: instructions("Which team?"),
            choices: vec![billing, yes],
        }),
        QuestionParam::Score(QuestionParamScore {
            name: None,
            instructions: instructions("How urgent?"),
            levels: ["low", "middle", "high"].map(level).to_vec(),
        }),
    ]
}

async fn decisions(client: &Client) -> Outcome<()> {
    let ask = async |questions: &[QuestionParam]| -> Outcome<Vec<AnswerResource>> {
        let request = DecisionRequestArgs::default()
            .model("demo")
            .input("I was charged twice.")
            .questions(questions)
            .build()?;
        Ok(client.decisions().create(request).await?.answers)
    };
    let questions = questions();
    let answers = ask(&questions).await?;
    let [AnswerResource::Predicate(refund), AnswerResource::Choice(team), AnswerResource::Score(urgency)] =
        answers.as_slice()
    else {
        return Err(format!("the answers have other types: {answers:?}").into());
    };
    assert_eq!(refund.name.as_deref(), Some("refund"));
    assert!(refund.probability > 0.0 && refund.probability < 1.0);
    let values = [ChoiceValueResource::Text("billing".to_string()), ChoiceValueResource::Boolean(true)];
    assert!(values.contains(&team.choice));
    assert!((team.probabilities.iter().map(|one| one.probability).sum::<f64>() - 1.0).abs() < 1e-4);
    assert!((0.0..=2.0).contains(&urgency.score));
    assert_eq!(urgency.probabilities.len(), 3);
    for (question, answer) in questions.iter().zip(&answers) {
        assert_eq!(ask(std::slice::from_ref(question)).await?, std::slice::from_ref(answer));
    }
    Ok(())
}

/// Checks that a request was refused with status 400 because of the field `param`.
fn refused<T: std::fmt::Debug>(param: &str, answer: Result<T, OpenAIError>) -> Outcome<()> {
    let error = answer.expect_err("the request was accepted");
    let OpenAIError::ApiError(error) = error else { return Err(error.into()) };
    assert_eq!(error.status_code.as_u16(), 400, "{error}");
    assert_eq!(error.api_error.param.as_deref(), Some(param), "{error}");
    Ok(())
}

async fn errors(client: &Client) -> Outcome<()> {
    let function = FunctionObjectArgs::default().name("f").build()?;
    let tools = vec![ChatCompletionTools::Function(ChatCompletionTool { function })];
    let request = CreateChatCompletionRequest { tools: Some(tools), ..sampled(1, 0)? };
    refused("tools", client.chat().create(request).await)?;
    let request = CreateResponseArgs::default().model("demo").input("a").previous_response_id("r").build()?;
    refused("previous_response_id", client.responses().create(request).await)?;
    let question = QuestionParam::Choice(QuestionParamChoice {
        name: None,
        instructions: QuestionParamInstructions::Text("q".to_string()),
        choices: vec![ChoiceOptionParam {
            value: ChoiceValueParam::Text("a".to_string()),
            description: None,
        }],
    });
    let request = DecisionRequestArgs::default().model("demo").input("x").questions([question]).build()?;
    refused("questions[0].choices", client.decisions().create(request).await)
}

async fn at_once(client: &Client) -> Outcome<()> {
    let text = |number: i64| async move {
        let stream = client.chat().create_stream(sampled(20, number % 4)?).await?;
        let parts: Vec<_> = stream.try_collect().await?;
        let choices = parts.into_iter().flat_map(|part| part.choices);
        Ok::<String, OpenAIError>(choices.filter_map(|choice| choice.delta.content).collect())
    };
    let texts = try_join_all((0..32).map(text)).await?;
    for (number, text) in texts.iter().enumerate() {
        assert_eq!(*text, texts[number % 4], "the same seed gives another text");
    }
    Ok(())
}
