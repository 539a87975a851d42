// The page: which model it asks, and what that model can do.

import { get, getKey, setKey } from "./api.js";
import { chat } from "./chat.js";
import { completion } from "./completion.js";
import { decisions } from "./decisions.js";
import { diffusion } from "./diffusion.js";
import { byId, make, problem } from "./dom.js";
import { gauges } from "./gauges.js";
import { scores } from "./scores.js";
import { tabs } from "./tabs.js";

const PANELS = { scores, decisions, completion, chat, diffusion };
const model = () => byId("model").value || undefined;
// Few models fill masks: that panel is hidden until the model is known.
let unavailable = { diffusion: "" };

// Disables the panels that the chosen model does not have, and says why.
function offer() {
  const adapter = byId("model").selectedOptions[0]?.dataset.parent;
  const reasons = { ...unavailable };
  if (adapter) reasons.decisions ??= "Decisions take no adapter; choose the model.";
  for (const name of Object.keys(PANELS)) {
    const [panel, reason] = [byId(name), reasons[name]];
    panel.querySelector("fieldset").disabled = reason !== undefined;
    panel.querySelector("[type=submit]").disabled = reason !== undefined;
    const tab = byId(`tab-${name}`);
    tab.classList.toggle("unavailable", reason !== undefined);
    if (panel === byId("diffusion")) tab.hidden = reason !== undefined;
    const note = panel.querySelector(".reason");
    note.hidden = reason === undefined;
    note.textContent = reason === undefined ? "" : `Not available: ${reason}`;
  }
  showNamed();
}

// Reads what the server has. Called again when the key changes.
async function load() {
  const before = model();
  try {
    const [models, about] = await Promise.all([get("v1/models"), get("page/abilities")]);
    const entries = models.data.map(({ id, parent }) => {
      const option = make("option", { value: id }, parent ? `${id} (adapter)` : id);
      if (parent) option.dataset.parent = parent;
      return option;
    });
    byId("model").replaceChildren(...entries);
    if (models.data.some(({ id }) => id === before)) byId("model").value = before;
    byId("about").textContent = `${about.model}, context of ${about.context} tokens. Version ${about.version}.`;
    unavailable = about.unavailable;
    byId("problem").replaceChildren();
  } catch (error) {
    byId("problem").replaceChildren(problem(error));
  }
  offer();
}

const readGauges = gauges();
byId("key").value = getKey();
byId("key").addEventListener("change", (event) => {
  setKey(event.target.value.trim());
  load();
  readGauges();
});
byId("model").addEventListener("change", offer);
for (const [name, panel] of Object.entries(PANELS)) panel(byId(name), model);
const showNamed = tabs(document.querySelector("[role=tablist]"));
byId("app").hidden = false;
load();
readGauges();
