// The page's pen: charts of lines and of dots as SVG, with a tip for the nearest point, by mouse, finger or keys.
//
// A figure is rows of panels: {title, panels: [panel]}. A panel of lines: {title, label, below, x: [first, last],
// y: [low, high], level, marks: [{x, colour}], lines: [{name, colour, dash, width, sign, open, points: [point]}]}.
// A panel of dots: {title, below, level, word, ends: [left, right], rows: [{name, colour, said, points: [point]}]}.
// A point: {x, y, low, high, tip, data}. The first point of a row of dots has the interval, the others are small.

const LEFT = 52,
  RIGHT = 10,
  TOP = 8,
  BELOW = 36;

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function word(text, attributes) {
  const written = svg("text", attributes);
  written.textContent = text;
  return written;
}

// round steps that cut a range into about `count` parts
function ticksOf(low, high, count) {
  const rough = (high - low) / count,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((each) => each >= rough),
    ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9; i++) ticks.push(i * step);
  return { ticks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

// the outline of a sign, as large as a dot of radius r
function outline(sign, x, y, r) {
  const at = (pairs) => `M${pairs.map(([a, b]) => `${(x + a * r).toFixed(1)},${(y + b * r).toFixed(1)}`).join("L")}Z`;
  const regular = (n, turn) =>
    at(
      Array.from({ length: n }, (_, i) => [
        Math.cos(turn + (2 * Math.PI * i) / n),
        Math.sin(turn + (2 * Math.PI * i) / n),
      ]),
    );
  const cross = [
    [-0.35, -1],
    [0.35, -1],
    [0.35, -0.35],
    [1, -0.35],
    [1, 0.35],
    [0.35, 0.35],
    [0.35, 1],
    [-0.35, 1],
    [-0.35, 0.35],
    [-1, 0.35],
    [-1, -0.35],
    [-0.35, -0.35],
  ];
  switch (sign) {
    case "square":
      return at([
        [-0.85, -0.85],
        [0.85, -0.85],
        [0.85, 0.85],
        [-0.85, 0.85],
      ]);
    case "diamond":
      return at([
        [0, -1.2],
        [1.2, 0],
        [0, 1.2],
        [-1.2, 0],
      ]);
    case "triangle-up":
      return regular(3, -Math.PI / 2);
    case "triangle-down":
      return regular(3, Math.PI / 2);
    case "triangle-left":
      return regular(3, Math.PI);
    case "triangle-right":
      return regular(3, 0);
    case "pentagon":
      return regular(5, -Math.PI / 2);
    case "hexagon":
      return regular(6, 0);
    case "cross":
      return at(cross);
    case "x":
      return at(cross.map(([a, b]) => [0.72 * (a - b), 0.72 * (a + b)]));
    default:
      return `M${(x - r).toFixed(1)},${y.toFixed(1)}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`;
  }
}

function drawFigure(place, rows, { columns, height = 250, alt = "", open = null }) {
  const narrow = place.clientWidth < 640,
    across = narrow ? 1 : columns;
  const width = Math.floor((place.clientWidth - 14 * (across - 1)) / across);
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", alt);
  const parts = [];
  for (const row of rows) {
    if (row.title) parts.push(make("p", { class: "row-title" }, row.title));
    if (row.missing) {
      parts.push(make("p", { class: "notice" }, row.missing));
      continue;
    }
    const panels = row.panels.map((panel) =>
      make(
        "figure",
        { class: "panel" },
        make("figcaption", {}, panel.title),
        panel.rows ? drawDots(panel, width, open) : drawPanel(panel, width, height, open),
      ),
    );
    const grid = make("div", { class: "panels" }, ...panels);
    grid.style.gridTemplateColumns = `repeat(${across}, minmax(0, 1fr))`;
    parts.push(grid);
  }
  place.replaceChildren(...parts);
}

function drawPanel(panel, width, height, open) {
  const inner = { x0: LEFT, x1: width - RIGHT, y0: TOP, y1: height - BELOW };
  const [left, right] = panel.x,
    [low, high] = panel.y;
  const x = (value) => inner.x0 + ((value - left) / (right - left || 1)) * (inner.x1 - inner.x0),
    y = (value) => inner.y1 - ((value - low) / (high - low || 1)) * (inner.y1 - inner.y0);
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    class: "picture",
    role: "img",
    tabindex: 0,
    "aria-label": `${panel.title}: ${panel.label}. Arrow keys go from point to point, Enter opens the samples.`,
  });
  // 1. axes
  const vertical = ticksOf(low, high, Math.max(3, height / 55)),
    horizontal = ticksOf(left, right, Math.max(3, width / 70));
  for (const tick of vertical.ticks)
    picture.append(
      svg("line", { x1: inner.x0, x2: inner.x1, y1: y(tick), y2: y(tick), class: "grid" }),
      word(number(tick, vertical.digits), { x: inner.x0 - 6, y: y(tick) + 4, "text-anchor": "end" }),
    );
  for (const tick of horizontal.ticks)
    if (tick >= left && Math.abs(tick - Math.round(tick)) < 1e-9)
      picture.append(
        svg("line", { x1: x(tick), x2: x(tick), y1: inner.y1, y2: inner.y1 + 4, class: "tick" }),
        word(String(Math.round(tick)), { x: x(tick), y: inner.y1 + 16, "text-anchor": "middle" }),
      );
  picture.append(
    svg("line", { x1: inner.x0, x2: inner.x1, y1: inner.y1, y2: inner.y1, class: "tick" }),
    word(panel.below ?? "Layer", { x: (inner.x0 + inner.x1) / 2, y: height - 3, "text-anchor": "middle" }),
    word(panel.label, { transform: `translate(12 ${(inner.y0 + inner.y1) / 2}) rotate(-90)`, "text-anchor": "middle" }),
  );
  if (panel.level >= low && panel.level <= high)
    picture.append(svg("line", { x1: inner.x0, x2: inner.x1, y1: y(panel.level), y2: y(panel.level), class: "level" }));
  if (panel.diagonal)
    picture.append(svg("line", { x1: x(left), y1: y(low), x2: x(right), y2: y(high), class: "level" }));
  for (const mark of panel.marks ?? [])
    picture.append(
      svg("line", {
        x1: x(mark.x),
        x2: x(mark.x),
        y1: inner.y1,
        y2: inner.y1 - 9,
        stroke: mark.colour,
        "stroke-width": 2.5,
      }),
    );
  // 2. what is drawn
  const points = drawLines(picture, panel.lines, x, y);
  showNearest(picture, points, open);
  return picture;
}

