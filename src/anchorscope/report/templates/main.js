// Tabs, keys, theme; and what is drawn anew when something changes.

const PARTS = [
  ["overview", "Overview"],
  ...about.tabs,
  ["detectors", "Detectors"],
  ["samples", "Samples"],
  ["about", "About"],
];

const isPart = (name) => PARTS.some((part) => part[0] === name);
function makeSections() {
  for (const [name] of about.tabs)
    byId("tab-detectors").before(
      make("section", { id: `tab-${name}`, role: "tabpanel", "aria-labelledby": `t-${name}`, hidden: true }),
    );
}

// scrollIntoView would move the place where the Tab key goes on from: the link that skips this bar comes first
function intoSight(tab) {
  if (!tab) return;
  const bar = byId("tabs").parentElement,
    { left, right } = tab.getBoundingClientRect(),
    edge = bar.getBoundingClientRect();
  bar.scrollLeft += Math.min(left - edge.left, 0) + Math.max(right - edge.right, 0);
}

function drawTabs() {
  byId("tabs").replaceChildren(
    ...PARTS.map(([name, title], i) =>
      make(
        "button",
        {
          type: "button",
          role: "tab",
          id: `t-${name}`,
          "data-tab": name,
          "aria-controls": `tab-${name}`,
          "aria-selected": String(state.tab === name),
          tabIndex: state.tab === name ? 0 : -1,
          title: i < 9 ? `key ${i + 1}` : "",
          onclick: () => change({ tab: name }),
          onkeydown: (event) => {
            const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
            if (!by) return;
            const next = PARTS[(i + by + PARTS.length) % PARTS.length][0];
            change({ tab: next });
            byId(`t-${next}`).focus();
          },
        },
        title,
      ),
    ),
  );
  for (const [name] of PARTS) byId(`tab-${name}`).hidden = state.tab !== name;
  tall = 0;
  intoSight(byId(`t-${state.tab}`));
}

const STALE = new Set(PARTS.map(([name]) => name)); // parts to be drawn when they are next seen
const DRAWN_BY = {
  overview: ["site", "position", "split", "correction", "stratum", "beside", "bands", "hide"],
  ...Object.fromEntries(about.tabs.map(([name]) => [name, ["site", "position", "bands", "hide"]])),
  detectors: ["detector", "measured", "model"],
  about: [],
};
function drawPart(name) {
  STALE.delete(name);
  if (name === "overview") {
    drawOverview();
  } else if (about.tabs.some((tab) => tab[0] === name)) drawTab(name);
  else if (name === "detectors") drawDetectors();
  else if (name === "samples") {
    drawFilters();
    refreshExplorer(null);
    drawDetail();
  } else if (name === "about") drawAbout();
}

listeners.push((changed) => {
  if (changed.has("site") || changed.has("position")) {
    const there = about.points.some((p) => p.site === state.site && p.position === state.position);
    if (!there) state.position = about.points.find((p) => p.site === state.site)?.position ?? about.points[0].position;
    choosePoint();
    drawControls();
  }
  if (changed.has("tab")) drawTabs();
  for (const [name, fields] of Object.entries(DRAWN_BY))
    if (fields.some((field) => changed.has(field))) STALE.add(name);
  if (state.tab !== "samples") {
    if ([...changed].some((field) => field !== "tab")) STALE.add("samples");
    if (STALE.has(state.tab)) drawPart(state.tab);
    return;
  }
  if (STALE.has("samples")) {
    drawPart("samples");
    return;
  }
  const before = telling?.row;
  refreshExplorer(changed);
  if (
    (state.row === "" && telling?.row !== before) ||
    ["row", "pins", "layer", "split", "correction", "condition", "site", "position", "detector"].some((field) =>
      changed.has(field),
    )
  )
    drawDetail();
  if (changed.has("row") && innerWidth <= 1000) byId("detail").scrollIntoView();
});

