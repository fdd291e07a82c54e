// The samples: filtered, searched, sorted; only the rows that are seen are in the page.

const ROW = 38; // pixels
let samples = null, cells = [], shown = new Uint32Array(0), cellOf = null;

function readSamples() {
  const s = about.samples, c = s.columns;
  samples = { rows: s.rows, words: s.words };
  for (const name of ["by", "kind", "error", "relation", "second", "second_says", "right", "popularity", "probability", "cluster", "logprob", "tokens", "cut", "sampled_right", "sampled_times", "sampled_logprob", "sampled_end"]) samples[name] = column(c[name]);
  for (const name of ["id", "question", "answer", "accepted", "alias", "sampled"]) samples[`${name}Text`] = texts(c[`${name} text`]);
  samples.marks = { question: marks(c["question marks"]), answer: marks(c["answer marks"]), found: marks(c["found marks"]) };
  samples.scores = s.scores.map(column);
  cellOf = new Uint8Array(s.rows);
  s.cells.forEach((cell, i) => cellOf.fill(i, cell.start, cell.start + cell.count));
  choosePoint();
}

// the read-outs of the chosen site and position
function choosePoint() {
  const point = pointNumber();
  cells = about.samples.cells.map((cell) => {
    const at = cell.points[point];
    if (!at) return { ...cell, layers: 0, anchor: 0, logits: {}, flips: {} };
    const logits = Object.fromEntries(Object.entries(at.logits).map(([name, number]) => [name, column(number)]));
    const flips = Object.fromEntries(Object.entries(at.flips).map(([name, numbers]) => [name, numbers.map(column)]));
    return { ...cell, layers: at.layers, anchor: at.anchor, logits, flips };
  });
}

const logitOf = (cell, condition, row, layer) => cell.logits[condition][(row - cell.start) * cell.layers + layer] / 1000;
const layerFor = (cell) => (state.layer === "anchor" ? cell.anchor : Math.min(cell.layers - 1, Number(state.layer)));
// the layer at which a sample is sorted: the anchor's where there is one label a sample
const sortedAt = (cell) => (state.split.startsWith("anchor") ? cell.anchor : layerFor(cell));
function middle(model, set) {
  const cell = cells.find((x) => x.model === model && (set < 0 || x.set === set));
  return cell ? String(Math.round((cell.layers - 1) / 2)) : "anchor";
}

// who is flipped, under the condition and correction in use; looked up once for a cell, not once for a row
function flipsOf(cell) {
  const key = `${state.condition}|${state.correction}`;
  if (cell.flipsBy !== key) {
    const correction = state.correction === "drift" ? "drift" : "none", condition = ["control_question", "matched_question"].includes(state.condition) ? state.condition : "knockout";
    cell.flipsNow = cell.flips[`${condition}|${correction}`] ?? cell.flips[`${condition}|none`] ?? cell.flips["knockout|none"] ?? null;
    cell.flipsBy = key;
  }
  return cell.flipsNow;
}
function groupOf(cell, row) {
  const flips = flipsOf(cell), i = row - cell.start;
  if (!flips) return "";
  if (state.split === "anchor_half") return bit(flips[2], i) ? "Q" : "A";
  return bit(flips[state.split === "layer_half" ? 1 : 0], i * cell.layers + sortedAt(cell)) ? "Q" : "A";
}
const predictedOf = (cell, row) => (cell.layers ? (logitOf(cell, "clean", row, sortedAt(cell)) >= 0 ? "right" : "wrong") : "");
const disputedOf = (row) => (samples.second_says[row] === 2 ? false : (samples.second_says[row] === 0) !== (samples.right[row] === 1));
const sampledOf = (row) => samples.sampled_end[row] > (row ? samples.sampled_end[row - 1] : 0);
const wordOf = (name, row) => samples.words[samples[name][row]];

