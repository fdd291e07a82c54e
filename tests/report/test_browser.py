"""The report in a real browser: speed, links, keys, print, accessibility, escaping, and no requests.

`pip install playwright axe-playwright-python`, then `pytest tests/report/test_browser.py -m long -s`. The browser is
$CHROMIUM or /usr/bin/chromium. One report has the samples of the tests' own run, the other repeats them to 20,000.
Both contain hostile texts, and a comparison of three detectors. Times are printed, and asserted for a machine that does
nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import expit

import anchorscope.report.page.sample_data as sample_data
from anchorscope.api.detectors import compare_run
from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.compare import MEAN
from anchorscope.detectors.record import EvalPlan
from anchorscope.detectors.scored import read_comparison
from anchorscope.pathways.members import members
from anchorscope.probes.recorded import read_readouts
from anchorscope.progress import silent
from anchorscope.report.page.render import write_page
from anchorscope.store import Store
from anchorscope.traces.record import TRACES
from whole import GOOD, POINT, WholeRun

pytestmark = pytest.mark.long

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ALONE = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND"]  # nothing can be fetched; what is tried is counted
LARGE = 20_000
HOSTILE = (
    "</script><script>window.hostile = 1</script>",
    '<img src=x onerror="window.hostile = 2">',
    '"><svg onload="window.hostile = 3"></svg>',
    "<b id=hostile>bold</b>",
    "<!-- <script> <!--",
    "javascript:window.hostile=4",
    "{{ 7 * 7 }} {% raw %} ${window.hostile=5}",
    "&lt;i&gt; &amp;amp; &#x3C;u&#x3E;",
    "</style></title></textarea><h1 id=hostile>",
)
"""Texts that would do something if the page took them for markup; window.hostile and #hostile tell."""
DETECTORS = ("logprob_min", "question_only", "single_layer")
FOREIGN = (
    "<script>window.foreign = 1</script>",
    "<script src='data:text/javascript,window.foreign = 2'></script>",
    "<svg onload='window.foreign = 3'></svg>",
    "<base href='https://example.org/'>",
)
"""Markup that does something in a page without a policy."""
WATCH = """window.copied = null;
if (navigator.clipboard) navigator.clipboard.writeText = async (text) => { window.copied = String(text); };"""
PAINTED = """const painted = () => new Promise((done) => requestAnimationFrame(() => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => done(performance.now());
  channel.port2.postMessage(0);
}));"""

# --- the page's hooks: all that is known of it here
TAB, FILTER, CONTROL = "nav [data-tab={}]", "#filters select[name={}]", "#controls select[name={}]"
SEARCH, HEAD, ROW, DETAIL = "#search", "#rows th[data-column] button", "#rows [data-row]", "#detail"
DOTS, RULE, MORE = "#chart-detectors svg.picture", "#rule", "#filters details"
PICTURE, LEDGERS, VERDICT = "#chart svg.picture", "#verdicts details", "#verdicts [data-claim]"
IN_CHART = re.compile(r"\(([\d,]+) in the chart\)")  # in #why: how many samples the chart says there are
IN_NULL = "those of the cut itself"  # there too, where the chart's groups are no list of samples


# --- the reports


class Reports(NamedTuple):
    small: Path
    large: Path
    without_text: Path
    store: Store


@contextmanager
def repeated(times: int) -> Iterator[None]:
    """Pages have every sample this often; some answers are hostile texts."""
    traced, read = sample_data._traced, sample_data.read_readouts

    def more_rows(*arguments: Any) -> Iterator[Any]:
        for model, one, dataset, rows in traced(*arguments):
            hostile = [replace(row, answer=text) for row, text in zip(rows, HOSTILE, strict=False)]
            yield model, one, dataset, (hostile + rows[len(hostile) :]) * times

    def more_readouts(*arguments: Any) -> Any:
        recorded = read(*arguments)
        one = recorded.readouts
        many = {
            "labels": np.tile(one.labels, times),
            "clusters": np.tile(one.clusters, times),
            "probability": np.tile(one.probability, times),
            "logits": np.tile(one.logits, (1, 1, 1, times, 1)),
            "drift": np.tile(one.drift, (1, 1, 1, times, 1)),
            "fold": None if one.fold is None else np.tile(one.fold, (1, times)),
        }
        return replace(recorded, readouts=replace(one, **many))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_data, "_traced", more_rows)
        patch.setattr(sample_data, "read_readouts", more_readouts)
        yield


