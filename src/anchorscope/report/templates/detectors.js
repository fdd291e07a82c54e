// Detectors: the table with its intervals, risk against coverage, and calibration.

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
  const label = (r) =>
    r[2] === d.mean
      ? `mean, ${r[1] === "all" ? "all models" : r[1]}`
      : `${r[1]}, ${about.sets.find((s) => s.name === r[2])?.title ?? r[2]}`;
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
            d.titles[name] ?? name,
          ),
        ),
        ...cellsOf.map((cell) => {
          const r = found.get(`${cell[0]}|${cell[1]}|${cell[2]}|${name}|${d.measures.indexOf(chosen)}`);
          if (!r || r[5] === null) return make("td", {}, "–");
          const star = r[8] !== null && r[8] < 0.05 ? "*" : "";
          const model = about.models.findIndex(
              (m) => m.run === r[0] && (m.name === r[1] || m.name.startsWith(`${r[1]} (`)),
            ),
            set = about.sets.findIndex((s) => s.name === r[2]);
          return make(
            "td",
            { class: "right" },
            make(
              "button",
              {
                type: "button",
                class: "number",
                onclick: () =>
                  showSamples({
                    model,
                    set,
                    detector: name,
                    sort: "score",
                    down: "1",
                    why: `Samples ordered by the score of ${d.titles[name] ?? name}, the most suspect first.`,
                  }),
              },
              number(r[5], 3) + star,
            ),
            make("small", {}, interval(r[6], r[7], 3)),
          );
        }),
      ),
    );
  place.replaceChildren(
    make("h2", {}, "Detectors: is this answer wrong?"),
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
    tableOf("Detectors", [headOf("detector"), ...cellsOf.map((r) => headOf(label(r), true))], body),
    make(
      "p",
      { class: "caption" },
      "All scores are out of fold, and every choice was made inside the training folds. The 95 % intervals are widened for the variance of training. A star marks a difference beyond chance after Holm's correction (p < 0.05). Beyond the question means minus the best detector that saw no answer. Click a number to see its samples, or a detector to see its curves below.",
    ),
    make(
      "h2",
      {},
      `Risk against coverage, and calibration: ${d.titles[about.samples.detectors[detectorNumber()]] ?? ""}`,
    ),
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
  drawRisk();
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