function detectorNumber() {
  const names = about.samples.detectors, asked = names.indexOf(state.detector);
  if (asked >= 0) return asked;
  for (const name of ["combined", "everything", "stack", "single_layer"]) if (names.includes(name)) return names.indexOf(name);
  return names.length ? 0 : -1;
}
// P that the answer is wrong, at a base rate of one half; null without a score
function scoreOf(row, detector = detectorNumber()) {
  if (detector < 0) return null;
  const x = samples.scores[detector][row];
  return x === MISSING ? null : sigmoid(-x / 1000);
}
const verdictOf = (row) => { const p = scoreOf(row); return p === null ? "" : p > 0.5 ? "flag" : "pass"; };

const COLUMNS = [
  { name: "question", title: "question", value: (row) => samples.questionText(row) || samples.idText(row), wide: true, text: true },
  { name: "answer", title: "answer", value: (row) => samples.answerText(row), wide: true, text: true },
  { name: "grade", title: "grade", value: (row) => (samples.right[row] ? "right" : "wrong") },
  { name: "group", title: "group", about: "Q: the cut flips what the probe says; A: it does not", value: (row, cell) => groupOf(cell, row) },
  { name: "predicted", title: "probe says", about: "the class that the probe predicts on the clean pass", value: (row, cell) => predictedOf(cell, row) },
  { name: "p", title: "P right", about: "probability that the answer is right, by the probe, on the clean pass (%)", number: true, value: (row, cell) => (cell.layers ? 100 * sigmoid(logitOf(cell, "clean", row, layerFor(cell))) : null), digits: 0 },
  { name: "delta", title: "ΔP", about: "change, under the cut, of the probability of what the probe says (points)", number: true, value: (row, cell) => deltaOf(cell, row), digits: 0 },
  { name: "score", title: "P wrong", about: "by the chosen detector, at even odds (%)", number: true, value: (row) => { const p = scoreOf(row); return p === null ? null : 100 * p; }, digits: 0, when: () => about.samples.detectors.length },
  { name: "set", title: "set", value: (row, cell) => setTitle(cell.set) },
  { name: "model", title: "model", value: (row, cell) => about.models[cell.model].name },
  { name: "error", title: "error", about: "stock: the same wrong answer stands in five samples or more; choice: yes or no, or one of two; own: any other", value: (row) => wordOf("error", row) },
  { name: "logprob", title: "log p", number: true, value: (row) => samples.logprob[row], digits: 1 },
  { name: "popularity", title: "popularity", number: true, value: (row) => (Number.isNaN(samples.popularity[row]) ? null : samples.popularity[row]), digits: 0, when: () => samples.popularity.some((x) => !Number.isNaN(x)) },
];
function deltaOf(cell, row) {
  const condition = cell.logits[state.condition] ? state.condition : "knockout";
  if (!cell.layers || !cell.logits[condition]) return null;
  const layer = layerFor(cell), clean = logitOf(cell, "clean", row, layer);
  return 100 * (clean >= 0 ? 1 : -1) * (sigmoid(logitOf(cell, condition, row, layer)) - sigmoid(clean));
}

let haystack = null; // question, answer, accepted answers and id of each sample, in small letters
function searched(row) {
  haystack ??= new Array(samples.rows);
  return (haystack[row] ??= `${samples.questionText(row)}\n${samples.answerText(row)}\n${samples.acceptedText(row)}\n${samples.idText(row)}`.toLowerCase());
}

// what a first search and a first sort by a text need is made ready while nobody waits for anything
function makeReady() {
  let row = 0;
  const later = (work) => (window.requestIdleCallback ? requestIdleCallback(work, { timeout: 3000 }) : setTimeout(() => work({ timeRemaining: () => 8 }), 30));
  const some = (deadline) => {
    while (row < samples.rows && deadline.timeRemaining() > 1) for (let i = 0; i < 200 && row < samples.rows; i++) searched(row++);
    if (row < samples.rows) later(some);
    else for (const name of ["question", "answer"]) later(() => ranksOf(COLUMNS.find((each) => each.name === name)));
  };
  later(some);
}

