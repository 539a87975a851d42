// Forms: one request at a time, which can be stopped, and what came of it.

import { post } from "./api.js";
import { facts, make, problem } from "./dom.js";

// Runs `work` with a signal and the element for results whenever the form of this panel is sent.
export function onSubmit(panel, work) {
  const form = panel.querySelector("form");
  const [send, stop] = [form.querySelector("[type=submit]"), form.querySelector(".stop")];
  const result = panel.querySelector(".result");
  let running = null;
  stop.addEventListener("click", () => running?.abort());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return;
    running = new AbortController();
    send.setAttribute("aria-disabled", "true");
    stop.disabled = false;
    result.setAttribute("aria-busy", "true");
    result.replaceChildren();
    try {
      await work({ form: form.elements, signal: running.signal, result });
    } catch (error) {
      result.append(error.name === "AbortError" ? make("p", { class: "soft" }, "Stopped.") : problem(error));
    }
    running = null;
    if (document.activeElement === stop) send.focus();
    send.removeAttribute("aria-disabled");
    stop.disabled = true;
    result.setAttribute("aria-busy", "false");
  });
}

// Sends a request. Returns its answer and its time in milliseconds.
export async function timed(path, body, signal) {
  const start = performance.now();
  return [await post(path, body, signal), performance.now() - start];
}

export const seconds = (ms) => (ms < 1000 ? `${ms.toFixed(1)} ms` : `${(ms / 1000).toFixed(2)} s`);

// Time and token counts of an answer. `more` are further facts.
export function costs(ms, usage, more = []) {
  const input = usage.prompt_tokens ?? usage.input_tokens;
  const cached = (usage.prompt_tokens_details ?? usage.input_tokens_details)?.cached_tokens;
  return facts([["Latency", seconds(ms)], ...more, ["Prompt tokens", input], ["Cached tokens", cached]]);
}

// The request, to be sent again from elsewhere.
export function request(path, body) {
  const text = `POST /${path}\n${JSON.stringify(body, null, 2)}`;
  return make("details", {}, make("summary", {}, "Request"), make("pre", { tabindex: "0" }, text));
}
