// Two models, of one run or of two: verdicts that differ, and questions that only one of them answers.

function drawCompare() {
  const place = byId("tab-compare"),
    models = about.models.map((m, i) => [String(i), m.name]);
  const a = state.model !== "" ? Number(state.model) : 0,
    b = state.other !== "" ? Number(state.other) : otherModel(a);
  place.replaceChildren(
    make("h2", {}, "Two models side by side"),
    make(
      "form",
      { class: "controls" },
      select("model", "First model", models, String(a)),
      select("other", "Second model", models, String(b)),
    ),
    pairTable(a, b),
    make("h2", {}, "Effect of the cut at the middle layer"),
    middleTable(a, b),
    make("h2", {}, "Verdicts that differ"),
    verdictsApart(a, b),
  );
}

// the model of another run by the same name, else the first of another run, else the last
function otherModel(a) {
  const bare = (m) => about.models[m].name.replace(/ \([^)]*\)$/, ""),
    others = about.models.map((_, m) => m).filter((m) => about.models[m].run !== about.models[a].run);
  return others.find((m) => bare(m) === bare(a)) ?? others[0] ?? about.models.length - 1;
}

function pairTable(a, b) {
  const body = make("tbody");
  about.sets.forEach((set, s) => {
    const [one, two] = [a, b].map((m) => cells.find((cell) => cell.model === m && cell.set === s));
    if (!one || !two || a === b) return;
    const right = new Map();
    for (let row = one.start; row < one.start + one.count; row++) right.set(samples.idText(row), samples.right[row]);
    const counts = { both: 0, first: 0, second: 0, neither: 0 };
    for (let row = two.start; row < two.start + two.count; row++) {
      const other = right.get(samples.idText(row));
      if (other !== undefined)
        counts[other ? (samples.right[row] ? "both" : "first") : samples.right[row] ? "second" : "neither"]++;
    }
    body.append(
      make(
        "tr",
        {},
        make("th", { scope: "row" }, set.title),
        ...Object.entries(counts).map(([kind, n]) =>
          make(
            "td",
            { class: "right" },
            make(
              "button",
              { type: "button", class: "number", onclick: () => showSamples({ set: s, joint: `${a},${b},${kind}` }) },
              counted(n),
            ),
          ),
        ),
      ),
    );
  });
  if (!body.childElementCount) return make("p", { class: "notice" }, "These two models have no traced question in common.");
  return make(
    "div",
    {},
    tableOf(
      "Questions in common",
      ["questions traced in both", "both right", "only the first right", "only the second right", "both wrong"].map((h, i) =>
        headOf(h, i > 0),
      ),
      body,
    ),
    make(
      "p",
      { class: "caption" },
      "Right answers are traced more often than wrong ones, each at its own rate. So the counts say which questions to look at, not how often this happens.",
    ),
  );
}

function middleTable(a, b) {
  const point = pointNumber(),
    body = make("tbody"),
    shared = about.sets.some((_, s) => [a, b].every((m) => cells.some((cell) => cell.model === m && cell.set === s)));
  for (const [key, words] of [
    ["auroc|clean|none|none|none|all|all", "AUROC, clean pass"],
    ["delta_auroc|knockout|none|none|none|all|all", "ΔAUROC of the cut"],
    ["delta_auroc|knockout-permuted|none|none|none|all|all", "ΔAUROC beyond the permutation null"],
  ])
    about.sets.forEach((set, s) => {
      const ends = [a, b].map((m) => {
        const line = lineOf(point, m, s, key);
        return line.length ? line[middleLayer(line.length)] : null;
      });
      if (ends.every((x) => x === null) || (shared && ends.some((x) => x === null))) return;
      body.append(
        make(
          "tr",
          {},
          make("th", { scope: "row" }, `${set.title}: ${words}`),
          ...ends.map((p, i) =>
            make(
              "td",
              { class: "right" },
              p
                ? make(
                    "button",
                    {
                      type: "button",
                      class: "number",
                      onclick: () => openPoint({ point, model: [a, b][i], set: s, key, layer: p.layer, n: p.n }),
                    },
                    number(p.value, 3),
                  )
                : "–",
              p ? make("small", {}, `${interval(p.low, p.high, 3)} layer ${p.layer}`) : "",
            ),
          ),
        ),
      );
    });
  return tableOf("Middle layer", [make("td"), ...[a, b].map((m) => headOf(about.models[m].name, true))], body);
}

function verdictsApart(a, b) {
  const of = (m) =>
    about.verdicts.filter(
      (v) =>
        v.run === about.models[m].run &&
        (about.models[m].name === v.model || about.models[m].name.startsWith(`${v.model} (`)),
    );
  const other = new Map(of(b).map((v) => [`${v.claim}|${v.dataset}`, v])),
    body = make("tbody");
  for (const v of of(a)) {
    const w = other.get(`${v.claim}|${v.dataset}`);
    if (!w || w.verdict === v.verdict) continue;
    body.append(
      make(
        "tr",
        {},
        make("th", { scope: "row" }, v.statement),
        make("td", {}, about.sets.find((s) => s.name === v.dataset)?.title ?? "all datasets"),
        make("td", {}, verdictButton(v)),
        make("td", {}, verdictButton(w)),
      ),
    );
  }
  if (!body.childElementCount)
    return make("p", { class: "notice" }, about.verdicts.length ? "No verdict differs." : "The runs have no ledger of claims.");
  return tableOf(
    "Verdicts",
    ["claim", "dataset", about.models[a].name, about.models[b].name].map((h) => headOf(h)),
    body,
  );
}
