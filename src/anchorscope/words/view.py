"""How a person sees a judged response: as plain text, in colours of a terminal, in a notebook, and as a page.

Every view shows three things. The shade of a word says how probable it is that the word is wrong. A flag says that this
probability is above the threshold; it is never shown by colour alone. And the characters that people marked as wrong
are shown beside it, whatever the detector says.

The views take texts of anybody. Control characters are shown as signs (␀, ␛), in HTML every text is escaped, and the
script of a page reads numbers only and writes numbers only.
"""

from __future__ import annotations

import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from itertools import groupby, pairwise
from typing import NamedTuple

from anchorscope.spans.words import Range
from anchorscope.words.record import WRONG, Judged, Text

P_STEPS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Where the shades of the probability begin; a word below the first has none."""
LOST_STEPS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Where the shades of the loss without the passage begin, in nats."""
INK = "#1b1f24"
TERMINAL = ("#c9c0b2", "#d6bf98", "#e3b977", "#eeae55", "#f5a03a")
"""Shades of a terminal whose own background is unknown: all are light enough for dark letters, and grey turns into the
orange of the charts, so that the order is the same on black and on white and for colour-blind readers."""

_SIGNS = {**{code: 0x2400 + code for code in range(32)}, 127: 0x2421, **dict.fromkeys(range(128, 160), 0xFFFD)}
_SIGNS |= dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)  # half of a character: no file can hold it
_IN_HTML = {code: sign for code, sign in _SIGNS.items() if chr(code) not in "\t\n\r"}
_IN_TERMINAL = {code: sign for code, sign in _SIGNS.items() if chr(code) not in "\t\n"}
_IN_TERMINAL |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)  # they reorder a whole line


# --- what is shown ------------------------------------------------------------------------------------------------


class ShownPiece(NamedTuple):
    """Characters of a response that are shown alike: a word, what stands between two words, or a part of these."""

    start: int
    end: int
    p_wrong: float | None
    """Probability of the word. Between two words it is the smaller of both, so that a run of words is one shade."""
    lost: float | None
    word: bool
    """Whether it is a word or a part of one."""
    first: bool
    """Whether a word begins here."""
    people: bool
    """Whether people marked it as wrong."""
    outer: bool
    """Whether it is white space before or after the whole text, of which models write a lot."""


def pieces(judged: Judged) -> Iterator[ShownPiece]:
    """The whole response from its first to its last character, in pieces."""
    marked = marked_by_people(judged.text)
    first, last = _body(judged.text.response)
    edges = sorted({edge for span in (*marked, (first, last)) for edge in span})
    for start, end, p_wrong, lost, is_word in _words_and_gaps(judged):
        cuts = [start, *(edge for edge in edges if start < edge < end), end]
        for number, (left, right) in enumerate(pairwise(cuts)):
            people = any(a <= left < b for a, b in marked)
            outer = right <= first or left >= last
            yield ShownPiece(left, right, p_wrong, lost, is_word, is_word and number == 0, people, outer)


def _words_and_gaps(judged: Judged) -> Iterator[tuple[int, int, float | None, float | None, bool]]:
    at = 0
    p_before: float | None = None
    lost_before: float | None = None
    for start, end, p_wrong, lost in judged.words:
        if start > at:
            yield at, start, _least(p_before, p_wrong), _least(lost_before, lost), False
        yield start, end, p_wrong, lost, True
        at, p_before, lost_before = end, p_wrong, lost
    if at < len(judged.text.response):
        yield at, len(judged.text.response), None, None, False


