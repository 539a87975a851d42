// The AI SDK of Vercel with its provider for compatible servers: texts, tools and their results, objects and embeddings.
// `node ai.mjs URL EMBEDDING-URL` throws if an answer is not what the client's users would expect.

import assert from "node:assert/strict";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { cosineSimilarity, embedMany, generateObject, generateText, Output, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";

// Deprecated functions, such as `generateObject`, would be named on standard error.
globalThis.AI_SDK_LOG_WARNINGS = false;

const PROMPT = "Who is king?";
const KINGS = { Israel: "David", Judah: "Josiah" };
const land = z.enum(Object.keys(KINGS));
const King = z.strictObject({ land, years: z.number().int().min(1).max(99) });

async function gathered(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

async function texts(common) {
  const whole = await generateText({ ...common, maxOutputTokens: 12 });
  assert(whole.text);
  assert.equal(whole.finishReason, "length");
  assert.equal(whole.usage.outputTokens, 12);
  const stream = streamText({ ...common, maxOutputTokens: 12 });
  const parts = await gathered(stream.textStream);
  assert(parts.length > 1);
  assert.equal(parts.join(""), whole.text);
  assert.equal((await stream.usage).outputTokens, 12);
}

async function tools(common) {
  const calls = [];
  const find = tool({
    description: "Finds the king of a land.",
    inputSchema: z.strictObject({ land }),
    execute: ({ land }) => {
      calls.push(land);
      return KINGS[land];
    },
  });
  const request = {
    ...common, tools: { find }, stopWhen: stepCountIs(2), providerOptions: { redline: { parallel_tool_calls: false } },
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
  };
  const whole = await generateText(request);
  assert.equal(whole.steps[0].finishReason, "tool-calls");
  const [call] = whole.steps[0].toolCalls;
  assert.equal(call.toolName, "find");
  assert.deepEqual(calls, [call.input.land]);
  assert.equal(whole.steps[0].toolResults[0].output, KINGS[call.input.land]);
  assert(whole.text);
  const stream = streamText(request);
  assert.equal(await stream.text, whole.text);
  assert.deepEqual((await stream.steps)[0].toolCalls[0].input, call.input);
}

async function objects(common) {
  const request = { ...common, schema: King, schemaName: "king" };
  const whole = await generateObject(request);
  King.parse(whole.object);
  const stream = streamObject(request);
  assert.deepEqual((await gathered(stream.partialObjectStream)).at(-1), whole.object);
  assert.deepEqual(await stream.object, whole.object);
  assert.deepEqual((await generateText({ ...common, output: Output.object({ schema: King, name: "king" }) })).output, whole.object);
}

async function embeddings(model) {
  const { embeddings: rows, usage } = await embedMany({ model, values: ["It rains.", "Henry is king."] });
  assert.equal(rows.length, 2);
  assert(usage.tokens > 0);
  assert(Math.abs(cosineSimilarity(rows[0], rows[0]) - 1) < 1e-5);
  assert(cosineSimilarity(rows[0], rows[1]) < 0.99);
}

const [url, embeddingUrl] = process.argv.slice(2);
const settings = { name: "redline", apiKey: "none", includeUsage: true, supportsStructuredOutputs: true };
const provider = (url) => createOpenAICompatible({ ...settings, baseURL: `${url}/v1` });
const common = { model: provider(url)("demo"), prompt: PROMPT, maxOutputTokens: 96, maxRetries: 0 };
await texts(common);
await tools(common);
await objects(common);
await embeddings(provider(embeddingUrl).embeddingModel("demo"));
