// What holds, claim by claim: a strip for each model that opens into a table.

const SIGNS = { holds: "✓", "there is one": "+", "does not hold": "✗", "cannot tell": "?" };
const KINDS = { holds: "good", "there is one": "some", "does not hold": "bad", "cannot tell": "open" };
const PLURAL = { holds: "hold", "there is one": "with one of unknown size", "does not hold": "do not hold", "cannot tell": "cannot tell" };
function drawVerdicts() {
  const place = byId("verdicts");
  if (!about.verdicts.length) {
    place.replaceChildren(
      make(
        "p",
        { class: "notice" },
        "This run has no ledger of claims. Add `evidence: {}` to the study, run it again, and make the ledger with `anchorscope claims RUN`.",
      ),
    );
    return;
  }
  const models = [...new Set(about.verdicts.map((v) => `${v.run}|${v.model}`))];
  place.replaceChildren(
    ...models.map((name) => {
      const mine = about.verdicts.filter((v) => `${v.run}|${v.model}` === name);
      const title = mine[0].model + (about.runs.length > 1 ? ` (${about.runs[mine[0].run].name})` : "");
      const strip = make(
        "span",
        { class: "strip", "aria-hidden": "true" },
        ...mine.map((v) => make("i", { class: KINDS[v.verdict] })),
      );
      const counts = Object.keys(SIGNS)
        .map((s) => `${mine.filter((v) => v.verdict === s).length} ${PLURAL[s]}`)
        .join(", ");
      const details = make(
        "details",
        { class: "ledger" },
        make("summary", {}, make("b", {}, title), ` ${counts} `, strip),
      );
      details.addEventListener("toggle", () => {
        if (details.open && details.childElementCount === 1) details.append(ledgerTable(mine));
      });
      return details;
    }),
  );
}

function ledgerTable(mine) {
  const sets = [...new Set(mine.map((v) => v.dataset))].filter((s) => s !== "all");
  const claims = [...new Set(mine.map((v) => v.claim))],
    body = make("tbody");
  let section = "";
  for (const claim of claims) {
    const of = mine.filter((v) => v.claim === claim),
      first = of[0];
    if (first.section !== section) {
      section = first.section;
      body.append(make("tr", { class: "section" }, make("th", { colSpan: 3 + Math.max(1, sets.length) }, section)));
    }
    const cells = of.some((v) => v.dataset === "all")
      ? [make("td", { colSpan: Math.max(1, sets.length) }, verdictButton(of[0]))]
      : sets.map((s) => {
          const v = of.find((x) => x.dataset === s);
          return make("td", {}, v ? verdictButton(v) : "–");
        });
    body.append(
      make(
        "tr",
        {},
        make(
          "th",
          { scope: "row" },
          first.statement,
          make(
            "small",
            {},
            `Measured: ${first.statistic}. Compared with: ${first.control}. Holds if ${first.if.replaceAll("-", "−")}.`,
          ),
        ),
        ...first.tags.map((tag) => make("td", {}, tag)),
        ...cells,
      ),
    );
  }
  const titles = sets.map((s) => about.sets.find((x) => x.name === s)?.title ?? s);
  return tableOf("Claims", ["claim", "truth or difficulty", "truth or prior", ...(titles.length ? titles : ["all datasets"])].map((t) => headOf(t)), body);
}

function verdictButton(v) {
  const said = v.words.replaceAll("-", "−"),
    words = v.value === null ? said : `${SIGNS[v.verdict]} ${said}`;
  return make(
    "button",
    {
      type: "button",
      class: `verdict ${KINDS[v.verdict]}`,
      "data-claim": v.claim,
      "data-model": v.model,
      "data-set": v.dataset,
      title: `${v.verdict}, n = ${v.n}${v.p === null ? "" : `, p = ${v.p.toPrecision(2)}`}. Click for the samples.`,
      onclick: () => openVerdict(v),
    },
    words,
  );
}

function openVerdict(v) {
  const model = about.models.findIndex(
    (m) => m.run === v.run && (m.name === v.model || m.name.startsWith(`${v.model} (`)),
  );
  const set = about.sets.findIndex((s) => s.name === v.dataset);
  const groups = { a_near_zero: "A", q_falls: "Q", recovers: "Q", declines: "Q" };
  showSamples({
    model,
    set,
    group: groups[v.claim] ?? "",
    layer: middle(model, set),
    why: `Claim: ${v.statement}. Verdict: ${v.verdict}.`,
  });
}
