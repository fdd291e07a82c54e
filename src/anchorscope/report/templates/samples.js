// The samples as they were packed: what is known of each, by which group and column it goes.

let samples = null,
  cells = [],
  shown = new Uint32Array(0),
  cellOf = null;

function readSamples() {
  const s = about.samples,
    c = s.columns;
  samples = { rows: s.rows, words: s.words };
  for (const name of [
    "by",
    "kind",
    "error",
    "relation",
    "second",
    "second_says",
    "right",
    "popularity",
    "probability",
    "logprob",
    "tokens",
    "cut",
    "sampled_right",
    "sampled_times",
    "sampled_logprob",
    "sampled_end",
  ])
    samples[name] = column(c[name]);
  for (const name of ["id", "question", "answer", "accepted", "alias", "sampled", "context"])
    samples[`${name}Text`] = texts(c[`${name} text`]);
  samples.marks = {
    question: marks(c["question marks"]),
    answer: marks(c["answer marks"]),
    found: marks(c["found marks"]),
    context: marks(c["context marks"]),
  };
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

const logitOf = (cell, condition, row, layer) =>
  cell.logits[condition][(row - cell.start) * cell.layers + layer] / 1000;
const layerFor = (cell) => (state.layer === "anchor" ? cell.anchor : Math.min(cell.layers - 1, Number(state.layer)));
// the layer at which a sample is sorted: the anchor's where there is one label a sample
const sortedAt = (cell) => (state.split.startsWith("anchor") ? cell.anchor : layerFor(cell));
// as Python rounds: a half goes to the even number
function middleLayer(layers) {
  const half = (layers - 1) / 2,
    below = Math.floor(half);
  return half === below || below % 2 === 0 ? below : below + 1;
}
function middle(model, set) {
  const cell = cells.find((x) => x.model === model && (set < 0 || x.set === set));
  return cell ? String(middleLayer(cell.layers)) : "anchor";
}

// who is flipped, under the condition and correction in use; looked up once for a cell, not once for a row
function flipsOf(cell) {
  const key = `${state.condition}|${state.correction}`;
  if (cell.flipsBy !== key) {
    const correction = state.correction === "drift" ? "drift" : "none",
      condition = ["control_question", "matched_question", "knockout_context"].includes(state.condition) ? state.condition : "knockout";
    cell.flipsNow =
      cell.flips[`${condition}|${correction}`] ??
      cell.flips[`${condition}|none`] ??
      cell.flips["knockout|none"] ??
      null;
    cell.flipsBy = key;
  }
  return cell.flipsNow;
}
function groupOf(cell, row) {
  const flips = flipsOf(cell),
    i = row - cell.start;
  if (!flips) return "";
  if (state.split === "anchor_half") return bit(flips[2], i) ? "Q" : "A";
  return bit(flips[state.split === "layer_half" ? 1 : 0], i * cell.layers + sortedAt(cell)) ? "Q" : "A";
}
const predictedOf = (cell, row) =>
  cell.layers ? (logitOf(cell, "clean", row, sortedAt(cell)) >= 0 ? "right" : "wrong") : "";
const disputedOf = (row) =>
  samples.second_says[row] === 2 ? false : (samples.second_says[row] === 0) !== (samples.right[row] === 1);
const sampledOf = (row) => samples.sampled_end[row] > (row ? samples.sampled_end[row - 1] : 0);
const wordOf = (name, row) => samples.words[samples[name][row]];

function detectorNumber() {
  const names = about.samples.detectors,
    asked = names.indexOf(state.detector);
  if (asked >= 0) return asked;
  for (const name of ["combined", "everything", "stack", "single_layer"])
    if (names.includes(name)) return names.indexOf(name);
  return names.length ? 0 : -1;
}
// P that the answer is wrong, at a base rate of one half; null without a score
function scoreOf(row, detector = detectorNumber()) {
  if (detector < 0) return null;
  const x = samples.scores[detector][row];
  return x === MISSING ? null : sigmoid(-x / 1000);
}
const verdictOf = (row) => {
  const p = scoreOf(row);
  return p === null ? "" : p > 0.5 ? "flag" : "pass";
};

const COLUMNS = [
  {
    name: "question",
    title: "question",
    value: (row) => samples.questionText(row) || samples.idText(row),
    wide: true,
    text: true,
  },
  { name: "answer", title: "answer", value: (row) => samples.answerText(row), wide: true, text: true },
  { name: "grade", title: "grade", value: (row) => (samples.right[row] ? "right" : "wrong") },
  {
    name: "group",
    title: "group",
    about: "Q if the cut flips the probe's prediction, A if it does not",
    value: (row, cell) => groupOf(cell, row),
  },
  {
    name: "predicted",
    title: "probe says",
    about: "class that the probe predicts on the clean pass",
    value: (row, cell) => predictedOf(cell, row),
  },
  {
    name: "p",
    title: "P right",
    about: "probability that the answer is right, as the probe gives it on the clean pass (%)",
    number: true,
    value: (row, cell) => (cell.layers ? 100 * sigmoid(logitOf(cell, "clean", row, layerFor(cell))) : null),
    digits: 0,
  },
  {
    name: "delta",
    title: "ΔP",
    about: "change, under the cut, of the probability of the predicted class (percentage points)",
    number: true,
    value: (row, cell) => deltaOf(cell, row),
    digits: 0,
  },
  {
    name: "score",
    title: "P wrong",
    about: "probability that the answer is wrong, as the chosen detector gives it at a base rate of one half (%)",
    number: true,
    value: (row) => {
      const p = scoreOf(row);
      return p === null ? null : 100 * p;
    },
    digits: 0,
    when: () => about.samples.detectors.length,
  },
  { name: "set", title: "dataset", value: (row, cell) => setTitle(cell.set) },
  { name: "model", title: "model", value: (row, cell) => about.models[cell.model].name },
  {
    name: "error",
    title: "error",
    about:
      "stock: a wrong answer that five or more samples share. choice: a wrong yes or no, or the wrong one of two. own: any other",
    value: (row) => wordOf("error", row),
  },
  { name: "logprob", title: "log p", number: true, value: (row) => samples.logprob[row], digits: 1 },
  {
    name: "popularity",
    title: "popularity",
    number: true,
    value: (row) => (Number.isNaN(samples.popularity[row]) ? null : samples.popularity[row]),
    digits: 0,
    when: () => samples.popularity.some((x) => !Number.isNaN(x)),
  },
];
function deltaOf(cell, row) {
  const condition = cell.logits[state.condition] ? state.condition : "knockout";
  if (!cell.layers || !cell.logits[condition]) return null;
  const layer = layerFor(cell),
    clean = logitOf(cell, "clean", row, layer);
  return 100 * (clean >= 0 ? 1 : -1) * (sigmoid(logitOf(cell, condition, row, layer)) - sigmoid(clean));
}
