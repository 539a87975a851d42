// Diffusion: the canvas, which fills in pass after pass.

import { make } from "./dom.js";
import { addSettings, generate, settings } from "./generation.js";
import { onSubmit } from "./run.js";

export function diffusion(panel, model) {
  addSettings(panel);
  // Without new tokens, only masks in the prompt are filled.
  panel.querySelector("[name=max_tokens]").min = 0;
  onSubmit(panel, async (run) => {
    const canvas = board();
    const text = make("span", { class: "final" });
    run.result.append(canvas.element, canvas.state, make("h2", {}, "Final text"), make("p", { class: "text" }, text));
    const piece = (choice) => {
      if (choice.canvas) canvas.show(choice.canvas);
      return choice.text;
    };
    await generate("v1/completions", asked(run.form, model()), piece, text, run);
  });
}

// The request. Fields that are left empty are left out.
function asked(form, model) {
  const body = { model, prompt: form.prompt.value, ...settings(form), stream_options: { include_canvas: true } };
  for (const name of ["steps", "block_length", "threshold"]) {
    const value = form[name].valueAsNumber;
    if (!Number.isNaN(value)) body[name] = value;
  }
  if (form.cache.value !== "none") body.cache = form.cache.value;
  return body;
}

// A canvas with a cell for each token. It is read out only as its final text.
function board() {
  const element = make("p", { class: "canvas", "aria-hidden": "true" });
  const state = make("p", { class: "hint", "aria-live": "off" });
  let [cells, fresh, passes] = [[], [], 0];
  const show = ({ positions, texts, masks_left: left }) => {
    if (!positions) {
      cells = texts.map((text) => make("span", { class: text === null ? "cell masked" : "cell given" }, text ?? ""));
      element.replaceChildren(...cells);
    } else {
      passes += 1;
      for (const cell of fresh) cell.className = "cell";
      fresh = positions.map((position) => cells[position]);
      fresh.forEach((cell, at) => {
        cell.className = "cell new";
        cell.textContent = texts[at];
      });
    }
    state.textContent = `Pass ${passes}: ${left} of ${cells.length} positions are masks.`;
  };
  return { element, state, show };
}