function jointTest() {
  if (!state.joint) return null;
  const [a, b, kind] = state.joint.split(",");
  const right = new Map();
  cells.forEach((cell) => { if (String(cell.model) === a || String(cell.model) === b) for (let row = cell.start; row < cell.start + cell.count; row++) right.set(`${cell.model}/${cell.set}/${samples.idText(row)}`, samples.right[row]); });
  return (cell, row) => {
    if (String(cell.model) !== a && String(cell.model) !== b) return false;
    const key = `/${cell.set}/${samples.idText(row)}`, one = right.get(a + key), two = right.get(b + key);
    if (one === undefined || two === undefined) return false;
    return kind === (one ? (two ? "both" : "first") : two ? "second" : "neither");
  };
}

// which samples are shown, in their order
function applyFilters() {
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean), joint = jointTest();
  const [from, to] = state.range ? state.range.split(",").map(Number) : [];
  const kept = new Uint32Array(samples.rows);
  let count = 0;
  cells.forEach((cell, c) => {
    if ((state.model !== "" && String(cell.model) !== state.model) || (state.set !== "" && String(cell.set) !== state.set) || !cell.layers) return;
    for (let row = cell.start; row < cell.start + cell.count; row++) {
      if (state.grade && (state.grade === "right") !== (samples.right[row] === 1)) continue;
      if (state.error && wordOf("error", row) !== state.error) continue;
      if (state.kind && wordOf("kind", row) !== state.kind) continue;
      if (state.group && groupOf(cell, row) !== state.group) continue;
      if (state.predicted && predictedOf(cell, row) !== state.predicted) continue;
      if (state.verdict && verdictOf(row) !== state.verdict) continue;
      if (state.disputed && disputedOf(row) !== (state.disputed === "yes")) continue;
      if (state.sampled && sampledOf(row) !== (state.sampled === "yes")) continue;
      if (state.range) { const p = scoreOf(row); if (p === null || p < from || p > to) continue; }
      if (joint && !joint(cell, row)) continue;
      if (words.length) { const text = searched(row); if (!words.every((word) => text.includes(word))) continue; }
      kept[count++] = row;
    }
  });
  shown = kept.subarray(0, count);
  sortShown();
}

function sortShown() {
  const by = COLUMNS.find((each) => each.name === state.sort);
  if (!by) return;
  const keys = new Uint32Array(shown.length), down = state.down === "1";
  if (by.number) {
    const value = new Float32Array(1), bits = new Uint32Array(value.buffer);
    shown.forEach((row, i) => {
      const number = by.value(row, cells[cellOf[row]]);
      value[0] = number ?? NaN;
      // as whole numbers in the same order; what is missing comes last, whichever way
      const key = bits[0] & 0x80000000 ? ~bits[0] : bits[0] | 0x80000000;
      keys[i] = number === null || Number.isNaN(number) ? 0xffffffff : down ? ~key : key;
    });
  } else if (by.text) {
    const ranks = ranksOf(by);
    shown.forEach((row, i) => { keys[i] = down ? ~ranks[row] : ranks[row]; });
  } else {
    const known = new Map(), values = Array.from(shown, (row) => { const text = by.value(row, cells[cellOf[row]]); known.set(text, 0); return text; });
    [...known.keys()].sort(collate).forEach((text, i) => known.set(text, i));
    values.forEach((text, i) => { const rank = known.get(text); keys[i] = down ? ~rank : rank; });
  }
  shown = byKeys(shown, keys);
}

// rows in the order of their keys, equal ones as they stand: byte by byte, the lowest first
function byKeys(rows, keys) {
  let from = rows.slice(), to = new Uint32Array(rows.length), k = keys, l = new Uint32Array(keys.length);
  for (let shift = 0; shift < 32; shift += 8) {
    const starts = new Uint32Array(257);
    for (let i = 0; i < k.length; i++) starts[((k[i] >>> shift) & 255) + 1]++;
    for (let i = 0; i < 256; i++) starts[i + 1] += starts[i];
    for (let i = 0; i < k.length; i++) { const at = starts[(k[i] >>> shift) & 255]++; to[at] = from[i]; l[at] = k[i]; }
    [from, to, k, l] = [to, from, l, k];
  }
  return from;
}

