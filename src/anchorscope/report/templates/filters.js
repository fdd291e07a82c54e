// Which samples are shown, and in which order.

let haystack = null; // question, answer, accepted answers and id of each sample, in small letters
function searched(row) {
  haystack ??= new Array(samples.rows);
  return (haystack[row] ??=
    `${samples.questionText(row)}\n${samples.answerText(row)}\n${samples.acceptedText(row)}\n${samples.idText(row)}`.toLowerCase());
}

// what a first search and a first sort by a text need is made ready while nobody waits for anything
function makeReady() {
  let row = 0;
  const later = (work) =>
    window.requestIdleCallback
      ? requestIdleCallback(work, { timeout: 3000 })
      : setTimeout(() => work({ timeRemaining: () => 8 }), 30);
  const some = (deadline) => {
    while (row < samples.rows && deadline.timeRemaining() > 1)
      for (let i = 0; i < 200 && row < samples.rows; i++) searched(row++);
    if (row < samples.rows) later(some);
    else for (const name of ["question", "answer"]) later(() => ranksOf(COLUMNS.find((each) => each.name === name)));
  };
  later(some);
}

// which samples are shown, in their order
function applyFilters() {
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const [from, to] = state.range ? state.range.split(",").map(Number) : [];
  const kept = new Uint32Array(samples.rows);
  let count = 0;
  cells.forEach((cell, c) => {
    if (
      (state.model !== "" && String(cell.model) !== state.model) ||
      (state.set !== "" && String(cell.set) !== state.set) ||
      !cell.layers
    )
      return;
    for (let row = cell.start; row < cell.start + cell.count; row++) {
      if (state.grade && (state.grade === "right") !== (samples.right[row] === 1)) continue;
      if (state.error && wordOf("error", row) !== state.error) continue;
      if (state.kind && wordOf("kind", row) !== state.kind) continue;
      if (state.group && groupOf(cell, row) !== state.group) continue;
      if (state.predicted && predictedOf(cell, row) !== state.predicted) continue;
      if (state.verdict && verdictOf(row) !== state.verdict) continue;
      if (state.disputed && disputedOf(row) !== (state.disputed === "yes")) continue;
      if (state.sampled && sampledOf(row) !== (state.sampled === "yes")) continue;
      if (state.range) {
        const p = scoreOf(row);
        if (p === null || p < from || p > to) continue;
      }
      if (words.length) {
        const text = searched(row);
        if (!words.every((word) => text.includes(word))) continue;
      }
      kept[count++] = row;
    }
  });
  shown = kept.subarray(0, count);
  sortShown();
}

function sortShown() {
  const by = COLUMNS.find((each) => each.name === state.sort);
  if (!by) return;
  const keys = new Uint32Array(shown.length),
    down = state.down === "1";
  if (by.number) {
    const value = new Float32Array(1),
      bits = new Uint32Array(value.buffer);
    shown.forEach((row, i) => {
      const number = by.value(row, cells[cellOf[row]]);
      value[0] = number ?? NaN;
      // as whole numbers in the same order; what is missing comes last, whichever way
      const key = bits[0] & 0x80000000 ? ~bits[0] : bits[0] | 0x80000000;
      keys[i] = number === null || Number.isNaN(number) ? 0xffffffff : down ? ~key : key;
    });
  } else if (by.text) {
    const ranks = ranksOf(by);
    shown.forEach((row, i) => {
      keys[i] = down ? ~ranks[row] : ranks[row];
    });
  } else {
    const known = new Map(),
      values = Array.from(shown, (row) => {
        const text = by.value(row, cells[cellOf[row]]);
        known.set(text, 0);
        return text;
      });
    [...known.keys()].sort(collate).forEach((text, i) => known.set(text, i));
    values.forEach((text, i) => {
      const rank = known.get(text);
      keys[i] = down ? ~rank : rank;
    });
  }
  shown = byKeys(shown, keys);
}

// rows in the order of their keys, equal ones as they stand: byte by byte, the lowest first
function byKeys(rows, keys) {
  let from = rows.slice(),
    to = new Uint32Array(rows.length),
    k = keys,
    l = new Uint32Array(keys.length);
  for (let shift = 0; shift < 32; shift += 8) {
    const starts = new Uint32Array(257);
    for (let i = 0; i < k.length; i++) starts[((k[i] >>> shift) & 255) + 1]++;
    for (let i = 0; i < 256; i++) starts[i + 1] += starts[i];
    for (let i = 0; i < k.length; i++) {
      const at = starts[(k[i] >>> shift) & 255]++;
      to[at] = from[i];
      l[at] = k[i];
    }
    [from, to, k, l] = [to, from, l, k];
  }
  return from;
}

// (sample): its place among the texts of a column, by small letters; made once
function ranksOf(by) {
  if (by.ranks) return by.ranks;
  const texts = Array.from({ length: samples.rows }, (_, row) => by.value(row).toLowerCase()),
    order = Uint32Array.from(texts, (_, i) => i);
  order.sort((a, b) => (texts[a] < texts[b] ? -1 : texts[a] > texts[b] ? 1 : 0));
  by.ranks = new Uint32Array(samples.rows);
  let rank = 0;
  order.forEach((row, i) => {
    if (i && texts[row] !== texts[order[i - 1]]) rank++;
    by.ranks[row] = rank;
  });
  return by.ranks;
}
const collate = (a, b) => {
  const x = a.toLowerCase(),
    y = b.toLowerCase();
  return x < y ? -1 : x > y ? 1 : 0;
};