function drawAbout() {
  const blocks = about.runs
    .map((run) => [
      make("h2", {}, run.name),
      make("p", {}, run.description),
      make(
        "details",
        {},
        make("summary", {}, "The study, with every default written out"),
        make("pre", { tabIndex: 0 }, JSON.stringify(run.study, null, 2)),
      ),
    ])
    .flat();
  const leftOut = [...new Set(cells.filter((cell) => !cell.text).map((cell) => setTitle(cell.set)))];
  byId("tab-about").replaceChildren(
    ...blocks,
    make("h2", {}, "How to read this"),
    make(
      "p",
      {},
      "Every number is computed out of fold, so no probe was fitted on the question that it reads. An answer is Q-Anchored where cutting attention to the question's exact tokens flips the probe's prediction, and A-Anchored where it does not. The published chart sorts answers by the same flip that it measures. Controls shows what is left when one half of the probes sorts and the other half measures, what cutting as many other tokens does, and what the permutation null does.",
    ),
    make(
      "p",
      {},
      `This file holds ${counted(samples.rows)} traced samples.${leftOut.length ? ` Questions and answers of these datasets were left out: ${leftOut.join(", ")}.` : ""} It loads nothing from the network.`,
    ),
    make("h2", {}, "Software"),
    make(
      "p",
      {},
      Object.entries(about.versions)
        .map(([name, version]) => `${name} ${version}`)
        .join(", "),
    ),
  );
}

function theme() {
  const next = dark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  redrawAll();
}
function redrawAll() {
  for (const [name] of PARTS) if (name !== "about") STALE.add(name);
  drawPart(state.tab);
}

async function copyLink() {
  writeAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    toast("Link copied. It opens what you see now.");
  } catch {
    toast("Could not copy. The address bar holds the link to what you see.");
  }
}

document.addEventListener("click", (event) => {
  const action = event.target.closest("[data-action]")?.dataset.action;
  if (action === "copy-link") copyLink();
  if (action === "theme") theme();
  if (action === "help") byId("help").showModal();
  if (action === "slice") drawSlice();
  if (action === "reset") {
    why = "";
    change({ ...FILTERS });
    drawFilters();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const part = PARTS[Number(event.key) - 1];
  if (part && /^[1-9]$/.test(event.key)) change({ tab: part[0] });
  else if (event.key === "/") {
    event.preventDefault();
    change({ tab: "samples" });
    byId("search").focus();
  } else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "p" && chosen() !== null) pin(chosen());
  else if (event.key === "c") copyLink();
  else if (event.key === "t") theme();
  else if (event.key === "?") byId("help").showModal();
});
addEventListener("hashchange", () => {
  const before = { ...state };
  readAddress();
  if (!isPart(state.tab)) state.tab = DEFAULTS.tab;
  const changed = Object.keys(state).filter((name) => state[name] !== before[name]);
  if (changed.length) for (const listen of listeners) listen(new Set(changed));
  drawControls();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (document.documentElement.dataset.theme === "auto") redrawAll();
});
let resizing = 0;
addEventListener("resize", () => {
  tall = 0;
  clearTimeout(resizing);
  resizing = setTimeout(redrawAll, 200);
});
document.querySelector("#rows tbody").addEventListener("click", (event) => {
  const row = event.target.closest("[data-row]");
  if (row) change({ row: row.dataset.row });
});
byId("rows").addEventListener(
  "scroll",
  () =>
    requestAnimationFrame(() => {
      scrolled = byId("rows").scrollTop;
      drawRowsShown(false);
    }),
  { passive: true },
);

async function begin() {
  block = await unpacked("columns");
  performance.mark("unpacked");
  readAddress();
  if (!isPart(state.tab)) state.tab = DEFAULTS.tab;
  makeSections();
  readCurves();
  readSamples();
  performance.mark("read");
  byId("loading").remove();
  drawTabs();
  drawControls();
  drawVerdicts();
  drawPart(state.tab);
  performance.mark("usable");
  makeReady();
}

window.anchorscope = {
  state,
  ready: begin(),
  count: () => shown.length,
  openPoint,
  showSamples,
  change,
};
