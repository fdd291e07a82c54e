// Detectors: dots with intervals, the table of all numbers, risk against coverage, and calibration.

const MEASURE_WORDS = {
  auroc: "AUROC",
  w: "W: share of pairs of one question ranked correctly",
  w_minus_logprob: "W minus that of the best form of log-probability or length",
  w_added: "W added to that of log-probabilities and length",
  beyond_baselines: "AUROC beyond the best simple detector",
  beyond_question: "AUROC beyond the question",
  fpr_at_95_tpr: "false alarms when 95 % of wrong answers are found",
  "errors_at_80_base_0.1": "share of wrong answers among the 80 % that pass, if 10 % of all are wrong",
  "errors_at_80_base_0.3": "share of wrong answers among the 80 % that pass, if 30 % of all are wrong",
  "errors_at_80_base_0.5": "share of wrong answers among the 80 % that pass, if 50 % of all are wrong",
  ece: "calibration error",
  auroc_within_relation: "AUROC within a relation",
};

// how the dots of a measure are drawn; `other` is what a difference is taken from
const AXES = {
  auroc: {
    below: "AUROC",
    level: 0.5,
    word: "chance (0.5)",
    about:
      "AUROC is the share of pairs of a right and a wrong answer in which the detector calls the wrong one more suspect, so guessing gets 0.5.",
  },
  w_minus_logprob: {
    below: "W minus that of log-probability",
    level: 0,
    word: "no difference",
    other: "log-probability",
    among: "Among answers to one question",
    about:
      "W is the same share among answers to one question. The second picture compares it with that of the best form of log-probability or length, and leaves out detectors that are such forms themselves.",
  },
  beyond_question: {
    below: "AUROC minus that of the question alone",
    level: 0,
    word: "no difference",
    other: "the question alone",
    among: "Among all answers",
    about: "The second picture compares AUROC with that of the best detector that sees the question and not the answer.",
  },
};

function drawDetectors() {
  const place = byId("tab-detectors"),
    d = about.detectors;
  if (!d.rows.length) {
    place.replaceChildren(
      make("h2", {}, "Detectors"),
      make("p", { class: "notice" }, "This run has no comparison of detectors, or one by version 0.2.0. The command `anchorscope detect eval RUN` compares them."),
    );
    return;
  }
  const names = [...new Set(d.rows.map((r) => r[3]))],
    chosen = d.measures.includes(state.measured) ? state.measured : "auroc";
  const cellsOf = [
    ...new Map(
      d.rows.filter((r) => r[4] === d.measures.indexOf(chosen)).map((r) => [`${r[0]}|${r[1]}|${r[2]}`, r]),
    ).values(),
  ];
  const found = new Map(d.rows.map((r) => [`${r[0]}|${r[1]}|${r[2]}|${r[3]}|${r[4]}`, r]));
  const body = make("tbody");
  for (const name of names)
    body.append(
      make(
        "tr",
        {},
        make(
          "th",
          { scope: "row" },
          make(
            "button",
            {
              type: "button",
              class: "link",
              "aria-pressed": String(about.samples.detectors[detectorNumber()] === name),
              onclick: () => change({ detector: name }),
            },
            titleOf(name),
          ),
        ),
        ...cellsOf.map((cell) => {
          const r = found.get(`${cell[0]}|${cell[1]}|${cell[2]}|${name}|${d.measures.indexOf(chosen)}`);
          if (!r || r[5] === null) return make("td", {}, "–");
          const star = r[8] !== null && r[8] < 0.05 ? "*" : "";
          return make(
            "td",
            { class: "right" },
            make("button", { type: "button", class: "number", onclick: () => openScored(r) }, number(r[5], 3) + star),
            make("small", {}, interval(r[6], r[7], 3)),
          );
        }),
      ),
    );
  place.replaceChildren(
    make("h2", {}, "Detectors: is this answer wrong?"),
    make("div", { class: "entries" }, ...sidesShown(names)),
    make("div", { class: "chart", id: "chart-detectors" }),
    make("p", { class: "caption", id: "caption-detectors" }),
    make("h2", {}, "Every measure, model and dataset"),
    make(
      "form",
      { class: "controls" },
      select(
        "measured",
        "Measure",
        d.measures.filter((m, i) => d.rows.some((r) => r[4] === i)).map((m) => [m, MEASURE_WORDS[m] ?? m]),
        chosen,
      ),
    ),
    tableOf("Detectors", [headOf("detector"), ...cellsOf.map((r) => headOf(whereOf(r), true))], body),
    make(
      "p",
      { class: "caption" },
      "All scores are out of fold, and every choice was made inside the training folds. The 95 % intervals are widened for the variance of training. A star marks a difference beyond chance after Holm's correction (p < 0.05). Beyond the question means minus the best detector that saw no answer. Click a number to see its samples, or a detector to see its curves below.",
    ),
    make("h2", {}, `Risk against coverage, and calibration: ${titleOf(about.samples.detectors[detectorNumber()] ?? "")}`),
    make(
      "form",
      { class: "controls" },
      select("model", "Model", [["", "all"], ...about.models.map((m, i) => [String(i), m.name])]),
    ),
    make("div", { class: "chart", id: "chart-risk" }),
    make(
      "p",
      { class: "caption" },
      "Left: the share of wrong answers among those kept when the most suspect answers are set aside first. It is weighted to all answers, so at 100 % it is the model's own error rate. Right: the share of answers that are wrong, by the P(wrong) that the detector gives, where right and wrong answers weigh the same. A calibrated detector lies on the diagonal. Click a point to see its samples.",
    ),
  );
  drawDetectorDots();
  drawRisk();
}

