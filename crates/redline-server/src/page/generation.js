// What completion, chat and diffusion have in common: text that arrives in pieces.

import { events } from "./api.js";
import { byId } from "./dom.js";
import { costs, request, seconds } from "./run.js";

// Adds the inputs that all forms have.
export function addSettings(panel) {
  panel.querySelector("fieldset").append(byId("settings").content.cloneNode(true));
}

// What they say.
export function settings(form) {
  return {
    max_tokens: form.max_tokens.valueAsNumber,
    temperature: form.temperature.valueAsNumber,
    seed: form.seed.valueAsNumber,
  };
}

// Generates, and appends the text that `piece` finds in a choice to `text`.
export async function generate(path, body, piece, text, { signal, result }) {
  const asked = { ...body, stream: true, stream_options: { include_usage: true, ...body.stream_options } };
  const start = performance.now();
  let [first, usage, end, meta] = [null, null, null, null];
  for await (const event of events(path, asked, signal)) {
    for (const choice of event.choices) {
      const more = piece(choice);
      if (more) first ??= performance.now();
      if (more) text.append(more);
      end = choice.finish_reason ?? end;
    }
    usage = event.usage ?? usage;
    meta = event.meta ?? meta;
  }
  const now = performance.now();
  const count = usage.completion_tokens;
  const since = meta ? start : first;
  const counted = meta ? count : count - 1;
  const rate = since !== null && counted > 0 && now > since ? (counted * 1000) / (now - since) : undefined;
  const more = [
    [meta ? "First text" : "First token", first === null ? undefined : seconds(first - start)],
    [meta ? "Tokens/s" : "Tokens/s after it", rate?.toFixed(1)],
    ["New tokens", count],
    ["Passes", meta?.passes],
    ["Order", meta?.algorithm],
    ["End", end],
  ];
  result.append(costs(now - start, usage, more), request(path, asked));
}