// a ring and a tip for the nearest point; a click, or Enter, opens what is behind it
function showNearest(picture, points, open) {
  const { width, height } = picture.viewBox.baseVal,
    ring = svg("circle", { r: 6, class: "ring", visibility: "hidden" });
  picture.append(ring);
  let at = -1;
  const show = (i) => {
    at = i;
    if (i < 0) {
      ring.setAttribute("visibility", "hidden");
      hideTip();
      return;
    }
    const p = points[i];
    ring.setAttribute("cx", p.px);
    ring.setAttribute("cy", p.py);
    ring.setAttribute("visibility", "visible");
    const box = picture.getBoundingClientRect();
    showTip(p.tip, box.left + (p.px * box.width) / width, box.top + (p.py * box.height) / height);
  };
  const nearest = (event) => {
    const box = picture.getBoundingClientRect(),
      mx = ((event.clientX - box.left) * width) / box.width,
      my = ((event.clientY - box.top) * height) / box.height;
    let best = -1,
      least = 30 * 30;
    points.forEach((p, i) => {
      const d = (p.px - mx) ** 2 + (p.py - my) ** 2;
      if (d < least) {
        least = d;
        best = i;
      }
    });
    return best;
  };
  picture.addEventListener("pointermove", (event) => show(nearest(event)));
  picture.addEventListener("pointerleave", () => show(-1));
  picture.addEventListener("blur", () => show(-1));
  picture.addEventListener("click", (event) => {
    const i = nearest(event);
    if (i >= 0 && open && points[i].data) {
      hideTip();
      open(points[i].data);
    }
  });
  picture.addEventListener("keydown", (event) => {
    const line = points[at]?.line ?? 0,
      of = (l) => points.findIndex((p) => p.line === l);
    if (event.key === "Enter" && at >= 0 && open && points[at].data) {
      hideTip();
      open(points[at].data);
      return;
    }
    const next = {
      ArrowRight: at < 0 ? 0 : Math.min(points.length - 1, at + 1),
      ArrowLeft: Math.max(0, at - 1),
      ArrowDown: Math.max(0, of(line + 1) < 0 ? at : of(line + 1)),
      ArrowUp: Math.max(0, line ? of(line - 1) : at),
    }[event.key];
    if (next === undefined || !points.length) return;
    event.preventDefault();
    show(next);
  });
}

function drawLines(picture, lines, x, y) {
  const points = [],
    bands = svg("g"),
    strokes = svg("g"),
    signs = svg("g");
  lines.forEach((line, l) => {
    const runs = []; // layers without a value break a line
    line.points.forEach((p, i) => {
      if (i && line.gaps && p.x - line.points[i - 1].x > 1) runs.push([p]);
      else if (runs.length) runs[runs.length - 1].push(p);
      else runs.push([p]);
    });
    for (const run of runs) {
      const path = run.map((p) => `${x(p.x).toFixed(1)},${y(p.y).toFixed(1)}`).join("L");
      if (line.band && run.some((p) => p.low !== null))
        bands.append(
          svg("path", {
            d: `M${run.map((p) => `${x(p.x).toFixed(1)},${y(p.high ?? p.y).toFixed(1)}`).join("L")}L${[...run]
              .reverse()
              .map((p) => `${x(p.x).toFixed(1)},${y(p.low ?? p.y).toFixed(1)}`)
              .join("L")}Z`,
            fill: line.colour,
            "fill-opacity": 0.13,
          }),
        );
      strokes.append(
        svg("path", {
          d: `M${path}`,
          fill: "none",
          stroke: line.colour,
          "stroke-width": line.width ?? 2,
          "stroke-dasharray": { "--": "7 4", ":": "1.5 4", "-.": "8 3 1.5 3", "-": null }[line.dash ?? "-"],
          "stroke-linejoin": "round",
          "stroke-linecap": line.dash === ":" ? "round" : "butt",
        }),
      );
    }
    if (line.sign)
      signs.append(
        svg("path", {
          d: line.points.map((p) => outline(line.sign, x(p.x), y(p.y), 3)).join(""),
          fill: line.open ? "var(--paper)" : line.colour,
          stroke: line.colour,
          "stroke-width": 1,
        }),
      );
    line.points.forEach((p) => points.push({ px: x(p.x), py: y(p.y), tip: p.tip, data: p.data, line: l }));
  });
  picture.append(bands, strokes, signs);
  return points;
}