@pytest.fixture(scope="module")
def reports(whole: WholeRun, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    folder = tmp_path_factory.mktemp("reports")
    shutil.copytree(whole.store.root, folder / "run")
    names = [dataset.name for dataset in whole.study.datasets]
    with Store.writing(folder / "run", whole.study) as store:
        plan = EvalPlan(repeats=1, detectors=DETECTORS, light=True)
        compare_run(store, plan, [model.name for model in whole.study.models], names, silent, lambda text: None)
    store = Store.open(folder / "run")
    with repeated(1):
        small = write_page([store], folder / "small.html", names)
    samples = int(re.search(r'"rows":(\d+)', small.read_text(encoding="utf-8"))[1])
    with repeated(-(-LARGE // samples)):
        large = write_page([store], folder / "large.html", names)
    return Reports(small, large, write_page([store], folder / "without.html", []), store)


# --- the browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=ALONE)
        yield running
        running.close()


class Tab:
    """A report in a browser of its own, and what it logged and requested."""

    def __init__(self, browser: Any, url: str, **how: Any) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(viewport={"width": 1400, "height": 900}, **how)
        self.page = self.context.new_page()
        self.page.add_init_script(WATCH)
        self.page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        own = url.partition("#")[0]
        others = (own, "data:", "blob:")
        self.page.on("request", lambda asked: asked.url.startswith(others) or self.requests.append(asked.url))
        self.page.goto(url)
        self.run("window.anchorscope.ready.then(() => true)")

    def run(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({selector!r})?.innerText ?? ''"))

    def values(self, selector: str) -> list[str]:
        return list(self.run(f"[...(document.querySelector({selector!r})?.options ?? [])].map((each) => each.value)"))

    def tab(self, name: str) -> None:
        self.page.locator(TAB.format(name)).click()

    @property
    def tabs(self) -> list[str]:
        return list(self.run("[...document.querySelectorAll('nav [data-tab]')].map((tab) => tab.dataset.tab)"))

    @property
    def state(self) -> dict[str, Any]:
        return dict(self.run("({...window.anchorscope.state})"))

    @property
    def count(self) -> int:
        return int(self.run("window.anchorscope.count()"))

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def took(self, act: str) -> float:
        """Milliseconds of an action, until its frame is painted."""
        return float(self.run(f"(async () => {{ {PAINTED} await painted(); const from = performance.now(); {act}; "
                              "return (await painted()) - from; })()"))  # fmt: skip


Open = Callable[..., Tab]


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    tabs: list[Tab] = []

    def open_report(place: Path | str, **how: Any) -> Tab:
        tabs.append(Tab(browser, place if isinstance(place, str) else place.as_uri(), **how))
        return tabs[-1]

    yield open_report
    for tab in tabs:
        tab.context.close()


# --- what is asked of it


def choose(selector: str, value: str) -> str:
    """Script that changes an element and sends the events that a person's action would send."""
    return (f"const at = document.querySelector({selector!r}); at.value = {value!r}; "
            "for (const name of ['input', 'change']) at.dispatchEvent(new Event(name, { bubbles: true }))")  # fmt: skip


@pytest.mark.parametrize("size", ["small", "large"])
def test_it_is_small_and_fast(reports: Reports, opened: Open, size: str):
    file: Path = getattr(reports, size)
    usable = []
    for _ in range(3):
        tab = opened(file)
        usable.append(tab.run("performance.getEntriesByName('usable')[0].startTime"))
    tab.tab("samples")
    assert size == "small" or tab.count >= LARGE
    sets = tab.values(FILTER.format("set"))
    filtered = [tab.took(choose(FILTER.format("set"), value)) for value in sets * 4]
    searched = [tab.took(choose(SEARCH, text)) for text in ("who", "tower 1", "zzzz", "the", "")]
    heads = tab.page.locator(HEAD).count()
    ordered = [tab.took(f"document.querySelectorAll({HEAD!r})[{column}].click()") for column in range(heads)]
    took = {"usable": usable, "filter": filtered, "search": searched, "sort": ordered}
    medians = {name: round(statistics.median(values)) for name, values in took.items()}
    megabytes = file.stat().st_size / 2**20
    print(f"\n{size}: {megabytes:.1f} MB, milliseconds {medians}")
    assert (tab.errors, tab.requests) == ([], [])
    assert megabytes < 6  # repeated samples pack well, so the size of the large one says little
    assert medians["usable"] < 2000
    assert max(medians["filter"], medians["search"], medians["sort"]) < 150


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(reports: Reports, opened: Open, scheme: str):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    tab = opened(reports.small, color_scheme=scheme)
    for name in tab.tabs:
        tab.tab(name)
        if name == "samples":
            tab.page.locator(ROW).first.click()
        found = axe.run(tab.page).response["violations"]
        assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == [], name
    assert (tab.errors, tab.requests) == ([], [])


def test_no_part_is_wider_than_a_telephone(reports: Reports, opened: Open):
    tab = opened(reports.small, has_touch=True)
    tab.page.set_viewport_size({"width": 390, "height": 844})
    for name in tab.tabs:
        tab.run(f"document.querySelector({TAB.format(name)!r}).click()")
        assert tab.run("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)") <= 390, name


def test_a_copied_link_shows_the_same(reports: Reports, opened: Open):
    tab = opened(reports.small)
    for name in ("split", "stratum"):
        if values := tab.values(CONTROL.format(name)):
            tab.page.select_option(CONTROL.format(name), values[-1])
    tab.tab("samples")
    tab.page.select_option(FILTER.format("grade"), "right")
    tab.page.select_option(FILTER.format("set"), tab.values(FILTER.format("set"))[-1])
    tab.page.fill(SEARCH, "a")
    tab.page.locator(ROW).nth(2).click()
    tab.page.locator("[data-action=copy-link]").first.click()
    other = opened(tab.run("window.copied"))
    assert other.state == tab.state
    assert other.count == tab.count > 0
    assert other.text(DETAIL) == tab.text(DETAIL) != ""


def test_points_and_verdicts_open_their_samples(reports: Reports, opened: Open):
    tab = opened(reports.small)
    exact = 0
    for times in range(3, 9):
        tab.tab("overview")
        tab.page.locator(PICTURE).nth(times % tab.page.locator(PICTURE).count()).focus()
        tab.press(*["ArrowRight"] * times, "Enter")
        assert tab.state["tab"] == "samples"
        said = tab.text("#why")
        if IN_NULL not in said:
            exact += 1
            assert int(IN_CHART.search(said)[1].replace(",", "")) == tab.count
    assert exact > 0
    tab.tab("overview")
    tab.run(f"document.querySelector({LEDGERS!r}).open = true")
    tab.page.locator(VERDICT).first.click()
    assert tab.count > 0
    assert (tab.errors, tab.requests) == ([], [])


def test_everything_can_be_done_by_keys(reports: Reports, opened: Open):
    tab = opened(reports.small)
    focus = "document.activeElement"
    tab.press("Tab")
    assert "skip" in tab.run(f"{focus}.innerText").lower()
    tab.page.locator(TAB.format("overview")).focus()
    tab.press("ArrowRight")
    assert tab.run(f"{focus}.dataset.tab") == tab.tabs[1]
    ring = f"getComputedStyle({focus})"
    assert tab.run(f"{ring}.outlineStyle !== 'none' || {ring}.boxShadow !== 'none'")
    tab.press("/")
    assert tab.run(f"{focus}.id") == "search"
    tab.press("Escape", "j", "j")
    assert len(tab.text(DETAIL)) > 20
    row = str(tab.state["row"])
    tab.press("p")
    assert row in str(tab.state["pins"]).split(",")
    tab.press("?")
    assert tab.run("document.querySelector('dialog[open]') !== null")
    tab.press("Escape")
    assert tab.run("document.querySelector('dialog[open]') === null")
    paper = "[document.documentElement, document.body].map((at) => getComputedStyle(at).backgroundColor).join()"
    before = tab.run(paper)
    tab.press("t")
    assert tab.run(paper) != before
    tab.press("c")
    assert "#" in tab.run("window.copied")


def test_the_print_fits_a_page_and_has_no_buttons(reports: Reports, opened: Open):
    tab = opened(reports.small, color_scheme="dark")
    tab.page.emulate_media(media="print")
    tab.page.set_viewport_size({"width": 794, "height": 1123})
    assert tab.run("document.documentElement.scrollWidth") <= 794
    assert not tab.run("document.querySelector('[data-action=theme]')?.checkVisibility() ?? false")


def test_hostile_texts_are_shown_and_do_nothing(reports: Reports, opened: Open):
    tab = opened(reports.small)
    scripts = tab.run("document.scripts.length")
    tab.tab("samples")
    for text in HOSTILE:
        tab.page.fill(SEARCH, text)
        assert tab.count > 0, text
        tab.page.locator(ROW).first.click()
        assert text.lower() in (tab.text(DETAIL) + tab.text("#rows")).lower()
    for name in tab.tabs:
        tab.tab(name)
    assert tab.run("typeof window.hostile === 'undefined' && document.querySelector('#hostile, img, iframe') === null")
    assert tab.run("document.scripts.length") == scripts
    assert (tab.errors, tab.requests) == ([], [])


def test_what_somebody_put_into_the_file_does_not_run(reports: Reports, opened: Open, tmp_path: Path):
    page = reports.small.read_text(encoding="utf-8")
    (tmp_path / "foreign.html").write_text(page.replace("<body>", f"<body>{''.join(FOREIGN)}", 1), encoding="utf-8")
    tab = opened(tmp_path / "foreign.html")
    assert tab.run("typeof window.foreign === 'undefined' && document.baseURI.startsWith('file:')")
    assert len([error for error in tab.errors if "Content Security Policy" in error]) == len(FOREIGN)
    assert tab.requests == []


def test_a_report_without_text_holds_no_question(reports: Reports, opened: Open):
    tab = opened(reports.without_text)
    tab.tab("samples")
    tab.page.fill(SEARCH, "q1")
    assert tab.count > 0
    tab.page.fill(SEARCH, "tower")
    assert tab.count == 0
    assert "near the tower" not in tab.run("document.documentElement.textContent")


def test_every_address_has_the_word_of_its_tab(reports: Reports, opened: Open):
    tab = opened(reports.small)
    for name in tab.tabs:
        assert tab.text(TAB.format(name)).lower().startswith(name)
        assert opened(f"{reports.small.as_uri()}#tab={name}").state["tab"] == name
    for old, new in {"explorer": "samples", "nulls": "controls"}.items():
        assert opened(f"{reports.small.as_uri()}#tab={old}").state["tab"] == new


# the dots, with their intervals and levels, in pixels: (name, value, x, interval's ends; row)
READ_DOTS = """(picture) => ({
  level: Number(picture.querySelector('line.level').getAttribute('x1')),
  names: [...picture.querySelectorAll('text.name')].map((text) => text.textContent),
  dots: [...picture.querySelectorAll('circle[r="4.5"]')].map((dot) => Number(dot.getAttribute('cx'))),
  bars: [...picture.querySelectorAll('line[stroke-width="2"]')].map((bar) =>
    ['x1', 'x2'].map((end) => Number(bar.getAttribute(end)))),
})"""


@pytest.mark.parametrize(("place", "measure", "level"), [(0, "auroc", 0.5), (1, "beyond_question", 0.0)])
def test_detectors_open_with_dots_in_the_order_of_their_values(
    reports: Reports, opened: Open, place: int, measure: str, level: float
):
    rows = [row for row in read_comparison(reports.store) if (row.model, row.dataset) == ("all", MEAN)]
    rows = sorted((row for row in rows if row.measure == measure), key=lambda row: -row.value)
    tab = opened(f"{reports.small.as_uri()}#tab=detectors")
    drawn = tab.page.locator(DOTS).nth(place).evaluate(READ_DOTS)
    assert drawn["names"] == [catalogue()[row.detector].title for row in rows]
    values = [level, *(row.value for row in rows), *(row.low for row in rows), *(row.high for row in rows)]
    lows, highs = zip(*drawn["bars"], strict=True)
    pixels = [drawn["level"], *drawn["dots"], *lows, *highs]
    slope, start = np.polyfit(values, pixels, 1)
    assert slope > 0
    assert np.abs(slope * np.array(values) + start - pixels).max() < 0.01  # one scale for all of them
    tab.page.locator(DOTS).nth(place).focus()
    tab.press("ArrowRight", "Enter")
    assert (tab.state["tab"], tab.state["detector"]) == ("samples", rows[0].detector)
    assert tab.count > 0


def test_samples_open_with_the_right_answer_that_falls_most(reports: Reports, opened: Open, tmp_path: Path):
    plain = write_page([reports.store], tmp_path / "plain.html", [each.name for each in reports.store.study.datasets])
    falls = []
    for model, dataset in GOOD:  # the others are too small to be read
        ids = [row.id for row in reports.store.results(model, dataset).table(TRACES)]
        read = read_readouts(reports.store, model, dataset, POINT).readouts
        layer = members(read, ()).anchor_layer
        for i, name in enumerate(ids):
            clean, cut = (
                np.mean(expit(read.logits[read.conditions.index(each), :, 0, i, layer].astype(float)))
                for each in ("clean", "knockout")
            )
            if read.labels[i] and clean >= 0.9:
                falls.append((cut - clean, model, dataset, name, clean, cut))
    _, model, dataset, name, clean, cut = min(falls)
    tab = opened(f"{plain.as_uri()}#tab=samples")
    assert f"from {100 * clean:.0f} to {100 * cut:.0f} %" in tab.text(RULE)
    assert f"the {len(falls)} listed answers" in tab.text(RULE)
    for said in (f"{model}, {dataset}", name):
        assert said.lower() in tab.text(DETAIL).lower()
    tab.page.select_option(FILTER.format("grade"), "wrong")
    assert tab.text(RULE) == ""
    tab.page.locator(ROW).first.click()
    tab.page.select_option(FILTER.format("grade"), "")
    assert tab.text(RULE) == ""  # somebody chose this one


def test_five_filters_are_seen_and_the_others_open(reports: Reports, opened: Open):
    tab = opened(f"{reports.small.as_uri()}#tab=samples&layer=1")
    fields = tab.page.locator("#filters input, #filters select")
    assert [each.is_visible() for each in fields.all()] == [True] * 5 + [False] * (fields.count() - 5)
    assert tab.text(f"{MORE} summary") == "More filters (1 in use)"
    tab.page.locator(f"{MORE} summary").click()
    assert all(each.is_visible() for each in fields.all())
    tab.page.locator("[data-action=reset]").click()
    assert tab.text(f"{MORE} summary") == "More filters"
    assert fields.last.is_visible()
