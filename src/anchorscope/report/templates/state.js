// What is shown, as one flat object. It lives in the address behind #, so that a link shows the same.

const FILTERS = {
  model: "",
  set: "",
  group: "",
  grade: "",
  predicted: "",
  verdict: "",
  error: "",
  kind: "",
  disputed: "",
  sampled: "",
  range: "",
  search: "",
  sort: "",
  down: "",
  layer: "anchor",
  condition: "knockout",
};
// what decides which samples are shown: the filters, and what sorts samples into groups
const CHOOSING = [
  ...Object.keys(FILTERS).filter((name) => name !== "sort" && name !== "down"),
  "split",
  "correction",
  "detector",
  "site",
  "position",
];
const DEFAULTS = {
  tab: "overview",
  site: about.points[0].site,
  position: about.points[0].position,
  split: "layer",
  correction: "none",
  stratum: "all",
  beside: "permuted",
  bands: "1",
  hide: "",
  ...FILTERS,
  detector: "",
  row: "",
  pins: "",
  measured: "",
};
const state = { ...DEFAULTS };
const listeners = [];

function readAddress() {
  const found = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(DEFAULTS)) state[name] = found.get(name) ?? DEFAULTS[name];
  state.tab = { explorer: "samples", nulls: "controls", routes: "passages" }[state.tab] ?? state.tab; // older links
}

function address() {
  const written = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value !== DEFAULTS[name]) written.set(name, value);
  return written.toString();
}

let writing = 0;
// change some of the state; everyone who draws a part of it is told what changed
function change(values) {
  const changed = Object.keys(values).filter((name) => state[name] !== String(values[name]));
  if (!changed.length) return;
  for (const name of changed) state[name] = String(values[name]);
  clearTimeout(writing);
  writing = setTimeout(writeAddress, 120);
  for (const listen of listeners) listen(new Set(changed));
}

function writeAddress() {
  clearTimeout(writing);
  const hash = address();
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
}

const pointNumber = () =>
  Math.max(
    0,
    about.points.findIndex((p) => p.site === state.site && p.position === state.position),
  );

// --- small helpers for elements: texts are always set as text, never as markup
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list" && !name.startsWith("aria")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

// A table that scrolls by itself: `heads` are its first row's cells, `body` a tbody.
function tableOf(label, heads, body) {
  const head = make("thead", {}, make("tr", {}, ...heads));
  const around = { class: "scroll", tabIndex: 0, role: "region", "aria-label": label };
  return make("div", around, make("table", {}, head, body));
}

function headOf(words, right = false) {
  return make("th", { scope: "col", class: right ? "right" : "" }, words);
}
const byId = (id) => document.getElementById(id);

function select(name, label, options, value = state[name], onchange = null) {
  const box = make("select", { name, onchange: onchange ?? ((event) => change({ [name]: event.target.value })) });
  for (const [key, words] of options) box.append(make("option", { value: key, selected: key === value }, words));
  box.value = value;
  return make("label", {}, make("span", {}, label), box);
}

// numbers with a true minus sign
function number(value, digits) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const written = value.toFixed(digits);
  return /^-0\.?0*$/.test(written) ? written.slice(1) : written.replace("-", "−");
}
const interval = (low, high, digits) =>
  low === null || Number.isNaN(low) ? "" : ` (${number(low, digits)} to ${number(high, digits)})`;
const counted = (n) => n.toLocaleString("en");
function toast(text) {
  byId("toast").textContent = text;
  byId("toast").classList.add("shown");
  setTimeout(() => byId("toast").classList.remove("shown"), 2500);
}
