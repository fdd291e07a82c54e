// Charts: the values of report/charts.py, drawn by pen.js; every point opens the samples behind it.

const WORDS = {
  layer: "at each layer (published)",
  anchor: "once, at the best layer",
  layer_half: "split halves, at each layer",
  anchor_half: "split halves, at the best layer",
  none: "none",
  drift: "mean shift",
  all: "all answers",
  predicted_correct: "predicted right",
  predicted_wrong: "predicted wrong",
  label_correct: "right answers",
  label_wrong: "wrong answers",
  permuted: "permutation null",
  control_question: "as many other question tokens",
  "knockout-permuted": "the cut minus the null",
  matched_question: "as many exact tokens",
  "matched_question-control_question": "exact minus other tokens",
  knockout: "exact question tokens",
  knockout_context: "the passage",
  permuted_context: "permutation null of the passage's cut",
  knockout_both: "the passage and exact question tokens",
  nothing: "nothing",
};
const wordsOf = (name) => WORDS[name] ?? name.replaceAll("_", " ");
const setTitle = (s) => about.sets[s].title;

let curves = null; // by "point/model/set/key": where its numbers are
function readCurves() {
  const c = about.curves;
  const [point, model, set, key, first, start] = [c.point, c.model, c.set, c.key, c.first, c.start].map(column);
  const [value, low, high, n] = c.numbers.map(column);
  curves = new Map();
  for (let i = 0; i < point.length; i++) {
    curves.set(`${point[i]}/${model[i]}/${set[i]}/${c.keys[key[i]]}`, {
      first: first[i],
      from: start[i],
      to: start[i + 1],
      scale: c.scales[key[i]],
    });
  }
  curves.columns = { value, low, high, n };
}

// the numbers of a line: [{layer, value, low, high, n}], without those that are missing
function lineOf(point, model, set, key) {
  const found = curves.get(`${point}/${model}/${set}/${key}`);
  if (!found) return [];
  const { value, low, high, n } = curves.columns,
    line = [];
  const scaled = (x) => (x === MISSING ? null : x / found.scale);
  for (let i = found.from; i < found.to; i++) {
    if (value[i] !== MISSING)
      line.push({
        layer: found.first + i - found.from,
        value: scaled(value[i]),
        low: scaled(low[i]),
        high: scaled(high[i]),
        n: n[i],
      });
  }
  return line;
}

const dark = () =>
  document.documentElement.dataset.theme === "dark" ||
  (document.documentElement.dataset.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
// on a dark page the darkest published colours are lifted so that lines are seen
function seen(colour) {
  if (!dark()) return colour;
  const rgb = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  const light = (0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]) / 255;
  const lift = light < 0.4 ? 0.4 : 0;
  return `rgb(${rgb.map((x) => Math.round(x + (255 - x) * lift)).join(",")})`;
}
const hidden = () => new Set(state.hide ? state.hide.split(",") : []);

// one row of panels for each of `rows`, a panel for each model that has lines
function drawRows(place, rows, options = {}) {
  const point = pointNumber(),
    off = hidden();
  const has = (row, m) => row.curves.some((c) => about.sets.some((_, s) => lineOf(point, m, s, c.key).length));
  const models = about.models.map((_, i) => i).filter((m) => rows.some((row) => has(row, m)));
  if (!models.length) {
    place.replaceChildren(
      make("p", { class: "notice" }, options.empty ?? "Nothing was measured for this choice, or the groups are too small."),
    );
    return;
  }
  const ranges = rows.map((row) => rangeOf(row, models, point, off));
  if (options.oneScale) ranges.fill([Math.min(...ranges.map((r) => r[0])), Math.max(...ranges.map((r) => r[1]))]);
  const letter = (r) => (options.letters && rows.length > 1 ? `(${"abcdefgh"[r]}) ` : "");
  const figure = rows.map((row, r) => ({
    title: letter(r) + row.title,
    missing: models.some((m) => has(row, m))
      ? ""
      : `Nothing to draw here. This was not measured in this run, or the groups have fewer than ${about.min_group} answers.`,
    panels: models.map((m) => ({
      title: about.models[m].name,
      label: row.label,
      level: row.level,
      x: [0, Math.max(1, layersOf(m) - 1)],
      y: ranges[r],
      marks: marksOf(row, m, point, off),
      lines: row.curves.flatMap((curve) => linesOf(row, curve, m, point, off)),
    })),
  }));
  drawFigure(place, figure, {
    columns: models.length,
    height: options.height ?? 250,
    alt: options.alt ?? "",
    open: openPoint,
  });
}

