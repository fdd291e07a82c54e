// One sample, or two side by side.

// a text with some places marked, as elements
function marked(text, places, name, found = []) {
  const edges = new Set([0, text.length]);
  for (const p of [...places, ...found]) if (p <= text.length) edges.add(p);
  const ends = [...edges].sort((a, b) => a - b),
    out = [];
  const inside = (list, a) => {
    for (let i = 0; i + 1 < list.length; i += 2) if (list[i] <= a && a < list[i + 1]) return true;
    return false;
  };
  for (let i = 0; i + 1 < ends.length; i++) {
    const part = text.slice(ends[i], ends[i + 1]);
    const node = inside(places, ends[i]) ? make("mark", { class: name }, part) : document.createTextNode(part);
    out.push(inside(found, ends[i]) ? make("u", { title: "accepted answer that was found here" }, node) : node);
  }
  return out;
}

function curveOf(cell, row) {
  const at = layerFor(cell),
    legend = [],
    said = [],
    lines = [];
  for (const [name, [words, colour, dash]] of Object.entries(about.conditions)) {
    if (!cell.logits[name]) continue;
    const p = (layer) => 100 * sigmoid(logitOf(cell, name, row, layer));
    lines.push({
      name: words,
      colour,
      dash,
      width: name === "clean" || name === "knockout" ? 2 : 1.3,
      points: Array.from({ length: cell.layers }, (_, layer) => ({
        x: layer,
        y: p(layer),
        tip: [words, `${number(p(layer), 0)} %`, `layer ${layer}`],
      })),
    });
    const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.borderColor = colour;
    if (dash !== "-") swatch.classList.add("dashed");
    legend.push(make("span", { class: "entry" }, swatch, words));
    said.push(`${words} ${number(p(at), 0)} %`);
  }
  const panel = {
    title: "P that the answer is right",
    label: "P (%)",
    x: [0, Math.max(1, cell.layers - 1)],
    y: [0, 100],
    level: 50,
    marks: [{ x: at, colour: "var(--ink)" }],
    lines,
  };
  const picture = drawPanel(panel, 380, 190, null);
  picture.classList.add("curve");
  picture.setAttribute("aria-label", `P that the answer is right by layer; at layer ${at}: ${said.join(", ")}.`);
  return [
    make("p", { class: "small-title" }, "P that the answer is right, by layer (%)"),
    picture,
    make("div", { class: "entries" }, ...legend),
  ];
}

function card(row) {
  const cell = cells[cellOf[row]],
    right = samples.right[row] === 1,
    layer = layerFor(cell);
  const question = samples.questionText(row),
    answer = samples.answerText(row),
    start = row ? samples.sampled_end[row - 1] : 0,
    end = samples.sampled_end[row];
  const pinned = pins().includes(row);
  const facts = [
    ["model, dataset", `${about.models[cell.model].name}, ${setTitle(cell.set)}`],
    ["id", samples.idText(row)],
    [
      "graded",
      `${right ? "right" : "wrong"}, by ${wordOf("by", row) || "no rule"}${samples.aliasText(row) ? ` (found “${samples.aliasText(row)}”)` : ""}`,
    ],
    ["second rule", `${wordOf("second", row)}: ${["right", "wrong", "cannot tell"][samples.second_says[row]]}`],
    ["group", `${groupOf(cell, row)}-Anchored, sorted ${wordsOf(state.split)}`],
    [
      "probe says",
      `${predictedOf(cell, row)} (${number(100 * sigmoid(logitOf(cell, "clean", row, layer)), 0)} % right at layer ${layer})`,
    ],
    ["log-probability", `${number(samples.logprob[row], 2)} over ${samples.tokens[row]} tokens`],
    ["tokens cut", String(samples.cut[row])],
    ["kind", wordOf("kind", row) + (wordOf("error", row) ? ` (error: ${wordOf("error", row)})` : "")],
    ...(wordOf("relation", row) ? [["asked for", wordOf("relation", row)]] : []),
    ...(Number.isNaN(samples.popularity[row]) ? [] : [["popularity", counted(Math.round(samples.popularity[row]))]]),
    ["sampling rate", `${number(100 * samples.probability[row], 0)} % of the answers with this grade were traced`],
  ];
  const others = sameQuestion(row);
  return make(
    "article",
    { class: "card" },
    make(
      "p",
      { class: "bar" },
      make(
        "button",
        { type: "button", "data-action": "pin", "aria-pressed": String(pinned), onclick: () => pin(row) },
        pinned ? "Unpin" : "Pin to compare",
      ),
      disputedOf(row) ? make("span", { class: "disputed" }, "disputed: a second rule grades it differently") : "",
    ),
    cell.text
      ? make(
          "div",
          { class: "words" },
          samples.contextText(row)
            ? make("p", { class: "context" }, ...marked(samples.contextText(row), samples.marks.context(row), "exact"))
            : "",
          make("p", { class: "q" }, ...marked(question, samples.marks.question(row), "exact")),
          make(
            "p",
            { class: `a is-${right ? "right" : "wrong"}` },
            ...marked(answer, samples.marks.answer(row), "entity", samples.marks.found(row)),
          ),
          make(
            "p",
            { class: "accepted" },
            make("small", {}, "accepted: "),
            samples.acceptedText(row).split("\x1f").join(" · "),
          ),
          make(
            "p",
            { class: "key" },
            make("mark", { class: "exact" }, "exact question tokens"),
            " ",
            make("mark", { class: "entity" }, "exact answer tokens"),
          ),
        )
      : make("p", { class: "notice" }, "This file leaves out the texts of this dataset (--text)."),
    ...(cell.layers ? curveOf(cell, row) : []),
    make("dl", {}, ...facts.flatMap(([k, v]) => [make("dt", {}, k), make("dd", {}, v)])),
    about.samples.detectors.length
      ? make(
          "details",
          {},
          make("summary", {}, `Detectors: P(wrong) at a base rate of one half (${about.samples.detectors.length})`),
          make(
            "dl",
            {},
            ...about.samples.detectors.flatMap((name, d) => {
              const p = scoreOf(row, d);
              return p === null
                ? []
                : [make("dt", {}, about.detectors.titles[name] ?? name), make("dd", {}, `${number(100 * p, 0)} %`)];
            }),
          ),
        )
      : "",
    end > start
      ? make(
          "details",
          { open: true },
          make("summary", {}, `Sampled answers (${end - start} distinct)`),
          make(
            "ul",
            { class: "sampled" },
            ...Array.from({ length: end - start }, (_, i) => start + i).map((i) =>
              make(
                "li",
                { class: samples.sampled_right[i] ? "is-right" : "is-wrong" },
                samples.sampledText(i) || "(left out)",
                make(
                  "small",
                  {},
                  ` ${samples.sampled_right[i] ? "right" : "wrong"}, ${samples.sampled_times[i]} ×, log p ${number(samples.sampled_logprob[i], 1)}`,
                ),
              ),
            ),
          ),
        )
      : "",
    others.length
      ? make(
          "p",
          {},
          make("small", {}, "Other models on the same question: "),
          ...others.map((other) =>
            make(
              "button",
              { type: "button", onclick: () => change({ row: other }) },
              `${about.models[cells[cellOf[other]].model].name} (${samples.right[other] ? "right" : "wrong"})`,
            ),
          ),
        )
      : "",
  );
}

