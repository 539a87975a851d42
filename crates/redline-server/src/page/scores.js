// Scores: the probability of each label after query and item.

import { bars } from "./bars.js";
import { lines, make } from "./dom.js";
import { costs, onSubmit, request, timed } from "./run.js";

const PATH = "v1/score";

export function scores(panel, model) {
  onSubmit(panel, async ({ form, signal, result }) => {
    const body = {
      model: model(),
      query: form.query.value,
      items: lines(form.items.value),
      labels: lines(form.labels.value),
      apply_softmax: form.softmax.checked,
      long_labels: "sum",
    };
    const [answer, time] = await timed(PATH, body, signal);
    body.items.forEach((item, at) => {
      const options = body.labels.map((name, label) => ({ name, p: answer.scores[at][label] }));
      result.append(make("h2", { class: "text" }, item), bars(options));
    });
    result.append(costs(time, answer.usage), request(PATH, body));
  });
}
