"""How a judged response is shown: nothing of a text is lost or becomes markup, and flags are the detector's own."""

from __future__ import annotations

import io
import os
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from anchorscope.cli.words import in_console
from anchorscope.words import view
from anchorscope.words.record import Judged, JudgedWord, Message, Span, Text

FILM = "The film was made in 1987 by Steven Spielberg."
HOSTILE = (
    "</script><script>window.hostile = 1</script>",
    '<img src=x onerror="window.hostile = 2">',
    """"'><svg onload='window.hostile = 3'></svg>""",
    "<b id=hostile>bold</b>",
    "<!-- <script> <!-- ]]> --!>",
    "&lt;i&gt; &amp;amp; &#x3C;u&#x3E; &nbsp",
    "</style></title></textarea><plaintext>",
    "tabs\tand\r\nline ends\rand   spaces ",
    " white space around \n\n",
    "\u202eleft to right\u202c and العربية عام 1987, עברית",
    "a\u2028line\u2029 of \N{FAMILY} e\u0301 and 👩‍👩‍👧",
)
"""Texts that would do something if a page took them for markup."""


def judged(
    response: str,
    p_wrong: Sequence[float] = (),
    threshold: float | None = 0.5,
    lost: Sequence[float] | None = None,
    **of_text: Any,
) -> Judged:
    """A response whose words have these probabilities, over and over."""
    text = Text("the id", response, **of_text)
    rows = enumerate(text.words if p_wrong else ())
    found = [
        JudgedWord(start, end, p_wrong[i % len(p_wrong)], None if lost is None else lost[i % len(lost)])
        for i, (start, end) in rows
    ]
    return Judged(text, tuple(found), threshold)


def coloured(one: Judged) -> str:
    """The text of the coloured form."""
    return "".join(part for part, _ in view.styled(one))


FLAGGED = judged(FILM, [0.1, 0.2, 0.1, 0.1, 0.2, 0.91, 0.3, 0.7, 0.78])