// (sample): its place among the texts of a column, by small letters; made once
function ranksOf(by) {
  if (by.ranks) return by.ranks;
  const texts = Array.from({ length: samples.rows }, (_, row) => by.value(row).toLowerCase()), order = Uint32Array.from(texts, (_, i) => i);
  order.sort((a, b) => (texts[a] < texts[b] ? -1 : texts[a] > texts[b] ? 1 : 0));
  by.ranks = new Uint32Array(samples.rows);
  let rank = 0;
  order.forEach((row, i) => { if (i && texts[row] !== texts[order[i - 1]]) rank++; by.ranks[row] = rank; });
  return by.ranks;
}
const collate = (a, b) => { const x = a.toLowerCase(), y = b.toLowerCase(); return x < y ? -1 : x > y ? 1 : 0; };

function drawFilters() {
  const form = byId("filters"), any = [["", "any"]];
  const word = (name) => [...new Set(samples[name])].map((i) => samples.words[i]).filter(Boolean).sort().map((w) => [w, w]);
  const most = Math.max(...cells.map((cell) => cell.layers));
  const detectors = about.samples.detectors.map((name) => [name, about.detectors.titles[name] ?? name]);
  const search = make("input", { id: "search", type: "search", value: state.search, placeholder: about.samples.text ? "question, answer, id" : "id", autocomplete: "off", oninput: (event) => change({ search: event.target.value }) });
  form.onsubmit = (event) => event.preventDefault();
  form.replaceChildren(
    make("label", { class: "search" }, make("span", {}, "Search"), search),
    select("model", "Model", [...any, ...about.models.map((m, i) => [String(i), m.name])]),
    select("set", "Set", [...any, ...about.sets.map((s, i) => [String(i), s.title])]),
    select("group", "Group", [...any, ["Q", "Q-Anchored"], ["A", "A-Anchored"]]),
    select("grade", "Grade", [...any, ["right", "right"], ["wrong", "wrong"]]),
    select("predicted", "Probe says", [...any, ["right", "right"], ["wrong", "wrong"]]),
    ...(detectors.length ? [select("verdict", "Detector says", [...any, ["flag", "flag"], ["pass", "pass"]]), select("detector", "Detector", detectors, about.samples.detectors[detectorNumber()])] : []),
    select("error", "Kind of error", [...any, ...word("error")]),
    select("kind", "Kind of question", [...any, ...word("kind")]),
    select("disputed", "Grade disputed", [...any, ["yes", "yes"], ["no", "no"]]),
    ...(samples.sampled_end[samples.rows - 1] ? [select("sampled", "Asked several times", [...any, ["yes", "yes"], ["no", "no"]])] : []),
    select("layer", "Layer", [["anchor", "best layer"], ...Array.from({ length: most }, (_, i) => [String(i), String(i)])]),
  );
  if (!detectors.length) form.append(make("label", { hidden: true }, make("select", { name: "verdict" })));
}

function drawCount() {
  byId("count").textContent = `${counted(shown.length)} of ${counted(samples.rows)} samples`;
  const said = [];
  if (state.group || state.predicted) said.push(`Sorted ${wordsOf(state.split)}${state.split.startsWith("anchor") ? "" : state.layer === "anchor" ? ", at the best layer" : `, at layer ${state.layer}`}${state.correction === "none" ? "" : `, ${wordsOf(state.correction)} subtracted`}.`);
  if (state.split.endsWith("half") && (state.group || state.predicted)) said.push("With halves every draw sorts anew; shown is the group that most draws give, so the count comes near to the chart's.");
  if (["drift_class", "drift_control"].includes(state.correction) && state.group) said.push("Samples are sorted without this correction, which the page does not carry by sample.");
  if (state.joint) { const [a, b, kind] = state.joint.split(","); said.push(`Questions that ${about.models[a].name} and ${about.models[b].name} both answered: ${{ both: "both right", first: "only the first right", second: "only the second right", neither: "both wrong" }[kind]}.`); }
  if (state.range) { const [from, to] = state.range.split(",").map(Number); said.push(`P wrong from ${number(100 * from, 0)} to ${number(100 * to, 0)} %.`); }
  byId("why").textContent = [why, ...said].filter(Boolean).join(" ");
}
let why = "";