def _least(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else min(one, other)


def marked_by_people(text: Text) -> list[Range]:
    """Characters that somebody marked as wrong; where the spans of several people touch, they are one."""
    limit = len(text.response)
    joined: list[Range] = []
    for start, end in sorted((max(0, span.start), min(span.end, limit)) for span in text.spans or () if span.wrong):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif start < end:
            joined.append((start, end))
    return joined


def _shade(value: float | None, steps: Sequence[float]) -> int:
    """Number of the shade, 0 without one."""
    return 0 if value is None else bisect_right(steps, value)


def _body(text: str) -> Range:
    """The text without white space around it."""
    start = len(text) - len(text.lstrip())
    return start, max(start, len(text.rstrip()))


# --- without colour, and in a terminal ----------------------------------------------------------------------------


def plain(judged: Judged) -> str:
    """The response with every flagged run in brackets: The film was made in [1987 0.91].

    Where the response has brackets of its own, ours are one longer than its longest, as fences of Markdown are:
    See note [3], written in [[1987 0.91]].
    """
    text = judged.text.response
    count = 1 + max((len(run) for run in re.findall(r"\[+|\]+", text)), default=0)
    at, end = _body(text)
    shown = ""
    for flagged in judged.flagged():
        run = f"{text[flagged.start : flagged.end]} {flagged.p_wrong:.2f}"
        shown += f"{text[at : flagged.start]}{'[' * count}{run}{']' * count}"
        at = flagged.end
    return "\n".join([_safe(shown + text[at:end]), *_notes(judged)])


def styled(judged: Judged) -> list[tuple[str, str]]:
    """The response in parts, each with its style as rich writes styles: bold #1b1f24 on #f5a03a."""
    text = judged.text.response
    parts = []
    for piece in pieces(judged):
        if piece.outer:
            continue
        flag = _is_flagged(judged, piece.p_wrong)
        shade = max(_shade(piece.p_wrong, P_STEPS), int(flag))
        style = ["bold"] * flag + ["underline"] * piece.people + [f"{INK} on {TERMINAL[shade - 1]}"] * (shade > 0)
        parts.append((_safe(text[piece.start : piece.end]), " ".join(style)))
    return [*parts, (f"\n{_reason(judged)}", "dim")] if judged.reason else parts


def _is_flagged(judged: Judged, p_wrong: float | None) -> bool:
    """Whether a probability is above the detector's threshold."""
    return p_wrong is not None and judged.threshold is not None and p_wrong > judged.threshold


def _notes(judged: Judged) -> list[str]:
    """The lines below a response."""
    text = judged.text.response
    notes = []
    if marked := marked_by_people(judged.text):
        said = ", ".join(f'"{" ".join(_safe(text[start:end]).split())}"' for start, end in marked)
        notes.append(f"Marked as wrong by people: {said}")
    if judged.reason:
        notes.append(_reason(judged))
    return notes


def _reason(judged: Judged) -> str:
    return f"Not judged: {_safe(judged.reason)}"


def _safe(text: str) -> str:
    """Text that moves no cursor and turns no line around."""
    return text.translate(_IN_TERMINAL)


# --- in a notebook, and as a page ---------------------------------------------------------------------------------


def html(judgeds: Sequence[Judged]) -> str:
    """A fragment for a notebook: shaded words, and a slider that moves the threshold."""
    style, body, script = _fragment(judgeds)
    return f"{body[0]}<style>{style}</style>{body[1]}<script>{script}</script></div>"


def page(judgeds: Sequence[Judged], title: str) -> str:
    """One HTML file that needs no network, and in which the browser runs no script and uses no style but ours."""
    style, body, script = _fragment(judgeds)
    name = _escaped(title)
    policy = (
        f"default-src 'none'; script-src '{_hash_of(script)}'; "
        f"style-src '{_hash_of(_PAGE_STYLE)}' '{_hash_of(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>{name} · anchorscope</title>
<style>{_PAGE_STYLE}</style>
<style>{style}</style>
</head>
<body>
<main>
<header><p>anchorscope</p><h1>{name}</h1></header>
{"".join(body)}</div>
</main>
<script>{script}</script>
</body>
</html>
"""


def _hash_of(content: str) -> str:
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"


def _escaped(text: str) -> str:
    return escape(text.translate(_IN_HTML)).replace("\r", "&#13;")


def _fragment(judgeds: Sequence[Judged]) -> tuple[str, tuple[str, str], str]:
    """The style, the body (its opening tag, and the rest without the closing one) and the script of a fragment."""
    content = repr([(each.text.response, each.words, each.threshold) for each in judgeds])
    name = f"anchorscope-{sha256(content.encode('utf-8', 'backslashreplace')).hexdigest()[:12]}"
    judged = "".join(_response(each) for each in judgeds)
    return (
        _STYLE.replace("NAME", name),
        (f'<div id="{name}" data-by="p">', f"{_tools(judgeds)}{_legend(judgeds, name)}{judged}"),
        _SCRIPT.replace("NAME", name),
    )


def _tools(judgeds: Sequence[Judged]) -> str:
    """The slider, and how many words are flagged at its threshold."""
    words = [piece for each in judgeds for piece in _counted(each)]
    if not words:
        return ""
    thresholds = {each.threshold for each in judgeds if each.words}
    common = thresholds.pop() if len(thresholds) == 1 else None
    own = "varies" if thresholds else "none" if common is None else f"{common:.3g}"
    wrong = [flag for flag, wrong in words if wrong]
    people = (
        f', with <b data-count="caught">{sum(wrong)}</b> of the {len(wrong)} that people marked as wrong'
        if wrong
        else ""
    )
    return f"""<div class="tools">
<div class="threshold" hidden><label><span>Flag words with P(wrong) above</span>\
<input type="range" min="0" max="1" step="0.01" value="{1 if common is None else common:g}"></label>\
<span class="at" aria-hidden="true">{own}</span><button type="button" disabled>Reset</button></div>
<p class="count" role="status"><b data-count="flagged">{sum(flag for flag, _ in words)}</b> of {len(words)} \
words flagged{people}</p></div>
"""


def _counted(judged: Judged) -> list[tuple[bool, bool]]:
    """For each word: whether it is flagged, and whether people marked it as wrong."""
    wrong = _wrong_words(judged)
    return [(_is_flagged(judged, word.p_wrong), word.start in wrong) for word in judged.words]


def _wrong_words(judged: Judged) -> set[int]:
    """Where the words begin that people marked as wrong."""
    if not judged.text.spans:
        return set()
    found = zip(judged.text.words, judged.text.labels, strict=True)
    return {start for (start, _), label in found if label == WRONG}


def _legend(judgeds: Sequence[Judged], name: str) -> str:
    """What the shades and lines mean, and the choice of what is shaded."""
    if not any(each.words for each in judgeds):
        return ""
    lost = any(word.lost is not None for each in judgeds for word in each.words)
    choice = f"""<fieldset hidden><legend>Shade</legend>\
<label><input type="radio" name="{name}" value="p" checked>P(wrong)</label>\
<label><input type="radio" name="{name}" value="lost">lost without the passage</label></fieldset>
"""
    people = '<li><span class="h">word</span>marked as wrong by people</li>' if _marked(judgeds) else ""
    return f"""<div class="legend">{choice if lost else ""}<ul>\
<li class="scale by-p">{_scale("p", P_STEPS)}</li>\
{f'<li class="scale by-lost">{_scale("l", LOST_STEPS)}</li>' if lost else ""}\
<li><span class="f">word</span>flagged</li>{people}</ul>
<p class="by-p">P(wrong): probability that a word is wrong, if half of all words were wrong</p>
<p class="by-lost">Lost: what the log-probability of a word loses without the passage, in nats</p></div>
"""


def _marked(judgeds: Sequence[Judged]) -> bool:
    return any(marked_by_people(each.text) for each in judgeds)


def _scale(kind: str, steps: Sequence[float]) -> str:
    return "".join(f'<span class="{kind}{number}">{step:g}</span>' for number, step in enumerate(steps, 1))


def _response(judged: Judged) -> str:
    text = judged.text
    count = sum(flag for flag, _ in _counted(judged))
    heading = f"{_escaped(text.id)}{f' <i>{_escaped(text.writer)}</i>' if text.writer else ''}"
    flagged = f'<span class="n"><b>{count}</b> flagged</span>' if judged.words else ""
    reason = f'<p class="reason">Not judged: {_escaped(judged.reason)}</p>' if judged.reason else ""
    return f"""<section aria-label="{_escaped(text.id)}"><p class="head"><span>{heading}</span>{flagged}</p>
<p class="text" dir="auto">{"".join(_spans(judged))}</p>
{reason}{_request(text)}</section>
"""


def _spans(judged: Judged) -> Iterator[str]:
    """The response, piece by piece, in one element where people marked it. All text together is the response."""
    text, wrong = judged.text.response, _wrong_words(judged)
    for people, together in groupby(pieces(judged), lambda piece: piece.people):
        yield '<span class="h">' if people else ""
        for piece in together:
            shown = _escaped(text[piece.start : piece.end])
            if piece.outer:
                yield f"<span hidden>{shown}</span>"
            else:
                attributes = _attributes(judged, piece, wrong)
                yield f"<span{attributes}>{shown}</span>" if attributes else shown
        yield "</span>" if people else ""


def _attributes(judged: Judged, piece: ShownPiece, wrong: set[int]) -> str:
    """Shades, flag, numbers and tooltip of a piece."""
    if piece.p_wrong is None:
        return ""
    names = [
        *(f"p{shade}" for shade in [_shade(piece.p_wrong, P_STEPS)] if shade),
        *(f"l{shade}" for shade in [_shade(piece.lost, LOST_STEPS)] if shade),
        *(["w"] if piece.word else []),
        *(["f"] if _is_flagged(judged, piece.p_wrong) else []),
    ]
    attributes = f' class="{" ".join(names)}"' if names else ""
    attributes += f' data-p="{piece.p_wrong:.5g}"'
    if piece.first:
        attributes += " data-word" + ("=wrong" if piece.start in wrong else "")
    return attributes + (f' title="{_tooltip(piece)}"' if piece.word else "")


def _tooltip(piece: ShownPiece) -> str:
    lost = "" if piece.lost is None else f"\n{piece.lost:.2f} nats lost without the passage"
    return f"P(wrong) {piece.p_wrong:.2f}{lost}"


def _request(text: Text) -> str:
    """What the response answers, folded away."""
    turns = [(message.role, message.content) for message in text.messages] or [("request", text.prompt)]
    if text.passage and not any(text.passage in content for _, content in turns):
        turns.append(("passage", text.passage))
    parts = [(role, content) for role, content in turns if content.strip()]
    if not parts:
        return ""
    title = "Request and passage" if text.passage else "Request"
    listed = "".join(f'<dt>{_escaped(role)}</dt><dd dir="auto">{_escaped(said)}</dd>' for role, said in parts)
    return f"<details><summary>{title}</summary><dl>{listed}</dl></details>\n"


_PAGE_STYLE = """
:root { color-scheme: light dark; background: light-dark(#fbfbf9, #16181d); color: light-dark(#22242a, #e8e6e1); }
body { margin: 0; font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
main { max-width: 48rem; margin: 0 auto; padding: 2.5rem .25rem 5rem; }
header { padding: 0 1rem; }
header p { margin: 0; color: light-dark(#5c606b, #a9adb8); font-weight: 600; font-size: .9rem; }
h1 { margin: .1rem 0 1.5rem; font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
@media (max-width: 40rem) { main { padding-top: 1.25rem; } }
"""

_STYLE = """
#NAME {
  color-scheme: light dark;
  --paper: light-dark(#fbfbf9, #16181d); --ink: light-dark(#22242a, #e8e6e1); --soft: light-dark(#5c606b, #a9adb8);
  --line: light-dark(#dcdcd7, #343944); --accent: light-dark(#125ea8, #79b4ee); --people: light-dark(#7a4fbf, #c0a4f2);
  --p1: light-dark(#fdf1de, #30281c); --p2: light-dark(#fbe1bd, #46361d); --p3: light-dark(#f9cf94, #5e451d);
  --p4: light-dark(#f7b968, #714f19); --p5: light-dark(#f5a03a, #885d13);
  --l1: light-dark(#e9f2fb, #1a2735); --l2: light-dark(#cfe3f7, #1c344d); --l3: light-dark(#b0d2f2, #1f4468);
  --l4: light-dark(#8bbce9, #245583); --l5: light-dark(#63a2dc, #2a689f);
  background: var(--paper); color: var(--ink); max-width: 46rem; padding: 0 1rem; border-radius: 8px; text-align: left;
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
}
[data-jp-theme-light="true"] #NAME, .vscode-light #NAME { color-scheme: light; }
[data-jp-theme-light="false"] #NAME, .vscode-dark #NAME { color-scheme: dark; }
#NAME :is(p, ul, dl, dd, fieldset) { margin: 0; padding: 0; border: 0; color: inherit; }
#NAME [hidden] { display: none; }
#NAME b { font-weight: 600; font-variant-numeric: tabular-nums; }
#NAME :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
#NAME .tools {
  position: sticky; top: 0; z-index: 1; background: var(--paper); padding: .7rem 0;
  border-bottom: 1px solid var(--line);
}
#NAME .threshold { display: flex; flex-wrap: wrap; align-items: center; gap: .2rem .8rem; margin-bottom: .25rem; }
#NAME .threshold label { display: contents; }
#NAME input { accent-color: var(--accent); margin: 0; }
#NAME input[type="range"] { flex: 1; min-width: 6rem; border-radius: 4px; }
#NAME .at { min-width: 3.2em; text-align: right; font-weight: 600; font-variant-numeric: tabular-nums; }
#NAME button {
  font: inherit; font-size: .85rem; color: inherit; background: none; border: 1px solid var(--line);
  border-radius: 6px; padding: .1rem .6rem;
}
#NAME button:disabled { opacity: .45; }
#NAME button:enabled { cursor: pointer; }
#NAME .count { color: var(--soft); font-size: .9rem; }
#NAME .count b { color: var(--ink); }
#NAME .legend {
  display: flex; flex-wrap: wrap; gap: .4rem 1.6rem; padding: .8rem 0 0; font-size: .85rem; color: var(--soft);
}
#NAME .legend ul { display: flex; flex-wrap: wrap; gap: .4rem 1.6rem; list-style: none; }
#NAME .legend li > span { color: var(--ink); padding: .1rem .35rem; margin-right: .35rem; }
#NAME .legend .scale > span { margin: 0; }
#NAME .legend p { flex: 0 0 100%; }
#NAME fieldset { display: flex; gap: 1rem; min-width: 0; }
#NAME legend { float: left; width: auto; margin: 0; padding: 0; border: 0; font: inherit; color: inherit; }
#NAME fieldset label { display: inline-flex; align-items: center; gap: .35rem; }
#NAME section { padding: 1.6rem 0 1.3rem; border-bottom: 1px solid var(--line); }
#NAME section:last-of-type { border-bottom: 0; }
#NAME .head {
  display: flex; gap: 1rem; justify-content: space-between; font-size: .85rem; color: var(--soft);
  overflow-wrap: anywhere;
}
#NAME .head i { font-style: normal; margin-left: .6em; }
#NAME .n { white-space: nowrap; }
#NAME .text {
  margin: .35rem 0 .5rem; font-size: 1.0625rem; line-height: 1.95; white-space: pre-wrap; overflow-wrap: anywhere;
  unicode-bidi: isolate;
}
#NAME .text span, #NAME .legend li > span { padding-block: .16em; }
#NAME .reason { color: var(--soft); font-size: .9rem; font-style: italic; }
#NAME summary { cursor: pointer; font-size: .85rem; color: var(--soft); width: fit-content; }
#NAME dl {
  margin-top: .5rem; padding-left: .9rem; border-left: 2px solid var(--line); font-size: .9rem;
  line-height: 1.6;
}
#NAME :is(dt, dd) { float: none; width: auto; }
#NAME dt { color: var(--soft); font-size: .85rem; font-weight: 400; }
#NAME dd { margin: 0 0 .6rem; white-space: pre-wrap; overflow-wrap: anywhere; }
#NAME[data-by="p"] .by-lost, #NAME[data-by="lost"] .by-p { display: none; }
SHADES
#NAME :is(.text, .scale) { --shade: transparent; }
#NAME :is(.text, .scale) span { background: var(--shade); }
/* words are in front of what is between them, so that no shade covers the edge of a letter and no seam shows */
#NAME .w { position: relative; }
#NAME .text span:not(.w, .h) { box-shadow: -1px 0 var(--shade), 1px 0 var(--shade); }
#NAME .f, #NAME .text span.f { box-shadow: inset 0 -2px var(--ink); }
#NAME .text span.f:not(.w) { box-shadow: inset 0 -2px var(--ink), -1px 0 var(--shade), 1px 0 var(--shade); }
#NAME .text .h, #NAME .legend li > .h { border-bottom: 2.5px dotted var(--people); padding-bottom: .3em; }
@media (max-width: 34rem) { #NAME .threshold label span { flex: 0 0 100%; } }
@media (forced-colors: active) { #NAME .f { border-bottom: 2px solid; } }
@media print {
  #NAME { print-color-adjust: exact; }
  #NAME .tools { position: static; }
  #NAME :is(.threshold, fieldset) { display: none; }
}
""".replace(
    "SHADES",
    "\n".join(
        f'#NAME[data-by="{by}"] .{kind}{step} {{ --shade: var(--{kind}{step}); }}'
        for by, kind in (("p", "p"), ("lost", "l"))
        for step in range(1, 6)
    ),
)

_SCRIPT = """
"use strict";
for (const root of document.querySelectorAll('[id="NAME"]:not([data-ready])')) {
  root.dataset.ready = "";
  const find = (selector) => root.querySelector(selector);
  const slider = find("input[type=range]");
  if (!slider) continue;
  const at = find(".at"), reset = find("button"), given = { at: at.textContent, value: slider.value };
  const sections = [...root.querySelectorAll("section")].map((section) => ({
    count: section.querySelector(".n b"),
    parts: [...section.querySelectorAll("[data-p]")].map((node) => ({
      node, p: Number(node.dataset.p), word: "word" in node.dataset, wrong: node.dataset.word === "wrong",
      given: node.classList.contains("f"), on: node.classList.contains("f"),
    })),
  }));
  // a move touches only the words that change
  const flag = (above) => {
    let all = 0, caught = 0;
    for (const section of sections) {
      let here = 0;
      for (const part of section.parts) {
        const on = above(part);
        if (on !== part.on) part.node.classList.toggle("f", (part.on = on));
        if (on && part.word) { here += 1; caught += part.wrong; }
      }
      if (section.count) section.count.textContent = here;
      all += here;
    }
    find("[data-count=flagged]").textContent = all;
    if (find("[data-count=caught]")) find("[data-count=caught]").textContent = caught;
  };
  slider.addEventListener("input", () => {
    const threshold = Number(slider.value);
    at.textContent = threshold.toFixed(2);
    reset.disabled = false;
    flag((part) => part.p > threshold);
  });
  reset.addEventListener("click", () => {
    slider.value = given.value;
    at.textContent = given.at;
    flag((part) => part.given);
    slider.focus();
    reset.disabled = true;
  });
  const copies = document.querySelectorAll("[data-ready]").length;
  for (const choice of root.querySelectorAll("input[type=radio]")) {
    choice.name += `-${copies}`; // a notebook may show the same fragment twice
    choice.addEventListener("change", () => { root.dataset.by = choice.value; });
  }
  for (const hidden of root.querySelectorAll(".threshold, fieldset")) hidden.hidden = false;
}
"""