const titleOf = (name) => about.detectors.titles[name] ?? name;
const whereOf = (r) =>
  r[2] === about.detectors.mean
    ? `mean, ${r[1] === "all" ? "all models" : r[1]}`
    : `${r[1]}, ${about.sets.find((s) => s.name === r[2])?.title ?? r[2]}`;

// from a number of the table, or its dot, to the samples behind it
function openScored([run, model, set, detector]) {
  showSamples({
    model: about.models.findIndex((m) => m.run === run && (m.name === model || m.name.startsWith(`${model} (`))),
    set: about.sets.findIndex((s) => s.name === set),
    detector,
    sort: "score",
    down: "1",
    why: `Samples ordered by the score of ${titleOf(detector)}, the most suspect first.`,
  });
}

// the legend: what a detector looks at
function sidesShown(names) {
  const { sides, looks } = about.detectors,
    there = new Set(names.map((name) => sides[name]));
  return Object.entries(looks)
    .filter(([side]) => there.has(side))
    .map(([, [words, colour]]) => {
      const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.borderColor = seen(colour);
      return make("span", { class: "entry" }, swatch, `uses ${words}`);
    });
}

// A panel of dots for each measure of a run: for each detector the mean over its pairs of a model and a dataset, or
// the numbers of its only pair, the highest first.
function drawDetectorDots() {
  const d = about.detectors,
    most = Math.max(...about.runs.map((_, run) => pairsOf(run).length));
  const figure = about.runs.map((each, run) => ({
    title: about.runs.length > 1 ? each.name : "",
    panels: ["auroc", d.gains[run]].filter(Boolean).map((measure) => dotsOf(run, measure)).filter((panel) => panel.rows.length),
  }));
  drawFigure(
    byId("chart-detectors"),
    figure.filter((row) => row.panels.length),
    { columns: 2, alt: "Detectors, the highest first", open: openScored },
  );
  const gain = AXES[Object.values(d.gains)[0]],
    large =
      most > 1
        ? "A large dot is the mean over all pairs of a model and a dataset, its bar the 95 % interval, and a small dot one pair."
        : "A bar is a 95 % interval.";
  byId("caption-detectors").textContent =
    `Each row is a detector, the highest first. ${large} ${AXES.auroc.about} ${gain.about} A detector counts as ahead (right of zero) or behind (left) if p < 0.05 after Holm's correction. Click a dot to see its samples.`;
}

const pairsOf = (run) => {
  const of = about.detectors.rows.filter((r) => r[0] === run && r[2] !== about.detectors.mean);
  return [...new Set(of.map((r) => `${r[1]}|${r[2]}`))];
};