let questions = null; // samples by set and id
function sameQuestion(row) {
  if (!questions) {
    questions = new Map();
    for (let r = 0; r < samples.rows; r++) {
      const key = `${cells[cellOf[r]].set}/${samples.idText(r)}`;
      questions.has(key) ? questions.get(key).push(r) : questions.set(key, [r]);
    }
  }
  return questions.get(`${cells[cellOf[row]].set}/${samples.idText(row)}`).filter((other) => other !== row);
}

// --- pins: rows of this file, two at the most
const pins = () =>
  state.pins
    ? state.pins
        .split(",")
        .map(Number)
        .filter((row) => row < samples.rows)
    : [];
function pin(row) {
  const now = pins();
  change({ pins: (now.includes(row) ? now.filter((x) => x !== row) : [...now, row].slice(-2)).join(",") });
}

function drawDetail() {
  const place = byId("detail"),
    two = pins();
  byId("pins").replaceChildren(
    ...(two.length
      ? [`${two.length} pinned `, make("button", { type: "button", onclick: () => change({ pins: "" }) }, "Unpin all")]
      : []),
  );
  const now = state.row === "" && two.length ? null : chosen();
  const rows =
    two.length === 2
      ? two
      : two.length === 1 && now !== null && now !== two[0]
        ? [two[0], now]
        : now !== null
          ? [now]
          : two;
  place.classList.toggle("pair", rows.length === 2);
  document.querySelector("#tab-samples .two").classList.toggle("wide", rows.length === 2);
  place.replaceChildren(
    ...(rows.length
      ? [ruleOf(rows), ...rows.map(card)]
      : [make("p", { class: "notice" }, "Choose a sample to see its question, answer, grade and read-outs.")]),
  );
}

// why this sample is shown, where nobody chose it
function ruleOf(rows) {
  if (state.row !== "" || rows.length > 1 || rows[0] !== telling?.row) return "";
  const { row, delta, among } = telling,
    cell = cells[cellOf[row]],
    clean = 100 * sigmoid(logitOf(cell, "clean", row, layerFor(cell))),
    cut = cell.logits[state.condition] ? about.conditions[state.condition][0] : about.conditions.knockout[0],
    text = cells.every((each) => each.text) ? "" : " (and have their text in this file)";
  return make(
    "p",
    { class: "caption", id: "rule" },
    make("b", {}, `P that the answer is right falls from ${number(clean, 0)} to ${number(clean + delta, 0)} % (${cut}).`),
    ` This is the largest fall among the ${counted(among)} listed answers that are graded right and get at least ${SURE} % at ${state.layer === "anchor" ? "the best layer" : `layer ${state.layer}`}${text}. So it is an extreme case, not a typical one.`,
  );
}

function step(by) {
  if (!shown.length) return;
  const at = shown.indexOf(chosen() ?? -1),
    next = Math.max(0, Math.min(shown.length - 1, at + by));
  change({ row: shown[next] });
  const box = byId("rows"),
    top = next * ROW;
  if (top < scrolled || top > scrolled + box.clientHeight - 3 * ROW)
    box.scrollTop = Math.max(0, top - box.clientHeight / 2);
}
