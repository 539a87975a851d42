// Tabs: one panel at a time. Its name stands in the address, so that it can be linked. Returns a function that shows the panel that the
// address names, for when tabs were hidden or shown.

const KEYS = { ArrowRight: 1, ArrowLeft: -1 };

export function tabs(list) {
  const all = [...list.querySelectorAll("[role=tab]")];
  const panel = (tab) => document.getElementById(tab.getAttribute("aria-controls"));
  const select = (chosen) => {
    for (const tab of all) {
      tab.setAttribute("aria-selected", String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
      panel(tab).hidden = tab !== chosen;
    }
  };
  const choose = (tab) => {
    select(tab);
    history.replaceState(null, "", `#${panel(tab).id}`);
  };
  list.addEventListener("click", (event) => all.includes(event.target) && choose(event.target));
  list.addEventListener("keydown", (event) => {
    const shown = all.filter((tab) => !tab.hidden);
    const at = shown.indexOf(event.target);
    let to = at + (KEYS[event.key] ?? 0);
    if (event.key === "Home") to = 0;
    if (event.key === "End") to = shown.length - 1;
    if (to === at) return;
    const tab = shown[(to + shown.length) % shown.length];
    event.preventDefault();
    tab.focus();
    choose(tab);
  });
  const named = () => all.find((tab) => !tab.hidden && `#${panel(tab).id}` === location.hash) ?? all[0];
  const showNamed = () => select(named());
  addEventListener("hashchange", showNamed);
  showNamed();
  return showNamed;
}
