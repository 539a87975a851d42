// Elements. Every text is inserted as text, never as HTML.

export const byId = (id) => document.getElementById(id);

// An element with attributes and children, which are elements or texts.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A list of names and values. Values that are undefined are left out.
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== undefined && value !== null);
  return make("dl", { class: "facts" }, ...known.map(fact));
}

export function fact([name, value]) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, String(value)));
}

// What the server says about a request that it refuses.
export function problem(error) {
  const about = [
    ["Field", error.param],
    ["Code", error.code],
    ["Status", error.status],
    ["Try again after", error.retryAfter && `${error.retryAfter} s`],
  ];
  return make("div", { class: "problem" }, make("p", {}, error.message), facts(about));
}

// The lines of a text that are not empty, with their spaces.
export const lines = (text) => text.split(/\r?\n/).filter((line) => line.trim() !== "");
