// Completion: the model continues a text.

import { make } from "./dom.js";
import { addSettings, generate, settings } from "./generation.js";
import { onSubmit } from "./run.js";

export function completion(panel, model) {
  addSettings(panel);
  onSubmit(panel, async (run) => {
    const prompt = run.form.prompt.value;
    const text = make("span", { class: "new" });
    run.result.append(make("p", { class: "text" }, make("span", { class: "soft" }, prompt), text));
    const body = { model: model(), prompt, ...settings(run.form) };
    await generate("v1/completions", body, (choice) => choice.text, text, run);
  });
}
