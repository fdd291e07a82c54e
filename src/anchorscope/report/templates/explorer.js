// The samples on the page: only the rows that are seen are in it.

const ROW = 38; // pixels

function drawFilters() {
  const form = byId("filters"),
    any = [["", "any"]];
  const words = (name) =>
    [...new Set(samples[name])]
      .map((i) => samples.words[i])
      .filter(Boolean)
      .sort()
      .map((w) => [w, w]);
  const most = Math.max(...cells.map((cell) => cell.layers));
  const detectors = about.samples.detectors.map((name) => [name, about.detectors.titles[name] ?? name]);
  const search = make("input", {
    id: "search",
    type: "search",
    value: state.search,
    placeholder: cells.some((cell) => cell.text) ? "question, answer, id" : "id",
    autocomplete: "off",
    oninput: (event) => change({ search: event.target.value }),
  });
  form.onsubmit = (event) => event.preventDefault();
  const [first, more] = form.querySelectorAll(".controls");
  first.replaceChildren(
    make("label", { class: "search" }, make("span", {}, "Search"), search),
    select("model", "Model", [...any, ...about.models.map((m, i) => [String(i), m.name])]),
    select("set", "Dataset", [...any, ...about.sets.map((s, i) => [String(i), s.title])]),
    select("group", "Group", [...any, ["Q", "Q-Anchored"], ["A", "A-Anchored"]]),
    select("grade", "Grade", [...any, ["right", "right"], ["wrong", "wrong"]]),
  );
  more.replaceChildren(
    select("predicted", "Probe says", [...any, ["right", "right"], ["wrong", "wrong"]]),
    ...(detectors.length
      ? [
          select("verdict", "Detector says", [...any, ["flag", "flag"], ["pass", "pass"]]),
          select("detector", "Detector", detectors, about.samples.detectors[detectorNumber()]),
        ]
      : []),
    select("error", "Kind of error", [...any, ...words("error")]),
    select("kind", "Kind of question", [...any, ...words("kind")]),
    select("disputed", "Grade disputed", [...any, ["yes", "yes"], ["no", "no"]]),
    ...(samples.sampled_end[samples.rows - 1]
      ? [select("sampled", "Asked several times", [...any, ["yes", "yes"], ["no", "no"]])]
      : []),
    select("layer", "Layer", [
      ["anchor", "best layer"],
      ...Array.from({ length: most }, (_, i) => [String(i), String(i)]),
    ]),
  );
}

function drawCount() {
  byId("count").textContent = `${counted(shown.length)} of ${counted(samples.rows)} samples`;
  const said = [];
  if (state.group || state.predicted)
    said.push(
      `Sorted ${wordsOf(state.split)}${state.split.startsWith("anchor") ? "" : state.layer === "anchor" ? ", at the best layer" : `, at layer ${state.layer}`}${state.correction === "none" ? "" : `, ${wordsOf(state.correction)} subtracted`}.`,
    );
  if (state.split.endsWith("half") && (state.group || state.predicted))
    said.push(
      "With split halves, every draw sorts the answers again. The page shows the group that most draws give, so the count is close to the chart's but not equal to it.",
    );
  if (state.range) {
    const [from, to] = state.range.split(",").map(Number);
    said.push(`P(wrong) is between ${number(100 * from, 0)} and ${number(100 * to, 0)} %.`);
  }
  byId("why").textContent = [why, ...said].filter(Boolean).join(" ");
  const inUse = [...document.querySelectorAll("#filters details select")].filter(
    ({ name }) => state[name] !== DEFAULTS[name],
  ).length;
  document.querySelector("#filters summary").textContent = `More filters${inUse ? ` (${inUse} in use)` : ""}`;
}
let why = "";