class Tree(HTMLParser):
    """The elements of a page, the text of each response, and the pieces of it that have classes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: Counter[str] = Counter()
        self.responses: list[str] = []
        self.pieces: list[tuple[str, dict[str, str | None]]] = []
        self.titles: list[str] = []
        self.code: dict[str, list[str]] = {"script": [], "style": []}
        self.policy = ""
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags[tag] += 1
        self.attributes.update(given.keys())
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        if given.get("class") == "text":
            self.responses.append("")
        if tag in self.code:
            self.code[tag].append("")
        if tag not in ("meta", "link", "input"):
            self._open.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for tag, attributes in self._open:
            if attributes.get("class") == "text":
                self.responses[-1] += data
                self.pieces.append((data, {**attributes, **self._open[-1][1]}))
            if tag in self.code:
                self.code[tag][-1] += data

    @property
    def flagged(self) -> list[str]:
        """Runs of flagged text."""
        runs = [""]
        for text, attributes in self.pieces:
            flag = "f" in (attributes["class"] or "").split()
            runs = [*runs[:-1], runs[-1] + text] if flag else [*runs, ""]
        return [run for run in runs if run]


TAGS = {"div", "style", "p", "b", "label", "span", "input", "button", "fieldset", "legend", "ul", "li", "section", "i",
        "details", "summary", "dl", "dt", "dd", "script"}  # fmt: skip
ATTRIBUTES = {"id", "class", "hidden", "type", "min", "max", "step", "value", "aria-hidden", "aria-label", "disabled",
              "role", "name", "checked", "dir", "data-by", "data-p", "data-word", "data-count", "title"}  # fmt: skip
ITS_OWN_PAGE = {"html", "head", "meta", "link", "title", "body", "main", "header", "h1"}


def everywhere(text: str) -> list[Judged]:
    """Responses that have a text wherever somebody else may write one."""
    spans = (Span(1, 4, True), Span(3, 9, True))
    asked = {"prompt": text, "passage": text + "!", "cluster": text}
    chat = {"messages": (Message(text, text),), "passage": text}
    return [
        Judged(Text(text, text, writer=text, spans=spans), (), 0.5, reason=text),
        judged(text, [0.9, 0.3, 0.6], lost=[-1.0, 0.7, 9.0], spans=spans, writer=text, **asked),
        judged(text, [0.9, 0.3, 0.6], threshold=None, **chat),
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_shown_as_it_is_and_makes_no_element(text: str):
    of_page, plain_page = (Tree(view.page(everywhere(each), each)) for each in (text, "plain words of a response"))
    of_html = Tree(view.html(everywhere(text)))
    assert of_page.responses == of_html.responses == [text] * 3
    assert set(of_html.tags) <= TAGS
    assert set(of_page.tags) <= TAGS | ITS_OWN_PAGE
    assert set(of_html.attributes) <= ATTRIBUTES
    assert {tag: of_page.tags[tag] for tag in ("script", "style", "section", "p")} == {
        tag: plain_page.tags[tag] for tag in ("script", "style", "section", "p")
    }


@settings(max_examples=60)
@given(st.text(max_size=40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=3))
def test_any_text_can_be_shown_with_any_marks(text: str, marks: list[tuple[int, int]]):
    one = judged(text, [0.9, 0.3], spans=tuple(Span(start, end, True) for start, end in marks))
    shown = view.page([one], text)
    shown.encode()
    (response,) = Tree(shown).responses
    assert len(response) == len(text)
    assert all(a == b or not a.isprintable() for a, b in zip(text, response, strict=True))
    assert "".join(text[piece.start : piece.end] for piece in view.pieces(one)) == text
    for said in (view.plain(one), coloured(one)):
        assert all(char in "\n\t" or (char >= " " and not "\x7f" <= char < "\xa0") for char in said)


def test_control_characters_are_signs():
    one = judged("a \0word \x1b[31m and \ud800 half", [0.9])
    assert Tree(view.html([one])).responses == ["a ␀word ␛[31m and � half"]
    assert coloured(one) == "a ␀word ␛[31m and � half"
    assert "␛" in view.plain(one)


def test_a_terminal_gets_no_sign_that_turns_a_line_around():
    assert view.plain(judged("abc \u202e def\r\u2066", [0.1])) == "abc � def␍�"


def test_flagged_runs_are_in_brackets():
    assert view.plain(FLAGGED) == str(FLAGGED) == "The film was made in [1987 0.91] by [Steven Spielberg 0.78]."


@pytest.mark.parametrize(
    ("response", "shown"),
    [
        ("made in 1987 [3]", "[[made in 1987 [3 0.90]]]"),
        ("[[1987 0.91]]", "[[[[[1987 0.91 0.90]]]]]"),
        ("\n\n 1987 \n", "[1987 0.90]"),
    ],
)
def test_brackets_of_the_response_are_shorter_than_ours(response: str, shown: str):
    assert view.plain(judged(response, [0.9])) == shown


def test_what_people_marked_and_the_reason_have_lines_of_their_own():
    spans = (Span(29, 35, True), Span(33, 45, True), Span(0, 8, None), Span(4, 8, False))
    one = Judged(Text("a", FILM, spans=spans), (), reason="it has no passage")
    assert view.plain(one).splitlines() == [
        FILM,
        'Marked as wrong by people: "Steven Spielberg"',
        "Not judged: it has no passage",
    ]
    html = view.html([one])
    assert Tree(html).responses == [FILM]
    assert "Not judged: it has no passage" in html
    assert "<input" not in html
    assert coloured(one) == f"{FILM}\nNot judged: it has no passage"


def test_the_page_flags_the_runs_of_the_detector():
    runs = [FILM[run.start : run.end] for run in FLAGGED.flagged()]
    tree = Tree(view.html([FLAGGED]))
    assert tree.flagged == runs == ["1987", "Steven Spielberg"]
    assert [text for text, given in tree.pieces if "data-word" in given] == FILM.rstrip(".").split()
    assert "<b>3</b> flagged" in view.html([FLAGGED])
    assert {given["title"] for text, given in tree.pieces if text == "1987"} == {"P(wrong) 0.91"}


def test_white_space_around_a_response_takes_no_room():
    one = judged("\n\n A word. \n", [0.9], spans=(Span(0, 20, True),))
    hidden = [text for text, attributes in Tree(view.html([one])).pieces if "hidden" in attributes]
    assert hidden == ["\n\n ", " \n"]
    assert coloured(one) == "A word."


def test_marks_of_people_may_begin_inside_a_word():
    one = judged(FILM, [0.9], spans=(Span(6, 12, True),), lost=[0.25])
    tree = Tree(view.html([one]))
    assert tree.responses == [FILM]
    assert tree.flagged == [FILM.rstrip(".")]
    words = [text for text, given in tree.pieces if "data-word" in given]
    assert " ".join(words) == "The fi was made in 1987 by Steven Spielberg"  # a word is counted where it begins
    assert [text for text, given in tree.pieces if given.get("data-word") == "wrong"] == ["fi", "was"]
    assert dict(tree.pieces)["lm"]["title"] == "P(wrong) 0.90\n0.25 nats lost without the passage"
    assert '<b data-count="caught">2</b> of the 2 that people' in view.html([one])


def test_without_a_threshold_nothing_is_flagged():
    one = judged(FILM, [0.99], threshold=None)
    assert view.plain(one) == FILM
    assert Tree(view.html([one])).flagged == []
    assert not any("bold" in style for _, style in view.styled(one))


def test_a_choice_of_shades_is_offered_where_both_numbers_exist():
    assert "<fieldset" not in view.html([FLAGGED])
    assert "<fieldset" in view.html([FLAGGED, judged(FILM, [0.9], lost=[1.0])])


def test_nothing_can_be_shown():
    assert Tree(view.html([])).responses == []
    assert Tree(view.html([judged("")])).responses == [""]
    assert view.plain(judged("")) == ""


def test_an_object_shows_itself_in_a_notebook():
    assert FLAGGED._repr_html_() == view.html([FLAGGED])


def written(one: Judged, **of_console: Any) -> str:
    console = Console(file=io.StringIO(), width=200, highlight=False, **of_console)
    console.print(in_console(one, console))
    return console.file.getvalue()


def test_a_terminal_shows_colours_and_a_file_brackets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    in_colour = written(FLAGGED, force_terminal=True, color_system="truecolor")
    assert re.search(r"\x1b\[1;[^m]*48;2;[^m]*m1987\x1b", in_colour)
    assert re.sub(r"\x1b\[[^m]*m", "", in_colour) == f"{FILM}\n"
    assert written(FLAGGED) == f"{view.plain(FLAGGED)}\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert written(FLAGGED, force_terminal=True, color_system="truecolor") == f"{view.plain(FLAGGED)}\n"


def test_markup_of_the_console_is_text():
    one = judged("[bold]not bold[/bold] [link=file:///x]x[/]", [0.1])
    for force in (True, False):
        said = written(one, force_terminal=force, color_system="truecolor" if force else None)
        assert re.sub(r"\x1b\[[^m]*m", "", said) == f"{one.text.response}\n"


def test_words_in_a_terminal_are_shaded_by_probability_and_underlined_by_people():
    one = judged("low half high", [0.2, 0.55, 0.95], threshold=0.6, spans=(Span(0, 3, True),))
    shades = [f"{view.INK} on {shade}" for shade in view.TERMINAL]
    assert view.styled(one) == [
        ("low", "underline"),
        (" ", ""),
        ("half", shades[0]),
        (" ", shades[0]),
        ("high", f"bold {shades[4]}"),
    ]


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_letters_can_be_read_on_every_shade():
    style = view.html([FLAGGED])
    pairs = dict(re.findall(r"--(\w+): light-dark\((#\w+, #\w+)\)", style))
    for number in (0, 1):
        of = {name: colours.split(", ")[number] for name, colours in pairs.items()}
        assert all(contrast(of["ink"], of[f"{kind}{step}"]) >= 4.5 for kind in "pl" for step in range(1, 6))
        assert min(contrast(of[name], of["paper"]) for name in ("soft", "accent", "people")) >= 4.5
    assert all(contrast(view.INK, shade) >= 4.5 for shade in view.TERMINAL)


def test_the_page_lets_the_browser_run_its_own_script_alone():
    tree = Tree(view.page([FLAGGED], "A page"))
    hashes = {kind: [f"'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'" for code in codes]
              for kind, codes in tree.code.items()}  # fmt: skip
    assert tree.policy == (
        f"default-src 'none'; script-src {' '.join(hashes['script'])}; style-src {' '.join(hashes['style'])}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert len(tree.code["script"]) == 1
    assert "innerHTML" not in tree.code["script"][0]


# --- in a browser: `pip install playwright`, then `pytest tests/words/test_view.py -m long`


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"),
            args=["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND"],
        )
        yield running
        running.close()


@pytest.mark.long
def test_the_slider_flags_words_in_a_browser(browser: Any, tmp_path: Path):
    hostile = [one for text in HOSTILE for one in everywhere(text)]
    first = judged(FILM, [word.p_wrong for word in FLAGGED.words], lost=[1.0, 0.0], spans=(Span(21, 25, True),))
    (tmp_path / "page.html").write_text(view.page([first, *hostile], "words"), encoding="utf-8")
    # a notebook may show a fragment twice, without a policy
    twice = f"<!doctype html><meta charset=utf-8>{view.html([first, *hostile]) * 2}"
    (tmp_path / "twice.html").write_text(twice, encoding="utf-8")
    for name, copies in (("page", 1), ("twice", 2)):
        tab = browser.new_page(viewport={"width": 390, "height": 844})
        errors: list[str] = []
        tab.on("console", lambda said, errors=errors: errors.append(said.text))
        tab.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
        tab.goto((tmp_path / f"{name}.html").as_uri())
        roots = tab.locator("[data-ready]")
        assert roots.count() == copies
        root = roots.nth(copies - 1)
        words = root.locator("section").first.locator("[data-word].f")
        slider, at = root.locator("input[type=range]"), root.locator(".at")
        assert words.all_inner_texts() == ["1987", "Steven", "Spielberg"]
        slider.fill("0.75")
        assert words.all_inner_texts() == ["1987", "Spielberg"]
        assert root.locator("section .n").first.inner_text() == "2 flagged"
        slider.focus()
        for _ in range(3):
            tab.keyboard.press("ArrowRight")
        assert (at.inner_text(), words.all_inner_texts()) == ("0.78", ["1987"])
        tab.keyboard.press("Home")
        assert root.locator("[data-word]:not(.f)").count() == 0
        root.locator("button").click()
        assert words.all_inner_texts() == ["1987", "Steven", "Spielberg"]
        assert at.inner_text() == "varies"  # one of the hostile responses has no threshold
        shade = "getComputedStyle(node).backgroundColor"
        before = words.first.evaluate(f"(node) => {shade}")
        root.locator("input[value=lost]").check()
        lines = (
            root.locator("section")
            .first.locator(".f")
            .evaluate_all("(all) => all.map((node) => getComputedStyle(node).boxShadow.includes('inset'))")
        )
        assert lines == [True] * 4  # three words, and what is between two of them, whatever is shaded
        assert words.first.evaluate(f"(node) => {shade}") != before
        assert tab.locator("input[type=radio]:checked").count() == copies
        assert (
            tab.evaluate("typeof window.hostile + document.querySelectorAll('#hostile, img, svg').length")
            == "undefined0"
        )
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        shown = tab.locator(".text").evaluate_all("(all) => all.map((one) => one.textContent)")
        assert shown == [one.text.response for one in [first, *hostile]] * copies
        assert errors == []
        tab.close()


@pytest.mark.long
def test_fifty_long_responses_are_fast_and_accessible(browser: Any, tmp_path: Path):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    many = [judged("word " * 300, [0.1 * i for i in range(11)], lost=[1.0], spans=(Span(2, 60, True),))] * 50
    (tmp_path / "many.html").write_text(view.page(many, "Many"), encoding="utf-8")
    for scheme in ("light", "dark"):
        tab = browser.new_page(color_scheme=scheme)
        tab.goto((tmp_path / "many.html").as_uri())
        took = tab.evaluate("""() => {
          const slider = document.querySelector("input[type=range]"), from = performance.now();
          for (const value of [0.2, 0.4, 0.6, 0.8]) { slider.value = value; slider.dispatchEvent(new Event("input")); }
          return (performance.now() - from) / 4;
        }""")
        loaded = tab.evaluate("performance.timing.domContentLoadedEventEnd - performance.timing.navigationStart")
        print(f"\n{scheme}: {loaded} ms to load, {took:.0f} ms for a move")
        assert took < 150
        tab.close()
    (tmp_path / "few.html").write_text(view.page([*many[:2], FLAGGED], "Few"), encoding="utf-8")
    for scheme in ("light", "dark"):
        tab = browser.new_page(color_scheme=scheme)
        tab.goto((tmp_path / "few.html").as_uri())
        found = axe.run(tab).response["violations"]
        assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
        tab.close()