// a row for each name: a dot with its interval, small dots beside it, and its value in figures
function drawDots(panel, width, open) {
  const narrow = width < 560,
    step = narrow ? 36 : 25,
    names = Math.max(...panel.rows.map((row) => row.name.length)),
    inner = { x0: narrow ? 8 : 24 + 6.2 * names, x1: width - 52, y0: 18, y1: 18 + step * panel.rows.length },
    height = inner.y1 + (panel.ends ? 50 : 36);
  const values = panel.rows.flatMap((row) => row.points.flatMap((p) => [p.x, p.low ?? p.x, p.high ?? p.x])),
    low = Math.min(panel.level, ...values),
    high = Math.max(panel.level, ...values),
    spare = 0.04 * (high - low || 1);
  const x = (value) => inner.x0 + ((value - low + spare) / (high - low + 2 * spare)) * (inner.x1 - inner.x0);
  const said = panel.rows.map((row) => `${row.name} ${row.said}`).join(", ");
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    class: "picture",
    role: "img",
    tabindex: 0,
    "aria-label": `${panel.title}. ${panel.below}, the highest first: ${said}. Arrow keys go from point to point, Enter opens the samples.`,
  });
  const { ticks, digits } = ticksOf(low, high, Math.max(3, (inner.x1 - inner.x0) / 70)),
    middle = (inner.x0 + inner.x1) / 2;
  for (const tick of ticks)
    picture.append(
      svg("line", { x1: x(tick), x2: x(tick), y1: inner.y0, y2: inner.y1, class: "grid" }),
      word(number(tick, digits), { x: x(tick), y: inner.y1 + 13, "text-anchor": "middle" }),
    );
  const level = x(panel.level),
    side = level > inner.x1 - 70 ? "end" : level < inner.x0 + 70 ? "start" : "middle";
  picture.append(
    svg("line", { x1: level, x2: level, y1: inner.y0 - 4, y2: inner.y1, class: "level" }),
    word(panel.word, { x: level, y: inner.y0 - 7, "text-anchor": side }),
    word(panel.below, { x: middle, y: height - 5, "text-anchor": "middle" }),
  );
  if (panel.ends)
    picture.append(
      word(panel.ends[0], { x: inner.x0, y: inner.y1 + 28, "text-anchor": "start" }),
      word(panel.ends[1], { x: inner.x1, y: inner.y1 + 28, "text-anchor": "end" }),
    );
  const points = [];
  panel.rows.forEach((row, r) => {
    const y = inner.y0 + step * (r + (narrow ? 0.72 : 0.5));
    picture.append(
      word(row.name, { x: inner.x0 - (narrow ? 0 : 10), y: y + (narrow ? -11 : 4), "text-anchor": narrow ? "start" : "end", class: "name" }),
      word(row.said, { x: width - 4, y: y + 4, "text-anchor": "end" }),
    );
    const [main, ...small] = row.points,
      dot = (p, r, opacity) => svg("circle", { cx: x(p.x), cy: y, r, fill: row.colour, "fill-opacity": opacity });
    picture.append(...small.map((p) => dot(p, 2.8, 0.35)));
    if (main.low !== null)
      picture.append(
        svg("line", { x1: x(main.low), x2: x(main.high), y1: y, y2: y, stroke: row.colour, "stroke-width": 2 }),
      );
    picture.append(dot(main, 4.5, 1));
    for (const p of row.points) points.push({ px: x(p.x), py: y, tip: p.tip, data: p.data, line: r });
  });
  showNearest(picture, points, open);
  return picture;
}

function showTip(lines, left, top) {
  const tip = byId("tip");
  tip.replaceChildren(...lines.map((line, i) => make(i === 1 ? "b" : "span", {}, line)));
  tip.classList.add("shown");
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(6, Math.min(innerWidth - box.width - 6, left + 14))}px`;
  tip.style.top = `${top - box.height - 12 < 6 ? top + 16 : top - box.height - 12}px`;
}
function hideTip() {
  byId("tip").classList.remove("shown");
}
