// The first screen: what is chosen, the chart with its null beside it, and its lines as numbers.

function overviewRows() {
  const anchor = (condition) => {
    if (!state.split.startsWith("anchor")) return "none";
    return condition.includes("permuted") ? "half" : "best";
  };
  const row = (condition, title, correction = state.correction) => ({
    title,
    label: "ΔP (points)",
    least: 10,
    level: 0,
    curves: ["Q", "A"].map((kind) => ({
      kind,
      style: kind === "Q" ? "-" : "--",
      band: true,
      key: ["delta_p", condition, state.split, anchor(condition), correction, kind, state.stratum].join("|"),
    })),
  });
  const rows = [row("knockout", "The cut: exact question tokens")];
  if (state.beside !== "nothing") {
    const uncorrected = state.beside.includes("permuted") ? "none" : state.correction;
    rows.push(row(state.beside, `Beside it: ${wordsOf(state.beside)}`, uncorrected));
  }
  return rows;
}

const CAPTIONS = {
  layer:
    "As published, answers are sorted at each layer by the same flip that is measured there, so part of the gap holds by definition.",
  anchor:
    "Every answer has one label, which says whether it flips at the layer where the probe ranks best. The same probes sort and measure.",
  layer_half: "One half of the probes sorts at each layer and the other half measures, so no gap holds by definition.",
  anchor_half: "One half of the probes sorts at its best layer and the other half measures, so no gap holds by definition.",
};

function drawControls() {
  const has = (name, value) =>
    about.curves.keys.some(
      (key) => key.split("|")[{ split: 2, correction: 4, stratum: 6 }[name]] === value && key.startsWith("delta_p"),
    );
  const options = (name, values) => values.filter((value) => has(name, value)).map((value) => [value, wordsOf(value)]);
  const unique = (values) => [...new Set(values)];
  byId("controls").replaceChildren(
    select(
      "site",
      "Site",
      unique(about.points.map((p) => p.site)).map((s) => [s, s]),
    ),
    select(
      "position",
      "Position",
      unique(about.points.map((p) => p.position)).map((p) => [p, p]),
    ),
    select("split", "Sorted into Q and A", options("split", ["layer", "anchor", "layer_half", "anchor_half"])),
    select("correction", "Subtracted", options("correction", ["none", "drift"])),
    select(
      "stratum",
      "Among",
      options("stratum", ["all", "predicted_correct", "predicted_wrong", "label_correct", "label_wrong"]),
    ),
    select(
      "beside",
      "Beside it",
      [
        "permuted",
        "knockout-permuted",
        "control_question",
        "matched_question",
        "matched_question-control_question",
        ...["knockout_context", "permuted_context", "knockout_both"].filter((v) =>
          about.curves.keys.some((key) => key.startsWith(`delta_p|${v}|`)),
        ),
        "nothing",
      ].map((v) => [v, wordsOf(v)]),
    ),
    select("bands", "95 % intervals", [
      ["1", "shown"],
      ["0", "hidden"],
    ]),
  );
}

function drawChips() {
  const off = hidden();
  const toggle = (name) => {
    off.has(name) ? off.delete(name) : off.add(name);
    change({ hide: [...off].join(",") });
  };
  const chip = (name, label, swatches) =>
    make(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-pressed": String(!off.has(name)),
        "data-chip": name,
        onclick: () => toggle(name),
      },
      ...swatches,
      label,
    );
  const line = (colour, dash) => {
    const swatch = make("span", { class: `swatch ${dash}`, "aria-hidden": "true" });
    swatch.style.borderColor = seen(colour);
    return swatch;
  };
  byId("chips").replaceChildren(
    chip("Q", "Q-Anchored: the cut flips the prediction", [line("#66707f", "solid")]),
    chip("A", "A-Anchored: it does not", [line("#66707f", "dashed")]),
    ...about.sets.map((set) => chip(set.name, set.title, [line(set.q, "solid"), line(set.a, "dashed")])),
  );
}

function drawOverview() {
  drawChips();
  const rows = overviewRows();
  drawRows(byId("chart"), rows, {
    height: state.beside === "nothing" ? 380 : 250,
    oneScale: !state.beside.includes("-"),
    alt: altOf(rows),
  });
  byId("caption").textContent =
    `ΔP is the change, in percentage points, of the probability that the probe gives to the class it predicts on the clean pass, when attention to the question's exact tokens is cut. ${CAPTIONS[state.split]} Probes read the ${about.points[pointNumber()].words}. ${behind()} Bands are 95 % intervals. Groups of fewer than ${about.min_group} answers have no line.`;
  drawNumbers(rows);
}

// how many answers stand behind the page, and how many of them are right
function behind() {
  const right = samples.right.reduce((total, each) => total + each, 0);
  return `The page rests on ${counted(samples.rows)} answers, ${counted(right)} of them right.`;
}

function altOf(rows) {
  const point = pointNumber(),
    said = [];
  about.models.forEach((model, m) =>
    rows[0].curves.forEach((curve) => {
      const lows = about.sets
        .map((_, s) => lineOf(point, m, s, curve.key))
        .filter((l) => l.length)
        .map((l) => Math.min(...l.map((p) => p.value)));
      if (lows.length)
        said.push(
          `${model.name}, ${curve.kind}-Anchored: lowest values ${number(Math.min(...lows), 0)} to ${number(Math.max(...lows), 0)}`,
        );
    }),
  );
  return `Line chart of ΔP by layer. ${said.join(". ")}. The numbers are in the table below the chart.`;
}

function drawNumbers(rows) {
  const point = pointNumber(),
    body = make("tbody");
  for (const row of rows)
    for (const curve of row.curves)
      about.models.forEach((model, m) =>
        about.sets.forEach((set, s) => {
          const line = lineOf(point, m, s, curve.key);
          if (!line.length) return;
          const lowest = line.reduce((a, b) => (b.value < a.value ? b : a));
          const cell = (p) =>
            make(
              "td",
              {},
              make(
                "button",
                {
                  type: "button",
                  class: "number",
                  onclick: () => openPoint({ point, model: m, set: s, key: curve.key, layer: p.layer, n: p.n }),
                },
                `${number(p.value, 1)}${interval(p.low, p.high, 1)}`,
              ),
              make("small", {}, ` layer ${p.layer}, n ${counted(p.n)}`),
            );
          body.append(
            make(
              "tr",
              {},
              make("th", { scope: "row" }, `${model.name}, ${set.title}`),
              make("td", {}, curve.kind),
              make("td", {}, wordsOf(curve.key.split("|")[1])),
              cell(line[0]),
              cell(lowest),
              cell(line[line.length - 1]),
            ),
          );
        }),
      );
  const head = make(
    "tr",
    {},
    ...["model, dataset", "group", "what is cut", "first", "lowest", "last"].map((h) => make("th", { scope: "col" }, h)),
  );
  document.querySelector("#numbers .scroll").replaceChildren(make("table", {}, make("thead", {}, head), body));
}