// places on the x axis, such as the mean anchor layer of each set
function marksOf(row, m, point, off) {
  if (!row.ticks) return [];
  return about.sets.flatMap((set, s) =>
    off.has(set.name) ? [] : lineOf(point, m, s, row.ticks).map((p) => ({ x: p.value, colour: seen(set.q) })),
  );
}

function linesOf(row, curve, m, point, off) {
  const digits = row.least >= 1 ? 1 : 3,
    found = [];
  about.sets.forEach((set, s) => {
    const line = off.has(set.name) || off.has(curve.kind) ? [] : lineOf(point, m, s, curve.key);
    if (!line.length) return;
    const name = `${set.title}${{ C: ", C-Anchored", Q: ", Q-Anchored", A: ", A-Anchored" }[curve.kind] ?? ""}`;
    found.push({
      name,
      colour: seen({ A: set.a, C: set.c }[curve.kind] ?? set.q),
      dash: curve.style,
      width: curve.style === ":" ? 1.6 : 2,
      sign: set.sign,
      open: curve.style !== "-",
      gaps: true,
      band: state.bands === "1" && curve.band !== false,
      points: line.map((p) => ({
        x: p.layer,
        y: p.value,
        low: p.low,
        high: p.high,
        data: { point, model: m, set: s, key: curve.key, layer: p.layer, n: p.n },
        tip: [
          `${name}, layer ${p.layer}`,
          `${number(p.value, digits)}${interval(p.low, p.high, digits)}`,
          `${wordsOf(curve.key.split("|")[1])}, ${counted(p.n)} samples, click to see them`,
        ],
      })),
    });
  });
  return found;
}

// from the lowest to the highest end of what is drawn, at least as wide as the row asks for
function rangeOf(row, models, point, off) {
  let low = row.level,
    high = row.level;
  for (const m of models)
    for (const curve of row.curves)
      about.sets.forEach((set, s) => {
        if (off.has(set.name) || off.has(curve.kind)) return;
        for (const p of lineOf(point, m, s, curve.key)) {
          const ends = state.bands === "1" && curve.band !== false && p.low !== null ? [p.low, p.high] : [p.value];
          low = Math.min(low, p.value, ...ends);
          high = Math.max(high, p.value, ...ends);
        }
      });
  const lacking = Math.max(0, row.least - (high - low)) / 2,
    margin = 0.04 * Math.max(row.least, high - low);
  return [low - lacking - margin, high + lacking + margin];
}
const layersOf = (m) =>
  Math.max(
    0,
    ...about.samples.cells.filter((cell) => cell.model === m).flatMap((cell) => cell.points.map((p) => p?.layers ?? 0)),
  );

// --- other charts: each value says its title and its tab
function drawTab(tab) {
  const place = byId(`tab-${tab}`);
  const charts = about.charts.filter((chart) => chart.tab === tab);
  if (!place.childElementCount) {
    for (const chart of charts)
      place.append(
        make("h2", {}, chart.title),
        make("div", { class: "chart", id: `chart-${chart.name}` }),
        make("p", { class: "caption", id: `caption-${chart.name}` }),
      );
  }
  for (const chart of charts) {
    byId(`caption-${chart.name}`).textContent = captionOf(chart);
    drawRows(byId(`chart-${chart.name}`), chart.rows, {
      height: 215,
      letters: true,
      empty:
        "Nothing to draw. The study does not have this experiment (add `evidence: {}` to it), or there are too few samples or questions.",
      alt: chart.caption,
    });
  }
}
// the words of the chart, and of those of its rows that have lines
function captionOf(chart) {
  const point = pointNumber();
  const drawn = (row) =>
    row.curves.some((c) => about.models.some((_, m) => about.sets.some((_, s) => lineOf(point, m, s, c.key).length)));
  const rows = chart.rows.map((row, r) => (row.caption && drawn(row) ? `(${"abcdefgh"[r]}) ${row.caption}` : ""));
  return [chart.caption, ...rows].filter(Boolean).join(" ");
}