let seenColumns = null;
const visible = () => (seenColumns ??= COLUMNS.filter((each) => !each.when || each.when()));
function drawHead() {
  const head = document.querySelector("#rows thead");
  head.replaceChildren(make("tr", {}, ...visible().map((each) => {
    const on = state.sort === each.name;
    return make("th", { scope: "col", class: each.number ? "right" : each.wide ? "wide" : "", "data-column": each.name, "aria-sort": on ? (state.down === "1" ? "descending" : "ascending") : "none" }, make("button", { type: "button", title: each.about ?? "", onclick: () => change(on ? (state.down === "1" ? { sort: "", down: "" } : { down: "1" }) : { sort: each.name, down: "" }) }, each.title, on ? (state.down === "1" ? " ↓" : " ↑") : ""));
  })));
}

let drawnFrom = -1;
let scrolled = 0; // pixels, as the box last said
let tall = 0; // pixels, of the box; asked for once, as asking makes the browser lay out the page
function drawRowsShown(force = true, top = null) {
  const box = byId("rows"), body = box.querySelector("tbody");
  const count = Math.ceil((tall ||= box.clientHeight || 600) / ROW) + 12, from = Math.max(0, Math.min(Math.floor((top ?? scrolled) / ROW) - 6, shown.length - count));
  if (!force && Math.abs(from - drawnFrom) < 4) return;
  drawnFrom = from;
  const to = Math.min(shown.length, from + count), columns = visible(), rows = [];
  const spacer = (height) => { const row = make("tr", { "aria-hidden": "true", class: "spacer" }, make("td", { colSpan: columns.length })); row.firstChild.style.height = `${height}px`; return row; };
  if (from) rows.push(spacer(from * ROW));
  for (let i = from; i < to; i++) {
    const row = shown[i], cell = cells[cellOf[row]];
    const tr = make("tr", { "data-row": row, "aria-rowindex": i + 2, class: String(row) === state.row ? "chosen" : "" });
    for (const each of columns) {
      const value = each.value(row, cell);
      const text = each.number ? number(value, each.digits) : String(value);
      const td = make("td", { class: each.number ? "right" : each.wide ? "wide" : "" });
      if (each.name === "question") td.append(make("button", { type: "button", class: "link" }, text));
      else if (each.name === "grade") td.append(make("span", { class: `grade ${text}` }, text), disputedOf(row) ? make("small", { class: "disputed", title: "a second rule says otherwise" }, " disputed") : "");
      else td.append(text);
      tr.append(td);
    }
    rows.push(tr);
  }
  if (to < shown.length) rows.push(spacer((shown.length - to) * ROW));
  body.replaceChildren(...rows);
  box.querySelector("table").setAttribute("aria-rowcount", String(shown.length + 1));
}

function refreshExplorer(changed) {
  let top = null;
  const filters = ["model", "set", "group", "grade", "predicted", "verdict", "error", "kind", "disputed", "sampled", "joint", "range", "search", "layer", "split", "correction", "condition", "detector", "site", "position"];
  if (!changed || filters.some((name) => changed.has(name))) { applyFilters(); top = 0; if (changed) byId("slice").replaceChildren(); }
  else if (changed.has("sort") || changed.has("down")) { state.sort ? sortShown() : applyFilters(); top = 0; }
  if (!changed || ["sort", "down", "tab"].some((name) => changed.has(name))) drawHead();
  drawCount();
  drawRowsShown(true, top);
  if (top === 0 && scrolled) byId("rows").scrollTop = scrolled = 0;
}

