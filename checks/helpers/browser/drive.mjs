// Drives a real browser for make verify-report: steps in as JSON, results out as JSON.
//
//   node checks/helpers/browser/drive.mjs steps.json     a list of steps in a file; prints the list of their results
//   node checks/helpers/browser/drive.mjs                one step per line on stdin, one result per line (checks/helpers/browser/__init__.py)
//
// A step is {"do": NAME, "page": PAGE, …}; the names are the keys of ACTS below. PAGE is the name of a tab ("main" where
// none is given). A result is {"ok": true, "value": …} or {"ok": false, "error": …}; after an error the next step goes on.
//
// puppeteer-core and axe-core are installed outside the repository, at the versions of package-lock.json, into
// ~/.cache/anchorscope-checks/browser; the browser is $CHROMIUM or /usr/bin/chromium.

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const CACHE = process.env.ANCHORSCOPE_BROWSER_CACHE ?? join(homedir(), ".cache", "anchorscope-checks", "browser");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const PATIENCE = 120_000; // ms that a page or an expression may take

// --- what is installed

function installed() {
  const lock = readFileSync(join(HERE, "package-lock.json"));
  const wanted = createHash("sha256").update(lock).digest("hex");
  const stamp = join(CACHE, "installed");
  if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== wanted) {
    mkdirSync(CACHE, { recursive: true });
    rmSync(stamp, { force: true });
    for (const name of ["package.json", "package-lock.json"]) copyFileSync(join(HERE, name), join(CACHE, name));
    const npm = spawnSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], {
      cwd: CACHE,
      stdio: ["ignore", "ignore", "inherit"],
    });
    if (npm.status !== 0) throw new Error(`npm ci in ${CACHE} failed`);
    writeFileSync(stamp, wanted);
  }
  return createRequire(join(CACHE, "package.json"));
}

const wants = installed();
const { default: puppeteer } = await import(pathToFileURL(wants.resolve("puppeteer-core")).href);
const AXE = readFileSync(wants.resolve("axe-core/axe.min.js"), "utf8");

const browser = await puppeteer.launch({
  executablePath: CHROMIUM,
  headless: true,
  protocolTimeout: PATIENCE,
  args: [
    "--no-sandbox", // checks may run as root; only our own file is opened
    "--host-resolver-rules=MAP * ~NOTFOUND", // nothing can be fetched; what is tried is counted
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
  ],
});

// --- inside the page; these functions are sent there as text

// before any script of the page: what is copied is kept in window.copied; long tasks are counted
function watch() {
  window.copied = null;
  const keep = (text) => {
    window.copied = String(text);
    return Promise.resolve();
  };
  if (navigator.clipboard) navigator.clipboard.writeText = keep;
  document.addEventListener("copy", () => keep(document.getSelection()), true);
  window.longTasks = [];
  const note = (list) => window.longTasks.push(...list.getEntries().map((each) => each.duration));
  new PerformanceObserver(note).observe({ type: "longtask", buffered: true });
}

// resolves after the frame that is being made has been painted
const PAINTED = `const painted = () => new Promise((done) => requestAnimationFrame(() => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => done(performance.now());
  channel.port2.postMessage(0);
}));`;

// --- tabs

const tabs = new Map();

function tab(step) {
  const found = tabs.get(step.page ?? "main");
  if (!found) throw new Error(`there is no page '${step.page ?? "main"}': open it first`);
  return found;
}

// (milliseconds) since navigation began: when it said it was usable, and when that was painted
async function readiness(page, ready) {
  return page.evaluate(`(async () => {
    ${PAINTED}
    const until = ${JSON.stringify(ready)};
    const deadline = performance.now() + ${PATIENCE};
    while (until && typeof window[until.split(".")[0]] === "undefined" && performance.now() < deadline)
      await new Promise((done) => setTimeout(done, 5));
    if (until) await eval("window." + until);
    const now = performance.now();
    const mark = performance.getEntriesByName("usable")[0];
    const [load] = performance.getEntriesByType("navigation");
    return { usable: mark ? mark.startTime : now, marked: Boolean(mark), painted: await painted(),
             loaded: load ? load.loadEventEnd : null, longest_task: Math.max(0, ...window.longTasks) };
  })()`);
}

// (milliseconds) of processor time that the page's main thread has taken: other than times, it does not depend on what
// else the machine does
async function cpu(client) {
  const { metrics } = await client.send("Performance.getMetrics");
  return 1000 * metrics.find((each) => each.name === "TaskDuration").value;
}

async function element(page, step) {
  const found = await page.$$(step.selector);
  const at = found[step.index ?? 0];
  if (!at) throw new Error(`nothing matches ${step.selector}${step.index ? ` [${step.index}]` : ""}`);
  return at;
}

