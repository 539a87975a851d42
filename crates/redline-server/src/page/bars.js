// Bars of probabilities.

import { make } from "./dom.js";

// A probability with four decimals, or two digits if it is small.
export const shown = (p) => (p === 0 || p >= 0.0001 ? p.toFixed(4) : p.toExponential(1));

// One bar per option, an object with `name` and `p`. The most probable one stands out.
export function bars(options) {
  const best = options.reduce((a, b) => (b.p > a.p ? b : a)).p;
  const rows = options.map(({ name, p }) => {
    const fill = make("span", { class: "fill" });
    fill.style.width = `${(100 * Math.min(1, p)).toFixed(2)}%`;
    return make(
      "li",
      p === best ? { class: "best" } : {},
      make("span", { class: "name" }, name),
      make("span", { class: "track", "aria-hidden": "true" }, fill),
      make("span", { class: "value" }, shown(p)),
    );
  });
  return make("ol", { class: "bars" }, ...rows);
}
