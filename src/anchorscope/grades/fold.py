"""A text folded and split into words, each with the range of the text it was read from.

Case, accents, signs and escapes go; what two writings of one word have in common stays.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple


class Word(NamedTuple):
    """A comparable word and the range [start, end) of the text it was read from."""

    text: str
    """In comparable form."""
    start: int
    """First character in the text it was read from."""
    end: int
    """One past the last."""


_FOLDED_LETTERS = {
    "ø": "o",
    "ł": "l",
    "đ": "d",
    "ð": "d",
    "æ": "ae",
    "œ": "oe",
    "þ": "th",
    "ı": "i",
    "ʻ": "'",
    "ʼ": "'",
}
_SIGNS = {"’": "'", "‘": "'", "`": "'", "´": "'", "′": "'", "\u2212": "-", "‐": "-", "‑": "-"} | {
    c: c for c in "'.,-&%+#"
}
_ESCAPE = re.compile(r"\\[uU]([0-9a-fA-F]{4})|[Ââ](?=\u00a0\S)")  # the second is a UTF-8 space read as Latin-1
_W = r"[^\s'.,\-&%+#]"
_WORD = re.compile(
    rf"(?<!\S)-?[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?(?!{_W})"  # 1,000,000
    rf"|(?<!\S)-[0-9]+(?:\.[0-9]+)?(?!{_W})"  # -40, but not the hyphen of 1914-18
    rf"|[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?(?!{_W})"
    rf"|[0-9]+(?:\.[0-9]+)+(?!{_W})"  # 3.5, and 1.2.3
    rf"|(?<!{_W})(?:[^\W\d_]\.){{2,}}(?:[^\W\d_](?!{_W}))?"  # U.S., F.B.I
    rf"|(?<!{_W})[a-z](?:\+\+|\+|\#)(?!{_W})"  # C++, C#, A+
    rf"|{_W}+(?:'{_W}+)*|[&%]"
)


def split_words(text: str, rules: Collection[str]) -> list[Word]:
    """The words of a text, folded; `rules` as in grading.RULES."""
    folded, starts, ends = _fold(text, "accents" in rules, "escapes" in rules)
    if "hyphens" not in rules:
        keep = [i for i, c in enumerate(folded) if c not in "'.,-+#"]
        folded, starts, ends = "".join(folded[i] for i in keep), [starts[i] for i in keep], [ends[i] for i in keep]
    words = []
    for match in _WORD.finditer(folded):
        word = match.group()
        if len(word) > 1 and word[-1] not in "+#":
            word = word.replace("'", "").replace(",", "")
            if not word[0].isdigit() and word[0] != "-":
                word = word.replace(".", "")
        words.append(Word(_SPELLED.get(word, word), starts[match.start()], ends[match.end() - 1]))
    return words


_SPELLED = {"&": "and", "%": "percent"}


@lru_cache(maxsize=16_384)
def _fold_character(char: str, accents: bool) -> str:
    """One character as lower-case letters, digits and the few signs that the word pattern reads; else a space."""
    folded = unicodedata.normalize("NFKD", char.casefold()).casefold()
    out = []
    for c in folded:
        mark = unicodedata.combining(c)
        if accents and (10 <= mark <= 36 or mark >= 200):
            continue  # accents, Hebrew and Arabic points; not the vowel signs and tones that make other words
        if c.isdecimal():
            c = str(unicodedata.decimal(c))
        category = unicodedata.category(c)
        if c in _SIGNS:
            out.append(_SIGNS[c])
        elif accents and c in _FOLDED_LETTERS:
            out.append(_FOLDED_LETTERS[c])
        elif c.isalnum() or category[0] == "M":
            out.append(c)
        elif category != "Cf":  # soft hyphens, joiners and direction marks are nothing
            out.append(" ")
    return "".join(out)


_ASCII = {i: _fold_character(chr(i), True) for i in range(128)}  # one for one, so places stay


def _fold(text: str, accents: bool, escapes: bool) -> tuple[str, Sequence[int], Sequence[int]]:
    """Folded text, and for each of its characters the range it stands for in `text`."""
    if text.isascii() and "\\" not in text:
        place = range(len(text))
        return text.translate(_ASCII), place, range(1, len(text) + 1)
    out: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    while at < len(text):
        match = _ESCAPE.match(text, at) if escapes and text[at] in "\\Ââ" else None
        end = match.end() if match else at + 1
        char = (chr(int(match[1], 16)) if match[1] else " ") if match else text[at]
        piece = _fold_character(char, accents)
        if piece.isdigit() and out and out[-1][-1].isdigit() and unicodedata.decomposition(char).startswith("<super>"):
            piece = " " + piece  # 10² is not 102
        if piece:
            out.append(piece)
            starts += [at] * len(piece)
            ends += [end] * len(piece)
        elif ends:
            ends[-1] = end  # a mark belongs to its letter
        at = end
    return "".join(out), starts, ends
