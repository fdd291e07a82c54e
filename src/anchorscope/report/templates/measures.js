// Numbers of a slice, measured anew on the page: with 95 % intervals, by a bootstrap over clusters of samples.

const RESAMPLES = 300;

// a small generator with a seed: the same slice gives the same interval
function generator(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// the share of (right, wrong) pairs that are ranked right, ties half; `weight` counts samples
function aurocOf(order, values, right, weight) {
  let wrongs = 0,
    pairs = 0,
    rights = 0;
  for (let i = 0; i < order.length;) {
    let j = i,
      r = 0,
      w = 0;
    while (j < order.length && values[order[j]] === values[order[i]]) {
      const k = order[j++];
      right[k] ? (r += weight[k]) : (w += weight[k]);
    }
    pairs += r * (wrongs + w / 2);
    wrongs += w;
    rights += r;
    i = j;
  }
  return rights && wrongs ? pairs / (rights * wrongs) : NaN;
}

const sorted = (values) => Uint32Array.from(values, (_, i) => i).sort((a, b) => values[a] - values[b]);

// every measure in the same resamples: `measure(weight)` gives a list of numbers
function bootstrapped(clusters, measure) {
  const places = new Map();
  const of = Uint32Array.from(clusters, (c) => {
    if (!places.has(c)) places.set(c, places.size);
    return places.get(c);
  });
  const count = places.size,
    random = generator(20261116 + clusters.length),
    ones = new Float64Array(clusters.length).fill(1);
  const value = measure(ones),
    drawn = value.map(() => []),
    times = new Float64Array(count),
    weight = new Float64Array(clusters.length);
  for (let b = 0; b < RESAMPLES; b++) {
    times.fill(0);
    for (let i = 0; i < count; i++) times[Math.floor(random() * count)]++;
    for (let i = 0; i < weight.length; i++) weight[i] = times[of[i]];
    measure(weight).forEach((x, k) => {
      if (Number.isFinite(x)) drawn[k].push(x);
    });
  }
  return value.map((v, k) => {
    const all = drawn[k].sort((a, b) => a - b);
    if (all.length < RESAMPLES / 2 || !Number.isFinite(v))
      return { value: Number.isFinite(v) ? v : null, low: null, high: null };
    const at = (q) => all[Math.min(all.length - 1, Math.max(0, Math.round(q * (all.length - 1))))];
    return { value: v, low: at(0.025), high: at(0.975) };
  });
}

// the samples shown, cell by cell, each measured
function measuredCells() {
  const by = new Map();
  for (const row of shown) by.has(cellOf[row]) ? by.get(cellOf[row]).push(row) : by.set(cellOf[row], [row]);
  return [...by].map(([c, rows]) => ({ cell: cells[c], ...measuredSlice(cells[c], rows) }));
}

// one cell's part of a slice: AUROC on the clean and the cut pass, their difference, ΔP of Q and A, natural accuracy
function measuredSlice(cell, rows) {
  const n = rows.length,
    right = new Uint8Array(n),
    clean = new Float64Array(n),
    cut = new Float64Array(n),
    shift = new Float64Array(n),
    q = new Uint8Array(n),
    inverse = new Float64Array(n);
  const clusters = new Uint32Array(n),
    layer = layerFor(cell),
    condition = cell.logits[state.condition] ? state.condition : "knockout";
  rows.forEach((row, i) => {
    right[i] = samples.right[row];
    clean[i] = logitOf(cell, "clean", row, layer);
    cut[i] = cell.logits[condition] ? logitOf(cell, condition, row, layer) : NaN;
    const sign = clean[i] >= 0 ? 1 : -1;
    shift[i] = 100 * sign * (sigmoid(cut[i]) - sigmoid(clean[i]));
    q[i] = groupOf(cell, row) === "Q" ? 1 : 0;
    inverse[i] = 1 / samples.probability[row];
    clusters[i] = samples.cluster[row];
  });
  const orders = [sorted(clean), sorted(cut)];
  const mean = (weight, of) => {
    let total = 0,
      number = 0;
    for (let i = 0; i < n; i++)
      if (of(i)) {
        total += weight[i] * shift[i];
        number += weight[i];
      }
    return number ? total / number : NaN;
  };
  const numbers = bootstrapped(clusters, (weight) => {
    const a = aurocOf(orders[0], clean, right, weight),
      b = aurocOf(orders[1], cut, right, weight);
    let all = 0,
      good = 0;
    for (let i = 0; i < n; i++) {
      all += weight[i] * inverse[i];
      good += weight[i] * inverse[i] * right[i];
    }
    return [a, b, b - a, mean(weight, (i) => q[i]), mean(weight, (i) => !q[i]), all ? (100 * good) / all : NaN];
  });
  const few = (k, size) => (size < about.min_group ? { value: null, low: null, high: null } : numbers[k]);
  const sizeQ = q.reduce((x, y) => x + y, 0),
    sizeRight = right.reduce((x, y) => x + y, 0),
    least = Math.min(sizeRight, n - sizeRight);
  return {
    n,
    right: sizeRight,
    q: sizeQ,
    layer,
    condition,
    auroc: few(0, least),
    cut: few(1, least),
    lost: few(2, least),
    deltaQ: few(3, sizeQ),
    deltaA: few(4, n - sizeQ),
    accuracy: few(5, n),
  };
}
