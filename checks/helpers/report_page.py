"""What is checked of one report in a browser; each check opens the page anew and gives numbers and `ok`."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anchorscope.questions.record import QUESTIONS
from anchorscope.store import Store
from anchorscope.traces.record import TRACES
from helpers.browser import Browser, BrowserError
from helpers.made_up_texts import FOREIGN, HOSTILE

# --- the page's hooks: all that is known of it here
TABS = "nav [data-tab]"
TAB = "nav [data-tab={}]"
CONTROL = "#controls select[name={}]"
FILTER = "#filters select[name={}]"
PICTURE = "#chart svg.picture"
LEDGERS = "#verdicts details"
VERDICT = "#verdicts [data-claim]"
SEARCH = "#search"
HEAD = "#rows th[data-column]"
ROW = "#rows [data-row]"
DETAIL = "#detail"
ACTION = "[data-action={}]"
STATE = "({...window.anchorscope.state})"
COUNT = "window.anchorscope.count()"
FIRST = f"[...document.querySelectorAll('{ROW}')].slice(0, 8).map((row) => row.dataset.row)"
PAPER = "[document.documentElement, document.body].map((at) => getComputedStyle(at).backgroundColor).join()"
IN_CHART = re.compile(r"\(([\d,]+) in the chart\)")  # in #why: how many samples the chart says there are
IN_NULL = "the groups of the cut itself"  # there too, where the chart's groups are no list of samples
FILTERS = ("model", "set", "group", "grade", "predicted", "verdict", "error")
CONTROLS = ("split", "correction", "stratum")

Numbers = dict[str, Any]


def said(selector: str) -> str:
    """An expression: the text that an element shows."""
    return f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"


def both(took: Sequence[Numbers]) -> Numbers:
    """Times by the clock and of CPU time, which other work on the machine does not change."""
    return {**middle([each["ms"] for each in took]), "cpu": middle([each["cpu"] for each in took])}


def middle(values: Sequence[float]) -> Numbers:
    """Median and largest of some times, in milliseconds."""
    return {"median": round(statistics.median(values), 1), "max": round(max(values), 1), "n": len(values)}


class Checks:
    """The checks of one report; each gives numbers and `ok`."""

    def __init__(self, browser: Browser, file: Path, shots: Path) -> None:
        self.browser, self.file, self.shots = browser, file, shots

    def open(self, page: str = "main", **how: Any) -> Any:
        """Open the report in a tab."""
        return self.browser("open", page, file=self.file, **how)

    def tab(self, name: str) -> None:
        """Open a part of the report."""
        self.browser("click", selector=TAB.format(name))

    def press(self, key: str, times: int = 1) -> Any:
        """Press a key and return the element that has the focus afterwards."""
        return self.browser("press", key=key, times=times)

    def tabs(self) -> list[str]:
        """The parts of the report."""
        every: list[str] = self.browser.run(f"[...document.querySelectorAll('{TABS}')].map((tab) => tab.dataset.tab)")
        return every

    def shot(self, name: str, **how: Any) -> None:
        """Keep a screenshot."""
        self.browser("screenshot", path=self.shots / f"{self.file.stem}-{name}.png", **how)

    def quiet(self) -> Numbers:
        """Console errors and network requests since the report was opened."""
        log = self.browser("log")
        return {"errors": log["errors"], "requests": log["requests"], "ok": not log["errors"] and not log["requests"]}

    # --- speed

    def loads(self, count: int = 5) -> Numbers:
        """Time from the start of navigation until the page can be used, and until it is painted."""
        every = [self.open(fresh=True) for _ in range(count)]
        times = {what: middle([each[what] for each in every]) for what in ("usable", "painted", "cpu")}
        return {**times, "ok": all(each["marked"] for each in every)}

    def memory(self) -> Numbers:
        """Memory after loading, and after every part was opened and every column sorted."""
        self.open(fresh=True)
        loaded = self.browser("memory")
        for name in self.tabs():
            self.tab(name)
        self.tab("explorer")
        for column in range(len(self.columns())):
            self.browser("click", selector=f"{HEAD} button", index=column)
        seen = self.browser("memory")
        return {"loaded": loaded, "seen": seen, **self.quiet()}

    def columns(self) -> list[str]:
        """The columns of the explorer's table."""
        every: list[str] = self.browser.run(f"[...document.querySelectorAll('{HEAD}')].map((th) => th.dataset.column)")
        return every

    def filters(self, times: int = 10) -> Numbers:
        """Time from a change of a filter, the search or the order until its frame is painted."""
        self.open(fresh=True)
        self.tab("explorer")
        choices = [(name, value) for name in FILTERS for value in self.options(FILTER.format(name)) if value]
        filtered, searched, ordered = [], [], []
        for name, value in (choices * times)[:times]:
            for each in (value, ""):
                act = f"choose({json.dumps(FILTER.format(name))}, {json.dumps(each)})"
                filtered.append(self._timed(act, f"window.anchorscope.state.{name} === {json.dumps(each)}"))
        for text in ("who", "which city", "born", "popqa-test-1", "x", "é", "opera", "zzzz", "the", "")[:times]:
            act = f"choose({json.dumps(SEARCH)}, {json.dumps(text)})"
            searched.append(self._timed(act, f"window.anchorscope.state.search === {json.dumps(text)}"))
        columns = self.columns()
        for column in (columns * times)[:times]:
            act = f"document.querySelector('#rows th[data-column={column}] button').click()"
            ordered.append(self._timed(act, f"window.anchorscope.state.sort === {json.dumps(column)}"))
        return {
            "filter": both(filtered),
            "search": both(searched),
            "sort": both(ordered),
            **self.quiet(),
        }

    def _timed(self, act: str, until: str) -> Numbers:
        """The time of an action that changes an element and sends the events that a person's action would send."""
        choose = (
            "const choose = (selector, value) => { const at = document.querySelector(selector); at.value = value; "
            "for (const name of ['input', 'change']) at.dispatchEvent(new Event(name, { bubbles: true })); };"
        )
        took = self.browser("timed", act=f"(() => {{ {choose} {act} }})()", until=until)
        if not took["reached"]:
            raise BrowserError(f"{act}: the state did not follow")
        return dict(took)

    def options(self, selector: str) -> list[str]:
        """The values of a selection."""
        at = f"document.querySelector({json.dumps(selector)})?.options ?? []"
        every: list[str] = self.browser.run(f"[...({at})].map((option) => option.value)")
        return every

    # --- what it is like to use

    def access(self) -> Numbers:
        """Serious and critical violations that axe-core finds in every part, light and dark."""
        found: Numbers = {}
        for scheme in ("light", "dark"):
            self.open(scheme=scheme, fresh=True)
            for name in self.tabs():
                self.tab(name)
                if name == "explorer":
                    self.browser("click", selector=ROW)
                if name == "overview" and self.browser.run(f"document.querySelector('{LEDGERS}') !== null"):
                    self.browser.run(f"document.querySelector('{LEDGERS}').open = true")
                    self.browser("settle")
                bad = [v for v in self.browser("axe")["violations"] if v["impact"] in ("serious", "critical")]
                if bad:
                    found[f"{scheme}, {name}"] = [{k: v[k] for k in ("rule", "count", "nodes")} for v in bad]
                self.shot(f"{scheme}-{name}")
        return {"violations": found, "ok": not found, "quiet": self.quiet()}

    def narrow(self, width: int = 390) -> Numbers:
        """Parts that are wider than the window of a telephone."""
        self.open(width=width, height=844, scale=2, touch=True, fresh=True)
        wide = {}
        for name in self.tabs():
            self.browser.run(f"document.querySelector('{TAB.format(name)}').click()")
            self.browser("settle")
            got = self.browser.run("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
            if got > width:
                wide[name] = got
            self.shot(f"narrow-{name}")
        return {"wider": wide, "ok": not wide, "quiet": self.quiet()}

    def links(self) -> Numbers:
        """Whether a copied link shows the same switches, filters and sample in another browser."""
        self.open(fresh=True)
        for name in CONTROLS:
            self.browser("select", selector=CONTROL.format(name), value=self.options(CONTROL.format(name))[-1])
        self.tab("explorer")
        for name, value in (("grade", "right"), ("set", "1")):
            self.browser("select", selector=FILTER.format(name), value=value)
        self.browser("type", selector=SEARCH, text="a")
        self.browser("click", selector=f"{HEAD} button", index=1)
        self.browser("click", selector=ROW, index=2)
        self.browser("click", selector=ACTION.format("copy-link"))
        here, link = self._seen(), self.browser.run("window.copied")
        self.browser("open", "other", url=link, fresh=True)
        there = self._seen("other")
        self.browser("close", "other")
        apart = {name: [here[name], there[name]] for name in here if here[name] != there[name]}
        return {"link": link.partition("#")[2], "count": here["count"], "apart": apart, "ok": not apart}

    def _seen(self, page: str = "main") -> Numbers:
        run = self.browser.run
        return {
            "state": run(STATE, page),
            "count": run(COUNT, page),
            "rows": run(FIRST, page),
            "detail": run(said(DETAIL), page)[:2000],
            "filters": run(
                f"[...document.querySelectorAll('{FILTER.format('set')}, {SEARCH}')].map((x) => x.value)", page
            ),
        }

    def drills(self, points: int = 8) -> Numbers:
        """Whether points of the chart and verdicts open their samples, and as many as the chart says."""
        self.open(fresh=True)
        pictures = int(self.browser.run(f"document.querySelectorAll('{PICTURE}').length"))
        exact: list[list[int]] = []
        null: list[list[int]] = []  # another answer's shift sorts anew in every draw: no list of samples is its group
        for i in range(points):
            self.tab("overview")
            self.browser("focus", selector=PICTURE, index=i % pictures)
            self.press("ArrowRight", times=3 + 5 * i)
            self.press("Enter")
            of_null = IN_NULL in self.browser.run(said("#why"))
            (null if of_null else exact).append(self._opened())
        self.tab("overview")
        exact.append(self._clicked())
        verdicts = self._verdicts()
        return {
            "chart and explorer": exact,
            "of the null": null,
            "verdicts": verdicts,
            "ok": all(chart == shown for chart, shown in exact)
            and all(shown > 0 for _, shown in null)
            and all(count > 0 for count in verdicts.values()),
            "quiet": self.quiet(),
        }

    def _opened(self) -> list[int]:
        """How many samples the chart says there are, and how many the explorer shows."""
        found = IN_CHART.search(self.browser.run(said("#why")))
        at = self.browser.run("window.anchorscope.state.tab")
        if found is None or at != "explorer":
            return [-1, 0]
        return [int(found[1].replace(",", "")), int(self.browser.run(COUNT))]

    def _clicked(self) -> list[int]:
        """Click on what is nearest to the middle of the first picture that has a point there."""
        for share in (0.5, 0.3, 0.7, 0.4, 0.6, 0.2, 0.8):
            self.browser.run(f"document.querySelector('{PICTURE}').scrollIntoView({{ block: 'center' }})")
            box = self.browser.run(f"document.querySelector('{PICTURE}').getBoundingClientRect().toJSON()")
            place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + share * box["height"]}
            self.browser("click", **place)
            if self.browser.run("window.anchorscope.state.tab") == "explorer":
                return self._opened()
        return [-1, 0]

    def _verdicts(self, most: int = 6) -> dict[str, int]:
        """By claim, how many samples its verdict opens."""
        opened: dict[str, int] = {}
        self.tab("overview")
        if not self.browser.run(f"document.querySelectorAll('{LEDGERS}').length"):
            return opened
        self.browser.run(f"document.querySelector('{LEDGERS}').open = true")
        self.browser("settle")
        names = self.browser.run(f"[...document.querySelectorAll('{VERDICT}')].map((at) => at.dataset.claim)")
        for at in range(0, len(names), max(1, len(names) // most)):
            self.tab("overview")
            self.browser("click", selector=VERDICT, index=at)
            opened[f"{names[at]} {at}"] = self.browser.run(COUNT)
        return opened

    def keys(self) -> Numbers:
        """Whether everything can be done by keys, and the focus is visible."""
        self.open(fresh=True)
        press, run = self.press, self.browser.run
        held: dict[str, bool] = {}
        held["the first stop skips the menu"] = "skip" in press("Tab")["name"].lower()
        self.browser("focus", selector=TAB.format("overview"))
        held["an arrow goes to the next part"] = press("ArrowRight")["data"].get("tab") == self.tabs()[1]
        ring = "getComputedStyle(document.activeElement)"
        held["focus is seen"] = run(f"{ring}.outlineStyle !== 'none' || {ring}.boxShadow !== 'none'")
        held["a slash goes to the search"] = press("/")["id"] == "search"
        press("Escape")
        press("j", times=2)
        row = run("window.anchorscope.state.row")
        held["j chooses a sample"] = row not in ("", None) and len(run(said(DETAIL))) > 20
        press("p")
        held["p pins it"] = str(row) in str(run("window.anchorscope.state.pins")).split(",")
        press("?")
        held["a question mark opens the keys"] = run("document.querySelector('dialog[open]') !== null")
        press("Escape")
        held["escape closes them"] = run("document.querySelector('dialog[open]') === null")
        before = run(PAPER)
        press("t")
        held["t changes the theme"] = run(PAPER) != before
        press("c")
        held["c copies the link"] = "#" in str(run("window.copied"))
        return {**held, "ok": all(held.values()), "quiet": self.quiet()}

    def printing(self) -> Numbers:
        """Whether the print fits a page and has no buttons."""
        self.open(scheme="dark", fresh=True)
        made = self.browser("pdf", path=self.shots / f"{self.file.stem}.pdf")
        pages = len(re.findall(rb"/Type\s*/Page\b", Path(made["path"]).read_bytes()))
        self.browser("media", media="print")
        self.browser("viewport", width=794, height=1123)
        wide = self.browser.run("document.documentElement.scrollWidth")
        tools = self.browser.run(f"document.querySelector('{ACTION.format('theme')}')?.checkVisibility() ?? false")
        self.shot("print", full=True)
        self.browser("media", media="screen")
        return {
            "pages": pages,
            "bytes": made["bytes"],
            "width": wide,
            "buttons": tools,
            "ok": wide <= 794 and not tools,
        }

    def escaping(self) -> Numbers:
        """Whether hostile texts are shown as text, and do nothing."""
        self.open(fresh=True)
        scripts = "document.querySelectorAll('script').length"
        before, shown = self.browser.run(scripts), {}
        self.tab("explorer")
        for text in HOSTILE:
            self.browser("type", selector=SEARCH, text=text)
            if self.browser.run(COUNT) == 0:
                continue
            self.browser("click", selector=ROW)
            whole = self.browser.run(said(DETAIL)) + self.browser.run(said("#rows"))
            shown[text] = " ".join(text.split()).lower() in " ".join(whole.split()).lower()
        self.browser("type", selector=SEARCH, text="")
        for name in self.tabs():
            self.tab(name)
        harmed = self.browser.run(
            "typeof window.hostile !== 'undefined' || document.querySelector('#hostile, img, iframe, object') !== null"
        )
        same = self.browser.run(scripts) == before
        return {
            "shown as text": sum(shown.values()),
            "not shown": [text for text, seen in shown.items() if not seen],
            "ok": bool(shown) and all(shown.values()) and not harmed and same,
            "quiet": self.quiet(),
        }

    def foreign(self) -> Numbers:
        """Whether the browser refuses what somebody else has put into the file, and runs the page's own script."""
        page, copy = self.file.read_text(encoding="utf-8"), self.file.with_name(f"{self.file.stem}-foreign.html")
        copy.write_text(page.replace("<body>", f"<body>{''.join(FOREIGN)}", 1), encoding="utf-8")
        usable = self.browser("open", file=copy, fresh=True)["marked"]
        ran = self.browser.run("typeof window.foreign !== 'undefined' || !document.baseURI.startsWith('file:')")
        log = self.browser("log")
        refused = [error for error in log["errors"] if "Content Security Policy" in error]
        ok = usable and not ran and len(refused) == len(FOREIGN) == len(log["errors"]) and not log["requests"]
        return {"refused": refused, "ran": ran, "usable": usable, "ok": ok}

    def without_text(self, store: Store) -> Numbers:
        """Whether a report with `--text none` finds a sample by its id and holds no question or answer."""
        cell = (store.study.models[0].name, store.study.datasets[0].name)
        row = next(row for row in store.results(*cell).table(TRACES) if len(row.question) > 20)
        asked = next(each for each in store.questions(cell[1]).table(QUESTIONS) if each.id == row.id)
        self.open(fresh=True)
        self.tab("explorer")
        self.browser("type", selector=SEARCH, text=row.id)
        found = self.browser.run(COUNT)
        self.browser("click", selector=ROW)
        whole = self.browser.run("document.documentElement.textContent")
        held = [text for text in (row.question, row.answer, *asked.answers) if len(text) > 6 and text in whole]
        self.browser("type", selector=SEARCH, text=max(row.question.split(), key=len))
        by_text = self.browser.run(COUNT)
        return {"found by id": found, "found by text": by_text, "ok": found > 0 and not held and not by_text}
