// What the server does, read from /metrics while the page is visible.

import { getText } from "./api.js";
import { byId, fact } from "./dom.js";

const EVERY_MS = 2000;

// The values of metrics without labels, by name.
function values(text) {
  const found = text.matchAll(/^(\w+) (\S+)$/gm);
  return new Map([...found].map(([, name, value]) => [name, Number(value)]));
}

// The facts that are shown, from the values now and those of `before`, which were read `ms` earlier.
function shown(now, before, ms) {
  const total = "redline_generation_tokens_total";
  const limit = now.get("redline_kv_pages_limit");
  const rate = before && ((now.get(total) - before.get(total)) * 1000) / ms;
  return [
    ["Running", now.get("redline_requests_running")],
    ["Waiting", now.get("redline_requests_waiting")],
    ["KV pages used", now.get("redline_kv_pages_used") + (limit === undefined ? "" : ` of ${limit}`)],
    ["New tokens/s", before ? Math.max(0, rate).toFixed(1) : "–"],
  ];
}

export function gauges() {
  let [before, at, timer] = [null, 0, null];
  const show = (pairs) => byId("gauges").replaceChildren(...pairs.map(fact));
  const read = async () => {
    clearTimeout(timer);
    timer = null;
    try {
      const now = values(await getText("metrics"));
      const time = performance.now();
      show(shown(now, before, time - at));
      [before, at] = [now, time];
    } catch (error) {
      before = null;
      show([["State", error.message]]);
      // Until there is a key, it would only be refused again.
      if (error.status === 401) return;
    }
    if (document.visibilityState === "visible") timer ??= setTimeout(read, EVERY_MS);
  };
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    timer = null;
    before = null;
    if (document.visibilityState === "visible") read();
  });
  return read;
}
