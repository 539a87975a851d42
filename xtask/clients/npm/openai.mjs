// The client of OpenAI for JavaScript: models, completions, chat, responses and decisions, streamed and not, one by one and many at once.
// `node openai.mjs URL` throws if an answer is not what the client's users would expect.

import assert from "node:assert/strict";

import OpenAI from "openai";

const MESSAGES = [
  { role: "system", content: "Be brief." },
  { role: "user", content: [{ type: "text", text: "Who is king?" }] },
];
const STREAM = { stream: true, stream_options: { include_usage: true } };

async function gathered(stream) {
  const parts = [];
  for await (const part of await stream) parts.push(part);
  return parts;
}

/** The parts of a stream that belong to the choice `index`. */
function ownParts(parts, index) {
  return parts.flatMap((part) => part.choices).filter((choice) => choice.index === index);
}

async function completions(client) {
  const request = { model: "demo", prompt: ["In the beginning", "And God said"], max_tokens: 12 };
  const whole = await client.completions.create(request);
  assert.equal(whole.choices.length, 2);
  const parts = await gathered(client.completions.create({ ...request, ...STREAM }));
  for (const choice of whole.choices) {
    const own = ownParts(parts, choice.index);
    assert(choice.text);
    assert.equal(own.map((part) => part.text).join(""), choice.text);
    assert.equal(choice.finish_reason, "length");
    assert.equal(own.at(-1).finish_reason, "length");
  }
  assert.equal(parts.at(-1).usage.total_tokens, whole.usage.total_tokens);
}

async function chat(client) {
  const request = {
    model: "demo", messages: MESSAGES, max_completion_tokens: 12, n: 2, temperature: 1, seed: 3, logprobs: true, top_logprobs: 2,
  };
  const whole = await client.chat.completions.create(request);
  assert.equal(whole.choices.length, 2);
  const parts = await gathered(client.chat.completions.create({ ...request, ...STREAM }));
  for (const choice of whole.choices) {
    const own = ownParts(parts, choice.index);
    assert.equal(own[0].delta.role, "assistant");
    assert.equal(own.map((part) => part.delta.content ?? "").join(""), choice.message.content);
    assert.equal(own.at(-1).finish_reason, choice.finish_reason);
    const tokens = own.flatMap((part) => part.logprobs?.content ?? []);
    assert.deepEqual(tokens, choice.logprobs.content);
    assert(tokens.length > 0);
  }
  assert.equal(parts.at(-1).usage.total_tokens, whole.usage.total_tokens);
  const { seed, n, ...single } = request;
  const stream = client.chat.completions.stream({ ...single, temperature: 0 });
  const greedy = await client.chat.completions.create({ ...single, temperature: 0 });
  assert.equal((await stream.finalChatCompletion()).choices[0].message.content, greedy.choices[0].message.content);
}

async function responses(client) {
  const request = {
    model: "demo", input: [{ role: "user", content: "Who is king?" }], instructions: "Be brief.", max_output_tokens: 12,
    metadata: { a: "b" },
  };
  const whole = await client.responses.create(request);
  assert(["completed", "incomplete"].includes(whole.status), whole.status);
  assert.deepEqual(whole.metadata, { a: "b" });
  const events = await gathered(client.responses.create({ ...request, stream: true }));
  assert.equal(events[0].type, "response.created");
  assert.equal(events.at(-1).type, `response.${whole.status}`);
  assert.deepEqual(events.map((event) => event.sequence_number), [...events.keys()]);
  const deltas = events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta);
  assert(whole.output_text);
  assert.equal(deltas.join(""), whole.output_text);
  const end = events.at(-1).response;
  assert.deepEqual(end.output.map((item) => item.content), whole.output.map((item) => item.content));
  assert.equal(end.usage.total_tokens, whole.usage.total_tokens);
  const last = await client.responses.stream(request).finalResponse();
  assert.equal(last.output_text, whole.output_text);
  const turns = [...request.input, ...whole.output, { role: "user", content: "Why?" }];
  const next = await client.responses.create({ model: "demo", input: turns, max_output_tokens: 4 });
  assert.equal(typeof next.output_text, "string");
  assert(next.usage.input_tokens > whole.usage.input_tokens);
}

async function decisions(client) {
  const questions = [
    { type: "predicate", name: "refund", instructions: "A refund is due." },
    {
      type: "choice", name: "team", instructions: "Which team?",
      choices: [{ value: "billing", description: "payments" }, { value: true }],
    },
    { type: "score", instructions: "How urgent?", levels: [{ label: "low" }, { label: "middle" }, { label: "high" }] },
  ];
  const ask = (asked) => client.decisions.create({ model: "demo", input: "I was charged twice.", questions: asked });
  const { answers } = await ask(questions);
  const [refund, team, urgency] = answers;
  assert.equal(refund.name, "refund");
  assert(refund.probability > 0 && refund.probability < 1);
  assert(["billing", true].includes(team.choice));
  const sum = team.probabilities.reduce((total, one) => total + one.probability, 0);
  assert(Math.abs(sum - 1) < 1e-4, sum);
  assert(urgency.score >= 0 && urgency.score <= 2);
  assert.equal(urgency.probabilities.length, 3);
  const alone = await Promise.all(questions.map(async (one) => (await ask([one])).answers[0]));
  assert.deepEqual(alone, answers, "questions change each other");
}

async function errors(client) {
  const refused = (param, answer) =>
    assert.rejects(answer, (error) => {
      assert(error instanceof OpenAI.BadRequestError, error);
      assert.equal(error.param, param);
      return true;
    });
  const tools = [{ type: "function", function: { name: "f" } }];
  await refused("tools", client.chat.completions.create({ model: "demo", messages: MESSAGES, tools }));
  await refused("previous_response_id", client.responses.create({ model: "demo", input: "a", previous_response_id: "r" }));
  const questions = [{ type: "choice", instructions: "q", choices: [{ value: "a" }] }];
  await refused("questions[0].choices", client.decisions.create({ model: "demo", input: "x", questions }));
}

async function atOnce(client) {
  const text = async (seed) => {
    const request = { model: "demo", messages: MESSAGES, max_tokens: 20, stream: true, seed, temperature: 1 };
    const parts = await gathered(client.chat.completions.create(request));
    return parts.map((part) => part.choices[0].delta.content ?? "").join("");
  };
  const texts = await Promise.all(Array.from({ length: 32 }, (_, number) => text(number % 4)));
  texts.forEach((one, number) => assert.equal(one, texts[number % 4], "the same seed gives another text"));
}

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const models = await gathered(client.models.list());
assert.deepEqual(models.map((model) => model.id), ["demo"]);
for (const check of [completions, chat, responses, decisions, errors, atOnce]) await check(client);