const ACTS = {
  // {file | url, hash, width, height, scale, scheme: light|dark, motion: reduce, touch, ready, fresh}
  // → times in ms. `fresh`: with a storage of its own, like another person's browser.
  async open(step) {
    const name = step.page ?? "main";
    if (tabs.has(name)) await ACTS.close(step);
    const context = step.fresh ? await browser.createBrowserContext() : browser.defaultBrowserContext();
    const page = await context.newPage();
    const log = { errors: [], warnings: [], requests: [], allowed: 0 };
    const url = new URL(step.url ?? pathToFileURL(resolve(step.file)).href);
    url.hash = step.hash ?? url.hash;
    const own = url.href.split("#")[0];
    page.on("console", (said) => {
      if (said.type() === "error") log.errors.push(said.text());
      if (said.type() === "warn") log.warnings.push(said.text());
    });
    page.on("pageerror", (error) => log.errors.push(String(error?.stack ?? error)));
    page.on("request", (request) => {
      const asked = request.url();
      if (asked.split("#")[0] === own || /^(data|blob):/.test(asked)) log.allowed += 1;
      else log.requests.push(asked.slice(0, 300));
    });
    page.setDefaultTimeout(PATIENCE);
    await page.evaluateOnNewDocument(watch);
    await page.setViewport({
      width: step.width ?? 1400,
      height: step.height ?? 900,
      deviceScaleFactor: step.scale ?? 1,
      hasTouch: Boolean(step.touch),
      isMobile: Boolean(step.touch),
    });
    await page.emulateMediaFeatures(
      [
        { name: "prefers-color-scheme", value: step.scheme ?? "light" },
        ...(step.motion ? [{ name: "prefers-reduced-motion", value: step.motion }] : []),
      ],
    );
    const client = await page.createCDPSession();
    await client.send("Performance.enable", { timeDomain: "threadTicks" });
    tabs.set(name, { page, log, context, client, fresh: Boolean(step.fresh) });
    await page.goto(url.href, { waitUntil: "load", timeout: PATIENCE });
    const times = await readiness(page, step.ready === undefined ? "anchorscope.ready" : step.ready);
    return { ...times, cpu: await cpu(client) };
  },

  async close(step) {
    const { page, context, fresh } = tab(step);
    tabs.delete(step.page ?? "main");
    await (fresh ? context.close() : page.close());
  },

  async viewport(step) {
    await tab(step).page.setViewport({ width: step.width, height: step.height, deviceScaleFactor: step.scale ?? 1 });
    return ACTS.settle(step);
  },

  // {media: print|screen, scheme: light|dark}
  async media(step) {
    const { page } = tab(step);
    if (step.media) await page.emulateMediaType(step.media);
    if (step.scheme) await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: step.scheme }]);
    return ACTS.settle(step);
  },

  // two painted frames
  async settle(step) {
    await tab(step).page.evaluate(`(async () => { ${PAINTED} await painted(); await painted(); })()`);
  },

  // {selector, index | x, y}
  async click(step) {
    const { page } = tab(step);
    if (step.selector) {
      const at = await element(page, step);
      await at.scrollIntoView();
      await at.click({ count: step.count ?? 1, offset: step.offset });
    } else {
      await page.mouse.click(step.x, step.y);
    }
    return ACTS.settle(step);
  },

  // {selector, index | x, y}
  async hover(step) {
    const { page } = tab(step);
    if (step.selector) await (await element(page, step)).hover();
    else await page.mouse.move(step.x, step.y);
    return ACTS.settle(step);
  },

  async focus(step) {
    await (await element(tab(step).page, step)).evaluate((at) => at.focus()); // pictures too, which are no HTML
  },

  // {selector, text}: what stood there is replaced
  async type(step) {
    const at = await element(tab(step).page, step);
    await at.focus();
    await at.evaluate((input) => input.select?.());
    await tab(step).page.keyboard.press("Backspace");
    await at.type(step.text);
    return ACTS.settle(step);
  },

  // {key: "Tab", "ArrowDown", …, times, with: ["Shift"]} → what has the focus then
  async press(step) {
    const { page } = tab(step);
    for (const key of step.with ?? []) await page.keyboard.down(key);
    for (let i = 0; i < (step.times ?? 1); i += 1) await page.keyboard.press(step.key);
    for (const key of step.with ?? []) await page.keyboard.up(key);
    await ACTS.settle(step);
    return page.evaluate(() => {
      const at = document.activeElement;
      const name = at.getAttribute("aria-label") ?? at.getAttribute("name") ?? at.textContent.trim().slice(0, 60);
      return { tag: at.tagName.toLowerCase(), id: at.id, name, data: { ...at.dataset } };
    });
  },

  // {selector, value}
  async select(step) {
    const chosen = await tab(step).page.select(step.selector, step.value);
    if (!chosen.includes(step.value)) throw new Error(`${step.selector} has no option '${step.value}'`);
    return ACTS.settle(step);
  },

  // {expression}, awaited; what it gives must be JSON
  async evaluate(step) {
    return tab(step).page.evaluate(`(async () => (${step.expression}))()`);
  },

  // {expression, timeout}: until it is true
  async wait(step) {
    await tab(step).page.waitForFunction(step.expression, { timeout: step.timeout ?? PATIENCE, polling: "raf" });
  },

  // {act, until}: ms from the start of an expression until `until` is true (where given) and its frame is painted, and
  // ms of processor time meanwhile
  async timed(step) {
    const { page, client } = tab(step);
    const before = await cpu(client);
    const took = await page.evaluate(`(async () => {
      ${PAINTED}
      await painted();
      const start = performance.now();
      await (${step.act});
      const worked = performance.now();
      const limit = start + ${step.timeout ?? 20_000};
      let end = await painted();
      while (!(${step.until ?? "true"}) && end < limit) end = await painted();
      return { ms: end - start, script: worked - start, reached: Boolean(${step.until ?? "true"}) };
    })()`);
    return { ...took, cpu: (await cpu(client)) - before };
  },

  // {path, full, selector}
  async screenshot(step) {
    const { page } = tab(step);
    mkdirSync(dirname(resolve(step.path)), { recursive: true });
    await ACTS.settle(step);
    if (step.selector) await (await element(page, step)).screenshot({ path: step.path });
    else await page.screenshot({ path: step.path, fullPage: Boolean(step.full), captureBeyondViewport: Boolean(step.full) });
    return resolve(step.path);
  },

  // {path, format, landscape} → bytes
  async pdf(step) {
    mkdirSync(dirname(resolve(step.path)), { recursive: true });
    const made = await tab(step).page.pdf({
      path: step.path,
      format: step.format ?? "A4",
      landscape: Boolean(step.landscape),
      printBackground: step.background ?? true,
    });
    return { path: resolve(step.path), bytes: made.length };
  },

  // {within, tags, without: [rules]} → how many violations of each impact, and what they are
  async axe(step) {
    const { page } = tab(step);
    await page.evaluate(AXE);
    const options = {
      resultTypes: ["violations"],
      ...(step.tags ? { runOnly: { type: "tag", values: step.tags } } : {}),
      rules: Object.fromEntries((step.without ?? []).map((rule) => [rule, { enabled: false }])),
    };
    const found = await page.evaluate(
      (within, chosen) => window.axe.run(within ?? document, chosen),
      step.within ?? null,
      options,
    );
    const counts = { minor: 0, moderate: 0, serious: 0, critical: 0 };
    const violations = found.violations.map((each) => {
      counts[each.impact] += 1;
      const nodes = each.nodes.map((node) => ({
        at: node.target.join(" "),
        html: node.html.slice(0, 200),
        why: (node.failureSummary ?? "").split("\n").slice(1).join(" ").trim().slice(0, 300),
      }));
      return { rule: each.id, impact: each.impact, help: each.help, count: nodes.length, nodes: nodes.slice(0, 5) };
    });
    return { counts, violations, version: found.testEngine.version };
  },

  // after a garbage collection, in MB: the JS heap, typed arrays beside it, all of them, and the tab's process
  async memory(step) {
    const { client } = tab(step);
    await client.send("HeapProfiler.collectGarbage");
    const heap = await client.send("Runtime.getHeapUsage");
    const { metrics } = await client.send("Performance.getMetrics");
    const of = Object.fromEntries(metrics.map((each) => [each.name, each.value]));
    const whole = await browser.target().createCDPSession();
    const { processInfo } = await whole.send("SystemInfo.getProcessInfo");
    await whole.detach();
    const sizes = processInfo.filter((each) => each.type === "renderer").map((each) => resident(each.id));
    const mb = (bytes) => Math.round((10 * bytes) / 2 ** 20) / 10;
    const arrays = heap.backingStorageSize ?? 0;
    return {
      js_heap: mb(heap.usedSize),
      arrays: mb(arrays),
      heap_and_arrays: mb(heap.usedSize + arrays),
      process: mb(Math.max(0, ...sizes)), // the largest renderer: of this tab where it is the only one open
      nodes: of.Nodes,
      listeners: of.JSEventListeners,
    };
  },

  // console errors and warnings, requests other than the file itself, data: and blob:, since the page was opened
  async log(step) {
    return tab(step).log;
  },

  async version() {
    return { browser: await browser.version(), puppeteer: wants("puppeteer-core/package.json").version };
  },
};

function resident(pid) {
  try {
    const line = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
    return line ? 1024 * Number(line[1]) : 0;
  } catch {
    return 0; // it ended, or this is no Linux
  }
}

async function carryOut(step) {
  try {
    const act = ACTS[step.do];
    if (!act) throw new Error(`there is no step '${step.do}'; there are ${Object.keys(ACTS).join(", ")}`);
    return { ok: true, value: (await act(step)) ?? null };
  } catch (error) {
    return { ok: false, error: String(error?.message ?? error) };
  }
}

try {
  if (process.argv[2]) {
    const results = [];
    for (const step of JSON.parse(readFileSync(process.argv[2], "utf8"))) results.push(await carryOut(step));
    process.stdout.write(`${JSON.stringify(results, null, 1)}\n`);
    process.exitCode = results.every((each) => each.ok) ? 0 : 1;
  } else {
    for await (const line of createInterface({ input: process.stdin })) {
      if (line.trim()) process.stdout.write(`${JSON.stringify(await carryOut(JSON.parse(line)))}\n`);
    }
  }
} finally {
  await browser.close();
}
