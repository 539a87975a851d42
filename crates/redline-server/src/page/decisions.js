// Decisions: typed questions about a state.

import { bars, shown } from "./bars.js";
import { byId, facts, lines, make } from "./dom.js";
import { costs, onSubmit, request, timed } from "./run.js";

const PATH = "v1/decisions";

// The types of questions: the name on the page, and what their options are.
const TYPES = {
  predicate: { title: "Yes or no", options: null },
  choice: { title: "One of several options", options: "Options, one per line: NAME, or NAME: DESCRIPTION" },
  score: { title: "A level", options: "Levels from the lowest, one per line: NAME, or NAME: DESCRIPTION" },
};

const EXAMPLES = [
  ["predicate", "A refund is due.", ""],
  ["choice", "Which team should answer?", "billing: payments and refunds\nsales\nsupport: the product does not work"],
  ["score", "How urgent is it?", "not at all\nthis week\ntoday"],
];

export function decisions(panel, model) {
  const list = byId("questions");
  EXAMPLES.forEach((example) => list.append(question(...example)));
  byId("add-question").addEventListener("click", () => {
    const added = question("predicate", "", "");
    list.append(added);
    number(list);
    added.querySelector("select").focus();
  });
  list.addEventListener("click", (event) => {
    if (!event.target.matches(".remove")) return;
    event.target.closest("fieldset").remove();
    number(list);
    byId("add-question").focus();
  });
  number(list);
  onSubmit(panel, async ({ form, signal, result }) => {
    const body = { model: model(), input: form.state.value, questions: [...list.children].map(asked) };
    const [answer, time] = await timed(PATH, body, signal);
    answer.answers.forEach((one, at) => {
      result.append(make("h2", { class: "text" }, body.questions[at].instructions), ...answered(one));
      const { label_mass, argmax_is_label } = answer.diagnostics[at];
      if (argmax_is_label === false && label_mass !== null) {
        const text = `The model would rather write something else: all options together have probability ${shown(label_mass)}.`;
        result.append(make("p", { class: "hint" }, text));
      }
    });
    result.append(costs(time, answer.usage), request(PATH, body));
  });
}

// The inputs of a question.
function question(type, instructions, options) {
  const entries = Object.entries(TYPES).map(([value, { title }]) => make("option", { value }, title));
  const select = make("select", {}, ...entries);
  select.value = type;
  const text = make("textarea", { class: "instructions", rows: "2" });
  text.value = instructions;
  const choices = make("textarea", { class: "options", rows: "3" });
  choices.value = options;
  const caption = make("span");
  const label = make("label", {}, caption, choices);
  const show = () => {
    const wanted = TYPES[select.value].options;
    label.hidden = wanted === null;
    caption.textContent = wanted ?? "";
  };
  select.addEventListener("change", show);
  show();
  return make(
    "fieldset",
    { class: "question" },
    make("legend"),
    make("label", {}, "Type", select),
    make("label", {}, "Question", text),
    label,
    make("p", { class: "buttons" }, make("button", { type: "button", class: "remove" }, "Remove")),
  );
}

// Numbers the questions.
function number(list) {
  [...list.children].forEach((one, at) => {
    one.querySelector("legend").textContent = `Question ${at + 1}`;
    one.querySelector(".remove").setAttribute("aria-label", `Remove question ${at + 1}`);
  });
}

// The question as the route takes it.
function asked(inputs) {
  const type = inputs.querySelector("select").value;
  const base = { type, instructions: inputs.querySelector(".instructions").value };
  const options = lines(inputs.querySelector(".options").value).map((line) => {
    const at = line.indexOf(":");
    return at < 0 ? [line.trim()] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
  const named = (key) => options.map(([name, description]) => ({ [key]: name, ...(description && { description }) }));
  if (type === "choice") return { ...base, choices: named("value") };
  if (type === "score") return { ...base, levels: named("label") };
  return base;
}

// Bars and figures of an answer.
function answered(answer) {
  if (answer.type === "predicate") {
    const yes = answer.probability;
    return [bars([{ name: "yes", p: yes }, { name: "no", p: 1 - yes }])];
  }
  const options = answer.probabilities.map(({ value, label, probability }) => ({ name: label ?? String(value), p: probability }));
  const level = answer.type === "score" ? answer.score.toFixed(2) : undefined;
  return [bars(options), facts([["Expected level, from 0", level], ["Confidence", answer.confidence.toFixed(4)]])];
}