let seenColumns = null;
const visible = () => (seenColumns ??= COLUMNS.filter((each) => !each.when || each.when()));
function drawHead() {
  const head = document.querySelector("#rows thead");
  head.replaceChildren(
    make(
      "tr",
      {},
      ...visible().map((each) => {
        const on = state.sort === each.name;
        return make(
          "th",
          {
            scope: "col",
            class: each.number ? "right" : each.wide ? "wide" : "",
            "data-column": each.name,
            "aria-sort": on ? (state.down === "1" ? "descending" : "ascending") : "none",
          },
          make(
            "button",
            {
              type: "button",
              title: each.about ?? "",
              onclick: () =>
                change(
                  on ? (state.down === "1" ? { sort: "", down: "" } : { down: "1" }) : { sort: each.name, down: "" },
                ),
            },
            each.title,
            on ? (state.down === "1" ? " ↓" : " ↑") : "",
          ),
        );
      }),
    ),
  );
}

let drawnFrom = -1;
let scrolled = 0; // pixels, as the box last said
let tall = 0; // pixels, of the box; asked for once, as asking makes the browser lay out the page
function drawRowsShown(force = true, top = null) {
  const box = byId("rows"),
    body = box.querySelector("tbody");
  const count = Math.ceil((tall ||= box.clientHeight || 600) / ROW) + 12,
    from = Math.max(0, Math.min(Math.floor((top ?? scrolled) / ROW) - 6, shown.length - count));
  if (!force && Math.abs(from - drawnFrom) < 4) return;
  drawnFrom = from;
  const to = Math.min(shown.length, from + count),
    columns = visible(),
    now = chosen(),
    rows = [];
  const spacer = (height) => {
    const row = make("tr", { "aria-hidden": "true", class: "spacer" }, make("td", { colSpan: columns.length }));
    row.firstChild.style.height = `${height}px`;
    return row;
  };
  if (from) rows.push(spacer(from * ROW));
  for (let i = from; i < to; i++) {
    const row = shown[i],
      cell = cells[cellOf[row]];
    const tr = make("tr", {
      "data-row": row,
      "aria-rowindex": i + 2,
      class: row === now ? "chosen" : "",
    });
    for (const each of columns) {
      const value = each.value(row, cell);
      const text = each.number ? number(value, each.digits) : String(value);
      const td = make("td", { class: each.number ? "right" : each.wide ? "wide" : "" });
      if (each.name === "question") td.append(make("button", { type: "button", class: "link" }, text));
      else if (each.name === "grade")
        td.append(
          make("span", { class: `grade ${text}` }, text),
          disputedOf(row)
            ? make("small", { class: "disputed", title: "a second rule grades it differently" }, " disputed")
            : "",
        );
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
  if (!changed || CHOOSING.some((name) => changed.has(name))) {
    applyFilters();
    telling = mostTelling();
    top = 0;
    if (changed) byId("slice").replaceChildren();
  } else if (changed.has("sort") || changed.has("down")) {
    state.sort ? sortShown() : applyFilters();
    top = 0;
  }
  if (!changed || ["sort", "down", "tab"].some((name) => changed.has(name))) drawHead();
  drawCount();
  drawRowsShown(true, top);
  if (top === 0 && scrolled) byId("rows").scrollTop = scrolled = 0;
}

// The sample that is shown before one is chosen: of the listed right answers that the probe is sure of, the one whose
// P(right) falls most under the cut; null where there is none.
const SURE = 90; // %
let telling = null;
function mostTelling() {
  const withText = cells.some((cell) => cell.text);
  let best = null,
    least = 0,
    among = 0;
  for (const row of shown) {
    const cell = cells[cellOf[row]];
    if (!samples.right[row] || (withText && !cell.text)) continue;
    if (100 * sigmoid(logitOf(cell, "clean", row, layerFor(cell))) < SURE) continue;
    among++;
    const delta = deltaOf(cell, row);
    if (delta < least) [best, least] = [row, delta];
  }
  return best === null ? null : { row: best, delta: least, among };
}
const chosen = () => (state.row !== "" && Number(state.row) < samples.rows ? Number(state.row) : (telling?.row ?? null));

// --- from a number to its samples
function showSamples({
  model = -1,
  set = -1,
  group = "",
  predicted = "",
  grade = "",
  layer = "anchor",
  condition = "knockout",
  why: reason = "",
  ...more
}) {
  why = reason;
  change({
    tab: "samples",
    ...FILTERS,
    row: "",
    model: model < 0 ? "" : String(model),
    set: set < 0 ? "" : String(set),
    group,
    predicted,
    grade,
    layer: String(layer),
    condition,
    ...more,
  });
  drawFilters();
  byId("main").focus({ preventScroll: true });
  scrollTo(0, 0);
}

function openPoint(spec) {
  const [statistic, condition, split, , correction, group, stratum] = spec.key.split("|");
  const first = condition.split("-")[0],
    by = ["permuted", "clean"].includes(first) ? "knockout" : first;
  const chosen =
    {
      predicted_correct: { predicted: "right" },
      predicted_wrong: { predicted: "wrong" },
      label_correct: { grade: "right" },
      label_wrong: { grade: "wrong" },
    }[stratum] ?? {};
  if (statistic.startsWith("within_")) chosen.sampled = "yes";
  if (stratum.startsWith("kind_")) chosen.kind = stratum.slice(5);
  const asked = split === "none" ? {} : { split };
  const note =
    first === "permuted"
      ? " In the permutation null each answer receives the shift of a different answer, drawn anew each time. The groups shown are those of the cut itself."
      : "";
  if (spec.point !== undefined)
    Object.assign(asked, { site: about.points[spec.point].site, position: about.points[spec.point].position });
  showSamples({
    model: spec.model,
    set: spec.set,
    layer: String(Math.max(0, spec.layer)),
    group: ["Q", "A"].includes(group) ? group : "",
    condition: by,
    ...chosen,
    ...asked,
    ...(split === "none" ? {} : { correction }),
    why: `These are the samples behind one number: ${statistic.replaceAll("_", " ")}, ${wordsOf(condition)}, ${about.models[spec.model].name} on ${setTitle(spec.set)}, layer ${spec.layer} (${counted(spec.n)} in the chart).${note}`,
  });
}

// the samples shown, by model and dataset; numbers with intervals are Python's alone
function drawSlice() {
  const body = make("tbody"),
    rowsOf = new Map();
  for (const row of shown) {
    if (!rowsOf.has(cellOf[row])) rowsOf.set(cellOf[row], []);
    rowsOf.get(cellOf[row]).push(row);
  }
  for (const [c, rows] of rowsOf) {
    const cell = cells[c],
      inGroup = (group) => rows.filter((row) => groupOf(cell, row) === group);
    const mean = (some, value) =>
      number(some.length < about.min_group ? null : some.reduce((sum, row) => sum + value(row), 0) / some.length, 1);
    const shift = (row) => deltaOf(cell, row),
      clean = (row) => 100 * sigmoid(logitOf(cell, "clean", row, layerFor(cell)));
    const numbers = [
      counted(rows.length),
      counted(rows.filter((row) => samples.right[row]).length),
      String(layerFor(cell)),
      mean(rows, clean),
      counted(inGroup("Q").length),
      mean(inGroup("Q"), shift),
      mean(inGroup("A"), shift),
    ].map((text) => make("td", { class: "right" }, text));
    const title = `${about.models[cell.model].name}, ${setTitle(cell.set)}`;
    body.append(make("tr", {}, make("th", { scope: "row" }, title), ...numbers));
  }
  const head = ["n", "right", "layer", "P right (%)", "in Q", "ΔP of Q", "ΔP of A"].map((h) => headOf(h, true));
  byId("slice").replaceChildren(
    tableOf("Counts and means of these samples", [make("td"), ...head], body),
    make(
      "p",
      { class: "caption" },
      `Counts and plain means of the samples shown. They have no intervals, because a slice that is chosen by its looks has no honest one. Fewer than ${about.min_group} samples get no mean.`,
    ),
  );
}