function dotsOf(run, measure) {
  const d = about.detectors,
    pairs = pairsOf(run).length,
    of = d.rows.filter((r) => r[0] === run && r[4] === d.measures.indexOf(measure) && r[5] !== null);
  const single = of.filter((r) => r[2] !== d.mean),
    large = pairs > 1 ? of.filter((r) => r[1] === "all" && r[2] === d.mean) : single;
  const point = (r, where) => ({
    x: r[5],
    low: r[6],
    high: r[7],
    data: r,
    tip: [titleOf(r[3]), `${number(r[5], 3)}${interval(r[6], r[7], 3)}`, `${where}, click to see the samples`],
  });
  const rows = large
    .sort((a, b) => b[5] - a[5])
    .map((r) => ({
      name: titleOf(r[3]),
      colour: seen(d.looks[d.sides[r[3]]]?.[1] ?? "#949494"),
      said: number(r[5], 3),
      points: [
        point(r, whereOf(r)),
        ...(pairs > 1 ? single.filter((each) => each[3] === r[3]).map((each) => point(each, whereOf(each))) : []),
      ],
    }));
  const axis = AXES[measure],
    beyond = (sign) => large.filter((r) => r[8] !== null && r[8] < 0.05 && sign * r[5] > 0).length;
  const title = axis.other
    ? `${axis.among}, ${beyond(1)} of ${rows.length} are ahead of ${axis.other} and ${beyond(-1)} behind`
    : "How well detectors tell wrong answers from right ones";
  const ends = axis.other ? ["← behind", `ahead of ${axis.other} →`] : null;
  return { ...axis, title, ends, rows };
}

function drawRisk() {
  const detector = detectorNumber(),
    risk = [],
    said = [];
  cells.forEach((cell) => {
    if (state.model !== "" && String(cell.model) !== state.model) return;
    const curves = cell.curves[about.samples.detectors[detector]];
    if (!curves) return;
    const look = {
      colour: seen(about.sets[cell.set].q),
      dash: cell.model % 2 ? "--" : "-",
      name: `${about.models[cell.model].name}, ${setTitle(cell.set)}`,
    };
    const kept = (x, y) => [`${number(x, 0)} % kept, ${number(y, 1)} % of them wrong`, "click to see the answers kept"];
    const calibrated = (x, y, size) => [
      `predicted ${number(x, 0)} % wrong, actually ${number(y, 0)} % wrong`,
      `${counted(size)} answers, click to see them`,
    ];
    risk.push({ ...look, points: pointsOf(cell, curves[0], (...at) => [look.name, ...kept(...at)]) });
    said.push({
      ...look,
      width: 1.5,
      sign: about.sets[cell.set].sign,
      open: cell.model % 2 === 1,
      points: pointsOf(cell, curves[1], (...at) => [look.name, ...calibrated(...at)]),
    });
  });
  const most = Math.max(...risk.flatMap((line) => line.points.map((p) => p.y)), 1);
  const open = ({ cell, range }) =>
    showSamples({ model: cell.model, set: cell.set, range: range.join(","), sort: "score", down: "1" });
  drawFigure(
    byId("chart-risk"),
    [
      {
        title: "",
        panels: [
          {
            title: "Risk against coverage",
            label: "wrong among those kept (%)",
            below: "kept (% of answers)",
            x: [0, 100],
            y: [0, Math.min(100, most * 1.05)],
            lines: risk,
          },
          {
            title: "Calibration",
            label: "wrong (%)",
            below: "P wrong (%)",
            x: [0, 100],
            y: [0, 100],
            diagonal: true,
            lines: said,
          },
        ],
      },
    ],
    { columns: 2, height: 320, alt: "Risk against coverage, and calibration, of the chosen detector", open },
  );
}

// a curve of report/page/detector_curves.py
function pointsOf(cell, numbered, tip) {
  const flat = column(numbered),
    count = flat.length / 5;
  return Array.from({ length: count }, (_, i) => {
    const [x, y, first, last, size] = [0, 1, 2, 3, 4].map((k) => flat[k * count + i]);
    return {
      x: x / 100,
      y: y / 100,
      low: null,
      high: null,
      data: { cell, range: [sigmoid(-first / 1000), sigmoid(-last / 1000)] },
      tip: tip(x / 100, y / 100, size),
    };
  });
}