// --- from a number to its samples
function showSamples({ model = -1, set = -1, group = "", predicted = "", grade = "", layer = "anchor", condition = "knockout", why: reason = "", ...more }) {
  why = reason;
  change({ tab: "explorer", ...CLEARED, model: model < 0 ? "" : String(model), set: set < 0 ? "" : String(set), group, predicted, grade, layer: String(layer), condition, ...more });
  redrawFilters();
  byId("main").focus({ preventScroll: true });
  scrollTo(0, 0);
}
const CLEARED = { layer: "anchor", condition: "knockout", model: "", set: "", group: "", grade: "", predicted: "", verdict: "", error: "", kind: "", disputed: "", sampled: "", joint: "", range: "", search: "", sort: "", down: "" };
function redrawFilters() { drawFilters(); }

function openPoint(spec) {
  const [statistic, condition, split, , correction, group, stratum] = spec.key.split("|");
  const first = condition.split("-")[0], by = ["permuted", "clean"].includes(first) ? "knockout" : first;
  const chosen = { predicted_correct: { predicted: "right" }, predicted_wrong: { predicted: "wrong" }, label_correct: { grade: "right" }, label_wrong: { grade: "wrong" } }[stratum] ?? {};
  if (statistic.startsWith("within_")) chosen.sampled = "yes";
  if (stratum.startsWith("kind_")) chosen.kind = stratum.slice(5);
  const asked = split === "none" ? {} : { split };
  const note = first === "permuted" ? " Here each answer gets another answer's shift, anew in every draw: shown are the groups of the cut itself." : "";
  if (spec.point !== undefined) Object.assign(asked, { site: about.points[spec.point].site, position: about.points[spec.point].position });
  showSamples({ model: spec.model, set: spec.set, layer: String(Math.max(0, spec.layer)), group: ["Q", "A"].includes(group) ? group : "", condition: by, ...chosen, ...asked, ...(split === "none" ? {} : { correction }),
    why: `The samples behind one number: ${statistic.replaceAll("_", " ")}, ${wordsOf(condition)}, ${about.models[spec.model].name} on ${setTitle(spec.set)}, layer ${spec.layer} (${counted(spec.n)} in the chart).${note}` });
}

function drawSlice() {
  const by = new Map();
  for (const row of shown) { const c = cellOf[row]; if (!by.has(c)) by.set(c, []); by.get(c).push(row); }
  const body = make("tbody"), told = (digits) => (x) => [number(x.value, digits), make("small", {}, interval(x.low, x.high, digits))], number3 = told(3), points = told(1);
  for (const [c, rows] of by) {
    const cell = cells[c], m = measuredSlice(cell, rows);
    body.append(make("tr", {}, make("th", { scope: "row" }, `${about.models[cell.model].name}, ${setTitle(cell.set)}`), ...[counted(m.n), counted(m.right), points(m.accuracy), String(m.layer), number3(m.auroc), number3(m.cut), number3(m.lost), counted(m.q), points(m.deltaQ), points(m.deltaA)].map((content) => make("td", { class: "right" }, content))));
  }
  const head = ["", "n", "right", "accuracy %", "layer", "AUROC clean", "AUROC cut", "ΔAUROC", "in Q", "ΔP of Q", "ΔP of A"];
  byId("slice").replaceChildren(make("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Measures of this slice" }, make("table", {}, make("thead", {}, make("tr", {}, ...head.map((h) => (h ? make("th", { scope: "col", class: "right" }, h) : make("td"))))), body)), make("p", { class: "caption" }, `Measured on this page from mean read-outs of the samples shown; 95 % intervals by ${RESAMPLES} resamples of clusters, not widened for what training adds. A slice that was chosen by looking has no honest interval: take it as a hint. Accuracy is weighted to all answers. Below ${about.min_group} samples nothing is said.`));
}
